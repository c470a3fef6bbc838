from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from types import SimpleNamespace

from server_fakes import FakeLoop

from bough.core.machine import Machine
from bough.core.queries.answers import TaskCounts
from bough.core.queries.facade import Queries
from bough.model.events.facts import ElementFailed, MemoLookedUp, Skipped, SpanEnded
from bough.model.outcomes import Cause, Detail, Failure, Staged
from bough.policies.policy_registry import load_policies
from bough.server.peers import Peers
from bough.server.service.upkeep import cache_counts
from bough.server.service.upkeep import metrics as module
from bough.server.service.upkeep.cache_counts import CacheCounts
from bough.server.service.upkeep.metrics import MetricsPage, Statistics, read_address
from bough.server.service.upkeep.prometheus_text import exposition
from bough.wire import questions


def make() -> tuple[FakeLoop, Statistics]:
    loop = FakeLoop()
    return loop, Statistics(loop, Queries(Machine(load_policies("fifo"))), Peers())  # type: ignore[arg-type]


def test_a_sample_a_second_is_kept_for_an_hour_and_no_longer() -> None:
    loop, statistics = make()
    statistics.start()

    for _ in range(module.KEPT + 50):
        loop.advance(1.0)

    assert len(statistics.samples) == module.KEPT
    assert statistics.samples[-1].at - statistics.samples[0].at == module.KEPT - 1
    statistics.stop()
    count = len(loop.timers)
    loop.advance(5)
    assert len(loop.timers) < count or count == 0


def test_what_ended_is_counted_and_timed() -> None:
    loop, statistics = make()
    failure = Failure(Cause.EXIT)
    statistics.start()
    statistics.hear(
        [
            SpanEnded(1, 0, 90, 1.0),  # type: ignore[arg-type]
            ElementFailed(2, 0, failure, retry_at=5.0),  # type: ignore[arg-type]
            ElementFailed(2, 0, failure),  # type: ignore[arg-type]
            Skipped(3, 0, 4, failure),  # type: ignore[arg-type]
            MemoLookedUp(4, 0, 5, found=True),  # type: ignore[arg-type]
            MemoLookedUp(4, 5, 9, found=False),  # type: ignore[arg-type]
        ]
    )
    loop.advance(1.0)
    first = statistics.samples[-1]
    assert (first.ended, first.failed, first.reused, first.throughput) == (100, 5, 5, 100.0)

    for _ in range(9):
        loop.advance(1.0)
    last = statistics.samples[-1]
    assert (last.throughput, last.throughput_60) == (0.0, 10.0)
    assert last.memory > 1_000_000
    assert last.cpu_seconds > 0


def test_summing_over_many_groups_is_not_done_every_second() -> None:
    loop, statistics = make()
    calls = []

    class Slow(Queries):
        def counts(self, groups: object = None) -> TaskCounts:
            calls.append(1)
            end = module.time.perf_counter() + 0.05
            while module.time.perf_counter() < end:
                pass
            return TaskCounts((0, 0, 7, 0, 0, 0, 0, 0, 0))

    statistics._queries = Slow(Machine(load_policies("fifo")))
    samples = [statistics.sample() for _ in range(5)]

    assert len(calls) == 1
    assert {sample.ready for sample in samples} == {7}
    assert loop.timers == []


def test_the_text_for_prometheus_has_each_metric_described_once() -> None:
    _, statistics = make()

    text = exposition(
        {**statistics.now(), "core_seconds": {'a"\\b': (3.0, 1.0, 1.5, 0.25), "lab": (0.5, 0.5, 0.0, 0.0)}}
    )

    names = re.findall(r"^# TYPE (\S+) (?:gauge|counter)$", text, re.MULTILINE)
    assert len(names) == len(set(names)) > 10
    for line in text.splitlines():
        assert line.startswith("#") or re.fullmatch(
            r'[a-z_]+(\{(state="[a-z]+"|site="\S+",use="[a-z]+")\})? -?[0-9.e+-]+', line
        ), line
    assert r'bough_core_seconds_total{site="a\"\\b",use="used"} 1.5' in text
    assert all(name.endswith("_total") for name in re.findall(r"^# TYPE (\S+) counter$", text, re.MULTILINE))


def ask_page(*requests: bytes, text: Callable[[], str] = lambda: "figures 1\n") -> list[bytes]:
    async def talk() -> list[bytes]:
        page = MetricsPage(text)
        port = await page.open("127.0.0.1", 0)
        answers = []
        for request in requests:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            if request.endswith(b"!"):
                writer.write_eof()
            answers.append(await asyncio.wait_for(reader.read(), 10))
            writer.close()
        await page.close()
        return answers

    return asyncio.run(talk())


def test_the_page_answers_get_metrics_and_nothing_else() -> None:
    head = b" HTTP/1.1\r\nHost: x\r\n\r\n"
    good, other, post, only_head, junk, long = ask_page(
        b"GET /metrics" + head,
        b"GET /secrets" + head,
        b"POST /metrics" + head,
        b"HEAD /metrics?x=1" + head,
        b"\x16\x03\x01!",
        b"GET /" + b"a" * 20_000 + head,
    )

    assert good.startswith(b"HTTP/1.1 200 OK\r\n")
    assert good.endswith(b"\r\n\r\nfigures 1\n")
    assert other.startswith(b"HTTP/1.1 404")
    assert post.startswith(b"HTTP/1.1 405")
    assert only_head.endswith(b"\r\n\r\n")
    assert (junk, long) == (b"", b"")


def test_a_port_alone_is_on_the_loopback_address() -> None:
    assert read_address("9464") == ("127.0.0.1", 9464)
    assert read_address("0.0.0.0:9464") == ("0.0.0.0", 9464)


def test_cache_hits_are_counted_by_second_executor_and_workflow() -> None:
    loop, statistics = make()
    statistics._queries.find_run = lambda record: 7 if record == 1 else None  # type: ignore[method-assign]
    statistics._queries.workflow = lambda run: SimpleNamespace(name='a "b"')  # type: ignore[method-assign]
    statistics.start()
    one = Staged(cached=10, from_peers=5, from_origin=3, hits=2, peer_hits=1, misses=1)
    other = Staged(from_shared=4, peer_hits=1)
    for record, executor, staged in ((1, 3, one), (2, 4, other)):
        detail = Detail(0, staged=staged)
        statistics.hear([SpanEnded(1, 0, 1, 1.0, details=(detail,), record=record, executor=executor)])  # type: ignore[arg-type]
    loop.advance(1.0)
    sample = statistics.samples[-1]
    assert (sample.hits, sample.peer_hits, sample.misses, sample.shared_bytes) == (2, 2, 1, 4)
    assert (sample.hit_rate, sample.peer_hit_rate, sample.miss_rate) == (2.0, 2.0, 1.0)
    loop.advance(1.0)
    assert statistics.samples[-1].hit_rate == 0.0
    now = statistics.now()
    assert now["caches"] == {"executor": {"3": (2, 1, 1), "4": (0, 1, 0)}, "workflow": {'a "b"': (2, 1, 1)}}
    text = exposition(now)
    assert 'bough_executor_inputs_total{executor="3",source="peer"} 1\n' in text
    assert 'bough_workflow_inputs_total{workflow="a \\"b\\"",source="server"} 1\n' in text
    assert "bough_cache_misses_total 1\n" in text


def test_an_answer_is_one_reading_of_totals_and_of_what_they_are_made_of() -> None:
    loop, statistics = make()
    statistics.start()
    loop.advance(1.0)
    detail = Detail(0, staged=Staged(cached=10, hits=2))
    for executor in (3, 4):  # after the last sample
        statistics.hear([SpanEnded(1, 0, 1, 1.0, details=(detail,), record=1, executor=executor)])  # type: ignore[arg-type]
    told: list[list[dict[str, object]]] = []
    asked = SimpleNamespace(question=questions.Statistics(60), answer=told.append)
    statistics.answer(asked)  # type: ignore[arg-type]
    [[first, last]] = told
    assert first["hits"] == 0
    assert (last["hits"], last["cached_bytes"], last["ended"]) == (4, 20, 2)
    assert last["caches"] == {"executor": {"3": (2, 0, 0), "4": (2, 0, 0)}, "workflow": {}}
    assert last["throughput"] == 2.0  # in the last second, not in the instant since the last sample


def test_of_executors_and_workflows_the_last_that_read_something_are_kept() -> None:
    counts = CacheCounts()
    for number in range(cache_counts.MOST + 5):
        counts.note(Staged(hits=1), number, f"w{number}")
    counts.note(Staged(), 1, "w1")
    assert len(counts.by_executor()) == len(counts.by_workflow()) == cache_counts.MOST
    assert "4" not in counts.by_executor()
    assert counts.total == (cache_counts.MOST + 5, 0, 0)
