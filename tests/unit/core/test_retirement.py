"""Workflows that are over leave the core and come back; nobody else notices."""

from __future__ import annotations

import gc
from collections import Counter

import pytest
from msgspec import structs

from bough.core import retirement
from bough.core.invariants import picture
from bough.core.queries.facade import Queries
from bough.model.events import facts, news
from bough.model.ids import GroupId
from bough.model.states import TaskState
from bough.model.tasks import Dep, On
from bough.testing.builders import BOOM, array, executor, group, on_group, task
from tests.unit.core.core_bench import Bench, on


def opened(run: int, name: str = "") -> facts.RunOpened:
    return facts.RunOpened(run, name or f"w{run}", "h", 1, group=GroupId(run))


def finished() -> Bench:
    """A workflow, run 2, that is over with a failure, and another one, run 3, that goes on."""
    bench = Bench(0)
    bench.tell(opened(2), opened(3), executor(1, 4))
    bench.submit(
        group(50, "sub", 2), group(51, "below", 50), array(101, 5, group=51), task(100, group=50, template="t")
    )
    bench.submit(task(102, on_group(50), group=2, template="t"), task(200, group=3, template="t"))
    bench.fail(100)
    bench.end(101, 0, 1)
    for index in range(1, 5):
        bench.end(101, index)
    bench.tell(*(news.GroupClosed(GroupId(id_)) for id_ in (51, 50, 2)), facts.RunClosed(2))
    return bench


def kept(bench: Bench, run: int = 2) -> bytes:
    return retirement.pack(list(retirement.pieces(bench.machine.state, run)))


def test_one_that_is_over_leaves_and_comes_back_as_it_was() -> None:
    bench = finished()
    before, data = picture(bench.machine.state), kept(bench)

    bench.tell(facts.RunRetired(2))
    state = bench.machine.state
    assert (set(state.records), set(state.groups), set(state.workflows)) == ({200}, {0, 3}, {1, 3})
    assert not any(key[1] == 2 for key in state.queues)

    bench.tell(facts.RunRevived(2, data))
    now = picture(bench.machine.state)
    for part in ("records", "groups", "workflows", "spans"):
        assert now[part] == before[part]


def test_what_failed_can_be_tried_again_after_it_came_back() -> None:
    bench = finished()
    data = kept(bench)
    bench.tell(facts.RunRetired(2))
    bench.restart()
    bench.tell(facts.RunRevived(2, data))

    bench.tell(news.Retry(Dep(On.GROUP, 50)))
    bench.end(100)
    assert bench.state(102) == "placed", "it had not run because of the failure"
    bench.end(102)
    assert (2, False) in bench.finished
    assert retirement.may_retire(bench.machine.state, 2)


def test_one_that_goes_on_does_not_leave() -> None:
    bench = finished()
    bench.tell(facts.RunRetired(3), facts.RunRetired(1), facts.RunRetired(77))
    assert set(bench.machine.state.workflows) == {1, 2, 3}
    bench.tell(news.Retry(on(100)))
    bench.tell(facts.RunRetired(2))
    assert 2 in bench.machine.state.workflows, "something of it is tried again"


def test_one_that_is_here_does_not_come_back_twice() -> None:
    bench = finished()
    data = kept(bench)
    assert bench.tell(facts.RunRevived(2, data)).facts == []


def test_one_that_comes_back_gives_way_to_one_that_has_its_name_now() -> None:
    bench = finished()
    data = kept(bench)
    bench.tell(facts.RunRetired(2))
    bench.tell(opened(4, "w2"))
    bench.tell(facts.RunRevived(2, data))
    assert [bench.machine.state.groups[id_].name for id_ in (2, 4)] == ["w2#2", "w2"]


def test_one_that_left_is_removed_without_a_word() -> None:
    bench = finished()
    bench.tell(facts.RunRetired(2))
    before = picture(bench.machine.state)["records"]
    assert bench.tell(facts.RunRemoved(2)).facts == [facts.RunRemoved(2)]
    assert picture(bench.machine.state)["records"] == before


def test_one_that_left_can_be_looked_at_beside_the_core() -> None:
    bench = finished()
    data = kept(bench)
    bench.tell(facts.RunRetired(2))
    queries = Queries(bench.machine)
    assert not queries.can_find(100)

    queries.look_at([queries.read_retired(data)])

    assert queries.state_of(100, 0) is TaskState.FAILED
    assert "failed" in queries.explain(100, 0)[0]
    assert [success.start for success in queries.results_of(Dep(On.ARRAY, 101))] == [0, 1, 2, 3, 4]
    assert not queries.has_record(100)
    assert set(bench.machine.state.records) == {200}


def test_the_memory_of_one_that_left_is_free_at_once() -> None:
    """A server does not look for garbage: among millions of tasks that would take too long."""
    kinds = ("Workflow", "GroupRecord", "TaskRecord", "ArrayRecord", "ReadyQueue", "ThrottledQueue", "Branch", "Crown")

    def there() -> Counter[str]:
        return Counter(name for one in gc.get_objects() if (name := type(one).__name__) in kinds)

    bench = Bench(0)
    machine = bench.machine
    machine.turn(0.0, [executor(1, 4)])
    gc.collect()
    gc.disable()
    try:
        before = there()
        for run in (2, 3):
            limited = structs.replace(group(50 + run, "limited", run), limit=1)
            items = [
                limited,
                array(1000 * run, 5, group=run),
                *(task(1000 * run + n, group=50 + run) for n in (1, 2, 3)),
            ]
            items += [
                task(1000 * run + 4, 1000 * run + 1, group=run),
                task(1000 * run + 5, on_group(50 + run), group=run),
            ]
            machine.turn(0.0, [opened(run), facts.Submitted(items)])
            machine.turn(0.0, [news.WorkFailed(next(iter(machine.state.spans)), 0, BOOM)])
            machine.turn(0.0, [news.GroupClosed(GroupId(50 + run)), news.GroupClosed(GroupId(run))])
            while machine.state.spans:
                span = next(iter(machine.state.spans.values()))
                machine.turn(0.0, [news.WorkSucceeded(span.id, *span.left[0], 1.0)])
            machine.turn(0.0, [facts.RunClosed(run)])
            machine.turn(0.0, [facts.RunRetired(run) if run == 2 else facts.RunRemoved(run)])
            assert run not in machine.state.workflows
            del span, limited, items
        assert there() == before
    finally:
        gc.enable()


def test_a_big_one_is_kept_in_pieces() -> None:
    bench = Bench(0)
    bench.tell(opened(2))
    many = 2 * retirement.PIECE + 1
    machine = bench.machine
    machine.turn(0.0, [facts.Submitted([task(100 + number, group=2) for number in range(many)])])
    machine.turn(0.0, [news.Cancel(Dep(On.GROUP, 2)), news.GroupClosed(GroupId(2)), facts.RunClosed(2)])
    found = list(retirement.pieces(machine.state, 2))
    assert len(found) == 3
    assert sum(len(piece.tasks) for piece in retirement.unpack(retirement.pack(found))) == many


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x92\x01\x91\xc4\x01x", b"\x92\x07\x90"])
def test_what_cannot_be_read_is_said_to_be_so(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        retirement.unpack(data)


def test_run_times_that_nobody_uses_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retirement, "MOST_RUNTIMES", 10)
    bench = Bench(4)
    bench.tell(opened(2))
    bench.submit(task(1, group=2, template="stays"))
    for run in range(3, 60):
        bench.tell(opened(run))
        bench.submit(task(1000 * run, group=run, template=f"template{run}"))
        bench.end(1000 * run)
        bench.tell(news.GroupClosed(GroupId(run)), facts.RunClosed(run))
        bench.tell(facts.RunRetired(run))
    state = bench.machine.state
    assert len(state.runtimes) <= 11
    assert {"stays", "template59"} <= set(state.runtimes)
    assert not state.shared_specs.keys() - {bench.task(1).shared_spec.body}
