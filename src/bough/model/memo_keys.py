"""Memo keys: what identifies a computation across runs, completed by what it depends on.

A key is a digest of the content of a task, of its occurrence number within the run, and of the
marks of the successes it depends on. Rule: a mark never depends on how spans happened to be cut.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence

from bough.model.ids import DIGEST_SIZE, MemoKey
from bough.model.outcomes import Output, ResultFile, Results
from bough.model.tasks import Page

_SUCCESS = struct.Struct("<cQQQ")
_RUN = struct.Struct("<QQQQ")


def _begun(length: int, occurrence: int, marks: int) -> hashlib.blake2b:
    return hashlib.blake2b(struct.pack("<QQI", length, occurrence, marks), digest_size=DIGEST_SIZE)


_FIRST_OF_ITS_KIND = _begun(DIGEST_SIZE, 0, 0)


def full_key(content: bytes, occurrence: int, marks: Sequence[bytes]) -> MemoKey:
    """The key of the n-th task of a run with this content, given the marks of its dependencies in order."""
    if not (occurrence or marks) and len(content) == DIGEST_SIZE:  # most tasks
        digest = _FIRST_OF_ITS_KIND.copy()
        digest.update(content)
        return MemoKey(digest.digest())
    digest = _begun(len(content), occurrence, len(marks))
    digest.update(content)
    for mark in marks:
        digest.update(len(mark).to_bytes(4, "little"))
        digest.update(mark)
    return MemoKey(digest.digest())


def success_mark(record: int, index: int, attempt: int) -> bytes:
    """Which success of one task it was."""
    return _SUCCESS.pack(b"t", record, index, attempt)


def array_mark(runs: Sequence[tuple[int, int, int, int]]) -> bytes:
    """Which successes the elements of an array were, as runs of (source record, source start, length, attempt)."""
    digest = hashlib.blake2b(b"a", digest_size=DIGEST_SIZE)
    held: tuple[int, int, int, int] | None = None
    for run in runs:
        record, start, length, attempt = run
        if not length:
            continue
        if held and held[0] == record and held[3] == attempt and held[1] + held[2] == start:
            held = (record, held[1], held[2] + length, attempt)
            continue
        if held:
            digest.update(_RUN.pack(*held))
        held = (record, start, length, attempt)
    if held:
        digest.update(_RUN.pack(*held))
    return digest.digest()


def digest_of_made(outputs: Sequence[Output], results: Results) -> bytes:
    """What stands for all that a task made; empty if the content of some of it is not known."""
    if not outputs or not all(output.digest for output in outputs) or isinstance(results, ResultFile):
        return b""
    digest = hashlib.blake2b(results or b"", digest_size=DIGEST_SIZE)
    for output in sorted(outputs, key=lambda output: (output.path, output.slot)):
        path = output.path.encode()
        digest.update(struct.pack("<I", len(path)) + path + output.digest)
    return digest.digest()


def pages_digest(pages: Iterable[Page]) -> bytes:
    """What stands for the arguments of an array that came in pages; nothing for one without."""
    digest, some = hashlib.blake2b(digest_size=DIGEST_SIZE), False
    for page in pages:
        digest.update(page.data)
        some = True
    return digest.digest() if some else b""
