"""What a policy may look at, what it may wish for, and the shape of each family.

The core asks a policy after every turn in which something became ready or an executor got room. It carries out each
lawful wish as soon as the policy yields it, and the view shows the world after it, so a policy keeps no books.
A rule about a population names a policy too, which is asked when a member of it reaches a checkpoint or ends.
Rule: a policy has no clock, no dice of its own and no I/O, and cannot tell the live system from a simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from bough.model.ids import Seconds
from bough.model.monitoring.population_rules import PopulationRule
from bough.model.sites.resources import Needs


class Place(msgspec.Struct, frozen=True, gc=False):
    """A wish: give the next ready tasks of a record to an executor.

    `count` bounds how many; 0 leaves it to the core, which goes by measured run times, and may send short loose tasks
    of the same template along that are next in the queue. `start` names the element of an array to begin with, which
    must be ready; below 0: the next one.
    """

    record: int
    executor: int
    count: int = 0
    start: int = -1


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
    def urgent(self) -> int:
        """Above 0 as long as something of it comes first because it was given back; then it stands elsewhere."""

    @property
    def workflow(self) -> int:
        """The number of the run that it belongs to."""

    @property
    def expected(self) -> Seconds:
        """Expected run time of one task: measured, or the user's estimate, or 0 when unknown."""

    @property
    def has_inputs(self) -> bool:
        """Whether its tasks declare files that they read."""

    @property
    def dependents_count(self) -> int:
        """How many tasks, arrays or groups wait for it directly."""

    @property
    def path_below(self) -> Seconds:
        """The expected run time of one task of it and of the longest chain of dependents, as far as some of them tell.

        Work of unknown length counts as one second.
        """

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

    @property
    def until(self) -> Seconds:
        """When it leaves; 0: it stays."""

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


class DataNeeds(msgspec.Struct, frozen=True):
    """What a placement policy that looks at data wants the core to keep for it: its attribute `data_needs`."""

    by: Literal["bytes", "files"] = "bytes"  # how much of its input is at a place
    place: Literal["host", "site"] = "host"  # where data is: with a host, or with any host of a site
    frozen: bool = False  # count what was there when the newest workflow that reads it first did, not what came since
    per_file: int = 0  # bytes that each file counts beside its own: what starting a transfer costs
    window: int = 0  # only so many ready tasks are looked at, those that became ready first; 0: all
    patience: Seconds = 0.0  # who is overtaken by a task that became ready so much later is owed a turn; 0: nobody
    estimates: bool = False  # it asks for run times: how they follow from the size of the input is measured
    arrivals: bool = True  # it may ask when executors come for work next: False spares the core to follow that


class DataTask(Protocol):
    """A ready task that declares inputs: a loose one, or an element of an array."""

    @property
    def work(self) -> ReadyWork:
        """What it is of."""

    @property
    def element(self) -> int:
        """Which element of it."""

    @property
    def since(self) -> Seconds:
        """When it became ready."""


class DataMatch(msgspec.Struct, frozen=True, gc=False):
    """A ready task, and how much of its input is at a place: in bytes, or in files if the policy counts files."""

    task: DataTask
    here: float
    total: float  # of what is known


class HolderView(NamedTuple):
    """A place that holds input of a task."""

    place: str  # the host, or the site
    amount: float
    ready_at: Seconds  # when an executor there that could ever run it may ask for work next; infinite: none could


class PlanNotes:
    """What a policy remembers of a workflow from one time that it is asked to the next.

    The core keeps it for the policy, forgets it with the workflow, and does not journal it: after a restart of the
    server it is empty.
    """

    __slots__ = ("assigned", "compared", "measured", "served")

    def __init__(self) -> None:
        # by record, element and which of those that have the same: the executor that a task was planned for, and for
        # how many seconds
        self.assigned: dict[tuple[int, int, int], tuple[int, Seconds]] = {}
        self.compared: dict[tuple[int, int], Seconds] = {}  # by record and element: when it was compared first
        # by record, element and executor: run time, and seconds a byte, as they were known when they were asked first
        self.measured: dict[tuple[int, int, int], tuple[Seconds, Seconds]] = {}
        self.served = ""  # the site that had its turn last


class DataView(Protocol):
    """Where the inputs of ready tasks are, as far as caches told. Every member costs what it returns.

    It is there when a policy has `data_needs` and some ready task has declared inputs.
    """

    @property
    def is_known(self) -> bool:
        """Whether any host holds anything at all."""

    def openings(self, *, for_most: bool = False) -> Iterator[ExecutorView]:
        """Executors that may take something and are where some ready task has data.

        `for_most`: without those where, as was found before, other places have more of all that has data there.
        """

    def best_here(self, executor: ExecutorView, accept: Callable[[DataMatch], bool] | None = None) -> DataMatch | None:
        """The task that has the most of its input where an executor is, among some that could go there now.

        Only those count that are accepted, if somebody says which.
        """

    def most_here(self, executor: ExecutorView, accept: Callable[[DataMatch], bool] | None = None) -> DataMatch | None:
        """As `best_here`, of the tasks of whose input no other place has more."""

    def some_here(self, executor: ExecutorView, most: int, *, unchecked: bool = False) -> list[DataMatch]:
        """Some tasks that have input where an executor is and could go there now; the biggest contents first.

        `unchecked`: whether they could is not looked at; who chooses one asks `could_go`.
        """

    def place_name(self, executor: ExecutorView) -> str:
        """The name of the place where an executor is, as holders are named; empty: it has none yet."""

    def rate_to(self, executor: ExecutorView) -> float:
        """Bytes a second that travelled to the host of an executor, as measured; 0: nothing did yet."""

    def candidates(self, most: int) -> list[DataTask]:
        """The first ready tasks, with and without inputs, by priority, then in order of submission.

        One of an array without inputs has the element -1: the next one.
        """

    def expected_on(self, task: DataTask, executor: ExecutorView) -> Seconds:
        """The run time of a task of its template where an executor is, or anywhere; 0: unknown.

        A simulator may tell the truth, or what was true when the run began.
        """

    def free_in(self, most: int) -> list[tuple[Seconds, ExecutorView]]:
        """Executors with room (0), and those that may have it next: seconds until then, as far as the past tells."""

    @property
    def has_unheld(self) -> bool:
        """Whether there may be a task whose input nobody holds."""

    def unheld(self, executor: ExecutorView, accept: Callable[[DataTask], bool] | None = None) -> DataTask | None:
        """The task that became ready first and could go to an executor, of those whose input nobody holds.

        Only those count that are accepted, if somebody says which.
        """

    @property
    def owed(self) -> int:
        """How many turns those that became ready first are owed, see `DataNeeds.patience`."""

    @property
    def is_contested(self) -> bool:
        """Whether several workflows have something ready, or some work had a priority."""

    def first_of(self, work: ReadyWork) -> DataTask | None:
        """The task of some work that is next in order; None: it is not listed yet, or has no inputs."""

    def waiting(self) -> Iterator[DataTask]:
        """Ready tasks with declared inputs, in the order they became ready; lazily."""

    def match(self, task: DataTask, executor: ExecutorView) -> DataMatch:
        """How much of the input of a task is where an executor is."""

    def holders(self, task: DataTask) -> list[HolderView]:
        """Where input of a task is; of a content that very many hold only some are named."""

    def most_held(self, task: DataTask) -> float:
        """The most of a task's input that any place holds."""

    def best_taker(
        self, task: DataTask, most: int, accept: Callable[[ExecutorView], bool] | None = None
    ) -> ExecutorView | None:
        """Of the first executors with room that would take a task: the one with most of its input, or else the first.

        Only those count that are accepted, if somebody says which.
        """

    def has_room(self, executor: ExecutorView) -> bool:
        """Whether an executor may take something."""

    def cost_elsewhere(self, task: DataTask, executor: ExecutorView, rate: float, latest: Seconds) -> float:
        """What it costs to leave a task to the best place elsewhere that holds some of its input; infinite: none does.

        That is the seconds until an executor there may ask for work, which must not be after `latest`, and `rate` times
        what is not there. Of the executors that had something before, those count that `next_arrivals` named last.
        """

    def where_most_is(self, task: DataTask) -> ExecutorView | None:
        """An executor that would take a task now, where most of its input is of all places that could ever run it.

        If none of those that hold some could, it is any executor.
        """

    def could_go(self, task: DataTask, executor: ExecutorView) -> bool:
        """Whether a task could be placed with an executor now."""

    def missing(self, task: DataTask, executor: ExecutorView) -> tuple[int, Seconds]:
        """Bytes of a task's input that are not where an executor is, and how long they would travel there.

        The time is 0 while no transfer was measured. It is that from the origin, or from a peer if one has it.
        """

    def next_arrivals(self, most: int) -> list[tuple[Seconds, ExecutorView]]:
        """The executors that may ask for work next, and when, soonest first; by the mean time between their turns."""

    def expected_output(self, task: DataTask) -> int:
        """Bytes of outputs that a task of its template leaves, by the mean of those that ended; 0: unknown."""

    def return_time(self, task: DataTask, executor: ExecutorView) -> Seconds:
        """How long the expected output of a task would travel home from where an executor is; 0: unknown."""

    def true_run_time(self, task: DataTask, executor: ExecutorView) -> Seconds | None:
        """How long a task will run where an executor is, which only a simulator knows; None: nobody does."""

    def notes(self, task: DataTask) -> PlanNotes:
        """What the policy remembers of a task's workflow."""


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

    @property
    def data(self) -> DataView | None:
        """Where the inputs of ready tasks are; None: the policy has no `data_needs`, or no ready task has any."""

    @property
    def has_room(self) -> bool:
        """Whether any executor may take something."""

    @property
    def estimates(self) -> DataView | None:
        """As `data`, also if no ready task declares inputs; None: the policy has no `data_needs`."""

    def busy_share(self) -> float:
        """The part of all cores that is not free, from 0 to 1."""

    def ask_again(self, when: Seconds) -> None:
        """Ask the policy again at a time, whatever happens until then: it holds something back."""

    def keep_for(self, work: ReadyWork) -> None:
        """Show the executor with the most free cores that could fit some work as full until the policy was heard."""


class PlacementPolicy(Protocol):
    """Which ready task goes to which executor.

    Attributes that one may have: `data_needs` (see `DataNeeds`), `uses_caches` (False: executors fetch every input
    anew), `uses_backlogs` (False: none gets a task before a core is free), and `own_replication`, the replication
    policy that it comes with, such as "wqr:cap=2"; a run that names another one, or "none", has that. `rank_ageing`:
    for each second later that a task became ready its rank is higher by so much, so that none starves while others come
    that have a lower rank.
    """

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


# --- replicas ----------------------------------------------------------------------------------------------

MOST_REPLICAS: Final = 100  # of one task: the highest cap, which stands for none


class Replicate(msgspec.Struct, frozen=True, gc=False):
    """A wish: have an executor run a task, too, that another one is running."""

    record: int
    index: int
    executor: int
    reason: str = ""  # for people: why


class RunningWork(Protocol):
    """A task that runs, and that may run a second time at the same time."""

    @property
    def id(self) -> int:
        """The number of its record."""

    @property
    def index(self) -> int:
        """Which element of it."""

    @property
    def since(self) -> Seconds:
        """When its oldest attempt that runs was said to have begun."""

    @property
    def replicas(self) -> int:
        """How many replicas were made of it since then, whatever became of them."""

    @property
    def needs(self) -> Needs:
        """What it occupies."""

    @property
    def expected(self) -> Seconds:
        """Expected run time: measured, or the user's estimate, or 0 when unknown."""

    @property
    def measured(self) -> int:
        """How many tasks of its template have been measured."""


class ReplicationView(Protocol):
    """What runs, when executors have room and nothing that is ready could go there."""

    @property
    def now(self) -> Seconds:
        """The time."""

    @property
    def random(self) -> Random:
        """The only dice, seeded by the driver."""

    def running(self) -> Iterator[RunningWork]:
        """What may be replicated by the cap and the age: the least replicated first, of these the oldest; lazily."""

    def executors(self) -> Sequence[ExecutorView]:
        """Those that have room, the longest open first."""

    def may_run(self, work: RunningWork, executor: ExecutorView) -> bool:
        """Whether a replica could start there now: it fits, and no attempt of the task is there or has failed there."""

    def executor_for(self, work: RunningWork) -> ExecutorView | None:
        """The executor that has been open the longest among those that could run it."""

    def affinity(self, work: RunningWork, executor: ExecutorView) -> int:
        """Bytes of its inputs that the executor's site holds; 0 where nothing is known."""


class ReplicationPolicy(Protocol):
    """Which running tasks get another attempt beside them. It keeps no books: all there is to know is in the view.

    The core keeps the two bounds, whatever is wished for. Attributes that one may have: `uses_caches`, as a placement
    policy may, and `is_unasked` (True: it serves users who did not choose to have replicas, so the core is more
    careful: see `core.scheduling.replication`).
    """

    @property
    def cap(self) -> int:
        """How many replicas are made of a task at the most, its first attempt not counted."""

    @property
    def age(self) -> Seconds:
        """How long a task must have been running."""

    def replicate(self, view: ReplicationView, /) -> Iterable[Replicate | AskAgain]:
        """Yield wishes, best first; none means: wait for the next event."""


def is_unasked(policy: ReplicationPolicy | None) -> bool:
    """Whether a policy replicates for users who did not ask for it."""
    return bool(getattr(policy, "is_unasked", False))


# --- caches ------------------------------------------------------------------------------------------------


class CachedContent(Protocol):
    """A content in the cache of a host."""

    @property
    def size(self) -> int:
        """Its bytes."""

    @property
    def inserted(self) -> Seconds:
        """When it came."""

    @property
    def used(self) -> Seconds:
        """When a task of this host, or another host, got it last; when it came, if none did."""

    @property
    def uses(self) -> int:
        """How often that was."""

    @property
    def wanted(self) -> int:
        """How many tasks want it that are known and have not begun."""


class EvictionPolicy(Protocol):
    """Which content a full cache gives up. Executors ask it: what a running or placed task needs is never asked about.

    It is no part of `Policies`: the core does not know what a cache gives up before it has.
    """

    def rank(self, content: CachedContent, random: Random, /) -> tuple[float, ...]:
        """The content of the lowest rank goes first, until there is room. `random`: the only dice."""


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
    replication: ReplicationPolicy | None = None  # None: no task runs twice at the same time
    # how long an element of a record will run on a host, if a simulator knows
    foresight: Callable[[int, int, str], Seconds] | None = None
