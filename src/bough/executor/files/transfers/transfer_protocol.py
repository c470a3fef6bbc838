"""What an executor and its transfer process say to each other, in the frames of the wire, over a pair of sockets.

Rule: the executor alone speaks with the server. The transfer process writes contents into the host's cache and speaks
with peers; what it needs of the server it asks the executor for, and it waits for the answer however long that takes.
"""

from __future__ import annotations

import msgspec

from bough.wire.file_messages import FailedPeer, MovedContent, PeerHint
from bough.wire.framing import Frames


class BringContent(msgspec.Struct, frozen=True, array_like=True, tag="b"):
    """Get a content into the cache: from peers, else from the site's shared store, else from the server."""

    number: int
    digest: bytes
    size: int
    peers: list[PeerHint] = []
    fresh: bool = False  # from the server in any case


class MorePeers(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """The answer to `NeedPeers`; none: ask the server."""

    number: int
    peers: list[PeerHint]


class OriginPiece(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """The answer to `NeedPiece`."""

    number: int
    offset: int
    data: bytes
    error: str = ""


class ServeAs(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """Serve others from now on."""

    certificate: bytes
    key: bytes
    secret: bytes
    readers: int


class KeepOutput(msgspec.Struct, frozen=True, array_like=True, tag="k"):
    """Keep an output of a task, which has a name of its own until that is answered by `OutputSeen`."""

    number: int
    path: str
    digest: bytes  # empty: it is to be found out
    size: int


class LookUrl(msgspec.Struct, frozen=True, array_like=True, tag="lu"):
    """See what is at a URL; answered by `UrlSeen`."""

    number: int
    url: str
    early: bool = False  # no task waits for it


class FetchUrl(msgspec.Struct, frozen=True, array_like=True, tag="fu"):
    """Fetch what is at a URL into the cache; answered by `UrlFetched`.

    What was ordered early may be ordered once more when a task waits for it: it is answered once.
    """

    number: int
    url: str
    early: bool = False  # no task waits for it


class CheckCopy(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """Compare a content with its digest, and drop it if it is something else."""

    digest: bytes


class ListShared(msgspec.Struct, frozen=True, array_like=True, tag="ls"):
    """Say all that the site's shared store has."""


class WantedContents(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """How many known tasks want contents, by now; of those that are not named nothing is new."""

    counts: list[tuple[bytes, int]]


class Listening(msgspec.Struct, frozen=True, array_like=True, tag="l"):
    """Others can reach it there; said first of all. Without a port: nowhere."""

    address: str = ""
    port: int = 0


class NeedPeers(msgspec.Struct, frozen=True, array_like=True, tag="np"):
    """The peers that were named have failed."""

    number: int
    failed: list[FailedPeer]


class NeedPiece(msgspec.Struct, frozen=True, array_like=True, tag="ng"):
    """A piece of a content is wanted from the server."""

    number: int
    offset: int


class ContentBrought(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """A content is in the cache; `error`: it cannot be had. `moved`: from where its bytes came."""

    number: int
    error: str = ""
    of_site: bool = False
    moved: list[MovedContent] = []
    failed: list[FailedPeer] = []
    shared: int = 0  # bytes that came from the site's shared store
    full: bool = False  # the disk is


class OutputSeen(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """An output was kept, or not: its path is not needed any more."""

    number: int
    digest: bytes = b""  # empty: it could not be read


class UrlSeen(msgspec.Struct, frozen=True, array_like=True, tag="us"):
    """What is at a URL now; `error`: that cannot be told."""

    number: int
    mark: bytes = b""  # empty: it has none
    size: int = -1  # -1: not known
    local: bool = False  # other hosts may find something else there
    error: str = ""
    of_site: bool = False
    unable: bool = False  # this host lacks a package for the protocol


class UrlFetched(msgspec.Struct, frozen=True, array_like=True, tag="uf"):
    """What was at a URL is in the cache; `error`: it cannot be had."""

    number: int
    digest: bytes = b""
    size: int = 0
    mark: bytes = b""  # that it had before and after; empty: it had none, or changed
    error: str = ""
    of_site: bool = False
    full: bool = False  # the disk is
    folder: bool = False  # the content is the archive of a folder


class CacheEvents(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """What came into the cache, and what went."""

    added: list[tuple[bytes, int]] = []
    removed: list[bytes] = []


class SharedEvents(msgspec.Struct, frozen=True, array_like=True, tag="se"):
    """What came into the site's shared store, and what went; `whole`: `added` begins a list of all that is there."""

    added: list[tuple[bytes, int]] = []
    removed: list[bytes] = []
    whole: bool = False


ToTransfers = (
    BringContent
    | MorePeers
    | OriginPiece
    | ServeAs
    | KeepOutput
    | LookUrl
    | FetchUrl
    | CheckCopy
    | WantedContents
    | ListShared
)
FromTransfers = (
    Listening | NeedPeers | NeedPiece | ContentBrought | OutputSeen | UrlSeen | UrlFetched | CacheEvents | SharedEvents
)
Order = BringContent | KeepOutput | LookUrl | FetchUrl  # what is answered under its number
Done = ContentBrought | OutputSeen | UrlSeen | UrlFetched  # the answers


def to_transfers_frames() -> Frames[ToTransfers]:
    """What a transfer process hears."""
    return Frames(ToTransfers)


def from_transfers_frames() -> Frames[FromTransfers]:
    """What an executor hears of it."""
    return Frames(FromTransfers)
