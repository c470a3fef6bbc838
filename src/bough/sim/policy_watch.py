"""Ends a simulation whose policy does not answer: one that loops, or waits for something that never comes.

A thread looks now and then at what the simulation is doing. If it is in the same question to a policy for longer than
it may be, a signal raises there, whatever the policy does with ordinary exceptions; the run ends with a complaint, and
others go on.
Rules: only the time of a policy counts, not that of the core or of the simulator. Looking costs the run nothing. In a
thread that is not the main one nothing is watched: signals do not reach it.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType

from bough.core.machine import Machine
from bough.errors import UserError
from bough.model.ids import Seconds

PATIENCE: Seconds = 60.0
MOST_PATIENCE: Seconds = 1e6
_LOOKS = 8  # in the time that a policy may take, which is measured by them
_SIGNAL = signal.SIGVTALRM  # alarms of others use SIGALRM and SIGPROF
_TURN = Machine.turn.__code__
_OURS = ("bough.core.", "bough.model.")


class _Hangs(BaseException):
    """Raised in a policy that took too long. No ordinary exception: those of a policy are caught by the core."""


class PolicyWatch:
    """For the time of a run. `patience`: seconds for one answer, 0: as many as it takes."""

    def __init__(self, patience: Seconds = PATIENCE) -> None:
        self._patience = patience
        self._over = threading.Event()
        self._asked: FrameType | None = None  # the question that the policy is at
        self._looks = 0  # at which it was at that
        self._runner = 0
        self._thread: threading.Thread | None = None
        self._before: object = None

    def __enter__(self) -> None:
        if self._patience > 0 and threading.current_thread() is threading.main_thread():
            self._runner = threading.get_ident()
            self._before = signal.signal(_SIGNAL, self._on_signal)
            self._thread = threading.Thread(target=self._look, name="policy watch", daemon=True)
            self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._thread is not None:
            self._over.set()
            self._thread.join()
            self._thread = self._asked = None
            signal.signal(_SIGNAL, self._before if self._before is not None else signal.SIG_DFL)  # type: ignore[arg-type]
        if kind is _Hangs:
            raise UserError(f"the policy took more than {self._patience:g} s for one answer, and was ended") from None

    def _look(self) -> None:
        while not self._over.wait(self._patience / _LOOKS):
            asked = _question(sys._current_frames().get(self._runner))
            if asked is None or asked is not self._asked:
                self._asked, self._looks = asked, 0
                continue
            self._looks += 1
            if self._looks >= _LOOKS:
                signal.pthread_kill(self._runner, _SIGNAL)  # and again, should the policy not heed it

    def _on_signal(self, _: int, frame: FrameType | None) -> None:
        if self._asked is not None and _question(frame) is self._asked:  # it may have answered meanwhile
            raise _Hangs


def _question(frame: FrameType | None) -> FrameType | None:
    """Of what runs in a turn of the core: the outermost call that is not the core's own."""
    found: FrameType | None = None
    while frame is not None and frame.f_code is not _TURN:
        if not frame.f_globals.get("__name__", "").startswith(_OURS):
            found = frame
        frame = frame.f_back
    return found if frame is not None else None
