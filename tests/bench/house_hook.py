"""Records the calls of Bough's own functions in every process, while a window is open.

`house_ways.py` copies this file as `sitecustomize.py` into a folder of PYTHONPATH: Python then runs it first in each
process. Environment variables say where: HOUSE_TRACE (a folder), HOUSE_SRC (the tree whose functions count), HOUSE_ROLE
(what a process is that is not started as `-m bough.NAME`).

Rules: nothing is recorded while the byte in HOUSE_TRACE/window is 0; any other value goes into each record, so that the
reader can tell one window from the next. Records go to memory shared with a file: no process has to end well, and no
system call is made for one. A process made by fork gets a file of its own.
"""

from __future__ import annotations

import contextlib
import dis
import itertools
import mmap
import os
import signal
import sys
import threading
from types import CodeType, FrameType
from typing import Any

RECORD = 320  # bytes: window, role, whether it is a new call, callee, caller; separated by tabs
MOST = 200_000  # records a process; the file is sparse
_FUNCTION = 0x1  # CO_OPTIMIZED: not the body of a module or a class
_INLINE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # part of the function they are written in

_folder = os.environ.get("HOUSE_TRACE", "")
_prefix = os.path.join(os.path.realpath(os.environ.get("HOUSE_SRC", "")), "bough") + os.sep
_labels: dict[CodeType, str] = {}  # "module function", or nothing for what is not a function of the tree
_starts: dict[CodeType, int] = {}  # where a call of it begins; a coroutine that goes on begins later
_bodies: set[CodeType] = set()  # of modules and classes of the tree
_importing = threading.local()


def _shared(folder: str, name: str, size: int) -> mmap.mmap:
    """Memory that all who ask for this name share."""
    number = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(number, size)
        return mmap.mmap(number, size)
    finally:
        os.close(number)


def _label(code: CodeType) -> str:
    path = code.co_filename
    if not path.startswith(_prefix):
        path = os.path.realpath(path) if path.endswith(".py") else ""
    found = ""
    if path.startswith(_prefix):
        module = "bough." + path[len(_prefix) : -len(".py")].replace(os.sep, ".")
        if code.co_flags & _FUNCTION:
            name = code.co_qualname
            for inline in _INLINE:
                name = name.replace(f".<locals>.{inline}", "")
            found = f"{module.removesuffix('.__init__')} {name}"
            raw = code.co_code
            _starts[code] = next(at for at in range(0, len(raw), 2) if raw[at] == dis.opmap["RESUME"])
        else:
            _bodies.add(code)
    _labels[code] = found
    return found


class _Recorder:
    """The records of one process."""

    def __init__(self) -> None:
        self.is_forked = False
        self._files: list[mmap.mmap] = []  # all there ever were: closing one might close somebody else's descriptor
        self._begin()

    def _begin(self) -> None:
        self.role = ""
        self._numbers = itertools.count()  # `next` of it needs no lock
        self._files.append(_shared(_folder, f"calls.{os.getpid()}", RECORD * MOST))

    def forked(self) -> None:
        self.is_forked = True
        self._begin()

    def record(self, window: int, is_new: bool, callee: str, caller: str) -> None:
        role = self.role or self._find_role()
        number = next(self._numbers)
        if number >= MOST:  # the reader sees that the file is full, and refuses it
            return
        at = number * RECORD
        text = f"{window}\t{role}\t{is_new:d}\t{callee}\t{caller}".encode()
        self._files[-1][at : at + RECORD] = text[:RECORD].ljust(RECORD)

    def _find_role(self) -> str:
        spec = getattr(sys.modules.get("__main__"), "__spec__", None)
        started = getattr(spec, "name", None) or ""
        role = os.environ.get("HOUSE_ROLE", "client")
        if started.startswith("bough."):
            role = started.split(".")[1]
        self.role = "worker" if role == "executor" and self.is_forked else role
        return self.role


def _profile(frame: FrameType, event: str, _argument: object) -> None:
    window = _window[0]
    if not window or event not in {"call", "return"}:
        return
    code = frame.f_code
    label = _labels.get(code)
    if label is None:
        label = _label(code)
    if not label:
        if code in _bodies and frame.f_globals.get("__name__") != "__main__":  # what imports call is on nobody's way
            _importing.depth = max(0, getattr(_importing, "depth", 0) + (1 if event == "call" else -1))
        return
    if event == "return" or code.co_name in _INLINE or getattr(_importing, "depth", 0):
        return
    back = frame.f_back
    while back is not None and back.f_code.co_filename == contextlib.__file__:  # as if a `with` called it
        back = back.f_back
    caller = ""
    if back is not None:
        known = _labels.get(back.f_code)
        caller = _label(back.f_code) if known is None else known
    _recorder.record(window, frame.f_lasti <= _starts[code], label, caller)


def _set_handler(number: int, handler: Any, _set: Any = signal.signal) -> Any:
    """Set a signal's handler, but let no alarm ring in `_profile`: if it raised there, Python would end the profile.

    An alarm that is left out rings again: whoever waits with one uses an interval timer.
    """
    if number != signal.SIGALRM or not callable(handler) or isinstance(handler, signal.Handlers):
        return _set(number, handler)

    def handle(number: int, frame: FrameType | None) -> None:
        back = frame
        while back is not None:
            if back.f_code is _profile.__code__:
                return
            back = back.f_back
        handler(number, frame)

    return _set(number, handle)


if __name__ == "sitecustomize":
    signal.signal = _set_handler
    _window = _shared(_folder, "window", 1)
    _recorder = _Recorder()
    os.register_at_fork(after_in_child=_recorder.forked)
    threading.setprofile(_profile)
    sys.setprofile(_profile)
