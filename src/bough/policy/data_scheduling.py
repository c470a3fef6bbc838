"""Placing tasks where their data is: what policies that look at data share.

Rule: all of it costs what is placed and a bounded look beyond, never the length of the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from bough.model.ids import Seconds
from bough.policy.interface import DataMatch, DataTask, DataView, ExecutorView, Place, View

Accept = Callable[[DataMatch], bool]


def wish_for(task: DataTask, executor: ExecutorView) -> Place:
    """The wish that a task goes to an executor."""
    return Place(task.work.id, executor.id, 1, task.element)


def at_data(data: DataView, accept: Accept | None = None) -> Iterator[Place]:
    """Give executors with room the tasks that have the most of their input where they are."""
    for executor in data.openings():
        while (found := data.best_here(executor, accept)) is not None:
            yield wish_for(found.task, executor)


def unheld_anywhere(view: View, data: DataView) -> Iterator[Place]:
    """Give executors with room the tasks whose input nobody holds, in the order they became ready."""
    for executor in view.executors():
        while (task := data.unheld(executor)) is not None:
            yield wish_for(task, executor)
        if not data.has_unheld:
            return


def overdue(view: View, data: DataView, bound: Seconds) -> Iterator[Place]:
    """Place anywhere, oldest first, what has waited for longer than a bound; have it asked again when the next has."""
    if not bound:
        return
    for task in data.waiting():
        if view.now - task.since < bound:
            view.ask_again(task.since + bound)
            return
        executor = first_that_takes(view, data, task)
        if executor is None:
            return
        yield wish_for(task, executor)


def first_that_takes(
    view: View, data: DataView, task: DataTask, accept: Callable[[ExecutorView], bool] | None = None
) -> ExecutorView | None:
    """The executor that has the most of a task's input among those that would take it now, or else the first."""
    best: ExecutorView | None = None
    most = -1.0
    for executor in islice(view.executors(), _LOOK):
        if data.could_go(task, executor) and (accept is None or accept(executor)):
            here = data.match(task, executor).here
            if here > most:
                best, most = executor, here
    return best


def plain_first(view: View) -> Iterator[Place]:
    """Place work without declared inputs in order; a policy that ranks such work first finds it at the front."""
    ready = view.ready()
    for work in ready:
        if work.has_inputs:
            return
        while work.ready:
            offer = view.executor_for(work)
            if offer.executor is None:
                ready.skip_like(offer)
                break
            yield Place(work.id, offer.executor.id)


_LOOK = 64  # executors that are compared for one task
