"""How declared files travel where there is no shared storage: the peer that wants one asks for it, piece by piece.

A file is named by the digest of its content. Before an executor starts a task it says `WantFile` for each input, and
takes those it lacks with `GetPiece`; when the task has ended it says `OfferFiles` for each output, and the server
takes those it lacks with `GetPiece`. Rule: no piece is sent that was not asked for, so that no frame is big and no
peer has to keep more than a few pieces in memory.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from bough.model.bounds import Count, Digest, FilePath, Name, Text, Whole
from bough.model.ids import SpanId

PIECE = 1 << 20  # bytes of a file that travel in one message
DIGEST = 32  # bytes of a content's digest
STREAMS = (":stdout", ":stderr")  # in the place of paths: what a task wrote, if it is long


class WorkDirectory(msgspec.Struct, frozen=True, array_like=True, tag="place"):
    """To an executor, before the first commands of a workflow: its directory, and the token file that proves it."""

    run: Count
    directory: FilePath
    token: Name


class WantFile(msgspec.Struct, frozen=True, array_like=True, tag="want"):
    """An executor needs an input of a span's task: the file of that absolute path at the submitter."""

    request: Count
    span: SpanId
    index: Count
    path: FilePath


class FileLocated(msgspec.Struct, frozen=True, array_like=True, tag="loc"):
    """The answer to `WantFile`: what to ask for; `error`: it cannot be had."""

    request: Count
    digest: Digest = b""
    size: Count = 0
    error: Text = ""
    folder: bool = False  # the content is the archive of a folder


class GetPiece(msgspec.Struct, frozen=True, array_like=True, tag="get"):
    """Send a piece of a content: one the server has, or one that was offered under this request."""

    request: Count
    digest: Digest
    offset: Count
    length: Count


class FilePiece(msgspec.Struct, frozen=True, array_like=True, tag="piece"):
    """The answer to `GetPiece`; empty when the content ends there."""

    request: Count
    offset: Count
    data: bytes
    error: Text = ""


class MadeFile(msgspec.Struct, frozen=True, array_like=True):
    """An output as a task made it, for an absolute path at the submitter; without one it is a function's result."""

    path: FilePath
    digest: Digest  # of a result: empty, it was not computed
    size: Count
    mode: Annotated[int, Meta(ge=0, le=0o7777)] = 0o644
    folder: bool = False  # the content is the archive of a folder


class OfferFiles(msgspec.Struct, frozen=True, array_like=True, tag="offer"):
    """An executor has all outputs of a span's task."""

    request: Count
    span: SpanId
    index: Count
    files: Annotated[list[MadeFile], Meta(max_length=100_000)]


class FilesKept(msgspec.Struct, frozen=True, array_like=True, tag="kept"):
    """The answer to `OfferFiles`: all are safe with the server, in their places if it sees these; `times` says when."""

    request: Count
    times: list[Whole] = []  # nanoseconds, 0 for one that is not in its place
    error: Text = ""
    places: list[FilePath] = []  # of a function's result, and of streams: where the server keeps it


class PutPiece(msgspec.Struct, frozen=True, array_like=True, tag="put"):
    """A client sends a piece of a file; answered by `Answer`, of the last piece once the whole is safe."""

    request: Count
    digest: Digest
    size: Count
    offset: Count
    data: bytes


FilesToExecutor = WorkDirectory | FileLocated | GetPiece | FilePiece | FilesKept
FilesToServer = WantFile | GetPiece | FilePiece | OfferFiles | PutPiece  # the last one from clients
