"""What remote monitors ask of tasks that run here: finds the task, has helpers look, and answers the server.

Signals are sent here; all else is done by helper processes (`helper_pool`), commands by others than files, so that
commands that take long keep nobody from reading. Rules: an answer is given only while the attempt that it is about
still runs, because another task may have its folder and its output file a moment later. What was asked over a
connection that is lost is forgotten: the server asks again if it still wants to know.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from bough.executor.host.descriptors import Descriptors
from bough.executor.probes.file_answers import ProbePlace
from bough.executor.probes.helper_pool import HelperPool, ProbeWork
from bough.executor.slots.backlog import QueuedSpan
from bough.executor.slots.slot import WorkerSlot
from bough.executor.slots.slots import Slots
from bough.executor.worker_protocol import GROUP
from bough.wire.executor_messages import ProbeAnswer, ProbeTask
from bough.wire.probes import STREAMS, RunCommand, SendSignal, SignalSent

NO_LEAVE = "commands beside a task need leave: the executor must be started with bough executor start --allow-commands"


class TaskProbes:
    """See the module. `say` answers the server."""

    def __init__(
        self,
        descriptors: Descriptors,
        slots: Slots,
        say: Callable[[ProbeAnswer], None],
        *,
        allows_commands: bool,
    ) -> None:
        self._slots = slots
        self._say = say
        self._allows_commands = allows_commands
        self._files = HelperPool(descriptors)
        self._commands = HelperPool(descriptors)

    @property
    def is_busy(self) -> bool:
        """Whether something is being looked for."""
        return self._files.is_busy or self._commands.is_busy

    def ask(self, asked: ProbeTask) -> None:
        """Answer, now or when a helper has."""
        question = asked.question
        found = self._slots.find_running(asked.record, asked.index, asked.attempt)
        if found is None:
            self._not_running(asked)
        elif isinstance(question, SendSignal):
            self._signal(asked, *found)
        elif isinstance(question, RunCommand) and not self._allows_commands:
            self._say(ProbeAnswer(asked.request, error=NO_LEAVE, kind="UserError"))
        else:
            pool = self._commands if isinstance(question, RunCommand) else self._files
            work = ProbeWork(question, self._place(asked, *found))
            pool.ask(work, partial(self._found, asked))

    def _place(self, asked: ProbeTask, slot: WorkerSlot, held: QueuedSpan) -> ProbePlace:
        streams = {name: self._slots.stream_of(slot, name) for name in STREAMS}
        task = (asked.record, asked.index, asked.attempt)
        return ProbePlace(slot.pid, *task, streams, slot.cells[GROUP], *self._slots.sandbox_of(slot, held))

    def _found(self, asked: ProbeTask, answer: ProbeAnswer) -> None:
        """A helper has answered."""
        if answer.result is not None and isinstance(asked.question, RunCommand):
            self._say(replace(answer, request=asked.request))  # it was done, whatever became of the task
        elif self._slots.find_running(asked.record, asked.index, asked.attempt) is None:
            self._not_running(asked)
        else:
            self._say(replace(answer, request=asked.request))

    def _not_running(self, asked: ProbeTask) -> None:
        if self._slots.has_queued(asked.record):
            self._say(ProbeAnswer(asked.request, error="the task has not begun", kind="NotRunning"))
        else:
            what = f"attempt {asked.attempt} at the task has ended"
            self._say(ProbeAnswer(asked.request, error=what, kind="AttemptEnded"))

    def _signal(self, asked: ProbeTask, slot: WorkerSlot, held: QueuedSpan) -> None:
        assert isinstance(asked.question, SendSignal)
        if slot.signal(held, asked.question.number):
            self._say(ProbeAnswer(asked.request, SignalSent()))
        else:
            self._not_running(asked)

    def tick(self, now: float) -> None:
        """Give up what takes too long."""
        self._files.tick(now)
        self._commands.tick(now)

    def forget(self) -> None:
        """The server is gone, and nobody waits."""
        self._files.forget()
        self._commands.forget()

    def close(self) -> None:
        """The executor ends."""
        self._files.close()
        self._commands.close()
