"""What a policy sees: lookups and lazy iterators over the state's indexes.

A scan of what is ready takes entries out of their queues. The view returns them when another scan continues, and at the
end. So a scan costs what it looks at, never what exists.
Rule: a question changes no answer. What a policy wants left out belongs to the scan that it told so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from math import inf
from random import Random
from typing import Final, cast

from bough.core.data.data_index import ORIGIN, DataIndex, HostRecord
from bough.core.records.array_record import READY, ArrayRecord, Record
from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.group_record import Share
from bough.core.records.indexes.affinity_index import AffinityIndex
from bough.core.records.indexes.data_places import Place
from bough.core.records.indexes.ready_queue import Entry, LimitTree, ReadyQueue, is_valid
from bough.core.records.indexes.room_index import has_room
from bough.core.records.indexes.waiting_units import Unit, key_of
from bough.core.records.task_record import TaskRecord
from bough.core.state import State
from bough.model.arrays.runtimes import SHORT
from bough.model.ids import Seconds
from bough.model.sites.resources import Needs
from bough.policy.interface import DataMatch, DataTask, Demand, ExecutorView, HolderView, Offer, PlanNotes, ReadyWork

_EXECUTORS: Final = 8  # of a host that are asked when one of them may want work
_ALIKE: Final = 4  # tasks of one array that are candidates at a time, if they are all alike
_SOON: Final = 0.001  # seconds until an executor is free that should have asked by now
_TAKERS: Final = 64  # executors that are compared for a task that none of its holders could ever run
_SOURCES: Final = 4  # holders of a content whose links are compared


class StateView:
    """The world at one instant."""

    scan: StateScan | None = None  # the one that has entries of the queues
    offer: Offer | None = None  # the last executor found: a wish that follows it at once is lawful, and is not checked
    offered_element = -1  # of it
    free_cores: float | None = None  # of those that may take something; None: nobody has asked for it
    _kept: ExecutorRecord | None = None  # the executor that was kept for some work, see `keep_for`

    def __init__(self, state: State, now: Seconds, random: Random) -> None:
        self._state = state
        self._now = now
        self._random = random

    @property
    def now(self) -> Seconds:
        """The time."""
        return self._now

    @property
    def random(self) -> Random:
        """The only dice."""
        return self._random

    def ready(self) -> StateScan:
        """What is ready, best first."""
        return StateScan(self, self._state)

    def executor_for(  # noqa: C901 called for every task
        self, work: ReadyWork, excluding: frozenset[int] | set[int] = frozenset()
    ) -> Offer:
        """The executor that has been open the longest and would take a task of this work."""
        record: Record = work  # type: ignore[assignment] # what a policy sees as work is a record
        state = self._state
        queue = record.queue
        if (queue.limits or queue.named.bounded) and queue.spare <= 0:
            return Offer(work, None, False, True)
        open_ = state.open_executors
        is_short = 0 < record.runtime.slot <= SHORT  # others wait nowhere but in the queue
        if queue.cores:  # the first one will do, or there is none
            first = state.vacant.first(open_)
            if first is None:
                if not is_short:
                    self.offered_element = -1
                    return Offer(work, None, False, False)
            elif not (
                excluding or queue.place or record.avoid or first.bound is not None or first.until
            ) and first.fits(record):
                self.offered_element = -1
                offer = self.offer = Offer(work, first, True)
                return offer
        place = queue.place if queue.place in state.hosts else ""
        avoided = state.avoided_by(record) if record.avoid else ()
        offer = Offer(work, None, False, False)
        barred = False
        parked: list[ExecutorRecord] = []
        passes = (state.vacant, state.room) if is_short else (state.vacant,)
        for number, room in enumerate(passes):
            for executor in room.having(open_) if queue.cores else open_.values():
                if executor.bound is not None and executor.bound.reached() is not None:
                    parked.append(executor)
                    continue
                if excluding and executor.id in excluding:
                    continue
                late = executor.until and not executor.ends_before(record, self._now)
                if late or executor.id in avoided or (place and executor.host != place):
                    barred = True
                    continue
                fits = executor.fits(record)
                if fits or (number and executor.takes_backlog(record)):
                    offer = self.offer = Offer(work, executor, fits)
                    break
            if offer.executor is not None:
                break
        else:
            offer = Offer(work, None, False, barred)
        self.offered_element = -1
        for executor in dict.fromkeys(parked):
            state.park(executor, executor.bound.reached())  # type: ignore[union-attr, arg-type]
        return offer

    def executors(self) -> list[ExecutorView]:
        """Every executor that may take something."""
        return list(self._with_room())

    def most_free(self, needs: Needs) -> ExecutorView | None:
        """The executor with the most free cores, among those that could ever fit these needs."""
        could_fit = self._state.named_queues.could_fit
        open_ = self._state.open_executors
        if self._state.room.first(open_) is None:
            return None
        able = [executor for executor in self._state.room.having(open_) if could_fit(executor, needs)]
        return max(able, key=lambda executor: executor.cores_free) if able else None

    def demand(self) -> Iterator[Demand]:
        """What is ready, by needs."""
        return iter(self._state.demand)

    @property
    def data(self) -> StateDataView | None:
        """Where the inputs of ready tasks are."""
        affinity = self._state.affinity
        return StateDataView(self, self._state, affinity) if affinity is not None and affinity.units else None

    def _with_room(self) -> Iterable[ExecutorRecord]:
        """The executors that may take something; if files are declared, none is among them that is full."""
        affinity, there = self._state.affinity, self._state.open_executors
        return affinity.roomy.all_with_room(there) if affinity is not None and affinity.is_used else there.values()

    @property
    def has_room(self) -> bool:
        """Whether any executor may take something."""
        affinity, there = self._state.affinity, self._state.open_executors
        if affinity is None or not affinity.is_used:
            return bool(there)
        return affinity.roomy.any_with_room(there)

    def ask_again(self, when: Seconds) -> None:
        """Ask the policy again at a time, whatever happens until then."""
        state = self._state
        state.place_again = when if state.place_again is None else min(when, state.place_again)

    def keep_for(self, work: ReadyWork) -> None:
        """Show the executor with the most free cores that could fit some work as full until the policy was heard."""
        affinity = self._state.affinity
        if affinity is not None and self._kept is None and (kept := self.most_free(work.needs)) is not None:
            self._kept = affinity.roomy.pop(kept.id)
            if self._kept is not None and self.free_cores is not None:
                self.free_cores -= max(0.0, self._kept.cores_free)

    @property
    def estimates(self) -> StateDataView | None:
        """As `data`, also if no ready task declares inputs."""
        affinity = self._state.affinity
        if affinity is None:
            return None
        affinity.is_used = True  # from now on it is noted how long tasks run where, and who asks when
        return StateDataView(self, self._state, affinity)

    def busy_share(self) -> float:
        """The part of all cores that is not free."""
        cores = self._state.cores
        if self.free_cores is None:
            self.free_cores = sum([max(0.0, executor.cores_free) for executor in self._with_room()])
        return 1.0 - self.free_cores / cores if cores else 1.0

    # --- what the core does between two wishes -------------------------------------------------------

    def took(self, executor: ExecutorRecord, before: float) -> None:
        """An executor was given something, and it is known what is free; `before`: the cores of it that were."""
        assert self.free_cores is not None
        after = executor.cores_free if executor.id in self._state.open_executors else 0.0
        self.free_cores += max(0.0, after) - max(0.0, before)

    def take_like(self, record: TaskRecord, most: int) -> list[TaskRecord]:
        """The ready work that comes after a loose task, as long as it is of the same template and needs."""
        return (self.scan or self.activate(self.ready())).take_like(record, most)

    def activate(self, scan: StateScan) -> StateScan:
        """Let a scan take entries, after another one has returned what it had."""
        if self.scan is not None:
            self.scan.suspend()
        self.scan = scan
        return scan

    def give_back(self) -> None:
        """Return to the queues what was looked at; the policy has been heard."""
        kept, affinity = self._kept, self._state.affinity
        if kept is not None and affinity is not None:
            self._kept = None
            affinity.roomy.got_room(kept)
        scan = self.scan
        if scan is not None:
            self.scan = None
            scan.put_back()


def find_offer(state: State, record: Record, executor: ExecutorRecord, element: int = -1) -> Offer | None:
    """A task of some work with an executor, if it is ready and there is room for it; below 0: the one that is next."""
    if not record.ready or executor.draining or executor.suspended or executor.away:
        return None
    if executor.bound is not None and executor.bound.reached() is not None:
        return None
    queue = record.queue
    avoid = record.avoid
    if element > 0 or (element == 0 and type(record) is not TaskRecord):  # a loose task that is ready is its element 0
        if element >= record.length or record.state_of(element) != READY:
            return None
        if isinstance(record, ArrayRecord):
            avoid = record.avoided.get(element, ())
    if (queue.limits or queue.named.bounded) and queue.spare <= 0:
        return None
    if executor.until or avoid or queue.place:
        if queue.place in state.hosts and executor.host != queue.place:
            return None
        if not executor.ends_before(record, state.now) or (avoid and executor.id in state.avoidable(record, avoid)):
            return None
    fits = executor.fits(record)
    return Offer(record, executor, fits) if fits or executor.takes_backlog(record) else None


class StateDataView:
    """Where the inputs of ready tasks are: see `DataView`."""

    _refused = False  # a task could not go where it was to go, since this was last set

    def __init__(self, view: StateView, state: State, affinity: AffinityIndex) -> None:
        self._view = view
        self._state = state
        self._affinity = affinity

    @property
    def is_known(self) -> bool:
        """Whether any host holds anything at all."""
        return self._state.data.pairs > 0

    def openings(self, *, for_most: bool = False) -> Iterator[ExecutorView]:
        """Executors that may take something, where some ready task has data; `for_most`: see `DataView`."""
        return iter(self._affinity.openings(self._state.open_executors, for_most=for_most))

    def best_here(self, executor: ExecutorView, accept: Callable[[DataMatch], bool] | None = None) -> DataMatch | None:
        """The task that has the most of its input where an executor is, among some that could go there now."""
        record = self._state.executors[executor.id]
        place = self._affinity.place_of(record) if has_room(record) else None
        if place is None:
            return None
        if accept is None:
            return self._best_at(place, record, None)
        return self._best_at(place, record, lambda unit, here: accept(DataMatch(unit, here, unit.total)))

    def _best_at(
        self, place: Place, record: ExecutorRecord, accept: Callable[[Unit, int], bool] | None
    ) -> DataMatch | None:
        """As `best_here`, for an executor that has room and is at a place."""
        view, could_go = self._view, self._could_go
        offer: Offer | None = None

        def takes(unit: Unit, here: int) -> bool:
            nonlocal offer
            if not could_go(unit, record) or (accept is not None and not accept(unit, here)):
                return False
            offer = view.offer
            return True

        found = self._affinity.best_at(place, takes)
        if found is None:
            return None
        best, amount = found
        view.offer, view.offered_element = offer, best.element
        return DataMatch(best, amount, best.total)

    def most_here(self, executor: ExecutorView, accept: Callable[[DataMatch], bool] | None = None) -> DataMatch | None:
        """As `best_here`, of the tasks of whose input no other place has more."""
        affinity, record = self._affinity, self._state.executors[executor.id]
        place = affinity.place_of(record) if has_room(record) else None
        if place is None or place.name in affinity.outdone.places:
            return None
        better: list[tuple[int, Sequence[int]]] = []  # hosts that have more, and the contents of each task

        def has_most(unit: Unit, here: int) -> bool:
            if accept is not None and not accept(DataMatch(unit, here, unit.total)):
                return False
            if here >= unit.total:
                return True
            if not affinity.can_be_outdone:
                return here >= affinity.most_held(unit)
            contents = affinity.contents_of(unit)
            host = affinity.better_host(contents, here)
            better.append((host, contents))
            return host < 0

        self._refused = False
        found = self._best_at(place, record, has_most)
        if found is None and better and accept is None and not self._refused and affinity.can_be_outdone:
            affinity.outdone.note(place.name, affinity.wanted_at(place), better)
        return found

    def some_here(self, executor: ExecutorView, most: int, *, unchecked: bool = False) -> list[DataMatch]:
        """Some tasks that have input where an executor is and could go there now."""
        affinity, record = self._affinity, self._state.executors[executor.id]
        place = affinity.place_of(record) if unchecked or self.has_room(executor) else None
        found: list[DataMatch] = []
        if place is None:
            return found
        here, left = affinity.here, most
        for units in affinity.candidates(place):
            for unit in units:
                if unchecked or self._could_go(unit, record):
                    found.append(DataMatch(unit, here(unit, place), unit.total))
                    left -= 1
                    if not left:
                        return found
        return found

    def place_name(self, executor: ExecutorView) -> str:
        """The name of the place where an executor is."""
        place = self._affinity.place_of(self._state.executors[executor.id])
        return place.name if place is not None else ""

    def rate_to(self, executor: ExecutorView) -> float:
        """Bytes a second that travelled to the host of an executor."""
        return self._affinity.rate_to(self._state.executors[executor.id])

    def candidates(self, most: int) -> list[DataTask]:
        """The first ready tasks, with and without inputs, in order of submission."""
        found = list(islice(self._affinity.waiting(), most))
        for looked, work in enumerate(self._view.ready(), 1):
            if not work.has_inputs:
                record: Record = work  # type: ignore[assignment]
                unit = Unit(record, -1, self._view.now)
                found += [unit] * min(work.ready, _ALIKE)
            if looked >= most or len(found) >= 2 * most:
                break
        found.sort(key=lambda unit: (-unit.work.priority, unit.work.id, unit.element))
        return found[:most]  # type: ignore[return-value]

    def expected_on(self, task: DataTask, executor: ExecutorView) -> Seconds:
        """The run time of a task where an executor is: what a simulator tells of it, or what was measured."""
        told = self.true_run_time(task, executor)
        if told is not None:
            return told
        return self._affinity.expected_on(cast("Unit", task).work, task.element, executor.host)[0]

    def free_in(self, most: int) -> list[tuple[Seconds, ExecutorView]]:
        """Executors with room, and those that may have it next: seconds until then."""
        now, state = self._view.now, self._state
        found = {one.id: (0.0, one) for one in islice(self._affinity.roomy.with_room(state.open_executors), most)}
        for when, one in self._affinity.arrivals.first(most, now):
            if not (one.draining or one.away or one.suspended):
                found.setdefault(one.id, (max(when - now, _SOON), one))
        return list(islice(found.values(), most))

    @property
    def has_unheld(self) -> bool:
        """Whether there may be a task whose input nobody holds."""
        return self._affinity.first_unheld(lambda _: True) is not None

    def unheld(self, executor: ExecutorView, accept: Callable[[DataTask], bool] | None = None) -> DataTask | None:
        """The task that became ready first and could go to an executor, of those whose input nobody holds."""
        record = self._state.executors[executor.id]
        if not has_room(record):
            return None
        return self._affinity.first_unheld(
            lambda unit: self._could_go(unit, record) and (accept is None or accept(unit))
        )

    @property
    def owed(self) -> int:
        """How many turns those that became ready first are owed."""
        return self._affinity.owed

    @property
    def is_contested(self) -> bool:
        """Whether several workflows have something ready, or some work had a priority."""
        if self._affinity.has_priorities:
            return True
        scan = self._view.scan  # what it looks at is out of the queues for as long
        shares = chain([root.share for root in self._state.waiting], scan.shares() if scan is not None else ())
        first = next(shares, None)
        return any(share is not first for share in shares)

    def first_of(self, work: ReadyWork) -> DataTask | None:
        """The task of some work that is next in order."""
        record: Record = work  # type: ignore[assignment] # what a policy sees as work is a record
        element = record.next_range(1)[0] if isinstance(record, ArrayRecord) else 0
        return self._affinity.units.get(key_of(record, element))

    def waiting(self) -> Iterator[DataTask]:
        """Ready tasks with declared inputs, in the order they became ready."""
        return self._affinity.waiting()

    def match(self, task: DataTask, executor: ExecutorView) -> DataMatch:
        """How much of the input of a task is where an executor is."""
        affinity, unit = self._affinity, cast("Unit", task)
        place = affinity.place_of(self._state.executors[executor.id])
        if place is None:
            return DataMatch(task, *affinity.measure(unit, None))
        here = affinity.here(unit, place)
        return DataMatch(task, here, unit.total)

    def holders(self, task: DataTask) -> list[HolderView]:
        """Where input of a task is."""
        affinity, now, unit = self._affinity, self._view.now, cast("Unit", task)
        found: list[HolderView] = []
        for name, amount in affinity.holders(unit).items():
            place = affinity.places()[name]
            able = [host for host in place.hosts.values() if self._could_ever_run(unit, host)]
            there = [number for host in able for number in islice(host.executors, _EXECUTORS)]
            soonest = min([affinity.arrivals.expected(number, now) for number in there], default=inf)
            found.append(HolderView(name, amount, soonest))
        return found

    def most_held(self, task: DataTask) -> float:
        """The most of a task's input that any place holds."""
        return self._affinity.most_held(cast("Unit", task))

    def best_taker(
        self, task: DataTask, most: int, accept: Callable[[ExecutorView], bool] | None = None
    ) -> ExecutorView | None:
        """The one of some executors with room that has the most of a task's input, or else the first."""
        affinity, unit = self._affinity, cast("Unit", task)
        if affinity.tells_hosts_apart(unit):
            return self._best_holder(unit, accept) or self._most_of(unit, most, accept, may_hold=False)
        return self._most_of(unit, most, accept, may_hold=True)

    def _best_holder(self, unit: Unit, accept: Callable[[ExecutorView], bool] | None) -> ExecutorRecord | None:
        """The executor with room that has the most of a task's input, if any has some; of equals the first."""
        affinity, open_, hosts = self._affinity, self._state.open_executors, self._state.data.by_number
        scores = affinity.held_by_hosts(unit)
        for amount in sorted(set(scores.values()), reverse=True):
            takers: dict[int, Offer | None] = {}  # by executor
            for number in [number for number, held in scores.items() if held == amount]:
                host = hosts[number]
                for one in host.executors if host is not None else ():
                    executor = affinity.roomy.get(one) if one in open_ else None
                    if executor is None or not has_room(executor) or not self._could_go(unit, executor):
                        continue
                    if accept is None or accept(executor):
                        takers[one] = self._view.offer
            if takers:
                first = next(iter(takers)) if len(takers) == 1 else next(one for one in affinity.roomy if one in takers)
                self._view.offer, self._view.offered_element = takers[first], unit.element
                return self._state.executors[first]
        return None

    def _most_of(
        self, unit: Unit, most: int, accept: Callable[[ExecutorView], bool] | None, *, may_hold: bool
    ) -> ExecutorRecord | None:
        """As `best_taker`, by asking each executor; `may_hold`: some may have something of the task's input."""
        affinity = self._affinity
        best: ExecutorRecord | None = None
        offer: Offer | None = None
        best_here = -1
        for executor in islice(affinity.roomy.with_room(self._state.open_executors), most):
            here = affinity.here(unit, affinity.place_of(executor)) if may_hold else 0
            if here > best_here and self._could_go(unit, executor) and (accept is None or accept(executor)):
                best, best_here, offer = executor, here, self._view.offer
                if here >= unit.total or not may_hold:
                    break
        if best is not None:
            self._view.offer, self._view.offered_element = offer, unit.element
        return best

    def has_room(self, executor: ExecutorView) -> bool:
        """Whether an executor may take something."""
        record = self._state.executors[executor.id]
        return record.id in self._state.open_executors and has_room(record)

    def cost_elsewhere(self, task: DataTask, executor: ExecutorView, rate: float, latest: Seconds) -> float:
        """What waiting for a holder elsewhere would cost."""
        unit: Unit = task  # type: ignore[assignment] # what a policy sees as a task is a unit
        affinity, state = self._affinity, self._state
        place = affinity.place_of(state.executors[executor.id])
        return affinity.soonest_cost(unit, place, rate, state.now, latest, could_run=self._could_ever_run)

    def where_most_is(self, task: DataTask) -> ExecutorView | None:
        """An executor that would take a task now, where most of its input is of all places that could ever run it."""
        affinity, unit, executors = self._affinity, cast("Unit", task), self._state.open_executors
        amounts: dict[HostRecord, int] = {}
        if affinity.can_be_outdone:
            by_number = self._state.data.by_number
            amounts = {host: has for number, has in affinity.held_by_hosts(unit).items() if (host := by_number[number])}
        else:
            places = affinity.places()
            for name, has in affinity.holders(unit).items():
                amounts |= dict.fromkeys(places[name].hosts.values(), has)
        for most in sorted(set(amounts.values()), reverse=True):
            hosts = [host for host, has in amounts.items() if has == most]
            there = (executors[number] for host in hosts for number in host.executors if number in executors)
            found = next((executor for executor in there if self._could_go(unit, executor)), None)
            if found is not None or any(self._could_ever_run(unit, host) for host in hosts):
                return found
        return self.best_taker(task, _TAKERS)

    def _could_ever_run(self, unit: Unit, host: HostRecord) -> bool:
        """Whether a task could run on a host if nothing else did; some executors there are asked."""
        state, work = self._state, unit.work
        place = work.queue.place
        if place and host.host != place and place in state.hosts:
            return False
        avoid = work.avoided.get(unit.element, ()) if isinstance(work, ArrayRecord) else work.avoid
        avoided = state.avoidable(work, avoid) if avoid else ()
        executors, could_fit = state.executors, state.named_queues.could_fit
        there = [executors[number] for number in islice(host.executors, _EXECUTORS) if number in executors]
        return any(
            not one.draining
            and one.id not in avoided
            and one.ends_before(work, state.now)
            and could_fit(one, work.needs)
            for one in there
        )

    def could_go(self, task: DataTask, executor: ExecutorView) -> bool:
        """Whether a task could be placed with an executor now."""
        return self._could_go(cast("Unit", task), self._state.executors[executor.id])

    def _could_go(self, unit: Unit, executor: ExecutorRecord) -> bool:
        offer = find_offer(self._state, unit.work, executor, unit.element)
        if offer is None:
            self._refused = True
            if unit.element >= 0 and not unit.is_ready:
                self._affinity.drop(unit)
            return False
        self._view.offer, self._view.offered_element = offer, unit.element
        return True

    def missing(self, task: DataTask, executor: ExecutorView) -> tuple[int, Seconds]:
        """Bytes of a task's input that are not where an executor is, and how long they would travel there."""
        affinity, data = self._affinity, self._state.data
        record = self._state.executors[executor.id]
        host, place = data.host_of(record), affinity.place_of(record)
        missing, seconds = 0, 0.0
        for content in affinity.contents_of(cast("Unit", task)):
            if host is None or place is None or affinity.is_at(content, place):
                continue
            size = data.contents.sizes[content]
            missing += size
            seconds += travel_time(data, content, size, host)
        return missing, seconds

    def expected_output(self, task: DataTask) -> int:
        """Bytes of outputs that a task of its template leaves."""
        return self._affinity.expected_output(cast("Unit", task).work)

    def return_time(self, task: DataTask, executor: ExecutorView) -> Seconds:
        """How long the expected output of a task would travel home: as fast as what came from there."""
        size, data = self.expected_output(task), self._state.data
        host = data.host_of(self._state.executors[executor.id]) if size else None
        rate = data.rate_between(ORIGIN, host) if host is not None else None
        return rate.latency + size / rate.rate if rate is not None and rate.rate else 0.0

    def true_run_time(self, task: DataTask, executor: ExecutorView) -> Seconds | None:
        """How long a task will run where an executor is, if a simulator knows."""
        foresight = self._state.policies.foresight
        return foresight(task.work.id, max(0, task.element), executor.host) if foresight is not None else None

    def notes(self, task: DataTask) -> PlanNotes:
        """What the policy remembers of a task's workflow."""
        return self._affinity.notes(cast("Unit", task).run)

    def next_arrivals(self, most: int) -> list[tuple[Seconds, ExecutorView]]:
        """The executors that may ask for work next, and when."""
        return self._affinity.arrivals.first(most, self._view.now)  # type: ignore[return-value]


def travel_time(data: DataIndex, content: int, size: int, host: HostRecord) -> Seconds:
    """How long a content would travel to a host: from the fastest of some holders, or from the origin; 0: unknown.

    What came from a holder's host counts, or else how fast peers are, if it is at the same site: another site may be
    far away, or not be reached at all, and is expected to be no faster than the origin.
    """
    sources = [data.by_number[number] for number in islice(data.holders(content), _SOURCES)]
    rates = [
        data.rate_between(source.host, host) if source.site == host.site else host.rates.get(source.host)
        for source in sources
        if source is not None
    ]
    rates.append(data.rate_between(ORIGIN, host))
    times = [rate.latency + size / rate.rate for rate in rates if rate is not None and rate.rate]
    return min(times, default=0.0)


class StateScan:
    """One walk through what is ready, best first."""

    # most scans skip nothing: these are replaced when something is in them
    _seen: frozenset[int] = frozenset()  # records that it looked at before another scan continued
    _skipped: frozenset[Needs] = frozenset()
    _full: frozenset[ReadyQueue | LimitTree] = frozenset()  # queues of hosts where nothing fits

    def __init__(self, view: StateView, state: State) -> None:
        self._view = view
        self._state = state
        self._taken: list[Entry] = []  # out of the queues, in the order they were looked at
        self._aside: list[ReadyQueue | LimitTree] = []  # full ones, out of the index

    def __iter__(self) -> Iterator[ReadyWork]:
        """From where it stands."""
        view, waiting, taken = self._view, self._state.waiting, self._taken
        while True:
            if view.scan is not self:
                view.activate(self)
            best: ReadyQueue | None
            if len(waiting) == 1:
                (only,) = waiting
                named = only.share.named
                if named.bounded and not named.spare(only.needs.cores):
                    return
                if (self._skipped or self._full) and self._is_left_out(only):
                    return
                best = only.best()
            else:
                best = self._best_queue()
            entry = best.take() if best is not None else None
            if entry is None:
                if best is not None and not best.root:
                    self._state.fair.forget(best.root)
                return
            taken.append(entry)
            record = entry[4]
            if not self._seen or record.id not in self._seen:
                yield record  # type: ignore[misc]

    def shares(self) -> Iterator[Share]:
        """Of the workflows of what it looked at, and that is still ready."""
        return (record.queue.share for entry in self._taken if (record := entry[4]).ready)

    def skip(self, needs: Needs) -> None:
        """Leave out work with these needs from here on."""
        self._skipped |= {needs}

    def skip_like(self, offer: Offer) -> None:
        """Leave out from here on what would get the same answer."""
        queue = cast("Record", offer.work).queue
        if not offer.barred or (queue.named.bounded and queue.named.spare(queue.cores) <= 0):
            self._skipped |= {queue.needs}
        elif queue.place in self._state.hosts and not (queue.limits and queue.spare <= 0):
            self._full |= {queue.root}

    def take_like(self, record: TaskRecord, most: int) -> list[TaskRecord]:
        """See `StateView.take_like`."""
        queue, runtime = record.queue, record.runtime
        found: list[TaskRecord] = []
        alone = len(self._state.waiting) == 1 and queue.root is queue
        while len(found) < most and (alone or self._best_queue() is queue):
            entry = queue.take()
            if entry is None:
                break
            following = entry[4]
            if type(following) is not TaskRecord or following.runtime is not runtime or following.trouble is not None:
                queue.put_back(entry)
                break
            self._taken.append(entry)
            found.append(following)
        return found

    def suspend(self) -> None:
        """Let another scan look at all of it."""
        self._seen = self._seen.union([entry[4].id for entry in self._taken])
        self.put_back()

    def put_back(self) -> None:
        """Return to the queues what was looked at."""
        fair = self._state.fair
        waiting, touched = fair.waiting, fair.touched
        for entry in reversed(self._taken):  # the last one taken goes back first, so that all keep their order
            record = entry[4]
            queue = record.queue
            if record.ready:
                queue.put_back(entry)
            elif is_valid(entry):
                record.queue_key = ()
            root = queue.root if queue.limits else queue
            if not root:
                fair.forget(root)
            elif root not in touched:
                touched[root] = waiting[root] = None
        self._taken.clear()
        for root in self._aside:
            fair.touch(root)
        self._aside.clear()

    def _is_left_out(self, queue: ReadyQueue | LimitTree) -> bool:
        """Whether nothing of a queue is to be looked at."""
        return queue.needs in self._skipped or queue in self._full

    def _best_queue(self) -> ReadyQueue | None:
        """The queue with the best head, of the workflow that holds the fewest cores; skipped ones left out.

        Of workflows that hold equally many, and heads of one priority and rank, that which was served longest ago.
        """
        best = self._state.fair.best(self._skipped, self._full, self._aside)
        return best.best() if best is not None else None
