"""What a command is started with: the program's path, its environment, its standard input.

Rule: whatever keeps a command from starting is an `Unstartable` whose message names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from bough.executor.host.devices import WorkerDevices
from bough.executor.host.processes import Unstartable
from bough.model.commands.command import CommandSettings

THREADS = (b"OMP_NUM_THREADS", b"OPENBLAS_NUM_THREADS", b"MKL_NUM_THREADS", b"NUMEXPR_NUM_THREADS")
_KEPT = 256


def threads_text(cores: float) -> str:
    """How many threads a task with so many cores may use."""
    return str(max(1, int(cores)))


class ProgramPaths:
    """Looks programs up as a shell would, and remembers."""

    def __init__(self) -> None:
        self._found: dict[tuple[bytes, str], str] = {}

    def forget(self) -> None:
        """Something was not where it was found: look again the next time."""
        self._found.clear()

    def ways(self, argv: list[str], path: bytes) -> Iterator[tuple[str, list[str]]]:
        """Ways to start a command: as a program, then as a shell script without a first line."""
        if not argv or not argv[0]:
            raise Unstartable("the command is empty", of_site=False)
        program = self._find(argv[0], path)
        yield program, argv
        yield "/bin/sh", ["/bin/sh", program, *argv[1:]]

    def _find(self, name: str, path: bytes) -> str:
        if "/" in name:
            return name
        found = self._found.get((path, name))
        if found is None:
            for folder in os.fsdecode(path).split(":"):
                candidate = os.path.join(folder or ".", name)
                if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
                    self._found[path, name] = found = candidate
                    break
            else:
                raise Unstartable(f"the program {name!r} was not found in PATH")
        return found


class Environments:
    """Environments of commands: the worker's own as it was at its start, and what settings add."""

    def __init__(self, own: dict[bytes, bytes], devices: WorkerDevices) -> None:
        self._own = own
        self._devices = devices
        self._made: dict[tuple[object, ...], dict[bytes, bytes]] = {}
        self._last: tuple[dict[str, str], float, dict[bytes, bytes]] = ({}, -1.0, {})  # most are as the one before

    def make(self, extra: dict[str, str], cores: float, task: str, attempt: int) -> dict[bytes, bytes]:
        """The environment of one attempt, encoded."""
        last, last_cores, base = self._last
        if cores != last_cores or extra != last:
            base = self._base(extra, cores)
            self._last = (extra, cores, base)
        environment = base.copy()
        if self._devices.encoded:
            environment.update(item for item in self._devices.encoded.items() if item[0].decode() not in extra)
        environment[b"BOUGH_TASK"] = task.encode()
        environment[b"BOUGH_ATTEMPT"] = b"%d" % attempt
        return environment

    def _base(self, extra: dict[str, str], cores: float) -> dict[bytes, bytes]:
        """What the attempts of like tasks have in common."""
        key = (cores, *extra.items())
        base = self._made.get(key)
        if base is None:
            base = {**dict.fromkeys(THREADS, threads_text(cores).encode()), **self._own}
            base.update((os.fsencode(name), os.fsencode(value)) for name, value in extra.items())
            if len(self._made) >= _KEPT:
                self._made.clear()
            self._made[key] = base
        return base


def open_stdin(settings: CommandSettings) -> int:
    """A descriptor for a command's standard input, or -1: the worker's own, which is empty."""
    if settings.stdin_path:
        path = os.path.join(settings.cwd, settings.stdin_path)
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unstartable(f"the file for standard input cannot be read: {path}: {error.strerror}") from error
    if settings.stdin is None:
        return -1
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    view = memoryview(settings.stdin)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
