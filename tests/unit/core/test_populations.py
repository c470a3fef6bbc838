"""Rules about populations: members are compared at checkpoints, and the needless ones end early."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from bough.core.queries.facade import Queries
from bough.model.events import facts, news
from bough.model.events.arriving import Recalled
from bough.model.events.orders import EndSpan
from bough.model.monitoring.monitors import Finish
from bough.model.monitoring.observations import Fired, Points
from bough.model.monitoring.population_rules import PopulationRule, check_rule
from bough.model.outcomes import Cause, Failure
from bough.model.reuse_scope import ReuseScope
from bough.model.tasks import Dep, On, Reuse
from bough.policies.placement.fifo import Fifo
from bough.policies.policy_registry import find_population_policy
from bough.policy.interface import EndMember, EndOthers, Member, Policies, PopulationPolicy, PopulationView
from bough.testing.builders import array, executor, group, limits, on_array, on_group, task
from tests.unit.core.core_bench import Bench

HALVING = PopulationRule("halving", "score", (10.0, 20.0))


class PopulationBench(Bench):
    """A machine that knows our rules about populations, or one of a test's own."""

    def __init__(self, cores: float, own: PopulationPolicy | None = None) -> None:
        super().__init__(0)
        find = (lambda _: own) if own is not None else find_population_policy
        self.policies = Policies(Fifo(), population=find)
        for machine in (self.machine, self.twin):
            machine.state.policies = self.policies
        self.tell(executor(1, cores))

    def see(self, record: int, index: int, step: float, value: float) -> list[facts.Fact]:
        """A member reports a value; the facts that followed."""
        points = Points("score", ((step, self.now, value),))
        written = self.tell(news.WorkObserved(self.span(record, index), index, [points])).facts
        return [fact for fact in written if not isinstance(fact, facts.Observed | facts.SpanStarted)]

    def run_all(self) -> None:
        """All that an executor has is running."""
        for span in list(self.machine.state.spans.values()):
            self.tell(news.WorkStarted(span.id, span.start, span.stop))

    def asked(self) -> list[tuple[int, int]]:
        """The members that were ended by orders since it was asked last."""
        found = [(self.machine.state.spans[o.span].record.id, o.start) for o in self.orders if isinstance(o, EndSpan)]
        self.orders.clear()
        return found


def ruled(cores: float, rule: PopulationRule, length: int = 4) -> PopulationBench:
    bench = PopulationBench(cores)
    bench.submit(array(1, length))
    bench.tell(news.SetRule(on_array(1), rule))
    bench.run_all()
    return bench


# --- halving ------------------------------------------------------------------------------------------------


def test_the_worse_half_ends_once_all_that_run_have_reached_a_checkpoint() -> None:
    bench = ruled(4, HALVING)
    for index, value in enumerate((3.0, 1.0, 4.0)):
        assert bench.see(1, index, 10, value) == []
    bench.see(1, 3, 12, 2.0)
    assert sorted(bench.asked()) == [(1, 0), (1, 2)]
    bench.restart()
    for index in (0, 2):
        bench.end(1, index)  # as successes, with what they have so far
    bench.see(1, 1, 20, 0.5)
    assert bench.asked() == []
    bench.see(1, 3, 20, 0.6)
    assert bench.asked() == [(1, 3)]


def test_those_that_had_no_room_are_ranked_when_they_come() -> None:
    bench = ruled(2, HALVING)
    bench.see(1, 0, 10, 3.0)
    bench.see(1, 1, 10, 1.0)
    assert bench.asked() == [(1, 0)]
    bench.end(1, 0)  # which makes room for the third
    bench.see(1, 2, 10, 0.5)
    assert bench.asked() == [], "two of three go on"
    bench.end(1, 1)
    bench.see(1, 3, 10, 9.0)
    assert bench.asked() == [(1, 3)]


def test_a_member_that_ends_is_not_waited_for() -> None:
    bench = ruled(3, HALVING, length=3)
    bench.see(1, 0, 10, 3.0)
    bench.see(1, 1, 10, 1.0)
    assert bench.asked() == []
    bench.fail(1, 2)
    assert bench.asked() == [(1, 0)]


def test_higher_is_better_if_the_rule_says_so() -> None:
    bench = ruled(2, PopulationRule("halving", "score", (10.0,), maximise=True), length=2)
    bench.see(1, 0, 10, 3.0)
    bench.see(1, 1, 10, 1.0)
    assert bench.asked() == [(1, 1)]


def test_a_member_that_begins_anew_is_compared_by_its_newest_attempt() -> None:
    bench = PopulationBench(2)
    bench.submit(array(1, 2, limits=limits(retries=2)))
    bench.tell(news.SetRule(on_array(1), HALVING))
    bench.run_all()
    bench.see(1, 0, 10, 1.0)
    bench.fail(1, 0)
    bench.run_all()
    bench.see(1, 1, 10, 2.0)
    assert bench.asked() == []
    bench.see(1, 0, 10, 3.0)
    assert bench.asked() == [(1, 0)]


def test_members_that_run_are_cancelled_if_the_rule_says_so() -> None:
    bench = ruled(2, PopulationRule("halving", "score", (10.0,), cancel=True), length=2)
    bench.see(1, 0, 10, 3.0)
    bench.see(1, 1, 10, 1.0)
    assert (bench.state(1, 0), bench.state(1, 1)) == ("cancelled", "running")


def test_a_group_is_a_population_of_all_tasks_in_it_and_below() -> None:
    bench = PopulationBench(4)
    bench.submit(group(1, "g"), group(2, "sub", 1), task(1, group=1), array(2, 2, group=2), task(3))
    bench.tell(news.SetRule(on_group(1), HALVING))
    bench.run_all()
    for record, index, value in ((3, 0, 99.0), (1, 0, 5.0), (2, 0, 1.0), (2, 1, 2.0)):
        bench.see(record, index, 10, value)
    assert bench.asked() == [(1, 0)]


# --- the median, and the first answer -------------------------------------------------------------------------


def test_the_median_rule_ends_who_was_never_as_good_as_the_others_on_average() -> None:
    bench = ruled(5, PopulationRule("median", "score", (10.0, 20.0), least=3), length=5)
    for index, values in enumerate(((4.0, 2.0), (6.0, 4.0), (8.0, 6.0))):
        bench.see(1, index, 10, values[0])
        bench.see(1, index, 20, values[1])
        assert bench.asked() == []
        bench.end(1, index)
    bench.see(1, 3, 10, 6.5)  # the means at the first checkpoint are 4, 6 and 8
    assert bench.asked() == [(1, 3)]
    bench.see(1, 4, 10, 5.5)
    bench.see(1, 4, 20, 5.2)  # those at the second are 3, 5 and 7
    (order,) = [order for order in bench.orders if isinstance(order, EndSpan)]
    assert order.reason == "its best score by step 20 is 5.2, the median of 3 others 5"


def test_the_first_answer_wins() -> None:
    bench = ruled(2, PopulationRule("first-answer", cancel=True), length=100)
    bench.end(1, 1)
    assert bench.array(1).counts[8] == 99, "all others are cancelled"
    assert bench.machine.is_idle


def test_what_a_rule_ended_is_no_answer() -> None:
    bench = PopulationBench(3)
    bench.submit(group(1, "g"), array(1, 3, group=1), array(2, 5, group=1))
    bench.tell(news.SetRule(on_group(1), PopulationRule("first-answer", least=2)))
    bench.end(1, 0)
    assert bench.asked() == []
    bench.end(1, 1)
    assert (1, 2) in bench.asked()
    bench.end(1, 2)
    assert Queries(bench.machine).counts().by_state[5] >= 3
    assert bench.array(2).counts[8] >= 3, "those that waited are cancelled"


# --- setting rules -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action",
    [
        news.SetRule(on_array(7), HALVING),
        news.SetRule(on_group(7), HALVING),
        news.SetRule(Dep(On.TASK, 1), HALVING),
        news.SetRule(on_array(2), HALVING),  # a loose task is no population
        news.SetRule(on_array(1), PopulationRule("unheard of")),
    ],
)
def test_what_cannot_be_a_population_is_left_alone(action: news.SetRule) -> None:
    bench = PopulationBench(1)
    bench.submit(array(1, 2), task(2))
    assert bench.tell(action).facts == []


def test_a_rule_is_replaced_and_removed() -> None:
    bench = ruled(2, HALVING, length=2)
    bench.tell(news.SetRule(on_array(1), PopulationRule("first-answer")))
    bench.tell(news.SetRule(on_array(1)))
    bench.end(1, 0)
    assert bench.state(1, 1) == "running"
    assert not bench.machine.state.ruled


def test_rules_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="must ascend: 20, 10"):
        check_rule(PopulationRule("halving", "score", (20.0, 10.0)))
    with pytest.raises(ValueError, match="needs the name of a metric"):
        check_rule(PopulationRule("halving", "", (10.0,)))


# --- policies of others ---------------------------------------------------------------------------------------


@dataclass
class Wishing:
    """Wishes for what it is told to, and breaks down then."""

    wishes: list[object]
    views: list[tuple[int, ...]] = field(default_factory=list)

    def decide(self, view: PopulationView, /) -> Iterable[EndMember | EndOthers]:
        self.views.append((*view.member, view.checkpoint))
        yield from self.wishes  # type: ignore[misc]
        raise ZeroDivisionError


def test_unlawful_wishes_and_errors_of_a_policy_harm_nothing() -> None:
    wishes = [EndMember(1, 5), EndMember(9, 0), EndMember(2, 0), EndMember(1, -1), "nonsense", None, EndMember(1, 1)]
    bench = PopulationBench(3, Wishing([*wishes, EndMember(1, 1, "x" * 10**6)]))
    bench.submit(array(1, 2), task(2))
    bench.tell(news.SetRule(on_array(1), HALVING))
    turn = bench.tell(news.WorkObserved(bench.span(1, 0), 0, [Points("score", ((10.0, 0.0, 1.0),))]))
    assert [fact for fact in turn.facts if isinstance(fact, facts.EndAsked)] == [
        facts.EndAsked(Dep(On.TASK, 1, 1), Finish(), "halving", "", 2, by_rule=True)
    ]
    assert "ZeroDivisionError" in turn.complaints[0]


def test_a_policy_is_asked_only_when_a_checkpoint_is_reached_or_a_member_ends() -> None:
    policy = Wishing([])
    bench = PopulationBench(2, policy)
    bench.submit(array(1, 2), task(2))
    bench.tell(news.SetRule(on_array(1), HALVING))
    bench.see(1, 0, 9, 1.0)
    bench.tell(news.WorkObserved(bench.span(1, 0), 0, [Points("loss", ((10.0, 0.0, 1.0),)), Fired(1.0, "m")]))
    assert policy.views == []
    bench.see(1, 0, 25, 1.0)
    assert policy.views == [(1, 0, 0), (1, 0, 1)]
    bench.end(1, 1)
    assert policy.views[2:] == [(1, 1, -1)]
    bench.end(2)
    assert len(policy.views) == 3


def test_a_failure_of_the_place_is_no_answer_and_members_are_told_by_the_view() -> None:
    bench = ruled(2, PopulationRule("first-answer"), length=2)
    bench.fail(1, 0, Failure(Cause.EXIT, "it broke"))
    assert bench.state(1, 1) == "running"
    assert bench.machine.state.ruled[False, 1].find(Member(1, 0)) is None


# --- tasks that are reused from earlier runs ----------------------------------------------------------------

EARLIER = 10**6  # a record of an earlier run


def found(start: int, stop: int, *seen: facts.Observed) -> Recalled:
    """Elements of array 1 that were watched in an earlier run."""
    return Recalled(facts.MemoLookedUp(1, start, stop, True, EARLIER, start, 1, 1), list(seen))


def seen(index: int, *scores: float, by: str = "") -> facts.Observed:
    """An element that had these scores at steps 10, 20 and so on; `by`: a rule ended it."""
    points = Points("score", tuple((10.0 * at, 1.0, score) for at, score in enumerate(scores, 1)))
    ended = [Fired(1.0, by, action="finish")] if by else []
    return facts.Observed(0, 1, index, 1, [points, *ended])


def recalling(rule: PopulationRule, length: int = 4) -> PopulationBench:
    """An array whose rule is set, and whose elements are being looked up."""
    bench = PopulationBench(length)
    bench.tell(facts.RunOpened(2, "again", "h", 1, memos=True, reuse=ReuseScope.ALL, group=50))
    bench.submit(array(1, length, group=50, key=b"k" * 16, reuse=(Reuse(0, length, EARLIER, 0),)))
    if rule.policy:
        bench.tell(news.SetRule(on_array(1), rule))
    return bench


def test_reused_members_are_ranked_with_what_they_had_reached() -> None:
    bench = recalling(HALVING)
    turn = bench.tell(found(0, 2, seen(0, 1.0, 1.0), seen(1, 2.0, by="halving")))
    assert [type(fact) for fact in turn.facts] == [facts.Observed, facts.Observed, facts.MemoLookedUp]
    assert bench.states(1)[:2] == ["done", "done"]
    bench.tell(facts.MemoLookedUp(1, 2, 4, found=False))
    bench.restart()
    for index in (2, 3):
        bench.tell(news.WorkStarted(bench.span(1, index), index, index + 1))
    bench.see(1, 2, 10, 3.0)
    bench.see(1, 3, 10, 1.5)  # the second of four: it goes on
    assert bench.asked() == [(1, 2)]


def test_what_a_rule_ended_in_an_earlier_run_is_no_answer_now() -> None:
    bench = recalling(PopulationRule("first-answer"))
    bench.tell(found(0, 1, seen(0, by="first-answer")))
    assert bench.states(1) == ["done", *["waiting"] * 3]
    bench.tell(found(1, 2, seen(1, 5.0)))
    assert bench.states(1) == ["done", "done", "cancelled", "cancelled"]


def test_a_rule_that_is_set_after_tasks_were_reused_knows_how_far_they_had_come() -> None:
    bench = recalling(PopulationRule(""))
    bench.tell(found(0, 2, seen(0, 1.0), seen(1, 2.0)), facts.MemoLookedUp(1, 2, 4, found=False))
    assert Queries(bench.machine).reused_parts(on_array(1)) == [(1, 0, 2)]
    members = (facts.RecalledMember(1, 0, 1, (1.0,)), facts.RecalledMember(1, 1, 1, (2.0,), by_rule=True))
    strangers = (facts.RecalledMember(9, 0, 1, (1.0,)), facts.RecalledMember(1, 3, 1, (9.0,)))
    bench.tell(facts.MembersRecalled(on_array(1), HALVING, strangers, 7))
    bench.tell(facts.MembersRecalled(on_array(1), HALVING, begins=True))  # what was told before does not count
    bench.tell(facts.MembersRecalled(on_array(1), HALVING, (*members[:1], *strangers), 1))
    bench.restart()
    bench.tell(facts.MembersRecalled(on_array(1), HALVING, members))
    assert not bench.machine.state.ruled
    bench.tell(news.SetRule(on_array(1), HALVING))
    (population,) = bench.machine.state.populations.all()
    assert [score for score, _ in population.rankings[0]] == [1.0, 2.0]
    assert (population.answers, population.averages[0]) == (1, [1.0])
    for index in (2, 3):
        bench.tell(news.WorkStarted(bench.span(1, index), index, index + 1))
    bench.see(1, 2, 10, 3.0)
    bench.see(1, 3, 10, 0.5)
    assert bench.asked() == [(1, 2)]


def test_an_answer_that_was_reused_before_the_rule_was_set_makes_the_others_needless() -> None:
    bench = recalling(PopulationRule(""))
    bench.tell(found(0, 1, seen(0, 1.0)), facts.MemoLookedUp(1, 1, 4, found=False))
    rule = PopulationRule("first-answer", cancel=True)
    bench.tell(facts.MembersRecalled(on_array(1), rule, (), 1, begins=True))
    assert bench.states(1)[0] == "done"
    assert "cancelled" not in bench.states(1)
    bench.tell(news.SetRule(on_array(1), rule))
    assert bench.states(1) == ["done", *["cancelled"] * 3]


def test_what_is_reused_while_a_rule_is_about_to_be_set_counts_once() -> None:
    bench = recalling(PopulationRule(""))
    bench.tell(found(0, 1, seen(0, 1.0)))
    bench.tell(facts.MembersRecalled(on_array(1), HALVING, begins=True))
    bench.tell(found(1, 2, seen(1, 2.0)), found(2, 3, seen(2, 3.0, by="halving")))
    bench.tell(facts.MembersRecalled(on_array(1), HALVING, (facts.RecalledMember(1, 0, 1, (1.0,)),), 1))
    bench.restart()
    bench.tell(news.SetRule(on_array(1), HALVING))
    (population,) = bench.machine.state.populations.all()
    assert [score for score, _ in population.rankings[0]] == [1.0, 2.0, 3.0]
    assert (population.answers, population.averages[0], population.going[0]) == (2, [1.0, 2.0], 0)


def test_pages_for_another_rule_do_not_count() -> None:
    bench = recalling(PopulationRule(""))
    bench.tell(found(0, 1, seen(0, 1.0)))
    bench.tell(facts.MembersRecalled(on_array(1), HALVING, (facts.RecalledMember(1, 0, 1, (1.0,)),), 1, begins=True))
    other = PopulationRule("median", "loss", (10.0,))
    bench.tell(news.SetRule(on_array(1), other))
    (population,) = bench.machine.state.populations.all()
    assert (population.rule, population.answers, population.marks) == (other, 0, {})
    unlawful = facts.MembersRecalled(on_array(9), HALVING, begins=True)
    assert bench.tell(unlawful).facts == []


def test_what_was_seen_of_tasks_that_no_longer_wait_is_not_told() -> None:
    bench = recalling(HALVING)
    bench.tell(news.Cancel(Dep(On.TASK, 1, 0), 1))
    turn = bench.tell(found(0, 2, seen(0, 1.0), seen(1, 1.0)))
    assert [fact.index for fact in turn.facts if isinstance(fact, facts.Observed)] == [1]
    assert bench.tell(found(0, 2, seen(0, 1.0))).facts == []
