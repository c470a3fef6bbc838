"""A process on this machine: its standard streams are this process' own, opened again by way of /proc.

A few words of shell open the streams, write a line into one pipe, and become the program, so that its number, its
signals and its pipes are as if this process had started it. Rule: the line says that the streams are open; until then
our ends of them stay open. What the process wrote into a file of ours moves our place in that file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from bough.driver.process_link import INHERITED, Streams, copy_in, copy_out, return_code, wait_for
from bough.errors import TaskFailed

if TYPE_CHECKING:
    from concurrent.futures import Future

    from bough.driver.process_link import ProcessRequest
    from bough.driver.session_choice import SessionChoice

_ADDED = (  # by executors and shells to what a session's environment was
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
    *("BOUGH_RUN", "BOUGH_SITE", "BOUGH_TASK", "BOUGH_ATTEMPT", "BOUGH_HERE", "PWD", "OLDPWD", "SHLVL"),
)
_ENDING = frozenset({signal.SIGTERM, signal.SIGKILL})

Hear = Callable[[int], None]  # gets the process id

_lock = threading.Lock()
_starts: StartSignals | None = None


class StartSignals:
    """One pipe, and a thread that reads it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._read, self._write = os.pipe()
        self._waiting: dict[int, Hear] = {}
        self._last = 0
        threading.Thread(target=self._listen, name="bough-driver-starts", daemon=True).start()

    @property
    def path(self) -> str:
        """Where the line is to be written: the key, a blank, the process id."""
        return descriptor_path(self._write)

    def expect(self, hear: Hear) -> int:
        """A key for a process; `hear` is called, in a thread, when it has begun."""
        with _lock:
            self._last += 1
            self._waiting[self._last] = hear
            return self._last

    def forget(self, key: int) -> None:
        """The process has ended, or will not begin."""
        self._waiting.pop(key, None)

    def _listen(self) -> None:
        rest = b""
        while said := os.read(self._read, 1 << 16):
            *lines, rest = (rest + said).split(b"\n")
            for line in lines:
                key, pid = line.split()
                hear = self._waiting.pop(int(key), None)
                if hear is not None:
                    hear(int(pid))


def starts() -> StartSignals:
    """That of this process; a forked one makes its own."""
    global _starts
    if _starts is None or _starts.owner != os.getpid():
        with _lock:
            if _starts is None or _starts.owner != os.getpid():
                _starts = StartSignals()
    return _starts


def descriptor_path(fd: int) -> str:
    """A path by which other processes of this user open what a descriptor of this one stands for."""
    return f"/proc/{os.getpid()}/fd/{fd}"


class LocalProcess:
    """The process of a `Popen`, on this machine; see the module."""

    def __init__(self, place: SessionChoice, request: ProcessRequest, streams: Streams) -> None:
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._pid: int | None = None
        self._sent: int = signal.SIGTERM
        self._ends: list[int] = []  # to be closed once the process has opened them
        self._files: list[int] = []  # ours, whose place must follow what the process did
        self._copiers: list[threading.Thread] = []
        self._starts = starts()
        self._key = self._starts.expect(self._hear)
        try:
            opening = self._open_streams(streams)
            self.task = place.submitter.command(
                _wrapped(request, place.environment, f"exec {opening}; echo {self._key} $$ >{self._starts.path}"),
                cwd=request.cwd,
                env=_changed(request, place.environment),
                memo=False,
                name=os.path.basename(request.words[0])[:40] or None,
                cores=0 if streams.is_stage() else None,  # it must run while the one it talks to does
            )
        except BaseException:
            self._close_streams()
            raise
        self.task.add_done_callback(self._on_end)

    # --- streams --------------------------------------------------------------------------------------

    def _open_streams(self, streams: Streams) -> str:
        """The redirections; a stream that this process has closed is empty."""
        words = [self._source(streams.stdin), "1" + self._sink(streams.stdout, 1)]
        words.append("2>&1" if streams.is_merged() else "2" + self._sink(streams.stderr, 2))
        return " ".join(words)

    def _source(self, given: int) -> str:
        fd = _kept(0 if given == INHERITED else given)
        if fd is None:
            return f"<{os.devnull}"
        mode = os.fstat(fd).st_mode
        how = "<>" if _is_both(fd) and not stat.S_ISFIFO(mode) else "<"
        is_file = stat.S_ISREG(mode)
        if is_file and given != INHERITED:
            self._files.append(os.dup(fd))
        if stat.S_ISSOCK(mode) or (is_file and os.lseek(fd, 0, os.SEEK_CUR)):
            end, thread = copy_in(fd, is_file=is_file)
            self._copiers.append(thread)
            fd, how = end, "<"
        self._ends.append(fd)
        return how + descriptor_path(fd)

    def _sink(self, given: int, own: int) -> str:
        fd = _kept(own if given == INHERITED else given)
        if fd is None:
            return f">{os.devnull}"
        mode = os.fstat(fd).st_mode
        how = "<>" if _is_both(fd) and stat.S_ISCHR(mode) else ">>"  # a terminal
        if stat.S_ISSOCK(mode):
            how = ">"
            fd, thread = copy_out(fd)
            self._copiers.append(thread)
        elif stat.S_ISREG(mode):
            self._files.append(os.dup(fd))
        self._ends.append(fd)
        return how + descriptor_path(fd)

    def _hear(self, pid: int) -> None:
        """It has begun."""
        with self._lock:
            self._pid = pid
            ends, self._ends = self._ends, []
        _close(ends)
        self._begun.set()

    def _on_end(self, _: Future[object]) -> None:
        """It has ended, or never began."""
        self._close_streams()
        self._begun.set()

    def _close_streams(self) -> None:
        self._starts.forget(self._key)
        with self._lock:  # all of it: the second thread must find our places in the files moved
            ends, self._ends = self._ends, []
            files, self._files = self._files, []
            for fd in files:
                with contextlib.suppress(OSError):
                    os.lseek(fd, 0, os.SEEK_END)
        _close(ends)
        _close(files)

    # --- what `Popen` asks ------------------------------------------------------------------------------

    def pid(self) -> int | None:
        """Its number; waits for its start."""
        if self._pid is None and not self.task.done():
            self._begun.wait()
        return self._pid

    def ended(self) -> bool:
        """Whether it has."""
        return self.task.done()

    def wait(self, timeout: float | None) -> int:
        """See `ProcessLink`."""
        wait_for(self.task, timeout)
        self._close_streams()
        for copier in self._copiers:
            copier.join(5)
        if self.task.attempts > 1:
            raise TaskFailed("the process was lost with its executor; its streams could not be opened a second time")
        return return_code(self.task, self._sent)

    def signal(self, number: int) -> None:
        """Send it a signal; what has not begun is taken back if the signal would end it."""
        if self._pid is None and number in _ENDING:
            self._sent = number
            self.task.cancel()
            return
        pid = self.pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def abandon(self) -> None:
        """See `ProcessLink`."""
        self.task.cancel()


# --- the words of shell -----------------------------------------------------------------------------------


def _wrapped(request: ProcessRequest, base: Mapping[str, str], opening: str) -> list[str]:
    """The command that opens the streams and becomes the program."""
    steps = [opening]
    words = request.words
    unset = _unwanted(request, base)
    plain = [name for name in unset if _is_plain(name)]
    if plain:
        steps.append("unset " + " ".join(plain))
    if not request.restores_signals:
        steps.append("trap '' PIPE XFSZ")
    if request.umask >= 0:
        steps.append(f"umask {request.umask:04o}")
    if request.program != words[0]:
        return ["bash", "-c", "; ".join([*steps, 'exec -a "$1" -- "$0" "${@:2}"']), request.program, *words]
    env = [word for name in unset if not _is_plain(name) for word in ("-u", name)]
    own = os.environ if request.env is None else request.env
    env += [f"{name}={value}" for name, value in own.items() if not name.isidentifier()]  # which shells drop
    return ["/bin/sh", "-c", "; ".join([*steps, 'exec "$@"']), "sh", *(["env", *env] if env else []), *words]


def _is_plain(name: str) -> bool:
    """Whether a shell can forget the variable and still find programs."""
    return name.isidentifier() and name.isascii() and name != "PATH"


def _changed(request: ProcessRequest, base: Mapping[str, str]) -> dict[str, str] | None:
    """What the process' environment has that the session's has not."""
    own = os.environ if request.env is None else request.env
    return {name: value for name, value in own.items() if base.get(name) != value} or None


def _unwanted(request: ProcessRequest, base: Mapping[str, str]) -> list[str]:
    """What the session's environment has that the process' has not."""
    if request.env is None:
        return [name for name in base if name not in os.environ]
    return [name for name in {**base, **dict.fromkeys(_ADDED)} if name not in request.env]


def _kept(fd: int) -> int | None:
    """A descriptor of our own for what a stream goes to; None: it is closed."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)  # never one of the three, which may be closed
    except OSError:
        return None


def _is_both(fd: int) -> bool:
    """Whether it may be read and written."""
    return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
