"""The executor's side of its transfer process: starts it when files travel, and again if it dies.

Rules: nothing here blocks. What was not answered when the process died is asked again of the next one, and others are
told where that is; one that dies again and again is not started any more, and what waits for it fails as a matter of
the site.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final, NamedTuple

from bough import logs
from bough.errors import ProtocolError
from bough.executor.executor_options import ExecutorLifetime
from bough.executor.files.caches.host_cache import LIMIT, HostCache, cache_folder, default_place, list_contents
from bough.executor.files.caches.shared_store import SHARED_LIMIT, SharedStore, store_folder
from bough.executor.files.transfers.transfer_protocol import (
    BringContent,
    ContentBrought,
    Done,
    FetchUrl,
    FromTransfers,
    KeepOutput,
    Listening,
    Order,
    OutputSeen,
    ToTransfers,
    UrlFetched,
    UrlSeen,
    WantedContents,
    from_transfers_frames,
)
from bough.executor.host.descriptors import Descriptors
from bough.executor.host.helper_process import HelperProcess
from bough.policies.eviction.eviction_names import EVICTION, load_eviction
from bough.wire.framing import frame

_DEATHS: Final = 5  # of transfer processes that brought nothing, after which no more are started
_SERVING: Final = 2  # the same, after which none is started for others alone, who are sent here


class CacheOptions(NamedTuple):
    """What an executor was told of its host's cache."""

    place: str  # the folder that it lies in
    limit: int = LIMIT
    eviction: str = EVICTION
    peers: bool = True  # other executors may take contents from here
    shared: str = ""  # the site's shared folder, empty: none
    shared_limit: int = SHARED_LIMIT

    def open(self) -> HostCache:
        """The cache; OSError or SiteError when it cannot be used."""
        return HostCache(cache_folder(self.place), self.limit, load_eviction(self.eviction))

    def open_shared(self) -> SharedStore | None:
        """The content store of the site, if it has one."""
        return SharedStore(store_folder(self.shared), self.shared_limit) if self.shared else None

    def contents(self) -> list[tuple[bytes, int]]:
        """What the cache holds, if it is there; nothing is made."""
        return list(list_contents(cache_folder(self.place)).items())


def cache_options(told: ExecutorLifetime) -> CacheOptions:
    """What an executor was told of the cache, or the usual."""
    place = told.cache_dir or default_place(told.work, is_pilot=bool(told.pilot))
    usual = CacheOptions(place, told.cache_size or LIMIT, told.eviction or EVICTION, told.peers)
    return usual._replace(shared=told.shared_dir, shared_limit=told.shared_size or SHARED_LIMIT)


def _given_up(order: Order) -> FromTransfers:
    """The answer to an order that no process will carry out."""
    error = "transfer processes die again and again"
    match order:
        case BringContent():
            return ContentBrought(order.number, error, of_site=True)
        case KeepOutput():
            return OutputSeen(order.number)
        case FetchUrl():
            return UrlFetched(order.number, error=error, of_site=True)
        case _:
            return UrlSeen(order.number, error=error, of_site=True)


class Transfers:
    """See the module. `hear` takes what the process says; `address`: where it listens, empty: nowhere."""

    def __init__(
        self,
        descriptors: Descriptors,
        cache: HostCache,
        options: CacheOptions,
        *,
        address: str,
        reader: int,
        hear: Callable[[list[FromTransfers]], None],
    ) -> None:
        self._cache = cache
        self._options = options
        self._address = address if options.peers else ""
        self._reader = reader
        self._hear = hear
        self._orders: dict[int, Order] = {}  # not answered
        self._wanted: dict[bytes, int] = {}
        self._process = HelperProcess(descriptors, self._run, from_transfers_frames, self._on_said, self._on_dead)
        self._deaths = 0
        self.is_beginning = False  # it was started, and will say where others can reach it

    def order(self, order: Order) -> None:
        """Have something done that is answered under its number."""
        self._orders[order.number] = order
        if self._deaths >= _DEATHS:
            self._give_up()
        elif self._process.lives:
            self.say(order)
        else:
            self._start()

    def say(self, message: ToTransfers) -> None:
        """Tell it something, if it lives."""
        self._process.send(frame(message))

    def start(self) -> None:
        """Be ready, if it is not."""
        if not self._process.lives and self._deaths < _DEATHS:
            self._start()

    def want(self, digest: bytes, count: int) -> None:
        """How many waiting tasks read a content, as the server has just said."""
        if self._wanted.get(digest, 0) != count:
            self._wanted[digest] = count
            if not count:
                del self._wanted[digest]
            self.say(WantedContents([(digest, count)]))

    def _start(self) -> None:
        """Start it, and tell it all there is."""
        self._process.start()
        self.is_beginning = bool(self._address)
        if self._wanted:
            self.say(WantedContents(list(self._wanted.items())))
        for order in self._orders.values():
            self.say(order)

    def _run(self, sock: socket.socket) -> None:
        """In the fork."""
        from bough.executor.files.transfers.transfer_process import TransferProcess

        options = self._options
        cache = HostCache(self._cache.folder, options.limit, load_eviction(options.eviction), pins=self._cache.pins)
        TransferProcess(sock, cache, self._address, self._reader, options.open_shared()).run()

    def _on_said(self, messages: list[FromTransfers]) -> None:
        for message in messages:
            if isinstance(message, Done):
                self._deaths = 0
                self._orders.pop(message.number, None)
            elif isinstance(message, Listening):
                self.is_beginning = False
        self._hear(messages)

    def _on_dead(self, unreadable: ProtocolError | None) -> None:
        if unreadable is not None:
            logs.error("transfers-killed", f"what the transfer process sent cannot be read: {unreadable}")
        self._deaths += 1
        self.is_beginning = False
        logs.warning("transfers-died", "the transfer process has ended; another one is started")
        if self._deaths >= _DEATHS:
            self._give_up()
        elif self._orders or (self._address and self._deaths <= _SERVING):
            self._start()
        if not self.is_beginning:
            self._hear([Listening()])

    def _give_up(self) -> None:
        orders, self._orders = list(self._orders.values()), {}
        answers = [_given_up(order) for order in orders]
        if answers:
            self._hear(answers)

    def close(self) -> None:
        """The executor ends."""
        self._process.stop()
        self._orders.clear()
