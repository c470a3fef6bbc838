"""The index of where data is: news about caches, files and transfers, and what is forgotten again."""

from __future__ import annotations

import math
from random import Random

import pytest

from bough.core.data.content_table import ContentTable
from bough.core.queries.facade import Queries
from bough.model.events import facts, news
from bough.model.events.facts import ExecutorJoined
from bough.model.ids import ExecutorId, FileId
from bough.model.sites.resources import Needs
from bough.testing.builders import executor, task
from tests.unit.core.core_bench import Bench


def digest(number: int) -> bytes:
    return number.to_bytes(32, "big")


def held(*numbers: int, size: int = 10) -> tuple[news.HeldContent, ...]:
    return tuple(news.HeldContent(digest(number), size) for number in numbers)


def changed(executor_: int, *added: int, removed: tuple[int, ...] = (), whole: bool = False) -> news.CacheChanged:
    return news.CacheChanged(ExecutorId(executor_), held(*added), tuple(digest(one) for one in removed), whole)


def hosts(bench: Bench, number: int) -> list[str]:
    return sorted(holder.host for holder in Queries(bench.machine).holders_of(digest(number)))


def test_news_of_caches_writes_no_fact_and_is_found_by_digest() -> None:
    bench = Bench(0)
    bench.tell(executor(1), executor(2))
    assert bench.tell(changed(1, 7, 8), changed(2, 8)).facts == []
    assert (hosts(bench, 7), hosts(bench, 8), hosts(bench, 9)) == (["host1"], ["host1", "host2"], [])
    bench.tell(changed(1, removed=(8, 9)))
    assert hosts(bench, 8) == ["host2"]
    bench.tell(changed(1, 5, whole=True))
    assert (hosts(bench, 7), hosts(bench, 5)) == ([], ["host1"])
    bench.tell(changed(99, 1))  # nobody knows it
    assert hosts(bench, 1) == []


def test_the_executors_of_a_host_share_a_holder_until_the_last_has_left() -> None:
    bench = Bench(0)
    one = executor(1)
    other = ExecutorJoined(ExecutorId(2), one.site, one.host, 5, Needs(cores=1), 0.0)
    bench.tell(one, other, changed(1, 7))
    (holder,) = Queries(bench.machine).holders_of(digest(7))
    assert holder.executors == (1, 2)
    bench.tell(facts.ExecutorLost(ExecutorId(1), "gone"))
    assert hosts(bench, 7) == ["host1"]
    bench.tell(facts.ExecutorLost(ExecutorId(2), "gone"))
    data = bench.machine.state.data
    assert (hosts(bench, 7), data.pairs, data.contents.count, data.hosts) == ([], 0, 0, {})
    bench.tell(executor(3), changed(3, 8))  # in the place of the first
    assert hosts(bench, 8) == ["host3"]


def test_the_shared_store_of_a_site_holds_for_all_that_see_it_and_serves_no_peers() -> None:
    bench = Bench(0)
    bench.tell(executor(1, site="a"), executor(2, site="a"), executor(3, site="b"))
    queries, data = Queries(bench.machine), bench.machine.state.data
    bench.tell(news.CacheChanged(ExecutorId(1), held(7), shared=True), news.CacheChanged(ExecutorId(2), shared=True))
    assert (queries.store_has("a", digest(7)), queries.store_has("b", digest(7))) == (True, False)
    assert hosts(bench, 7) == []
    assert not queries.knows_store("a")
    bench.tell(news.CacheChanged(ExecutorId(2), held(8), whole=True, shared=True))
    assert queries.knows_store("a")
    assert (queries.store_has("a", digest(7)), queries.store_has("a", digest(8))) == (False, True)
    bench.tell(facts.ExecutorLost(ExecutorId(1), "gone"))
    assert queries.store_has("a", digest(8))
    bench.tell(facts.ExecutorLost(ExecutorId(2), "gone"))
    assert (data.stores, data.pairs, data.contents.count) == ({}, 0, 0)


def test_hosts_of_the_same_name_at_two_sites_are_two() -> None:
    bench = Bench(0)
    one = executor(1, site="a")
    bench.tell(one, ExecutorJoined(ExecutorId(2), "b", one.host, 5, Needs(cores=1), 0.0), changed(2, 7))
    (holder,) = Queries(bench.machine).holders_of(digest(7))
    assert (holder.site, holder.executors) == ("b", (2,))


def test_a_file_has_the_content_that_was_found_in_it_last() -> None:
    bench = Bench(0)
    bench.submit(task(1, reads=("/a", "/b")))
    queries, run = Queries(bench.machine), bench.machine.state.run
    number = queries.file_number(run, "/b")
    assert number > 0
    assert queries.file_number(run, "/c") == queries.file_number(99, "/b") == 0
    assert queries.file_content(run, number) is None
    said = news.FilesIdentified(run, (news.IdentifiedFile(FileId(number), digest(4), 100),))
    assert bench.tell(said).facts == []
    assert queries.file_content(run, number) == (digest(4), 100)
    bench.tell(news.FilesIdentified(run, (news.IdentifiedFile(FileId(number), digest(5), 50),)))
    assert queries.file_content(run, number) == (digest(5), 50)
    assert bench.machine.state.data.contents.count == 1
    strange = news.IdentifiedFile(FileId(1 << 60), digest(6), 1)
    bench.tell(news.FilesIdentified(run, (strange,)), news.FilesIdentified(77, (strange,)))
    assert bench.machine.state.data.contents.count == 1


def test_a_content_that_no_file_and_no_host_has_is_forgotten() -> None:
    bench = Bench(0)
    bench.submit(task(1, reads=("/a",)))
    data, run = bench.machine.state.data, bench.machine.state.run
    bench.tell(executor(1), changed(1, 4, 5))
    bench.tell(news.FilesIdentified(run, (news.IdentifiedFile(FileId(1), digest(4), 10),)))
    bench.tell(changed(1, whole=True))
    assert data.contents.find(digest(5)) == -1
    assert data.files_of(data.contents.find(digest(4))) == [(run, 1)]
    data.forget_run(run)
    assert data.contents.count == 0


def test_bytes_that_moved_tell_how_fast_a_link_is() -> None:
    bench = Bench(0)
    bench.tell(executor(1), executor(2))
    bench.tell(news.BytesMoved(ExecutorId(1), "origin", 10_000_000, 1.0))
    bench.tell(news.BytesMoved(ExecutorId(1), "host2", 1_000_000, 0.01), news.BytesMoved(ExecutorId(9), "x", 5, 5.0))
    data = bench.machine.state.data
    first, second = data.hosts.values()
    measured = [data.rate_between(source, host) for host in (first, second) for source in ("origin", "host2", "host9")]
    assert [round(rate.rate / 1e6) for rate in measured if rate is not None] == [10, 100, 100, 10, 100, 100]


def test_what_one_executor_says_of_a_link_is_forgotten_however_wrong_it_is() -> None:
    bench = Bench(0)
    bench.tell(executor(1), executor(2))
    bench.tell(news.BytesMoved(ExecutorId(1), "origin", 1 << 62, 5e-324))
    for _ in range(60):
        bench.tell(news.BytesMoved(ExecutorId(2), "origin", 10_000_000, 1.0))
    data = bench.machine.state.data
    assert all(math.isfinite(rate.rate) for host in data.hosts.values() for rate in host.rates.values())
    assert round(data.fastest / 1e6) == 10


@pytest.mark.parametrize("seed", range(4))
def test_any_history_leaves_what_was_told_last(seed: int) -> None:
    random = Random(seed)
    bench = Bench(0)
    many = 60  # more than are listed one by one
    for number in range(1, many + 1):
        bench.machine.turn(0.0, [executor(number)])
    truth: dict[int, set[int]] = {number: set() for number in range(1, many + 1)}
    for _ in range(1500):
        number = random.randint(1, many)
        if random.random() < 0.01:
            bench.machine.turn(0.0, [facts.ExecutorLost(ExecutorId(number), "gone"), executor(number)])
            truth[number] = set()
            continue
        added = {min(random.randint(0, 40), random.randint(0, 40)) for _ in range(random.randint(0, 6))}
        removed = {random.randint(0, 40) for _ in range(random.randint(0, 2))} - added
        whole = random.random() < 0.05
        bench.machine.turn(0.0, [changed(number, *added, removed=tuple(removed), whole=whole)])
        truth[number] = set(added) if whole else (truth[number] - removed) | added
    data = bench.machine.state.data
    for content in range(41):
        expected = sorted(f"host{number}" for number in truth if content in truth[number])
        assert hosts(bench, content) == expected
    assert data.pairs == sum(map(len, truth.values()))
    for record in data.hosts.values():
        number = int(record.host.removeprefix("host"))
        found = {int.from_bytes(data.contents.digest(one), "big") for one in record.contents(data)}
        assert (found, record.held) == (truth[number], len(truth[number]))


def test_the_table_of_contents_gives_numbers_again() -> None:
    table, random = ContentTable(), Random(1)
    known: dict[int, int] = {}
    for _ in range(20_000):
        number = random.randint(0, 300)
        if number in known and random.random() < 0.5:
            table.remove(known.pop(number))
        else:
            known.setdefault(number, table.add(digest(number), number))
    assert table.count == len(known)
    assert {number: table.find(digest(number)) for number in range(301)} == {
        number: known.get(number, -1) for number in range(301)
    }
    assert all(table.sizes[at] == number for number, at in known.items())
    assert len(table.sizes) <= 301
