"""Gates for peers that come one by one, each with a time limit: by the channels of a relay, or to the socket of a site.

Rule: a stranger costs one connection for a few seconds, and only so many of them are there at once.
"""

from __future__ import annotations

import asyncio
import socket

from bough import logs
from bough.transport.admission import PeerListener, ProofGate
from bough.transport.listener import Acceptor, UnprovenPeer, UnprovenPeers

_MOST_STRANGERS = 512  # that have not proven anything yet


class StrangerGates:
    """The gates of peers that come one by one, each with a time limit: by the channels of a relay, or to a socket."""

    def __init__(self, doorman: PeerListener) -> None:
        self._doorman = doorman
        self._strangers = UnprovenPeers(_MOST_STRANGERS)

    def gate(self, peer: str) -> ProofGate:
        """For one stranger; the oldest gives way only to a flood."""
        if self._strangers.is_full:
            self._strangers.drop_oldest()
        loop = asyncio.get_running_loop()
        gate = self._doorman.gate(peer)
        stranger = UnprovenPeer(lambda: gate.give_up("others came, and it had not proven anything"), loop.time())
        timer = loop.call_later(self._doorman.proof_within, gate.give_up, "no proof in time")

        def over(_: asyncio.Future[None]) -> None:
            timer.cancel()
            self._strangers.remove(stranger)

        gate.over.add_done_callback(over)
        self._strangers.add(stranger, speaks=True)
        return gate


class GuardedSocket:
    """A Unix socket of which only a proof opens the way; `close` ends it, peers inside stay."""

    def __init__(self, listener: socket.socket, doorman: PeerListener, name: str) -> None:
        gates = StrangerGates(doorman)
        self._acceptor = Acceptor(listener, lambda: gates.gate(name), logs.reporter("peer-refused", logs.WARNING))

    def close(self) -> None:
        """Accept no more."""
        self._acceptor.close()
