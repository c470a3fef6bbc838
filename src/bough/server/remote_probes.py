"""What remote monitors ask of running tasks: passed on to the executor that has the attempt, and answered once.

A question names the attempt that it is about, or means the one that runs now; when none runs it is refused as
`NotRunning`, and of a task that has ended as `TaskEnded`. Rule: a question that its executor does not answer in time,
or that its executor was lost with, is refused: nobody waits for ever, and nothing is kept of it.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from bough.core.queries.answers import Attempt
from bough.errors import (
    AttemptEnded,
    BadValue,
    BoughError,
    MissingFile,
    NotRunning,
    PeerLost,
    ProtocolError,
    SiteError,
    TaskEnded,
    UnknownName,
    UserError,
)
from bough.model.ids import number_of
from bough.model.states import ENDED
from bough.server.peers import DeferredRequest, ExecutorPeer
from bough.server.turns.shell import Shell
from bough.wire import questions
from bough.wire.executor_messages import ProbeAnswer, ProbeTask
from bough.wire.probes import RunCommand, fits
from bough.wire.questions import ProbeReply

PATIENCE = 60.0  # seconds that an executor has beyond the time of a command; it gives up much earlier itself

Asked = DeferredRequest[questions.Probe]


class _Open(NamedTuple):
    """A question that was passed on."""

    asked: Asked
    executor: ExecutorPeer
    attempt: Attempt
    timer: asyncio.TimerHandle


class RemoteProbes:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._open: dict[int, _Open] = {}
        self._last = 0

    def ask(self, asked: Asked) -> None:
        """Pass a question on, or refuse it."""
        wanted = asked.question
        label = f"task {number_of(wanted.record)}"
        try:
            state = self._shell.queries.state_of(wanted.record, wanted.index)
        except (KeyError, IndexError):
            state = None
        if state is None:
            raise UnknownName(f"there is no {label}.{wanted.index}")
        running = self._shell.queries.attempt_at(wanted.record, wanted.index, wanted.attempt)
        if running is None:
            if state in ENDED:
                raise TaskEnded(f"{label} is {state.label}: only a running task can be asked")
            if wanted.attempt:
                raise AttemptEnded(f"attempt {wanted.attempt} at {label} has ended; it is {state.label} now")
            raise NotRunning(f"{label} is {state.label}: only a running task can be asked")
        if wanted.attempt and wanted.attempt != running.attempt:
            raise AttemptEnded(f"attempt {wanted.attempt} at {label} has ended; attempt {running.attempt} is next")
        executor = self._shell.peers.executors.get(running.executor)
        if executor is None:
            raise NotRunning(f"executor {running.executor}, which has {label}, is away")
        self._last += 1
        patience = PATIENCE + (wanted.question.timeout if isinstance(wanted.question, RunCommand) else 0)
        timer = self._shell.loop.call_later(patience, self._give_up, self._last)
        self._open[self._last] = _Open(asked, executor, running, timer)
        task = (wanted.record, wanted.index, running.attempt)
        executor.connection.send(ProbeTask(self._last, *task, wanted.question))

    def answered(self, executor: ExecutorPeer, message: ProbeAnswer) -> None:
        """An executor has answered; what it was not asked is ignored."""
        found = self._open.get(message.request)
        if found is None or found.executor is not executor:
            return
        self._close(message.request)
        asked, attempt = found.asked, found.attempt
        if message.result is None:
            self._refuse(found, _TOLD.get(message.kind, SiteError)(message.error))
        elif not fits(asked.question.question, message.result):
            what = f"{type(asked.question.question).__name__} by {type(message.result).__name__}"
            asked.refuse(ProtocolError(f"executor {executor.number} answered {what}"))
        else:
            host = attempt.host or executor.hello.host
            asked.answer(ProbeReply(message.result, attempt.attempt, executor.number, host))

    def _refuse(self, found: _Open, error: BoughError) -> None:
        """What came with the answer, that a task has ended, counts first."""
        if isinstance(error, NotRunning):
            self._shell.after_turn(lambda: found.asked.refuse(self._as_known(found, error)))
            self._shell.schedule()
        else:
            found.asked.refuse(error)

    def _as_known(self, found: _Open, error: NotRunning) -> NotRunning:
        """That an attempt has ended, as far as the core knows now."""
        wanted = found.asked.question
        state = self._shell.queries.state_of(wanted.record, wanted.index)
        if state is not None and state in ENDED:
            return TaskEnded(f"task {number_of(wanted.record)} is {state.label}")
        return error

    def _give_up(self, number: int) -> None:
        found = self._close(number)
        found.asked.refuse(SiteError(f"executor {found.executor.number} does not answer", transient=True))

    def on_lost(self, executor: ExecutorPeer) -> None:
        """What an executor was asked will not be answered."""
        for number in [number for number, found in self._open.items() if found.executor is executor]:
            self._close(number).asked.refuse(PeerLost("the executor of the task disconnected before it answered"))

    def _close(self, number: int) -> _Open:
        found = self._open.pop(number)
        found.timer.cancel()
        return found


_TOLD: dict[str, type[BoughError]] = {  # what an executor may say of a question; all else is the site's
    kind.__name__: kind for kind in (UserError, BadValue, MissingFile, SiteError, PeerLost, NotRunning, AttemptEnded)
}
