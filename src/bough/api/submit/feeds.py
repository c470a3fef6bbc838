"""Open arrays that a generator feeds, endless or not, in constant memory.

The generator runs in a thread of its own. It waits while too many tasks have not ended, or have results that were not
taken. A second thread sends what it gave while it takes its time for the next item: it may wait for other things, also
for the results of the items before. What earlier runs have done of a feed is read again beside the generator, a few
pages at a time: an element is reused if the same function was fed the same argument at the same place.

Rules: what the generator raises ends the array, and the next use of `wait_all` or of an iterator raises it; if there
is none, the end of the session's `with` block does. What is held does not grow with the length of the feed, so places
are compared, and nothing is looked for elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from bough.api.futures.array import Array
from bough.api.futures.array_view import ArrayView, FeedArray
from bough.api.futures.feed_elements import FeedElements
from bough.api.memo.decorator import is_memo
from bough.api.memo.file_identities import paths_of
from bough.api.pickling import make_pages, pack
from bough.api.submit.array_reuse import row_key, rows_in, unread_rows
from bough.api.submit.arrays import ArrayParts, may_reuse, send_array
from bough.api.submit.calls import body_key, function_name, pack_body
from bough.api.submit.context import SubmitContext
from bough.api.submit.task_options.options import NAMES, read_options
from bough.errors import BoughError, InvalidWorkload, unknown_keyword
from bough.model.arrays.element_reads import ElementReads
from bough.model.ids import DIGEST_SIZE, MemoKey, RecordId
from bough.model.tasks import Kind, Page, Reuse
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.pickling import BuffersApart
    from bough.api.submit.context import SessionLike

WINDOW = 20_000  # tasks that have not ended or were not taken, before the generator has to wait
WIDEST = 200_000  # the same where tasks end so fast that a window would not last
LASTING = 0.25  # seconds that a window is to last
WINDOW_BYTES = 64 << 20  # of arguments of such tasks, as far as their mean tells
FEWEST = 64  # tasks that may be under way however big their arguments are
PAGE = 1000  # most items of one page
GATHER = 0.05  # seconds an item may wait for others to make a page with


def start_feed(
    context: SubmitContext,
    what: Callable[..., Any] | str,
    items: Iterable[Any],
    options: Mapping[str, Any],
    *,
    keep: bool = True,
) -> Array:
    """Begin to feed an array."""
    session, settings, group = context
    session.check_open()
    settings = read_options(settings, {name: options[name] for name in NAMES if name in options})
    session.check_needs(settings.needs)
    rest = {name: value for name, value in options.items() if name not in NAMES}
    if not callable(what) and not isinstance(what, str):
        raise InvalidWorkload(f"feed needs a function or a command's text, not {what!r:.80}")
    if not isinstance(keep, bool):
        raise InvalidWorkload(f"feed: keep is {keep!r:.80}; give True or False")
    try:
        source = iter(items)
    except TypeError:
        raise InvalidWorkload(f"feed needs something to iterate over, not {items!r:.80}") from None
    earlier: EarlierFeed | None = None
    if callable(what):
        for name in rest:
            raise unknown_keyword("a feed of a function", name, NAMES)
        key = feed_key(body_key(session, what, is_reused=settings.memo is not False))
        key = session.groups.watched_key(key, group, settings.watching)
        blob, data = pack_body(session, what)
        always = settings.memo or (settings.memo is None and is_memo(what))
        parts = ArrayParts(
            kind=Kind.FUNCTION,
            name=settings.name or function_name(what),
            body=blob,
            length=0,
            blobs=((blob, data),),
            key=key,
            open=True,
            keep=keep,
            always=always,
        )
        elements = send_array(session, settings, group, parts)
        prepare: Prepare = _as_they_are
        manifest: PageFiles | None = None
        earlier = EarlierFeed(session, key, always=always) if key and may_reuse(session, always=always) else None
    else:
        from bough.api.submit.command_lines.commands import open_command_array

        context = SubmitContext(session, settings, group)
        elements, prepare, manifest = open_command_array(context, what, rest, keep=keep)
    assert isinstance(elements, FeedElements)
    feed = Feed(session, elements, source, prepare, earlier, manifest)
    session.add_feed(feed)
    feed.start()
    return ArrayView(elements) if keep else FeedArray(elements)


Prepare = Callable[[list[Any], int], list[Any]]  # rows of a page, given their items and where they begin
# the manifest of the rows of a page, and what each of them reads
PageFiles = Callable[[Sequence[Any]], tuple[bytes, ElementReads | None]]


def _as_they_are(rows: list[Any], _: int) -> list[Any]:
    return rows


class Feed:
    """The threads that read a generator into an open array."""

    def __init__(  # noqa: PLR0917 -- what `start_feed` has gathered
        self,
        session: SessionLike,
        elements: FeedElements,
        items: Any,
        prepare: Prepare,
        earlier: EarlierFeed | None,
        manifest: PageFiles | None = None,
    ) -> None:
        self._manifest = manifest  # where declared files may have to travel
        self._session = session
        self._elements = elements
        self._items = items
        self._prepare = prepare
        self._earlier = earlier  # what earlier runs have done of it
        self._window = _Window()
        self._rows: deque[Any] = deque()  # items that were not sent yet
        self._sending = threading.Lock()  # held while they are
        self._has_some = threading.Event()  # there are some
        self._has_ended = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bough-feed", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()
        threading.Thread(target=self._send_late, name="bough-feed-late", daemon=True).start()

    def stop(self) -> None:
        """Take no more from the generator."""
        self._stopped.set()
        with self._elements.condition:
            self._elements.condition.notify_all()

    def abandon(self) -> None:
        """No caller will take results any more, so that they must not hold up the generator."""
        self._elements.abandon()

    def join(self) -> None:
        """Wait until the generator has ended, or was stopped."""
        self._thread.join()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while self._has_room() and self._gather():
                self._flush()
        except BaseException as found:  # noqa: BLE001 - the user's generator may raise anything; its array tells
            error = found
        try:
            self._flush()  # what it gave before
        except BaseException as found:  # noqa: BLE001 - of two errors the first is told
            error = error or found
        self._end(error)

    def _send_late(self) -> None:
        """Send what has waited for others for long enough, though the generator has not given the next item."""
        while not self._has_ended:
            if not self._rows:
                self._has_some.wait()
                self._has_some.clear()
            time.sleep(GATHER)
            try:
                self._flush(is_late=True)
            except BaseException as error:  # noqa: BLE001 - an item that cannot be sent; the array tells
                self._end(error)

    def _has_room(self) -> bool:
        elements, window = self._elements, self._window
        with elements.condition:
            window.ended(len(elements.states) - elements.left)
            elements.condition.wait_for(
                lambda: (
                    (elements.pressure() < window.size and not elements.is_heavy)
                    or self._stopped.is_set()
                    or not elements.is_open
                )
            )
            return elements.is_open and not self._stopped.is_set()

    def _gather(self) -> bool:
        """Take the next items, as many as come quickly; False: there are no more."""
        rows, append, clock, stopped = self._rows, self._rows.append, time.monotonic, self._stopped.is_set
        until = clock() + GATHER
        for item in self._items:
            append(item)
            count = len(rows)
            if count == 1:
                self._has_some.set()
            if count >= PAGE or clock() >= until or stopped():
                return True
        return False

    def _flush(self, *, is_late: bool = False) -> None:
        pending = self._rows
        with self._sending:
            if is_late:  # the generator may add to them meanwhile
                rows = [pending.popleft() for _ in range(len(pending))]
            else:
                rows = list(pending)
                pending.clear()
            if rows and not self._has_ended:
                self._send(rows)

    def _send(self, rows: list[Any]) -> None:
        elements = self._elements
        start = len(elements.states)
        prepared = self._prepare(rows, start)
        pages, written = self._pack(prepared, start)
        if self._manifest is not None:
            rows_of = [(page, prepared[page.start - start : page.stop - start]) for page in pages]
            made = [(page, *self._manifest(own)) for page, own in rows_of]
            pages = [replace(page, files=files, reads=reads) for page, files, reads in made]
        reuse = self._earlier.reuse(pages, prepared, start) if self._earlier is not None else ()
        elements.grow(len(rows))
        self._session.registry.progress.added(elements.group, len(rows))
        size = sum(len(page.data) for page in pages)
        self._window.sent(len(rows), size + written)
        self._session.connection.add_pages(RecordId(elements.record), pages, size, last=False, reuse=reuse)

    def _pack(self, rows: Sequence[Any], start: int) -> tuple[list[Page], int]:
        """Rows as pages, and how many bytes of big arguments were written apart from them."""
        if self._elements.is_command or self._session.is_remote:
            return pages_of(rows, start), 0
        with self._session.packing() as packing:
            pages = pages_of(rows, start, packing)
            for number, page in enumerate(pages):
                packing.hold_page(self._elements.record, number, page.start, page.stop)
            return pages, packing.written

    def _end(self, error: BaseException | None) -> None:
        with self._sending:
            if self._has_ended:
                return
            self._has_ended = True
        self._has_some.set()
        elements = self._elements
        was_open = elements.is_open
        if error is not None:
            elements.feed_error = error
        elements.close()
        self._session.feed_ended(self, elements)
        if was_open:
            try:
                self._session.connection.add_pages(RecordId(elements.record), [], 0, last=True)
            except BoughError:
                return  # the server is gone, and the array with it


class _Window:
    """How many tasks may be under way: enough for a while at the rate at which they end, within bounds."""

    def __init__(self) -> None:
        self.size = WINDOW
        self._wide = WINDOW
        self._seen = (time.monotonic(), 0)
        self._items = self._bytes = 0

    def ended(self, count: int) -> None:
        """So many have ended by now."""
        now = time.monotonic()
        since, before = self._seen
        if now - since >= LASTING:
            self._seen = (now, count)
            rate = (count - before) / (now - since)
            self._wide = min(WIDEST, max(WINDOW, int(rate * LASTING)))
            self._fit()

    def sent(self, items: int, size: int) -> None:
        """More were sent, of so many bytes together."""
        self._items += items
        self._bytes += size
        self._fit()

    def _fit(self) -> None:
        mean = self._bytes / self._items if self._items else 0
        self.size = self._wide if mean * self._wide <= WINDOW_BYTES else max(FEWEST, int(WINDOW_BYTES / mean))


def pages_of(rows: Sequence[Any], start: int, apart: BuffersApart | None = None) -> list[Page]:
    """Rows as pages; numbers that follow each other are told by the first and the last. `apart`: see `make_pages`."""
    first = rows[0]
    if type(first) is int and type(rows[-1]) is int and len(rows) > 2:
        step = rows[1] - first if type(rows[1]) is int else 0
        if step and rows[-1] == first + step * (len(rows) - 1):
            told = range(first, rows[-1] + (1 if step > 0 else -1), step)
            if list(told) == rows and all(type(row) is int for row in rows):
                return [Page(start, start + len(rows), pack(told))]
    return list(make_pages(rows, start, apart))


def feed_key(key: MemoKey) -> MemoKey:
    """The key of what is fed: other arrays, which are compared as a whole, do not look at feeds."""
    return MemoKey(blake2b(b"fed" + key, digest_size=DIGEST_SIZE).digest()) if key else key


class EarlierFeed:
    """All earlier feeds of a function, newest run first."""

    def __init__(self, session: SessionLike, key: MemoKey, *, always: bool) -> None:
        found = session.ask(questions.Feeds(key, always))
        self._olds = [_EarlierPages(session, record) for record in found]

    def reuse(self, pages: Sequence[Page], rows: Sequence[Any], start: int) -> tuple[Reuse, ...]:
        """Which of the rows that begin at `start` have been done; none if there are paths: no identities are kept."""
        found: list[Reuse] = []
        rows = unread_rows(pages, rows, start)
        missing = [(start, start + len(rows))] if not any(paths_of(rows)) else []
        for old in self._olds:
            left: list[tuple[int, int]] = []
            for low, high in missing:
                at = low
                for first, last in old.same(pages, rows, start, low, high):
                    found.append(Reuse(first, last, RecordId(old.record), first))
                    left.append((at, first))
                    at = last
                left.append((at, high))
            missing = [piece for piece in left if piece[0] < piece[1]]
            if not missing:
                break
        for old in self._olds:
            old.drop(start + len(rows))
        self._olds = [old for old in self._olds if not old.is_over]
        return tuple(sorted(found, key=lambda reuse: reuse.start))


class _EarlierPages:
    """One earlier feed, read from its beginning to its end."""

    def __init__(self, session: SessionLike, record: int) -> None:
        self.record = record
        self._session = session
        self._pages: deque[tuple[int, int, bytes]] = deque()
        self._done: deque[tuple[int, int]] = deque()
        self._turn = 0
        self._ended = False  # there are no more pages
        self._loaded: tuple[int, Sequence[Any]] = (-1, ())  # the page that was looked at last

    @property
    def is_over(self) -> bool:
        """Whether it was shorter than what is fed now."""
        return self._ended and not self._pages

    def same(
        self, pages: Sequence[Page], rows: Sequence[Any], start: int, low: int, high: int
    ) -> list[tuple[int, int]]:
        """The elements in [low, high) that were done there with the same arguments; the rows begin at `start`."""
        self._reach(high)
        equal: list[tuple[int, int]] = []
        for first, last, data in self._pages:
            if first >= high:
                break
            begin, end = max(first, low), min(last, high)
            if begin >= end:
                continue
            if any((page.start, page.stop, page.data) == (first, last, data) for page in pages):
                equal.append((begin, end))
                continue
            if self._loaded[0] != first:
                self._loaded = (first, rows_in(data))
            there = self._loaded[1]
            equal += [
                (index, index + 1)
                for index in range(begin, end)
                if (key := row_key(rows[index - start])) is not None and key == row_key(there[index - first])
            ]
        return [
            (max(a, first), min(b, last))
            for a, b in _joined(equal)
            for first, last in self._done
            if max(a, first) < min(b, last)
        ]

    def _reach(self, stop: int) -> None:
        while not self._ended and (not self._pages or self._pages[-1][1] < stop):
            part = self._session.ask(questions.Fed(RecordId(self.record), self._turn))
            self._pages += part.pages
            self._done += part.done
            self._turn = part.turn
            self._ended = not part.turn

    def drop(self, before: int) -> None:
        """Nothing before this element will be asked for."""
        while self._pages and self._pages[0][1] <= before:
            self._pages.popleft()
        while self._done and self._done[0][1] <= before:
            self._done.popleft()


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, stop in ranges:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined
