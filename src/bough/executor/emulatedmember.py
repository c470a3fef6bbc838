"""What an emulation knows of one of its executors: its work, its connection, and how far it is with leaving.

Rule: no more than is needed; there are tens of thousands of them.
"""

from __future__ import annotations

import enum
import sys
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bough.executor.emulated import NEVER, Emulated
from bough.model.ids import ExecutorId
from bough.wire.work import Appointed, ExecutorHello

if TYPE_CHECKING:
    from bough.executor.emulatedline import Line


class Parting(enum.Enum):
    """How far an executor is with leaving."""

    NOT = enum.auto()
    DRAINING = enum.auto()  # it is to finish what it has, and go
    SAID = enum.auto()  # it has said that it leaves
    MAY_GO = enum.auto()  # nothing more will be sent to it: it goes once all that it said is heard
    OVER = enum.auto()


class Member:
    """See the module."""

    __slots__ = (
        "due",
        "idle_since",
        "line",
        "marker",
        "number",
        "parting",
        "piggyback",
        "quiet",
        "spoke",
        "watched",
        "welcome",
        "work",
    )

    def __init__(self, cores: float) -> None:
        self.work = Emulated(cores)
        self.line: Line | None = None
        self.watched = 0  # what of the line is watched
        self.number = ExecutorId(0)
        self.marker = ""  # of who gave it its number
        self.piggyback = True
        self.welcome = False  # the server has answered its hello
        self.spoke = False  # since the last sweep
        self.quiet = 0  # sweeps in which nothing was heard
        self.due = NEVER  # when its work is to be looked at
        self.idle_since = time.monotonic()
        self.parting = Parting.NOT

    def hello(self, hello: ExecutorHello) -> ExecutorHello:
        """A hello as this one says it: with its number, if it comes back."""
        return replace(hello, executor=self.number, marker=self.marker) if self.number else hello

    def appointed(self, appointed: Appointed) -> None:
        """The server has let it in."""
        self.welcome = True
        self.number = appointed.executor
        self.marker = sys.intern(appointed.marker)
        self.piggyback = appointed.piggyback
        self.idle_since = time.monotonic()

    def told_to_drain(self) -> None:
        """The server said `Drain`: an order, or the answer to `Leaving`."""
        if self.parting is Parting.SAID:
            self.parting = Parting.MAY_GO
        elif self.parting is Parting.NOT:
            self.parting = Parting.DRAINING
