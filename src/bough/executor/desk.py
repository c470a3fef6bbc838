"""What a worker has at hand: the board, its streams, its voice, its blobs and its post.

Rule: a hand-over with a token is run only if the token was ours to take; see `slots`.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from typing import NamedTuple

from bough.executor.board import GROUP
from bough.executor.loading import Shelf
from bough.executor.processes import die
from bough.executor.speaker import Speaker
from bough.executor.streams import Streams
from bough.executor.talk import Brought, Halt, Hand, Handed, Quit, to_worker_frames
from bough.model.ids import Seconds
from bough.wire.messages import Blob

_CHUNK = 1 << 18


class Inbox:
    """What the executor said and what of it is still to be run."""

    def __init__(self, sock: socket.socket, tokens: int, shelf: Shelf, board: memoryview[int]) -> None:
        self.sock = sock
        self._board = board
        self._frames = to_worker_frames()
        self._in = memoryview(bytearray(_CHUNK))  # kept: a new one for every read costs more than the read
        self._hands: deque[Hand] = deque()
        self._tokens = tokens
        self._kept: set[int] = set()  # tokens read before their turn
        self._shelf = shelf
        self._halts: list[Halt] = []
        self.quit: Seconds | None = None  # the grace, once told to go
        self._answers: deque[Brought | Handed] = deque()

    def read(self) -> None:
        """Wait for something, and take it in."""
        count = self.sock.recv_into(self._in)
        if not count:
            die(self._board[GROUP])
        for message in self._frames.feed(self._in[:count]):
            match message:
                case Hand():
                    self._hands.append(message)
                case Blob():
                    self._shelf.blobs[message.id] = message.data
                case Halt():
                    self._halts.append(message)
                case Quit():
                    self.quit = message.grace
                case Brought() | Handed():
                    self._answers.append(message)

    def answer(self, number: int, index: int) -> Brought | Handed | None:
        """Wait for what the executor was asked about an element; None when nobody wants it any more."""
        while self.quit is None and not self.halted(number, index):
            while self._answers:
                answer = self._answers.popleft()
                if (answer.number, answer.index) == (number, index):
                    return answer
            self.read()
        return None

    def next(self) -> Hand | None:
        """The next hand-over that was not taken back."""
        while self._hands:
            hand = self._hands.popleft()
            if not hand.token or self._granted(hand.number):
                return hand
        return None

    def _granted(self, number: int) -> bool:
        if number in self._kept:
            self._kept.discard(number)
            return True
        try:
            token = int.from_bytes(os.read(self._tokens, 8), "little")
        except BlockingIOError:
            return False
        if token == number:
            return True
        self._kept.add(token)  # of a later one: this one was taken back
        return False

    def forget_halts(self, number: int) -> None:
        """A hand-over is over, and with it what was said of it."""
        if self._halts:
            self._halts = [halt for halt in self._halts if halt.number > number]

    def halted(self, number: int, index: int) -> Halt | None:
        """Why an element shall not run."""
        for halt in self._halts:
            if halt.number == number and halt.start <= index < halt.stop:
                return halt
        return None


class Desk(NamedTuple):
    """Everything that running a span needs."""

    board: memoryview[int]
    streams: Streams
    speaker: Speaker
    shelf: Shelf
    inbox: Inbox
    environment: dict[bytes, bytes]  # as it was when the worker began
