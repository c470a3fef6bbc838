"""Which ready tasks want which data, so that a policy finds the best for an executor without walking the queue.

Each file has a list of the ready tasks that read it. Each place (a host, or a site) has a heap of the contents that it
holds and that some ready task reads, the largest first. What an executor is best for is found among the first readers
of the first contents of its place: so a decision costs the same however long the queue is. A content that a place gains
is put into its heap; one that it lost, or that nobody reads any more, goes when it surfaces.

This is the inverted index that `falkon.md` 3.3 aims at: its window scheduler without the window.
Rule: a task that is not ready any more is dropped where it is met; a content that very many hosts hold is in no heap,
because it tells no place from another; what becomes ready is taken up in slices, so that no turn walks a long array.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count, islice
from math import inf
from typing import Final

from bough.core.data.data_index import DataIndex, HostRecord
from bough.core.records.array_record import READY, ArrayRecord, Record
from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.task_record import TaskRecord
from bough.model.ids import Seconds
from bough.model.runtimes import RunTime
from bough.policy.interface import DataNeeds

_SLICE: Final = 4096  # ready tasks that are taken up in one turn
_CONTENTS: Final = 3  # of a place that are looked at for one decision
_READERS: Final = 8  # of each of these
_NAMED: Final = 64  # places that are named as holders of one task's input
_COSTED: Final = 8  # holders of a content, and executors of a holder, that are asked when they may want work
_UNHELD: Final = 16  # tasks without any data that are looked at for one decision
_REASONS: Final = 10_000  # spans of which it is known why they are where they are
_TIMES: Final = 10_000  # templates and hosts whose run times are remembered
_WAITING: Final = 1024  # tasks that a policy may walk through in one turn
_NO_FILES: Final[array[int]] = array("I")
_UNKNOWN: Final = 0xFFFFFFFF


class Unit:
    """A ready task with declared inputs; a policy sees it as a `DataTask`."""

    __slots__ = ("element", "files", "since", "work")

    def __init__(self, work: Record, element: int, files: Sequence[int], since: Seconds) -> None:
        self.work = work
        self.element = element
        self.files = files
        self.since = since

    @property
    def is_ready(self) -> bool:
        """Whether it still waits to be placed."""
        work = self.work
        return work.state == READY if type(work) is TaskRecord else work.states[self.element] == READY  # type: ignore[union-attr]

    @property
    def run(self) -> int:
        """The workflow it belongs to."""
        return self.work.group.workflow.run


class Place:
    """A host or a site, and what it holds that is wanted."""

    __slots__ = ("hosts", "listed", "name", "only", "wanted")

    def __init__(self, name: str) -> None:
        self.name = name
        self.hosts: dict[int, HostRecord] = {}
        self.only = -1  # the number of its host, if it has one
        self.wanted: list[tuple[int, int, int]] = []  # a heap: size (negated), when it came, content
        self.listed: set[int] = set()  # the contents in it


class AffinityIndex:
    """See the module."""

    def __init__(self, data: DataIndex, needs: DataNeeds, executors: Mapping[int, ExecutorRecord]) -> None:
        self.data = data
        self.by_files = needs.by == "files"
        self.frozen = needs.frozen
        self._by_site = needs.place == "site"
        self._executors = executors
        self.is_used = False  # something that declares inputs was ready once
        self.roomy: dict[int, ExecutorRecord] = {}  # that got room since it was last looked, see `with_room`
        self._new: deque[list[object]] = deque()  # record, start, stop, when: what became ready and is not taken up
        self.units: OrderedDict[tuple[int, int], Unit] = OrderedDict()  # in the order they became ready
        self._readers: dict[int, dict[int, list[Unit]]] = {}  # by run and file
        self._places: dict[str, Place] = {}  # by name
        self._place_of: dict[int, Place] = {}  # by number of the host
        self._unheld: deque[Unit] = deque()  # nobody held anything of them when they were looked at
        self._lost: deque[int] = deque()  # contents that nobody holds any more
        self._then: dict[int, frozenset[str]] = {}  # frozen: the places of a content
        self.reasons: OrderedDict[int, tuple[int, int]] = OrderedDict()  # by span: data that was there, and in all
        self._host_times: dict[tuple[str | int, str], RunTime] = {}  # by template and host
        self._order = count()
        # by executor: when it took something last, the sum of the gaps, how many, when it may ask next
        self._gaps: dict[int, list[float]] = {}
        self._expected: list[tuple[float, int]] = []  # when an executor may ask next; sorted
        data.listener = self

    # --- what happens ----------------------------------------------------------------------------

    def became_ready(self, record: Record, start: int, stop: int, now: Seconds) -> None:
        """Elements that declare inputs are ready."""
        self.is_used = True
        self._new.append([record, start, stop, now])

    def take_up(self) -> None:
        """List a slice of what became ready under the files that it reads."""
        left = _SLICE
        while self._new and left > 0:
            record, start, stop, now = self._new[0]
            end = min(stop, start + left)  # type: ignore[operator, call-overload]
            for element in range(start, end):  # type: ignore[call-overload]
                self._list(record, element, now)  # type: ignore[arg-type]
            left -= end - start
            if end == stop:
                self._new.popleft()
            else:
                self._new[0][1] = end

    def _list(self, record: Record, element: int, now: Seconds) -> None:
        files = files_read(record, element)
        unit = Unit(record, element, files, now)
        if not files or not unit.is_ready:
            return
        self.units[record.id, element] = unit
        run, data = unit.run, self.data
        readers = self._readers.get(run)
        if readers is None:
            readers = self._readers[run] = {}
        contents, held = data.contents_by_run.get(run, _NO_FILES), False
        for file in files:
            known = readers.get(file)
            if known:
                known.append(unit)
            else:
                readers[file] = [unit]
            content = contents[file] if file < len(contents) else _UNKNOWN
            if content != _UNKNOWN:
                if not known:
                    self._want(content)
                held = held or data.is_held(content)
        if not held:
            self._unheld.append(unit)

    def _want(self, content: int) -> None:
        """A content is read by something that is ready: it is listed where it is held."""
        data = self.data
        if self.frozen and content not in self._then:
            self._then[content] = frozenset(place.name for host in data.holders(content) if (place := self._at(host)))
        if data.is_common(content):
            return
        for host in data.holders(content):
            place = self._at(host)
            if place is not None:
                self._offer(place, content)

    def _offer(self, place: Place, content: int) -> None:
        if content not in place.listed and not (self.frozen and place.name not in self._then.get(content, ())):
            place.listed.add(content)
            heappush(place.wanted, (-self.weight(content), next(self._order), content))

    def on_gained(self, content: int, host: HostRecord) -> None:
        """A host holds a content that it did not."""
        if self.data.is_common(content):
            return
        for run, file in self.data.files_of(content):
            readers = self._readers.get(run)
            if readers and readers.get(file):
                place = self._at(host.number)
                if place is not None:
                    self._offer(place, content)
                return

    def count_readers(self, files: Iterable[tuple[int, int]]) -> int:
        """About how many that are ready read one of some files; those that began since may be among them."""
        return sum(len(self._readers.get(run, {}).get(file, ())) for run, file in files)

    def on_lost(self, content: int) -> None:
        """Nobody holds a content any more."""
        if self._readers:
            self._lost.append(content)

    def on_identified(self, run: int, file: int) -> None:
        """The content of a file is known, or another one."""
        readers = self._readers.get(run)
        if readers and readers.get(file):
            self._want(self.data.content_of(run, file))

    def on_left(self, host: HostRecord) -> None:
        """A host is gone."""
        place = self._place_of.pop(host.number, None)
        if place is not None:
            del place.hosts[host.number]
            place.only = next(iter(place.hosts)) if len(place.hosts) == 1 else -1
            if not place.hosts:
                del self._places[place.name]

    def forget_run(self, run: int) -> None:
        """A workflow leaves."""
        self._readers.pop(run, None)

    def note_runtime(self, record: Record, host: str, tasks: int, seconds: Seconds) -> None:
        """Tasks of a template ran on a host."""
        times, key = self._host_times, (_template(record), host)
        runtime = times.get(key)
        if runtime is None:
            if len(times) >= _TIMES:
                del times[next(iter(times))]
            runtime = times[key] = RunTime()
        runtime.note(tasks, seconds)

    def expected_on(self, record: Record, host: str) -> Seconds:
        """The run time of a task of some work on a host: as measured there, or anywhere; 0: unknown."""
        runtime = self._host_times.get((_template(record), host))
        return runtime.mean if runtime is not None else record.expected

    def remember(self, span: int, here: int, total: int) -> None:
        """Remember how much of the data of a span's first task was where it went."""
        reasons = self.reasons
        if len(reasons) >= _REASONS:
            del reasons[next(iter(reasons))]
        reasons[span] = here, total

    def asked(self, executor: ExecutorRecord, now: Seconds) -> None:
        """An executor took something: by the gaps between its turns it is known when it may ask next."""
        known = self._gaps.get(executor.id)
        if known is None:
            self._gaps[executor.id] = [now, 0.0, 0, now]
            insort(self._expected, (now, executor.id))
            return
        last, total, gaps, former = known
        if now <= last:
            return  # it takes several at once
        expected = now + (total + now - last) / (gaps + 1)
        known[:] = now, total + now - last, gaps + 1, expected
        at = bisect_left(self._expected, (former, executor.id))
        del self._expected[at]
        insort(self._expected, (expected, executor.id))

    def with_room(self, open_executors: Mapping[int, ExecutorRecord]) -> Iterator[ExecutorRecord]:
        """The executors that have room for a task that needs a core; those that got it first come first."""
        roomy = self.roomy
        for number, executor in list(roomy.items()):
            if number in open_executors and has_room(executor):
                yield executor
            else:
                roomy.pop(number, None)

    # --- questions -------------------------------------------------------------------------------

    def weight(self, content: int) -> int:
        """How much a content counts."""
        return 1 if self.by_files else self.data.contents.sizes[content] or 1

    def place_of(self, executor: ExecutorRecord) -> Place | None:
        """Where an executor is."""
        host = self.data.host_of(executor)
        return self._at(host.number) if host is not None else None

    def places(self) -> dict[str, Place]:
        """The places where something is held that was wanted."""
        return self._places

    def _at(self, number: int) -> Place | None:
        place = self._place_of.get(number)
        if place is None:
            host = self.data.by_number[number]
            if host is None:
                return None
            name = host.site if self._by_site else f"{host.site}/{host.host}"
            place = self._places.get(name)
            if place is None:
                place = self._places[name] = Place(name)
            place.hosts[number] = host
            place.only = number if len(place.hosts) == 1 else -1
            self._place_of[number] = place
        return place

    def is_at(self, content: int, place: Place) -> bool:
        """Whether a place holds a content, or held it then."""
        if self.frozen:
            return place.name in self._then.get(content, ())
        holds = self.data.holds
        if place.only >= 0:
            return holds(content, place.only)
        if self.data.is_common(content):
            return any(holds(content, host) for host in place.hosts)
        return any(host in place.hosts for host in self.data.holders(content))

    def measure(self, unit: Unit, place: Place | None) -> tuple[int, int]:
        """How much of what is known of a task's input is at a place, and how much it is in all."""
        data = self.data
        contents = data.contents_by_run.get(unit.work.group.workflow.run, _NO_FILES)
        sizes, by_files, here, total, known = data.contents.sizes, self.by_files, 0, 0, len(contents)
        only = place.only if place is not None and not self.frozen else -1
        for file in unit.files:
            content = contents[file] if file < known else _UNKNOWN
            if content == _UNKNOWN:
                continue
            weight = 1 if by_files else sizes[content] or 1
            total += weight
            if only >= 0:  # as `is_at`, without calls: for most places it is all that a decision costs
                holders = data.holders_by_content[content]
                if type(holders) is int:
                    if holders == only:
                        here += weight
                elif only in holders if type(holders) is tuple else data.holds(content, only):
                    here += weight
            elif place is not None and self.is_at(content, place):
                here += weight
        return here, total

    def contents_of(self, unit: Unit) -> Iterator[int]:
        """The contents of a task's input, as far as they are known."""
        if not unit.files:
            return
        contents = self.data.contents_by_run.get(unit.run, _NO_FILES)
        for file in unit.files:
            if file < len(contents) and contents[file] != _UNKNOWN:
                yield contents[file]

    def candidates(self, place: Place) -> Iterator[list[Unit]]:
        """Ready tasks that read the first contents of a place, content by content."""
        wanted = place.wanted
        while wanted:
            content = wanted[0][2]
            readers = self._ready_readers(content) if self.is_at(content, place) else []
            if readers:
                yield readers
                break
            heappop(wanted)
            place.listed.discard(content)
        for _, _, content in wanted[1:_CONTENTS]:
            if self.is_at(content, place):
                yield self._ready_readers(content)

    def _ready_readers(self, content: int) -> list[Unit]:
        """The first ready tasks that read a content; others before them are dropped."""
        found: list[Unit] = []
        for run, file in self.data.files_of(content):
            readers = self._readers.get(run)
            if readers is None or not (units := readers.get(file)):
                continue
            stale = 0
            for unit in units:
                if not unit.is_ready:
                    stale += 1
                    continue
                found.append(unit)
                if len(found) >= _READERS:
                    break
            if stale:
                seen = stale + len(found)
                units[:seen] = [unit for unit in units[:seen] if unit.is_ready]
            if not units:
                del readers[file]
            if len(found) >= _READERS:
                break
        return found

    def unheld(self) -> list[Unit]:
        """Some ready tasks whose input nobody holds, those that became ready first."""
        while self._lost:
            content = self._lost.popleft()
            if not self.data.is_held(content):
                self._unheld.extend(self._ready_readers(content))
        found: list[Unit] = []
        waiting = self._unheld
        while waiting and len(found) < _UNHELD:
            unit = waiting.popleft()
            if unit.is_ready and not any(map(self.data.is_held, self.contents_of(unit))):
                found.append(unit)
        waiting.extendleft(reversed(found))
        return found

    def waiting(self) -> Iterator[Unit]:
        """The first ready tasks with inputs, in the order they became ready; what was placed meanwhile is left out."""
        units, seen, size = self.units, 0, 4
        while seen < _WAITING:
            some = list(islice(units.items(), seen, seen + size))
            if not some:
                return
            before = len(units)
            for key, unit in some:
                if unit.is_ready:
                    yield unit
                else:
                    units.pop(key, None)
            seen += max(0, len(some) - (before - len(units)))  # those that are still there
            size *= 4

    def most_held(self, unit: Unit) -> int:
        """The most of a task's input that any place holds; of a content that many hold some are looked at."""
        if self._by_site:
            return max(self.holders(unit).values(), default=0)
        scores: dict[int, int] = {}
        data = self.data
        for content in self.contents_of(unit):
            weight, holders = self.weight(content), data.holders_by_content[content]
            if type(holders) is int:
                if holders >= 0:
                    scores[holders] = scores.get(holders, 0) + weight
                continue
            for host in holders if type(holders) is tuple else islice(data.holders(content), _NAMED):
                scores[host] = scores.get(host, 0) + weight
        return max(scores.values(), default=0)

    def soonest_cost(self, unit: Unit, except_at: Place | None, rate: float, now: Seconds, latest: Seconds) -> float:
        """The least of the time until a holder may ask for work, up to `latest`, and `rate` for all it has not."""
        scores: dict[int, int] = {}
        data, total = self.data, 0
        for content in self.contents_of(unit):
            weight = self.weight(content)
            total += weight
            for host in islice(data.holders(content), _COSTED):
                scores[host] = scores.get(host, 0) + weight
        least, gaps = inf, self._gaps
        for host, here in scores.items():
            there = data.by_number[host]
            if there is None or (except_at is not None and host in except_at.hosts):
                continue
            for number in islice(there.executors, _COSTED):
                known = gaps.get(number)
                when = known[3] if known is not None and known[3] > now else now
                if when <= latest:
                    least = min(least, when - now + (total - here) * rate)
        return least

    def holders(self, unit: Unit) -> dict[str, int]:
        """How much of a task's input is where; of contents that many hold only some holders."""
        found: dict[str, int] = {}
        for content in self.contents_of(unit):
            weight = self.weight(content)
            places = {place.name for host in islice(self.data.holders(content), _NAMED) if (place := self._at(host))}
            for name in places:
                found[name] = found.get(name, 0) + weight
        return found

    def expected(self, executor: int, now: Seconds) -> Seconds:
        """When an executor may ask for work next."""
        known = self._gaps.get(executor)
        return max(now, known[3]) if known is not None else now

    def arrivals(self, most: int, now: Seconds) -> list[tuple[Seconds, ExecutorRecord]]:
        """The executors that may ask next."""
        found: list[tuple[Seconds, ExecutorRecord]] = []
        gone: list[int] = []
        for at, (when, number) in enumerate(self._expected):
            executor = self._executors.get(number)
            if executor is None:
                gone.append(at)
                continue
            found.append((max(now, when), executor))
            if len(found) >= most:
                break
        for at in reversed(gone):
            self._gaps.pop(self._expected.pop(at)[1], None)
        return found


def _template(record: Record) -> str | int:
    spec = record.shared_spec if isinstance(record, TaskRecord) else record.spec
    return spec.template or record.id


def has_room(executor: ExecutorRecord) -> bool:
    """Whether a core is free, or a short task may wait for one."""
    if executor.cores_free > 0 or executor.wide:
        return True
    return executor.load < executor.backlog_limit and executor.long_cores < executor.capacity.cores


def files_read(record: Record, element: int) -> Sequence[int]:
    """The numbers of the files that a task declares as inputs."""
    if isinstance(record, ArrayRecord):
        return record.files_of(element)
    own = record.own
    return own.reads if own is not None else ()  # type: ignore[return-value] # the core has numbered them
