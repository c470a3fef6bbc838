"""Where data is: which hosts hold which contents, which content a file has, and how fast bytes travel between hosts.

News changes it: what caches gained and lost, whose content a file has, how long a transfer took. It is advice: no fact
is written, a replay leaves it empty, and executors say again what they hold when they join. A holder is a host of a
site, which has its cache for all its executors; what it holds is forgotten when its last executor has left for good. A
content is forgotten when no host holds it and no file of a workflow has it.

Hosts and contents have dense numbers. A content with one holder costs no object, one with a few has a tuple of them,
and one with many a bit for each host. A host has a list of what came; what left again is removed from it now and then.
Rule: what news names that is not known is passed over; no change costs more than what it names, and what it removes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
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
_NEW: Final = 0.3  # weight of the newest measurement
_SMALL: Final = 65_536  # bytes: a transfer below tells the latency, one above the rate

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


class Rate:
    """How fast bytes came from one place to another; 0 while unknown."""

    __slots__ = ("latency", "rate", "seen")

    def __init__(self) -> None:
        self.rate = 0.0  # bytes a second
        self.latency: Seconds = 0.0
        self.seen = 0

    def note(self, count: int, seconds: Seconds) -> None:
        """Take in one transfer."""
        self.seen += 1
        if count < _SMALL:
            self.latency = self.latency + _NEW * (seconds - self.latency) if self.latency else seconds
        elif seconds > 0:
            rate = count / max(seconds - self.latency, seconds / 10)
            self.rate = self.rate + _NEW * (rate - self.rate) if self.rate else rate


class HostRecord:
    """A host that has executors, and what its cache holds."""

    __slots__ = ("_came", "executors", "held", "held_bytes", "host", "number", "rates", "site")

    def __init__(self, number: int, site: str, host: str) -> None:
        self.number = number
        self.site = site
        self.host = host
        self.executors: dict[int, Located] = {}
        self.held = 0  # contents
        self.held_bytes = 0
        self.rates: dict[str, Rate] = {}  # by the host that sent, or `ORIGIN`
        self._came = array("I")  # contents, some of which may have left again, or be there twice

    def note_came(self, content: int, index: DataIndex) -> None:
        """Remember that a content came."""
        self._came.append(content)
        if len(self._came) > 2 * self.held + 64:
            self._came = array("I", self.contents(index))

    def contents(self, index: DataIndex) -> Iterator[int]:
        """What it holds."""
        return (content for content in dict.fromkeys(self._came) if index.holds(content, self.number))

    def clear(self) -> None:
        """It holds nothing any more."""
        self._came = array("I")
        self.held = self.held_bytes = 0

    def note_rate(self, source: str, count: int, seconds: Seconds) -> None:
        """Take in one transfer to it."""
        rate = self.rates.get(source)
        if rate is None:
            if len(self.rates) >= _MOST_SOURCES:
                del self.rates[next(iter(self.rates))]
            rate = self.rates[source] = Rate()
        rate.note(count, seconds)


class Listener(Protocol):
    """Who wants to know at once that a host holds something more."""

    def on_gained(self, content: int, host: HostRecord) -> None:
        """A host holds a content that it did not."""

    def on_lost(self, content: int) -> None:
        """Nobody holds a content any more."""

    def on_identified(self, run: int, file: int) -> None:
        """The content of a file is known, or another one."""

    def on_left(self, host: HostRecord) -> None:
        """A host is gone."""

    def forget_run(self, run: int) -> None:
        """A workflow leaves."""


class DataIndex:
    """See the module."""

    def __init__(self) -> None:
        self.contents = ContentTable()
        self.hosts: dict[tuple[str, str], HostRecord] = {}  # by site and host
        self.by_number: list[HostRecord | None] = []
        self.pairs = 0  # of content and holder
        self.rates: dict[str, Rate] = {}  # over all hosts: from `ORIGIN`, and from peers (the empty name)
        self.listener: Listener | None = None
        self.holders_by_content: list[Holders] = []  # see `holds`
        self._files = array("I")  # how many files have a content, by content
        self._first_file = array("Q")  # one of them, packed: see `files_of`; 0: none
        self._more_files: dict[int, list[tuple[int, int]]] = {}  # the others
        self.contents_by_run: dict[int, array[int]] = {}  # by run: content by file
        self._free: list[int] = []  # numbers of hosts that can be given again

    # --- questions -------------------------------------------------------------------------------

    def host_of(self, executor: Located) -> HostRecord | None:
        """The host of an executor."""
        return self.hosts.get((executor.site, executor.host))

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

    def is_held(self, content: int) -> bool:
        """Whether any host holds a content."""
        return self.holders_by_content[content] != _NOBODY

    def is_common(self, content: int) -> bool:
        """Whether so many hosts hold a content that they are not listed."""
        return type(self.holders_by_content[content]) is bytearray

    def content_of(self, run: int, file: int) -> int:
        """The content of a file, -1: not known."""
        contents = self.contents_by_run.get(run)
        if contents is None or not 0 <= file < len(contents):
            return -1
        content = contents[file]
        return content if content != _UNKNOWN else -1

    def files_of(self, content: int) -> list[tuple[int, int]]:
        """The files that have a content: run and number."""
        packed = self._first_file[content]
        first = [(packed >> 32, packed & (_MOST_FILES - 1))] if packed else []
        return first + self._more_files.get(content, [])

    def rate_between(self, source: str, host: HostRecord) -> Rate | None:
        """What is known of transfers to a host: from a peer, or from `ORIGIN`; or how fast such ones are elsewhere."""
        return host.rates.get(source) or self.rates.get(source if source == ORIGIN else "")

    # --- hosts -----------------------------------------------------------------------------------

    def add_executor(self, executor: Located) -> None:
        """An executor is there."""
        key = executor.site, executor.host
        host = self.hosts.get(key)
        if host is None:
            number = self._free.pop() if self._free else len(self.by_number)
            host = self.hosts[key] = HostRecord(number, *key)
            if number == len(self.by_number):
                self.by_number.append(host)
            else:
                self.by_number[number] = host
        host.executors[executor.id] = executor

    def remove_executor(self, executor: Located) -> None:
        """An executor has left for good; with the last one of a host all that was known of it goes."""
        host = self.hosts[executor.site, executor.host]
        del host.executors[executor.id]
        if host.executors:
            return
        for content in list(host.contents(self)):
            self._lose(host, content)
        if self.listener is not None:
            self.listener.on_left(host)
        del self.hosts[executor.site, executor.host]
        self.by_number[host.number] = None
        self._free.append(host.number)

    # --- news ------------------------------------------------------------------------------------

    def cache_changed(
        self, host: HostRecord, added: Iterable[tuple[bytes, int]], removed: Iterable[bytes], *, whole: bool
    ) -> None:
        """A cache gained and lost something; `whole`: what it gained is all that it holds."""
        table = self.contents
        if whole:
            added = list(added)
            stays = {table.find(digest) for digest, _ in added}
            for content in [content for content in host.contents(self) if content not in stays]:
                self._lose(host, content)
        for digest in removed:
            content = table.find(digest)
            if content >= 0 and self.holds(content, host.number):
                self._lose(host, content)
        for digest, size in added:
            content = self._known(digest, size)
            if not self.holds(content, host.number):
                self._gain(host, content)

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
            self._more_files.setdefault(content, []).append((run, file))
        if former != _UNKNOWN:
            self._unname(former, run, file)
        if self.listener is not None:
            self.listener.on_identified(run, file)

    def bytes_moved(self, host: HostRecord, source: str, count: int, seconds: Seconds) -> None:
        """Bytes came to a host."""
        host.note_rate(source, count, seconds)
        kind = source if source == ORIGIN else ""
        rate = self.rates.get(kind)
        if rate is None:
            rate = self.rates[kind] = Rate()
        rate.note(count, seconds)

    def forget_run(self, run: int) -> None:
        """A workflow leaves: its files have no contents any more."""
        if self.listener is not None:
            self.listener.forget_run(run)
        contents = self.contents_by_run.pop(run, None)
        if contents is not None:
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

    def _gain(self, host: HostRecord, content: int) -> None:
        number, holders = host.number, self.holders_by_content[content]
        if type(holders) is int:
            self.holders_by_content[content] = number if holders < 0 else (holders, number)
        elif type(holders) is tuple and len(holders) < _FEW:
            self.holders_by_content[content] = (*holders, number)
        else:
            bits = _as_bits(holders) if type(holders) is tuple else holders
            assert isinstance(bits, bytearray)
            if number >> 3 >= len(bits):
                bits.extend(bytes((number >> 3) + 1 - len(bits)))
            bits[number >> 3] |= 1 << (number & 7)
            self.holders_by_content[content] = bits
        host.held += 1
        host.held_bytes += self.contents.sizes[content]
        self.pairs += 1
        host.note_came(content, self)
        if self.listener is not None:
            self.listener.on_gained(content, host)

    def _lose(self, host: HostRecord, content: int) -> None:
        number, holders = host.number, self.holders_by_content[content]
        if type(holders) is int:
            self.holders_by_content[content] = _NOBODY
        elif type(holders) is tuple:
            left = tuple([one for one in holders if one != number])
            self.holders_by_content[content] = left if len(left) > 1 else left[0]
        else:
            assert isinstance(holders, bytearray)
            holders[number >> 3] &= ~(1 << (number & 7)) & 0xFF
            if sum(bits.bit_count() for bits in holders) <= _FEW // 2:
                self.holders_by_content[content] = tuple(self.holders(content))
        host.held -= 1
        host.held_bytes -= self.contents.sizes[content]
        self.pairs -= 1
        if self.holders_by_content[content] == _NOBODY:
            if self._files[content] and self.listener is not None:
                self.listener.on_lost(content)
            self._forget_unneeded(content)

    def _unname(self, content: int, run: int, file: int) -> None:
        """A file has a content no more."""
        self._files[content] -= 1
        if self._first_file[content] == run << 32 | file:
            self._first_file[content] = 0
        else:
            others = self._more_files[content]
            others.remove((run, file))
            if not others:
                del self._more_files[content]
        self._forget_unneeded(content)

    def _forget_unneeded(self, content: int) -> None:
        if self.holders_by_content[content] == _NOBODY and not self._files[content]:
            self.contents.remove(content)


def _as_bits(holders: tuple[int, ...]) -> bytearray:
    bits = bytearray((max(holders) >> 3) + 1)
    for number in holders:
        bits[number >> 3] |= 1 << (number & 7)
    return bits
