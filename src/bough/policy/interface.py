"""What a policy may look at, what it may wish for, and the shape of each family.

The core asks a policy after every turn in which something became ready or an executor got room. It carries out each
lawful wish as soon as the policy yields it, and the view shows the world after it, so a policy keeps no books.
Rule: a policy has no clock, no dice of its own and no I/O, and cannot tell the live system from a simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Protocol

import msgspec

from bough.model.ids import Seconds
from bough.model.resources import Needs


class Place(msgspec.Struct, frozen=True, gc=False):
    """A wish: give the next ready tasks of a record to an executor.

    `count` bounds how many; 0 leaves it to the core, which goes by measured run times, and may send short loose tasks
    of the same template along that are next in the queue.
    """

    record: int
    executor: int
    count: int = 0


class ReadyWork(Protocol):
    """A ready task, or an array with ready tasks."""

    @property
    def id(self) -> int:
        """Its record's number: the order of submission."""

    @property
    def ready(self) -> int:
        """How many tasks of it could be placed now."""

    @property
    def needs(self) -> Needs:
        """What one task of it occupies."""

    @property
    def priority(self) -> int:
        """Higher goes first, before any rank."""

    @property
    def expected(self) -> Seconds:
        """Expected run time of one task: measured, or the user's estimate, or 0 when unknown."""

    @property
    def attributes(self) -> Mapping[str, str]:
        """What the user said of it and of the groups around it, as the user's own keys; made when it is asked for."""


class ExecutorView(Protocol):
    """An executor that may take something."""

    @property
    def id(self) -> int:
        """Its number."""

    @property
    def site(self) -> str:
        """Its site."""

    @property
    def host(self) -> str:
        """Its host."""

    def free(self, resource: str) -> float:
        """How much of a resource is free now."""

    def could_fit(self, needs: Needs) -> bool:
        """Whether a task with these needs could start there if nothing else ran."""


class Offer(msgspec.Struct, frozen=True, gc=False):
    """The answer to where a task of some work could go now.

    `fits_now`: it would start there at once; otherwise it would wait there for a short time behind others.
    `barred`: there is no executor, and not because of its needs alone: an executor that has room may not take this work
    (its group's limit is reached, it must run on another host, it would end too late, it failed there). Other work
    with the same needs may be luckier.
    """

    work: ReadyWork
    executor: ExecutorView | None
    fits_now: bool = False
    barred: bool = False


class Demand(Protocol):
    """All that is ready and has the same needs."""

    @property
    def needs(self) -> Needs:
        """What one task of it occupies."""

    @property
    def ready(self) -> int:
        """How many tasks."""


class ReadyScan(Protocol):
    """One walk through what is ready. Two walks at once do not disturb each other."""

    def __iter__(self) -> Iterator[ReadyWork]:
        """By priority, then rank, then order of submission; lazily. Iterating again continues where it stands."""

    def skip(self, needs: Needs) -> None:
        """Leave out work with these needs from here on."""

    def skip_like(self, offer: Offer) -> None:
        """Leave out from here on what would get the same answer: no executor."""


class View(Protocol):
    """The world at one instant, read-only. Nothing is copied: every member is a lookup or a lazy iterator.

    Answers depend on the world alone: not on what was asked before, how often, or in which order.
    """

    @property
    def now(self) -> Seconds:
        """The time."""

    @property
    def random(self) -> Random:
        """The only dice, seeded by the driver."""

    def ready(self) -> ReadyScan:
        """What is ready, best first, from the beginning."""

    def executor_for(self, work: ReadyWork, excluding: frozenset[int] | set[int] = frozenset()) -> Offer:
        """The executor that has been open the longest among those that would take a task of this work."""

    def executors(self) -> list[ExecutorView]:
        """Every executor that may take something."""

    def most_free(self, needs: Needs) -> ExecutorView | None:
        """The executor with the most free cores, among those that could ever fit these needs."""

    def demand(self) -> Iterator[Demand]:
        """How many tasks are ready, by needs; in no order."""


class PlacementPolicy(Protocol):
    """Which ready task goes to which executor."""

    def rank(self, work: ReadyWork, /) -> float:
        """Where work that becomes ready stands in the queue: lower first; equal ranks by order of submission."""

    def place(self, view: View, /) -> Iterable[Place]:
        """Yield wishes, best first. No wish means: wait for the next event."""


class Policies(msgspec.Struct, frozen=True):
    """The policies of a run, one a family: what is passed to a machine.

    A new family adds four things: its protocol and its wishes in this module, a field here whose default does what
    the core did before, the place in the core that asks it, and a table in `policies/policy_registry`. So nothing
    that makes a `Policies` changes when a family is added.
    """

    placement: PlacementPolicy
