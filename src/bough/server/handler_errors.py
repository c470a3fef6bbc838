"""Bugs of ours that a peer's message brought to light: logged with their story, counted, and the peer is dropped.

Rule: an exception in a handler concerns the peer whose message was handled, never the process and never another peer.
Only the core's own broken invariant ends a server.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from bough import logs
from bough.server.peer_connection import PeerConnection


class HandlerErrors:
    """See the module. `count`: how many there were since the server began."""

    def __init__(self) -> None:
        self.count = 0

    def concern(self, connection: PeerConnection, what: str, error: BaseException) -> None:
        """Handling `what` failed: tell the peer, and close its connection."""
        text = self.note(f"{what} could not be handled", error)
        connection.refuse(f"the server failed at this, which is a bug of Bough: {text}; see its log", "InternalError")

    def note(self, what: str, error: BaseException) -> str:
        """Something failed that concerns no peer: log it; returns the error in one line."""
        self.count += 1
        text = f"{type(error).__name__}: {error}"
        logs.error("handler-failed", f"{what}: {text}\n{''.join(traceback.format_exception(error)).rstrip()}")
        return text

    def unexpected(self, context: dict[str, Any]) -> None:
        """What an event loop could not deliver."""
        error = context.get("exception")
        self.note(str(context.get("message", "the event loop")), error or RuntimeError(str(context)))

    def guard(self, what: str, work: Callable[[], None]) -> None:
        """Do something that must not end the server."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 -- see the module
            self.note(what, error)
