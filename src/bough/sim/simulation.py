"""Drives the same machine as the live server, on a clock of its own.

What is to happen lies on an agenda, in the order of its time. A step takes all that happens at the next time, gives it
to the machine in one turn, and carries out the machine's orders on simulated executors.
Rule: things at the same time happen in the order they were put down, so that a run repeats exactly.
Rule: what an order causes comes back as news on the agenda, never directly.
Tasks with files run in three parts: their inputs are brought, they run, their outputs are kept (`sim.data`). Who has no
such tasks pays nothing for that.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar, assert_never

from bough.core.machine import Machine
from bough.core.queries.facade import Queries
from bough.errors import InternalError
from bough.model.arrays.runtimes import SHORT
from bough.model.events.arriving import News
from bough.model.events.facts import ExecutorJoined, ExecutorLost, Fact, MemoLookedUp, PilotEnded, PilotQueued
from bough.model.events.news import WorkReturned, WorkStarted
from bough.model.events.orders import (
    AnnounceInputs,
    AnswerTake,
    AskForPilot,
    CancelPilot,
    ClearExecutor,
    DropFile,
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
from bough.model.sites.site_specs import PilotId
from bough.sim.data.simulated_data import SimulatedData, Staging
from bough.sim.platforms.simulated_executor import Finish, Model, SimulatedExecutor, Stage, over_time
from bough.sim.platforms.simulated_site import IdleCheck, PilotExecutor, PilotOver, PilotStart, SimulatedSite
from bough.sim.policy_watch import PATIENCE, PolicyWatch
from bough.sim.shortfall import shortfall
from bough.sim.workload import Submission, Workload

T = TypeVar("T")
_RARE = (1_000_000, 50, 100)
_MOST_IDLE = 1000  # turns at one time in which nothing happens
_MOST_UNUSED = 10_000  # times at which pilots start, one after the other, before a task is sent to anybody


class Agenda(Generic[T]):
    """A heap of (time, ticket, thing)."""

    __slots__ = ("_ticket", "heap")

    def __init__(self) -> None:
        self.heap: list[tuple[Seconds, int, T]] = []  # for those that look often
        self._ticket = 0

    def put(self, when: Seconds, thing: T) -> None:
        """Let something happen at a time."""
        self._ticket += 1
        heappush(self.heap, (when, self._ticket, thing))

    def pop(self) -> tuple[Seconds, T]:
        """The next thing and its time."""
        when, _, thing = heappop(self.heap)
        return when, thing

    def next_time(self) -> Seconds | None:
        """When the next thing happens."""
        return self.heap[0][0] if self.heap else None

    def __len__(self) -> int:
        """How many things are to come."""
        return len(self.heap)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for cyclic garbage as seldom as the server does: next to nothing of a run is any."""
    before = gc.get_threshold()
    gc.set_threshold(*_RARE)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class Simulation:
    """See the module."""

    def __init__(
        self,
        machine: Machine,
        model: Model,
        executors: Iterable[SimulatedExecutor],
        sites: Iterable[SimulatedSite] = (),
        data: SimulatedData | None = None,
        *,
        keeps_journal: bool = True,
    ) -> None:
        self.machine = machine
        machine.state.announces = data is not None and data.rules.early  # others bring it when a task begins
        self.data = data
        if data is not None:
            needs = getattr(machine.state.policies.placement, "data_needs", None)
            data.everywhere = needs is not None and needs.place == "host"
            data.uses_caches = Queries(machine).uses_caches
        self.patience: Seconds = PATIENCE  # real seconds that a policy may take for one answer, 0: any number
        self.now: Seconds = 0.0
        self._keeps_journal = keeps_journal  # a long run need not keep what nobody reads
        self.journal: list[tuple[int, Seconds, list[Fact]]] = []
        self.refusals: list[str] = []
        self.complaints: list[str] = []  # what a policy did wrong
        self.when_lost: Callable[[Seconds, int], None] | None = None  # told of executors that were to be lost
        self._dead: set[int] = set()
        self._has_stopped = False  # something was: not all ends that are on the agenda will be
        self._timer = machine.next_timer  # when it wants to be called at the latest
        self._idle_turns = 0
        self._last_turn: Seconds = 0.0
        self._unused = 0  # times at which pilots started since something was sent
        self._pilots_started: Seconds = -1.0  # the last of these
        # executors tell of what runs for long; nobody listens unless it may be replicated
        self._tells_starts = machine.state.replicas.is_on
        self._model = model
        self._agenda: Agenda[Any] = Agenda()  # news, and what is told apart in `_step`
        self._sites = {site.name: site for site in sites}
        self._executors: dict[int, SimulatedExecutor] = {}
        for executor in executors:
            self.join(0.0, executor)
        for site in self._sites.values():
            self._agenda.put(0.0, site.definition())

    def join(self, when: Seconds, executor: SimulatedExecutor) -> None:
        """Let an executor join at a time."""
        self._put_in(executor)
        self._agenda.put(when, executor.hello())

    def _put_in(self, executor: SimulatedExecutor) -> None:
        self._executors[executor.id] = executor
        if self.data is not None:
            executor.has_files = self.data.has_files

    def submit(
        self,
        when: Seconds,
        workload: Workload,
        *,
        first: int = 1,
        arrays: bool = False,
        estimates: Sequence[Seconds] | None = None,
    ) -> Submission:
        """Let a workload be submitted at a time, with records from a number up."""
        submission = workload.submission(first, arrays=arrays, estimates=estimates)
        if self.data is not None:
            self.data.submitted(submission)
        for later, news in workload.news(submission):
            self.at(when + later, news)
        return submission

    def at(self, when: Seconds, *news: News) -> None:
        """Let news arrive at a time."""
        for fact in news:
            self._agenda.put(when, fact)

    def run(self, until: Seconds | None = None) -> Seconds:
        """Run until nothing is left to happen, or to a time; return the time then."""
        with _rare_collections(), PolicyWatch(self.patience):
            while (when := self._next_time()) is not None and (until is None or when <= until):
                self._step(when)
        return self.now

    def step(self) -> None:
        """Let everything happen that happens at the next time, in one turn."""
        when = self._next_time()
        if when is not None:
            self._step(when)

    def _step(self, when: Seconds) -> None:  # noqa: C901 one case a kind of thing
        self.now = when
        news: list[News] = []
        if self.data is not None:
            self._move_data(self.data, news)
        heap, dead, has_data = self._agenda.heap, self._dead, self.data is not None
        while heap and heap[0][0] == when:
            thing = heappop(heap)[2]
            if isinstance(thing, Finish):
                if (dead and thing.executor in dead) or (has_data and self._waits_for_outputs(thing)):
                    continue
                self._finish(thing, news)
            elif isinstance(thing, PilotStart):
                news += self._start_pilot(thing)
            elif isinstance(thing, IdleCheck):
                news += self._check_idle(thing)
            elif isinstance(thing, PilotOver):
                if self._sites[thing.site].is_there(thing.pilot):
                    news += self._end_pilot(thing.site, thing.pilot, thing.reason)
            else:
                self._hear(thing, news)
        if self.data is not None:
            news += self.data.news()
            if not news and not self._is_awaited():  # bytes moved, and nobody is to be told
                self._count_idle()
                return
        self._turn(news)

    def _is_awaited(self) -> bool:
        """Whether the machine wants to be called now, whatever happens."""
        timer = self._timer
        return timer is not None and timer <= self.now

    def _finish(self, end: Finish, news: list[News]) -> None:
        """Elements of a span have ended, with their outputs."""
        executor = self._executors[end.executor]
        executor.now = self.now
        said, started = executor.finish(end, self._model)
        news += said
        if self.data is not None:
            self._forget_returned(self.data, said)
        if started:
            self._schedule(started)
        if self._sites:
            self._note_idle(executor)

    def _hear(self, thing: Any, news: list[News]) -> None:
        """What was put down for this time."""
        if isinstance(thing, ExecutorLost):  # in a simulation that is the truth: nothing more comes from there
            self._lose(thing.executor)
            if self.when_lost is not None:
                self.when_lost(self.now, thing.executor)
        news.append(thing)
        if self.data is not None and isinstance(thing, ExecutorJoined) and thing.executor in self._executors:
            news += self.data.joined(self._executors[thing.executor].traits)

    def _lose(self, executor: int) -> None:
        if executor not in self._dead:
            self._dead.add(executor)
            if executor in self._executors:
                self._executor(executor).lose()
            if self.data is not None and executor in self._executors:
                self.data.lost(self.now, self._executors[executor].traits)

    # --- files -------------------------------------------------------------------------------------

    def _move_data(self, data: SimulatedData, news: list[News]) -> None:
        """Transfers that end now: who has all inputs runs, and whose outputs are kept has ended."""
        for staging in data.advance(self.now):
            if staging.finish is None:
                self._run_staged(data, staging)
            else:
                data.end(self.now, staging, "done")
                self._finish(staging.finish, news)

    def _stage(self, data: SimulatedData, stage: Stage) -> None:
        staging = data.begin(self.now, stage.order, stage.element, self._executors[stage.executor].traits)
        if self._tells_starts and self._may_be_replicated(stage.order):
            self._agenda.put(self.now, WorkStarted(stage.order.span, stage.element, stage.element + 1))
        if not staging.active:
            self._run_staged(data, staging)

    def _run_staged(self, data: SimulatedData, staging: Staging) -> None:
        """Its inputs are there, or will never be."""
        order, element, traits = staging.order, staging.element, staging.traits
        fate = self._model(order.spec, element, order.attempt, traits)
        failure = staging.failure or fate.failure
        seconds = 0.0
        if staging.failure is None:
            seconds = self._executors[traits.id].seconds_for(fate.seconds, self.now)
            if 0 < order.spec.limits.timeout < seconds:
                seconds, failure = over_time(order.spec)
        failures = {element: failure} if failure is not None else {}
        if staging.lost is not None:  # before its reader fails, which then waits for it
            self._agenda.put(self.now, staging.lost)
        end = Finish(traits.id, order, element, element + 1, seconds, seconds, failures)
        self._agenda.put(self.now + seconds, end)

    def _waits_for_outputs(self, end: Finish) -> bool:
        """Whether an attempt that has run is still writing, or sending what it wrote."""
        data = self.data
        staging = data.running.get(end.order.span) if data is not None else None
        if data is None or staging is None or not self._executors[end.executor].has(end):
            return False
        if not data.ran(self.now, staging, end):
            return True
        data.end(self.now, staging, "failed" if end.failures else "done")
        return False

    def _forget_returned(self, data: SimulatedData, said: Iterable[News]) -> None:
        for one in said:
            if isinstance(one, WorkReturned):
                data.returned(one.span)

    def _next_time(self) -> Seconds | None:
        heap = self._agenda.heap
        when: Seconds | None = None
        while heap:
            when, _, first = heap[0]
            if not self._has_stopped or type(first) is not Finish or self._executors[first.executor].has(first):
                break
            heappop(heap)  # it was stopped, and does not happen
            when = None
        wake = self._timer
        if wake is not None and (when is None or wake < when):
            when = wake
        if self.data is not None and (moves := self.data.next_time()) is not None and (when is None or moves < when):
            when = moves
        return when if when is None or when > self.now else self.now

    def _turn(self, news: list[News]) -> None:
        now = self.now
        turn = self.machine.turn(now, news)
        self._timer = turn.next_timer
        if news or turn.facts:
            self._idle_turns, self._last_turn = 0, now
        else:
            self._count_idle()
        if turn.complaints:
            self.complaints += turn.complaints
        if turn.facts and self._keeps_journal:
            self.journal.append((turn.number, now, turn.facts))
        requests: dict[tuple[str, PilotId], list[PilotId]] = {}
        for order in turn.orders:
            if type(order) is SendSpan and not order.along:
                self._send(order)
            elif isinstance(order, AskForPilot):
                requests.setdefault((order.site, order.allocation), []).append(order.pilot)
            else:
                self._carry_out(order)
        if self.data is not None and (said := self.data.news()):
            self.at(now, *said)
        for (site, _), pilots in requests.items():
            for when, start in self._sites[site].request(now, pilots) if site in self._sites else ():
                self._agenda.put(now, PilotQueued(start.pilot, str(start.pilot)))
                self._agenda.put(when, start)

    def _count_idle(self) -> None:
        """Nothing happened."""
        self._idle_turns = 0 if self.now > self._last_turn else self._idle_turns + 1
        self._last_turn = self.now
        if self._idle_turns > _MOST_IDLE:
            raise InternalError(f"at {self.now:g} s the policy asks to be asked again at once, for ever")

    def _send(self, order: SendSpan) -> None:
        """A span of one record goes to an executor."""
        self._unused = 0
        executor = self._executors[order.executor]
        executor.now = self.now
        if self.data is not None and self.data.has_files(order):
            self.data.expect(order, executor.traits)
        started = executor.take(order, self._model)
        if started:
            self._schedule(started)

    # --- pilots ------------------------------------------------------------------------------------

    def _start_pilot(self, start: PilotStart) -> list[News]:
        executor = self._sites[start.site].start(start.pilot, self.now)
        if executor is None:
            return []
        self._count_unused()
        self._put_in(executor)
        self._note_idle(executor)
        if (over := self._sites[start.site].ends(executor)) is not None:
            self._agenda.put(*over)
        came: list[News] = [executor.hello()]
        if self.data is not None:
            came += self.data.joined(executor.traits)
        return came

    def _count_unused(self) -> None:
        """A pilot starts; if none of many is given a task, others would follow them for ever."""
        if self.now > self._pilots_started:
            self._pilots_started = self.now
            self._unused += 1
            if self._unused > _MOST_UNUSED and not self.machine.is_idle:
                raise InternalError(f"{_MOST_UNUSED} times pilots came and left again, and none was given a task")

    def _check_idle(self, check: IdleCheck) -> list[News]:
        executor = self._executors[check.executor]
        assert isinstance(executor, PilotExecutor)
        if executor.left is None and executor.is_idle and executor.idle_since == check.since:
            return self._end_pilot(executor.traits.site, executor.pilot, "it had nothing to do")
        return []

    def _end_pilot(self, site: str, pilot: PilotId, reason: str) -> list[News]:
        executor = self._sites[site].end(pilot, self.now)
        ended: list[News] = [PilotEnded(pilot, reason)]
        if executor is None:
            return ended
        self._lose(executor.id)
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
                    self._send(one)
            case StopSpan():
                self._stop(order)
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
                returned = self._executors[order.executor].give_backlog()
                if self.data is not None:
                    self._forget_returned(self.data, returned)
                self.at(self.now, *returned)
            case CancelPilot():
                if order.site in self._sites:
                    self.at(self.now, *self._end_pilot(order.site, order.pilot, "cancelled"))
            case AnnounceInputs():
                if self.data is not None and order.executor not in self._dead:
                    self.data.announce(self.now, order, self._executors[order.executor].traits)
            case TellGroupFinished() | DropFile() | AnswerTake() | WatchSpan() | AskForPilot():
                pass  # it has no client, nobody who takes a task, no output to be watched
            case _:
                assert_never(order)

    def _stop(self, order: StopSpan) -> None:
        self._has_stopped = True
        if order.executor in self._dead:
            return
        executor = self._executor(order.executor)
        if self.data is not None:
            ended = self.data.kill(self.now, order.span, order.start, order.stop)
            if ended is not None:
                executor.busy += ended.attempt.run * ended.order.spec.needs.cores
        back, started = executor.stop(order, self._model)
        if self.data is not None:
            if not executor.has_span(order.span):
                self.data.returned(order.span)
            self._forget_returned(self.data, back)
        self.at(self.now, *back)
        self._schedule(started)

    def _executor(self, number: int) -> SimulatedExecutor:
        """An executor that knows the time."""
        executor = self._executors[number]
        executor.now = self.now
        return executor

    def _schedule(self, ends: list[Finish | Stage]) -> None:
        now, agenda = self.now, self._agenda
        for end in ends:
            if isinstance(end, Stage):
                assert self.data is not None
                self._stage(self.data, end)
                continue
            agenda._ticket = ticket = agenda._ticket + 1  # as `put`, without a call
            heappush(agenda.heap, (now + end.after, ticket, end))
            if not self._tells_starts or not end.is_last or end.start != end.order.start or end.after <= SHORT:
                continue
            if self._may_be_replicated(end.order):
                agenda.put(now, WorkStarted(end.order.span, end.start, end.stop))

    def _may_be_replicated(self, order: SendSpan) -> bool:
        """Whether the core waits for the news that what is sent runs."""
        state = self.machine.state
        return state.replicas.allows(state.records[order.spec.id])

    def check_complete(self) -> None:
        """Raise unless everything submitted has succeeded."""
        if said := shortfall(self.machine):
            raise InternalError(said)
