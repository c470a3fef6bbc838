"""The preloader: processes that have imported what functions will need, and from which their workers are forked.

A function mostly needs the modules that its script has imported, and importing numpy and its kin in every worker takes
longer than many a batch. So the session names these modules when it starts (`BOUGH_MODULES`). While the script prepares
its work, a child of the executor, the *template*, imports them, and each worker is a fork of it. Packages are imported
a few at a time, each few in a fork of the template before, which takes its place when it is done. So there is always
one to fork workers from; and what a function that waits needs is imported first. While functions keep all cores busy,
nothing else is imported: a template that is at it is stopped (SIGSTOP) until a core is free.

Rules: an import can fail, hang, end the process or start threads, and costs no more than some patience: a worker that
no template can make is a fork of the executor, and imports what it needs itself. A process with threads is never
forked. Workers and templates are the executor's children: it adopts them.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

import msgspec

from bough import fork_warning
from bough.executor.host.descriptors import Descriptors
from bough.executor.host.processes import cpu_seconds, die_with_parent, kill
from bough.executor.worker.environment import THREADS, threads_text
from bough.executor.worker.worker import WorkerSetting
from bough.executor.worker_protocol import map_cells

_ANSWER = 5.0  # seconds that a template has to fork
_ADOPTED = 2.0  # seconds after which a process that the executor has not adopted gives up
_HANGS = 2.0  # seconds without any processor time after which an import is taken to hang
_A_FEW = 0.1  # seconds of imports after which a template is ready, and another one does the rest
_MOST = 1 << 20  # bytes of a request
_FOR_WORKER = 3  # descriptors of a request for a worker: its socket, the token pipe, the cells

Work = Callable[[socket.socket, int, memoryview, WorkerSetting], NoReturn]  # what a worker does


class _Template:
    """The executor's side of a process that imports packages, and then forks."""

    def __init__(self, sock: socket.socket, pid: int, packages: list[str]) -> None:
        self.sock = sock
        self.pid = pid
        self.packages = packages  # it was asked to import
        self._cpu = 0.0  # seconds of processor time, when it was looked at
        self._moved = time.monotonic()  # when that was last more than before
        self._is_stopped = False

    def stop(self, is_wanted: bool) -> None:
        """Let it rest, or go on."""
        if is_wanted != self._is_stopped:
            self._is_stopped = is_wanted
            self._moved = time.monotonic()
            kill(self.pid, signal.SIGSTOP if is_wanted else signal.SIGCONT)

    def is_at_work(self, most: float) -> bool:
        """Whether it has used less than this processor time, and lately some: an import that hangs uses none."""
        cpu, now = cpu_seconds(self.pid), time.monotonic()
        if cpu > self._cpu:
            self._cpu, self._moved = cpu, now
        return cpu <= most and now - self._moved < _HANGS

    def ask(self, request: bytes, descriptors: list[int]) -> int:
        """Have it fork; the pid of the new process, 0: it could not."""
        try:
            self.sock.settimeout(_ANSWER)
            socket.send_fds(self.sock, [request], descriptors)
            pid = int.from_bytes(self.sock.recv(8), sys.byteorder)
            self.sock.setblocking(False)
        except OSError:
            return 0
        return pid

    def heard(self) -> int:
        """How many packages it has imported; -1: it has ended."""
        try:
            said = self.sock.recv(8)
        except BlockingIOError:
            return 0
        except OSError:
            said = b""
        return int.from_bytes(said, sys.byteorder) if said else -1


class Preloader:
    """See the module."""

    def __init__(self, wanted: str, descriptors: Descriptors, work: Work) -> None:
        """`wanted`: seconds of processor time that imports may take while functions wait, and names of modules."""
        patience, *modules = wanted.split() or ("0",)
        self._patience = _seconds(patience)
        self._wanted: dict[str, list[str]] = {}  # packages that are not imported yet, and their modules
        for name in modules:
            self._wanted.setdefault(name.partition(".")[0], []).append(name)
        self._descriptors = descriptors
        self._work = work
        self._template: _Template | None = None  # that is ready
        self._next: _Template | None = None  # that imports
        self._singly = False  # something went wrong: one package at a time, to find which
        self._go_on()

    @property
    def has_finished(self) -> bool:
        """Whether there is nothing to import any more."""
        return not self._wanted

    def give_way(self, is_full: bool) -> None:
        """Import nothing while all cores are busy, else the rest. To be called when tasks have been handed out."""
        if self._next is not None:
            self._next.stop(is_full)
        elif not is_full:
            self._go_on()

    def _go_on(self, first: Sequence[str] = ()) -> None:
        """Have what is wanted imported, some of it first and alone."""
        packages = list(first) or list(self._wanted)
        if self._singly:
            del packages[1:]
        if not packages:
            return
        sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        lists = [self._wanted[package] for package in packages]
        executor, template = os.getpid(), self._template
        if template is not None:
            pid = template.ask(msgspec.msgpack.encode((executor, lists)), [theirs.fileno()])
            if not pid:
                self._drop(template)
                self._template, self._wanted = None, {}
        else:
            fork_warning.keep_quiet()  # in templates and workers too
            pid = os.fork()
            if pid == 0:
                _be_template(theirs, executor, lists, self._work)
        theirs.close()
        if not pid:
            sock.close()
            return
        sock.setblocking(False)
        self._next = _Template(sock, pid, packages)
        self._descriptors.add(sock.fileno(), partial(self._on_ready, self._next))

    def _on_ready(self, template: _Template) -> None:
        """A template has imported something, or has ended."""
        count = template.heard()
        if not count:
            return
        if template is not self._next:
            self._drop(template)
            return
        self._next = None
        if count < 0:
            self._drop(template)
            if len(template.packages) == 1:
                self._wanted.pop(template.packages[0], None)  # workers that need it import it themselves
            self._singly = True
        else:
            before, self._template = self._template, template
            if before is not None:
                self._drop(before)
            for package in template.packages[:count]:
                self._wanted.pop(package, None)

    def is_worth_waiting(self, body: bytes) -> bool:
        """Whether a worker for this function should wait: it names a package that is still to be imported."""
        needed = [package for package in self._wanted if package.encode() in body]
        if not needed:
            return False
        if self._next is None:
            self._go_on(needed)
            return self._next is not None
        self._next.stop(False)
        if not self._next.is_at_work(self._patience):
            return False
        if self._next.packages[0] not in needed:  # it is at something else, or was just begun
            self._drop(self._next)
            self._next = None
            self._go_on(needed)
        return True

    def fork(self, sock: socket.socket, tokens: int, cells: int, setting: WorkerSetting) -> int:
        """Fork a worker that has the other end of a socket, the token pipe and the cells; its pid, 0: there is none."""
        template = self._template
        if template is None:
            return 0
        pid = template.ask(msgspec.msgpack.encode(setting), [sock.fileno(), tokens, cells])
        if not pid:
            self.close()
        return pid

    def close(self) -> None:
        """End the templates; workers that were forked from them go on."""
        for template in (self._template, self._next):
            if template is not None:
                self._drop(template)
        self._template = self._next = None
        self._wanted = {}

    def _drop(self, template: _Template) -> None:
        if template.sock.fileno() >= 0:
            self._descriptors.remove(template.sock.fileno())
            template.sock.close()
            kill(template.pid)


def _seconds(text: str) -> float:
    try:
        return min(60.0, max(0.0, float(text)))
    except ValueError:
        return 0.0


# --- in a template ----------------------------------------------------------------------------------------


def _be_template(sock: socket.socket, executor: int, packages: list[list[str]], work: Work) -> NoReturn:
    """Import some packages, say how many, and fork whatever is asked for. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        die_with_parent(signal.SIGKILL)
        if os.getppid() == executor:
            os.closerange(3, sock.fileno())
            os.closerange(sock.fileno() + 1, 1 << 16)
            count = _import_some(packages)
            if len(os.listdir("/proc/self/task")) == 1:
                gc.collect()
                gc.freeze()  # what is there now is shared by all workers: looking at it would copy it
                sock.send(count.to_bytes(8, sys.byteorder))
                _serve(sock, work)
    finally:
        os._exit(1)


def _import_some(packages: list[list[str]]) -> int:
    """Import packages until that has taken a while; how many were."""
    one = [name for name in map(os.fsdecode, THREADS) if name not in os.environ]
    os.environ.update(dict.fromkeys(one, threads_text(1)))  # before libraries read it: with it they start no threads
    _import("cloudpickle")
    began = time.monotonic()
    count = 0
    for names in packages:
        for name in names:
            _import(name)
        count += 1
        if time.monotonic() - began >= _A_FEW:
            break
    for name in one:
        os.environ.pop(name, None)  # as if nothing had been set: a worker sets it for each task
    return count


def _import(name: str) -> None:
    with contextlib.suppress(BaseException):  # a worker that needs it will say what is wrong with it
        importlib.import_module(name)


def _serve(sock: socket.socket, work: Work) -> None:
    while True:
        request, descriptors, *_ = socket.recv_fds(sock, _MOST, _FOR_WORKER)
        if not request:
            return
        if len(descriptors) == _FOR_WORKER:
            setting = msgspec.msgpack.decode(request, type=WorkerSetting)
            parent, begin = setting.parent, partial(_be_worker, descriptors, setting, work)
        else:
            parent, packages = msgspec.msgpack.decode(request, type=tuple[int, list[list[str]]])
            begin = partial(_be_next_template, descriptors[0], parent, packages, work)
        pid = _fork_orphan(sock, parent, begin)
        for descriptor in descriptors:
            os.close(descriptor)
        sock.send(pid.to_bytes(8, sys.byteorder))


def _be_next_template(descriptor: int, executor: int, packages: list[list[str]], work: Work) -> NoReturn:
    _be_template(socket.socket(fileno=descriptor), executor, packages, work)


def _be_worker(descriptors: list[int], setting: WorkerSetting, work: Work) -> NoReturn:
    reseed()
    work(socket.socket(fileno=descriptors[0]), descriptors[1], map_cells(descriptors[2]), setting)


def _fork_orphan(sock: socket.socket, executor: int, begin: Callable[[], NoReturn]) -> int:
    """Fork twice, so that the new process is an orphan, which the executor adopts; its pid."""
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid:
            os.write(write, pid.to_bytes(8, sys.byteorder))
            os._exit(0)
        try:
            for descriptor in (read, write, sock.fileno()):
                os.close(descriptor)
            _await_adoption(executor)
            begin()
        finally:
            os._exit(70)
    os.close(write)
    pid = int.from_bytes(os.read(read, 8), sys.byteorder)
    os.close(read)
    os.waitpid(between, 0)
    return pid


def _await_adoption(executor: int) -> None:
    deadline = time.monotonic() + _ADOPTED
    while os.getppid() != executor:
        if time.monotonic() > deadline:
            os._exit(1)
        time.sleep(0.0005)


def reseed() -> None:
    """Give this process random numbers of its own. Python's own generator does so by itself after a fork."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        with contextlib.suppress(Exception):
            numpy_random.seed()
