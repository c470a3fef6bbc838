"""The jobs database: tables for people and tools, folded from the journal; `JobsDatabase` reads them.

Rule: the reader is loaded when it is asked for; a server that only folds does without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bough.stores.jobs.jobs_reader import JobsDatabase

__all__ = ["JobsDatabase"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from bough.stores.jobs import jobs_reader

        return getattr(jobs_reader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
