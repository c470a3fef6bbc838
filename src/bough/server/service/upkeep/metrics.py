"""A sample of a service's counters every second, kept for an hour; the page /metrics for Prometheus.

Rule: a sample reads counters that are kept anyway, so its cost does not grow with the number of tasks; where there are
many groups, the tasks by state are not summed every second. The page reads one small request, answers and closes the
connection; it is bound to the loopback address unless another one was named.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from bough.core.queries.facade import Queries
from bough.errors import SiteError
from bough.model.events.facts import ElementFailed, Fact, MemoLookedUp, OutputKept, Skipped, SpanEnded
from bough.model.outcomes import Staged
from bough.server.peers import DeferredRequest, Peers
from bough.server.service.upkeep.cache_counts import CacheCounts
from bough.server.service.upkeep.memory_use import resident
from bough.server.service.upkeep.prometheus_text import CONTENT_TYPE
from bough.transport.access import split_address
from bough.wire import questions

KEPT = 3600  # samples
_EVERY = 1.0  # seconds
_SHARE = 0.005  # of the time that summing over groups may take
_MINUTE = 60
_PATIENCE = 5.0  # seconds for a request
_MOST_BYTES = 8192  # of its head
_MOST_AT_ONCE = 32
LOOPBACK = "127.0.0.1"


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One second of a service."""

    time: float
    at: float  # seconds of a clock that never jumps
    started: float  # when the server began
    clients: int
    connections: int
    allocated: int  # executors there are, whatever they do
    idle: int
    active: int
    suspended: int
    draining: int
    missing: int
    manual: int  # tasks that people took
    hands: int  # the former name of `manual`, for one more version
    cores: float
    waiting: int
    held: int
    ready: int
    running: int
    ended: int  # tasks, since the server began
    failed: int  # of these
    reused: int  # of these: results of earlier runs
    throughput: float  # tasks ended a second, in the last second
    throughput_60: float  # and in the last minute
    cpu: float  # percent of one core, in the last second
    cpu_seconds: float
    memory: int  # bytes resident
    turns: int  # of the journal
    records: int = 0  # tasks and arrays in memory: those of running workflows, and of the last that finished
    workflows: int = 0  # in memory
    replicas: int = 0  # that were made of running tasks, since the journal began
    superseded: int = 0  # attempts that were ended because another one of the same task succeeded
    wasted: float = 0.0  # core-seconds of these
    wasted_bytes: int = 0  # of inputs that were moved for these
    cached_bytes: int = 0  # of inputs that travel: those that the cache of the task's host had, since the server began
    peer_bytes: int = 0  # those that came from other executors
    origin_bytes: int = 0  # those that the server sent
    shared_bytes: int = 0  # those that came from the shared store of a site
    hits: int = 0  # inputs that the cache of the task's host had, since the server began
    peer_hits: int = 0  # that came from peers or a shared store
    misses: int = 0  # of which the server sent something
    hit_rate: float = 0.0  # hits a second, in the last second
    peer_hit_rate: float = 0.0
    miss_rate: float = 0.0


class Statistics:
    """Takes the samples and keeps those of the last hour."""

    def __init__(self, loop: asyncio.AbstractEventLoop, queries: Queries, peers: Peers) -> None:
        self.samples: deque[Sample] = deque(maxlen=KEPT)
        self._loop = loop
        self._queries = queries
        self._peers = peers
        self._started = time.time()
        self._ended = self._failed = self._reused = 0
        self._cached = self._from_peers = self._from_origin = self._from_shared = 0  # bytes of inputs
        self._caches = CacheCounts()
        self._counts: dict[str, int] = {}
        self._count_again = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._next = loop.time()

    # --- counting --------------------------------------------------------------------------------------

    def hear(self, facts: Sequence[Fact]) -> None:
        """Count what ended in a turn."""
        for fact in facts:
            kind = type(fact)
            if kind is SpanEnded:
                self._ended += fact.stop - fact.start  # type: ignore[union-attr]
                for detail in fact.details:  # type: ignore[union-attr]
                    self._count_staged(detail.staged, fact)  # type: ignore[arg-type]
            elif kind is OutputKept:
                self._count_staged(fact.detail.staged, fact)  # type: ignore[arg-type, union-attr]
            elif kind is ElementFailed:
                if fact.detail is not None:  # type: ignore[union-attr]
                    self._count_staged(fact.detail.staged, fact)  # type: ignore[arg-type, union-attr]
                if fact.retry_at < 0:  # type: ignore[union-attr]
                    self._ended += 1
                    self._failed += 1
            elif kind is Skipped:
                self._ended += fact.stop - fact.start  # type: ignore[union-attr]
                self._failed += fact.stop - fact.start  # type: ignore[union-attr]
            elif kind is MemoLookedUp and fact.found:  # type: ignore[union-attr]
                self._ended += fact.stop - fact.start  # type: ignore[union-attr]
                self._reused += fact.stop - fact.start  # type: ignore[union-attr]

    def _count_staged(self, staged: Staged | None, fact: SpanEnded | ElementFailed | OutputKept) -> None:
        if staged is None:
            return
        self._cached += staged.cached
        self._from_peers += staged.from_peers
        self._from_origin += staged.from_origin
        self._from_shared += staged.from_shared
        run = self._queries.find_run(fact.record)
        workflow = self._queries.workflow(run) if run is not None else None
        self._caches.note(staged, fact.executor, workflow.name if workflow is not None else "")

    def start(self) -> None:
        """Take a sample now, and every second from now on."""
        self.samples.append(self.sample())
        self._next = max(self._next + _EVERY, self._loop.time())
        self._timer = self._loop.call_later(self._next - self._loop.time(), self.start)

    def stop(self) -> None:
        """Take no more."""
        if self._timer is not None:
            self._timer.cancel()

    def sample(self) -> Sample:
        """How things are now."""
        now, queries = time.time(), self._queries
        counts, executors = self._states(), queries.executor_counts(self._peers.executors)
        waste = queries.waste()
        hits, peer_hits, misses = self._caches.total
        cpu = time.process_time()
        at = self._loop.time()  # not the time of day, which may be changed
        last = next((one for one in reversed(self.samples) if at - one.at >= _EVERY / 2), None)
        past = max(at - last.at, 1e-6) if last else _EVERY
        minute = self.samples[-min(_MINUTE, len(self.samples))] if last else None
        return Sample(
            time=now,
            at=at,
            started=self._started,
            clients=len(self._peers.clients),
            connections=len(self._peers.clients) + len(self._peers.by_connection),
            allocated=executors.allocated,
            idle=executors.idle,
            active=executors.active,
            suspended=executors.suspended,
            draining=executors.draining,
            missing=executors.missing,
            manual=executors.manual,
            hands=executors.manual,
            cores=executors.cores,
            **{name: counts.get(name, 0) for name in ("waiting", "held", "ready", "running")},
            ended=self._ended,
            failed=self._failed,
            reused=self._reused,
            throughput=(self._ended - last.ended) / past if last else 0.0,
            throughput_60=(self._ended - minute.ended) / max(at - minute.at, 1e-6) if minute else 0.0,
            cpu=100 * (cpu - last.cpu_seconds) / past if last else 0.0,
            cpu_seconds=cpu,
            memory=resident(),
            turns=queries.turn,
            records=queries.record_count,
            workflows=queries.workflow_count,
            replicas=waste.made,
            superseded=waste.superseded,
            wasted=waste.seconds,
            wasted_bytes=waste.bytes,
            cached_bytes=self._cached,
            peer_bytes=self._from_peers,
            origin_bytes=self._from_origin,
            shared_bytes=self._from_shared,
            hits=hits,
            peer_hits=peer_hits,
            misses=misses,
            hit_rate=(hits - last.hits) / past if last else 0.0,
            peer_hit_rate=(peer_hits - last.peer_hits) / past if last else 0.0,
            miss_rate=(misses - last.misses) / past if last else 0.0,
        )

    def _states(self) -> dict[str, int]:
        begun = time.perf_counter()
        if begun >= self._count_again:
            self._counts = self._queries.counts().labels()
            now = time.perf_counter()
            self._count_again = now + (now - begun) / _SHARE - _EVERY
        return self._counts

    # --- answers ---------------------------------------------------------------------------------------

    def now(self) -> dict[str, object]:
        """A sample, with the core-seconds of sites: in all, until executors got their first task, used, wasted."""
        return {
            **msgspec.structs.asdict(self.sample()),
            "core_seconds": self._queries.core_seconds(time.time()),
            "caches": {"executor": self._caches.by_executor(), "workflow": self._caches.by_workflow()},
        }

    def answer(self, deferred: DeferredRequest[questions.Statistics]) -> None:
        """The samples of the last so many seconds, oldest first, and in the place of the newest one how things are now.

        Totals and what they are made of, by site, executor and workflow, are read at the same instant.
        """
        wanted = list(self.samples)[-max(1, deferred.question.seconds) : -1]
        deferred.answer([*map(msgspec.structs.asdict, wanted), self.now()])


def read_address(text: str) -> tuple[str, int]:
    """Host and port; a port alone is on the loopback address."""
    return split_address(text if ":" in text else f"{LOOPBACK}:{text}")


class MetricsPage:
    """An HTTP server of one page."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._server: asyncio.Server | None = None
        self._at_once = 0

    async def open(self, host: str, port: int) -> int:
        """Listen; the port. SiteError when that is not possible."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=_MOST_BYTES)
        except OSError as error:
            raise SiteError(f"the metrics cannot be served at {host}:{port}: {error.strerror or error}") from error
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._at_once += 1
        try:
            if self._at_once <= _MOST_AT_ONCE:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _PATIENCE)
                writer.write(self._response(head.split(b"\r\n", 1)[0]))
                await asyncio.wait_for(writer.drain(), _PATIENCE)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the peer does not speak HTTP, or disconnected
        finally:
            self._at_once -= 1
            writer.close()

    def _response(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        path = rest.split(b" ")[0].split(b"?")[0]
        if method not in {b"GET", b"HEAD"}:
            return _reply("405 Method Not Allowed", "only GET\n", extra="Allow: GET, HEAD\r\n")
        if path != b"/metrics":
            return _reply("404 Not Found", "see /metrics\n")
        return _reply("200 OK", self._text(), CONTENT_TYPE, with_body=method == b"GET")


def _reply(
    status: str, body: str, kind: str = "text/plain; charset=utf-8", *, extra: str = "", with_body: bool = True
) -> bytes:
    data = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{extra}Connection: close\r\n\r\n"
    )
    return head.encode() + (data if with_body else b"")
