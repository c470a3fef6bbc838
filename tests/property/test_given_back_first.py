"""Random lives of sites that leave and return: what they give back is placed again before all that never ran.

All tasks need the same, so that nothing but the order decides. The server may be started anew at any time.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from bough.core.machine import Machine
from bough.core.pilots.sites import PATIENCE
from bough.model.events import facts, news
from bough.model.events.facts import Fact, decode_facts, encode_facts
from bough.model.events.orders import ClearExecutor
from bough.model.ids import ExecutorId, SpanId
from bough.model.outcomes import Cause, Failure
from bough.policies.placement.data_aware.bough import Bough
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies
from bough.testing.builders import array, executor, on_element, submit, task

SITES = {1: "a", 2: "b", 3: "b"}
LEFT = Failure(Cause.GIVEN_BACK, "given back: site b left")
SECONDS = st.sampled_from([0.001, 0.1, 0.2, 30.0])  # some may wait in a backlog


class Sites(RuleBasedStateMachine):
    """An executor on site a, two on b."""

    @initialize(policy=st.sampled_from([Fifo(), Bough()]), cores=st.integers(1, 3))
    def open(self, policy: object, cores: int) -> None:
        self.policies = Policies(policy)  # type: ignore[arg-type]
        self.machine, self.twin = Machine(self.policies), Machine(self.policies)
        self.now, self.arrays, self.tasks = 1000.0, 0, 1000  # arrays first: their rest could overtake
        self.back: set[tuple[int, int]] = set()  # elements that were given back and not placed since
        self.cleared: set[ExecutorId] = set()  # executors that were told to give back all
        joined = [executor(number, cores, site=site) for number, site in SITES.items()]
        self.turn(facts.RunOpened(1, "t", "h", 1), *joined)

    def turn(self, *events: object) -> None:
        turn = self.machine.turn(self.now, events)  # type: ignore[arg-type]
        for fact in turn.facts:
            self.note(fact)
        if turn.facts:
            self.twin.replay(turn.number, self.now, decode_facts(encode_facts(turn.facts)))
        self.cleared |= {order.executor for order in turn.orders if isinstance(order, ClearExecutor)}

    def note(self, fact: Fact) -> None:
        if isinstance(fact, facts.ElementFailed) and fact.failure.cause is Cause.GIVEN_BACK:
            self.back.add((fact.record, fact.index))
        elif isinstance(fact, facts.Placed):
            placed = {(fact.record, index) for index in range(fact.start, fact.stop)}
            assert placed <= self.back or not self.back, (fact, self.back)
            self.back -= placed

    def spans(self, *, on: set[ExecutorId] | None = None) -> list[tuple[SpanId, int, int]]:
        """What executors have."""
        held = self.machine.state.spans.values()
        return [(one.id, *part) for one in held if on is None or one.executor.id in on for part in one.left]

    @rule(count=st.integers(1, 9))
    def tasks_are_submitted(self, count: int) -> None:
        self.tasks += count
        self.turn(submit(*(task(self.tasks - number) for number in range(count))))

    @rule(length=st.sampled_from([2, 5, 20]))
    def an_array_is_submitted(self, length: int) -> None:
        self.arrays += 1
        self.turn(submit(array(self.arrays, length)))

    @rule(data=st.data())
    def one_begins(self, data: st.DataObject) -> None:
        if spans := self.spans():
            number, start, _ = data.draw(st.sampled_from(spans))
            self.turn(news.WorkStarted(number, start, start + 1))

    @rule(data=st.data(), seconds=SECONDS, count=st.integers(1, 4))
    def some_end(self, data: st.DataObject, seconds: float, count: int) -> None:
        self.now += seconds
        spans = self.spans()
        chosen = data.draw(st.lists(st.sampled_from(spans), max_size=count, unique=True)) if spans else []
        self.turn(*(news.WorkSucceeded(number, start, start + 1, seconds) for number, start, _ in chosen))

    @rule(grace=st.sampled_from([0.0, 5.0]), began=st.lists(st.booleans(), max_size=8))
    def site_b_leaves(self, grace: float, began: list[bool]) -> None:
        """Some of what it has comes back at once, begun or not."""
        self.turn(facts.SiteLeft("b", "", grace))
        self.come_back(began)

    @rule(began=st.lists(st.booleans(), min_size=1, max_size=4))
    def some_is_given_back(self, began: list[bool]) -> None:
        self.come_back(began)

    def come_back(self, began: list[bool]) -> None:
        spans = zip(self.spans(on=self.cleared), began, strict=False)
        self.turn(
            *(
                news.WorkFailed(number, start, LEFT) if had_run else news.WorkReturned(number, start, stop)
                for (number, start, stop), had_run in spans
            )
        )

    @rule(data=st.data())
    def one_that_was_given_back_is_cancelled(self, data: st.DataObject) -> None:
        if self.back:
            record, index = data.draw(st.sampled_from(sorted(self.back)))
            self.back.remove((record, index))
            self.turn(news.Cancel(on_element(record, index)))

    @rule()
    def site_b_returns(self) -> None:
        self.cleared.clear()
        self.turn(facts.SiteReturned("b"))

    @rule(number=st.sampled_from([1, 2, 3]), begun=st.booleans())
    def an_executor_reconnects(self, number: int, begun: bool) -> None:
        self.turn(facts.ExecutorSuspended(ExecutorId(number), self.now + 3600, "it is missing"))
        lost = [] if begun else self.spans(on={ExecutorId(number)})
        self.turn(*(news.WorkReturned(span, start, stop) for span, start, stop in lost))
        self.turn(facts.ExecutorResumed(ExecutorId(number)))

    @rule(number=st.sampled_from([1, 2, 3]))
    def a_backlog_comes_back(self, number: int) -> None:
        held = [span for span in self.machine.state.spans.values() if span.executor.id == number and span.queued]
        self.turn(*(news.WorkReturned(span.id, *part) for span in held for part in span.left))

    @rule(seconds=st.sampled_from([0.5, 1.0, PATIENCE + 5]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.turn()

    @rule(from_snapshot=st.booleans())
    def the_server_is_started_anew(self, from_snapshot: bool) -> None:
        if from_snapshot:
            self.machine = Machine.restore(self.machine.snapshot(), self.policies)
            self.twin = Machine.restore(self.machine.snapshot(), self.policies)
        else:
            self.machine, self.twin = self.twin, Machine.restore(self.twin.snapshot(), self.policies)
        self.turn()


TestSites = Sites.TestCase
TestSites.settings = settings(deadline=None, stateful_step_count=40)
