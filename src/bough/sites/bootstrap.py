"""The archive that a bare host gets: Bough and the two packages that an executor needs, as they are installed here.

It is made once for what is installed, kept under the user's private cache, and named by its digest, so that a host
that has it is sent nothing. Rule: the same files make the same bytes.
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
from collections.abc import Iterator
from typing import Final, NamedTuple

from bough import private
from bough.errors import SiteError

_PACKAGES: Final = ("bough", "msgspec", "cloudpickle")
_LEFT_OUT: Final = (".pyc", ".pyi", ".pyo")
TAG: Final = sysconfig.get_config_var("SOABI") or ""  # of the extension modules in it
_packing = threading.Lock()


class Archive(NamedTuple):
    """What is sent."""

    digest: str
    data: bytes


def make_archive(cache: str) -> Archive:
    """The archive for what is installed here, from the cache if it was made before."""
    files = sorted(_files())
    mark = hashlib.sha256()
    for name, path in files:
        status = os.stat(path)
        mark.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    private.make_folder(cache)
    kept = os.path.join(cache, f"{mark.hexdigest()[:32]}.tar.gz")
    with _packing:  # several sites want it at once
        try:
            with open(kept, "rb") as file:
                data = file.read()
        except OSError:
            data = _pack(files)
            for old in os.listdir(cache):
                with contextlib.suppress(FileNotFoundError):  # another server was faster
                    os.unlink(os.path.join(cache, old))
            with contextlib.suppress(FileNotFoundError):  # another server took it for an old one
                private.write_file(kept, data)
    return Archive(hashlib.sha256(data).hexdigest(), data)


def _files() -> Iterator[tuple[str, str]]:
    """Name in the archive and path of every file."""
    for package in _PACKAGES:
        place = importlib.import_module(package).__file__
        if place is None:
            raise SiteError(f"the package {package} has no folder here: install Bough with pip")
        top = os.path.dirname(place)
        for folder, folders, names in os.walk(top):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in names:
                if not name.endswith(_LEFT_OUT):
                    path = os.path.join(folder, name)
                    yield os.path.join(package, os.path.relpath(path, top)), path


def _pack(files: list[tuple[str, str]]) -> bytes:
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in files:
            with open(path, "rb") as file:
                data = file.read()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
