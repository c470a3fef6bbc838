"""A command that a remote monitor runs beside a task, in a helper process.

It runs in the task's directory, with the executor's environment and the task's number in it ($BOUGH_TASK,
$BOUGH_ATTEMPT; $BOUGH_PID is the process of the task). Rules: it has a time limit and a process group, which ends with
it. Of what it writes a bounded part is kept; the rest is read and dropped, so that it never waits for a reader.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time

from bough.errors import SiteError
from bough.executor.host.processes import kill_group
from bough.executor.probes.file_answers import ProbePlace
from bough.wire.probes import MOST_WRITTEN, CommandRan, RunCommand

_CHUNK = 1 << 16


def run_beside(asked: RunCommand, place: ProbePlace) -> CommandRan:
    """Run it to its end, or until its time is over."""
    environment = {
        **os.environ,
        "BOUGH_TASK": f"{place.record}.{place.index}",
        "BOUGH_ATTEMPT": str(place.attempt),
        "BOUGH_PID": str(place.group or place.pid),
    }
    deadline = time.monotonic() + asked.timeout
    end = _End()
    signal.signal(signal.SIGTERM, end.on_term)
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", asked.command],
            cwd=place.working_directory(),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        end.started(process.pid)
    except OSError as error:
        raise SiteError(f"the command cannot be started: {error.strerror}") from error
    try:
        written, cut = _read(process, deadline)
    finally:
        kill_group(process.pid)
        process.wait()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return CommandRan(process.returncode, *written, cut)


class _End:
    """Ends the helper with its command when it is told to: the executor is gone, or nobody waits for the answer."""

    def __init__(self) -> None:
        self._group = 0
        self._is_told = False

    def on_term(self, *_: object) -> None:
        """TERM came; if the command is just being started, it is ended as soon as it can be named."""
        self._is_told = True
        if self._group:
            kill_group(self._group)
            os._exit(0)

    def started(self, group: int) -> None:
        """The command has begun."""
        self._group = group
        if self._is_told:
            self.on_term()


def _read(process: subprocess.Popen[bytes], deadline: float) -> tuple[tuple[bytes, bytes], bool]:
    """What it writes until it has ended; what it left in the background is not waited for."""
    assert process.stdout is not None
    assert process.stderr is not None
    streams = (process.stdout, process.stderr)
    found = (bytearray(), bytearray())
    cut = False
    with selectors.DefaultSelector() as selector, contextlib.closing(_EndOf(process.pid)) as ended:
        selector.register(ended.fd, selectors.EVENT_READ)
        for stream in streams:
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, streams.index(stream))
        is_over = False
        while not is_over:
            left = deadline - time.monotonic()
            if left <= 0:
                raise SiteError("the command took longer than its time limit, and was ended")
            ready = selector.select(left)
            is_over = any(key.fileobj == ended.fd for key, _ in ready)  # what it wrote is in the pipes by now
            for key, _ in ready:
                if key.fileobj != ended.fd and not (data := _some(key.fd)):
                    selector.unregister(key.fileobj)
                elif key.fileobj != ended.fd:
                    cut = _keep(found[key.data], data) or cut
        for at, stream in enumerate(streams):
            while (data := _some(stream.fileno())) and time.monotonic() < deadline:
                cut = _keep(found[at], data) or cut
    return (bytes(found[0]), bytes(found[1])), cut


class _EndOf:
    """A descriptor that can be read once a process has ended."""

    def __init__(self, pid: int) -> None:
        self.fd = os.pidfd_open(pid)

    def close(self) -> None:
        os.close(self.fd)


def _some(fd: int) -> bytes:
    try:
        return os.read(fd, _CHUNK)
    except BlockingIOError:
        return b""


def _keep(found: bytearray, data: bytes) -> bool:
    """Keep what there is room for; whether something was dropped."""
    room = MOST_WRITTEN - len(found)
    found += data[:room]
    return len(data) > room
