"""Heuristics that compare completion times: a table of tasks and executors, filled and emptied one task at a time.

CT(t, p) = when p is free + how long t's missing input travels there + how long t runs there + how long its expected
output travels home. Run times come from the history of the task's template: of tasks with as much input, if sizes were
seen to tell run times, or of those on that host, or of all; or else from the user's estimate. Sizes of outputs come
from the history of the template; transfers from measured bandwidths; when an executor is free from the mean time
between its turns. What nobody knows counts as 0, so that without history these heuristics place in order; `explain`
says where an estimate comes from, and that there is none. Source: `spec/storage-affinity.md` 3.5 to 3.7, whose
heuristics are those that know of data, but for `sufferage` (3.5), which counts no transfers.
Tasks are compared with those of their priority; where several workflows compete, with those of the one whose turn it
is. Those that choose by time would pass over some tasks for ever while others come: each second since a task was first
compared counts as `ageing` seconds in its favour, see `list_scheduling`.
A task whose best executor is busy is planned there, so that the next task sees it taken, and waits. A static plan is
kept: a task goes to the executor that it was once planned for, unless that has left. Rule: a table has at most `window`
tasks and some executors, whatever waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain, count, groupby, islice
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from bough.model.ids import Seconds
from bough.policy.data_scheduling import wish_for
from bough.policy.interface import DataNeeds, DataTask, DataView, ExecutorView, Place, ReadyWork, View
from bough.policy.list_scheduling import AGEING, Ageing, in_order

Link = Literal["alone", "fair-share", "serial"]
Info = Literal["forecast", "snapshot", "oracle", "noisy"]
Choose = Callable[["Table"], tuple[int, int]]  # the places of a task and of an executor in the table
_Planned = tuple[int, int, int]  # record, element, and which one of those that have the same

_MACHINES = 24  # executors in the table
_UNKNOWN: Seconds = 1.0  # for which a task of unknown length occupies its executor in a static plan
_MOST_MEASURED = 100_000  # estimates of a workflow that are kept as they were
_RANKED = 16  # records at the front of the queue that are looked at besides the window
_MORE = 4  # tasks that may be planned on busy executors, besides one for each that has room


class TableHeuristic(msgspec.Struct, frozen=True):
    """What these heuristics share; each has a way to choose."""

    uses_estimates: ClassVar[bool] = True  # of run times: `explain` says where they come from
    counts_transfers: ClassVar[bool] = True  # of input that is not there, and of output on its way home
    window: Annotated[int, Meta(ge=1, le=1000)] = 24  # tasks that are compared

    @property
    def data_needs(self) -> DataNeeds:
        """What the core keeps for it."""
        return DataNeeds(estimates=True)

    def rank(self, work: ReadyWork, /) -> float:
        """The order of submission."""
        return 0.0

    def choose(self, table: Table) -> tuple[int, int]:
        """The places of a task and of an executor in the table."""
        raise NotImplementedError

    def place(self, view: View, /) -> Iterable[Place]:
        """One task at a time."""
        return by_table(view, self.window, self.choose)


class AgeingHeuristic(TableHeuristic, frozen=True):
    """One that does not take tasks in order."""

    ageing: Ageing = AGEING

    def place(self, view: View, /) -> Iterable[Place]:
        """One task at a time."""
        return by_table(view, self.window, self.choose, ageing=self.ageing, transfers=self.counts_transfers)


class RankedHeuristic(AgeingHeuristic, frozen=True):
    """One whose rank is what it chooses by, so that the best of all that waits are among those that are compared."""

    @property
    def rank_ageing(self) -> float:
        """The order of the queue ages as the choice does."""
        return self.ageing

    def place(self, view: View, /) -> Iterable[Place]:
        """One task at a time."""
        return by_table(view, self.window, self.choose, ageing=self.ageing, ranked=True)


class Table:
    """The tasks that are not assigned, the executors, and when each of these is free."""

    def __init__(
        self,
        view: View,
        data: DataView,
        window: int,
        *,
        link: Link = "alone",
        info: Info = "forecast",
        noise: float = 0.0,
        ageing: float = 0.0,
        in_turn: bool = False,
        ranked: bool = False,
        transfers: bool = True,
        before: Table | None = None,
    ) -> None:
        """`in_turn`: tasks are compared with those of their priority and workflow only, as long as there are such.

        `ranked`: those that stand first in the queue are compared as well as those that became ready first.
        `before`: a table of the same instant, from which times are known.
        """
        self._view, self._data, self._link = view, data, link
        self.waiting: list[DataTask] = []  # for a busy executor, or for one that they fit
        turn = self._whose_turn() if in_turn else None
        tasks = data.candidates(window)
        if ranked:
            tasks += _ranked(view, data, tasks)
        self._take_up(tasks, turn)
        there = data.free_in(_MACHINES)
        self.executors = [executor for _, executor in there]
        self.free_in = [seconds for seconds, _ in there]
        self._info, self._noise, self._transfers = info, noise, transfers
        # stage and run, by task and executor
        self._known: dict[tuple[int, int, int], tuple[Seconds, Seconds]] = before._known if before is not None else {}
        self._credits: dict[tuple[int, int], Seconds] = before._credits if before is not None else {}
        self._staged: list[Seconds] = []  # of what was assigned
        self._ageing = ageing

    def _whose_turn(self) -> ReadyWork | None:
        """The work that is next if several workflows or priorities compete."""
        first = next(iter(self._view.ready()), None)
        return first if first is not None and self._data.is_contested else None

    def _take_up(self, tasks: list[DataTask], turn: ReadyWork | None) -> None:
        """Compare tasks: first those like the work whose turn it is."""
        self.turn, self.tasks = turn, tasks
        self._later: list[list[DataTask]] = []
        self.is_missed = False  # that work has no inputs, and is not among those that are compared
        if turn is None:
            return
        if not any(_is_like(turn, one) for one in (*tasks, *self.waiting)):
            missed = self._data.first_of(turn)  # others stand before it in the order in which they became ready
            self.is_missed = missed is None
            tasks += [missed] if missed is not None else []
        self._later = _by_turn(turn, tasks)
        self.tasks = self._later.pop(0) if self._later else []

    def take_all(self) -> list[DataTask]:
        """Compare all tasks with each other; they are in the order of their turns."""
        self.tasks += chain.from_iterable(self._later)
        self._later = []
        return list(self.tasks)

    def next_turn(self) -> None:
        """Something was placed: it may be another's turn."""
        turn = self._whose_turn()
        self._take_up([*self.tasks, *chain.from_iterable(self._later)], turn)

    def completion(self, task: int, executor: int) -> Seconds:
        """When a task would have run on an executor, in seconds from now."""
        one, where = self.tasks[task], self.executors[executor]
        key = one.work.id, one.element, where.id
        times = self._known.get(key)
        if times is None:
            times = self._known[key] = self._estimate(one, where)
        stage, run = times
        if stage and self._staged:
            if self._link == "fair-share":
                stage *= len(self._staged) + 1
            elif self._link == "serial":
                stage += sum(self._staged)
        return self.free_in[executor] + stage + run

    def _estimate(self, one: DataTask, where: ExecutorView) -> tuple[Seconds, Seconds]:
        """How long the input of a task travels to an executor, and how long it runs there, its output sent home."""
        data = self._data
        missing, stage = data.missing(one, where) if self._transfers else (0, 0.0)
        run = data.expected_on(one, where)
        if self._info == "oracle":
            foreseen = data.true_run_time(one, where)
            run = run if foreseen is None else foreseen
        elif self._info == "noisy":
            run *= self._view.random.lognormvariate(0.0, self._noise)
        elif self._info == "snapshot":  # of times: where data is, is always known
            kept, key = data.notes(one).measured, (one.work.id, one.element, where.id)
            if key not in kept:
                if len(kept) >= _MOST_MEASURED:
                    kept.clear()
                kept[key] = run, stage / missing if missing else 0.0
            run, pace = kept[key]
            stage = missing * pace if pace else stage
        return stage, run + (data.return_time(one, where) if self._transfers else 0.0)

    def run_time(self, task: int) -> Seconds:
        """How long a task runs anywhere."""
        return self.tasks[task].work.expected

    def best(self, task: int) -> int:
        """The executor where a task would have run first; the earlier of equal ones."""
        return min(range(len(self.executors)), key=lambda executor: self.completion(task, executor))

    def credit(self, task: int) -> Seconds:
        """What the time for which a task was passed over counts in its favour."""
        if not self._ageing:
            return 0.0
        one = self.tasks[task]
        key = one.work.id, one.element
        credit = self._credits.get(key)
        if credit is None:
            now, compared = self._view.now, self._data.notes(one).compared
            if len(compared) >= _MOST_MEASURED:
                compared.clear()
            credit = self._credits[key] = self._ageing * (now - compared.setdefault(key, now))
        return credit

    def assign(self, task: int, executor: int) -> None:
        """A task goes to an executor, now or when that is free."""
        stage = self._known.get((self.tasks[task].work.id, self.tasks[task].element, self.executors[executor].id))
        self.free_in[executor] = max(self.completion(task, executor), self.free_in[executor])
        if stage is not None and stage[0]:
            self._staged.append(stage[0])
        del self.tasks[task]
        if not self.tasks and self._later:
            self.tasks = self._later.pop(0)


def _ranked(view: View, data: DataView, tasks: list[DataTask]) -> list[DataTask]:
    """Tasks with inputs that stand first in the queue, and are not among some others."""
    known = {(one.work.id, one.element) for one in tasks}
    first = (data.first_of(work) for work in islice(view.ready(), _RANKED) if work.has_inputs)
    return [one for one in first if one is not None and (one.work.id, one.element) not in known]


def _is_like(work: ReadyWork, task: DataTask) -> bool:
    """Whether a task is of the workflow and priority of some work."""
    return task.work.workflow == work.workflow and task.work.priority == work.priority


def _by_turn(first: ReadyWork, tasks: list[DataTask]) -> list[list[DataTask]]:
    """Tasks by priority, and first those of the workflow whose turn it is."""

    def turn(task: DataTask) -> tuple[bool, int, bool]:
        return not _is_like(first, task), -task.work.priority, task.work.workflow != first.workflow

    return [list(alike) for _, alike in groupby(sorted(tasks, key=turn), turn)]


def by_static_plan(
    view: View, window: int, choose: Choose, *, link: Link = "alone", info: Info = "forecast", noise: float = 0.0
) -> Iterator[Place]:
    """Plan each task once, as soon as it is seen, and place it where it was planned when there is room."""
    data = view.estimates
    if data is None:
        yield from in_order(view)
        return
    goes_on, table = True, None
    while goes_on:
        table = Table(view, data, window, link=link, info=info, noise=noise, in_turn=True, before=table)
        placed = yield from _missed(view, table, set())
        if not placed:
            waiting = table.take_all()
            numbers = {executor.id: number for number, executor in enumerate(table.executors)}
            _plan(data, table, choose, numbers)
            placed = yield from _follow_plan(view, data, table, waiting, numbers)
        goes_on = placed and view.has_room
    yield from _idle_ones(view)


def _plan(data: DataView, table: Table, choose: Choose, numbers: dict[int, int]) -> None:
    """Plan those tasks of a table that were not planned before; `numbers`: the places of executors in it."""
    for key, task in _with_keys(table.tasks):  # what was planned before occupies its executor
        planned = data.notes(task).assigned
        where, seconds = planned.get(key, (-1, 0.0))
        if where in numbers:
            table.free_in[numbers[where]] += seconds
            table.tasks.remove(task)
        else:
            planned.pop(key, None)
    while table.tasks and table.executors:
        number, executor = choose(table)
        task = table.tasks[number]
        able = [place for place, one in enumerate(table.executors) if one.could_fit(task.work.needs)]
        if not able:  # it is planned when somebody comes who can run it
            del table.tasks[number]
            continue
        if executor not in able:
            executor = min(able, key=lambda place, number=number: table.completion(number, place))  # type: ignore[misc]
        before = table.free_in[executor]
        table.assign(number, executor)
        if table.free_in[executor] <= before:
            table.free_in[executor] = before + _UNKNOWN
        assigned = data.notes(task).assigned
        if len(assigned) >= _MOST_MEASURED:
            assigned.clear()
        key = next(key for key in _keys_of(task) if key not in assigned)
        assigned[key] = table.executors[executor].id, table.free_in[executor] - before


def _keys_of(task: DataTask) -> Iterator[_Planned]:
    """What a task may be planned under: the next tasks of an array without inputs are known by their order alone."""
    return ((task.work.id, task.element, number) for number in count())


def _with_keys(tasks: list[DataTask]) -> list[tuple[_Planned, DataTask]]:
    """Tasks with what they are planned under."""
    seen: Counter[tuple[int, int]] = Counter()
    found: list[tuple[_Planned, DataTask]] = []
    for task in tasks:
        found.append(((task.work.id, task.element, seen[task.work.id, task.element]), task))
        seen[task.work.id, task.element] += 1
    return found


def _follow_plan(
    view: View, data: DataView, table: Table, waiting: list[DataTask], numbers: dict[int, int]
) -> Generator[Place, None, bool]:
    """Place what was planned for executors that have room, or another one if a task does not fit there.

    Whether any was placed.
    """
    reserved: set[int] = set()
    placed = False
    for key, task in _with_keys(waiting):
        planned = data.notes(task).assigned
        where, seconds = planned.get(key, (-1, 0.0))
        if where not in numbers or where in reserved or not data.has_room(table.executors[numbers[where]]):
            continue
        executor = _that_takes(table, data, task, table.executors[numbers[where]], reserved)
        if executor is not None:
            del planned[key]
            placed = True
            yield wish_for(task, executor) if task.element >= 0 else Place(task.work.id, executor.id, 1)
            if table.turn is not None:
                break  # it may be another's turn
        elif (kept := view.most_free(task.work.needs)) is not None:
            planned[key] = kept.id, seconds
            reserved.add(kept.id)
    return placed


def by_table(
    view: View,
    window: int,
    choose: Choose,
    *,
    link: Link = "alone",
    info: Info = "forecast",
    noise: float = 0.0,
    ageing: float = 0.0,
    ranked: bool = False,
    transfers: bool = True,
) -> Iterator[Place]:
    """Assign tasks as long as an executor has room."""
    data = view.estimates
    if data is None:
        yield from in_order(view)
        return
    placed = True
    reserved: set[int] = set()  # for tasks that fit nowhere now
    table: Table | None = None
    while placed and view.has_room:
        table = Table(
            view,
            data,
            window,
            link=link,
            info=info,
            noise=noise,
            ageing=ageing,
            in_turn=True,
            ranked=ranked,
            transfers=transfers,
            before=table,
        )
        placed = yield from _missed(view, table, reserved)
        if not placed:
            placed = yield from _empty(view, data, table, choose, reserved)
    yield from _idle_ones(view)


def _missed(view: View, table: Table, reserved: set[int]) -> Generator[Place, None, bool]:
    """Place the work whose turn it is, if it is not among those that are compared; whether it was."""
    offer = view.executor_for(table.turn, reserved) if table.turn is not None and table.is_missed else None
    if offer is None or offer.executor is None:
        return False
    yield Place(offer.work.id, offer.executor.id, 1)
    return True


def _empty(
    view: View, data: DataView, table: Table, choose: Choose, reserved: set[int]
) -> Generator[Place, None, bool]:
    """Assign the tasks of a table; whether any was placed."""
    placed = False
    left = sum(seconds <= 0 for seconds in table.free_in) + _MORE
    while table.tasks and table.executors and left and view.has_room:
        left -= 1
        task, executor = choose(table)
        one, best = table.tasks[task], table.executors[executor]
        waits = table.free_in[executor] > 0 and not data.has_room(best)
        table.assign(task, executor)
        where = _that_takes(table, data, one, best, reserved) if not waits else None
        if where is not None:
            placed = True
            data.notes(one).compared.pop((one.work.id, one.element), None)
            yield wish_for(one, where) if one.element >= 0 else Place(one.work.id, where.id, 1)
            if table.turn is not None:
                table.next_turn()
                if table.is_missed:
                    break
            continue
        table.waiting.append(one)
        if not waits and view.executor_for(one.work, reserved).executor is None:
            kept = view.most_free(one.work.needs)
            reserved |= {kept.id} if kept is not None else set()
    return placed


def _that_takes(
    table: Table, data: DataView, task: DataTask, best: ExecutorView, reserved: set[int]
) -> ExecutorView | None:
    """The best executor, or if that does not take a task (its needs, limits) another one that does."""
    for one in (best, *table.executors):
        if one.id not in reserved and data.has_room(one) and data.could_go(task, one):
            return one
    return None


def _idle_ones(view: View) -> Iterator[Place]:
    """If nothing runs anywhere, nobody comes back to ask: place in order."""
    if view.busy_share() <= 0:
        yield from in_order(view)
