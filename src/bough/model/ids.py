"""Ids and units, and amounts as people write them: bytes and times with units.

A *record* is what a submission makes: one loose task or one array. Records are numbered per store, from 1, and never
renumbered; `(record, index)` names one task, the index being 0 for a loose task.
Rule: a text that is not an amount is a `ValueError`, and so is an amount that is not finite.
"""

from __future__ import annotations

from typing import NewType

from bough.model.bounds import Count, Digest, Instant

RecordId = NewType("RecordId", Count)
GroupId = NewType("GroupId", Count)
ExecutorId = NewType("ExecutorId", Count)
SpanId = NewType("SpanId", Count)  # one dispatch of a span; executors report by it
FileId = NewType("FileId", Count)  # a declared file of a workflow, from 1; the core numbers them
BlobId = NewType("BlobId", Digest)  # 16-byte digest of a blob's content
MemoKey = NewType("MemoKey", Digest)  # 16-byte digest of what a task computes

Seconds = Instant  # since the epoch for instants, plain for durations
Bytes = Count

DIGEST_SIZE = 16  # bytes of a blob's id and of a memo key
ROOT = GroupId(0)  # the workflow's own group

_UNITS = {"": 1, "B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_TIMES = {"ms": 0.001, "min": 60, "s": 1, "m": 60, "h": 3600, "d": 86400}  # longer suffixes first


def read_bytes(text: str | float) -> int:
    """Read "4GB", "512 MiB", "1e9" or a number as bytes; ValueError says what is wrong."""
    try:
        return int(text if isinstance(text, int | float) else _number_of_bytes(text))
    except OverflowError:
        raise ValueError("an amount of bytes has an end") from None


def _number_of_bytes(text: str) -> float:
    body = text.strip().upper().removesuffix("B")
    for suffix, factor in {**_BINARY, **_UNITS}.items():
        if suffix and body.endswith(suffix):
            return float(body.removesuffix(suffix)) * factor
    return float(body)


def read_seconds(text: str | float) -> float:
    """Read "1h", "90s", "1:30:00", "250ms" or a number as seconds; ValueError says what is wrong."""
    if isinstance(text, int | float):
        try:
            return float(text)
        except OverflowError:
            raise ValueError("a time has an end") from None
    body = text.strip().lower()
    if ":" in body:
        total = 0.0
        for part in body.split(":"):
            total = total * 60 + float(part)
        return total
    for suffix, factor in _TIMES.items():
        if body.endswith(suffix):
            return float(body.removesuffix(suffix)) * factor
    return float(body)
