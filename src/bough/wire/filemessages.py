"""How declared files travel where there is no shared storage: whoever wants one asks for it, piece by piece.

A file is named by the digest of its content. Before an executor starts a task it says `Want` for each input, and
takes those it lacks with `Get`; when the task has ended it says `Offer` for each output, and the server takes those
it lacks with `Get`. Rule: nobody sends a piece that was not asked for, so that no frame is big and nobody has to keep
more than a few pieces in memory.
"""

from __future__ import annotations

import msgspec

from bough.model.ids import SpanId

PIECE = 1 << 20  # bytes of a file that travel in one message
DIGEST = 32  # bytes of a content's digest


class Workplace(msgspec.Struct, frozen=True, array_like=True, tag="place"):
    """To an executor, before the first commands of a workflow: its directory, and the token file that proves it."""

    run: int
    directory: str
    token: str


class Want(msgspec.Struct, frozen=True, array_like=True, tag="want"):
    """An executor needs an input of a span's task: the file of that absolute path at the submitter."""

    request: int
    span: SpanId
    index: int
    path: str


class Located(msgspec.Struct, frozen=True, array_like=True, tag="loc"):
    """The answer to `Want`: what to ask for; `error`: it cannot be had."""

    request: int
    digest: bytes = b""
    size: int = 0
    error: str = ""


class Get(msgspec.Struct, frozen=True, array_like=True, tag="get"):
    """Send a piece of a content: one the server has, or one that was offered under this request."""

    request: int
    digest: bytes
    offset: int
    length: int


class Piece(msgspec.Struct, frozen=True, array_like=True, tag="piece"):
    """The answer to `Get`; empty when the content ends there."""

    request: int
    offset: int
    data: bytes
    error: str = ""


class Made(msgspec.Struct, frozen=True, array_like=True):
    """An output as a task made it, for an absolute path at the submitter; without one it is a function's result."""

    path: str
    digest: bytes  # of a result: empty, nobody has looked
    size: int
    mode: int = 0o644


class Offer(msgspec.Struct, frozen=True, array_like=True, tag="offer"):
    """An executor has all outputs of a span's task."""

    request: int
    span: SpanId
    index: int
    files: list[Made]


class Kept(msgspec.Struct, frozen=True, array_like=True, tag="kept"):
    """The answer to `Offer`: all are safe with the server, and in their places if it sees these; `times` says when."""

    request: int
    times: list[int] = []  # nanoseconds, 0 for one that is not in its place
    error: str = ""
    places: list[str] = []  # of a function's result: where the server keeps it


class Put(msgspec.Struct, frozen=True, array_like=True, tag="put"):
    """A client sends a piece of a file; answered by `Answer`, of the last piece once the whole is safe."""

    request: int
    digest: bytes
    size: int
    offset: int
    data: bytes


FilesToExecutor = Workplace | Located | Get | Piece | Kept
FilesToServer = Want | Get | Piece | Offer | Put  # the last one from clients
