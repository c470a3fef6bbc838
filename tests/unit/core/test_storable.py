"""What cannot be stored is refused before it changes anything, and what the core computes can always be stored."""

from __future__ import annotations

import math
from random import Random

import pytest
from core_bench import Bench

from bough.core.effects import Effects
from bough.core.intake import Intake
from bough.core.storable import latest, shortened
from bough.model.bounds import LONGEST
from bough.model.events import facts, news
from bough.model.events.facts import decode_facts, encode_facts
from bough.model.outcomes import Cause, Failure
from bough.model.tasks import Dep, On
from bough.testing.builders import executor, limits, task

BEYOND = 2**70  # no number that a row of the journal can hold
UNSTORABLE = [
    news.Prioritise(Dep(On.TASK, 1), BEYOND),
    news.Cancel(Dep(On.TASK, BEYOND)),
    news.Hold(Dep(On.TASK, 1), BEYOND),
    facts.RunOpened(2, "a lone \udc80 surrogate", "h", 1, group=7),
    facts.RunOpened(2, "w", "h", BEYOND, group=7),
    facts.ExecutorJoined(7, "s", "h", BEYOND, executor(7, 1).capacity),
    facts.ExecutorLost(1, "not \udcff text"),
    news.Kill(Dep(On.TASK, 1), message=b"bytes"),
]


@pytest.mark.parametrize("event", UNSTORABLE, ids=lambda event: type(event).__name__)
def test_an_event_that_cannot_be_stored_is_refused_and_the_others_of_its_turn_count(event):
    bench = Bench(0)
    turn = bench.tell(facts.Submitted([task(1)]), event, facts.Submitted([task(2)]))
    assert [type(fact) for fact in turn.facts] == [facts.Submitted] * 2
    (complaint,) = turn.complaints
    assert complaint.startswith(f"refused, {type(event).__name__} cannot be stored: ")
    assert decode_facts(encode_facts(turn.facts)) == turn.facts


def test_a_wait_that_is_doubled_for_ever_stays_a_time():
    """`2**failures` is no float any more after 1,023 failures."""
    bench = Bench(1)
    bench.tell(facts.Submitted([task(1, limits=limits(retries=5_000, backoff=1e15))]))
    record = bench.machine.state.records[1]
    for failures in (0, 59, 1_023, 4_999):
        record.blame(0, failures, 0)
        span = next(iter(bench.machine.state.spans))
        turn = bench.machine.turn(bench.now, [news.WorkFailed(span, 0, Failure(Cause.EXIT, "no"))])
        failed = next(fact for fact in turn.facts if isinstance(fact, facts.ElementFailed))
        assert 0 < failed.retry_at <= LONGEST
        bench.now = LONGEST
        bench.machine.turn(LONGEST, [])
        bench.now = 0.0


def test_an_executor_in_trouble_for_months_gets_the_longest_rest():
    bench = Bench(1)
    found = bench.machine.state.executors[1]
    found.suspensions, found.trouble = 5_000, 5
    effects = Effects()
    effects.to_suspend.append(found)
    written = Intake(bench.machine.state, Random(0)).take_in([], effects)
    assert [fact.until for fact in written if isinstance(fact, facts.ExecutorSuspended)] == [3600.0]


def test_messages_that_are_put_together_have_a_length_for_people():
    assert shortened("as it is") == "as it is"
    assert len(shortened("x" * 10**7)) == 4_000
    bench = Bench(1)
    bench.tell(facts.Submitted([task(1, name="n" * 60_000), task(2, Dep(On.TASK, 1))]))
    span = next(iter(bench.machine.state.spans))
    turn = bench.tell(news.WorkFailed(span, 0, Failure(Cause.EXIT, "m" * 100_000)))
    (left,) = [fact for fact in turn.facts if isinstance(fact, facts.Skipped)]
    assert len(left.failure.message) == 4_000


def test_times_that_are_computed_stay_within_bounds():
    assert latest(5.0) == 5.0
    assert latest(math.inf) == LONGEST
