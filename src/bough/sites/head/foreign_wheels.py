"""msgspec for another Python or platform than the server's: its wheel, fetched once by the pip that is here.

pip is told nothing but which wheel: its index, proxy and certificates are those that the user has set. Rules: only a
wheel is taken, never something that is built; what is in it is held against its own list of digests; it is kept under
the digest of the whole, which is looked at whenever it is used. What a host says of its platform is checked before it
becomes part of a command.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from bough import private
from bough.errors import SiteError

LEAST: Final = (0, 19)  # the version of msgspec that Bough needs
_PACKAGE: Final = "msgspec"
_LEFT_OUT: Final = (".pyc", ".pyi", ".pyo")
_TAG: Final = re.compile(r"cpython-3(\d{1,3})(t?)-[a-z0-9_]{1,32}-linux-(gnu|musl)[a-z0-9]{0,16}\Z", re.ASCII)
_SYSTEM: Final = re.compile(r"linux-([a-z0-9_]{1,32})\Z", re.ASCII)
_GLIBC: Final = re.compile(r"glibc 2\.(\d{1,3})(\.\d+)?\Z", re.ASCII)
_OLD_NAMES: Final = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_OLDEST: Final = 5  # glibc 2.5 is what the first such wheels were made for
_MUSL: Final = ("musllinux_1_2", "musllinux_1_1")
_PATIENCE: Final = 60.0  # seconds for pip
_MOST: Final = 64 << 20  # bytes of a wheel, and of what is in it


class Platform(NamedTuple):
    """What the Python of a host says of itself."""

    tag: str  # how its extension modules are called: cpython-312-x86_64-linux-gnu
    system: str = ""  # linux-x86_64
    libc: str = ""  # glibc 2.36
    msgspec: str = ""  # the version that is installed there


class Wheel(NamedTuple):
    """A wheel that was checked: the package's files by their names."""

    digest: str
    files: list[tuple[str, bytes]]


def read_version(text: str) -> tuple[int, ...]:
    """The first numbers of a version; none: it is not there."""
    found = re.match(r"(\d{1,9})\.(\d{1,9})", text, re.ASCII)
    return (int(found[1]), int(found[2])) if found else ()


def find_wheel(cache: str, platform: Platform) -> Wheel:
    """The wheel for a platform, from the cache or by pip; a SiteError that says what to do if there is none."""
    _words(platform)  # a platform that no wheel is for is told before anything is done
    private.make_folder(cache)
    known = f"{_PACKAGE}-{msgspec.__version__}+{platform.tag}+{platform.libc.replace(' ', '')}"
    kept = _kept(cache, known, platform)
    if kept is not None:
        return kept
    data = _fetch(platform)
    wheel = open_wheel(data, platform)
    private.write_file(os.path.join(cache, f"{known}+{wheel.digest}.whl"), data)
    return wheel


def _kept(cache: str, known: str, platform: Platform) -> Wheel | None:
    for name in os.listdir(cache):
        if name.startswith(f"{known}+"):
            path = os.path.join(cache, name)
            with contextlib.suppress(OSError, SiteError), open(path, "rb") as file:
                wheel = open_wheel(file.read(_MOST), platform)
                if name == f"{known}+{wheel.digest}.whl":
                    return wheel
            with contextlib.suppress(OSError):  # it is damaged
                os.unlink(path)
    return None


def _words(platform: Platform) -> list[str]:
    """What pip is told of a platform."""
    tag, system = _TAG.match(platform.tag), _SYSTEM.match(platform.system)
    if tag is None or system is None:
        raise SiteError(
            f"Bough cannot be made for {platform.tag or 'a Python without a name for its extensions'} on"
            f" {platform.system or 'that system'}: CPython on Linux is needed; name another one with --python"
        )
    words = ["--implementation", "cp", "--python-version", f"3.{tag[1]}", "--abi", f"cp3{tag[1]}{tag[2]}"]
    for name in _systems(tag[3] == "musl", platform.libc):
        words += ["--platform", f"{name}_{system[1]}"]
    return words


def _systems(is_musl: bool, libc: str) -> Iterator[str]:
    """Names of the systems whose wheels run there, the newest first."""
    if is_musl:
        yield from _MUSL
        return
    glibc = _GLIBC.match(libc)
    for minor in range(int(glibc[1]) if glibc else max(_OLD_NAMES), _OLDEST - 1, -1):
        yield f"manylinux_2_{minor}"
        if minor in _OLD_NAMES:
            yield _OLD_NAMES[minor]


def _fetch(platform: Platform) -> bytes:
    """Have pip bring it: of the same version as here, or of a later one if that was not made for such a Python."""
    folder = tempfile.mkdtemp(prefix="bough-wheel-")
    try:
        problem = ""
        for relation in ("==", ">="):
            wish = f"{_PACKAGE}{relation}{msgspec.__version__}"
            problem = _download(folder, wish, platform)
            for name in os.listdir(folder):
                if name.endswith(".whl"):
                    with open(os.path.join(folder, name), "rb") as file:
                        return file.read(_MOST)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    raise SiteError(
        f"msgspec for {platform.tag} cannot be fetched ({problem}): let pip here reach its index, install msgspec for"
        " that Python there, or name a Python like the one here with --python"
    )


def _download(folder: str, wish: str, platform: Platform) -> str:
    """Call pip; what it complains of."""
    options = ["--quiet", "--disable-pip-version-check", "--no-input", "--timeout", "15", "--retries", "1"]
    options += ["--only-binary", ":all:", "--no-deps", "--dest", folder]
    argv = [sys.executable, "-m", "pip", "download", *options, *_words(platform), wish]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=False, cwd=folder
        )
    except subprocess.TimeoutExpired:
        return f"pip has not brought it within {_PATIENCE:g} s"
    except OSError as error:
        return f"pip cannot be started: {error.strerror}"
    lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors[-1:] or lines[-1:] or [f"pip ended with exit code {done.returncode}"])[0][:300]


def open_wheel(data: bytes, platform: Platform) -> Wheel:
    """The package in a wheel, every file held against the wheel's own list."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            if sum(entry.file_size for entry in opened.infolist()) > _MOST:
                raise SiteError(f"the wheel of {_PACKAGE} for {platform.tag} is too big")
            files = sorted(_checked(opened))
    except (zipfile.BadZipFile, OSError, ValueError, KeyError) as error:
        raise SiteError(f"the wheel of {_PACKAGE} for {platform.tag} is damaged: {error}") from error
    if not any(name.endswith((f".{platform.tag}.so", ".abi3.so")) for name, _ in files):
        raise SiteError(f"the wheel of {_PACKAGE} that pip brought is not for {platform.tag}")
    return Wheel(hashlib.sha256(data).hexdigest(), files)


def _checked(opened: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    [record] = [name for name in opened.namelist() if name.endswith(".dist-info/RECORD")]
    for row in csv.reader(io.StringIO(opened.read(record).decode())):
        name, digest = row[0], row[1]
        parts = name.split("/")
        if parts[0] != _PACKAGE or name.endswith(_LEFT_OUT):
            continue
        if ".." in parts or "\\" in name or not digest.startswith("sha256="):
            raise ValueError(f"its list has {name!r} with {digest!r}")
        content = opened.read(name)
        found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        if found != digest.removeprefix("sha256="):
            raise ValueError(f"{name} is not what its list says")
        yield name, content
