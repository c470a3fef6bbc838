"""A restored machine goes on exactly as the one it was taken from would have.

That counts, states and spans agree is checked by the bench after every turn of every test; here is
what shows only in what happens next.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from bough.core.machine import Machine
from bough.core.state import TimerKind
from bough.model.events import facts, news
from bough.model.events.facts import ExecutorDrained, MemoLookedUp
from bough.model.events.news import Cancel, GroupClosed, Hold, Prioritise, Release, Retry
from bough.model.ids import BlobId, ExecutorId, GroupId, RecordId
from bough.model.outcomes import Cause, Failure
from bough.model.tasks import Page
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies
from bough.testing.builders import array, executor, group, limits, needs, on_array, on_element, on_group, task
from tests.unit.core.core_bench import Bench, on

KEY = b"k" * 16


def story_of_waits(bench: Bench) -> None:
    bench.submit(task(1), group(1, "g", 0, on(1)), group(2, "sub", 1), task(2, group=2), task(3, on_group(1)))
    bench.submit(array(4, 3, 1, element_after=((1, (on(3),)),)), task(5, on_array(4)), task(6, on_element(4, 2)))
    bench.tell(GroupClosed(GroupId(1)), GroupClosed(GroupId(2)))


def story_of_holds(bench: Bench) -> None:
    bench.submit(group(1, "g"), task(1), task(2, 1, group=1), task(3, 1), array(4, 6, 1), array(5, 2, 1))
    bench.tell(Hold(on_group(1)), Hold(on(3)), Hold(on(4, 2), 4), Hold(on_array(5)))


def story_of_failures(bench: Bench) -> None:
    bench.submit(task(1, limits=limits(retries=2, backoff=7)), array(2, 3, limits=limits(retries=1)), task(3))
    bench.submit(task(4, 3), array(5, 2, 3), group(1, "g", 0, on(3)), task(6, group=1))
    bench.fail(1)
    bench.fail(2, 1)
    bench.fail(3)


def story_of_losses(bench: Bench) -> None:
    bench.submit(task(1, limits=limits(losses=2)), array(2, 30, limits=limits(losses=2)))
    bench.end(2, 0, seconds=0.001)
    bench.tell(facts.ExecutorLost(ExecutorId(1), "gone"))


def story_of_memos(bench: Bench) -> None:
    bench.submit(task(1, key=KEY), task(2, 1, key=KEY), task(3, key=KEY), array(4, 3), task(5, on_array(4), key=KEY))
    bench.tell(MemoLookedUp(RecordId(1), 0, 1, True, RecordId(40), 0, 2, 9))


def story_of_priorities(bench: Bench) -> None:
    bench.submit(task(1, needs=needs(3)), task(2), task(3), array(4, 3), task(5, needs=needs(2)))
    bench.tell(Prioritise(on(3), 4), Prioritise(on_array(4), 3))


def story_of_pages(bench: Bench) -> None:
    from msgspec.structs import replace

    spec = replace(array(1, 0), table=BlobId(b""), open=True)
    bench.submit(spec, task(2, on_array(1)))
    bench.tell(news.PagesAdded(RecordId(1), [Page(0, 3, b"x"), Page(3, 7, b"y")]))
    bench.end(1, 1)


def story_of_draining(bench: Bench) -> None:
    bench.tell(executor(2, 2))
    bench.submit(array(1, 9))
    bench.tell(ExecutorDrained(ExecutorId(2)))


STORIES = [
    story_of_waits,
    story_of_holds,
    story_of_failures,
    story_of_losses,
    story_of_memos,
    story_of_priorities,
    story_of_pages,
    story_of_draining,
]


def go_on(bench: Bench) -> list[list[facts.Fact]]:
    """Everything that can happen from here, in a fixed order; what was written."""
    written = []

    def tell(*news: facts.Fact) -> None:
        written.append(bench.tell(*news).facts)

    def end_all() -> None:
        for _ in range(100):
            spans = sorted(bench.machine.state.spans.values(), key=lambda span: span.id)
            if not spans:
                return
            for start, stop in [tuple(part) for part in spans[0].left]:
                tell(news.WorkSucceeded(spans[0].id, start, stop, 0.5 * (stop - start)))

    for order in list(bench.recalls):
        tell(MemoLookedUp(order.record, order.start, order.stop, found=False))
    tell(news.PagesAdded(RecordId(1), [Page(7, 8, b"z")], last=True))
    end_all()
    bench.now += 10
    tell(Release(on(4, 2), 4), Release(on_group(0)))
    end_all()
    tell(executor(7, 1))
    end_all()
    bench.submit(task(90, key=KEY), task(91, needs=needs(2)))
    for order in list(bench.recalls):
        tell(MemoLookedUp(order.record, order.start, order.stop, found=False))
    tell(Cancel(on(91)), Retry(on_group(0)))
    end_all()
    tell(facts.ExecutorLost(ExecutorId(7), "gone"))
    end_all()
    return written


@pytest.mark.parametrize("memos", [False, True])
@pytest.mark.parametrize("story", STORIES)
def test_the_rest_of_a_story_is_the_same_after_a_restart(story: Callable[[Bench], None], memos: bool) -> None:
    ends = []
    for restarts in (False, True):
        bench = Bench(5, memos=memos)
        story(bench)
        if restarts:
            bench.restart()
        written = go_on(bench)
        ends.append((written, bench.machine.counts(), bench.finished, [bench.machine.explain(r) for r in range(1, 8)]))
    assert ends[0] == ends[1]


def test_successes_that_came_out_of_order_are_found_after_a_restart() -> None:
    keys = []
    for restarts in (False, True):
        bench = Bench(4, memos=True)
        bench.submit(array(1, 4))
        for index in (2, 0, 3):
            bench.end(1, index)
        if restarts:
            bench.restart()
        found = [bench.array(1).success_of(index) for index in range(4)]
        assert [f.start if f else None for f in found] == [0, None, 2, 3]
        bench.end(1, 1)
        bench.submit(task(2, on_array(1), key=KEY))
        keys.append(bench.recalls[-1].key)
    assert keys[0] == keys[1]


def test_what_fail_fast_stopped_stays_stopped() -> None:
    bench = Bench(1, fail_fast=True)
    bench.submit(task(1))
    bench.fail(1)
    bench.restart()
    bench.submit(task(2))
    assert bench.state(2) == "skipped"


def test_a_closing_session_stays_so() -> None:
    bench = Bench(1)
    bench.submit(task(1), task(2))
    bench.tell(facts.Stopping())
    bench.restart()
    bench.end(1)
    assert bench.state(2) == "ready"


def test_reasons_survive() -> None:
    bench = Bench(4)
    bench.submit(task(1), array(2, 3, 1), array(3, 3))
    bench.fail(1, failure=Failure(Cause.SIGNAL, "signal 11", signal=11))
    bench.fail(3, 1)
    before = [bench.machine.explain(r, i) for r, i in ((1, 0), (2, 0), (2, 2), (3, 1))]
    bench.restart()
    assert [bench.machine.explain(r, i) for r, i in ((1, 0), (2, 0), (2, 2), (3, 1))] == before


def test_attempts_are_numbered_on() -> None:
    bench = Bench(4)
    bench.submit(task(1), array(2, 2))
    bench.fail(1)
    bench.fail(2, 1)
    bench.restart()
    bench.tell(Retry(on_group(0)))
    assert (bench.attempt(1), bench.attempt(2, 0), bench.attempt(2, 1)) == (2, 1, 2)


def test_spans_are_numbered_on() -> None:
    bench = Bench(1)
    bench.submit(task(1))
    bench.end(1)
    bench.restart()
    bench.submit(task(2))
    assert [order.span for order in bench.sent] == [1, 2]


def test_what_a_finished_task_was_given_is_kept_because_it_may_be_reset() -> None:
    from msgspec.structs import replace

    bench = Bench(1)
    bench.submit(replace(task(1), payload=b"P" * 5000), replace(task(2), payload=b"Q" * 5000))
    bench.end(1)
    data = bench.machine.snapshot()
    assert b"P" * 5000 in data
    assert b"Q" * 5000 in data


def test_an_empty_machine_can_be_kept() -> None:
    again = Machine.restore(Machine(Policies(Fifo())).snapshot(), Policies(Fifo()))
    assert again.is_idle
    assert again.counts() == Machine(Policies(Fifo())).counts()


def test_a_snapshot_of_version_2_with_two_heaps_of_timers_is_read() -> None:
    """Retries had a heap of their own; in the other one spans were positive, groups negative, executors apart."""
    bench = Bench(2)
    bench.submit(task(1, limits=limits(retries=1, backoff=30)))
    bench.fail(1)
    state = bench.machine.state
    for kind, number in ((TimerKind.GROUP_LIMIT, 3), (TimerKind.SUSPENSION, 1), (TimerKind.SILENCE, 7)):
        state.set_timer(40.0 + number, kind, number)
    kept = msgspec.msgpack.decode(bench.machine.snapshot())
    assert kept["version"] == 3
    kept["version"] = 2
    del kept["due"]
    kept["timers"] = [(30.0, 1, 0)]
    kept["alarms"] = [(43.0, -3, 0), (41.0, 0, 1), (47.0, 7, 0)]
    restored = Machine.restore(msgspec.msgpack.encode(kept), Policies(Fifo()))
    assert sorted(restored.state.timers) == sorted(state.timers)
    assert restored.next_timer == bench.machine.next_timer
