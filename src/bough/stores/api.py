"""What a store keeps and promises: the journal, the blobs, the memos and the jobs database of one workflow.

Rule: what `append` returned from has been handed to the operating system and survives `kill -9` of
every process of ours; what `sync` returned from survives a power cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from bough.model.facts import Fact, Recalled, SpanEnded
from bough.model.ids import BlobId, MemoKey, RecordId, Seconds
from bough.model.tasks import Reuse


class LastRun(msgspec.Struct, frozen=True):
    """How the store was left."""

    run: int  # 0: there was none
    clean: bool  # the run said that it closed
    last_turn: int  # of the whole store
    last_record: int
    last_group: int
    last_executor: int
    last_span: int


class OldArray(msgspec.Struct, frozen=True):
    """An array of an earlier run, enough of it to see which of its elements can be reused."""

    record: RecordId
    length: int
    table: bytes  # the blob's content, empty when it came in pages
    pages: list[tuple[int, int, bytes]]
    done: list[tuple[int, int]]  # successful elements, merged and sorted


class Store(Protocol):
    """One workflow's durable memory."""

    def last_run(self) -> LastRun:
        """How the store was left."""

    def append(self, turn: int, now: Seconds, facts: Sequence[Fact]) -> None:
        """Write the facts of one turn as one row. Turn numbers grow by one over the store's whole life."""

    def sync(self) -> None:
        """Bring everything appended to the disk (fsync)."""

    def journal(self, after: int = 0) -> Iterator[tuple[int, Seconds, list[Fact]]]:
        """All turns after a number, in order, lazily."""

    def turns_of_run(self, run: int) -> int:
        """The number of the turn that opened a run; replay of that run begins there."""

    def turn(self, number: int) -> list[Fact]:
        """The facts of one turn."""

    def put_blob(self, blob: BlobId, data: bytes) -> None:
        """Keep a blob; harmless when it is there already. Durable with the next append."""

    def blob(self, blob: BlobId) -> bytes:
        """A blob's content; KeyError when there is none."""

    def save_snapshot(self, turn: int, run: int, data: bytes) -> None:
        """Keep a machine's snapshot, taken after a turn; the newest one per run is kept."""

    def snapshot(self, run: int) -> tuple[int, bytes] | None:
        """The newest snapshot of a run and the turn it was taken after."""

    def project(self, at_most: int = 0) -> bool:
        """Fold journalled facts into the jobs database and the memos; True once it has caught up.

        `at_most` bounds the number of turns folded in this call (0: all).
        """

    def recall(self, record: RecordId, start: int, stop: int, key: MemoKey, reuse: Sequence[Reuse]) -> list[Recalled]:
        """Successes of earlier runs for the elements [start, stop), found and not found, in order, covering all.

        A success counts only while its declared outputs are there and unchanged.
        """

    def success(self, turn: int, record: RecordId, index: int) -> SpanEnded | None:
        """The success that covers an element, from the journal row that holds it."""

    def old_arrays(self, body: MemoKey) -> list[OldArray]:
        """Arrays of earlier runs with this body, newest run first."""

    def declared_paths(self) -> list[str]:
        """Absolute paths that tasks of this workflow ever declared as outputs."""

    def close(self) -> None:
        """Catch up, sync and let go of the store."""
