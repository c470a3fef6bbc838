"""The big buffers of arguments at a service: contents that the server keeps, which workers take from whoever has them.

A buffer is sent to the server once, under the digest of its bytes; a call names it by that digest and declares it as
something it reads. So a host brings it once for all calls that get it, from a peer if one has it, and policies that
look at data send calls where it is.

Rule: what a call gets is what its arguments held when it was submitted. The server keeps a content as long as the
workflow is kept; nothing is left here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from bough.api.values.argument_values import ArgumentValues, KeptBuffer
from bough.model.files import value_path


class RemoteValues(ArgumentValues):
    """See the module. `send` has the server keep the bytes of a buffer, and says their digest."""

    is_here = False

    def __init__(self, send: Callable[[memoryview], bytes]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self.is_closed = False
        self.in_memory = 0

    def keep(self, view: memoryview, source: Any = None) -> KeptBuffer:
        """Have the server keep a buffer."""
        digest = self._send(view)
        kept = KeptBuffer(value_path(digest), view.nbytes, b"", in_memory=False)
        kept.identity = digest
        return kept

    def hold(self, record: int, start: int, stop: int, buffers: Sequence[KeptBuffer]) -> None:
        """The server holds them."""

    def hold_array(self, record: int, length: int, buffers: Sequence[KeptBuffer]) -> None:
        """The server holds them."""

    def hold_too(self, buffers: Sequence[KeptBuffer]) -> None:
        """The server holds them."""

    def succeeded(self, record: int, start: int = 0, stop: int = 1) -> None:
        """The server holds them."""

    def let_go(self, buffers: Sequence[KeptBuffer]) -> None:
        """The server holds them."""

    def collected(self, buffers: Sequence[KeptBuffer], holders: int = 1) -> None:
        """The server holds them."""

    def close(self) -> None:
        """The session has ended."""
        self.is_closed = True
