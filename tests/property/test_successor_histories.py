"""Random lives of pilots that have successors: whatever happens, places are counted, and a restart knows the pairs."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bough.core.invariants import check, picture
from bough.core.machine import Machine
from bough.model.events import facts, news
from bough.model.events.facts import Fact, decode_facts, encode_facts
from bough.model.events.orders import SendSpan
from bough.model.sites.site_specs import PilotId, PilotState, SiteSpec
from bough.policies.placement.fifo import Fifo
from bough.policies.provisioning.adaptive import Adaptive
from bough.policies.provisioning.all_at_once import AllAtOnce
from bough.policies.provisioning.static import Static
from bough.policy.interface import Policies
from bough.policy.shortage import Provisioner
from bough.testing.builders import executor, needs, submit, task

LIFE = 100.0
SPECS = st.builds(
    SiteSpec,
    kind=st.just("batch"),
    batch=st.just("slurm"),
    cores_per_pilot=st.just(1.0),
    walltime=st.just(LIFE),
    max_pilots=st.integers(1, 3),
    min_pilots=st.sampled_from([0, 0, 1]),
    budget=st.sampled_from([0.0, 0.0, 0.0, 0.05]),
    resubmit=st.sampled_from([True, True, True, False]),
    idle=st.just(20.0),
)


class Lives(RuleBasedStateMachine):
    """One site; its executors come only from its pilots."""

    @initialize(
        policy=st.sampled_from([Adaptive(), Static(), Provisioner(AllAtOnce())]),
        most=st.sampled_from([0, 0, 2]),
        spec=SPECS,
    )
    def open(self, policy: object, most: int, spec: SiteSpec) -> None:
        self.policies = Policies(Fifo(), provisioning=policy, max_pilots=most)  # type: ignore[arg-type]
        self.machine, self.twin = Machine(self.policies), Machine(self.policies)
        self.now, self.tasks, self.executors = 1000.0, 0, 0
        self.sent: list[int] = []
        self.turn(facts.RunOpened(1, "t", "h", 1), facts.SiteDefined("a", spec))
        self.tasks_are_submitted(8)
        self.a_pilot_starts(0, LIFE)

    def turn(self, *events: Fact | news.WorkNews) -> None:
        turn = self.machine.turn(self.now, events)  # type: ignore[arg-type]
        self.sent += [one.span for order in turn.orders if isinstance(order, SendSpan) for one in order.singly()]
        if turn.facts:
            self.twin.replay(turn.number, self.now, decode_facts(encode_facts(turn.facts)))
        site = self.machine.state.defined_sites["a"]
        assert site.spec is not None
        for fact in turn.facts:
            if isinstance(fact, facts.PilotAsked):
                assert site.places <= site.spec.max_pilots
                assert not self.policies.max_pilots or site.places <= self.policies.max_pilots
                assert not site.away
                assert self.now >= site.rests_until
                assert not fact.succeeds or (site.spec.resubmit and self.machine.state.unfinished)
                assert not fact.succeeds or fact.succeeds in site.pilots

    def pilots(self, *states: PilotState) -> list[int]:
        return [pilot.id for pilot in self.machine.state.pilots.values() if pilot.state in states]

    @rule(tasks=st.integers(1, 4))
    def tasks_are_submitted(self, tasks: int) -> None:
        numbers = range(self.tasks + 1, self.tasks + tasks + 1)
        self.tasks += tasks
        self.turn(submit(*(task(number, needs=needs(1)) for number in numbers)))

    @rule(number=st.integers(0, 9), seconds=st.sampled_from([0.5, 30.0]))
    def a_task_ends(self, number: int, seconds: float) -> None:
        if self.sent:
            self.turn(news.WorkSucceeded(self.sent.pop(number % len(self.sent)), 0, 1, seconds))  # type: ignore[arg-type]

    @rule(seconds=st.sampled_from([0.2, 5.0, 5.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.turn()

    @rule(number=st.integers(0, 9), life=st.sampled_from([LIFE, LIFE, 20.0, 0.0]))
    def a_pilot_starts(self, number: int, life: float) -> None:
        waiting = self.pilots(PilotState.ASKED, PilotState.QUEUED)
        if waiting:
            self.executors += 1
            pilot = waiting[number % len(waiting)]
            until = self.now + life if life else 0.0
            self.turn(executor(self.executors, 1, site="a", pilot=pilot, until=until))

    @rule(number=st.integers(0, 9), in_good_order=st.booleans())
    def an_executor_goes(self, number: int, in_good_order: bool) -> None:
        there = list(self.machine.state.executors)
        if there:
            gone = there[number % len(there)]
            drained = [facts.ExecutorDrained(gone)] if in_good_order else []
            self.turn(*drained, facts.ExecutorLost(gone, "it left"))

    @rule(number=st.integers(0, 9))
    def an_executor_returns(self, number: int) -> None:
        bare = [pilot.id for pilot in self.machine.state.pilots.values() if not (pilot.executors or pilot.starting)]
        if bare:
            self.executors += 1
            self.turn(executor(self.executors, 1, site="a", pilot=bare[number % len(bare)], until=self.now + 50.0))

    @rule(number=st.integers(0, 9), failed=st.booleans())
    def a_pilot_ends(self, number: int, failed: bool) -> None:
        there = list(self.machine.state.pilots)
        if there:
            pilot = PilotId(there[number % len(there)])
            self.turn(facts.PilotEnded(pilot, "it ended", failed))

    @rule(spec=SPECS)
    def the_site_is_defined_anew(self, spec: SiteSpec) -> None:
        self.turn(facts.SiteDefined("a", spec))

    @rule(leaves=st.booleans())
    def the_site_leaves_or_returns(self, leaves: bool) -> None:
        self.turn(facts.SiteLeft("a", "disabled", 5.0, by_hand=True) if leaves else facts.SiteReturned("a"))

    @invariant()
    def all_agree(self) -> None:
        if not hasattr(self, "machine"):
            return
        state = self.machine.state
        check(state)
        site = state.defined_sites["a"]
        assert all(state.pilots[number].succeeds not in site.pilots for number in site.succeeded), "three at a place"
        restored = Machine.restore(self.machine.snapshot(), self.policies)
        check(restored.state)
        self.twin.state.now = restored.state.now = state.now
        assert picture(self.twin.state) == picture(state) == picture(restored.state)


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
