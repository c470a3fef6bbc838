"""What an executor does when its tasks must go for a reason that is not theirs: its site was taken back, or it leaves.

What has not begun is given back at once, also elements behind the one that runs in the same span: they are stopped here
and said to be returned; a result of theirs that was under way counts for the server if it comes first. What runs has
until the deadline. A task with a checkpoint is asked for it at once, and ended as soon as it is written. One that ends
by itself after it was asked has saved its state and left, unless it ended well and wrote no checkpoint: then it has
finished.

Rules: what ends by itself before the deadline counts; nothing that was handed to this executor is forgotten; with the
news of an attempt that was given back it is said what became of its checkpoint.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from bough.executor.slots.state_saving import Carrying, Saving, forget
from bough.executor.worker_protocol import GROUP, Verdict, WorkerStop
from bough.model.events.news import WorkFailed, WorkReturned, WorkSucceeded
from bough.model.ids import Seconds
from bough.model.outcomes import Cause, Failure
from bough.model.tasks import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bough.executor.files.staging.staging import Staging
    from bough.executor.slots.backlog import QueuedSpan
    from bough.executor.slots.slot import WorkerSlot
    from bough.model.ids import SpanId
    from bough.wire.executor_messages import RunSpan
    from bough.wire.framing import News

_GRACE: Final = 2.0  # seconds between TERM and KILL
_OWN: Final = frozenset({Cause.EXIT, Cause.SIGNAL, Cause.EXCEPTION, Cause.DIED, Cause.MISSING_OUTPUT})
Element = tuple[int, int]  # span and index


class Clearing(Protocol):
    """What a clearance asks of the slots."""

    def give_back(self) -> None:
        """Return what has not begun."""

    def busy_slots(self) -> Iterable[WorkerSlot]:
        """Those that have something."""

    def end_with(self, slot: WorkerSlot, held: QueuedSpan, index: int, verdict: Verdict, grace: Seconds) -> bool:
        """End a running element with a verdict; False: it ends already."""

    def checkpoint_path(self, slot: WorkerSlot, run: RunSpan, index: int) -> str:
        """Where the checkpoint of an element lies here; empty: it cannot have one."""

    def checkpoint_aside(self, run: RunSpan, index: int) -> str:
        """Where that of an element that ran in a sandbox lies when it has ended; empty: it has none."""


class Clearance:
    """One order to give back all there is; `deadline` is when what runs is ended."""

    def __init__(self, reason: str, deadline: float) -> None:
        self._reason = reason
        self._deadline = deadline
        self._savings: dict[Element, Saving] = {}

    def begin(self, slots: Clearing, say: Callable[[RunSpan, WorkReturned], None]) -> None:
        """Give back all that has not begun."""
        slots.give_back()
        for slot in slots.busy_slots():
            hand, index = slot.current()
            for held in slot.held:
                if held.number == hand and index + 1 < held.run.stop:
                    _stop_behind(slot, held, index + 1, say)

    def tick(self, slots: Clearing, now: float) -> None:
        """Ask for checkpoints, and end what runs once it has saved its state or its time is over."""
        for slot in slots.busy_slots():
            hand, index = slot.current()
            for held in slot.held:
                runs = held.number == hand and held.run.start <= index < held.run.stop and not held.is_stopped(index)
                if runs and (now >= self._deadline or self._has_saved(slots, slot, held, index, now)):
                    slots.end_with(slot, held, index, self._failure((held.run.span, index)), _GRACE)

    def _has_saved(self, slots: Clearing, slot: WorkerSlot, held: QueuedSpan, index: int, now: float) -> bool:
        plan, element = held.run.checkpoint, (held.run.span, index)
        if plan is None:
            return False
        saving = self._savings.get(element)
        if saving is None:
            path = slots.checkpoint_path(slot, held.run, index)
            group = slot.cells[GROUP] if held.run.kind == Kind.COMMAND else slot.pid
            if not path or not group:
                return False
            aside = slots.checkpoint_aside(held.run, index)
            saving = Saving(plan, path, group, f"{held.run.record}.{index}", now, aside)
            self._savings[element] = saving
        return saving.is_over(now)

    def _failure(self, element: Element) -> Failure:
        saving = self._savings.get(element)
        if saving is None:
            return Failure(Cause.GIVEN_BACK, self._reason)
        saving.close()
        return Failure(Cause.GIVEN_BACK, f"{self._reason}; {saving.outcome()}")

    def close(self) -> None:
        """It counts no more."""
        for saving in self._savings.values():
            saving.close()
        self._savings.clear()

    def reread(self, news: News) -> list[News]:
        """News of elements that were asked for a checkpoint, as they are meant."""
        if not self._savings:
            return [news]
        if isinstance(news, WorkFailed) and news.failure.cause in _OWN and (news.span, news.index) in self._savings:
            return [replace(news, failure=self._failure((news.span, news.index)))]
        if isinstance(news, WorkSucceeded):
            return self._reread_success(news)
        return [news]

    def _reread_success(self, news: WorkSucceeded) -> list[News]:
        """A task that ended well counts, unless it wrote a checkpoint: then it goes on from there elsewhere."""
        last = (news.span, news.stop - 1)
        saving = self._savings.get(last)
        if saving is None or not saving.has_changed():
            return [news]
        detail = next((detail for detail in news.details if detail.index == last[1]), None)
        found: list[News] = [WorkFailed(news.span, last[1], self._failure(last), detail)]
        if news.stop - news.start > 1:  # commands that ended before it, in the same span
            rest = tuple(detail for detail in news.details if detail.index != last[1])
            found.insert(0, replace(news, stop=last[1], details=rest))
        return found


def _stop_behind(slot: WorkerSlot, held: QueuedSpan, start: int, say: Callable[[RunSpan, WorkReturned], None]) -> None:
    """Return the elements of a span behind the one that runs."""
    stop = held.run.stop
    parts = held.kept(max(start, held.next), stop)
    held.stopped.append((start, stop))
    if held.run.kind == Kind.COMMAND:
        slot.send([WorkerStop(held.number, start, stop, _GRACE)])
    for low, high in parts:
        say(held.run, WorkReturned(held.run.span, low, high))


class GivingBack:
    """Gives back what an executor has, when it must, and brings checkpoints of sandboxes to the server.

    `say` reports news of a span, `add` news that are to be told as they are.
    """

    def __init__(
        self, slots: Clearing, staging: Staging, say: Callable[[RunSpan, News], None], add: Callable[[News], None]
    ) -> None:
        self._slots = slots
        self._staging = staging
        self._say = say
        self._add = add
        self._clearance: Clearance | None = None
        self._carried: list[tuple[Carrying, WorkFailed]] = []  # and the news that wait for it

    @property
    def is_carrying(self) -> bool:
        """Whether news wait for a checkpoint."""
        return bool(self._carried)

    def spans(self) -> list[SpanId]:
        """Those whose news wait."""
        return [news.span for _, news in self._carried]

    def clear(self, reason: str, deadline: float, now: float) -> None:
        """Give back all: what has not begun now, what runs when it has ended or, at the deadline, been ended."""
        self.stay()
        self._clearance = clearance = Clearance(reason, deadline)
        clearance.begin(self._slots, self._say)
        clearance.tick(self._slots, now)

    def stay(self) -> None:
        """What still runs goes on."""
        if self._clearance is not None:
            self._clearance.close()
            self._clearance = None

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._clearance is not None:
            self._clearance.tick(self._slots, now)
        for carrying, news in list(self._carried):
            carrying.step()
            if carrying.is_over:
                self._carried.remove((carrying, news))
                if carrying.trouble:
                    failure = replace(news.failure, message=f"{self._plain(news)}; {carrying.trouble}")
                    news = replace(news, failure=failure)  # noqa: PLW2901
                self._add(news)

    def _plain(self, news: WorkFailed) -> str:
        return news.failure.message.removesuffix("; with a checkpoint")

    def tell(self, run: RunSpan | None, news: News) -> None:
        """Report news, as they are meant; of an attempt with a checkpoint once the server has that."""
        for one in self._clearance.reread(news) if self._clearance is not None else [news]:
            if run is None or run.checkpoint is None or not self._must_wait(run, one):
                self._add(one)

    def _must_wait(self, run: RunSpan, news: News) -> bool:
        plan = run.checkpoint
        assert plan is not None
        if isinstance(news, WorkSucceeded):
            for index in range(news.start, news.stop):
                forget(plan, run.record, index, self._slots.checkpoint_aside(run, index))
        if not isinstance(news, WorkFailed) or news.failure.cause is not Cause.GIVEN_BACK:
            return False
        aside = self._slots.checkpoint_aside(run, news.index)
        if not aside or not os.path.exists(aside):
            return False
        carrying = Carrying(self._staging, news.span, news.index, plan.path(run.record, news.index), aside)
        self._carried.append((carrying, news))
        return True
