"""The deck of a relay that shares out work: who is given what, and what the server is told."""

from __future__ import annotations

import pytest

from bough.model.events.news import CallsEnded, WorkFailed, WorkObserved, WorkReturned, WorkStarted, WorkSucceeded
from bough.model.monitoring.monitors import Finish
from bough.model.monitoring.observations import Fired
from bough.model.outcomes import Cause, Detail, Failure
from bough.model.sites.resources import ONE_CORE, Needs
from bough.model.tasks import Kind, Page
from bough.relay.distributor import Distributor
from bough.relay.members import Member
from bough.relay.relay_executor import merge_news
from bough.wire.client_messages import Blob
from bough.wire.executor_messages import (
    ClearOut,
    EndElements,
    Report,
    RunSpan,
    StayOn,
    StopElements,
    WatchElements,
)
from bough.wire.file_messages import WorkDirectory

BODY = b"b" * 16


class Bench:
    """A deck with members, and what each of them was told."""

    def __init__(self, count: int = 2, capacity: Needs = ONE_CORE, until: float = 0.0) -> None:
        self.distributor = Distributor(capacity)
        self.members = [Member(number, f"host{number}", capacity, until) for number in range(1, count + 1)]
        for member in self.members:
            self.distributor.join(member)
        self.numbers = dict.fromkeys(self.members, 0)

    def give(self, span: int, stop: int = 1, *, is_array: bool = False, **fields: object) -> None:
        self.distributor.run(
            RunSpan(span, fields.pop("record", span), 0, stop, 1, Kind.FUNCTION, BODY, is_array, **fields)
        )

    def distribute(self, now: float = 0.0) -> list[list[object]]:
        """Hand out; what each member is told."""
        self.distributor.distribute(now)
        self.distributor.speaking.clear()
        told = []
        for member in self.members:
            told.append(member.outbox)
            member.outbox = []
        return told

    def runs(self, now: float = 0.0) -> list[list[RunSpan]]:
        return [[message for message in told if isinstance(message, RunSpan)] for told in self.distribute(now)]

    def report(self, member: Member, *news: object) -> list[object]:
        """An executor says something; what the server is told."""
        self.numbers[member] += 1
        self.distributor.report(member, Report(self.numbers[member], list(news)))
        return self.news()

    def news(self) -> list[object]:
        news, self.distributor.news = self.distributor.news, []
        return news


# --- cutting and handing out -----------------------------------------------------------------------------


def test_an_array_of_unknown_run_time_is_handed_out_one_by_one() -> None:
    bench = Bench(3)
    bench.give(7, 100, is_array=True)
    runs = bench.runs()
    assert [[(run.start, run.stop) for run in told] for told in runs] == [[(0, 1)], [(1, 2)], [(2, 3)]]
    assert {run.record for told in runs for run in told} == {7}
    assert len({run.span for told in runs for run in told}) == 3


def test_short_tasks_are_bundled_as_they_become_known() -> None:
    bench = Bench(2)
    bench.give(7, 4000, is_array=True)
    sizes = []
    ended = 0
    while bench.distributor.server_spans:
        for member, told in zip(bench.members, bench.runs(), strict=True):
            for run in told:
                size = run.stop - run.start
                sizes.append(size)
                (said,) = bench.report(member, WorkSucceeded(run.span, run.start, run.stop, 0.001 * size))
                assert (said.span, said.host) == (7, member.host)
                ended += size
    assert ended == 4000
    assert sizes[0] == 1
    assert 40 <= max(sizes) <= 50  # fifty milliseconds of work


def test_what_the_server_knows_of_the_run_time_is_believed() -> None:
    bench = Bench(1)
    bench.give(1, 1000, is_array=True, expected=0.001)
    (run, *_) = bench.runs()[0]
    assert run.stop - run.start == 50
    assert run.expected == 0.001


def test_an_executor_with_short_work_gets_more_in_advance_and_one_with_long_work_does_not() -> None:
    short, long = Bench(1), Bench(1)
    short.give(1, 1000, is_array=True, expected=0.001)
    long.give(1, 1000, is_array=True, expected=1.0)
    assert len(short.runs()[0]) == 4  # two tenths of a second for its core
    assert len(long.runs()[0]) == 1


def test_whoever_has_had_room_the_longest_is_given_work_first() -> None:
    bench = Bench(3)
    for span in range(1, 4):
        bench.give(span)
    runs = bench.runs()
    bench.report(bench.members[1], WorkSucceeded(runs[1][0].span, 0, 1, 10.0))
    bench.report(bench.members[0], WorkSucceeded(runs[0][0].span, 0, 1, 10.0))
    bench.give(4)
    assert [len(told) for told in bench.runs()] == [0, 1, 0]


def test_needs_are_respected_by_each_executor() -> None:
    bench = Bench(2, Needs(4, memory=100, gpus=1))
    bench.give(1, needs=Needs(3))
    bench.give(2, needs=Needs(1, gpus=1))
    bench.give(3, needs=Needs(1, gpus=1))
    bench.give(4, needs=Needs(2, memory=60))
    bench.give(5, needs=Needs(1, gpus=1))
    told = [{run.record for run in runs} for runs in bench.runs()]
    assert sorted(map(len, told)) == [2, 2]
    assert all(not {2, 3} <= runs for runs in told)
    assert bench.distributor.server_spans[5].queue


def test_what_nobody_here_can_ever_run_goes_back() -> None:
    bench = Bench(1)
    bench.give(1, needs=Needs(2))
    assert bench.runs() == [[]]
    assert bench.news() == [WorkReturned(1, 0, 1)]


def test_an_executor_gets_nothing_that_would_not_end_before_it_leaves() -> None:
    bench = Bench(1, until=100.0)
    bench.give(1, expected=60.0)
    assert [len(told) for told in bench.runs(now=0.0)] == [1]
    bench = Bench(1, until=100.0)
    bench.give(1, expected=60.0, name="a")
    bench.give(2, expected=1.0, name="b")
    assert [[run.record for run in told] for told in bench.runs(now=50.0)] == [[2]]
    bench.distributor.give_back_late(50.0)
    assert bench.news() == [WorkReturned(1, 0, 1)]


def test_a_blob_and_a_workplace_go_to_an_executor_once_and_before_their_first_use() -> None:
    bench = Bench(1)
    bench.distributor.blobs[BODY] = b"code"
    bench.distributor.directories[3] = WorkDirectory(3, "/there", "token")
    bench.give(1, run=3)
    (told,) = bench.distribute()
    assert [type(message) for message in told] == [WorkDirectory, Blob, RunSpan]
    bench.report(bench.members[0], WorkSucceeded(told[2].span, 0, 1, 1.0))
    bench.give(2, run=3)
    assert [type(message) for message in bench.distribute()[0]] == [RunSpan]


def test_a_part_gets_only_the_pages_it_needs() -> None:
    bench = Bench(1)
    pages = (Page(0, 5, b"a"), Page(5, 10, b"b"))
    bench.give(1, 10, is_array=True, pages=pages)
    assert bench.runs()[0][0].pages == pages[:1]


def test_a_chain_goes_to_one_executor_in_its_order() -> None:
    bench = Bench(2)
    bench.give(10)
    bench.give(11, after_span=10)
    bench.give(12, after_span=11)
    first, second = bench.runs()
    assert second == []
    assert [run.record for run in first] == [10, 11, 12]
    assert [run.after_span for run in first] == [0, first[0].span, first[1].span]
    late = RunSpan(13, 13, 0, 1, 1, Kind.FUNCTION, BODY, after_span=12)
    bench.distributor.run(late)
    assert bench.news() == [WorkReturned(13, 0, 1)]


def test_a_fan_out_goes_with_what_it_waits_for() -> None:
    bench = Bench(2)
    bench.give(10)
    bench.give(11, after_span=10)
    bench.give(12, after_span=10)
    bench.give(13, after_span=11)
    bench.distributor.stop(StopElements(11, 0, 1))
    assert bench.news() == [WorkReturned(13, 0, 1)]
    first, second = bench.runs()
    assert second == []
    assert [(run.record, run.after_span) for run in first] == [(10, 0), (12, first[0].span)]


def test_ends_of_tasks_that_were_handed_out_together_are_told_one_by_one() -> None:
    bench = Bench(1, Needs(2))
    bench.give(1)
    bench.give(2)
    (runs,) = bench.runs()
    said = bench.report(bench.members[0], CallsEnded(runs[0].span, 0, [1.0, 2.0], [b"a", b"b"]))
    assert [(one.span, one.seconds, one.results) for one in said] == [(1, 1.0, b"a"), (2, 2.0, b"b")]


def test_what_the_server_gave_for_all_is_shared_evenly() -> None:
    bench = Bench(4)
    bench.give(1, 80, is_array=True, expected=0.001)
    assert [[run.stop - run.start for run in told] for told in bench.runs()] == [[20], [20], [20], [20]]


# --- faults ----------------------------------------------------------------------------------------------


def test_what_ran_on_a_lost_executor_has_failed_and_others_get_the_rest() -> None:
    bench = Bench(2)
    bench.give(1, 100, is_array=True, expected=0.01)
    first, second = bench.runs()
    bench.report(bench.members[0], WorkSucceeded(first[0].span, 0, 2, 0.02))
    bench.distributor.lose(bench.members[0], "it is gone")
    (failed,) = bench.news()
    assert (failed.span, failed.index, failed.failure.cause, failed.host) == (1, 2, Cause.LOST, "host1")
    covered = set()
    while bench.distributor.server_spans:
        for run in second:
            covered |= set(range(run.start, run.stop))
            bench.report(bench.members[1], WorkSucceeded(run.span, run.start, run.stop, 0.01))
        _, second = bench.runs()
    assert covered == set(range(3, 100))


def test_a_failure_of_the_place_is_told_only_when_others_failed_too() -> None:
    bench = Bench(2)
    failure = Failure(Cause.NOT_STARTED, site=True)
    bench.give(1)
    (run,), _ = bench.runs()
    assert bench.report(bench.members[0], WorkFailed(run.span, 0, failure)) == []
    _, (again,) = bench.runs()
    assert again.attempt == 1
    (told,) = bench.report(bench.members[1], WorkFailed(again.span, 0, failure))
    assert (told.span, told.failure, told.host) == (1, failure, "host2")
    assert not bench.distributor.server_spans


def test_what_waits_to_be_tried_elsewhere_can_be_stopped() -> None:
    bench = Bench(2)
    bench.give(1)
    bench.give(2)
    (run,), _ = bench.runs()
    bench.report(bench.members[0], WorkFailed(run.span, 0, Failure(Cause.NOT_STARTED, site=True)))
    assert bench.runs() == [[], []]  # the other one is busy
    bench.distributor.stop(StopElements(1, 0, 1))
    assert list(bench.distributor.server_spans) == [2]
    assert bench.news() == []


def test_an_executor_that_is_back_is_compared_with_what_it_should_have() -> None:
    bench = Bench(1, Needs(2))
    bench.give(1)
    bench.give(2)
    (runs,) = bench.runs()
    member = bench.members[0]
    bench.distributor.shut(member)
    bench.distributor.back(member, {runs[0].span, 999})
    (told,) = bench.distribute()
    assert told[0] == StopElements(999, 0, 1 << 62)
    assert [message.record for message in told[1:]] == [2]  # it never arrived


def test_without_executors_what_waits_goes_back() -> None:
    bench = Bench(1)
    bench.give(1, 10, is_array=True)
    bench.runs()
    bench.distributor.shut(bench.members[0])
    bench.distribute()
    assert bench.news() == [WorkReturned(1, 1, 10)]


def test_a_stop_reaches_whoever_has_the_elements() -> None:
    bench = Bench(2)
    bench.give(1, 10, is_array=True)
    (first,), (second,) = bench.runs()
    bench.distributor.stop(StopElements(1, 0, 1 << 62, 3.0))
    assert bench.distribute() == [[StopElements(first.span, 0, 1, 3.0)], [StopElements(second.span, 1, 2, 3.0)]]
    assert not bench.distributor.server_spans
    assert bench.report(bench.members[0], WorkSucceeded(first.span, 0, 1, 1.0)) == []


def test_when_the_relay_ends_everything_is_told() -> None:
    bench = Bench(1)
    bench.give(1, 3, is_array=True)
    bench.give(2)
    bench.give(3, after_span=2)
    bench.runs()
    bench.distributor.abandon("the end")
    said = bench.news()
    assert [(one.span, one.index) for one in said if isinstance(one, WorkFailed)] == [(1, 0)]
    returned = {(one.span, one.start, one.stop) for one in said if isinstance(one, WorkReturned)}
    assert returned == {(1, 1, 3), (2, 0, 1), (3, 0, 1)}


def test_the_last_to_leave_says_until_when_there_is_somebody() -> None:
    distributor = Distributor(Needs())
    members = [Member(number, "h", Needs(), until) for number, until in ((1, 50.0), (2, 70.0), (3, 0.0))]
    for member in members:
        distributor.join(member)
    assert distributor.until() == 0
    distributor.shut(members[2])
    assert distributor.until() == 70
    distributor.shut(members[1])
    assert distributor.until() == 50


# --- gathering -------------------------------------------------------------------------------------------


def end(start: int, stop: int, host: str = "h", results: bytes | None = None, span: int = 1) -> WorkSucceeded:
    return WorkSucceeded(span, start, stop, 1.0 * (stop - start), results, (Detail(start),), host=host)


def test_neighbouring_ends_of_one_host_become_one() -> None:
    started = WorkStarted(1, 9, 10)
    first, second, said = merge_news([end(2, 3), end(0, 2), end(3, 4), started, end(6, 7)])
    assert (first.start, first.stop, first.seconds) == (0, 4, 4.0)
    assert [detail.index for detail in first.details] == [0, 2, 3]
    assert second == end(6, 7)
    assert said is started


@pytest.mark.parametrize("other", [end(1, 2, host="elsewhere"), end(1, 2, results=b"r"), end(1, 2, span=2), end(2, 3)])
def test_ends_that_differ_stay_apart(other: WorkSucceeded) -> None:
    assert merge_news([end(0, 1), other]) == [end(0, 1), other]


# --- what is watched -------------------------------------------------------------------------------------


def test_plans_go_before_what_they_watch_and_once_to_a_member() -> None:
    bench = Bench(1)
    bench.distributor.blobs = {b"plan": b"p"}
    bench.give(7, watch=(b"plan",))
    bench.give(8, watch=(b"plan",))
    (told,) = bench.distribute()
    assert [type(message) for message in told] == [Blob, RunSpan]
    assert told[1].watch == (b"plan",)
    bench.report(bench.members[0], WorkSucceeded(told[1].span, 0, 1, 1.0))
    (told,) = bench.distribute()
    assert [type(message) for message in told] == [RunSpan]


def test_later_plans_and_ends_go_to_the_members_that_have_the_elements() -> None:
    bench = Bench(2)
    bench.distributor.blobs = {b"late": b"p"}
    bench.give(7, 3, is_array=True)
    (first,), (second,) = bench.runs()
    bench.distributor.watch(WatchElements(7, 1, 3, b"late"))
    bench.distributor.end(EndElements(7, 0, 3, Finish(), "m", "enough"))
    ends = [EndElements(run.span, run.start, run.stop, Finish(), "m", "enough") for run in (first, second)]
    assert bench.distribute() == [[ends[0]], [Blob(b"late", b"p"), WatchElements(second.span, 1, 2, b"late"), ends[1]]]
    bench.report(bench.members[0], WorkSucceeded(first.span, 0, 1, 1.0))
    (run, blob, watch), _ = bench.distribute()  # the rest is watched where it goes, and not ended: it did not run
    assert (blob, run.start) == (Blob(b"late", b"p"), 2)
    assert watch == WatchElements(run.span, 2, 3, b"late")


def test_a_member_that_comes_back_hears_again_what_came_later() -> None:
    bench = Bench(1)
    bench.distributor.blobs = {b"late": b"p"}
    bench.give(7)
    ((run,),) = bench.runs()
    bench.distributor.watch(WatchElements(7, 0, 1, b"late"))
    bench.distributor.end(EndElements(7, 0, 1, Finish(), "m"))
    (told,) = bench.distribute()
    bench.distributor.shut(bench.members[0])
    bench.distributor.back(bench.members[0], {run.span})
    assert bench.distribute() == [told]


def test_what_is_seen_is_told_in_the_servers_numbers_before_the_end() -> None:
    bench = Bench(1)
    bench.give(7, 2, is_array=True)
    ((run,),) = bench.runs()
    seen = [Fired(1.0, "m")]
    said = bench.report(
        bench.members[0],
        WorkObserved(run.span, 0, seen),
        WorkSucceeded(run.span, 0, 1, 1.0),
        WorkObserved(run.span, 0, seen),  # it has ended
    )
    assert [type(news) for news in said] == [WorkStarted, WorkObserved, WorkSucceeded]
    assert said[:2] == [WorkStarted(7, 0, 1, host="host1"), WorkObserved(7, 0, seen)]


def test_ends_are_not_merged_across_what_was_seen_in_between() -> None:
    first, second = (WorkSucceeded(7, start, start + 1, 1.0, host="h") for start in (0, 1))
    seen = WorkObserved(7, 1, [Fired(1.0, "m")])
    assert merge_news([first, seen, second]) == [first, seen, second]
    assert len(merge_news([first, second, seen])) == 2


def test_a_site_that_leaves_gives_back_what_waits_and_what_members_return() -> None:
    bench = Bench(2)
    bench.give(1, 4, is_array=True)
    runs = [run for told in bench.runs() for run in told]
    assert [(run.start, run.stop) for run in runs] == [(0, 1), (1, 2)]
    order = ClearOut(5.0, "given back: site b left")
    bench.distributor.clear(order)
    assert bench.news() == [WorkReturned(1, 2, 4)]
    assert bench.distribute() == [[order], [order]]
    one, two = bench.members
    failure = Failure(Cause.GIVEN_BACK, order.reason)
    assert bench.report(one, WorkReturned(runs[0].span, 0, 1)) == [WorkReturned(1, 0, 1)]
    assert bench.report(two, WorkFailed(runs[1].span, 1, failure)) == [WorkFailed(1, 1, failure, host="host2")]
    assert not bench.distributor.server_spans
    bench.distributor.back(one, set())  # it had lost its connection, and may not know
    assert order in bench.distribute()[0]


def test_a_site_that_returns_in_time_keeps_what_runs() -> None:
    bench = Bench(1)
    bench.give(1)
    [[run]] = bench.runs()
    bench.distributor.clear(ClearOut(5.0))
    bench.distributor.stay(StayOn())
    assert bench.distribute() == [[ClearOut(5.0), StayOn()]]
    assert bench.report(bench.members[0], WorkReturned(run.span, 0, 1)) == []  # it is handed out again, here
    assert [len(told) for told in bench.runs()] == [1]


# --- a full disk -----------------------------------------------------------------------------------------


def test_what_waits_for_space_is_named_as_the_server_knows_it_until_it_has_ended_or_is_lost() -> None:
    bench = Bench(3)
    bench.give(7, 100, is_array=True)
    bench.give(8)
    first, second, third = (told[0].span for told in bench.runs())
    distributor = bench.distributor
    for member, span in zip(bench.members, (first, second, third), strict=True):
        distributor.await_space(member, [span])
    assert distributor.space_awaited() == [7]  # once, though three of its parts wait
    distributor.await_space(bench.members[0], [])
    bench.report(bench.members[1], WorkSucceeded(second, 1, 2, 0.1))
    assert distributor.space_awaited() == [7]
    distributor.lose(bench.members[2], "it fell")
    assert distributor.space_awaited() == []
    distributor.await_space(bench.members[0], [first, 12345])  # also of what it has no more
    assert distributor.space_awaited() == [7]
    distributor.back(bench.members[0], {first})
    assert distributor.space_awaited() == []  # it says so again


# --- members that are suspended -------------------------------------------------------------------------

MISSING = Failure(Cause.EXIT, "there is no such program", site=True)


def fail_and_work(bench: Bench, count: int, bad: Member, good: Member, first: int = 1) -> None:
    """Tasks fail with one member for reasons of its place, and work with the other."""
    for span in range(first, first + count):
        bench.give(span)
        told = dict(zip(bench.members, bench.runs(now=1000.0), strict=True))
        if told[good]:  # it had room the longest: let the other one be next
            bench.report(good, WorkSucceeded(told[good][0].span, 0, 1, 0.1))
            bench.give(span + 1000)
            told = dict(zip(bench.members, bench.runs(now=1000.0), strict=True))
        assert told[bad], "it gets nothing any more"
        assert bench.report(bad, WorkFailed(told[bad][0].span, 0, MISSING)) == []
        [again] = dict(zip(bench.members, bench.runs(now=1000.0), strict=True))[good]
        [said] = bench.report(good, WorkSucceeded(again.span, 0, 1, 0.1))
        assert isinstance(said, WorkSucceeded)
    bench.distribute(now=1000.0)


def test_a_member_on_which_much_fails_that_works_elsewhere_is_suspended_and_comes_back() -> None:
    bench = Bench(2)
    bad, good = bench.members
    fail_and_work(bench, 4, bad, good)
    assert bad.is_open
    fail_and_work(bench, 1, bad, good, first=10)
    assert not bad.is_open
    assert bench.distributor.open == 1
    assert bench.distributor.has_resized
    [(member, rest, reason)] = bench.distributor.suspended
    assert (member, rest) == (bad, 60.0)
    assert reason == "5 tasks in a row failed there and worked elsewhere"
    bench.give(20)
    bench.give(21)
    assert bench.runs(now=1059.0)[0] == []
    assert not bench.distributor.end_rests(1059.0)
    assert bench.distributor.end_rests(1060.0)
    assert bad.is_open
    assert len(bench.runs(now=1060.0)[0]) == 1


def test_a_suspended_member_that_reconnects_is_still_suspended_and_rests_longer_the_next_time() -> None:
    bench = Bench(2)
    bad, good = bench.members
    fail_and_work(bench, 5, bad, good)
    bench.distributor.shut(bad)
    bench.distributor.back(bad, set())
    assert not bad.is_open
    assert bench.distributor.end_rests(2000.0)
    assert bad.is_open
    bench.distributor.suspended.clear()
    fail_and_work(bench, 5, bad, good, first=50)
    assert [rest for _, rest, _ in bench.distributor.suspended] == [120.0]
    bench.distributor.lose(bad, "it left")
    assert not bench.distributor.end_rests(1e9)
    assert bench.distributor.open == 1


def test_what_works_at_a_place_speaks_for_it() -> None:
    bench = Bench(2)
    bad, good = bench.members
    fail_and_work(bench, 4, bad, good)
    bench.give(90)
    bench.give(91)
    for member, [run] in zip(bench.members, bench.runs(), strict=True):
        bench.report(member, WorkSucceeded(run.span, 0, 1, 0.1))
    fail_and_work(bench, 4, bad, good, first=100)
    assert bad.is_open


def test_what_failed_at_a_suspended_member_waits_for_another_one() -> None:
    bench = Bench(2)
    bad, good = bench.members
    fail_and_work(bench, 4, bad, good)
    bench.give(30)
    bench.give(31)
    runs = dict(zip(bench.members, bench.runs(now=1000.0), strict=True))
    assert bench.report(bad, WorkFailed(runs[bad][0].span, 0, MISSING)) == []  # the other one is busy
    bad.trouble = 5
    bench.distributor._troubled[bad] = None
    assert bench.runs(now=1000.0) == [[], []]
    assert not bad.is_open
    assert bench.news() == []
    bench.report(good, WorkSucceeded(runs[good][0].span, 0, 1, 0.1))
    assert len(bench.runs(now=1000.0)[1]) == 1
