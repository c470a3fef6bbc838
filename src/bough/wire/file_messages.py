"""How declared files travel where there is no shared storage: the peer that wants one asks for it, piece by piece.

A file is named by the digest of its content. Before an executor starts a task it says `WantFile` for each input, and
takes those it lacks from the peers that the answer names, or from the server with `GetPiece`; when the task has ended
it says `OfferFiles` for each output, and the server takes those it lacks with `GetPiece`. Outputs of tasks that were
done before, and that are written back in bulk, come with `WriteBack`. An executor that others can
reach says `OfferPeer`, and what its host's cache has with `CacheReport`. Rule: no piece is sent that was not asked
for, so that no frame is big and no peer has to keep more than a few pieces in memory.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from bough.model.bounds import ContentDigest, Count, Digest, Duration, FilePath, Name, Text, Whole, Word
from bough.model.ids import ExecutorId, RecordId, Seconds, SpanId

PIECE = 1 << 20  # bytes of a file that travel in one message
DIGEST = 32  # bytes of a content's digest
MOST_PEERS = 16  # named for one content
MOST_FAILED = 1000  # that did not give one
MOST_GATHERED = 1000  # tasks whose outputs travel in one message
Port = Annotated[int, Meta(ge=1, le=65535)]
Ticket = Annotated[bytes, Meta(min_length=32, max_length=32)]
Secret = Annotated[bytes, Meta(max_length=1 << 16)]
STREAMS = (":stdout", ":stderr")  # in the place of paths: what a task wrote, if it is long


class WorkDirectory(msgspec.Struct, frozen=True, array_like=True, tag="place"):
    """To an executor, before the first commands of a workflow: its directory, and the token file that proves it."""

    run: Count
    directory: FilePath
    token: Name


class UrlState(msgspec.Struct, frozen=True, array_like=True):
    """What an executor has seen at a URL, and, once it has fetched that, which content it is."""

    mark: Digest = b""  # another one when the file changes; empty: it cannot be told to be what another host fetched
    digest: Digest = b""  # empty: it has not fetched it
    size: Count = 0


class WantFile(msgspec.Struct, frozen=True, array_like=True, tag="want"):
    """An executor needs an input of a span's task: the file of that absolute path at the submitter, or at that URL.

    An executor that has fetched what is at a URL says it once more, with the content: then the server knows it, too.
    What is at a URL it also wants for tasks that were announced to it: these have no span there (0), but a record.
    """

    request: Count
    span: SpanId
    index: Count
    path: FilePath
    url: UrlState | None = None  # of a URL; None: it cannot look there, the server is to fetch it
    early: bool = False  # the task has not begun: nobody who runs a task waits long for what is brought for it
    record: RecordId = RecordId(0)  # of a task that was announced, and is not here


class PeerHint(msgspec.Struct, frozen=True, array_like=True):
    """An executor that has a content, or is getting it, and the ticket with which it may be asked."""

    executor: ExecutorId
    address: Word
    port: Port
    fingerprint: Word  # of its certificate
    until: Seconds  # the end of the ticket's validity
    ticket: Ticket
    reader: ExecutorId = ExecutorId(0)  # whose ticket it is: the relay that the reader is behind; 0: its own


class FileLocated(msgspec.Struct, frozen=True, array_like=True, tag="loc"):
    """The answer to `WantFile` and `FindPeers`: what to ask for, and peers to ask first, the best first.

    `error`: it cannot be had.
    """

    request: Count
    digest: Digest = b""
    size: Count = 0
    error: Text = ""
    peers: Annotated[list[PeerHint], Meta(max_length=MOST_PEERS)] = []
    wanted: Count = 0  # about how many tasks that wait read the same content
    folder: bool = False  # the content is the archive of a folder
    fresh: bool = False  # no cache is used: it is brought from the server for each task, and not kept
    lost: bool = False  # another task had made it, and it is nowhere any more: that one makes it again
    fetch: bool = False  # nobody has what is at the URL: fetch it from there, and say what it is
    again: bool = False  # another executor still fetches it: ask again


class InputsAnnounced(msgspec.Struct, frozen=True, array_like=True, tag="soon"):
    """To an executor: a task that may come next reads this; bring it, if there is nothing better to do."""

    record: RecordId
    index: Count
    contents: Annotated[list[tuple[Digest, Count]], Meta(max_length=1000)]
    urls: Annotated[list[FilePath], Meta(max_length=1000)] = []
    run: Count = 0  # where the directory of this workflow is seen, contents are read in their places; 0: it has none


class SeeSiteFile(msgspec.Struct, frozen=True, array_like=True, tag="see"):
    """To an executor: another site reads a file of yours, named as alpha:/data/x. Keep what is there in the cache."""

    request: Count
    name: FilePath


class SiteFileSeen(msgspec.Struct, frozen=True, array_like=True, tag="seen"):
    """The answer to `SeeSiteFile`: the content that is there now, which the cache has; `error`: it cannot be had.

    `comes`: it is there and is being read, the answer follows; `size` is what it has then, 0 if that is not known.
    """

    request: Count
    digest: Digest = b""
    size: Count = 0
    folder: bool = False  # the content is the archive of a folder
    error: Text = ""
    comes: bool = False


class FailedPeer(msgspec.Struct, frozen=True, array_like=True):
    """A peer that did not give a content; `corrupt`: it gave something else."""

    executor: ExecutorId
    corrupt: bool = False
    reason: Word = ""


class FindPeers(msgspec.Struct, frozen=True, array_like=True, tag="find"):
    """The peers that were named for a content have failed: name others. The answer is `FileLocated`."""

    request: Count
    digest: Digest
    size: Count
    failed: Annotated[list[FailedPeer], Meta(max_length=MOST_FAILED)] = []


class NamePeers(msgspec.Struct, frozen=True, array_like=True, tag="name"):
    """To a relay that shares out work: somebody outside wants a content; which of yours that have it shall he ask?

    The answer is `PeersNamed`.
    """

    request: Count
    digest: ContentDigest
    reader: ExecutorId  # for whom the tickets are
    site: Name
    host: Name  # where it is
    failed: Annotated[list[ExecutorId], Meta(max_length=MOST_FAILED)] = []  # that did not give it; you: by your doors
    direct: bool = True  # it may reach them; False: only by the doors of the relay


class PeersNamed(msgspec.Struct, frozen=True, array_like=True, tag="named"):
    """The answer to `NamePeers`: members under their own numbers, and what is reached by the relay under that one's."""

    request: Count
    peers: Annotated[list[PeerHint], Meta(max_length=MOST_PEERS)] = []


class OfferPeer(msgspec.Struct, frozen=True, array_like=True, tag="peer"):
    """An executor can be reached by others, for contents; the answer is `PeerIdentity`."""

    address: Word
    port: Port


class PeerIdentity(msgspec.Struct, frozen=True, array_like=True, tag="ident"):
    """What an executor serves others as: its certificate and key (PEM), and the secret that makes its tickets."""

    certificate: Secret
    key: Secret
    secret: Secret
    readers: Annotated[int, Meta(ge=1, le=1000)] = 8  # that it serves at once


class CheckContent(msgspec.Struct, frozen=True, array_like=True, tag="check"):
    """A reader found a copy of a content wrong: compare it with its digest, and drop it if it is."""

    digest: Digest


class DropContent(msgspec.Struct, frozen=True, array_like=True, tag="drop"):
    """A content that a host held for others, or has of others, has had its last reader."""

    digest: Digest


class MovedContent(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of a content that came from somewhere; `source` 0: from the server."""

    digest: Digest
    source: ExecutorId
    size: Count
    seconds: Duration


class CacheReport(msgspec.Struct, frozen=True, array_like=True, tag="cache"):
    """What changed in the cache of an executor's host, and what came; `whole`: `added` is all that is there."""

    added: Annotated[list[tuple[Digest, Count]], Meta(max_length=100_000)] = []
    removed: Annotated[list[Digest], Meta(max_length=100_000)] = []
    moved: Annotated[list[MovedContent], Meta(max_length=100_000)] = []
    failed: Annotated[list[tuple[Digest, FailedPeer]], Meta(max_length=100_000)] = []
    ended: Annotated[list[Digest], Meta(max_length=100_000)] = []  # it takes nothing more of them now
    whole: bool = False
    shared: bool = False  # it is about the shared store of its site; without more: it sees that store


class ListShared(msgspec.Struct, frozen=True, array_like=True, tag="shared"):
    """To an executor: report all that the shared store of its site has."""


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
    time: Whole = 0  # of its last change in nanoseconds, if it is to have that in its place, too


class OfferFiles(msgspec.Struct, frozen=True, array_like=True, tag="offer"):
    """An executor has all outputs of a span's task."""

    request: Count
    span: SpanId
    index: Count
    files: Annotated[list[MadeFile], Meta(max_length=100_000)]
    must: bool = False  # the executor's host cannot hold them
    # contents of small ones, at most a piece in all, so that they need not be asked for; empty: it is to be asked for
    along: Annotated[list[Annotated[bytes, Meta(max_length=PIECE)]], Meta(max_length=100_000)] = []


class FilesKept(msgspec.Struct, frozen=True, array_like=True, tag="kept"):
    """The answer to `OfferFiles`: all are safe with the server, in their places if it sees these; `times` says when."""

    request: Count
    times: list[Whole] = []  # nanoseconds, 0 for one that is not in its place
    error: Text = ""
    places: list[FilePath] = []  # of a function's result, and of streams: where the server keeps it
    held: bool = False  # they are temporary: the executor's host is to hold them until `DropContent`


class HeldOutputs(msgspec.Struct, frozen=True, array_like=True):
    """All outputs of a task that has succeeded, as its executor holds them; `along`: as in `OfferFiles`."""

    record: RecordId
    index: Count
    attempt: Count
    files: Annotated[list[MadeFile], Meta(max_length=100_000)]
    along: Annotated[list[Annotated[bytes, Meta(max_length=PIECE)]], Meta(max_length=100_000)] = []


class WriteBack(msgspec.Struct, frozen=True, array_like=True, tag="wb"):
    """An executor has gathered outputs of tasks that it reported as done before: they are to be made safe."""

    request: Count
    tasks: Annotated[list[HeldOutputs], Meta(max_length=MOST_GATHERED)]


class WrittenBack(msgspec.Struct, frozen=True, array_like=True, tag="wbk"):
    """The answer to `WriteBack`: the executor need not hold them any more.

    They are safe, or not wanted, or their tasks run again.
    """

    request: Count


class PutPiece(msgspec.Struct, frozen=True, array_like=True, tag="put"):
    """A client sends a piece of a file; answered by `Answer`, of the last piece once the whole is safe."""

    request: Count
    digest: Digest
    size: Count
    offset: Count
    data: bytes


FilesToExecutor = (
    WorkDirectory
    | FileLocated
    | GetPiece
    | FilePiece
    | FilesKept
    | WrittenBack
    | PeerIdentity
    | CheckContent
    | ListShared
    | InputsAnnounced
    | DropContent
    | SeeSiteFile
    | NamePeers
)
FilesToServer = (
    WantFile
    | GetPiece
    | FilePiece
    | OfferFiles
    | WriteBack
    | FindPeers
    | OfferPeer
    | CacheReport
    | SiteFileSeen
    | PeersNamed
    | PutPiece  # from clients
)
