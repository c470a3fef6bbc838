"""Named locks of running tasks.

A lock belongs to one element of a span: it is freed by its owner, or when that element leaves the span, however it
does (it ended, failed, was lost, cancelled, killed or given back). Rule: a lock has at most one owner, and that one is
with an executor.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bough.core.records.attempts import Span


class LockOwner(msgspec.Struct, frozen=True, gc=False):
    """The element of a span that owns a lock."""

    span: int
    index: int


class LockTable:
    """The locks that are taken, by name, and the spans that own some."""

    __slots__ = ("_owners", "by_span", "users")

    def __init__(self) -> None:
        self._owners: dict[str, LockOwner] = {}
        self.by_span: dict[int, list[str]] = {}  # names of locks by the span that owns them
        self.users: set[int] = set()  # spans that own one, or have owned one

    def get(self, name: str) -> LockOwner | None:
        """The owner of a lock; None: it is free."""
        return self._owners.get(name)

    def __contains__(self, name: str) -> bool:
        """Whether a lock is taken."""
        return name in self._owners

    def __iter__(self) -> Iterator[str]:
        """The names of the locks that are taken."""
        return iter(self._owners)

    def __len__(self) -> int:
        """How many locks are taken."""
        return len(self._owners)

    def items(self) -> Iterator[tuple[str, LockOwner]]:
        """The locks that are taken, with their owners."""
        yield from self._owners.items()

    def may_take(self, name: str, span: Span | None, index: int) -> bool:
        """Whether an element of a span may take a lock as things stand."""
        return bool(name) and name not in self._owners and span is not None and span.has(index)

    def may_free(self, name: str, span: int, index: int) -> bool:
        """Whether a lock belongs to this element."""
        return self._owners.get(name) == LockOwner(span, index)

    def take(self, name: str, span: int, index: int) -> None:
        """An element of a span owns a lock."""
        self._owners[name] = LockOwner(span, index)
        self.by_span.setdefault(span, []).append(name)
        self.users.add(span)

    def free(self, name: str) -> None:
        """A lock has no owner any more."""
        owner = self._owners.pop(name)
        names = self.by_span[owner.span]
        names.remove(name)
        if not names:
            del self.by_span[owner.span]

    def free_all(self, span: Span) -> None:
        """A span has ended: its locks are free."""
        for name in list(self.by_span.get(span.id, ())):
            self.free(name)
        self.users.discard(span.id)

    def free_ended(self, span: Span) -> None:
        """Elements left a span: their locks are free."""
        for name in list(self.by_span[span.id]):
            if not span.has(self._owners[name].index):
                self.free(name)
