"""What a server knows of the run it serves."""

from __future__ import annotations

import msgspec

from bough.model.ids import ExecutorId


class RunInfo(msgspec.Struct, frozen=True):
    """One run of one workflow, as its server knows it."""

    run: int
    store_dir: str  # absolute
    marker: str  # in the environment of everything an executor starts
    first_record: int
    first_group: int
    first_executor: ExecutorId
    memos: bool = False  # earlier runs may hold results to reuse
    embedded: bool = True

    def folder(self, name: str) -> str:
        """A folder of the store."""
        return f"{self.store_dir}/{name}"
