"""Executors as the core knows them: what they have, what is free, and the spans they hold.

A span in front holds resources; one in the backlog waits on the executor behind others, so that an
executor with short tasks never idles for a round trip. Rule: what is free and what spans in front
hold add up to the capacity, always.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from bough.core.ranges import Ranges
from bough.core.timing import BACKLOG, MAX_BACKLOG, SHORT, TRUST
from bough.model.facts import ExecutorJoined
from bough.model.ids import Seconds, SpanId
from bough.model.resources import Needs

if TYPE_CHECKING:
    from bough.core.records import Record


class Span(msgspec.Struct, eq=False, gc=False):
    """A slice of a record that an executor has."""

    id: SpanId
    record: Record
    start: int
    stop: int
    attempt: int
    executor: ExecutorRecord
    left: Ranges  # elements of which nothing final was heard
    front: bool  # holds resources; otherwise it waits behind others
    load: Seconds  # expected seconds of work when it was placed


class ExecutorRecord:
    """An executor; a policy sees it as a `Room`."""

    __slots__ = (
        "_others",
        "backlog",
        "backlog_limit",
        "backlog_tasks",
        "capacity",
        "cores_free",
        "draining",
        "host",
        "id",
        "load",
        "pid",
        "site",
        "spans",
        "until",
    )

    def __init__(self, joined: ExecutorJoined) -> None:
        capacity = joined.capacity
        self.id = joined.executor
        self.site = joined.site
        self.host = joined.host
        self.pid = joined.pid
        self.capacity = capacity
        self.until = joined.until
        self.cores_free = capacity.cores
        self._others = {name: amount for name, amount in capacity.amounts().items() if name != "cores"}
        self.spans: dict[int, Span] = {}
        self.backlog: OrderedDict[int, Span] = OrderedDict()  # plain dicts slow down when emptied from the front
        self.backlog_limit = BACKLOG * capacity.cores
        self.backlog_tasks = 0
        self.load: Seconds = 0.0  # expected seconds of work in the backlog
        self.draining = False

    def free(self, resource: str) -> float:
        """How much of a resource is free now."""
        return self.cores_free if resource == "cores" else self._others.get(resource, 0)

    def fits(self, work: Record) -> bool:
        """Whether a task of this work could start now."""
        if work.cores > self.cores_free:
            return False
        return work.plain or all(amount <= self._others.get(name, 0) for name, amount in _others(work.needs))

    def could_fit(self, needs: Needs) -> bool:
        """Whether a task with these needs could start if nothing else ran."""
        has = self.capacity.amounts()
        return all(amount <= has.get(name, 0) for name, amount in needs.amounts().items())

    def takes_backlog(self, work: Record) -> bool:
        """Whether a short task may wait here although the cores are busy."""
        return (
            0 < work.runtime.mean <= SHORT
            and self.load < self.backlog_limit
            and self.backlog_tasks < TRUST * work.runtime.seen
            and len(self.backlog) < MAX_BACKLOG
            and (work.cores <= self.capacity.cores if work.plain else self.could_fit(work.needs))
        )

    def has_room(self) -> bool:
        """Whether it may take anything at all."""
        if self.cores_free > 0 or (self.load < self.backlog_limit and len(self.backlog) < MAX_BACKLOG):
            return not self.draining
        return False

    def add(self, span: Span) -> None:
        """Take a span, in front or into the backlog."""
        self.spans[span.id] = span
        if span.front:
            self._occupy(span.record, -1)
        else:
            count = span.stop - span.start
            span.load = span.load or span.record.runtime.mean * count  # a restored one keeps the load it had
            self.backlog[span.id] = span
            self.backlog_tasks += count
            self.load += span.load

    def drop(self, span: Span) -> None:
        """Let go of a span; what waits in the backlog moves up, as it does on the executor itself."""
        del self.spans[span.id]
        if not span.front:
            self._leave_backlog(span)
            return
        backlog, leaving = self.backlog, span.record
        if backlog and leaving.plain:
            _, first = backlog.popitem(last=False)
            following = first.record
            if following.plain and following.cores == leaving.cores:  # one takes the place of the other
                self.load -= first.load
                self.backlog_tasks -= first.stop - first.start
                first.front = True
                return
            backlog[first.id] = first
            backlog.move_to_end(first.id, last=False)
        self._occupy(leaving, 1)
        while backlog:
            first = next(iter(backlog.values()))
            if not self.fits(first.record):
                return
            self._leave_backlog(first)
            self._occupy(first.record, -1)
            first.front = True

    def _leave_backlog(self, span: Span) -> None:
        del self.backlog[span.id]
        self.backlog_tasks -= span.stop - span.start
        self.load -= span.load

    def _occupy(self, work: Record, sign: int) -> None:
        self.cores_free += sign * work.cores
        if not work.plain:
            for name, amount in _others(work.needs):
                self._others[name] = self._others.get(name, 0) + sign * amount


def _others(needs: Needs) -> tuple[tuple[str, float], ...]:
    """The amounts besides cores."""
    return (("memory", needs.memory), ("gpus", needs.gpus), *needs.named)
