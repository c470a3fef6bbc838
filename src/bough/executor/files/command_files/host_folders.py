"""Folders of a host and its user that stay: `$STORAGE` of commands in playpens, and environments that were unpacked.

They lie beside the executor's own folder, in `--work DIR` or `$XDG_CACHE_HOME/bough`, or in `~/.cache/bough`. Rules:
only their user reaches them. What is made in them is made under a lock and has its name only when it is complete, so
that several executors of a host share them; who comes second waits, and finds it there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from hashlib import blake2b

from bough import private
from bough.errors import SiteError
from bough.executor.files.command_files.declared_outputs import remove
from bough.movers.folder_archive import unpack_file

_MOST_ENVIRONMENTS = 8  # kept, and those of the last day
_DAY = 86_400.0
_UNPACK_LIMIT = 600.0  # seconds for conda-unpack


def host_folder(executor_folder: str) -> str:
    """The folder of a host and its user; `executor_folder` is that of an executor's life."""
    parent = os.path.dirname(executor_folder)
    if parent == private.temporary_place():
        parent = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "bough")
    return parent


@contextlib.contextmanager
def locked(folder: str, name: str) -> Iterator[None]:
    """Hold the lock of a name in a folder, which is made."""
    locks = f"{folder}/.locks"
    private.make_folder(folder)
    private.make_folder(locks)
    key = blake2b(os.fsencode(name), digest_size=16).hexdigest()
    number = private.opener(f"{locks}/{key}", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


class Environment:
    """An unpacked environment: what a command must have to use it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @property
    def setup(self) -> str:
        """Shell text that runs before the command's own setup; empty: none is needed."""
        import shlex

        activate = f"{self.folder}/bin/activate"
        if not os.path.isfile(activate):
            return ""
        programs = shlex.quote(f"{self.folder}/bin")  # first, whatever a script that was moved here says
        return f'. {shlex.quote(activate)}\nexport PATH={programs}:"$PATH"'

    def put_first(self, environment: dict[bytes, bytes]) -> None:
        """Add it to the variables of a command."""
        programs = f"{self.folder}/bin"
        _prepend(environment, b"PATH", programs if os.path.isdir(programs) else self.folder)
        if not os.path.lexists(f"{programs}/python"):  # which finds its own modules
            libraries = _site_packages(self.folder)
            for path in reversed(libraries or [self.folder]):
                _prepend(environment, b"PYTHONPATH", path)


def _prepend(environment: dict[bytes, bytes], name: bytes, path: str) -> None:
    before = environment.get(name, os.fsencode(os.defpath) if name == b"PATH" else b"")
    environment[name] = os.fsencode(path) + (b":" + before if before else b"")


def _site_packages(folder: str) -> list[str]:
    import glob

    return sorted(glob.glob(f"{glob.escape(folder)}/lib/python*/site-packages"))


def unpacked_environment(host: str, archive: str) -> Environment:
    """An environment, unpacked here once; SiteError or OSError when that cannot be done."""
    state = os.stat(archive)
    name = os.path.basename(archive)
    if len(name) != 64 or set(name) - set("0123456789abcdef"):  # no content of a cache, which is named by its digest
        stamp = f"{os.path.realpath(archive)} {state.st_size} {state.st_mtime_ns} {state.st_ino}"
        name = blake2b(stamp.encode("utf-8", "surrogateescape"), digest_size=32).hexdigest()
    folder = f"{host}/environments"
    path = f"{folder}/{name}"
    with locked(folder, name):
        if not os.path.isdir(path):
            _unpack(archive, path)
            _drop_old(folder, path)
        os.utime(path)
    return Environment(_root(path))


def _unpack(archive: str, path: str) -> None:
    hidden = f"{path}.part"
    remove(hidden)
    try:
        unpack_file(archive, hidden, any_links=True, times=True)
        os.rename(hidden, path)  # before paths in it are made right: they name the place
        fix = f"{_root(path)}/bin/conda-unpack"
        if os.path.isfile(fix):
            _run_fix(fix)
    except BaseException:
        remove(hidden)
        remove(path)
        raise


def _run_fix(program: str) -> None:
    python = f"{os.path.dirname(program)}/python"
    words = [python, program] if os.path.exists(python) else [program]
    try:
        done = subprocess.run(words, capture_output=True, timeout=_UNPACK_LIMIT, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SiteError(f"conda-unpack of the environment cannot be run: {error}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise SiteError(f"conda-unpack of the environment failed: {''.join(said) or done.returncode}")


def _root(path: str) -> str:
    """The folder itself, or the only one in it."""
    names = os.listdir(path)
    inner = f"{path}/{names[0]}" if len(names) == 1 else ""
    return inner if inner and names[0] not in {"bin", "lib"} and os.path.isdir(inner) else path


def _drop_old(folder: str, newest: str) -> None:
    """Delete environments that were not used for long."""
    kept = sorted(
        (entry.stat().st_mtime, entry.path)
        for entry in os.scandir(folder)
        if entry.is_dir() and not entry.name.startswith(".") and entry.path != newest
    )
    for used, path in kept[: max(0, len(kept) - _MOST_ENVIRONMENTS)]:
        if time.time() - used > _DAY:
            remove(path)
