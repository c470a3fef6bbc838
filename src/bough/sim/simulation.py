"""Drives the same machine as the live server, on a clock of its own.

What is to happen lies on an agenda, in the order of its time. A step takes all that happens at the next time, gives it
to the machine in one turn, and carries out the machine's orders on simulated executors.
Rule: things at the same time happen in the order they were put down, so that a run repeats exactly.
Rule: what an order causes comes back as news on the agenda, never directly.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Generic, TypeVar, assert_never

from bough.core.machine import Machine
from bough.errors import InternalError
from bough.model.events.arriving import News
from bough.model.events.facts import ExecutorLost, Fact, MemoLookedUp, PilotEnded, PilotQueued
from bough.model.events.news import WorkStarted
from bough.model.events.orders import (
    AnswerTake,
    AskForPilot,
    CancelPilot,
    ClearExecutor,
    EndSpan,
    KeepExecutor,
    LookUpMemo,
    Order,
    RecallBacklog,
    Refuse,
    SendSpan,
    StopSpan,
    TellGroupFinished,
    WatchSpan,
)
from bough.model.ids import Seconds
from bough.model.runtimes import SHORT
from bough.model.site_specs import PilotId
from bough.sim.simulated_executor import Finish, Model, SimulatedExecutor
from bough.sim.simulated_site import IdleCheck, PilotExecutor, PilotStart, SimulatedSite

T = TypeVar("T")


class Agenda(Generic[T]):
    """A heap of (time, ticket, thing)."""

    def __init__(self) -> None:
        self._heap: list[tuple[Seconds, int, T]] = []
        self._ticket = 0

    def put(self, when: Seconds, thing: T) -> None:
        """Let something happen at a time."""
        self._ticket += 1
        heappush(self._heap, (when, self._ticket, thing))

    def pop(self) -> tuple[Seconds, T]:
        """The next thing and its time."""
        when, _, thing = heappop(self._heap)
        return when, thing

    def first(self) -> T | None:
        """The next thing, which stays there."""
        return self._heap[0][2] if self._heap else None

    def next_time(self) -> Seconds | None:
        """When the next thing happens."""
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        """How many things are to come."""
        return len(self._heap)


class Simulation:
    """See the module."""

    def __init__(
        self,
        machine: Machine,
        model: Model,
        executors: Iterable[SimulatedExecutor],
        sites: Iterable[SimulatedSite] = (),
    ) -> None:
        self.machine = machine
        self.now: Seconds = 0.0
        self.journal: list[tuple[int, Seconds, list[Fact]]] = []
        self.refusals: list[str] = []
        self.complaints: list[str] = []  # what a policy did wrong
        self._dead: set[int] = set()
        # executors tell of what runs for long; nobody listens unless it may be replicated
        self._tells_starts = machine.state.replicas.is_on
        self._model = model
        self._agenda: Agenda[News | Finish | PilotStart | IdleCheck] = Agenda()
        self._sites = {site.name: site for site in sites}
        self._executors: dict[int, SimulatedExecutor] = {}
        for executor in executors:
            self.join(0.0, executor)
        for site in self._sites.values():
            self._agenda.put(0.0, site.definition())

    def join(self, when: Seconds, executor: SimulatedExecutor) -> None:
        """Let an executor join at a time."""
        self._executors[executor.id] = executor
        self._agenda.put(when, executor.hello())

    def at(self, when: Seconds, *news: News) -> None:
        """Let news arrive at a time."""
        for fact in news:
            self._agenda.put(when, fact)

    def run(self, until: Seconds | None = None) -> Seconds:
        """Run until nothing is left to happen, or to a time; return the time then."""
        while (when := self._next_time()) is not None and (until is None or when <= until):
            self.step()
        return self.now

    def step(self) -> None:
        """Let everything happen that happens at the next time, in one turn."""
        when = self._next_time()
        if when is None:
            return
        self.now = when
        news: list[News] = []
        while self._agenda and self._agenda.next_time() == when:
            _, thing = self._agenda.pop()
            if isinstance(thing, Finish):
                if thing.executor in self._dead:
                    continue
                said, started = self._executor(thing.executor).finish(thing, self._model)
                news += said
                self._schedule(started)
                self._note_idle(self._executors[thing.executor])
            elif isinstance(thing, PilotStart):
                news += self._start_pilot(thing)
            elif isinstance(thing, IdleCheck):
                executor = self._executors[thing.executor]
                assert isinstance(executor, PilotExecutor)
                if executor.left is None and executor.is_idle and executor.idle_since == thing.since:
                    news += self._end_pilot(executor.traits.site, executor.pilot, "it had nothing to do")
            else:
                if isinstance(thing, ExecutorLost):  # in a simulation that is the truth: nothing more comes from there
                    self._dead.add(thing.executor)
                news.append(thing)
        self._turn(news)

    def _next_time(self) -> Seconds | None:
        while isinstance(first := self._agenda.first(), Finish) and not self._executors[first.executor].has(first):
            self._agenda.pop()  # it was stopped, and does not happen
        times = [t for t in (self._agenda.next_time(), self._wake()) if t is not None]
        return max(min(times), self.now) if times else None

    def _wake(self) -> Seconds | None:
        return self.machine.next_timer

    def _turn(self, news: list[News]) -> None:
        turn = self.machine.turn(self.now, news)
        self.complaints += turn.complaints
        if turn.facts:
            self.journal.append((turn.number, self.now, turn.facts))
        requests: dict[tuple[str, PilotId], list[PilotId]] = {}
        for order in turn.orders:
            if isinstance(order, AskForPilot):
                requests.setdefault((order.site, order.allocation), []).append(order.pilot)
            else:
                self._carry_out(order)
        for (site, _), pilots in requests.items():
            for when, start in self._sites[site].request(self.now, pilots) if site in self._sites else ():
                self._agenda.put(self.now, PilotQueued(start.pilot, str(start.pilot)))
                self._agenda.put(when, start)

    # --- pilots ------------------------------------------------------------------------------------

    def _start_pilot(self, start: PilotStart) -> list[News]:
        executor = self._sites[start.site].start(start.pilot, self.now)
        if executor is None:
            return []
        self._executors[executor.id] = executor
        self._note_idle(executor)
        return [executor.hello()]

    def _end_pilot(self, site: str, pilot: PilotId, reason: str) -> list[News]:
        executor = self._sites[site].end(pilot, self.now)
        ended: list[News] = [PilotEnded(pilot, reason)]
        if executor is None:
            return ended
        self._dead.add(executor.id)
        return [ExecutorLost(executor.id, reason), *ended]

    def _note_idle(self, executor: SimulatedExecutor) -> None:
        if isinstance(executor, PilotExecutor) and executor.is_idle:
            executor.idle_since = self.now
            idle = self._sites[executor.traits.site].spec.idle
            if idle:
                self._agenda.put(self.now + idle, IdleCheck(executor.id, self.now))

    def _carry_out(self, order: Order) -> None:  # noqa: C901 one case a kind of order
        match order:
            case SendSpan():
                for one in order.singly():
                    self._schedule(self._executor(order.executor).take(one, self._model))
            case StopSpan():
                back, started = self._executor(order.executor).stop(order, self._model)
                self.at(self.now, *back)
                self._schedule(started)
            case Refuse():
                self.refusals.append(order.message)
            case LookUpMemo():  # a simulation has no earlier runs
                self._agenda.put(self.now, MemoLookedUp(order.record, order.start, order.stop, found=False))
            case EndSpan():
                for said in self._executors[order.executor].end(order):
                    self._agenda.put(self.now, said)
            case ClearExecutor() | KeepExecutor():  # they go on: the core takes back what it does not get
                pass
            case RecallBacklog():
                for returned in self._executors[order.executor].give_backlog():
                    self._agenda.put(self.now, returned)
            case CancelPilot():
                if order.site in self._sites:
                    self.at(self.now, *self._end_pilot(order.site, order.pilot, "cancelled"))
            case TellGroupFinished() | AnswerTake() | WatchSpan() | AskForPilot():
                pass  # a simulation has no client, no person who takes a task, and no output that could be watched
            case _:
                assert_never(order)

    def _executor(self, number: int) -> SimulatedExecutor:
        """An executor that knows the time."""
        executor = self._executors[number]
        executor.now = self.now
        return executor

    def _schedule(self, ends: list[Finish]) -> None:
        for end in ends:
            self._agenda.put(self.now + end.after, end)
            if self._tells_starts and end.is_last and end.start == end.order.start and end.after > SHORT:
                self._agenda.put(self.now, WorkStarted(end.order.span, end.start, end.stop))

    def check_complete(self) -> None:
        """Raise if something submitted has not ended."""
        if not self.machine.is_idle:
            raise InternalError(f"the simulation ran dry with tasks left: {self.machine.counts()}")
