"""Named locks of running tasks, and what else a task says of itself while it runs.

A lock belongs to one element of a span: it is freed by its owner, or when that element leaves the span, however it
does (it ended, failed, was lost, cancelled, killed or given back). Rule: a lock has at most one owner, and that one is
with an executor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from bough.core.records.attempts import Span
from bough.model.events import facts

if TYPE_CHECKING:
    from bough.core.state import State


class LockOwner(msgspec.Struct, frozen=True, gc=False):
    """Who owns a lock."""

    span: int
    index: int


def has(span: Span | None, index: int) -> bool:
    """Whether an element is with a span, that is, with its executor."""
    return span is not None and any(low <= index < high for low, high in span.left)


def is_lawful(state: State, fact: facts.LockTaken | facts.LockFreed) -> bool:
    """Whether a task may take a lock, or free it, as things stand."""
    owner = state.locks.get(fact.name)
    if isinstance(fact, facts.LockTaken):
        return owner is None and bool(fact.name) and has(state.spans.get(fact.span), fact.index)
    return owner is not None and (owner.span, owner.index) == (fact.span, fact.index)


def taken(state: State, fact: facts.LockTaken) -> None:
    """A task owns a lock."""
    take(state, fact.name, fact.span, fact.index)


def take(state: State, name: str, span: int, index: int) -> None:
    """Note the owner of a lock."""
    state.locks[name] = LockOwner(span, index)
    state.lockers.setdefault(span, []).append(name)


def freed(state: State, fact: facts.LockFreed) -> None:
    """A task does not need a lock any more."""
    _free(state, fact.name)


def _free(state: State, name: str) -> None:
    lock = state.locks.pop(name)
    names = state.lockers[lock.span]
    names.remove(name)
    if not names:
        del state.lockers[lock.span]


def left(state: State, span: Span, *, gone: bool) -> None:
    """Elements left a span that has locks: theirs are free; `gone`: all of it did."""
    for name in list(state.lockers[span.id]):
        if gone or not has(span, state.locks[name].index):
            _free(state, name)


def span_heard(state: State, fact: facts.SpanAlive) -> None:
    """A task of a span gave a sign of life."""
    state.spans[fact.span].heard = state.now
