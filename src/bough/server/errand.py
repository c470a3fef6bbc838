"""A question of a client on its way to its answer, which may come some turns later.

Rule: whatever goes wrong on the way is said to who asked, once, and harms nobody else: a `BoughError` refuses the
question, anything else is our bug, which is logged with its story and costs the peer its connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from bough.errors import BoughError
from bough.server.faults import Faults
from bough.server.peers import Client
from bough.wire.messages import Answer, Ask, Refused

Q = TypeVar("Q")
Handler = Callable[["Errand[Any]"], None]  # answers one kind of question, now or later


class Errand(Generic[Q]):
    """See the module."""

    def __init__(self, client: Client, message: Ask, faults: Faults) -> None:
        self.client = client
        self.question: Q = message.question  # type: ignore[assignment]
        self._request = message.request
        self._faults = faults

    def answer(self, value: object) -> None:
        """Say what came of it."""
        self.client.connection.send(Answer(self._request, value))

    def refuse(self, error: BaseException) -> None:
        """Say why nothing came of it."""
        if isinstance(error, BoughError):
            self.client.connection.send(Refused(str(error), self._request, type(error).__name__))
        else:
            what = f"the question {type(self.question).__name__} of {self.client.host}, pid {self.client.pid}"
            self._faults.concern(self.client.connection, what, error)

    def attempt(self, do: Callable[[Errand[Q]], None]) -> None:
        """Go on; an error is told."""
        try:
            do(self)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it concerns who asked and nobody else
            self.refuse(error)


def answered_by(find: Callable[[Client, Any], object]) -> Handler:
    """A handler that answers at once with what a function finds."""
    return lambda errand: errand.answer(find(errand.client, errand.question))
