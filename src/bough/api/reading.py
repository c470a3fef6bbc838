"""Reading what tasks left behind: pickled results, big ones straight from their file, and output texts.

Rule: nothing is read before somebody asks for it, and a big result is mapped, not copied.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bough.api.classes import loads
from bough.errors import StoreFailed
from bough.model.outcomes import Detail, ResultFile, Results, Stream
from bough.wire.messages import Outcome


def load_results(results: Results) -> list[Any]:
    """The values of a span."""
    if isinstance(results, ResultFile):
        return _load_file(results)
    if results is None:
        raise StoreFailed("a function ended without a result")
    values: list[Any] = loads(results)
    return values


def _load_file(results: ResultFile) -> list[Any]:
    import mmap

    try:
        with open(results.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            values: list[Any] = loads(data)
    except (OSError, ValueError) as error:
        raise StoreFailed(f"the result in {results.path} cannot be read: {error}") from error
    return values


def without_results(message: Outcome) -> Outcome:
    """The same message without the bytes that have been read; tasks of which no more is known share one."""
    if message.details:
        return msgspec.structs.replace(message, results=None)
    same = (message.attempt, message.host, message.reused)
    found = _read.get(same)
    if found is None:
        if len(_read) >= 1000:
            _read.clear()
        found = _read[same] = msgspec.structs.replace(message, results=None)
    return found


_read: dict[tuple[int, str, bool], Outcome] = {}  # of no record in particular


def detail_of(message: Outcome, index: int) -> Detail | None:
    """What is known of one element's run."""
    details = message.details
    if not details:
        return None
    at = index - message.start
    if at < len(details) and details[at].index == index:  # every element has one: commands
        return details[at]
    return next((detail for detail in details if detail.index == index), None)


def read_stream(stream: Stream | None) -> str:
    """A task's own part of an output file, as text."""
    if stream is None or not stream.length:
        return ""
    return read_stream_bytes(stream).decode("utf-8", "replace")


def read_stream_bytes(stream: Stream | None) -> bytes:
    """A task's own part of an output file."""
    if stream is None or not stream.length:
        return b""
    try:
        with open(stream.path, "rb") as file:
            file.seek(stream.offset)
            return file.read(stream.length)
    except OSError as error:
        raise StoreFailed(f"the output in {stream.path} cannot be read: {error.strerror}") from error
