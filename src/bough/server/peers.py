"""Who is connected: clients and executors, and whose question is whose.

Requests of different clients share one number space inside the core: `internal` gives a number,
`whose` finds the client and its own number again. Rule: a number lives for one turn only, because
the core answers within the turn.
"""

from __future__ import annotations

from bough.model.ids import BlobId, ExecutorId, Seconds
from bough.server.connection import Connection
from bough.wire.messages import ExecutorHello


class Client:
    """A client that has said hello."""

    __slots__ = ("accepted", "connection", "host", "owner", "pid", "subscribed")

    def __init__(self, connection: Connection, pid: int, host: str, *, owner: bool) -> None:
        self.connection = connection
        self.pid = pid
        self.host = host
        self.owner = owner
        self.subscribed = owner
        self.accepted = 0  # its latest request that is in a turn or before


class Executor:
    """An executor that has been appointed."""

    __slots__ = ("acknowledged", "blobs", "connection", "hello", "last_word", "number", "reported")

    def __init__(self, connection: Connection, number: ExecutorId, hello: ExecutorHello, now: Seconds) -> None:
        self.connection = connection
        self.number = number
        self.hello = hello
        self.blobs: set[BlobId] = set()  # those it was sent
        self.reported = 0  # the latest report that is in the inbox or before
        self.acknowledged = 0  # the latest report it was told to forget
        self.last_word = now


class Peers:
    """See the module."""

    def __init__(self) -> None:
        self.clients: dict[Connection, Client] = {}
        self.executors: dict[ExecutorId, Executor] = {}
        self.by_connection: dict[Connection, Executor] = {}
        self._requests: dict[int, tuple[Client, int]] = {}
        self._last_request = 0

    def add_executor(self, executor: Executor) -> None:
        """An executor was appointed."""
        self.executors[executor.number] = executor
        self.by_connection[executor.connection] = executor

    def drop_executor(self, executor: Executor) -> None:
        """An executor is gone."""
        self.executors.pop(executor.number, None)
        self.by_connection.pop(executor.connection, None)

    def subscribers(self) -> list[Client]:
        """Clients that want to hear of every outcome."""
        return [client for client in self.clients.values() if client.subscribed]

    def internal(self, client: Client, request: int) -> int:
        """A number for a client's request that no other request of this turn has."""
        self._last_request += 1
        self._requests[self._last_request] = (client, request)
        return self._last_request

    def take_requests(self) -> dict[int, tuple[Client, int]]:
        """The requests that go into the turn that begins now."""
        requests, self._requests = self._requests, {}
        return requests
