"""What a session has for its server: submissions gather in requests, which count until they are acknowledged.

An outbox that `keeps` can say again what a server that is back may not have heard. A request that was refused as a
whole goes again item by item.

Rules: messages come out in the order in which they were put in. What no server would take is refused before it is put
in. Nothing here locks or sends: `Connection` does both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from bough.errors import UserError
from bough.model.events.news import PagesAdded
from bough.model.ids import BlobId, RecordId
from bough.model.sites.resources import show_bytes
from bough.model.tasks import Item, Page, Reuse
from bough.wire.client_messages import MAX_FRAME, Amend, Ask, Blob, CloseSession, DoAction, Submit

BATCH_ITEMS = 5_000  # in one request, so that the server's turns stay short
BATCH_BYTES = 8 << 20
UNHEARD_ITEMS = 200_000  # unacknowledged, before callers have to wait
UNHEARD_BYTES = 64 << 20
MOST_BYTES = MAX_FRAME - (1 << 20)  # of one item, or of a function with all that it refers to

_SAID_AGAIN = (Ask, Amend, CloseSession)  # by the connection, which knows what callers wait for


class SubmitRequest:
    """A submission on its way: until it is acknowledged, for a refusal to be told to its items."""

    __slots__ = ("before", "items", "most", "number", "pages", "size")

    def __init__(
        self, number: int, items: list[Item], size: int, pages: PagesAdded | None = None, most: int = BATCH_ITEMS
    ) -> None:
        self.number = number
        self.most = most  # items
        self.items = items
        self.size = size
        self.pages = pages
        self.before: Sequence[object] = ()  # what was sent since the request before it, in an outbox that keeps

    @property
    def weight(self) -> int:
        """How many items it counts for."""
        return len(self.items) or 1

    @property
    def has_room(self) -> bool:
        """Whether an item may be added."""
        return self.pages is None and len(self.items) < self.most and self.size < BATCH_BYTES


class Outbox:
    """See the module."""

    def __init__(self, *, keeps: bool = False, bundle: int = 0) -> None:
        self.gathered: deque[SubmitRequest | object] = deque()  # not yet sent
        self.unacknowledged: deque[SubmitRequest] = deque()  # sent
        self.is_full = False  # so much is gathered or unacknowledged that callers should wait
        self._keeps = keeps
        self._loose: deque[object] = deque()  # sent since the last request, by an outbox that keeps
        self._bundle = bundle  # items that a request is to have, each request then going alone
        self._most = bundle or BATCH_ITEMS
        self._sent: set[BlobId] = set()  # blobs the server has, or will have
        self._items = 0  # gathered or unacknowledged
        self._bytes = 0
        self._number = 0

    @property
    def is_busy(self) -> bool:
        """Whether something has gathered, or is not acknowledged."""
        return bool(self.gathered or self.unacknowledged)

    # --- putting in ---------------------------------------------------------------------------------

    def new_number(self) -> int:
        """A number for something that the server answers."""
        self._number += 1
        return self._number

    def submit(self, item: Item, size: int, blobs: Sequence[tuple[BlobId, bytes]]) -> None:
        """An item, with the last request if it has room, and those of its blobs that the server does not have."""
        if size > MOST_BYTES:
            check_size(f"what is given to {item.name or 'a task'}", size)
        for blob, data in blobs:
            if blob not in self._sent:
                self.put_blob(blob, data, f"the function or table of {item.name or 'a task'}")
        last = self.gathered[-1] if self.gathered else None
        if type(last) is SubmitRequest and last.has_room and last.size + size <= MOST_BYTES:
            last.items.append(item)
            last.size += size
        else:
            self.gathered.append(SubmitRequest(self.new_number(), [item], size, most=self._most))
        self._items += 1
        self._bytes += size
        if self._items >= UNHEARD_ITEMS or self._bytes >= UNHEARD_BYTES:
            self.is_full = True

    def put_blob(self, blob: BlobId, data: bytes, what: str) -> None:
        """A blob that something names which comes behind it, if the server does not have it; `what` names it."""
        if blob not in self._sent:
            check_size(what, len(data))
            self._sent.add(blob)
            self.gathered.append(Blob(blob, data))

    def submit_all(self, items: Sequence[Item], size: int) -> None:
        """Items that name no blobs, or such as are sent already, and have this size together."""
        at, each = 0, size // (len(items) or 1)
        while at < len(items):
            last = self.gathered[-1] if self.gathered else None
            if not (type(last) is SubmitRequest and last.has_room):
                last = SubmitRequest(self.new_number(), [], 0, most=self._most)
                self.gathered.append(last)
            some = items[at : at + last.most - len(last.items)]
            last.items += some
            last.size += each * len(some)
            at += len(some)
        self._count(len(items), each * len(items))

    def add_pages(
        self, record: RecordId, pages: list[Page], size: int, *, last: bool, reuse: tuple[Reuse, ...] = ()
    ) -> None:
        """More of an open array."""
        check_size("an item of an array", size)
        message = PagesAdded(record, pages, last, self.new_number(), reuse)
        self.gathered.append(SubmitRequest(message.request, [], size, message))
        self._count(1, size)

    def post(self, message: object) -> None:
        """A message that does not count."""
        self.gathered.append(message)

    def submit_singly(self, request: SubmitRequest) -> None:
        """A request is taken as a whole or not at all: those of its items that are right go again, each alone."""
        size = request.size // len(request.items)
        for item in request.items:
            self.gathered.append(SubmitRequest(self.new_number(), [item], size))
        self._count(len(request.items), size * len(request.items))

    # --- taking out ---------------------------------------------------------------------------------

    def take(self, *, everything: bool) -> list[list[object]]:
        """Lists of messages to be sent together: all that has gathered, or about one batch of it."""
        if self._bundle and self.unacknowledged and not everything:
            return []  # they go one after the other
        taken: list[list[object]] = []
        messages: list[object] = []
        size = items = 0
        queue, most = self.gathered, 1 if self._bundle else BATCH_ITEMS
        while queue and (everything or (items < most and size < BATCH_BYTES)):
            entry = queue.popleft()
            if type(entry) is SubmitRequest:
                self.unacknowledged.append(entry)
                if self._loose:
                    entry.before = (*entry.before, *self._loose)
                    self._loose.clear()
                messages.append(Submit(entry.items, entry.number) if entry.pages is None else entry.pages)
                size += entry.size
                items += entry.weight
            else:
                messages.append(entry)
                size += len(entry.data) if type(entry) is Blob else 0
                if self._keeps and not isinstance(entry, _SAID_AGAIN):
                    self._loose.append(entry)
            if size > BATCH_BYTES or (self._bundle and type(entry) is SubmitRequest):
                taken.append(messages)
                messages, size = [], 0 if everything else size
        if messages:
            taken.append(messages)
        return taken

    def accepted(self, number: int) -> None:
        """The server has taken everything up to a request."""
        while self.unacknowledged and self.unacknowledged[0].number <= number:
            request = self.unacknowledged.popleft()
            self._count(-request.weight, -request.size)

    def refused(self, number: int) -> SubmitRequest | None:
        """The server did not take a request, which is forgotten; None if it is none of ours."""
        request = next((r for r in self.unacknowledged if r.number == number), None)
        if request is not None:
            at = self.unacknowledged.index(request)
            del self.unacknowledged[at]
            if request.before:
                if at < len(self.unacknowledged):
                    self.unacknowledged[at].before = (*request.before, *self.unacknowledged[at].before)
                else:
                    self._loose.extendleft(reversed(request.before))
                request.before = ()
            self._count(-request.weight, -request.size)
        return request

    def answered(self, number: int) -> None:
        """The server has answered an action, so that it has heard what was sent before it, too."""
        if any(isinstance(entry, DoAction) and entry.request == number for entry in self._loose):
            while True:
                entry = self._loose.popleft()
                if isinstance(entry, DoAction) and entry.request == number:
                    return

    def rewind(self) -> None:
        """The server may not have heard what it did not acknowledge: all of it goes again, before anything else."""
        again: list[object] = []
        for request in self.unacknowledged:
            again += request.before
            request.before = ()
            again.append(request)
        again += self._loose
        self.unacknowledged.clear()
        self._loose.clear()
        self.gathered.extendleft(reversed(again))

    def _count(self, items: int, size: int) -> None:
        self._items += items
        self._bytes += size
        self.is_full = self._items >= UNHEARD_ITEMS or self._bytes >= UNHEARD_BYTES


def check_size(what: str, size: int) -> None:
    """Refuse what no server would take."""
    if size > MOST_BYTES:
        raise UserError(
            f"{what} takes {show_bytes(size)}, and no more than {show_bytes(MOST_BYTES)} can be sent at once:"
            " write the data to a file, and give its path"
        )
