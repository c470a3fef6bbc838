"""What a policy may look at, what it may wish for, and the shape of each family.

The core asks a policy after every turn in which something became ready or an executor got room. It carries out each
lawful wish as soon as the policy yields it, and the view shows the world after it, so a policy keeps no books.
A rule about a population names a policy too, which is asked when a member of it reaches a checkpoint or ends.
Rule: a policy has no clock, no dice of its own and no I/O, and cannot tell the live system from a simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple, Protocol

import msgspec

from bough.model.ids import Seconds
from bough.model.population_rules import PopulationRule
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

    @property
    def expected(self) -> Seconds:
        """The mean expected run time of one of them, 0: unknown. It is estimated from some of them."""


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


# --- populations -------------------------------------------------------------------------------------------


class Member(NamedTuple):
    """A task of a population: its record, and which of its elements."""

    record: int
    element: int


class EndMember(msgspec.Struct, frozen=True, gc=False):
    """A wish: end a member. One that waits is cancelled, one that runs is ended as the rule says."""

    record: int
    index: int
    reason: str = ""


class EndOthers(msgspec.Struct, frozen=True, gc=False):
    """A wish: end all members that have not ended."""

    reason: str = ""


class PopulationView(Protocol):
    """A population at the instant at which a member has reached a checkpoint, or has ended.

    Scores are made so that lower is better, also where the rule maximises. The score of a member at a checkpoint is the
    first value that it reported at that step or after it. Checkpoints are counted from 0.
    """

    @property
    def rule(self) -> PopulationRule:
        """What the user said."""

    @property
    def random(self) -> Random:
        """The only dice, seeded by the driver."""

    @property
    def member(self) -> Member:
        """Who is the occasion; of several that ended at once the first."""

    @property
    def checkpoint(self) -> int:
        """The checkpoint that it has reached; -1: it has ended."""

    @property
    def answers(self) -> int:
        """Members that succeeded and were not ended by this rule."""

    def reached(self, checkpoint: int) -> int:
        """How many members have reached a checkpoint, also those that have ended since."""

    def awaited(self, checkpoint: int) -> int:
        """How many members run and have not reached a checkpoint."""

    def ranking(self, checkpoint: int) -> Sequence[tuple[float, Member]]:
        """The scores at a checkpoint, best first, also of members that have ended since."""

    def scores(self, member: Member) -> Sequence[float]:
        """The scores of a member at the checkpoints that it has reached."""

    def averages(self, checkpoint: int) -> Sequence[float]:
        """Of members that succeeded by themselves: the means of their scores up to a checkpoint, lowest first."""

    def has_ended(self, member: Member) -> bool:
        """Whether a member has ended, or is about to because of this rule."""


class PopulationPolicy(Protocol):
    """Which members of a population need not go on. It keeps no books: all there is to know is in the view."""

    def decide(self, view: PopulationView, /) -> Iterable[EndMember | EndOthers]:
        """Yield wishes; none means: wait for the next checkpoint or end."""


def no_population(name: str) -> PopulationPolicy | None:
    """There are no rules about populations."""
    return None


# --- pilots ------------------------------------------------------------------------------------------------


class AskFor(msgspec.Struct, frozen=True, gc=False):
    """A wish: so many pilots more at a site, asked for together: one allocation."""

    site: str
    count: int = 1
    reason: str = ""  # for people: why


class Release(msgspec.Struct, frozen=True, gc=False):
    """A wish: do without a pilot. One that waits is withdrawn; one that runs is ended if it has nothing to do."""

    pilot: int
    reason: str = ""


class Refrain(msgspec.Struct, frozen=True, gc=False):
    """No wish, but why there is none for a site: for people who wonder."""

    site: str
    reason: str


class AskAgain(msgspec.Struct, frozen=True, gc=False):
    """A wish: be asked again at a time, even if nothing happens until then."""

    when: Seconds


ProvisioningWish = AskFor | Release | Refrain | AskAgain


class PilotView(Protocol):
    """A pilot that has not ended and is wanted."""

    @property
    def id(self) -> int:
        """Its number."""

    @property
    def allocation(self) -> int:
        """The number of the first of those that were asked for together."""

    @property
    def asked(self) -> Seconds:
        """When it was asked for."""

    @property
    def idle_since(self) -> Seconds:
        """Since when it has had nothing to do; only of those that are idle."""


class PilotSite(Protocol):
    """A site at which pilots may be asked for, unless it has no room for them."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def min_pilots(self) -> int:
        """How many are kept at the least; the core sees to it."""

    @property
    def max_pilots(self) -> int:
        """How many there may be at once."""

    @property
    def pilots(self) -> int:
        """How many there are, those that are starting included, and those that leave."""

    @property
    def starting(self) -> int:
        """How many of them have not brought an executor yet, and are wanted."""

    @property
    def room(self) -> int:
        """How many more may be asked for now: within the bounds of the site and of all, while it may be used."""

    @property
    def available(self) -> int | None:
        """How many could start at once, as the site says; None: it does not say."""

    @property
    def cores(self) -> float:
        """What a pilot brings; 0 while that is not known."""

    @property
    def live_cores(self) -> float:
        """What its pilots have brought and is there."""

    @property
    def wait(self) -> Seconds | None:
        """How long a pilot takes to bring an executor, by the last ones; None: not known."""

    @property
    def idle_limit(self) -> Seconds:
        """An executor that is idle for so long leaves by itself; 0: never."""

    def could_fit(self, needs: Needs) -> bool:
        """Whether a task with these needs could run there; while nothing is known: perhaps."""

    def idle(self) -> Sequence[PilotView]:
        """The pilots that have nothing to do, the longest first."""

    def waiting(self) -> Iterator[PilotView]:
        """The pilots that are starting, the oldest first."""

    def allocation_size(self, allocation: int) -> int:
        """How many pilots of an allocation have not ended."""


class Coming(NamedTuple):
    """Tasks that wait for nothing but what runs now, or is ready."""

    needs: Needs
    tasks: int
    expected: Seconds  # run time of one of them, 0: unknown
    after: Seconds  # from now, about when they become ready; 0: unknown


class ProvisioningView(Protocol):
    """What is ready and has no place, what follows, and the sites that have a definition and are not away."""

    @property
    def now(self) -> Seconds:
        """The time."""

    @property
    def cores(self) -> float:
        """Of all executors that are there, whoever started them."""

    @property
    def unfinished(self) -> int:
        """Tasks that have not ended."""

    @property
    def demanded(self) -> Seconds:
        """When something was ready last, as far as the policy was asked; now, if something is."""

    def sites(self) -> Sequence[PilotSite]:
        """In the order in which they were defined."""

    def demand(self) -> Iterator[Demand]:
        """How many tasks are ready, by needs; in no order."""

    def remaining(self) -> Sequence[Seconds]:
        """About how long some of what executors have will still run, those of unknown length left out."""

    def coming(self) -> Sequence[Coming]:
        """What becomes ready next, as far as that is seen by looking at some of what runs."""


class ProvisioningPolicy(Protocol):
    """How many pilots are asked for and let go, and where. It keeps no books: all there is to know is in the view."""

    def provision(self, view: ProvisioningView, /) -> Iterable[ProvisioningWish]:
        """Yield wishes; none means: wait for the next event."""


class NoPilots:
    """Nothing is asked for, whatever is ready."""

    def provision(self, view: ProvisioningView, /) -> Iterable[ProvisioningWish]:
        """No wish."""
        return ()


def no_provisioning(name: str) -> None:
    """No provisioning policy is known by a name."""


class Policies(msgspec.Struct, frozen=True):
    """The policies of a run, one a family: what is passed to a machine.

    A new family adds four things: its protocol and its wishes in this module, a field here whose default does what
    the core did before, the place in the core that asks it, and a table in `policies/policy_registry`. So nothing
    that makes a `Policies` changes when a family is added.
    """

    placement: PlacementPolicy
    population: Callable[[str], PopulationPolicy | None] = no_population  # by the name that a rule gives; None: unknown
    provisioning: ProvisioningPolicy = NoPilots()
    max_pilots: int = 0  # of all sites together; 0: no bound
    max_tasks: int = 0  # that executors have at once, at all sites together; 0: no bound
    # that of a site which names one; None: there is no such one
    provisioning_named: Callable[[str], ProvisioningPolicy | None] = no_provisioning
