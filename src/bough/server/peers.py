"""The peers that are connected, and requests of clients that are answered later.

Requests of different clients share one number space inside the core. Rule: such a number lives for one turn only,
because the core answers within the turn. An error on the way to an answer is told to the client that asked, once: a
`BoughError` refuses the question; anything else is a bug of ours, which is logged and ends the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from bough.errors import BoughError
from bough.model.events.orders import SendSpan
from bough.model.ids import BlobId, ExecutorId, Seconds
from bough.server.handler_errors import HandlerErrors
from bough.server.peer_connection import PeerConnection
from bough.wire.client_messages import Answer, Ask, Refused
from bough.wire.executor_messages import ExecutorHello

_MOST_BLOBS = 1_000  # that an executor is known to have
Q = TypeVar("Q")


class ClientPeer:
    """A client that has said hello."""

    __slots__ = ("accepted", "connection", "group", "host", "missing_sites", "owner", "pid", "run", "subscribed")

    def __init__(
        self, connection: PeerConnection, pid: int, host: str, *, owner: bool = False, run: int = 0, group: int = 0
    ) -> None:
        self.connection = connection
        self.pid = pid
        self.host = host
        self.owner = owner
        self.run = run  # of the workflow it is a client of; 0: of none, or embedded
        self.group = group  # of that workflow
        self.subscribed = owner or run > 0
        self.missing_sites: set[str] = set()  # that it was told of: its tasks wait for them
        self.accepted = 0  # its latest request that is in a turn or before


class ExecutorPeer:
    """An executor that has been appointed."""

    __slots__ = (
        "acknowledged",
        "blobs",
        "connection",
        "directories_sent",
        "hello",
        "joined",
        "kept",
        "last_word",
        "leaving",
        "number",
        "ready",
        "reported",
        "shared",
    )

    def __init__(
        self, connection: PeerConnection, number: ExecutorId, hello: ExecutorHello, now: Seconds, heard: Seconds
    ) -> None:
        self.connection = connection
        self.number = number
        self.hello = hello
        self.blobs: set[BlobId] = set()  # those it was sent
        self.reported = 0  # the latest report that is in the inbox or before
        self.acknowledged = 0  # the latest report it was told to forget
        self.joined = now  # by the clock on the wall
        self.last_word = heard  # by the loop's clock, which no user can set
        self.ready = True  # it may be sent work: a service waits until it has said what it holds
        self.leaving = ""  # why it wants no more work
        self.shared = True  # it sees the server's store
        self.kept: list[SendSpan] | None = None  # work that waits until it asks for it; None: it need not ask
        self.directories_sent: set[int] = set()  # workflows of which it was told where their commands run

    @property
    def is_relay(self) -> bool:
        """Whether it is a relay that shares out work, and speaks for the executors behind it."""
        return self.hello.each is not None

    def has(self, blob: BlobId) -> None:
        """It is sent a blob; when it was sent many they are forgotten, and sent again if they are needed."""
        if len(self.blobs) >= _MOST_BLOBS:
            self.blobs.clear()
        self.blobs.add(blob)


class Peers:
    """The clients and executors that are connected."""

    def __init__(self) -> None:
        self.clients: dict[PeerConnection, ClientPeer] = {}
        self.executors: dict[ExecutorId, ExecutorPeer] = {}
        self.by_connection: dict[PeerConnection, ExecutorPeer] = {}
        self._requests: dict[int, tuple[ClientPeer, int]] = {}
        self._last_request = 0

    def knows(self, connection: PeerConnection) -> bool:
        """Whether a peer has said what it is."""
        return connection in self.clients or connection in self.by_connection

    def add_executor(self, executor: ExecutorPeer) -> None:
        """An executor was appointed."""
        self.executors[executor.number] = executor
        self.by_connection[executor.connection] = executor

    def drop_executor(self, executor: ExecutorPeer) -> None:
        """An executor disconnected."""
        self.executors.pop(executor.number, None)
        self.by_connection.pop(executor.connection, None)

    def subscribers(self) -> list[ClientPeer]:
        """Clients that want to hear of every outcome."""
        return [client for client in self.clients.values() if client.subscribed]

    def listeners(self, run: int) -> list[ClientPeer]:
        """Clients of a workflow, and observers of all."""
        return [client for client in self.clients.values() if client.subscribed and client.run in {0, run}]

    def of_run(self, run: int) -> list[ClientPeer]:
        """Clients of a workflow."""
        return [client for client in self.clients.values() if client.run == run]

    def internal(self, client: ClientPeer, request: int) -> int:
        """A number for a client's request that no other request of this turn has."""
        self._last_request += 1
        self._requests[self._last_request] = (client, request)
        return self._last_request

    def take_requests(self) -> dict[int, tuple[ClientPeer, int]]:
        """The requests that go into the turn that begins now."""
        requests, self._requests = self._requests, {}
        return requests


Handler = Callable[["DeferredRequest[Any]"], None]  # answers one kind of question, now or later


class DeferredRequest(Generic[Q]):
    """A question of a client on its way to its answer, which may come some turns later."""

    def __init__(self, client: ClientPeer, message: Ask, handler_errors: HandlerErrors) -> None:
        self.client = client
        self.question: Q = message.question  # type: ignore[assignment]
        self._request = message.request
        self._faults = handler_errors

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

    def attempt(self, do: Callable[[DeferredRequest[Q]], None]) -> None:
        """Go on; an error is told."""
        try:
            do(self)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it concerns the client that asked and no other
            self.refuse(error)


def answered_by(find: Callable[[ClientPeer, Any], object]) -> Handler:
    """A handler that answers at once with what a function finds."""
    return lambda deferred: deferred.answer(find(deferred.client, deferred.question))
