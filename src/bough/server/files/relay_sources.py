"""Relays that share out work as sources of contents: which of the executors behind one a reader outside shall ask.

The server knows that a relay has a content, not who behind it. The relay names members, with tickets of their own, and
a door of its own host by which one of them is reached. Readers say what they could not reach by the members' numbers,
which no executor of the server has.

Rules: a relay that does not answer at once is no source for that reader, and none for others before it has answered, or
a minute is over: each of them would wait for it with each of his files. Where readers of a site did not reach a member
itself, they are sent to doors only, for a while.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from bough.model.ids import ExecutorId, Seconds
from bough.movers.peer_directory import SHUNNED, UNREACHED, Reader
from bough.movers.spread_plan import ORIGIN
from bough.server.turns.shell import Shell
from bough.wire.file_messages import MOST_FAILED, FailedPeer, NamePeers, PeerHint, PeersNamed

_ANSWER: Final[Seconds] = 3.0
_SILENT: Final[Seconds] = 60.0  # for which one that did not answer is not asked
_MOST_KNOWN: Final = 100_000  # members of which is known behind which relay they are


class RelaySources:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._relays: set[ExecutorId] = set()
        self._relay_of: dict[ExecutorId, ExecutorId] = {}  # by member
        self._unreached: dict[tuple[str, str], Seconds] = {}  # by the sites of readers and relay: until when
        self._silent: dict[ExecutorId, Seconds] = {}  # relays that did not answer: until when they are not asked
        self._asked: dict[int, tuple[ExecutorId, asyncio.Future[list[PeerHint]]]] = {}
        self._last = 0

    def add(self, relay: ExecutorId) -> None:
        """A relay has said what is behind it."""
        self._relays.add(relay)

    def has(self, executor: ExecutorId) -> bool:
        """Whether it is a relay that can be asked."""
        return executor in self._relays

    def relay_of(self, source: ExecutorId) -> ExecutorId:
        """Behind which relay a source is; others are who they are, whatever a relay said before they came."""
        return source if source in self._shell.peers.executors else self._relay_of.get(source, source)

    def gone(self, executor: ExecutorId) -> None:
        """An executor disconnected."""
        if executor in self._relays:
            self._relays.discard(executor)
            self._silent.pop(executor, None)
            for relay, answer in self._asked.values():
                if relay == executor and not answer.done():
                    answer.set_result([])

    def note_unreached(self, reader: str, relay: str) -> None:
        """A reader at a site did not reach a member at another one itself."""
        now = self._shell.loop.time()
        self._unreached = {one: until for one, until in self._unreached.items() if until > now}
        self._unreached[reader, relay] = now + SHUNNED

    async def ask(
        self, relay: ExecutorId, reader: Reader, digest: bytes, failed: Iterable[FailedPeer]
    ) -> list[PeerHint]:
        """Whom a reader shall ask for a content that is behind a relay; `failed`: who did not give it to him."""
        peer = self._shell.peers.executors.get(relay)
        if peer is None or self._silent.get(relay, 0.0) > self._shell.loop.time():
            return []
        self._last += 1
        number, answer = self._last, self._shell.loop.create_future()
        self._asked[number] = relay, answer
        direct = self._unreached.get((reader.site, peer.hello.site), 0.0) <= self._shell.loop.time()
        # whom he did not reach himself he may reach by a door
        known = [one.executor for one in failed if one.executor == relay or UNREACHED not in one.reason]
        wanted = NamePeers(number, digest, reader.number, reader.site, reader.host, known[:MOST_FAILED], direct)
        try:
            peer.connection.send(wanted)
            async with asyncio.timeout(_ANSWER):
                peers = await answer
        except TimeoutError:
            self._silent[relay] = self._shell.loop.time() + _SILENT
            return []
        finally:
            del self._asked[number]
        return [self._known(relay, one) for one in peers if _is_address(one.address)]

    def _known(self, relay: ExecutorId, hint: PeerHint) -> PeerHint:
        """A hint of a relay. What it says of others than those behind it would be said of them: it is the relay's."""
        if hint.executor in (relay, ORIGIN) or hint.executor in self._shell.peers.executors:
            return replace(hint, executor=relay)
        if len(self._relay_of) >= _MOST_KNOWN:
            self._relay_of.clear()
        self._relay_of[hint.executor] = relay
        return hint

    def named(self, relay: ExecutorId, message: PeersNamed) -> None:
        """A relay answers, late or not."""
        self._silent.pop(relay, None)
        asked, answer = self._asked.get(message.request, (None, None))
        if answer is not None and asked == relay and not answer.done():
            answer.set_result(message.peers)


def _is_address(text: str) -> bool:
    """Whether a peer can be asked there: what is no address could only be looked up, however long that takes."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
