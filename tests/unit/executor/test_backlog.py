from __future__ import annotations

from bough.executor.slots.backlog import Backlog, Capacity, QueuedSpan
from bough.model.ids import BlobId, RecordId, SpanId
from bough.model.sites.resources import Needs
from bough.model.tasks import Kind
from bough.wire.executor_messages import RunSpan


def a_run(span: int = 1, start: int = 0, stop: int = 1, needs: Needs | None = None) -> RunSpan:
    return RunSpan(SpanId(span), RecordId(span), start, stop, 1, Kind.FUNCTION, BlobId(b""), needs=needs or Needs())


def test_what_is_taken_and_given_back_leaves_what_there_was() -> None:
    capacity = Capacity(Needs(cores=4, memory=100, named=(("licence", 2),)))
    wanted = Needs(cores=0.1, memory=40, named=(("licence", 1),))
    capacity.take(wanted)
    capacity.take(wanted)
    assert not capacity.fits(wanted)
    capacity.give(wanted)
    assert capacity.fits(wanted)
    capacity.give(wanted)
    assert {name: round(amount, 9) for name, amount in capacity.free.items()} == capacity.total


def test_ten_tenths_of_a_core_fit_into_one() -> None:
    capacity = Capacity(Needs(cores=1))
    for _ in range(10):
        assert capacity.fits(Needs(cores=0.1))
        capacity.take(Needs(cores=0.1))
    assert not capacity.fits(Needs(cores=0.1))


def test_an_unknown_resource_never_fits() -> None:
    assert not Capacity(Needs(cores=4)).fits(Needs(named=(("licence", 1),)))


def test_the_earliest_that_fits_is_first() -> None:
    backlog = Backlog()
    for span, cores in ((1, 4), (2, 1), (3, 2), (4, 1)):
        backlog.add(a_run(span, needs=Needs(cores=cores)))
    capacity = Capacity(Needs(cores=2))
    order = []
    while (needs := backlog.first(capacity)) is not None:
        order.append(backlog.take(needs).run.span)
    assert order == [2, 3, 4]
    assert backlog.length == 1
    assert backlog.is_earliest(Needs(cores=4))
    assert not backlog.is_earliest(Needs(cores=1))


def test_what_is_put_back_is_first_again() -> None:
    backlog = Backlog()
    for span in range(5):
        backlog.add(a_run(span))
    taken = [backlog.take(Needs()) for _ in range(3)]
    backlog.put_back(taken[1:])
    assert [backlog.take(Needs()).run.span for _ in range(4)] == [1, 2, 3, 4]


def test_dropping_a_part_of_a_span_leaves_the_others_in_place() -> None:
    backlog = Backlog()
    backlog.add(a_run(1, 0, 10))
    backlog.add(a_run(2))
    backlog.drop(SpanId(1), 3, 5)
    backlog.drop(SpanId(1), 8, 20)
    assert backlog.length == 3
    found = [backlog.take(Needs()).run for _ in range(3)]
    assert [(run.span, run.start, run.stop) for run in found] == [(1, 0, 3), (1, 5, 8), (2, 0, 1)]
    backlog.add(a_run(3))
    backlog.drop(SpanId(3), 0, 1)
    assert backlog.length == 0
    assert backlog.first(Capacity(Needs(cores=1))) is None


def test_ranges_that_are_not_stopped_are_kept() -> None:
    held = QueuedSpan(a_run(1, 0, 10), 1)
    held.stopped = [(2, 4), (3, 6), (9, 12)]
    assert held.kept(0, 10) == [(0, 2), (6, 9)]
    assert held.kept(3, 5) == []
    assert held.is_stopped(5)
    assert not held.is_stopped(6)
