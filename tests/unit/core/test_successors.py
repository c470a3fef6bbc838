"""Pilots whose time ends have successors in the queue before, within all bounds, while there is work."""

from __future__ import annotations

import msgspec

from bough.core.machine import Turn
from bough.model.events import facts
from bough.model.events.facts import PilotAsked
from bough.model.sites.site_specs import PilotId, SiteSpec
from bough.policies.provisioning.adaptive import Adaptive
from bough.policies.provisioning.all_at_once import AllAtOnce
from bough.policy.interface import AskFor
from bough.policy.shortage import Provisioner
from bough.testing.builders import executor, needs, submit, task
from tests.unit.core.test_provisioning_bounds import Desk, Says

SPEC = SiteSpec("batch", batch="slurm", cores_per_pilot=1.0, max_pilots=1, walltime=100.0, resubmit=True)


def asked(turn: Turn) -> list[tuple[int, int]]:
    """The pilots that a turn asked for, and whose successors they are."""
    return [(fact.pilot, fact.succeeds) for fact in turn.facts if isinstance(fact, PilotAsked)]


def begun(spec: SiteSpec = SPEC, tasks: int = 9, most: int = 0, wait: float = 5.0) -> Desk:
    """One pilot waited for so long, runs a task, and has a hundred seconds; others are ready."""
    desk = Desk(Says(lambda view: [AskFor("a", 1)] if any(view.demand()) else []), ("a", spec), most=most)
    assert asked(desk.tell(submit(*(task(number, needs=needs(1)) for number in range(1, tasks + 1))))) == [(1, 0)]
    desk.tell(facts.PilotQueued(PilotId(1), "77"))
    turn = desk.tell(executor(1, 1, site="a", pilot=1, until=desk.now + wait + 100.0), later=wait)
    assert asked(turn) == []
    return desk


def test_a_successor_is_asked_for_so_early_that_it_runs_when_the_pilot_begins_nothing_more() -> None:
    desk = begun()
    turn = desk.tell(later=84.0)
    assert asked(turn) == []  # 10 s before its end it begins nothing more, and a pilot waits for 5 s
    assert turn.next_timer is not None
    assert abs(turn.next_timer - (desk.now + 1.0)) < 0.01
    turn = desk.tell(later=1.1)
    assert asked(turn) == [(2, 1)]
    [fact] = [fact for fact in turn.facts if isinstance(fact, PilotAsked)]
    assert fact.reason == "successor of pilot 1, whose time ends in 15 s"
    assert asked(desk.tell(later=5.0)) == []  # once
    site = desk.machine.state.defined_sites["a"]
    assert (len(site.pilots), site.places) == (2, 1)
    desk.tell(facts.PilotQueued(PilotId(2), "78"))
    desk.tell(facts.ExecutorLost(1, "its time is over"), facts.PilotEnded(PilotId(1)), later=9.0)
    assert site.places == 1
    turn = desk.tell(executor(2, 1, site="a", pilot=2, until=desk.now + 100.0))
    assert asked(turn) == []
    assert asked(desk.tell(later=90.0)) == [(3, 2)]


def test_there_is_none_where_nobody_wants_it() -> None:
    desk = begun(msgspec.structs.replace(SPEC, resubmit=False))
    assert asked(desk.tell(later=95.0)) == []
    desk.tell(facts.SiteDefined("a", SPEC))  # now somebody does
    assert desk.machine.state.defined_sites["a"].succeeded == {1: 2}


def test_the_chain_ends_with_the_work() -> None:
    desk = begun(tasks=1)
    assert asked(desk.tell(later=95.0)) == []
    turn = desk.tell(submit(task(2, needs=needs(1))))  # just in time
    assert asked(turn) == [(2, 1)]


def test_what_will_be_done_before_needs_no_successor() -> None:
    desk = Desk(Provisioner(AllAtOnce()), ("a", SPEC))
    for state in (desk.machine.state, desk.twin.state):
        state.runtime_of("x").note(10, 10.0)  # a second each
    desk.tell(submit(*(task(number, needs=needs(1), template="x") for number in range(1, 4))))
    desk.tell(executor(1, 1, site="a", pilot=1, until=desk.now + 100.0))
    assert asked(desk.tell(later=85.0)) == []  # waits are 0 s: it is due later
    assert asked(desk.tell(later=6.0)) == [(2, 1)]


def test_successors_respect_budgets_rests_and_sites_that_are_away() -> None:
    spent = begun(msgspec.structs.replace(SPEC, budget=0.001))
    assert asked(spent.tell(later=95.0)) == []
    away = begun()
    away.tell(facts.SiteLeft("a", "disabled", 600.0, by_hand=True))
    assert asked(away.tell(later=95.0)) == []
    assert asked(away.tell(facts.SiteReturned("a"))) == [(2, 1)]
    resting = begun()
    assert asked(resting.tell(later=95.0)) == [(2, 1)]
    turn = resting.tell(facts.PilotEnded(PilotId(2), "refused", failed=True))
    assert asked(turn) == []
    assert asked(resting.tell(later=4.0)) == []
    assert asked(resting.tell(later=1.5)) == [(3, 1)]  # the pilot before has no other one


def test_a_place_has_a_pilot_and_its_successor_at_most() -> None:
    desk = begun(most=1)
    desk.tell(later=95.0)
    desk.tell(executor(2, 1, site="a", pilot=2, until=desk.now + 1.0))
    assert asked(desk.tell(later=0.9)) == []  # the first one is still there
    assert asked(desk.tell(facts.ExecutorLost(1), facts.PilotEnded(PilotId(1)))) == [(3, 2)]
    lower = msgspec.structs.replace(SPEC, max_pilots=2)
    two = Desk(Says(lambda view: [AskFor("a", 5)] if any(view.demand()) else []), ("a", lower))
    two.tell(submit(*(task(number, needs=needs(1)) for number in range(1, 9))))
    for number in (1, 2):
        two.tell(executor(number, 1, site="a", pilot=number, until=two.now + 100.0))
    assert asked(two.tell(facts.SiteDefined("a", SPEC), later=95.0)) == []  # there are too many already
    assert asked(two.tell(facts.ExecutorLost(1), facts.PilotEnded(PilotId(1)))) == [(3, 2)]


def test_one_that_left_in_good_order_has_its_successor_before_its_site_says_that_it_ended() -> None:
    desk = begun()
    turn = desk.tell(facts.ExecutorDrained(1), facts.ExecutorLost(1, "it leaves"))
    assert asked(turn) == [(2, 1)]
    assert "which has left while there is work" in str(turn.facts)
    lost = begun()
    assert asked(lost.tell(facts.ExecutorLost(1, "no answer"))) == []  # it may come back


def test_a_successor_that_is_not_needed_any_more_is_withdrawn() -> None:
    desk = Desk(Adaptive(), ("a", SPEC))
    desk.tell(submit(task(1, needs=needs(1)), task(2, needs=needs(1))))
    sent = desk.tell(executor(1, 1, site="a", pilot=1, until=desk.now + 100.0))
    desk.tell(later=91.0)
    assert desk.machine.state.defined_sites["a"].succeeded == {1: 2}
    sent = desk.finish(sent, 1.0)
    desk.finish(sent, 1.0)
    desk.tell(later=2.0)
    assert desk.machine.state.pilots[2].released == "there is nothing left to do"


def test_policies_see_places() -> None:
    seen = []
    desk = begun()
    desk.tell(later=95.0)
    policy = desk.policies.provisioning
    assert isinstance(policy, Says)
    policy.wishes = lambda view: seen.extend((s.pilots, s.room, s.starting) for s in view.sites()) or []  # type: ignore[func-returns-value]
    desk.tell(submit(task(20, needs=needs(1))), later=2.0)
    assert seen == [(1, 0, 1)]
