"""Open arrays that a generator feeds, endless or not, in constant memory: read no faster than tasks end.

Rule: the generator runs in a thread of its own, one for each array; what it raises ends the array and is
raised by `wait_all`'s and the iterators' next use of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from bough.api.array import Array
from bough.api.calls import array_key, function_name
from bough.api.context import Context
from bough.api.elements import Elements
from bough.api.identity import function_key
from bough.api.options import NAMES
from bough.api.packing import make_pages, pack_function
from bough.api.view import View
from bough.errors import BoughError, InvalidWorkload
from bough.model.ids import RecordId
from bough.model.tasks import Kind

if TYPE_CHECKING:
    from bough.api.session import Session
    from bough.api.submitter import Submitter

WINDOW = 20_000  # tasks that have not ended, before the generator has to wait
PAGE = 1000  # most items of one page
PATIENCE = 0.05  # seconds an item may wait for others to make a page with


def start_feed(
    submitter: Submitter, what: Callable[..., Any] | str, items: Iterable[Any], options: Mapping[str, Any]
) -> Array:
    """Begin to feed an array."""
    session = submitter._session
    session.check_open()
    settings = submitter._read({name: options[name] for name in NAMES if name in options})
    rest = {name: value for name, value in options.items() if name not in NAMES}
    if not callable(what) and not isinstance(what, str):
        raise InvalidWorkload(f"feed needs a function or a command's text, not {what!r:.80}")
    try:
        source = iter(items)
    except TypeError:
        raise InvalidWorkload(f"feed needs something to iterate over, not {items!r:.80}") from None
    if callable(what):
        if rest:
            raise InvalidWorkload(f"feed: {', '.join(rest)} cannot be given with a function")
        blob, data = pack_function(what)
        key = array_key(function_key(what) if settings.memo else None, star=False)
        parts = {"kind": Kind.FUNCTION, "name": settings.name or function_name(what), "body": blob, "key": key}
        elements = session.send_array(
            settings, submitter._group_id(), **parts, length=0, blobs=((blob, data),), open=True
        )
        feed = Feed(session, elements, source, lambda rows, start: rows)
    else:
        from bough.api.sweeps import open_command_array

        elements, declare = open_command_array(Context(session, settings, submitter._group_id()), what, rest)
        feed = Feed(session, elements, source, declare)
    session.add_feed(feed)
    feed.start()
    return View(elements)


class Feed:
    """The thread that reads a generator into an open array."""

    def __init__(
        self,
        session: Session,
        elements: Elements,
        items: Any,
        prepare: Callable[[list[Any], int], list[Any]],
    ) -> None:
        self._session = session
        self._elements = elements
        self._items = items
        self._prepare = prepare  # rows of a page, given their items and where they begin
        self._error: BaseException | None = None  # what the generator raised
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bough-feed", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more from the generator."""
        self._stopped.set()
        with self._elements.condition:
            self._elements.condition.notify_all()

    def join(self) -> None:
        """Wait until the generator has ended, or was stopped."""
        self._thread.join()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while self._has_room():
                rows = self._gather()
                if not rows:
                    break
                self._send(rows)
        except BaseException as found:  # noqa: BLE001 - the user's generator may raise anything; its array tells
            error = found
        self._end(error)

    def _has_room(self) -> bool:
        elements = self._elements
        with elements.condition:
            elements.condition.wait_for(
                lambda: elements.left < WINDOW or self._stopped.is_set() or not elements.is_open
            )
            return elements.is_open and not self._stopped.is_set()

    def _gather(self) -> list[Any]:
        """The next items: as many as come quickly."""
        if self._error is not None:
            raise self._error
        rows: list[Any] = []
        until = time.monotonic() + PATIENCE
        try:
            for item in self._items:
                rows.append(item)
                if len(rows) >= PAGE or self._stopped.is_set() or time.monotonic() >= until:
                    break
        except BaseException as error:
            self._error = error
            if not rows:
                raise
        return rows

    def _send(self, rows: list[Any]) -> None:
        elements = self._elements
        start = len(elements.states)
        pages = list(make_pages(self._prepare(rows, start), start))
        elements.grow(len(rows))
        self._session.ledger.progress.added(elements.group, len(rows))
        size = sum(len(page.data) for page in pages)
        self._session.connection.add_pages(RecordId(elements.record), pages, size, last=False)

    def _end(self, error: BaseException | None) -> None:
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
