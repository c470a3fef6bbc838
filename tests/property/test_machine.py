"""Random histories of the machine: hostile policies, stale and duplicate answers, conservation laws, replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import structs

from bough.core import retirement
from bough.core.data.remakes import MOST_REMAKES
from bough.core.invariants import check, picture
from bough.core.machine import Machine
from bough.core.queries.facade import Queries
from bough.core.records.task_bound import TaskBound
from bough.model.events import arriving, facts, news
from bough.model.events.facts import decode_facts, encode_facts
from bough.model.events.orders import LookUpMemo, Refuse, SendSpan
from bough.model.ids import BlobId, ExecutorId, RecordId
from bough.model.monitoring.monitors import Finish, Restart
from bough.model.monitoring.observations import Fired, Observation, Points, Trouble
from bough.model.monitoring.population_rules import PopulationRule
from bough.model.outcomes import Cause, Detail, Failure, Output
from bough.model.sites.availability import RuleKind, SiteRule
from bough.model.sites.queue_specs import QueueSpec
from bough.model.sites.requirements import Attributes
from bough.model.sites.site_specs import PilotId, SiteSpec
from bough.model.states import TaskState
from bough.model.tasks import NO_EXTRAS, Dep, Kind, On, TaskExtras
from bough.policies.placement.fifo import Fifo
from bough.policies.placement.sjf import ShortestFirst
from bough.policies.policy_registry import find_population_policy, load_provisioning, load_replication
from bough.policy.interface import (
    AskAgain,
    AskFor,
    EndMember,
    EndOthers,
    Place,
    Policies,
    PopulationPolicy,
    PopulationView,
    ProvisioningPolicy,
    ProvisioningView,
    ProvisioningWish,
    ReadyWork,
    Refrain,
    Release,
    Replicate,
    ReplicationPolicy,
    ReplicationView,
    View,
)
from bough.testing.builders import array, executor, group, limits, needs, submit, task
from tests.unit.core.core_bench import check_waits


class Hostile:
    """Wishes for anything: unknown records and executors, what is busy, what does not fit, some of it twice."""

    def rank(self, work: ReadyWork, /) -> float:
        return float(work.id % 3)

    def place(self, view: View, /) -> Iterable[Place]:
        dice = view.random
        seen = []
        ready = view.ready()
        for work in ready:
            seen.append(work.id)
            if dice.random() < 0.3:
                ready.skip(work.needs)
            if dice.random() < 0.2:  # another walk in the middle of this one
                seen += [other.id for other, _ in zip(view.ready(), range(dice.randrange(9)), strict=False)]
            executors = view.executors()
            if executors and dice.random() < 0.8:
                yield Place(work.id, dice.choice(executors).id, dice.choice([0, 1, 3, 10**6, -5]))
            yield Place(dice.randrange(1, 40), dice.randrange(0, 9))
        for id_ in seen:
            yield Place(id_, dice.randrange(0, 9))


class Raising(Hostile):
    """As hostile, and breaks down in the middle of it."""

    def rank(self, work: ReadyWork, /) -> float:
        if work.id % 5 == 0:
            raise ZeroDivisionError
        return 0.0

    def place(self, view: View, /) -> Iterable[Place]:
        for count, wish in enumerate(super().place(view)):
            if count > 2:
                raise RuntimeError("this policy is broken")
            yield wish


class HostileRule:
    """Wishes for the end of anything, and breaks down now and then."""

    def decide(self, view: PopulationView, /) -> Iterable[EndMember | EndOthers]:
        dice = view.random
        for checkpoint in range(len(view.rule.checkpoints)):
            assert view.awaited(checkpoint) >= 0
            assert view.reached(checkpoint) == len(view.ranking(checkpoint))
            assert list(view.averages(checkpoint)) == sorted(view.averages(checkpoint))
            for _, member in view.ranking(checkpoint):
                assert len(view.scores(member)) > checkpoint
                if dice.random() < 0.2:
                    yield EndMember(*member, "hostile")
        yield EndMember(dice.randrange(40), dice.choice([-1, 0, 3, 10**9]))
        if dice.random() < 0.1:
            yield EndOthers()
        if dice.random() < 0.1:
            raise RuntimeError("this rule is broken")


class HostileProvisioning:
    """Wishes for pilots without end, and for their end, also where there are none, and breaks down now and then."""

    def provision(self, view: ProvisioningView, /) -> Iterable[ProvisioningWish]:
        wanted = sum(demand.ready for demand in view.demand())
        assert all(demand.expected >= 0 for demand in view.demand())
        assert all(one.tasks > 0 and one.after >= 0 for one in view.coming())
        assert all(left >= 0 for left in view.remaining())
        yield AskFor("nowhere", 3)
        yield Refrain("nowhere", "x")
        yield from (AskAgain(view.now + 1), AskAgain(-1e9), AskAgain(float("nan")), AskAgain(float("inf")))
        yield from (Release(0), Release(-1), Release(10**9, "\ud800\0"))
        for number in range(1, 9):
            if (wanted + number) % 3 == 0:
                yield Release(number, "hostile \ud800")
        for site in view.sites():
            assert site.starting <= site.pilots
            assert 0 <= site.room <= max(0, site.max_pilots - site.pilots)
            assert [pilot.idle_since for pilot in site.idle()] == sorted(p.idle_since for p in site.idle())
            assert all(site.allocation_size(pilot.allocation) for pilot in site.waiting())
            yield Refrain(site.name, "\ud800")
            yield AskFor(site.name, 2, "because \ud800")
            if wanted % 7 == 6:
                raise RuntimeError("this policy is broken")
            yield AskFor(site.name, 10**9)
            yield AskFor(site.name, -3)
            if wanted % 5 == 4:
                yield "no wish at all"  # type: ignore[misc]
                yield AskFor(site.name, "many")  # type: ignore[arg-type]


class HostileReplication:
    """Wishes for replicas of anything anywhere, more than it may, and breaks down now and then."""

    cap, age = 2, 0.0

    def replicate(self, view: ReplicationView, /) -> Iterable[Replicate | AskAgain]:
        dice = view.random
        yield Replicate(dice.randrange(40), dice.choice([-1, 0, 3, 10**9]), dice.randrange(9), "hostile \ud800")
        yield from (AskAgain(view.now + 1), AskAgain(-1e9), AskAgain(float("nan")), AskAgain(float("inf")))
        for work in view.running():
            assert work.replicas < self.cap
            assert 0 <= work.since <= view.now
            for place in view.executors():
                assert place.free("cores") > 0
                assert view.affinity(work, place) >= 0
                if dice.random() < 0.5:
                    yield Replicate(work.id, work.index, place.id, "why \0 not")
            found = view.executor_for(work)
            assert found is None or view.may_run(work, found)
            if dice.random() < 0.1:
                raise RuntimeError("this policy is broken")
        if dice.random() < 0.1:
            yield "no wish at all"  # type: ignore[misc]


REPLICATION = [
    "none",
    "hostile",
    "hostile",
    "wqr",
    "wqr:cap=3,age=1s",
    "tail:age=0.5s",
    "storage-affinity",
    "careful-tail:age=0s",
]
PROVISIONING = [
    *("hostile", "hostile", "adaptive", "static", "available", "all-at-once", "one-at-a-time:release=queue,q=3"),
    *("additive:release=grouped,idle=2", "exponential:release=queue"),
]


def find_provisioning(name: str) -> ProvisioningPolicy:
    return HostileProvisioning() if name == "hostile" else load_provisioning(name)


def find_replication(name: str) -> ReplicationPolicy | None:
    return HostileReplication() if name == "hostile" else load_replication(name)


def find_rule(name: str) -> PopulationPolicy | None:
    return HostileRule() if name == "hostile" else find_population_policy(name)


RULES = [
    None,
    *(
        PopulationRule(name, "score", (0.0, 2.0), cancel=cancel)
        for name in ("hostile", "halving", "median", "first-answer", "unheard of")
        for cancel in (False, True)
    ),
]
POLICIES = {"fifo": Fifo, "sjf": ShortestFirst, "hostile": Hostile, "raising": Raising}
GROWTH = st.sampled_from([{}, {}, {"memory": 100, "memory_growth": 2, "timeout": 5, "timeout_growth": 3}])
SHAPES = [
    *(needs(), needs(2), needs(0.5), needs(1, memory=500), needs(1, gpus=1), needs(9), needs(1, python="3.12")),
    *(needs(1, sites=("alpha", "local")), needs(1, requires="rack == 7"), needs(2, requires="cores > 2 or rack")),
    *(needs(1, queue="q1"), needs(2, queue="q1"), needs(1, queue="q2")),
]
ATTRIBUTES = st.sampled_from([(), (("rack", 3.0),), (("cpu", ("avx2",)), ("rack", 7.0))])
QUEUES = st.sampled_from(["q1", "q2"])
QUEUE_SPECS = st.builds(
    QueueSpec,
    max_time=st.sampled_from([0.0, 0.0, 3.0]),
    min_cores=st.sampled_from([0.0, 0.0, 1.0, 2.0, 50.0]),
    max_cores=st.sampled_from([0.0, 2.0, 3.0]),
    sites=st.sampled_from([(), (), ("a",), ("b", "elsewhere")]),
    share=st.sampled_from([0.5, 1.0, 10.0]),
)
SITES = st.sampled_from(["a", "b"])
PYTHONS = st.sampled_from(["", "3.11", "3.12"])


TERMS = [
    NO_EXTRAS,
    NO_EXTRAS,
    TaskExtras(release=True),
    TaskExtras(final=True),
    TaskExtras(same_host_as=1),
    TaskExtras(host="host1"),
    TaskExtras(host="x"),
    TaskExtras(watch=BlobId(b"plan of a task")),
]
PLANS = [BlobId(b"plan 1"), BlobId(b"plan 2"), BlobId(b"plan of a task")]


DEEDS = [
    news.Cancel,
    news.Kill,
    news.Hold,
    partial(news.Hold, disabled=True),
    news.Release,
    partial(news.Release, enabled=True),
    news.Retry,
    news.Reset,
    partial(news.Reset, cascade=True),
    news.DeclareDone,
    partial(news.AddMonitors, plan=PLANS[0]),
    partial(news.AddMonitors, plan=PLANS[1]),
    partial(news.EndEarly, verdict=Finish(), monitor="test"),
    partial(news.EndEarly, verdict=Restart(2), monitor="test", reason="again"),
]


def made_by(index: int, *, later: bool) -> Detail:
    """What is known of a command that left a file."""
    return Detail(index, outputs=(Output("o", "/d/o", 3, 1, b"d" * 32, later=later),))


KEEP = st.sampled_from([True, True, False, "later", "later"])
MOST = 1 << 62
NUMBERS = st.one_of(st.integers(0, 12), st.sampled_from([MOST, MOST - 1, 10**9, 2**32]))
_SECONDS = st.lists(st.sampled_from([0.0, 1e-9, 1e15, 3.0]), max_size=4)
HOSTILE: dict[str, Callable[[st.DataObject, int, int, int], arriving.News]] = {
    "ended": lambda data, span, start, stop: news.WorkSucceeded(
        span, start, stop, data.draw(st.sampled_from([0.0, 1e15])), None, (made_by(data.draw(NUMBERS), later=True),)
    ),
    "ended together": lambda data, span, start, _: news.CallsEnded(
        span, start, data.draw(_SECONDS), data.draw(st.lists(st.just(b"r"), max_size=4))
    ),
    "failed": lambda data, span, start, stop: news.WorkFailed(
        span, start, Failure(data.draw(st.sampled_from(list(Cause))), "hostile"), Detail(stop, started=1e15, ended=1e15)
    ),
    "started": lambda _, span, start, stop: news.WorkStarted(span, start, stop),
    "returned": lambda _, span, start, stop: news.WorkReturned(span, start, stop),
    "locked": lambda _, span, start, stop: news.TakeLock("a", span, start),
    "observed": lambda data, span, start, stop: news.WorkObserved(span, start, data.draw(OBSERVED)),
    "heard": lambda _, span, start, stop: news.TaskAlive(span),
}


_AT = st.sampled_from([0.0, 1.5, 1e15])
_VALUE = st.sampled_from([-1e300, 0.0, 2.5, 1e300])
SCORES = st.lists(_VALUE, max_size=3).map(tuple)
_NAME = st.sampled_from(["", "score", "loss", "m" * 200])
OBSERVED = st.lists(
    st.one_of(
        st.builds(Fired, _AT, _NAME, action=st.sampled_from(["finish", "tag", "emit", "x"]), name=_NAME),
        st.builds(Points, _NAME, st.lists(st.tuples(_VALUE, _AT, _VALUE), max_size=512).map(tuple), st.just(300)),
        st.builds(Trouble, _AT, _NAME, st.just("it broke")),
    ),
    max_size=4,
)


KINDS = st.sampled_from([Kind.FUNCTION, Kind.FUNCTION, Kind.COMMAND])


_MAY_FOLLOW = facts.Placed | facts.Replicated | facts.RetryDue | facts.ExecutorResumed


class Histories(RuleBasedStateMachine):
    """Anything that clients, executors and people may say, in any order."""

    @initialize(
        policy=st.sampled_from(sorted(POLICIES)),
        pilots=st.sampled_from(PROVISIONING),
        most=st.sampled_from([0, 0, 2]),
        tasks=st.sampled_from([0, 0, 4]),
        memos=st.booleans(),
        fail_fast=st.booleans(),
        replicas=st.sampled_from(REPLICATION),
    )
    def open(
        self, policy: str, pilots: str, most: int, tasks: int, memos: bool, fail_fast: bool, replicas: str
    ) -> None:
        def policies() -> Policies:
            return Policies(
                POLICIES[policy](),
                population=find_rule,
                provisioning=find_provisioning(pilots),
                max_pilots=most,
                replication=find_replication(replicas),
                max_tasks=tasks,
                provisioning_named=lambda name: None if name == "gone" else find_provisioning(name),
            )

        self.policies = policies()
        self.machine = Machine(policies(), accounts=True)
        self.twin = Machine(policies(), accounts=True)
        self.now = 1.0  # as of any clock: at 0 nothing was
        self.next_id = 1
        self.next_group = 1
        self.next_executor = 1
        self.next_run = 2
        self.sent: list[SendSpan] = []
        self.recalls: list[LookUpMemo] = []
        self.journal: list[tuple[int, float, list[facts.Fact]]] = []
        self.retired: dict[int, tuple[bytes, dict[str, dict[int, object]]]] = {}  # by run: what was kept, and seen
        self.turn(facts.RunOpened(1, "test", "h", 1, fail_fast and policy == "fifo", policy, memos))
        self.turn(facts.QueueDefined("q1", QueueSpec(max_cores=3.0)))

    def bounds(self) -> list[TaskBound]:
        state = self.machine.state
        return [bound for bound in (state.task_bound, *(site.bound for site in state.sites.values())) if bound]

    def turn(self, *news: facts.Fact) -> list[facts.Fact]:
        held = {queue.name: queue.cores for queue in self.machine.state.named_queues.records.values()}
        bounds = {id(bound): bound.out for bound in self.bounds()}
        turn = self.machine.turn(self.now, news)
        for bound in self.bounds():
            assert not bound.most or bound.out <= max(bound.most, bounds.get(id(bound), bound.out)), str(bound)
        for queue in self.machine.state.named_queues.defined():
            most = queue.spec.max_cores
            lawful = not most or queue.cores <= max(most, held.get(queue.name, 0.0)) + 1e-6
            assert lawful, f"queue {queue.name} holds {queue.cores} cores of at most {most}"
        for order in turn.orders:
            if isinstance(order, SendSpan) and order.spec.needs.queue:
                named = self.machine.state.named_queues[order.spec.needs.queue]
                assert not named.spec.max_time or 0 < order.spec.limits.timeout <= named.spec.max_time
                assert named.admits(self.machine.state.executors[order.executor].site)
        self.refused = [o.message for o in turn.orders if isinstance(o, Refuse)]
        for order in turn.orders:
            if isinstance(order, SendSpan):
                self.sent += order.singly()
            elif isinstance(order, LookUpMemo):
                self.recalls.append(order)
        self.check_pilots(turn.facts)
        if turn.facts:
            self.journal.append((turn.number, self.now, turn.facts))
            self.twin.replay(turn.number, self.now, decode_facts(encode_facts(turn.facts)))
        return turn.facts

    def check_pilots(self, written: list[facts.Fact]) -> None:
        """What provisioning policies may not do, whatever they wish."""
        state = self.machine.state
        for fact in written:
            if isinstance(fact, facts.PilotAsked):
                site = state.defined_sites[fact.site]
                assert site.spec is not None
                assert site.places <= site.spec.max_pilots
                assert len(site.pilots) <= 2 * site.places, "more than a pilot and its successor share a place"
                before = site.pilots.get(fact.succeeds)
                assert bool(before) == bool(fact.succeeds)
                assert before is None or (site.spec.resubmit and not before.released)
                assert not site.away
                assert self.now >= site.rests_until
                places = sum(one.places for one in state.defined_sites.values())
                assert not self.policies.max_pilots or places <= self.policies.max_pilots
            elif isinstance(fact, facts.PilotReleased) and fact.pilot in state.pilots:
                left = state.pilots[fact.pilot].executors.values()
                assert all(executor.draining and not executor.spans for executor in left)

    @rule(seconds=st.sampled_from([0.0, 0.001, 1.0, 50.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.turn()

    @rule(
        cores=st.sampled_from([1, 2, 4]),
        rich=st.booleans(),
        python=PYTHONS,
        site=SITES,
        pilot=st.integers(0, 4),
        attributes=ATTRIBUTES,
        stays=st.sampled_from([0.0, 0.0, 2.0, 100.0]),
    )
    def an_executor_joins(
        self, cores: int, rich: bool, python: str, site: str, pilot: int, attributes: Attributes, stays: float
    ) -> None:
        extra = {"memory": 1000, "gpus": 1} if rich else {}
        more = {"pilot": pilot, "attributes": attributes, "until": self.now + stays if pilot and stays else 0.0}
        self.turn(executor(self.next_executor, cores, python=python, site=site, **more, **extra))
        self.next_executor += 1

    @rule(members=st.integers(0, 6), big=st.booleans(), python=PYTHONS)
    def a_relay_joins(self, members: int, big: bool, python: str) -> None:
        """One that shares out work among executors of one or two cores."""
        each = needs(2, memory=600) if big else needs(1)
        joined = executor(self.next_executor, members * each.cores, python=python, memory=members * each.memory)
        self.turn(structs.replace(joined, members=members, each=each))
        self.next_executor += 1

    @rule(data=st.data(), members=st.integers(0, 6))
    def executors_come_and_go_behind_a_relay(self, data: st.DataObject, members: int) -> None:
        id_ = data.draw(st.integers(1, self.next_executor))
        each = data.draw(st.sampled_from([needs(1), needs(2, memory=600)]))
        has = needs(members * each.cores, memory=members * each.memory)
        self.turn(facts.ExecutorResized(id_, has, members, each))

    @rule(data=st.data(), stays=st.sampled_from([0.0, 1.0, 100.0]))
    def an_executor_comes_back(self, data: st.DataObject, stays: float) -> None:
        """One that was lost, or is there anyway; perhaps it knows by now when it will leave."""
        id_ = data.draw(st.integers(1, self.next_executor))
        self.turn(executor(id_, 2, until=self.now + stays if stays else 0.0))
        self.next_executor = max(self.next_executor, id_ + 1)

    @rule(data=st.data(), seconds=st.sampled_from([1.0, 20.0]))
    def an_executor_is_suspended(self, data: st.DataObject, seconds: float) -> None:
        self.turn(facts.ExecutorSuspended(data.draw(st.integers(1, self.next_executor)), self.now + seconds))

    @rule(site=SITES, grace=st.sampled_from([0.0, 1.0, 60.0]), by_hand=st.booleans())
    def a_site_leaves(self, site: str, grace: float, by_hand: bool) -> None:
        """Its executors are told, and nothing new goes there."""
        self.turn(facts.SiteLeft(site, "its owner needs it", grace, by_hand))
        assert self.machine.state.sites[site].away

    @rule(site=SITES)
    def a_site_returns(self, site: str) -> None:
        self.turn(facts.SiteReturned(site))
        assert not Queries(self.machine).is_away(site)

    @precondition(lambda self: self.next_id > 1)
    @rule(data=st.data(), index=st.integers(0, 5))
    def a_checkpoint_is_kept(self, data: st.DataObject, index: int) -> None:
        self.turn(facts.CheckpointKept(data.draw(st.integers(1, self.next_id)), index, b"d" * 32))

    @rule(queue=QUEUES, spec=QUEUE_SPECS)
    def a_queue_is_defined(self, queue: str, spec: QueueSpec) -> None:
        self.turn(facts.QueueDefined(queue, spec))

    @rule(queue=QUEUES)
    def a_queue_is_removed(self, queue: str) -> None:
        self.turn(facts.QueueRemoved(queue))

    @rule(
        site=SITES,
        pilots=st.integers(1, 3),
        cores=st.sampled_from([0.0, 2.0]),
        least=st.integers(0, 4),
        budget=st.sampled_from([0.0, 0.0, 1e-3, 1.0]),
        resubmit=st.booleans(),
        policy=st.sampled_from(["", "", "", "hostile", "adaptive", "gone"]),
        most=st.sampled_from([0, 0, 1, 3]),
        parts=st.sampled_from([1, 1, 2]),
    )
    def a_site_is_defined(
        self,
        site: str,
        pilots: int,
        cores: float,
        least: int,
        budget: float,
        resubmit: bool,
        policy: str,
        most: int,
        parts: int,
    ) -> None:
        spec = SiteSpec(
            ssh="h",
            max_pilots=pilots,
            cores_per_pilot=cores,
            min_pilots=least,
            budget=budget,
            idle=2.0,
            provisioning=policy,
            max_tasks=most,
            executors_per_host=parts,
            resubmit=resubmit,
        )
        self.turn(facts.SiteDefined(site, spec))

    @rule(site=SITES, pilots=st.integers(0, 3))
    def a_site_says_what_is_free(self, site: str, pilots: int) -> None:
        self.turn(facts.SiteHadRoom(site, pilots))

    @rule(site=SITES)
    def a_site_is_removed(self, site: str) -> None:
        self.turn(facts.SiteRemoved(site))

    @rule(pilot=st.integers(1, 6), queued=st.booleans(), failed=st.booleans())
    def a_pilot_is_heard_of(self, pilot: int, queued: bool, failed: bool) -> None:
        number = PilotId(pilot)
        self.turn(facts.PilotQueued(number, "7") if queued else facts.PilotEnded(number, "x", failed))

    @rule(site=SITES, kind=st.sampled_from(list(RuleKind)))
    def a_site_gets_a_rule(self, site: str, kind: RuleKind) -> None:
        self.turn(facts.SiteRuleSet(site, SiteRule(kind, "x", 3.0)))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def what_runs_is_given_back(self, data: st.DataObject) -> None:
        """It costs no retry and no loss."""
        order = self.sent[-data.draw(st.integers(1, min(len(self.sent), 8)))]
        index = data.draw(st.integers(order.start, order.stop - 1))
        record = self.machine.state.records.get(order.spec.id)
        before = record.failures_of(index) if record is not None else None
        failure = Failure(Cause.GIVEN_BACK, "given back: site b left")
        written = self.turn(news.WorkFailed(order.span, index, failure))
        if any(isinstance(fact, facts.ElementFailed) for fact in written):
            assert self.machine.state.records[order.spec.id].failures_of(index) == before

    @rule(fail_fast=st.booleans())
    def a_workflow_begins(self, fail_fast: bool) -> None:
        self.turn(facts.RunOpened(self.next_run, f"w{self.next_run % 2}", "h", 1, fail_fast, group=self.next_group))
        self.next_run += 1
        self.next_group += 1

    @rule(data=st.data(), removed=st.booleans())
    def a_workflow_ends(self, data: st.DataObject, removed: bool) -> None:
        """It is removed only if it is over."""
        run = data.draw(st.integers(2, self.next_run))
        self.turn(facts.RunRemoved(run) if removed else facts.RunClosed(run))

    def end_a_workflow(self, run: int) -> None:
        """Bring one to its end, by whatever it takes."""
        workflow = self.machine.state.workflows[run]
        self.turn(news.Cancel(Dep(On.GROUP, workflow.group.id)))
        for number, index, holder, attempt, _ in self.machine.state.unsaved.all():
            self.turn(news.OutputsWritten(ExecutorId(holder), ((RecordId(number), index, attempt),)))
        inside = [one for one in self.machine.state.groups.values() if one.workflow is workflow]
        self.turn(*(news.GroupClosed(one.id) for one in reversed(inside)), facts.RunClosed(run))

    def seen_of(self, run: int) -> dict[str, dict[int, object]]:
        """What there is to see of a workflow."""
        state = self.machine.state
        seen = picture(state)
        return {
            "records": {
                id_: one for id_, one in seen["records"].items() if state.records[id_].group.workflow.run == run
            },
            "groups": {id_: one for id_, one in seen["groups"].items() if state.groups[id_].workflow.run == run},
            "workflows": {run: seen["workflows"][run]},
        }

    @precondition(lambda self: any(run > 1 for run in self.machine.state.workflows))
    @rule(data=st.data())
    def a_workflow_is_retired(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from([run for run in self.machine.state.workflows if run > 1]))
        self.end_a_workflow(run)
        kept = b""
        if retirement.may_retire(self.machine.state, run):
            kept = retirement.pack(list(retirement.pieces(self.machine.state, run)))
            self.retired[run] = kept, self.seen_of(run)
        self.turn(facts.RunRetired(run))
        assert (run in self.machine.state.workflows) != bool(kept)

    @precondition(lambda self: self.retired)
    @rule(data=st.data(), removed=st.booleans())
    def a_retired_workflow_comes_back_as_it_was_or_is_removed(self, data: st.DataObject, removed: bool) -> None:
        run = data.draw(st.sampled_from(sorted(self.retired)))
        kept, seen = self.retired.pop(run)
        if removed:
            before = picture(self.machine.state)["records"]
            self.turn(facts.RunRemoved(run))
            assert picture(self.machine.state)["records"].keys() == before.keys()
            return
        looked_at = retirement.aside(self.machine.state, kept)
        assert {one.id for one in looked_at.records.values()} == seen["records"].keys()
        self.turn(facts.RunRevived(run, kept))
        assert self.seen_of(run) == seen

    @rule(data=st.data())
    def an_executor_is_lost(self, data: st.DataObject) -> None:
        id_ = data.draw(st.integers(1, self.next_executor))
        self.turn(facts.ExecutorLost(id_, "gone"))

    @rule(data=st.data())
    def an_executor_drains(self, data: st.DataObject) -> None:
        self.turn(facts.ExecutorDrained(data.draw(st.integers(1, self.next_executor))))

    @rule(data=st.data(), host=st.sampled_from(["", "h1"]))
    def a_person_takes_a_task(self, data: st.DataObject, host: str) -> None:
        groups = data.draw(st.lists(st.sampled_from([*sorted(self.machine.state.groups), 10**6]), max_size=3))
        number, self.next_executor = self.next_executor, self.next_executor + 1
        self.turn(news.TakeTask(1, number, f"ann@{host}", host, tuple(groups)))
        taken = self.machine.state.executors.get(number)
        if taken is None:
            return
        (span,) = taken.spans.values()
        assert taken.draining
        assert span.record.spec.kind is Kind.COMMAND
        assert {above.id for above in span.record.group.chain()} & set(groups)
        self.sent.append(SendSpan(number, span.id, span.record.spec, span.start, span.stop, span.attempt))

    def deps(self, data: st.DataObject) -> list[Dep]:
        known = sorted(self.machine.state.records)
        groups = [g for g in self.machine.state.groups if g]
        found = []
        for _ in range(data.draw(st.integers(0, 2))):
            kind = data.draw(st.sampled_from(["task", "array", "group"]))
            if kind == "group" and groups:
                found.append(Dep(data.draw(st.sampled_from([On.GROUP, On.END])), data.draw(st.sampled_from(groups))))
            elif known:
                record = self.machine.state.records[data.draw(st.sampled_from(known))]
                if kind == "array" or record.length == 0:
                    found.append(Dep(On.ARRAY, record.id))
                else:
                    found.append(Dep(On.TASK, record.id, data.draw(st.integers(0, record.length - 1))))
        return found

    @rule(data=st.data(), count=st.integers(1, 3), shape=st.sampled_from(SHAPES), retries=st.integers(0, 2))
    def tasks_are_submitted(self, data: st.DataObject, count: int, shape: object, retries: int) -> None:
        items = []
        for _ in range(count):
            where = data.draw(st.sampled_from(sorted(self.machine.state.groups)))
            patience = data.draw(st.sampled_from([0.0, 0.0, 10.0]))
            backoff = data.draw(st.sampled_from([0.0, 5.0]))
            twice = data.draw(st.sampled_from([None, None, True, False]))
            more = {"resend_after": patience, "idempotent": twice, "keep": data.draw(KEEP), **data.draw(GROWTH)}
            rules = limits(retries=retries, backoff=backoff, losses=3, **more)
            key = data.draw(st.sampled_from([b"", b"k" * 16]))
            word = data.draw(st.sampled_from(["", "x"]))  # tasks of one template soon have a known run time
            after = self.deps(data)
            if word and data.draw(st.booleans()) and self.next_id - 1 in self.machine.state.records:
                after = [Dep(On.TASK, self.next_id - 1)]
            own = data.draw(st.sampled_from(TERMS))
            if own.same_host_as and after and after[0].on is On.TASK:
                own = TaskExtras(same_host_as=after[0].id)
            fields = {"group": where, "needs": shape, "limits": rules, "key": key, "template": word, "extras": own}
            items.append(
                structs.replace(
                    task(self.next_id, *after, **fields), kind=data.draw(KINDS), atomic_outputs=data.draw(st.booleans())
                )
            )
            self.next_id += 1
        written = self.turn(submit(*items, request=1))
        assert bool(self.refused) != any(isinstance(fact, facts.Submitted) for fact in written)

    @rule(data=st.data(), length=st.integers(0, 30), shape=st.sampled_from(SHAPES))
    def an_array_is_submitted(self, data: st.DataObject, length: int, shape: object) -> None:
        where = data.draw(st.sampled_from(sorted(self.machine.state.groups)))
        own = ()
        if length > 2 and data.draw(st.booleans()):
            own = ((1, tuple(self.deps(data))), (length - 1, tuple(self.deps(data))))
        rules = limits(retries=data.draw(st.integers(0, 2)), losses=3, keep=data.draw(KEEP), **data.draw(GROWTH))
        spec = array(self.next_id, length, *self.deps(data), group=where, needs=shape, limits=rules, element_after=own)
        self.next_id += 1
        own_names = data.draw(st.booleans())
        self.turn(submit(structs.replace(spec, kind=data.draw(KINDS), atomic_outputs=own_names), request=1))

    @rule(data=st.data())
    def a_group_is_made(self, data: st.DataObject) -> None:
        parent = data.draw(st.sampled_from(sorted(self.machine.state.groups)))
        spec = group(self.next_group, f"g{self.next_group}", parent, *self.deps(data))
        limit, retries = data.draw(st.sampled_from([0, 0, 1, 2])), data.draw(st.sampled_from([0, 0, 1]))
        timeout = data.draw(st.sampled_from([0.0, 0.0, 0.0, 40.0]))
        watch = data.draw(st.sampled_from([BlobId(b""), BlobId(b""), BlobId(b"plan of a group")]))
        spec = structs.replace(spec, limit=limit, retries=retries, timeout=timeout, watch=watch)
        self.turn(submit(spec, request=1))
        self.next_group += 1

    @rule(data=st.data())
    def a_group_is_closed(self, data: st.DataObject) -> None:
        self.turn(news.GroupClosed(data.draw(st.integers(1, self.next_group))))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), good=st.booleans(), whole=st.booleans())
    def an_executor_answers(self, data: st.DataObject, good: bool, whole: bool) -> None:
        """From every span ever sent: many answers are stale or repeated."""
        order = self.sent[-data.draw(st.integers(1, min(len(self.sent), 12)))]
        start, stop = order.start, order.stop
        if not whole:
            start = data.draw(st.integers(start, stop - 1))
            stop = data.draw(st.integers(start + 1, stop))
        if good:
            later = data.draw(st.sampled_from([False, True, True]))
            details = tuple([made_by(index, later=later) for index in range(start, stop)])
            said: arriving.News = news.WorkSucceeded(order.span, start, stop, 0.01 * (stop - start), None, details)
        else:
            cause = data.draw(st.sampled_from([Cause.EXIT, Cause.LOST, Cause.MEMORY, Cause.TIMEOUT, Cause.INPUT_LOST]))
            site = data.draw(st.booleans())
            restarts = data.draw(st.sampled_from([0, 0, 2]))
            said = news.WorkFailed(order.span, start, Failure(cause, "it broke", site=site, restarts=restarts))
        self.turn(said)
        again = self.turn(said)  # the same once more is dropped; the policy may still use its chance
        assert all(isinstance(fact, _MAY_FOLLOW) for fact in again)

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), index=st.integers(0, 3))
    def what_a_task_made_is_lost(self, data: st.DataObject, index: int) -> None:
        """A reader asks for it in vain, or nobody does; what was not done, or is not there, is of no interest."""
        order = self.sent[-data.draw(st.integers(1, min(len(self.sent), 12)))]
        before = self.machine.state.records.get(order.spec.id)
        was_done = before is not None and index < before.length and before.state_of(index) == TaskState.DONE
        written = self.turn(news.OutputLost(order.spec.id, index, "its output x was lost with host h"))
        again = [fact for fact in written if isinstance(fact, facts.MadeAgain)]
        assert not again or was_done
        remake = self.machine.state.remakes.find(order.spec.id, index)
        assert remake is None or remake.count <= MOST_REMAKES

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), attempt=st.sampled_from([0, 0, 0, 1]), other=st.sampled_from([0, 0, 0, 1]))
    def an_executor_has_written_back(self, data: st.DataObject, attempt: int, other: int) -> None:
        """All that some tasks made; of another attempt, or from another executor, it is of no interest."""
        orders = self.sent[-data.draw(st.integers(1, min(len(self.sent), 12))) :]
        order = orders[0]
        told = [(one.spec.id, i, one.attempt + attempt) for one in orders for i in range(one.start, one.stop)]
        unsaved = self.machine.state.unsaved
        awaited = {(r, i) for r, i, n in told if unsaved.is_with(order.executor + other, r, i, n)}
        written = self.turn(news.OutputsWritten(ExecutorId(order.executor + other), tuple(told)))
        safe = [fact for fact in written if isinstance(fact, facts.OutputsSafe)]
        assert {(fact.record, index) for fact in safe for index in range(fact.start, fact.stop)} == awaited
        assert not any(unsaved.has(*one) for one in awaited)

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), started=st.booleans())
    def an_executor_says_started_or_gives_back(self, data: st.DataObject, started: bool) -> None:
        order = self.sent[-data.draw(st.integers(1, min(len(self.sent), 12)))]
        kind = news.WorkStarted if started else news.WorkReturned
        self.turn(kind(order.span, order.start, order.stop))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), observations=OBSERVED)
    def something_is_seen_of_a_task(self, data: st.DataObject, observations: list[Observation]) -> None:
        """It is a fact if the task is with that executor, and nothing follows from it."""
        order = self.sent[-data.draw(st.integers(1, min(len(self.sent), 12)))]
        index = data.draw(st.integers(order.start, order.stop - 1))
        span = self.machine.state.spans.get(order.span)
        counts = span is not None and span.has(index) and bool(observations)
        self.turn(news.WorkObserved(order.span, index, observations))
        written = [fact for fact in self.journal[-1][2] if isinstance(fact, facts.Observed)] if counts else []
        assert [fact.observations for fact in written] == [observations] * counts

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), name=st.sampled_from(["a", "b"]), free=st.booleans())
    def a_task_takes_or_frees_a_lock(self, data: st.DataObject, name: str, free: bool) -> None:
        """Any task that was ever handed out: only one that is with its executor gets it, and only from nobody."""
        order = self.sent[-data.draw(st.integers(1, min(len(self.sent), 12)))]
        index = data.draw(st.integers(order.start, order.stop - 1))
        before = self.machine.state.locks.get(name)
        kind = news.FreeLock if free else news.TakeLock
        self.turn(kind(name, order.span, index))
        after = self.machine.state.locks.get(name)
        if before is not None and (before.span, before.index) != (order.span, index):
            assert after == before
        elif free:
            assert after is None

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), released=st.booleans())
    def a_task_releases_its_group_or_gives_a_sign_of_life(self, data: st.DataObject, released: bool) -> None:
        order = self.sent[-data.draw(st.integers(1, min(len(self.sent), 12)))]
        self.turn(facts.GroupReleased(order.spec.group) if released else news.TaskAlive(order.span))

    @rule(data=st.data(), kind=st.sampled_from(list(HOSTILE)))
    def an_executor_says_what_no_executor_says(self, data: st.DataObject, kind: str) -> None:
        """Any span, any elements, lists that do not belong together: only what is with that span may change."""
        spans = st.one_of(st.sampled_from([order.span for order in self.sent[-8:]] or [1]), NUMBERS)
        span, start, stop = data.draw(spans), data.draw(NUMBERS), data.draw(NUMBERS)
        said = HOSTILE[kind](data, span, start, stop)
        low, high = span, span + 1
        if isinstance(said, news.CallsEnded):
            low, high = span + start, span + start + min(len(said.seconds), len(said.results))
        held = self.machine.state.spans
        touched = {
            (held[n].record.id, i) for n in held if low <= n < high for lo, hi in held[n].left for i in range(lo, hi)
        }
        late = self.machine.state.attempts.late
        touched |= {
            (g.record.id, i) for n, g in late.items() if low <= n < high for lo, hi in g.left for i in range(lo, hi)
        }
        written = self.turn(said)
        for fact in written:
            if isinstance(fact, facts.SpanEnded | facts.SpanReturned | facts.SpanStarted):
                assert {(fact.record, index) for index in range(fact.start, fact.stop)} <= touched
            elif isinstance(fact, facts.ElementFailed) and fact.failure.message == "hostile":
                assert (fact.record, fact.index) in touched

    @precondition(lambda self: self.recalls)
    @rule(data=st.data(), found=st.booleans())
    def a_memo_is_looked_up(self, data: st.DataObject, found: bool) -> None:
        order = self.recalls[-data.draw(st.integers(1, min(len(self.recalls), 8)))]
        self.turn(facts.MemoLookedUp(order.record, order.start, order.stop, found, 1, 0, 1, 1))

    @precondition(lambda self: self.recalls)
    @rule(data=st.data(), seen=st.lists(st.tuples(st.integers(0, 12), OBSERVED), max_size=4))
    def a_memo_of_watched_tasks_is_found(self, data: st.DataObject, seen: list[tuple[int, list[Observation]]]) -> None:
        order = self.recalls[-data.draw(st.integers(1, min(len(self.recalls), 8)))]
        found = facts.MemoLookedUp(order.record, order.start, order.stop, True, 10**6, 0, 1, 1)
        told = [facts.Observed(0, order.record, index, 1, observations) for index, observations in seen]
        self.turn(arriving.Recalled(found, told))

    @precondition(lambda self: self.next_id > 1)
    @rule(
        data=st.data(),
        deed=st.sampled_from(DEEDS),
        on=st.sampled_from(list(On)),
    )
    def somebody_acts(self, data: st.DataObject, deed: Callable[..., facts.Fact], on: On) -> None:
        id_ = data.draw(st.integers(0, self.next_id if on < On.GROUP else self.next_group))
        record = self.machine.state.records.get(id_)
        index = data.draw(st.integers(0, max(record.length - 1, 0))) if record and on is On.TASK else 0
        stop = data.draw(st.sampled_from([0, index + 3])) if on is On.TASK else 0
        act = deed(Dep(on, id_, index), stop=stop)
        touched = Queries(self.machine).preview(act).count
        written = self.turn(act)
        if isinstance(act, news.Reset | news.DeclareDone):
            kind = facts.WasReset if isinstance(act, news.Reset) else facts.SpanEnded
            assert any(isinstance(fact, kind) for fact in written) == bool(touched)

    @precondition(lambda self: self.next_id > 1)
    @rule(data=st.data(), priority=st.integers(-2, 2))
    def a_priority_changes(self, data: st.DataObject, priority: int) -> None:
        self.turn(news.Prioritise(Dep(On.ARRAY, data.draw(st.integers(1, self.next_id))), priority))

    @precondition(lambda self: self.next_id > 1)
    @rule(data=st.data(), own=st.sampled_from(RULES), on=st.sampled_from([On.ARRAY, On.ARRAY, On.GROUP, On.TASK]))
    def a_population_has_a_rule(self, data: st.DataObject, own: PopulationRule | None, on: On) -> None:
        id_ = data.draw(st.integers(0, self.next_id if on < On.GROUP else self.next_group))
        self.turn(news.SetRule(Dep(on, id_), own))

    @rule(data=st.data(), own=st.sampled_from(RULES), by_rule=st.booleans())
    def a_population_with_reused_tasks_has_a_rule(
        self, data: st.DataObject, own: PopulationRule | None, by_rule: bool
    ) -> None:
        action = news.SetRule(Dep(On.ARRAY, data.draw(st.integers(0, self.next_id))), own)
        members = [
            facts.RecalledMember(action.target.id, index, 1, data.draw(SCORES), by_rule)
            for index in data.draw(st.lists(st.integers(0, 12), max_size=4))
        ]
        if own is not None:
            begins = data.draw(st.booleans())
            answers = data.draw(st.integers(0, 3))
            self.turn(facts.MembersRecalled(action.target, own, tuple(members), answers, begins))
        if data.draw(st.booleans()):
            self.turn(action)

    @rule(data=st.data())
    def the_journal_has_lost_facts(self, data: st.DataObject) -> None:
        """What is left of it makes a lawful state, with which a server goes on; nothing of it raises."""
        dice = data.draw(st.randoms(use_true_random=False))
        share = data.draw(st.sampled_from([0.0, 0.05, 0.3]))
        healed = Machine(self.policies, accounts=True)
        healed.replay(*self.journal[0])
        for number, now, written in self.journal[1:]:
            left = [fact for fact in written if dice.random() >= share]
            healed.replay_what_fits(number, now, left)
            check(healed.state)
        if not share:
            assert picture(healed.state) == picture(self.twin.state)
        newest = self.next_executor + 1
        for event in (executor(newest, 4, memory=1000, gpus=1), facts.ExecutorLost(newest, "gone"), facts.Stopping()):
            healed.turn(self.now + 100, [event])
            check(healed.state)

    @invariant()
    def the_laws_hold(self) -> None:
        if hasattr(self, "machine"):
            check(self.machine.state)
            check_waits(self.machine)

    @invariant()
    def a_replay_gives_the_same_state(self) -> None:
        if hasattr(self, "machine"):
            self.twin.state.now = self.machine.state.now
            twin, own = picture(self.twin.state), picture(self.machine.state)
            assert twin == own, {part: (twin[part], own[part]) for part in own if twin[part] != own[part]}

    @invariant()
    def a_snapshot_gives_the_same_state(self) -> None:
        if hasattr(self, "machine"):
            again = Machine.restore(self.machine.snapshot(), self.policies, accounts=True)
            again.state.turn = self.machine.state.turn
            check(again.state)
            theirs, own = picture(again.state), picture(self.machine.state)
            assert theirs == own, {part: (theirs[part], own[part]) for part in own if theirs[part] != own[part]}

    @rule()
    def the_server_restarts_from_a_snapshot(self) -> None:
        policies = self.machine.state.policies
        self.machine = Machine.restore(self.machine.snapshot(), policies, accounts=True)
        self.twin = Machine.restore(self.twin.snapshot(), policies, accounts=True)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
