"""Failures that clients are not told of yet, because the group in which they happened may be tried again as a whole.

A future that was told of a failure is resolved for good, so who asks for the result of a task in a group with retries
left must wait until the group is over, or was tried again. Only groups that are closed are waited for: while one is
open nobody knows when it ends, and a script may wait for a task in the middle of it. Rule: what is kept back is told
in the turn in which there is no more hope.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bough.core.groups import GroupRecord
from bough.core.records import FAILED, NOTRUN, Record
from bough.core.state import State
from bough.model.outcomes import Cause
from bough.wire.messages import Running, Unsuccess

_BAD = bytes((FAILED, NOTRUN))


class _Kept(msgspec.Struct):
    """What is kept back because of one group, and how often that had been tried then."""

    group: GroupRecord
    tried: int
    messages: list[Unsuccess]


class Patience:
    """See the module. It is asked between turns."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._kept: dict[int, _Kept] = {}  # by group

    def told(self, message: Unsuccess) -> Iterator[Running | Unsuccess]:
        """What is to be said now of elements that did not succeed."""
        record = self._state.records.get(message.record)
        groups: list[GroupRecord] = []
        if record is not None and message.failure.cause is not Cause.CANCELLED:
            groups += self._that_may_try_again(record, message.failure.source)
        if record is None or not groups:
            yield message
            return
        hope = next((group for group in groups if self._has_hope(group)), None)
        left = record.runs(_BAD, message.start, message.stop)
        if hope is not None or left != [[message.start, message.stop]]:  # what is not bad any more is tried again
            yield Running(message.record, message.start, message.stop, 0)
        for start, stop in left:
            part = msgspec.structs.replace(message, start=start, stop=stop)
            if hope is None:
                yield part
            else:
                kept = self._kept.setdefault(hope.id, _Kept(hope, hope.tried, []))
                kept.messages.append(part)

    def news(self) -> Iterator[Running | Unsuccess]:
        """What is to be said now of what was kept back."""
        for number, kept in list(self._kept.items()):
            if kept.group.tried != kept.tried or not self._has_hope(kept.group):
                del self._kept[number]
                for message in kept.messages:
                    yield from self.told(message)

    def __bool__(self) -> bool:
        """Whether anything is kept back."""
        return bool(self._kept)

    def _that_may_try_again(self, record: Record, source: int) -> Iterator[GroupRecord]:
        """Groups with retries around a task, or around the one that is to blame for it; inner ones first."""
        for one in (record, self._state.records.get(source)):
            if one is not None:
                yield from (group for group in one.group.chain() if group.retries)

    def _has_hope(self, group: GroupRecord) -> bool:
        known = self._state.groups.get(group.id) is group and not self._state.stopping
        return known and group.closed and not group.settled and group.tried < group.retries
