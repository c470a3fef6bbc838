"""Outputs of tasks that run in sandboxes: offered to the server, held here for readers, or written back in bulk.

An output is offered to the server and cached here when the server has it. What is temporary is held in the cache of
this host in the place of that, and what may be written back later is held until the collector has sent it. Big results
of functions are outputs, too: their report waits for the server.

Rules: an offer outlives connections: what was not answered is said again when the server is back. What is held has a
part of the cache; what does not fit goes to the server.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from bough.errors import SiteError
from bough.executor.files.staging.host_contents import HostContents
from bough.executor.files.staging.output_collector import OutputCollector
from bough.executor.files.staging.staging_requests import StagingWorker
from bough.executor.files.transfers.transfer_protocol import KeepOutput, OutputSeen
from bough.executor.worker_protocol import OutputsStored, StoreOutputs
from bough.model.events.news import WorkFailed, WorkSucceeded
from bough.model.ids import SpanId
from bough.model.outcomes import Cause, Failure, ResultFile
from bough.model.tasks import LATER
from bough.wire.file_messages import (
    DIGEST,
    PIECE,
    STREAMS,
    FilePiece,
    FilesKept,
    GetPiece,
    HeldOutputs,
    MadeFile,
    OfferFiles,
)

_HELD: Final = 2  # the part of the cache that may be held for others


class StagedOutputs:
    """See the module. `say` sends to the server if it is there, `report` tells it how a task ended."""

    def __init__(
        self,
        contents: HostContents,
        say: Callable[[object], None],
        report: Callable[[WorkSucceeded | WorkFailed], None],
        gather: float,
    ) -> None:
        self._contents = contents
        self._say = say
        self._report = report
        self._offers: dict[int, tuple[StagingWorker, StoreOutputs]] = {}
        # outputs that are being cached; the last: those that the server does not have
        self._keeping: dict[int, tuple[StagingWorker, OutputsStored, set[int], StoreOutputs | None]] = {}
        self._results: dict[int, tuple[WorkSucceeded, ResultFile, bytes]] = {}  # offered; with their digests
        self._hashing: dict[int, tuple[WorkSucceeded, ResultFile]] = {}  # whose digest is not known yet
        self._collector = OutputCollector(say, self._held_content, gather)
        self._gathered = 0  # bytes of outputs that are held until they are written back
        self._makers: dict[tuple[int, int], StagingWorker] = {}  # of such outputs whose tasks were not reported yet
        self._held: dict[bytes, int] = {}  # contents that are held until the server says otherwise, with their bytes
        self._held_bytes = 0  # of them all

    def store(self, worker: StagingWorker, message: StoreOutputs) -> None:
        """A worker's task has made files."""
        if message.later is not None and message.files and not message.must and self._has_room_to_hold(message):
            times = [one.time for one in message.files]
            self._keep_outputs(
                worker, message, OutputsStored(message.number, message.index, times, later=True), message
            )
            return
        self._offer_outputs(worker, message)

    def _offer_outputs(self, worker: StagingWorker, message: StoreOutputs) -> None:
        number = self._contents.new_number()
        self._offers[number] = (worker, message)
        self._say_offer(number, message)

    def _say_offer(self, request: int, message: StoreOutputs) -> None:
        must = message.must or not self._has_room_to_hold(message)
        along = [] if message.temporary and not must else _small_contents(message)
        self._say(OfferFiles(request, message.span, message.index, message.files, must, along))

    def _has_room_to_hold(self, made: StoreOutputs) -> bool:
        """Whether outputs can be held here for others: a part of the cache is for that."""
        if self._contents.cache is None or self._contents.transfers is None:
            return False
        return (
            self._held_bytes + self._gathered + sum(one.size for one in made.files)
            <= self._contents.cache.limit // _HELD
        )

    def keep_result(self, news: WorkSucceeded, result: ResultFile) -> None:
        """A result is too big to be sent with its report, which waits until the server has it.

        It is a content, and stays in the cache: who reads it on another host takes it from here.
        """
        number = self._contents.new_number()
        with contextlib.suppress(OSError, SiteError):  # without a cache it is the server's alone
            self._contents.open()
        if self._contents.transfers is None:
            self._offer_result(number, news, result, b"")
        else:
            self._hashing[number] = (news, result)
            self._contents.transfers.order(KeepOutput(number, result.path, b"", result.size))

    def _offer_result(self, request: int, news: WorkSucceeded, result: ResultFile, digest: bytes) -> None:
        self._results[request] = (news, result, digest)
        self._say_result(request)

    def _say_result(self, request: int) -> None:
        news, result, digest = self._results[request]
        self._say(OfferFiles(request, news.span, news.start, [MadeFile("", digest, result.size)]))

    def spans(self) -> list[SpanId]:
        """Those whose results are on their way."""
        return [news.span for news, _, _ in self._results.values()] + [news.span for news, _ in self._hashing.values()]

    def kept(self, message: FilesKept) -> None:
        """The server has what was offered, or says why not."""
        if message.request in self._results:
            self._result_kept(message)
            return
        offer = self._offers.pop(message.request, None)
        if offer is not None:
            self._stored(*offer, message)

    def _stored(self, worker: StagingWorker, made: StoreOutputs, kept: FilesKept) -> None:
        """The server has outputs: they stay in the cache, too, before their task may remove them."""
        answer = OutputsStored(made.number, made.index, kept.times, kept.error, kept.places)
        if kept.error or self._contents.transfers is None:
            worker.send([answer])
        else:
            self._keep_outputs(worker, made, answer, made if kept.held else None)

    def _keep_outputs(
        self, worker: StagingWorker, made: StoreOutputs, answer: OutputsStored, to_hold: StoreOutputs | None
    ) -> None:
        """Have outputs in the cache, then answer; `to_hold`: those that must stay there."""
        assert self._contents.transfers is not None
        numbers: set[int] = set()
        for one, path in zip(made.files, made.locals, strict=True):
            if len(one.digest) != DIGEST or one.path in STREAMS:
                continue
            number = self._contents.new_number()
            numbers.add(number)
            self._keeping[number] = (worker, answer, numbers, to_hold)
            self._contents.transfers.order(KeepOutput(number, path, one.digest, one.size))
        if not numbers:
            worker.send([answer])

    def _hold(self, made: StoreOutputs) -> bool:
        """Keep temporary outputs, which the server does not have, until their last reader is done; False: it cannot."""
        assert self._contents.cache is not None
        for one in made.files:
            if not self._contents.cache.pin(one.digest, (_HELD, one.digest), one.size):
                for other in made.files:
                    self.let_go(other.digest)
                return False
            if one.digest not in self._held:
                self._held[one.digest] = one.size
                self._held_bytes += one.size
        return True

    def _gather(self, worker: StagingWorker, made: StoreOutputs, later: HeldOutputs) -> bool:
        """Keep outputs until they are written back; False: it cannot."""
        assert self._contents.cache is not None
        self._gathered += sum(one.size for one in later.files)
        if not all(self._contents.cache.pin(one.digest, _owner(later), one.size) for one in later.files):
            self._ungather([later])
            return False
        self._collector.hold((made.span, made.index), later)
        self._makers[made.span, made.index] = worker
        return True

    def _ungather(self, tasks: Iterable[HeldOutputs]) -> None:
        """What these tasks made need not be held any more; it stays in the cache like anything else."""
        assert self._contents.cache is not None
        for one in tasks:
            self._gathered -= sum(made.size for made in one.files)
            for digest in {made.digest for made in one.files}:
                self._contents.cache.release(digest, _owner(one))

    def _held_content(self, made: MadeFile) -> bytes:
        """A content that is held here; nothing: it cannot be read, which is said when the server asks for it."""
        try:
            with open(self._contents.open().path(made.digest), "rb") as file:
                data = file.read(made.size + 1)
        except (OSError, SiteError):
            return b""
        return data if len(data) == made.size else b""

    def reported(self, news: WorkSucceeded) -> None:
        """Tasks have succeeded, which is said with the next report: what they made may be written back behind it."""
        now = time.monotonic()
        for detail in news.details if self._makers else ():
            element = (news.span, detail.index)
            if self._makers.pop(element, None) is not None:
                self._collector.reported(element, now)

    def write_back(self, *, idle: bool, hurry: bool) -> None:
        """Send what was gathered, if it is time."""
        self._collector.send_if_due(time.monotonic(), idle=idle, hurry=hurry)

    @property
    def is_gathering(self) -> bool:
        """Whether something that was reported is still to be written back."""
        return not self._collector.is_empty

    def let_go(self, digest: bytes) -> None:
        """A content need not be held for others any more."""
        if self._contents.cache is not None and digest in self._held:
            self._held_bytes -= self._held.pop(digest)
            self._contents.cache.release(digest, (_HELD, digest))

    def _result_kept(self, message: FilesKept) -> None:
        news, result, _ = self._results.pop(message.request)
        with contextlib.suppress(OSError):
            os.unlink(result.path)
        if message.error or not message.places:
            text = f"the result of {result.size} bytes cannot be kept: {message.error}"
            detail = news.details[0] if news.details else None
            self._report(WorkFailed(news.span, news.start, Failure(Cause.EXCEPTION, text, site=True), detail))
        else:
            self._report(replace(news, results=ResultFile(message.places[0], result.size)))

    def seen(self, message: OutputSeen) -> None:
        """The transfer process has looked at an output: it is in the cache, or does not go there."""
        made = self._hashing.pop(message.number, None)
        if made is not None:
            self._offer_result(message.number, *made, message.digest)
        kept = self._keeping.pop(message.number, None)
        if kept is not None:
            worker, answer, numbers, to_hold = kept
            numbers.discard(message.number)
            if numbers:
                return
            later = to_hold.later if to_hold is not None and answer.later else None
            if (
                to_hold is None
                or (later is not None and self._gather(worker, to_hold, later))
                or (later is None and self._hold(to_hold))
            ):
                worker.send([answer])
            else:  # there was no room: the server must have them
                self._offer_outputs(worker, replace(to_hold, must=True))

    def piece(self, get: GetPiece) -> FilePiece:
        """A piece of an output that was offered."""
        offer = self._offers.get(get.request)
        local = offer[1].local(get.digest) if offer is not None else ""
        if get.request in self._results:
            local = self._results[get.request][1].path
        elif offer is None and self._contents.cache is not None and self._contents.cache.has(get.digest):
            local = self._contents.cache.path(get.digest)
        if not local:
            return FilePiece(get.request, get.offset, b"", "it is not offered any more")
        try:
            descriptor = os.open(local, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return FilePiece(get.request, get.offset, os.pread(descriptor, min(get.length, PIECE), get.offset))
            finally:
                os.close(descriptor)
        except OSError as error:
            return FilePiece(get.request, get.offset, b"", f"an output cannot be read: {error.strerror}")

    def written_back(self, request: int) -> None:
        """The server has written what was gathered, or does not want it."""
        self._ungather(self._collector.answered(request))

    def resume(self) -> None:
        """The server is back: say again what was not answered."""
        for number, (_, message) in self._offers.items():
            self._say_offer(number, message)
        for number in self._results:
            self._say_result(number)
        self._collector.resume()

    def forget(self, worker: StagingWorker) -> None:
        """A worker has ended: nobody waits for what it offered."""
        self._offers = {number: offer for number, offer in self._offers.items() if offer[0] is not worker}
        self._keeping = {number: kept for number, kept in self._keeping.items() if kept[0] is not worker}
        unsaid = [element for element, maker in self._makers.items() if maker is worker]
        if unsaid:
            self._makers = {element: maker for element, maker in self._makers.items() if maker is not worker}
            self._ungather(self._collector.drop(unsaid))


def _small_contents(made: StoreOutputs) -> list[bytes]:
    """What goes along with an offer: contents of outputs that are small, one after the other while they fit."""
    room, along = PIECE, list[bytes]()
    for one, path in zip(made.files, made.locals, strict=True):
        data = b""
        if len(one.digest) == DIGEST and one.size <= room:
            with contextlib.suppress(OSError), open(path, "rb") as file:  # it is asked for then, and that is said
                data = file.read(one.size + 1)
        if len(data) != one.size:
            data = b""
        room -= len(data)
        along.append(data)
    return along if any(along) else []


def _owner(outputs: HeldOutputs) -> object:
    """For whom outputs are pinned that are to be written back."""
    return LATER, outputs.record, outputs.index, outputs.attempt
