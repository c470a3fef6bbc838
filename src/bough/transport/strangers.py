"""Peers that have not proven anything yet: at most so many, and when another one comes the oldest gives way.

A peer that knows its token proves it within milliseconds. One that holds a connection without doing so is in nobody's
way for longer than a moment: `SILENT` seconds if it has said nothing at all, `SPEAKING` seconds if its handshake is
under way. Those who come while nobody has been there for so long wait in the kernel's queue, so that a crowd of honest
peers does not push itself out. Rule: addresses do not count; many peers share one on a login node or behind a NAT.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

SILENT = 0.25  # seconds
SPEAKING = 2.0


class Stranger:
    """One of them. `drop` ends its connection."""

    __slots__ = ("drop", "since")

    def __init__(self, drop: Callable[[], None], since: float) -> None:
        self.drop = drop
        self.since = since


class Strangers:
    """See the module. Times are the caller's, in seconds."""

    def __init__(self, most: int, *, silent: float = SILENT, speaking: float = SPEAKING) -> None:
        self._most = most
        self._silent_for = silent
        self._speaking_for = speaking
        self._silent: OrderedDict[Stranger, None] = OrderedDict()
        self._speaking: OrderedDict[Stranger, None] = OrderedDict()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._silent) + len(self._speaking)

    @property
    def is_full(self) -> bool:
        """Whether one must give way before another one may come."""
        return len(self) >= self._most

    def add(self, stranger: Stranger, *, speaks: bool) -> None:
        """One more."""
        (self._speaking if speaks else self._silent)[stranger] = None

    def spoke(self, stranger: Stranger) -> None:
        """It has said its first word."""
        if stranger in self._silent:
            del self._silent[stranger]
            self._speaking[stranger] = None

    def remove(self, stranger: Stranger) -> None:
        """It was let in, or is gone."""
        self._silent.pop(stranger, None)
        self._speaking.pop(stranger, None)

    def free_at(self) -> float:
        """From when on one gives way."""
        return min((since for since, _ in self._first()), default=0.0)

    def drop_due(self) -> None:
        """Let the one go that gives way first."""
        _, those = min(self._first(), key=lambda found: found[0])
        those.popitem(last=False)[0].drop()

    def drop_oldest(self) -> bool:
        """Let one go that has said nothing, else the oldest; whether there was any."""
        those = self._silent or self._speaking
        if not those:
            return False
        those.popitem(last=False)[0].drop()
        return True

    def _first(self) -> list[tuple[float, OrderedDict[Stranger, None]]]:
        """When the oldest of both kinds give way."""
        kinds = ((self._silent, self._silent_for), (self._speaking, self._speaking_for))
        return [(next(iter(those)).since + patience, those) for those, patience in kinds if those]
