"""Opens, locks or reads the store that a user named: a folder, or the address of a PostgreSQL database.

Rule: psycopg is imported only for stores that need it.
"""

from __future__ import annotations

from typing import Protocol

from bough.errors import UserError
from bough.stores.folder.store_lock import StoreLock
from bough.stores.jobs.jobs_reader import Jobs, JobsDatabase
from bough.stores.sql.sql_store import SqlStore
from bough.stores.sql.sqlite import SqliteStore

_PREFIXES = ("postgresql://", "postgres://")


class HeldStore(Protocol):
    """The lock of a store."""

    def release(self) -> None:
        """Release the lock."""


def is_postgres(where: str) -> bool:
    """Whether a store is named by the address of a database, not by a folder."""
    return where.startswith(_PREFIXES)


def open_store(where: str) -> SqlStore:
    """Open the store in a folder or a database, made if it is not there; the caller holds its lock."""
    if not is_postgres(where):
        return SqliteStore(where)
    need_psycopg()
    from bough.stores.sql.postgres import PostgresStore

    return PostgresStore(where)


def lock_store(where: str) -> HeldStore:
    """Take the lock of a store; `StoreHeld` names the process that has it."""
    if not is_postgres(where):
        return StoreLock(where)
    need_psycopg()
    from bough.stores.sql.postgres import PostgresLock

    return PostgresLock(where)


def open_jobs(where: str, seconds: float = 0.0) -> Jobs:
    """Open the jobs database of a store for reading; `seconds`: how long a statement may take, 0: for ever."""
    if not is_postgres(where):
        return JobsDatabase(where, seconds)
    need_psycopg()
    from bough.stores.sql.pg_jobs_reader import PostgresJobs

    return PostgresJobs(where, seconds)


def need_psycopg() -> None:
    """Check that the driver is installed."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise UserError(f"a store in PostgreSQL needs psycopg ({error}): pip install 'bough[postgres]'") from None
