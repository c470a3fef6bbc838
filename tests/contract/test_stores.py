"""The SQLite store keeps the promises of every store, with and without its write-ahead log."""

from __future__ import annotations

import os
from pathlib import Path

from bough.stores.sql.sqlite import SqliteStore
from bough.testing.store_conformance import StoreSuite


class TestSqlite(StoreSuite):
    open_store = SqliteStore

    def size(self, store: SqliteStore) -> int:
        return sum(
            os.stat(f"{store.path}{suffix}").st_size for suffix in ("", "-wal") if os.path.exists(store.path + suffix)
        )

    def fold_anew(self, store: SqliteStore) -> None:
        store._database.execute("PRAGMA user_version = 1")


class TestSqliteWithoutWriteAheadLog(TestSqlite):
    @staticmethod
    def open_store(directory: Path) -> SqliteStore:
        return SqliteStore(directory, wal=False)
