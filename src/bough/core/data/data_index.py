"""Where data is: which hosts hold which contents, which content a file has, and how fast bytes travel between hosts.

News changes it: what caches gained and lost, whose content a file has, how long a transfer took. It is advice: no fact
is written, a replay leaves it empty, and executors say again what they hold when they join. A holder is a host of a
site, which has its cache for all its executors, or the shared store of a site, which is a host without a name to all
that see it, or all the hosts behind a relay that shares out work. What it holds is forgotten when its last executor has
left for good; how fast bytes came to a host is remembered longer, and in snapshots: batch systems give the same nodes
again and again. A content is forgotten when no holder has it and no file of a workflow does.

Hosts and contents have dense numbers. A content with one holder costs no object, one with a few has a tuple of them,
and one with many a bit for each host. A host has a list of what came; what left again is removed from it now and then.
Rule: what news names that is not known is passed over; no change costs more than what it names, and what it removes.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

from bough.core.data.content_table import ContentTable
from bough.model.ids import Seconds

ORIGIN: Final = "origin"  # the source of what no peer sent
_NOBODY: Final = -1  # holders of a content that nobody holds
_FEW: Final = 32  # holders that are listed; more are bits
_UNKNOWN: Final = 0xFFFFFFFF  # the content of a file that nobody has read
_MOST_FILES: Final = 1 << 32  # a higher number cannot be packed with its run: it is kept beside
_MOST_RUNS: Final = 1 << 31
_MOST_SOURCES: Final = 256  # whose transfers to one host are remembered
_MOST_FORMER: Final = 1000  # hosts without executors to which the rates are remembered
_KEPT_SOURCES: Final = 16  # of them, and of a host in a snapshot: those that sent most often
_NEW: Final = 0.3  # weight of the newest measurement
_MOST_RATE: Final = 1e12  # bytes a second: more is said by mistake, or to spoil what is known of other hosts
_SMALL: Final = 65_536  # bytes: a transfer below tells the latency, one above the rate

_NO_CONTENTS: Final[array[int]] = array("I")

Holders = int | tuple[int, ...] | bytearray


class Located(Protocol):
    """What the index asks of an executor."""

    @property
    def id(self) -> int:
        """Its number."""

    @property
    def site(self) -> str:
        """Its site."""

    @property
    def host(self) -> str:
        """Its host."""

    @property
    def wide(self) -> bool:
        """Whether it is a relay, which stands for the hosts behind it and not for its own."""


class Rate:
    """How fast bytes came from one place to another; 0 while unknown."""

    __slots__ = ("latency", "rate", "seen")

    def __init__(self, rate: float = 0.0, latency: Seconds = 0.0, seen: int = 0) -> None:
        self.rate = rate  # bytes a second
        self.latency = latency
        self.seen = seen

    def note(self, count: int, seconds: Seconds) -> None:
        """Take in one transfer."""
        self.seen += 1
        if count < _SMALL:
            self.latency = self.latency + _NEW * (seconds - self.latency) if self.latency else seconds
        elif seconds > 0:
            rate = min(count / max(seconds - self.latency, seconds / 10), _MOST_RATE)
            self.rate = self.rate + _NEW * (rate - self.rate) if self.rate else rate


class HostRecord:
    """A host that has executors, and what its cache holds."""

    __slots__ = ("_came", "_fastest", "executors", "held", "host", "is_listed", "number", "rates", "site")

    def __init__(self, number: int, site: str, host: str) -> None:
        self.number = number
        self.site = site
        self.host = host
        self.is_listed = False  # of a store: somebody has said all that it holds
        self.executors: dict[int, Located] = {}
        self.held = 0  # contents
        self.rates: dict[str, Rate] = {}  # by the host that sent, or `ORIGIN`
        self._came = array("I")  # contents, some of which may have left again, or be there twice
        self._fastest: float | None = None  # None: to be looked up

    @property
    def fastest(self) -> float:
        """Bytes a second from the fastest of those that sent to it; 0: unknown."""
        if self._fastest is None:
            self._fastest = max([rate.rate for rate in self.rates.values()], default=0.0)
        return self._fastest

    @property
    def is_store(self) -> bool:
        """Whether it is the shared store of a site, and no host."""
        return not self.host

    def note_came(self, contents: list[int], index: DataIndex) -> None:
        """Remember that contents came."""
        came = self._came
        came.fromlist(contents)
        if len(came) > 2 * self.held + 64:
            self._came = array("I", self.contents(index))

    def contents(self, index: DataIndex) -> Iterator[int]:
        """What it holds."""
        number, all_holders, holds = self.number, index.holders_by_content, index.holds
        for content in dict.fromkeys(self._came):
            holders = all_holders[content]
            if number in holders if type(holders) is tuple else holds(content, number):
                yield content

    def clear(self) -> None:
        """It holds nothing any more."""
        self._came = array("I")
        self.held = 0

    def note_rate(self, source: str, count: int, seconds: Seconds) -> None:
        """Take in one transfer to it."""
        self._fastest = None
        rate = self.rates.get(source)
        if rate is None:
            if len(self.rates) >= _MOST_SOURCES:
                del self.rates[next(iter(self.rates))]
            rate = self.rates[source] = Rate()
        rate.note(count, seconds)


class Held(Protocol):
    """What a cache says of a content that it holds."""

    @property
    def digest(self) -> bytes:
        """Of its bytes."""

    @property
    def size(self) -> int:
        """How many they are."""


class Listener(Protocol):
    """Who wants to know at once what hosts gain and lose."""

    def on_gained(self, host: HostRecord, contents: Iterable[int]) -> None:
        """A host holds contents that it did not."""

    def on_lost(self, host: HostRecord, contents: Sequence[int], by_all: Iterable[int]) -> None:
        """A host holds contents no more, and some of them no host does."""

    def on_rare(self, content: int) -> None:
        """A content that was common is not any more."""

    def on_identified(self, run: int, file: int, former: int) -> None:
        """The content of a file is known; `former`: the one that it had, below 0: none."""

    def on_executor(self, host: HostRecord, executor: int) -> None:
        """An executor joined a host, or left it."""

    def on_executor_left(self, executor: int) -> None:
        """An executor is gone."""

    def on_left(self, host: HostRecord) -> None:
        """A host is gone."""

    def forget_run(self, run: int, contents: Iterable[int]) -> None:
        """A workflow leaves, whose files have these contents."""


class DataIndex:
    """See the module."""

    def __init__(self) -> None:
        self.contents = ContentTable()
        self.hosts: dict[tuple[str, str], HostRecord] = {}  # by site and host
        self.stores: dict[str, HostRecord] = {}  # by site: its shared store
        self.by_number: list[HostRecord | None] = []
        self.pairs = 0  # of content and holder
        self.rates: dict[str, Rate] = {}  # over all hosts: from `ORIGIN`, and from peers (the empty name)
        self.fastest = 0.0  # bytes a second of them; 0: unknown
        self.former_rates: dict[tuple[str, str], dict[str, Rate]] = {}  # to hosts that have no executors now
        self.listener: Listener | None = None
        self.holders_by_content: list[Holders] = []  # see `holds`
        self.common: set[int] = set()  # contents that so many hosts hold that they are not listed
        self._files = array("I")  # how many files have a content, by content
        self._first_file = array("Q")  # one of them, packed: see `files_of`; 0: none
        self._more_files: dict[int, dict[tuple[int, int], None]] = {}  # the others
        self.contents_by_run: dict[int, array[int]] = {}  # by run: content by file
        self._free: list[int] = []  # numbers of hosts that can be given again

    # --- questions -------------------------------------------------------------------------------

    def host_of(self, executor: Located) -> HostRecord | None:
        """The host of an executor."""
        return self.hosts.get(_place(executor) if executor.wide else (executor.site, executor.host))

    def holds(self, content: int, host: int) -> bool:
        """Whether a host holds a content."""
        holders = self.holders_by_content[content]
        if type(holders) is int:
            return holders == host
        if type(holders) is tuple:
            return host in holders
        return host >> 3 < len(holders) and bool(holders[host >> 3] >> (host & 7) & 1)  # type: ignore[arg-type, index]

    def holders(self, content: int) -> Iterable[int]:
        """The numbers of the hosts that hold a content."""
        holders = self.holders_by_content[content]
        if type(holders) is tuple:
            return holders
        if type(holders) is int:
            return (holders,) if holders >= 0 else ()
        return (byte << 3 | bit for byte, bits in enumerate(holders) if bits for bit in range(8) if bits >> bit & 1)  # type: ignore[arg-type]

    def some_holders(self, content: int, most: int) -> tuple[int, ...]:
        """The numbers of the first hosts that hold a content."""
        holders = self.holders_by_content[content]
        if type(holders) is tuple:
            return holders if len(holders) <= most else holders[:most]
        if type(holders) is int:
            return (holders,) if holders >= 0 else ()
        return tuple(islice(self.holders(content), most))

    def is_held(self, content: int) -> bool:
        """Whether any host holds a content."""
        return self.holders_by_content[content] != _NOBODY

    def is_cached(self, content: int) -> bool:
        """Whether any host holds a content in its cache: shared stores do not count."""
        if not self.stores or not self.is_held(content):
            return self.is_held(content)
        return any((there := self.by_number[host]) is not None and not there.is_store for host in self.holders(content))

    def is_common(self, content: int) -> bool:
        """Whether so many hosts hold a content that they are not listed."""
        return content in self.common

    def content_of(self, run: int, file: int) -> int:
        """The content of a file, -1: not known."""
        contents = self.contents_by_run.get(run)
        if contents is None or not 0 <= file < len(contents):
            return -1
        content = contents[file]
        return content if content != _UNKNOWN else -1

    def bytes_at(self, run: int, files: Iterable[int], site: str) -> int:
        """How many bytes of some files of a workflow the hosts of a site hold, as far as that is known."""
        sizes, held = self.contents.sizes, 0
        for file in files:
            content = self.content_of(run, file)
            if content >= 0 and any(self._site_of(host) == site for host in self.holders(content)):
                held += sizes[content]
        return held

    def _site_of(self, number: int) -> str:
        host = self.by_number[number]
        return host.site if host is not None else ""

    def files_of(self, content: int) -> list[tuple[int, int]]:
        """The files that have a content: run and number."""
        packed = self._first_file[content]
        first = [(packed >> 32, packed & (_MOST_FILES - 1))] if packed else []
        return [*first, *self._more_files.get(content, ())]

    def rate_between(self, source: str, host: HostRecord) -> Rate | None:
        """What is known of transfers to a host: from a peer, or from `ORIGIN`; or how fast such ones are elsewhere."""
        return host.rates.get(source) or self.rates.get(source if source == ORIGIN else "")

    # --- hosts -----------------------------------------------------------------------------------

    def add_executor(self, executor: Located) -> None:
        """An executor is there."""
        key = _place(executor)
        host = self.hosts.get(key)
        if host is None:
            host = self.hosts[key] = self._add_host(*key)
        host.executors[executor.id] = executor
        if self.listener is not None:
            self.listener.on_executor(host, executor.id)

    def _add_host(self, site: str, name: str) -> HostRecord:
        number = self._free.pop() if self._free else len(self.by_number)
        host = HostRecord(number, site, name)
        host.rates = self.former_rates.pop((site, name), host.rates)
        if number == len(self.by_number):
            self.by_number.append(host)
        else:
            self.by_number[number] = host
        return host

    def join_store(self, executor: Located, *, whole: bool) -> HostRecord:
        """The shared store of an executor's site, which it sees; `whole`: it says all that the store holds."""
        store = self.stores.get(executor.site)
        if store is None:
            store = self.stores[executor.site] = self._add_host(executor.site, "")
        store.executors[executor.id] = executor
        store.is_listed = store.is_listed or whole
        return store

    def remove_executor(self, executor: Located) -> None:
        """An executor has left for good; with the last one of a host all that was known of it goes."""
        if self.listener is not None:
            self.listener.on_executor_left(executor.id)
        host, store = self.hosts[_place(executor)], self.stores.get(executor.site)
        if store is not None and store.executors.pop(executor.id, None) is not None and not store.executors:
            del self.stores[executor.site]
            self._drop_host(store)
        del host.executors[executor.id]
        if self.listener is not None:
            self.listener.on_executor(host, executor.id)
        if not host.executors:
            del self.hosts[_place(executor)]
            self._drop_host(host)

    def _drop_host(self, host: HostRecord) -> None:
        self._lose(host, list(host.contents(self)))
        if self.listener is not None:
            self.listener.on_left(host)
        self.by_number[host.number] = None
        self._free.append(host.number)
        if host.rates:
            if len(self.former_rates) >= _MOST_FORMER:
                del self.former_rates[next(iter(self.former_rates))]
            self.former_rates[host.site, host.host] = _most_used(host.rates)

    def kept_rates(self) -> Iterator[tuple[str, str, str, Rate]]:
        """What a snapshot has of transfers: site and host, empty for the rates over all hosts; source, and rate."""
        for kind, rate in self.rates.items():
            yield "", "", kind, rate
        for place, former in self.former_rates.items():
            for source, rate in former.items():
                yield *place, source, rate
        for host in self.hosts.values():
            for source, rate in _most_used(host.rates).items():
                yield host.site, host.host, source, rate

    def restore_rate(self, site: str, host: str, source: str, rate: Rate) -> None:
        """Go on with what a snapshot had; before there are hosts."""
        rates = self.former_rates.setdefault((site, host), {}) if host else self.rates
        rates[source] = rate
        self.fastest = max([one.rate for one in self.rates.values()], default=0.0)

    # --- news ------------------------------------------------------------------------------------

    def cache_changed(
        self, host: HostRecord, added: Collection[Held], removed: Collection[bytes], *, whole: bool
    ) -> None:
        """A cache gained and lost something; `whole`: what it gained is all that it holds."""
        find_all, lost = self.contents.find_all, []
        if whole:
            stays = set(find_all([one.digest for one in added]))
            lost = [content for content in host.contents(self) if content not in stays]
        if removed:
            lost += find_all(removed)
        if lost:
            self._lose(host, lost)
        if added:
            gained = find_all([one.digest for one in added])
            if -1 in gained:
                gained = [self._known(one.digest, one.size) for one in added]
            self._gain(host, gained)

    def file_identified(self, run: int, file: int, digest: bytes, size: int) -> None:
        """The content of a file is known; the caller knows that there is such a file."""
        contents = self.contents_by_run.get(run)
        if contents is None:
            contents = self.contents_by_run[run] = array("I")
        if file >= len(contents):
            contents.extend(array("I", (_UNKNOWN,)) * (file + 1 - len(contents)))
        content, former = self._known(digest, size), contents[file]
        if content == former:
            return
        contents[file] = content
        self._files[content] += 1
        packed = run << 32 | file
        if not self._first_file[content] and run < _MOST_RUNS and file < _MOST_FILES:
            self._first_file[content] = packed
        else:
            self._more_files.setdefault(content, {})[run, file] = None
        if self.listener is not None:
            self.listener.on_identified(run, file, former if former != _UNKNOWN else -1)
        if former != _UNKNOWN:
            self._unname(former, run, file)

    def bytes_moved(self, host: HostRecord, source: str, count: int, seconds: Seconds) -> None:
        """Bytes came to a host."""
        host.note_rate(source, count, seconds)
        kind = source if source == ORIGIN else ""
        rate = self.rates.get(kind)
        if rate is None:
            rate = self.rates[kind] = Rate()
        rate.note(count, seconds)
        self.fastest = max(one.rate for one in self.rates.values())

    def forget_run(self, run: int) -> None:
        """A workflow leaves: its files have no contents any more."""
        contents = self.contents_by_run.pop(run, _NO_CONTENTS)
        if self.listener is not None:
            self.listener.forget_run(run, {content for content in contents if content != _UNKNOWN})
        if contents:
            for file, content in enumerate(contents):
                if content != _UNKNOWN:
                    self._unname(content, run, file)

    # --- changes ---------------------------------------------------------------------------------

    def _known(self, digest: bytes, size: int) -> int:
        """The number of a content, new or not."""
        content = self.contents.add(digest, size)
        if content == len(self.holders_by_content):
            self.holders_by_content.append(_NOBODY)
            self._files.append(0)
            self._first_file.append(0)
        return content

    def _gain(self, host: HostRecord, contents: list[int]) -> None:
        """A host holds contents, some of which it may have held before."""
        number, all_holders = host.number, self.holders_by_content
        gained: list[int] = []
        for content in contents:
            holders = all_holders[content]
            if type(holders) is int:
                if holders == number:
                    continue
                all_holders[content] = (holders, number) if holders >= 0 else number
            elif type(holders) is tuple:
                if number in holders:
                    continue
                if len(holders) < _FEW:
                    all_holders[content] = (*holders, number)
                else:
                    all_holders[content] = _with_bit(_as_bits(holders), number)
                    self.common.add(content)
            elif self.holds(content, number):
                continue
            else:
                _with_bit(holders, number)  # type: ignore[arg-type]
            gained.append(content)
        if not gained:
            return
        host.held += len(gained)
        self.pairs += len(gained)
        host.note_came(gained, self)
        if self.listener is not None:
            self.listener.on_gained(host, gained)

    def _lose(self, host: HostRecord, contents: list[int]) -> None:  # noqa: C901 called for every change of a cache
        """A host holds contents no more, some of which it may not have held, or are not known (below 0)."""
        number, all_holders = host.number, self.holders_by_content
        lost: list[int] = []
        last: list[int] = []  # that nobody holds any more
        for content in contents:
            holders = all_holders[content] if content >= 0 else _NOBODY
            if type(holders) is tuple:
                if number not in holders:
                    continue
                at = holders.index(number)
                others = holders[:at] + holders[at + 1 :]
                all_holders[content] = others if len(others) > 1 else others[0]
            elif type(holders) is int:
                if holders != number:
                    continue
                all_holders[content] = _NOBODY
                last.append(content)
            elif not self.holds(content, number):
                continue
            else:
                self._lose_common(content, number)
            lost.append(content)
        if not lost:
            return
        host.held -= len(lost)
        self.pairs -= len(lost)
        if self.listener is not None:
            self.listener.on_lost(host, lost, last)
        for content in last:
            if not self._files[content]:
                self.contents.remove(content)

    def _lose_common(self, content: int, number: int) -> None:
        """A host does not hold a common content any more, which may become a rare one by that."""
        bits = self.holders_by_content[content]
        assert isinstance(bits, bytearray)
        bits[number >> 3] &= ~(1 << (number & 7)) & 0xFF
        if int.from_bytes(bits, "little").bit_count() <= _FEW // 2:
            self.holders_by_content[content] = tuple(self.holders(content))
            self.common.discard(content)
            if self.listener is not None:
                self.listener.on_rare(content)

    def _unname(self, content: int, run: int, file: int) -> None:
        """A file has a content no more."""
        self._files[content] -= 1
        if self._first_file[content] == run << 32 | file:
            self._first_file[content] = 0
        else:
            others = self._more_files[content]
            del others[run, file]
            if not others:
                del self._more_files[content]
        self._forget_unneeded(content)

    def _forget_unneeded(self, content: int) -> None:
        if self.holders_by_content[content] == _NOBODY and not self._files[content]:
            self.contents.remove(content)


def _place(executor: Located) -> tuple[str, str]:
    """The site and host of an executor. The hosts behind a relay are a place of their own."""
    return executor.site, f"{executor.host} (relay {executor.id})" if executor.wide else executor.host


def _most_used(rates: dict[str, Rate]) -> dict[str, Rate]:
    """The rates of the sources that sent most often."""
    if len(rates) <= _KEPT_SOURCES:
        return rates
    return dict(sorted(rates.items(), key=lambda one: -one[1].seen)[:_KEPT_SOURCES])


def _with_bit(bits: bytearray, number: int) -> bytearray:
    """The bits of holders, with one more."""
    if number >> 3 >= len(bits):
        bits.extend(bytes((number >> 3) + 1 - len(bits)))
    bits[number >> 3] |= 1 << (number & 7)
    return bits


def _as_bits(holders: tuple[int, ...]) -> bytearray:
    bits = bytearray((max(holders) >> 3) + 1)
    for number in holders:
        bits[number >> 3] |= 1 << (number & 7)
    return bits
