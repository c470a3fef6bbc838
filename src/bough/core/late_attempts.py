"""What lost executors had: they may be alive behind a broken network, and come back with results.

Rule: of all attempts of a task the first good result counts, whichever attempt brings it; the others are ended, and
what they say later is not heard.
"""

from __future__ import annotations

from bough.core.records.array_record import Record
from bough.core.records.attempts import Span
from bough.core.state import State
from bough.model import ranges
from bough.model.events.orders import StopSpan

_MOST_GHOSTS = 10_000  # spans of lost executors that are remembered


def remember(state: State, span: Span, start: int, stop: int) -> None:
    """Elements were taken from a lost executor, which may still bring their results."""
    ghost = state.ghosts.get(span.id)
    if ghost is None:
        if len(state.ghosts) >= _MOST_GHOSTS:
            _forget(state, next(iter(state.ghosts.values())))
        ghost = Span(span.id, span.record, span.start, span.stop, span.attempt, span.executor, [], queued=False)
        ghost.behind = span.behind
        state.ghosts[span.id] = ghost
        state.ghosts_of.setdefault(span.record.id, []).append(span.id)
    ranges.add(ghost.left, start, stop)


def exorcise(state: State, record: Record, start: int, stop: int) -> None:
    """Elements are done: attempts of them that may still run on executors that were lost are to be ended."""
    for number in list(state.ghosts_of.get(record.id, ())):
        ghost = state.ghosts[number]
        for low, high in ranges.take(ghost.left, start, stop):
            state.orders.append(StopSpan(ghost.executor.id, ghost.id, low, high))
        if not ghost.left:
            _forget(state, ghost)


def _forget(state: State, ghost: Span) -> None:
    """Nothing more is expected of it."""
    del state.ghosts[ghost.id]
    others = state.ghosts_of[ghost.record.id]
    others.remove(ghost.id)
    if not others:
        del state.ghosts_of[ghost.record.id]
