"""The jobs database: tables for people and tools, folded from the journal; `JobsDatabase` reads them."""

from bough.stores.jobs.jobs_reader import JobsDatabase

__all__ = ["JobsDatabase"]
