"""Placing tasks where their data is: what policies that look at data share.

Rule: all of it costs what is placed and a bounded look beyond, never the length of the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bough.model.ids import Seconds
from bough.policy.interface import DataTask, DataView, ExecutorView, Place, View


def wish_for(task: DataTask, executor: ExecutorView) -> Place:
    """The wish that a task goes to an executor."""
    return Place(task.work.id, executor.id, 1, task.element)


def at_data(data: DataView) -> Iterator[Place]:
    """Give executors with room the tasks that have the most of their input where they are."""
    for executor in data.openings():
        while (found := data.best_here(executor)) is not None:
            yield wish_for(found.task, executor)


def at_most_data(data: DataView) -> Iterator[Place]:
    """As `at_data`, of the tasks of whose input no other place has more."""
    for executor in data.openings(for_most=True):
        while (found := data.most_here(executor)) is not None:
            yield wish_for(found.task, executor)


def unheld_anywhere(view: View, data: DataView) -> Iterator[Place]:
    """Give executors with room the tasks whose input nobody holds, in the order they became ready."""
    if not data.has_unheld:
        return
    for executor in view.executors():
        while (task := data.unheld(executor)) is not None:
            yield wish_for(task, executor)
        if not data.has_unheld:
            return


def overtaken(data: DataView) -> Iterator[Place]:
    """Place anywhere, oldest first, as many as are owed a turn: tasks that came much later went before them."""
    if data.owed:
        for task in data.waiting():
            executor = first_that_takes(data, task)
            if executor is None:
                return
            yield wish_for(task, executor)
            if not data.owed:
                return


def overdue(view: View, data: DataView, bound: Seconds) -> Iterator[Place]:
    """Place anywhere, oldest first, what has waited for longer than a bound; have it asked again when the next has."""
    if not bound:
        return
    for task in data.waiting():
        due = task.since + bound
        if view.now < due:  # as it is asked for: a difference may round otherwise, and would be asked for again at once
            view.ask_again(due)
            return
        executor = first_that_takes(data, task)
        if executor is None:
            return
        yield wish_for(task, executor)


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
        while work.ready:
            offer = view.executor_for(work)
            if offer.executor is None:
                ready.skip_like(offer)
                break
            yield Place(work.id, offer.executor.id)


_LOOK = 64  # executors that are compared for one task
