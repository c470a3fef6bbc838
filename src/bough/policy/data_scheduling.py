"""Placing tasks where their data is: what policies that look at data share.

Rule: data decides among equals only. Priorities, fair shares and the turn of work without inputs come first, and nobody
is overtaken for ever: see `in_turn`, with which every such policy begins.
Rule: all of it costs what is placed and a bounded look beyond, never the length of the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import islice

from bough.model.ids import Seconds
from bough.model.sites.resources import Needs
from bough.policy.interface import DataMatch, DataTask, DataView, ExecutorView, Place, ReadyWork, View
from bough.policy.list_scheduling import all_of

Accept = Callable[[DataMatch], bool]
Choose = Callable[[ExecutorView, Accept | None], DataMatch | None]  # `DataView.best_here` or `most_here`
Placing = Generator[Place, None, bool]  # wishes, and in the end whether there were any
PlaceOne = Callable[[ReadyWork, Accept], Placing]  # one task of the workflow and priority of some work


def wish_for(task: DataTask, executor: ExecutorView) -> Place:
    """The wish that a task goes to an executor."""
    return Place(task.work.id, executor.id, 1, task.element)


def at_data(data: DataView, choose: Choose | None = None) -> Iterator[Place]:
    """Give executors with room the tasks that have the most of their input where they are."""
    choose = choose if choose is not None else data.best_here
    for executor in data.openings():
        while (found := choose(executor, None)) is not None:
            yield wish_for(found.task, executor)


def at_most_data(data: DataView) -> Iterator[Place]:
    """As `at_data`, of the tasks of whose input no other place has more."""
    for executor in data.openings(for_most=True):
        while (found := data.most_here(executor)) is not None:
            yield wish_for(found.task, executor)


def unheld_anywhere(
    view: View, data: DataView, accept: Callable[[DataTask, ExecutorView], bool] | None = None
) -> Iterator[Place]:
    """Give executors with room the tasks whose input nobody holds, in the order they became ready."""
    if not data.has_unheld:
        return
    for executor in view.executors():
        accepts = None if accept is None else lambda task, executor=executor: accept(task, executor)
        while (task := data.unheld(executor, accepts)) is not None:
            yield wish_for(task, executor)
        if not data.has_unheld:
            return


def in_turn(
    view: View, data: DataView, choose: Choose, *, waits: bool, place_one: PlaceOne | None = None
) -> Iterator[Place]:
    """Place those whose turn it is, and whom a choice by data alone would pass over.

    First those that are owed a turn because tasks that came much later went before them. Then, as long as that stands
    first in the queue, work without inputs: data is no reason to let it wait. Where several workflows or priorities
    compete, the one whose turn it is chooses by data among its own tasks, or else sends its first one anywhere. If the
    policy `waits`, a task that has more of its input at a busy place is left to it. A policy that compares executors
    otherwise places such a task itself (`place_one`).
    """
    yield from _overtaken(view, data)
    spared: set[int] | None = None  # executors where ready tasks have data: others are better for who has none
    while view.has_room and (work := next(iter(view.ready()), None)) is not None:
        if not work.has_inputs:
            if spared is None:
                spared = {executor.id for executor in data.openings()}
            offer = view.executor_for(work, spared)
            if offer.executor is None and spared:
                spared = set()
                offer = view.executor_for(work)
            if offer.executor is None:
                _keep_for(view, work)
                return
            yield Place(work.id, offer.executor.id)
            continue
        if not data.is_contested:
            return
        alike = _alike(work)
        placing = place_one(work, alike) if place_one is not None else _of_class(data, work, alike, choose, waits=waits)
        if not (yield from placing):
            return


def _alike(work: ReadyWork) -> Accept:
    """Whether a task is of the workflow and priority of some work."""

    def is_alike(found: DataMatch) -> bool:
        other = found.task.work
        return other.workflow == work.workflow and other.priority == work.priority

    return is_alike


def _of_class(data: DataView, work: ReadyWork, is_alike: Accept, choose: Choose, *, waits: bool) -> Placing:
    """Place a task of the workflow and priority of some work, by its data."""
    for executor in data.openings():
        found = choose(executor, is_alike)
        if found is not None:
            yield wish_for(found.task, executor)
            return True
    first = data.first_of(work)
    taker = first_that_takes(data, first) if first is not None else None
    if first is None or taker is None or (waits and data.most_held(first) > data.match(first, taker).here):
        return False
    yield wish_for(first, taker)
    return True


def _overtaken(view: View, data: DataView) -> Iterator[Place]:
    """Place anywhere, oldest first, as many as are owed a turn."""
    if data.owed:
        for task in data.waiting():
            executor = first_that_takes(data, task)
            if executor is None:
                _keep_for(view, task.work)
                return
            yield wish_for(task, executor)
            if not data.owed:
                return


def _keep_for(view: View, work: ReadyWork) -> None:
    """Work whose turn it is fits nowhere now: others shall not always take what becomes free."""
    if not view.executor_for(work).barred:
        view.keep_for(work)


def overdue(view: View, data: DataView, bound: Seconds) -> Iterator[Place]:
    """Place anywhere, oldest first, what has waited for longer than a bound; have it asked again when the next has.

    One that fits nowhere now keeps an executor, and does not stand in the way of those behind it.
    """
    if not bound:
        return
    stuck: set[Needs | int] = set()  # needs that fit nowhere, and work that may go nowhere for reasons of its own
    for task in data.waiting():
        work = task.work
        if stuck and (work.needs in stuck or work.id in stuck):
            continue
        due = task.since + bound
        if view.now < due:  # as it is asked for: a difference may round otherwise, and would be asked for again at once
            view.ask_again(due)
            return
        executor = first_that_takes(data, task)
        if executor is not None:
            yield wish_for(task, executor)
            continue
        _keep_for(view, work)
        stuck.add(work.id if view.executor_for(work).barred else work.needs)
        if len(stuck) >= _MOST_STUCK or not view.has_room:
            return


def first_that_takes(
    data: DataView, task: DataTask, accept: Callable[[ExecutorView], bool] | None = None
) -> ExecutorView | None:
    """The executor that has the most of a task's input among those that would take it now, or else the first."""
    return data.best_taker(task, _LOOK, accept)


def plain_first(view: View) -> Iterator[Place]:
    """Place work without declared inputs in order; a policy that ranks such work first finds it at the front."""
    ready = view.ready()
    for work in ready:
        if work.has_inputs:
            return
        yield from all_of(view, ready, work)


def plain_behind(view: View, most: int) -> Iterator[Place]:
    """Place work without inputs in order, also behind work that waits for its data, as far as some records tell.

    The first that fits nowhere keeps an executor, see `in_order`.
    """
    reserved: set[int] = set()
    ready = view.ready()
    for work in islice(ready, most):
        if not work.has_inputs:
            yield from all_of(view, ready, work, reserved)


_LOOK = 64  # executors that are compared for one task
_MOST_STUCK = 16  # kinds of work that fit nowhere, behind which is looked
