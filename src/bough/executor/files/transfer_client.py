"""The executor's side of its transfer process: starts it when files travel, and again if it dies.

Rules: nothing here blocks. What was not answered when the process died is asked again of the next one; one that dies
again and again is not started any more, and what waits for it fails as a matter of the site.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from bough import fork_warning, logs
from bough.errors import ProtocolError
from bough.executor.descriptors import Descriptors
from bough.executor.executor_options import ExecutorLifetime
from bough.executor.files.host_cache import LIMIT, HostCache, cache_folder, default_place, list_contents
from bough.executor.files.transfer_protocol import (
    BringContent,
    ContentBrought,
    FromTransfers,
    KeepOutput,
    OutputSeen,
    ToTransfers,
    WantedContents,
    from_transfers_frames,
)
from bough.executor.processes import fork_deaf, hear_signals, kill
from bough.policies.eviction.eviction_names import EVICTION, load_eviction
from bough.wire.framing import frame

_CHUNK: Final = 1 << 20
_DEATHS: Final = 5  # of transfer processes that brought nothing, after which no more are started


class CacheOptions(NamedTuple):
    """What an executor was told of its host's cache."""

    place: str  # the folder that it lies in
    limit: int = LIMIT
    eviction: str = EVICTION
    peers: bool = True  # other executors may take contents from here

    def open(self) -> HostCache:
        """The cache; OSError or SiteError when it cannot be used."""
        return HostCache(cache_folder(self.place), self.limit, load_eviction(self.eviction))

    def contents(self) -> list[tuple[bytes, int]]:
        """What the cache holds, if it is there; nothing is made."""
        return list(list_contents(cache_folder(self.place)).items())


def cache_options(told: ExecutorLifetime) -> CacheOptions:
    """What an executor was told of the cache, or the usual."""
    place = told.cache_dir or default_place(told.work, is_pilot=bool(told.pilot))
    return CacheOptions(place, told.cache_size or LIMIT, told.eviction or EVICTION, told.peers)


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
        self._descriptors = descriptors
        self._cache = cache
        self._options = options
        self._address = address if options.peers else ""
        self._reader = reader
        self._hear = hear
        self._orders: dict[int, BringContent | KeepOutput] = {}  # not answered
        self._wanted: dict[bytes, int] = {}
        self._sock: socket.socket | None = None
        self._out = bytearray()
        self._pid = self._deaths = 0

    def order(self, order: BringContent | KeepOutput) -> None:
        """Have something done that is answered under its number."""
        self._orders[order.number] = order
        if self._deaths >= _DEATHS:
            self._give_up()
        elif self._sock is None:
            self._start()
        else:
            self.say(order)

    def say(self, message: ToTransfers) -> None:
        """Tell it something, if it lives."""
        if self._sock is not None:
            self._out += frame(message)
            self._write()

    def start(self) -> None:
        """Be ready, if it is not."""
        if self._sock is None and self._deaths < _DEATHS:
            self._start()

    def want(self, digest: bytes, count: int) -> None:
        """How many waiting tasks read a content, as the server has just said."""
        if self._wanted.get(digest, 0) != count:
            self._wanted[digest] = count
            if not count:
                del self._wanted[digest]
            self.say(WantedContents([(digest, count)]))

    def _start(self) -> None:
        self._sock, theirs = socket.socketpair()
        fork_warning.keep_quiet()
        parent, options, cache = os.getpid(), self._options, self._cache
        self._pid = fork_deaf()
        if self._pid == 0:
            from bough.executor.files.transfer_process import be_transfer_process

            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            hear_signals()
            place = (cache.folder, options.limit, options.eviction, cache.pins)
            be_transfer_process(theirs, parent, *place, self._address, self._reader)
        theirs.close()
        self._sock.setblocking(False)
        self._frames = from_transfers_frames()
        self._out = bytearray()
        self._descriptors.add(self._sock.fileno(), partial(self._on_ready, self._sock))
        if self._wanted:
            self._out += frame(WantedContents(list(self._wanted.items())))
        for order in self._orders.values():
            self._out += frame(order)
        self._write()

    def _write(self) -> None:
        sock = self._sock
        assert sock is not None
        while self._out:
            try:
                sent = sock.send(self._out)
            except BlockingIOError:
                break
            except OSError:  # it died, which is read soon
                self._out.clear()
                break
            del self._out[:sent]
        self._descriptors.want_write(sock.fileno(), bool(self._out))

    def _on_ready(self, sock: socket.socket) -> None:
        if sock is not self._sock:
            return
        self._write()
        try:
            data = sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            messages = self._frames.feed(data) if data else None
        except ProtocolError as error:
            logs.error("transfers-killed", f"what the transfer process sent cannot be read: {error}")
            messages = None
        if messages is None:
            self._on_dead()
            return
        for message in messages:
            if isinstance(message, ContentBrought | OutputSeen):
                self._deaths = 0
                self._orders.pop(message.number, None)
        self._hear(messages)

    def _on_dead(self) -> None:
        self._stop()
        self._deaths += 1
        logs.warning("transfers-died", "the transfer process has ended; another one is started")
        if self._deaths >= _DEATHS:
            self._give_up()
        elif self._orders:
            self._start()

    def _give_up(self) -> None:
        error = "transfer processes die again and again"
        orders, self._orders = list(self._orders.values()), {}
        answers: list[FromTransfers] = [
            ContentBrought(order.number, error, of_site=True)
            if isinstance(order, BringContent)
            else OutputSeen(order.number)
            for order in orders
        ]
        if answers:
            self._hear(answers)

    def _stop(self) -> None:
        if self._sock is not None:
            kill(self._pid, signal.SIGKILL)
            self._descriptors.remove(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def close(self) -> None:
        """The executor ends."""
        self._stop()
        self._orders.clear()
