"""A folder with a store whose rows are written by hand."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from bough.stores.schema import statements


class Workshop:
    """A folder with `.bough/NAME/journal.db`, filled row by row."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def store(self, name: str = "wf") -> Path:
        folder = self.home / ".bough" / name
        folder.mkdir(parents=True, exist_ok=True)
        with sqlite3.connect(folder / "journal.db") as connection:
            connection.executescript(";".join(["pragma synchronous = off", *statements()]))
        connection.close()
        return folder

    def insert(self, table: str, store: str = "wf", **values: object) -> None:
        connection = sqlite3.connect(self.home / ".bough" / store / "journal.db")
        columns = ", ".join(values)
        marks = ", ".join("?" for _ in values)
        connection.execute("pragma synchronous = off")
        with connection:
            connection.execute(f"insert into {table}({columns}) values ({marks})", list(values.values()))
        connection.close()

    def change(self, statement: str, store: str = "wf") -> None:
        connection = sqlite3.connect(self.home / ".bough" / store / "journal.db")
        with connection:
            connection.execute(statement)
        connection.close()

    def task(self, id: int, state: str = "done", **values: object) -> None:  # noqa: A002 - the column's name
        row: dict[str, object] = {
            "run": 1,
            "grp": 0,
            "name": "",
            "kind": "command",
            "length": 1,
            "is_array": 0,
            "attempt": 1,
            "command": f"command {id}",
            "reused": 0,
            "waits": 0,
        }
        self.insert("tasks", id=id, state=state, **(row | values))
