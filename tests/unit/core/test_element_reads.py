"""Elements of arrays that say what they read: packed, checked, numbered, and placed one by one."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from bough.core.data import declared_files
from bough.core.machine import Machine
from bough.core.queries.facade import Queries
from bough.core.records.array_record import READY
from bough.model.arrays.element_reads import ElementReads, ReadTable, pack_reads, why_wrong
from bough.model.events import news
from bough.model.events.facts import ExecutorJoined, Placed
from bough.model.events.orders import Refuse
from bough.model.ids import ExecutorId, FileId
from bough.model.sites.resources import Needs
from bough.model.tasks import Page
from bough.policy.interface import DataNeeds, Place
from bough.testing.builders import array, executor, limits, submit
from tests.unit.core.core_bench import Bench
from tests.unit.policies.data_bench import DataBench
from tests.unit.policies.data_bench import digest as digest_of


def test_what_is_packed_is_found_by_element() -> None:
    rows = [["/a"], ["/b", "/a"], [], ["/c", "/c"]]
    packed = pack_reads(rows)
    assert packed is not None
    assert (packed.files, len(packed.stops)) == (("/a", "/b", "/c"), 16)
    assert why_wrong(packed, 4, is_open=False) == ""
    numbered = msgspec.structs.replace(packed, files=(7, 8, 9))
    table = ReadTable(numbered, 4)
    assert [list(table.of(element)) for element in range(6)] == [[7], [8, 7], [], [9], [], []]


def test_equally_many_reads_need_no_ends() -> None:
    packed = pack_reads([["/a", "/b"], ["/b", "/c"]])
    assert packed is not None
    assert packed.stops == b""
    table = ReadTable(msgspec.structs.replace(packed, files=(1, 2, 3)), 2)
    assert [list(table.of(element)) for element in range(3)] == [[1, 2], [2, 3], []]
    assert pack_reads([[], []]) is None
    ends = pack_reads([["/a"], ["/b"]], is_open=True)
    assert ends is not None
    assert why_wrong(ends, 1, is_open=True) == ""
    assert why_wrong(ends, 1, is_open=False)


def test_what_is_put_is_read_and_nobody_is_looked_for_who_has_it() -> None:
    rows = [["/db", "/q1", "/q1"], ["/db", "/q2", "/q2", "/q1"], ["/q1", "/q1"], ["/db", "/db", "/db"]]
    packed = pack_reads(rows, put=2)
    assert packed is not None
    assert (packed.files, packed.fresh) == (("/db", "/q2", "/q1"), 1)
    assert why_wrong(packed, 4, is_open=False) == ""
    table = ReadTable(msgspec.structs.replace(packed, files=(1, 2, 3)), 4)
    assert [list(table.of(element)) for element in range(5)] == [[1, 3], [1, 2, 3], [3], [1], []]
    assert [list(table.reusable(element)) for element in range(5)] == [[1], [1, 2], [], [1], []]
    even = pack_reads([["/db", "/q1"], ["/db", "/q2"]], put=1)
    assert even is not None
    assert even.stops == b""
    table = ReadTable(msgspec.structs.replace(even, files=(1, 2, 3)), 2)
    assert [list(table.of(element)) for element in range(3)] == [[1, 2], [1, 3], []]
    assert [list(table.reusable(element)) for element in range(3)] == [[1], [1], []]


def test_a_file_that_one_element_puts_and_another_one_stores_has_one_number() -> None:
    packed = pack_reads([["/x", "/y"], ["/x", "/x"]], put=1)
    bench = Bench(0)
    bench.submit(array(1, 2, reads=pack_reads([["/x", "/x"], ["/x"]], put=1)), array(2, 2, reads=packed))
    record, other = (bench.machine.state.records[number] for number in (1, 2))
    assert [list(record.files_of(element)) for element in (0, 1)] == [[1], [1]]
    assert [list(record.reusable_files_of(element)) for element in (0, 1)] == [[1], []]
    assert [list(other.files_of(element)) for element in (0, 1)] == [[1, 2], [1]]
    assert record.has_inputs
    bench.submit(array(3, 1, reads=pack_reads([["/x"]], put=1)))
    only = bench.machine.state.records[3]
    assert (only.declares_reads, only.has_inputs) == (True, False)


def test_a_file_that_is_put_counts_as_read_when_its_element_is_done() -> None:
    bench = Bench(2)
    bench.submit(array(1, 2, reads=pack_reads([["/x"], ["/x"]], put=1)))
    lives = bench.machine.state.workflows[1].lives
    for index in (0, 1):
        assert lives.is_unread(1)
        bench.start(1, index)
        bench.end(1, index)
    assert not lives.is_unread(1)


@pytest.mark.parametrize(
    "reads",
    [
        ElementReads(("/a",), b"\0\0\0\0" * 2, b"", 2),
        ElementReads(("/a",), b"\0\0\0"),
        ElementReads(("/a",), b"\0\0\0\0" * 3),
        ElementReads(("/a",), b"\1\0\0\0" * 2),
        ElementReads(("/a",), b"\0\0\0\0" * 2, b"\2\0\0\0\1\0\0\0"),
        ElementReads(("/a",), b"\0\0\0\0" * 2, b"\1\0\0\0\1\0\0\0"),
        ElementReads(("/a",), b"\0\0\0\0" * 2, b"\1\0\0\0"),
        ElementReads((FileId(1),), b"\0\0\0\0" * 2),
        ElementReads((), b"\0\0\0\0" * 2),
    ],
)
def test_reads_that_do_not_fit_are_refused(reads: ElementReads) -> None:
    Bench(1).refuse(array(1, 2, reads=reads))


def test_files_of_elements_are_numbered_with_those_of_tasks() -> None:
    bench = Bench(0)
    bench.submit(array(1, 2, reads=pack_reads([["/x"], ["/y"]])))
    files = bench.machine.state.workflows[1].files
    assert [file.path for file in files.all()] == ["/x", "/y"]
    record = bench.machine.state.records[1]
    assert [list(record.files_of(element)) for element in (0, 1)] == [[1], [2]]
    assert record.spec_for_executors.reads is None
    reads = Queries(bench.machine).reads_path
    assert [[reads(1, index, path) for path in ("/x", "/y", "/z")] for index in (0, 1, 2)] == [
        [True, False, False],
        [False, True, False],
        [False, False, False],
    ]


class Wishes:
    """Places the elements that it is told, and nothing else."""

    data_needs = DataNeeds()

    def __init__(self) -> None:
        self.wanted: list[Place] = []

    def rank(self, work: object, /) -> float:
        return 0.0

    def place(self, view: object, /) -> list[Place]:
        wanted, self.wanted = self.wanted, []
        return wanted


def test_a_given_element_goes_out_of_turn_and_an_unlawful_wish_is_passed_over() -> None:
    policy = Wishes()
    bench = Bench(4, policy=policy)
    bench.submit(array(1, 10))
    policy.wanted = [
        Place(1, 1, 1, start=7),
        Place(1, 1, 1, start=7),
        Place(1, 1, 1, start=99),
        Place(1, 1, 2, start=2),
    ]
    placed = [fact for fact in bench.tell(executor(2)).facts if isinstance(fact, Placed)]
    assert [(fact.start, fact.stop) for fact in placed] == [(7, 8), (2, 3)]  # one at a time: the run time is unknown
    policy.wanted = [Place(1, 2), Place(1, 2)]
    placed = [fact for fact in bench.tell(executor(3)).facts if isinstance(fact, Placed)]
    assert [fact.start for fact in placed] == [0, 1]
    policy.wanted = [Place(1, 3), Place(1, 3)]
    placed = [fact for fact in bench.tell(executor(4)).facts if isinstance(fact, Placed)]
    assert [fact.start for fact in placed] == [3, 4]


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_elements_gives_each_once(seed: int) -> None:
    """Elements go out in any order, fail, come back, are cancelled and held; the laws hold after every turn."""
    dice, policy = Random(seed), Wishes()
    bench = Bench(0, policy=policy)
    bench.tell(ExecutorJoined(ExecutorId(1), "s", "h", 1, Needs(cores=6)))
    bench.submit(array(1, 30, limits=limits(retries=2)))
    record = bench.machine.state.records[1]
    for _ in range(120):
        ready = [element for element in range(30) if record.state_of(element) == READY]
        policy.wanted = [Place(1, 1, 1, start=dice.choice(ready)) for _ in range(2) if ready]
        policy.wanted += [Place(1, 1)] if dice.random() < 0.3 else []
        spans = list(bench.machine.state.spans.values())
        deed = dice.random()
        if not spans or deed < 0.1:
            bench.machine.state.due = True
            bench.tell()
            continue
        span = dice.choice(spans)
        index = span.left[0][0]
        if deed < 0.6:
            bench.tell(news.WorkSucceeded(span.id, index, index + 1, 10.0))
        elif deed < 0.8:
            bench.tell(news.WorkReturned(span.id, index, index + 1))
        else:
            bench.fail(1, index)
        if dice.random() < 0.05:
            bench.restart()
            record = bench.machine.state.records[1]
    policy.wanted = []


def fed(start: int, *rows: list[str], put: int = 0) -> Page:
    return Page(start, start + len(rows), b"rows", reads=pack_reads(rows, put=put))


def test_elements_that_are_fed_say_what_they_read_page_by_page() -> None:
    bench = Bench(0)
    bench.submit(array(1, 0, open=True, fed=True, pages=()))
    assert bench.tell(news.PagesAdded(1, [fed(0, ["/a"], ["/b", "/a"]), fed(2, ["/c"])])).orders == []  # type: ignore[arg-type]
    record = bench.machine.state.records[1]
    bench.tell(news.PagesAdded(1, [fed(3, ["/a", "/c"], [], put=1)]))  # type: ignore[arg-type]
    names = {file.id: file.path for file in record.group.workflow.files.all()}
    assert sorted(names.values()) == ["/a", "/b", "/c"]
    read = [[names[file] for file in record.files_of(index)] for index in range(6)]
    assert read == [["/a"], ["/b", "/a"], ["/c"], ["/a", "/c"], [], []]
    assert [[names[file] for file in record.reusable_files_of(index)] for index in (2, 3, 4)] == [["/c"], ["/a"], []]
    assert all(page.reads is None for page in record.pages(0, 5))  # executors need none of it
    again = Machine.restore(bench.machine.snapshot(), bench.machine.state.policies)
    kept = again.state.records[1]
    assert [[names[file] for file in kept.files_of(index)] for index in range(5)] == read[:5]


def test_fed_elements_go_where_their_data_is() -> None:
    shop = DataBench("max-compute-util")
    shop.executor(1, site="s1")
    shop.executor(2, "b", site="s2")
    shop.tell(submit(array(1, 0, open=True, fed=True, pages=()), request=1))
    run = shop.machine.state.run
    named = (news.NamedContent("/b", digest_of("b"), 100),)
    shop.tell(news.PagesAdded(1, [fed(0, ["/b"])]), news.FilesIdentified(run, (), named))  # type: ignore[arg-type]
    assert shop.went[1, 0] == 2


@pytest.mark.parametrize(
    "reads",
    [
        ElementReads(("/a",), b"\0\0\0\0" * 2, b"", 2),
        ElementReads(("/a",), b"\0\0\0"),
        ElementReads(("/a",), b"\1\0\0\0"),
        ElementReads((FileId(1),), b"\0\0\0\0"),
        ElementReads(("/a",), b"\0\0\0\0", b"\1\0\0\0\1\0\0\0"),
    ],
)
def test_pages_whose_reads_do_not_fit_are_refused(reads: ElementReads) -> None:
    bench = Bench(0)
    bench.submit(array(1, 0, open=True, fed=True, pages=()))
    turn = bench.tell(news.PagesAdded(1, [Page(0, 1, b"rows", reads=reads)]))  # type: ignore[arg-type]
    assert [type(order) for order in turn.orders] == [Refuse]
    assert turn.facts == []


def test_a_feed_that_goes_on_and_on_numbers_no_more_files_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared_files, "MOST_FED", 3)
    bench = Bench(0)
    bench.submit(array(1, 0, open=True, fed=True, pages=()))
    for number in range(6):
        bench.tell(news.PagesAdded(1, [fed(number, [f"/{number}"])]))  # type: ignore[arg-type]
    record = bench.machine.state.records[1]
    assert [len(record.files_of(index)) for index in range(6)] == [1, 1, 1, 0, 0, 0]


def test_what_was_there_when_a_fed_element_was_placed_is_noted_as_of_others() -> None:
    shop = DataBench("max-compute-util")
    shop.executor(1, "b")
    shop.tell(submit(array(1, 0, open=True, fed=True, pages=()), request=1))
    named = (news.NamedContent("/b", digest_of("b"), 100),)
    shop.tell(
        news.PagesAdded(1, [fed(0, ["/b"])]),  # type: ignore[arg-type]
        news.FilesIdentified(shop.machine.state.run, (), named),
    )
    assert shop.went[1, 0] == 1
    assert shop.machine.state.affinity.units == {}
    assert any("its input" in line for line in shop.machine.explain(1, 0)), shop.machine.explain(1, 0)
