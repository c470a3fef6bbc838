"""What an executor and its workers say to each other over their socket pair, in the frames of the wire.

Rule: a worker answers every hand-over it runs with `Done`, after all news of it. A hand-over with a token
may be taken back as long as its number can still be read from the token pipe (see `slots`).
"""

from __future__ import annotations

import msgspec

from bough.model.facts import ElementFailed, SpanEnded
from bough.model.ids import Seconds
from bough.wire.framing import Frames
from bough.wire.messages import Blob, Run


class Hand(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """Run this, after what was handed over before."""

    number: int
    run: Run
    token: bool = False  # run it only if its number comes out of the token pipe


class Halt(msgspec.Struct, frozen=True, array_like=True, tag="x"):
    """Do not run these elements of a command hand-over; if one is running, end it."""

    number: int
    start: int
    stop: int
    grace: Seconds


class Quit(msgspec.Struct, frozen=True, array_like=True, tag="q"):
    """End what is running, say what is known, and exit."""

    grace: Seconds


class Done(msgspec.Struct, frozen=True, array_like=True, tag="d", gc=False):
    """A hand-over is finished: all its elements have been told of."""

    number: int


ToWorker = Blob | Hand | Halt | Quit
FromWorker = SpanEnded | ElementFailed | Done


def to_worker_frames() -> Frames[ToWorker]:
    """What a worker hears."""
    return Frames(ToWorker)


def from_worker_frames() -> Frames[FromWorker]:
    """What an executor hears from a worker."""
    return Frames(FromWorker)
