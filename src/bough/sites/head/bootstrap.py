"""The archive that a bare host gets: Bough and the two packages that an executor needs, made for the Python there.

What is pure Python is taken as it is installed here, and so is msgspec's extension if the Python there is like ours;
for another one it comes from `foreign_wheels`, unless msgspec is installed there. An archive is kept under the user's
private cache, one for each platform, and named by its digest, so that a host that has it is sent nothing. Rule: the
same files make the same bytes.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib
import io
import os
import sysconfig
import tarfile
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from bough import private
from bough.errors import SiteError
from bough.model.sites.resources import OWN_PYTHON
from bough.sites.head.foreign_wheels import LEAST, Platform, find_wheel, read_version

_PURE: Final = ("bough", "cloudpickle")
_COMPILED: Final = "msgspec"
_LEFT_OUT: Final = (".pyc", ".pyi", ".pyo")
OWN: Final = Platform(sysconfig.get_config_var("SOABI") or "", sysconfig.get_platform())
_packing = threading.Lock()


class Archive(NamedTuple):
    """What is sent."""

    digest: str
    data: bytes


def read_platform(found: Mapping[str, Any]) -> Platform:
    """What a look at a host has found."""
    platform = Platform(*(str(found.get(name, ""))[:200] for name in ("tag", "system", "libc", "msgspec")))
    return OWN if platform.tag == OWN.tag else platform


def only_commands(python: str) -> str:
    """What must be said of a host with this Python, if it is of another minor version than ours."""
    minor = ".".join(python.split(".")[:2])
    return "" if minor == OWN_PYTHON else f": commands run there, and functions of scripts under Python {minor}"


class _File(NamedTuple):
    name: str  # in the archive
    mark: str  # changes with its content
    path: str
    data: bytes | None = None  # instead of the path


def make_archive(cache: str, platform: Platform = OWN) -> Archive:
    """The archive for the Python of a host, from the cache if it was made before."""
    private.make_folder(cache)
    files = sorted(_files(cache, platform))
    mark = hashlib.sha256()
    for file in files:
        mark.update(f"{file.name}\0{file.mark}\0".encode())
    tag = platform.tag or "plain"
    kept = os.path.join(cache, f"{tag}+{mark.hexdigest()[:32]}.tar.gz")
    with _packing:  # several sites want it at once
        try:
            with open(kept, "rb") as stored:
                data = stored.read()
        except OSError:
            data = _pack(files)
            _remove_old(cache, tag)
            with contextlib.suppress(FileNotFoundError):  # another server took it for an old one
                private.write_file(kept, data)
    return Archive(hashlib.sha256(data).hexdigest(), data)


def _remove_old(cache: str, tag: str) -> None:
    """Remove archives of what was installed here before, for this platform."""
    for name in os.listdir(cache):
        if name.endswith(".tar.gz") and ("+" not in name or name.rpartition("+")[0] == tag):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(cache, name))


def _files(cache: str, platform: Platform) -> Iterator[_File]:
    for package in _PURE:
        yield from _installed(package)
    if platform.tag == OWN.tag:
        yield from _installed(_COMPILED)
    elif read_version(platform.msgspec) < LEAST:
        wheel = find_wheel(os.path.join(cache, "wheels"), platform)
        yield from (_File(name, wheel.digest, "", data) for name, data in wheel.files)


def _installed(package: str) -> Iterator[_File]:
    """Every file of a package that is installed here."""
    place = importlib.import_module(package).__file__
    if place is None:
        raise SiteError(f"the package {package} has no folder here: install Bough with pip")
    top = os.path.dirname(place)
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if not name.endswith(_LEFT_OUT):
                path = os.path.join(folder, name)
                status = os.stat(path)
                mark = f"{status.st_size}\0{status.st_mtime_ns}"
                yield _File(os.path.join(package, os.path.relpath(path, top)), mark, path)


def _pack(files: list[_File]) -> bytes:
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for file in files:
            data = file.data if file.data is not None else _read(file.path)
            entry = tarfile.TarInfo(file.name)
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
