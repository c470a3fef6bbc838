"""The statements that write the jobs database, made from the fields of its rows.

Rule: columns that never change are not written again, and rows that have only the common columns are
written by statements that name only those.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import msgspec

from bough.stores.arrayfold import LABELS, RANGED
from bough.stores.rows import AttemptRow, ElementRow, SpanRow, TaskRow

_RANGED: Final = ", ".join(f"'{LABELS[state]}'" for state in sorted(RANGED))
IS_OPEN: Final = "state IN ('placed', 'running')"
ERASE_RANGES: Final = f"DELETE FROM spans WHERE id = ? AND state IN ({_RANGED})"
ERASE_SPAN: Final = f"DELETE FROM spans WHERE span = ? AND {IS_OPEN}"


def _marks(row: type[msgspec.Struct] | int) -> str:
    count = row if isinstance(row, int) else len(row.__struct_fields__)
    return ", ".join("?" * count)


def _save(table: str, row: type[msgspec.Struct], key: str, settled: str) -> str:
    """Insert or update; columns that never change are left alone, which spares their indexes."""
    skipped = {*key.split(", "), *settled.split()}
    changes = ", ".join(f"{name} = excluded.{name}" for name in row.__struct_fields__ if name not in skipped)
    return f"INSERT INTO {table} VALUES ({_marks(row)}) ON CONFLICT ({key}) DO UPDATE SET {changes}"


def replace(table: str, key: str, others: str) -> str:
    """Insert a row, or put it in the place of the one with its key; `key` and `others` name all columns in order."""
    names = [*key.split(", "), *others.split(", ")]
    changes = ", ".join(f"{name} = excluded.{name}" for name in others.split(", "))
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({_marks(len(names))})"
        f" ON CONFLICT ({key}) DO UPDATE SET {changes}"
    )


def _once(table: str, columns: int) -> str:
    """Insert a row unless it is there."""
    return f"INSERT INTO {table} VALUES ({_marks(columns)}) ON CONFLICT DO NOTHING"


SAVE: Final = {
    "tasks": _save("tasks", TaskRow, "id", "run grp name kind is_array command submitted cores waits releases"),
    "attempts": _save("attempts", AttemptRow, "id, idx, attempt, span", ""),
    "elements": _save("elements", ElementRow, "id, idx", ""),
    "spans": f"INSERT INTO spans VALUES ({_marks(SpanRow)})",
}


# Binding a column costs as much as storing it, and most tasks neither fail nor print: rows whose other
# columns have their defaults are written by the short statements.
_FIELDS: Final = TaskRow.__struct_fields__
_RARE: Final = (  # the first and the last of some in a row
    slice(_FIELDS.index("exit_code"), _FIELDS.index("message") + 1),
    slice(_FIELDS.index("memory"), _FIELDS.index("stderr_length") + 1),
    slice(_FIELDS.index("failed"), _FIELDS.index("is_open") + 1),
)
_rare: Final = attrgetter(*(name for some in _RARE for name in _FIELDS[some]))
_DEFAULTS: Final = _rare(TaskRow(0, 0, 0, "", "", 0, 0, "", 0, "", 0))
_COMMON: Final = tuple(name for name in _FIELDS if name not in {name for some in _RARE for name in _FIELDS[some]})
_CHANGING: Final = (
    *("state", "attempt", "started", "ended", "seconds", "executor", "host", "reused"),
    *("turn", "done", "priority"),
)
INSERT_COMMON: Final = f"INSERT INTO tasks ({', '.join(_COMMON)}) VALUES ({_marks(len(_COMMON))})"
UPDATE_COMMON: Final = f"UPDATE tasks SET {', '.join(f'{name} = ?' for name in _CHANGING)} WHERE id = ?"
common: Final = attrgetter(*_COMMON)
changing: Final = attrgetter(*_CHANGING, "id")


# statements whose rows are only gathered: name -> SQL
GATHERED: Final = {
    "files": replace("files", "id, idx, slot", "path, size, mtime_ns"),
    "after": _once("after", 5),
    "group_after": _once("group_after", 5),
    "attributes": _once("attributes", 5),
    "declared": _once("declared", 2),
    "memo": replace("memo", "key, record, start", "stop, attempt, turn, run, checked"),
    "arrays": replace("arrays", "record", "run, key, length, table_blob"),
    "lengths": "UPDATE arrays SET length = ? WHERE record = ?",
    "array_pages": _once("array_pages", 2),
    "borrowed": _once("borrowed", 3),
    "blob_uses": _once("blob_uses", 2),
}


def is_rich(row: TaskRow) -> bool:
    """Whether a row has more than the common columns."""
    return bool(row.is_array) or _rare(row) != _DEFAULTS
