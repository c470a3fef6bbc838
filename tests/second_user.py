"""Another user of the same machine, who tries what the system lets him: a forked process of uid 65534."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user: run it as root")


def as_another(do: Callable[[], Any]) -> Any:
    """Do something as another user, in a process of its own; what came of it, as JSON can say it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = '"it failed"'
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            said = json.dumps(do())
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as file:
        said = file.read()
    os.waitpid(pid, 0)
    return json.loads(said)


def everything_under(*places: Path) -> list[tuple[str, int]]:
    """All paths there, as their owner sees them, with their modes."""
    found = []
    for place in places:
        for path in (place, *sorted(place.rglob("*"))):
            with contextlib.suppress(FileNotFoundError):  # it was there a moment ago
                found.append((str(path), path.lstat().st_mode))
    return found


def reached(*places: Path) -> list[str]:
    """What another user can do with anything there: nothing, if all is well."""
    paths = everything_under(*places)
    assert paths
    tops = {f"see {place}" for place in places}  # that there is something is no secret
    found = as_another(lambda: [f"{what} {path}" for path, mode in paths for what in _tried(path, mode)])
    assert isinstance(found, list)
    return [one for one in found if one not in tops]


def _tried(path: str, mode: int) -> Iterator[str]:
    if stat.S_ISDIR(mode):
        tries = {"list": lambda: os.listdir(path), "write in": lambda: os.mkdir(f"{path}/intruder")}
    elif stat.S_ISSOCK(mode):
        tries = {"connect to": lambda: socket.socket(socket.AF_UNIX).connect(path)}
    else:
        tries = {
            "read": lambda: os.close(os.open(path, os.O_RDONLY)),
            "write": lambda: os.close(os.open(path, os.O_WRONLY)),
            "remove": lambda: os.unlink(path),
            "replace": lambda: os.rename(path, f"{path}.stolen"),
        }
    for what, do in {**tries, "see": lambda: os.lstat(path)}.items():
        try:
            do()
        except OSError:
            continue
        yield what


@contextlib.contextmanager
def street() -> Iterator[Path]:
    """A folder that everybody can get into, as /home and /tmp are; pytest's own folders are closed."""
    folder = Path(tempfile.mkdtemp(prefix="street-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
