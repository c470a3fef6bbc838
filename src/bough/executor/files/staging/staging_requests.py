"""What staging is asked for: inputs of a task that runs, waits here or may come, and contents on their way.

Rule: a request counts each of its files once, by where its bytes came from.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from bough.executor.files.transfers.transfer_protocol import UrlSeen
from bough.executor.worker_protocol import StageInputs, ToWorker
from bough.model.ids import SpanId
from bough.model.outcomes import Staged
from bough.wire.file_messages import FindPeers, InputsAnnounced, UrlState


class Came(NamedTuple):
    """From where the bytes of a content came."""

    peers: int = 0
    origin: int = 0
    shared: int = 0


class StagingWorker(Protocol):
    """A worker, as far as staging knows it."""

    name: str

    def send(self, messages: list[ToWorker]) -> None:
        """Send messages to it."""


class SeenUrl:
    """What a request has seen at one of its URLs."""

    def __init__(self, seen: UrlSeen, *, fresh: bool) -> None:
        self.size = seen.size
        self.mark = b"" if fresh else seen.mark  # by which this host knows it
        self.is_own = seen.local  # what other hosts have does not count for it
        self.content: tuple[bytes, int] | None = None  # which it is, once it is here

    def state(self) -> UrlState:
        """What the server is told of it; other hosts may find something else at the same URL."""
        return UrlState(b"" if self.is_own else self.mark, *(self.content or (b"", 0)))


class StagingRequest:
    """What one worker, or a task that waits for one (`worker` is None), wants to be there."""

    def __init__(self, worker: StagingWorker | None, message: StageInputs) -> None:
        self.worker = worker
        self.message = message
        self.begun = time.time()
        self.left = set(message.paths)
        self.files: dict[str, str] = {}
        self.found: dict[str, tuple[bytes, int]] = {}  # contents and their sizes, by path
        self.sizes: dict[bytes, int] = {}  # the same, each content once
        self.size = 0  # bytes of them all
        self.has_failed = False  # it was said so
        self.folders: list[str] = []  # paths whose content is an archive
        self.cached = self.from_peers = self.from_origin = self.from_shared = 0  # bytes
        self.hits = self.peer_hits = self.misses = 0  # files
        self.before: list[StagingRequest] = []  # what was brought for the same task before it began
        self.came: dict[bytes, Came] = {}  # contents of a task that has not begun: counted when it has
        self.asked = 0  # times that the server was asked again
        self.urls: dict[str, SeenUrl] = {}  # what was seen at its URLs
        self.fetched: set[str] = set()  # of these: those that were fetched for it

    @property
    def is_early(self) -> bool:
        """Whether its task has not begun: nobody waits for it."""
        return self.worker is None

    @property
    def element(self) -> tuple[int, int]:
        """Whose inputs they are: span and index."""
        return self.message.span, self.message.index

    @property
    def moved(self) -> Staged:
        """From where its files came."""
        return Staged(
            0,
            0,
            self.cached,
            self.from_peers,
            self.from_origin,
            from_shared=self.from_shared,
            hits=self.hits,
            peer_hits=self.peer_hits,
            misses=self.misses,
        )

    def take_counts(self, other: StagingRequest) -> None:
        """What was brought for the same task before counts."""
        self.cached, self.from_peers, self.from_origin = other.cached, other.from_peers, other.from_origin
        self.from_shared, self.hits, self.peer_hits = other.from_shared, other.hits, other.peer_hits
        self.misses = other.misses

    def count(self, *, cached: int = 0, peers: int = 0, origin: int = 0, shared: int = 0) -> None:
        """A file is here: bytes of it by where they came from."""
        self.cached += cached
        self.from_peers += peers
        self.from_origin += origin
        self.from_shared += shared
        if origin:
            self.misses += 1
        elif peers or shared:
            self.peer_hits += 1
        else:
            self.hits += 1

    def take_came(self, digest: bytes) -> Came | None:
        """How a content came that was brought before the task began; None: it was not, or was counted."""
        found = [came for one in self.before if (came := one.came.pop(digest, None)) is not None]
        return found[0] if found else None

    def note_found(self, path: str, digest: bytes, size: int) -> None:
        """It is known what a file holds."""
        self.found[path] = (digest, size)
        if digest not in self.sizes:
            self.sizes[digest] = size
            self.size += size

    def uncount(self, cached: int) -> None:
        """A file that was counted is going to be found in the cache, and counted, once more."""
        self.cached -= cached
        self.hits -= 1

    @property
    def owner(self) -> object:
        """For whom contents are pinned."""
        return self.worker if self.worker is not None else self.element


class AnnouncedTask(StagingRequest):
    """A task that may come: what it reads, by digest or URL, and how what was brought of it came."""

    def __init__(self, message: InputsAnnounced) -> None:
        self.contents = {digest.hex(): (digest, size) for digest, size in message.contents}
        super().__init__(None, StageInputs(0, SpanId(0), message.index, [*self.contents, *message.urls]))
        self.record = message.record
        self.announced_size = sum(size for _, size in message.contents)  # and of URLs those that were looked at

    @property
    def owner(self) -> object:
        """Nobody else is."""
        return self


class SiteFileRequest(StagingRequest):
    """Another site wants a file of this one's storage; `number` is the server's. `comes` is told of one that is there.

    With its bytes, -1 if these are not known: it is going to be read.
    """

    def __init__(self, number: int, name: str, comes: Callable[[int], None]) -> None:
        super().__init__(None, StageInputs(0, SpanId(0), 0, [name]))
        self.number = number
        self.comes = comes

    @property
    def is_early(self) -> bool:
        """A task elsewhere waits for it."""
        return False

    @property
    def owner(self) -> object:
        """Nobody else is."""
        return self


class Download:
    """A content on its way."""

    def __init__(self, digest: bytes, size: int, number: int) -> None:
        self.digest = digest
        self.size = size
        self.number = number  # of what the transfer process was asked for
        self.waiting: list[tuple[StagingRequest, str]] = []
        self.pieces: set[int] = set()  # offsets that the server was asked for
        self.find: FindPeers | None = None  # the server was asked for peers
        self.tries = 1
