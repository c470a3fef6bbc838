"""Ids and units.

A *record* is what a submission makes: one loose task or one array. Records are numbered per store,
from 1, and never renumbered; `(record, index)` names one task, the index being 0 for a loose task.
"""

from __future__ import annotations

from typing import NewType

from bough.model.bounds import Count, Digest, Instant

RecordId = NewType("RecordId", Count)
GroupId = NewType("GroupId", Count)
ExecutorId = NewType("ExecutorId", Count)
SpanId = NewType("SpanId", Count)  # one hand-out of a span; what executors answer to
BlobId = NewType("BlobId", Digest)  # 16-byte digest of a blob's content
MemoKey = NewType("MemoKey", Digest)  # 16-byte digest of what a task computes

Seconds = Instant  # since the epoch for instants, plain for durations
Bytes = Count

DIGEST_SIZE = 16  # bytes of a blob's id and of a memo key
ROOT = GroupId(0)  # the workflow's own group
