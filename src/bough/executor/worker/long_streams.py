"""What a task wrote to its streams, as files of its own for a server that cannot read those here.

An element's output is a part of a file that grows; the server takes whole files. So long parts are copied, handed over
as outputs are, and deleted. Rule: what is short stays as it is, and goes with the report.
"""

from __future__ import annotations

import contextlib
import os
from hashlib import blake2b
from typing import TYPE_CHECKING, Self

from bough import private
from bough.executor.reports import MOST_WRITTEN
from bough.executor.worker_protocol import OutputsStored, StoreOutputs
from bough.model.outcomes import Stream
from bough.wire.file_messages import DIGEST, PIECE, STREAMS, MadeFile

if TYPE_CHECKING:
    from bough.executor.worker.worker_channel import WorkerContext
    from bough.model.ids import SpanId

Both = tuple[Stream | None, Stream | None]  # of stdout and stderr


def hand_over(context: WorkerContext, number: int, span: SpanId, index: int, streams: Both) -> Both | None:
    """Give long streams to the server; as they were if that cannot be, None when the element was stopped meanwhile.

    `span` and `index` are those under which the server knows the element of this hand-over.
    """
    try:
        with LongStreams(context.streams.path_of("long"), streams) as long:
            context.reports.say(StoreOutputs(number, span, index, long.made, long.where))
            context.reports.flush()
            answer = context.inbox.answer(number, index)
            if not isinstance(answer, OutputsStored):
                return None
            if not answer.error and len(answer.places) == len(long.made):
                return long.placed(answer.places)
    except OSError:
        pass
    return streams


class LongStreams:
    """The long ones of a task's two streams. OSError when there is no room for a copy."""

    def __init__(self, beside: str, streams: Both) -> None:
        self._beside = beside
        self._streams = streams
        self.made: list[MadeFile] = []
        self.where: list[str] = []
        self._at: list[int] = []  # which of the two each is

    def __enter__(self) -> Self:
        try:
            for number, stream in enumerate(self._streams):
                if stream is not None and stream.length > MOST_WRITTEN:
                    self._copy(number, stream)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for path in self.where:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _copy(self, number: int, stream: Stream) -> None:
        path = f"{self._beside}.{number}"
        self.where.append(path)
        digest = blake2b(digest_size=DIGEST)
        size = 0
        with open(stream.path, "rb") as source, open(path, "wb", opener=private.opener) as target:
            while size < stream.length:
                piece = os.pread(source.fileno(), min(PIECE, stream.length - size), stream.offset + size)
                if not piece:
                    break
                target.write(piece)
                digest.update(piece)
                size += len(piece)
        self.made.append(MadeFile(STREAMS[number], digest.digest(), size))
        self._at.append(number)

    def placed(self, places: list[str]) -> Both:
        """The streams, of which the long ones lie with the server now."""
        found = list(self._streams)
        for number, place, made in zip(self._at, places, self.made, strict=True):
            found[number] = Stream(place, 0, made.size)
        return found[0], found[1]
