"""A request that is answered when it is done, maybe some turns later.

Rule: whatever goes wrong on the way is said to who asked, once, and harms nobody else.
"""

from __future__ import annotations

from collections.abc import Callable

from bough.errors import BoughError, UserError
from bough.server.peers import Client
from bough.wire.messages import Answer, Ask, Refused


class Errand:
    """See the module."""

    def __init__(self, client: Client, message: Ask) -> None:
        self.client = client
        self.arguments = message.arguments
        self._request = message.request

    def answer(self, value: object) -> None:
        """Say what came of it."""
        self.client.connection.send(Answer(self._request, value))

    def refuse(self, error: BoughError) -> None:
        """Say why nothing came of it."""
        self.client.connection.send(Refused(str(error), self._request, type(error).__name__))

    def attempt(self, do: Callable[[Errand], None]) -> None:
        """Go on; an error is told."""
        try:
            do(self)
        except BoughError as error:
            self.refuse(error)


def text_in(errand: Errand, name: str) -> str:
    """An argument that is a text, or empty."""
    value = errand.arguments.get(name, "")
    if not isinstance(value, str):
        raise UserError(f"{name} must be a text, not {value!r:.50}")
    return value


def number_in(errand: Errand, name: str, default: int = 0) -> int:
    """An argument that is a whole number."""
    value = errand.arguments.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UserError(f"{name} must be a number, not {value!r:.50}")
    return value
