"""Frames: a length of four bytes, big-endian, then one MessagePack list of messages; and reports, framed once.

Sans-I/O: bytes in, messages out. A report is news on its way to the server or relay that gave the work: numbered, and
kept until it is acknowledged.

Rules: what a peer sends is decoded against one union; anything else, and any frame over the limit, is a
`ProtocolError`, never another exception. What is kept is what has arrived, whatever a length promises. A report has
one number and one encoding for ever, so that it can be sent again, and a peer that reads it twice sees that it is the
same. News that are big together become several reports, each well below the frame of an executor.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import msgspec

from bough.errors import ProtocolError
from bough.model.events.news import WorkNews
from bough.wire.client_messages import MAX_FRAME, FromClient, ToClient
from bough.wire.executor_messages import FromExecutor, Report, ToExecutor
from bough.wire.relay_channels import RelayHello

News = WorkNews
M = TypeVar("M")
MOST = 1 << 24  # bytes of a report of more than one piece of news; none is bigger than that by itself (see `executor`)
_HEAD = 4
_FIRST_ANSWER = 1 << 28  # bytes; a peer that begins with more is another program, such as one that speaks plain text
_encode_into = msgspec.msgpack.Encoder().encode_into
_decoders: dict[object, msgspec.msgpack.Decoder[list[object]]] = {}


def frame(*messages: object) -> bytearray:
    """One frame that carries these messages."""
    return frame_list(messages)


def frame_list(messages: object, limit: int = 0) -> bytearray:
    """One frame that carries a list or tuple of messages; `limit`: bytes that the other end takes, if fewer."""
    buffer = bytearray(_HEAD)
    _encode_into(messages, buffer, _HEAD)
    size = len(buffer) - _HEAD
    if size > (limit or MAX_FRAME):
        raise ProtocolError(f"a message of {size} bytes is over the limit of {limit or MAX_FRAME}")
    buffer[:_HEAD] = size.to_bytes(_HEAD, "big")
    return buffer


class Frames(Generic[M]):
    """Cut a stream of bytes into messages of one union. `limit`: bytes of one frame; `first`: of the first one."""

    def __init__(self, union: object, limit: int = MAX_FRAME, first: int = 0) -> None:
        if union not in _decoders:
            _decoders[union] = msgspec.msgpack.Decoder(list[union])  # type: ignore[valid-type]
        self._decode = _decoders[union].decode
        self.limit = first or limit
        self._later = limit if first else 0  # the limit behind the first frame
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> list[M]:
        """Take bytes as they come; return the messages that are complete."""
        buffer = self._buffer
        if buffer:
            buffer += data
        elif len(data) > _HEAD and int.from_bytes(data[:_HEAD], "big") == len(data) - _HEAD <= self.limit:
            return self._read(memoryview(data)[_HEAD:])  # mostly it is one frame
        messages: list[object] = []
        view = memoryview(buffer or data)  # mostly nothing is left from before, and nothing need be copied
        at, end = 0, len(view)
        try:
            while end - at >= _HEAD:
                size = int.from_bytes(view[at : at + _HEAD], "big")
                if size > self.limit:
                    raise ProtocolError(f"a frame of {size} bytes is over the limit of {self.limit}")
                if end - at - _HEAD < size:
                    break
                messages += self._read(view[at + _HEAD : at + _HEAD + size])
                at += _HEAD + size
            rest = b"" if buffer or at == end else bytes(view[at:])
        finally:
            view.release()
        if buffer:
            del buffer[:at]
        else:
            buffer += rest
        return messages  # type: ignore[return-value]

    @property
    def kept(self) -> int:
        """Bytes of a frame that is not complete."""
        return len(self._buffer)

    def _read(self, view: memoryview) -> list[M]:
        if self._later:
            self.limit, self._later = self._later, 0
        try:
            return self._decode(view)  # type: ignore[return-value]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:  # bad text, too deep
            raise ProtocolError(f"a frame could not be read: {error!s:.300}") from error


def server_frames() -> Frames[FromClient | FromExecutor | RelayHello]:
    """What a server hears; the first message says from which kind of peer. A relay's line has frames of its own."""
    return Frames(FromClient | FromExecutor | RelayHello)


def to_client_frames() -> Frames[ToClient]:
    """What a client hears."""
    return Frames(ToClient, first=_FIRST_ANSWER)


def to_executor_frames() -> Frames[ToExecutor]:
    """What an executor hears."""
    return Frames(ToExecutor, first=_FIRST_ANSWER)


class KeptReports:
    """News that become reports, and reports that were not acknowledged yet."""

    def __init__(self) -> None:
        self._news: list[News] = []
        self._number = 0
        self._kept: deque[tuple[int, bytearray]] = deque()

    def add(self, news: News) -> None:
        """Say this with the next report."""
        self._news.append(news)

    def cut(self) -> bytearray | None:
        """Number what was added since the last time and return its frames; None if there is nothing."""
        if not self._news:
            return None
        news, self._news = self._news, []
        return self._frame(news)

    def _frame(self, news: list[News]) -> bytearray:
        data = frame(Report(self._number + 1, news))
        if len(data) > MOST and len(news) > 1:
            middle = len(news) // 2
            return self._frame(news[:middle]) + self._frame(news[middle:])
        self._number += 1
        self._kept.append((self._number, data))
        return data

    def heard(self, number: int) -> None:
        """Forget reports up to this number."""
        kept = self._kept
        while kept and kept[0][0] <= number:
            kept.popleft()

    def unheard(self) -> list[bytearray]:
        """Frames of the reports that were not acknowledged, in order."""
        return [data for _, data in self._kept]
