"""What an executor and its workers say to each other over their socket pair, in the frames of the wire.

Rule: a worker answers every hand-over it runs with `Done`, after all news of it. A hand-over with a token
may be taken back as long as its number can still be read from the token pipe (see `slots`).
"""

from __future__ import annotations

import msgspec

from bough.model.facts import CallsEnded, ElementFailed, SpanEnded, SpanReturned
from bough.model.ids import Seconds, SpanId
from bough.wire.filemessages import Made
from bough.wire.framing import Frames
from bough.wire.messages import Blob
from bough.wire.work import Run


class Hand(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """Run this, after what was handed over before."""

    number: int
    run: Run
    token: bool = False  # run it only if its number comes out of the token pipe
    directory: str = ""  # of a submitter that is not seen here: run its commands in sandboxes


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


class Bring(msgspec.Struct, frozen=True, array_like=True, tag="b"):
    """A task needs files, named by their absolute paths at the submitter."""

    number: int
    span: SpanId
    index: int
    paths: list[str]


class Brought(msgspec.Struct, frozen=True, array_like=True, tag="bb"):
    """The answer: where the contents lie. `of_place`: what went wrong might go well elsewhere."""

    number: int
    index: int
    files: dict[str, str]
    error: str = ""
    of_place: bool = False


class HandOver(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """A task has made its outputs: give them to the server."""

    number: int
    span: SpanId
    index: int
    files: list[Made]
    locals: list[str]  # where they lie here, in the same order

    def local(self, digest: bytes) -> str:
        """Where a content lies here; empty: nowhere."""
        return next((path for made, path in zip(self.files, self.locals, strict=True) if made.digest == digest), "")


class Handed(msgspec.Struct, frozen=True, array_like=True, tag="oo"):
    """The answer: the server has them."""

    number: int
    index: int
    times: list[int]
    error: str = ""


ToWorker = Blob | Hand | Halt | Quit | Brought | Handed
FromWorker = SpanEnded | CallsEnded | ElementFailed | SpanReturned | Done | Bring | HandOver


def to_worker_frames() -> Frames[ToWorker]:
    """What a worker hears."""
    return Frames(ToWorker)


def from_worker_frames() -> Frames[FromWorker]:
    """What an executor hears from a worker."""
    return Frames(FromWorker)
