"""Ids and units, and amounts as people write them: bytes and times with units.

A *record* is what a submission makes: one loose task or one array; `(record, index)` names one task, the index being 0
for a loose task. People see the *number* of a record: 1, 2, 3 in each workflow. In a session's store the number is the
record's id. In a service's store it is what follows the workflow's *base*: record 300000000007 is number 7 of the
workflow whose base is 300000000000. So ids are unique in a store, and numbers cost nothing to keep.
Rules: an id is never given twice; whatever a person reads or writes is a number, never an id; a text that is not an
amount is a `ValueError`, and so is an amount that is not finite.
"""

from __future__ import annotations

from typing import Any, NewType

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
NUMBERS = 10**11  # records that one workflow can have; bases are multiples of it

_UNITS = {"": 1, "B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_TIMES = {"ms": 0.001, "min": 60, "s": 1, "m": 60, "h": 3600, "d": 86400}  # longer suffixes first


def number_of(record: int) -> int:
    """The number of a record in its workflow, which people read and write."""
    return record % NUMBERS


def split_growth(value: object) -> tuple[Any, float]:
    """An amount and the factor by which it grows after each attempt that it ended: "2GB*2" is "2GB" and 2.

    The factor is 0 if there is none; ValueError if it is not above 1, or above 100.
    """
    if not isinstance(value, str) or "*" not in value:
        return value, 0.0
    amount, _, factor = value.rpartition("*")
    growth = float(factor)
    if not 1 < growth <= MOST_GROWTH:
        raise ValueError(f"{factor} is no factor above 1 and up to {MOST_GROWTH}")
    return amount, growth


MOST_GROWTH = 100


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
