"""The contents of this host as an executor sees them: its cache, and the process that brings contents into it.

Rule: both are opened when files first travel; most executors bring none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bough.executor.executor_options import ExecutorLifetime
from bough.executor.files.command_files.sandbox import ExecutorFolder
from bough.executor.files.transfers.transfer_protocol import FromTransfers
from bough.executor.host.descriptors import Descriptors
from bough.model.ids import ExecutorId
from bough.wire.file_messages import CacheReport

if TYPE_CHECKING:
    from bough.executor.files.caches.host_cache import HostCache
    from bough.executor.files.transfers.transfer_client import Transfers


class HostContents:
    """See the module. `hear` gets what the transfer process says, `say` sends to the server if it is there.

    `address`: where others can reach this host; empty: they cannot.
    """

    def __init__(
        self,
        folder: ExecutorFolder,
        descriptors: Descriptors,
        told: ExecutorLifetime,
        *,
        address: str,
        number: ExecutorId,
        hear: Callable[[list[FromTransfers]], None],
        say: Callable[[object], None],
    ) -> None:
        self._folder = folder
        self._descriptors = descriptors
        self._told = told
        self._address = address
        self._number = number
        self._hear = hear
        self._say = say
        self._last = 0
        self.cache: HostCache | None = None
        self.transfers: Transfers | None = None

    def new_number(self) -> int:
        """The number of a request to the server, or of an order to the transfer process."""
        self._last += 1
        return self._last

    def open(self) -> HostCache:
        """The host's cache, and what brings contents into it."""
        if self.cache is None:
            from bough.executor.files.transfers.transfer_client import Transfers, cache_options

            self._folder.open()
            options = cache_options(self._told)
            self.cache = cache = options.open()
            self.transfers = Transfers(
                self._descriptors,
                cache,
                options,
                address=self._address,
                reader=self._number,
                hear=self._hear,
            )
            cache.on_evicted = lambda digest: self._say(CacheReport(removed=[digest]))
        return self.cache

    def close(self) -> None:
        """The executor ends."""
        if self.transfers is not None:
            self.transfers.close()
        if self.cache is not None:
            self.cache.close()
