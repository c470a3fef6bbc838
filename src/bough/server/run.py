"""What a server knows of the run it serves."""

from __future__ import annotations

import msgspec

from bough.model.ids import ExecutorId


class RunInfo(msgspec.Struct, frozen=True):
    """One run of one workflow, as its server knows it."""

    run: int
    store_dir: str  # absolute
    marker: str  # in the environment of everything an executor starts
    first_record: int = 1  # the numbers that a session's clients and executors get; a service keeps a book of its own
    first_group: int = 1
    first_executor: ExecutorId = ExecutorId(1)
    memos: bool = False  # earlier runs may hold results to reuse
    embedded: bool = True
    piggyback: bool = True  # work may travel with acknowledgements
    pickup: int = 0  # most tasks in one hand-out; 0: as the core sees fit
    token: str = ""  # of a service: the content of the file `token` in its store's folder

    def folder(self, name: str) -> str:
        """A folder of the store."""
        return f"{self.store_dir}/{name}"
