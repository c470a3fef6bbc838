"""The tables of the jobs database while facts are folded: rows in memory, written together.

The first half holds the statements that write rows, made from the fields of the row structs. The second half is
`JobsTables`, which reads rows when a fact concerns them, gathers the changes, and writes them in one transaction.
Rule: all that folding needs is in the tables, so that a new process continues where the last one committed; rows in
memory are only a cache of what still changes. Columns that never change are not written again, and a row that has only
the common columns is written by a statement that names only those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

import msgspec
from msgspec.structs import astuple

from bough.model.events.facts import SpanEnded
from bough.model.outcomes import Detail
from bough.model.states import LABELS
from bough.stores.database import Database
from bough.stores.jobs.array_states import RANGED, SPAN_STATES, FoldedArray
from bough.stores.jobs.rows import ENDED_LABELS, AttemptRow, ElementRow, OpenSpan, SpanRow, TaskRow
from bough.stores.schema import OUT

MAX_CACHED: Final = 150_000  # rows of unfinished loose tasks kept in memory
ENDED_CACHED: Final = 5_000  # rows kept before those that have ended are dropped
KNOWN_HOSTS: Final = 10_000  # of executors

Success = Callable[[int, int, int], SpanEnded | None]
Blob = Callable[[bytes], bytes]

# --- statements -------------------------------------------------------------------------------------------------------

_TASK: Final = f"SELECT {', '.join(TaskRow.__struct_fields__)} FROM tasks WHERE id = ?"
IS_OPEN: Final = f"state IN {OUT}"
ERASE_RANGES: Final = f"DELETE FROM spans WHERE id = ? AND state IN {tuple(SPAN_STATES[state] for state in RANGED)}"
ERASE_SPAN: Final = f"DELETE FROM spans WHERE span = ? AND {IS_OPEN}"


def _placeholders(row: type[msgspec.Struct] | int) -> str:
    count = row if isinstance(row, int) else len(row.__struct_fields__)
    return ", ".join("?" * count)


def _save(table: str, row: type[msgspec.Struct], key: str, unchanging: str) -> str:
    """Insert or update; columns that never change are left alone, which spares their indexes."""
    kept = {*key.split(", "), *unchanging.split()}
    changes = ", ".join(f"{name} = excluded.{name}" for name in row.__struct_fields__ if name not in kept)
    return f"INSERT INTO {table} VALUES ({_placeholders(row)}) ON CONFLICT ({key}) DO UPDATE SET {changes}"


def replace(table: str, key: str, others: str) -> str:
    """Insert a row, or put it in the place of the one with its key; `key` and `others` name all columns in order."""
    names = [*key.split(", "), *others.split(", ")]
    changes = ", ".join(f"{name} = excluded.{name}" for name in others.split(", "))
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({_placeholders(len(names))})"
        f" ON CONFLICT ({key}) DO UPDATE SET {changes}"
    )


def _once(table: str, columns: int) -> str:
    """Insert a row unless it is there."""
    return f"INSERT INTO {table} VALUES ({_placeholders(columns)}) ON CONFLICT DO NOTHING"


SAVE: Final = {
    "tasks": _save(
        "tasks", TaskRow, "id", "run grp name kind is_array command submitted cores waits releases indices needs"
    ),
    "attempts": _save("attempts", AttemptRow, "id, idx, attempt, span", ""),
    "elements": _save("elements", ElementRow, "id, idx", ""),
    "spans": f"INSERT INTO spans VALUES ({_placeholders(SpanRow)})",
}


# Binding a column costs as much as storing it, and most tasks neither fail nor print: rows whose other
# columns have their defaults are written by the short statements.
_FIELDS: Final = TaskRow.__struct_fields__
_RARE: Final = (  # the first and the last of some in a row
    slice(_FIELDS.index("exit_code"), _FIELDS.index("parameters") + 1),
    slice(_FIELDS.index("memory"), _FIELDS.index("stderr_length") + 1),
    slice(_FIELDS.index("failed"), _FIELDS.index("is_open") + 1),
    slice(_FIELDS.index("indices"), _FIELDS.index("needs") + 1),
)
_rare: Final = attrgetter(*(name for some in _RARE for name in _FIELDS[some]))
_DEFAULTS: Final = _rare(TaskRow(0, 0, 0, "", "", 0, 0, "", 0, "", 0))
_COMMON: Final = tuple(name for name in _FIELDS if name not in {name for some in _RARE for name in _FIELDS[some]})
_CHANGING: Final = (
    *("state", "attempt", "started", "ended", "seconds", "executor", "host", "reused"),
    *("turn", "done", "priority"),
)
INSERT_COMMON: Final = f"INSERT INTO tasks ({', '.join(_COMMON)}) VALUES ({_placeholders(len(_COMMON))})"
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
    "lasting": _once("lasting", 3),
    "blob_uses": _once("blob_uses", 2),
    "firings": _once("firings", 16),
    "series": _once("series", 10),
    "staging": _once("staging", 13),
    "queues": replace("queues", "turn, queue", "time, limits"),
}


_MANY: Final = ("files", "firings", "series", "staging")  # of which a task may have many rows


def has_rare(row: TaskRow) -> bool:
    """Whether a row has more than the common columns."""
    return bool(row.is_array) or _rare(row) != _DEFAULTS


# --- rows in memory ---------------------------------------------------------------------------------------------------


class Marks(msgspec.Struct):
    """How far the folding is, and the highest ids it has seen: the row of `position`."""

    turn: int = 0
    run: int = 0
    clean: int = 1
    record: int = 0
    group: int = 0
    executor: int = 0
    span: int = 0
    last: int = 0  # the highest run of any kind
    service: int = 0  # workflows have runs of their own


COLUMNS: Final = "turn, run, clean, record, grp, executor, span, last, service"
HIGHEST: Final = ("record", "group", "executor", "span", "last")  # ids that are never given twice


def keep_numbers(database: Database) -> None:
    """Write down the highest ids, for when the tables are folded anew from a journal that lacks removed runs."""
    columns = ", ".join("grp" if name == "group" else name for name in HIGHEST)
    highest = database.execute(f"SELECT {columns} FROM position").fetchone()
    database.execute(
        "INSERT INTO about VALUES ('highest', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (" ".join(map(str, highest)),),
    )


class JobsTables:
    """Rows of the tables in memory, and what of them is to be written."""

    def __init__(self, database: Database, blob: Blob, success: Success) -> None:
        self._database = database
        self.blob = blob
        self.success = success
        self.open: dict[int, OpenSpan] = {}
        self.of_record: dict[int, set[int]] = {}  # open spans by record
        self.replicas: dict[
            int, set[int]
        ] = {}  # elements of arrays that were replicated, by record, until they succeed
        self.gathered: dict[str, list[tuple[object, ...]]] = {name: [] for name in GATHERED}
        self.attempts: dict[tuple[int, int, int, int], AttemptRow] = {}
        self.span_rows: list[SpanRow] = []
        self.element_rows: dict[tuple[int, int], ElementRow] = {}
        self._tasks: dict[int, TaskRow] = {}
        self._arrays: dict[int, FoldedArray] = {}
        self._dirty: set[int] = set()
        self._new: set[int] = set()  # rows that are not in the table yet
        self._with_rare: set[int] = set()  # rows in memory that have, or had, more than the common columns
        self._dirty_spans: set[int] = set()
        self._dropped_attempts: set[tuple[int, int, int, int]] = set()
        self._hosts: dict[int, str] = {0: ""}
        self._check_above = ENDED_CACHED  # rows in memory above which ended ones are dropped
        self.marks = Marks(*self.rows(f"SELECT {COLUMNS} FROM position")[0])  # type: ignore[arg-type]
        if not self.marks.turn:
            self._begin_anew()
        self._load_open()

    def _begin_anew(self) -> None:
        """Reserve the ids of removed runs: their facts are gone from the journal."""
        for (value,) in self.rows("SELECT value FROM about WHERE name = 'highest'"):
            self.reserve({name: int(number) for name, number in zip(HIGHEST, str(value).split(), strict=True)})

    def reserve(self, numbers: Mapping[str, int]) -> None:
        """These ids were given, by the name of their mark: the next ones are higher."""
        for name, number in numbers.items():
            setattr(self.marks, name, max(number, getattr(self.marks, name)))

    # --- reading ---

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """The rows that a query finds among those written."""
        return self._database.execute(sql, parameters).fetchall()

    def task(self, record: int) -> TaskRow | None:
        """A task's or an array's row, about to be changed."""
        row = self._tasks.get(record)
        if row is None:
            found = self.rows(_TASK, (record,))
            if not found:
                return None
            row = self._tasks[record] = TaskRow(*found[0])  # type: ignore[arg-type]
            if has_rare(row):
                self._with_rare.add(record)
        self._dirty.add(record)
        return row

    def array(self, row: TaskRow) -> FoldedArray:
        """The fold of an array."""
        fold = self._arrays.get(row.id)
        if fold is None:
            spans = self._database.execute(
                "SELECT * FROM spans WHERE id = ? AND state != 'lost' ORDER BY start", (row.id,)
            )
            elements = self.rows("SELECT * FROM elements WHERE id = ? AND state != 'done'", (row.id,))
            fold = self._arrays[row.id] = FoldedArray(
                row,
                (SpanRow(*values) for values in spans),
                [ElementRow(*values) for values in elements],  # type: ignore[arg-type]
            )
        return fold

    def host(self, executor: int) -> str:
        """The host of an executor."""
        if executor not in self._hosts:
            if len(self._hosts) > KNOWN_HOSTS:
                self._hosts = {0: ""}
            found = self.rows("SELECT host FROM executors WHERE id = ?", (executor,))
            self._hosts[executor] = str(found[0][0]) if found else ""
        return self._hosts[executor]

    def is_out(self, record: int) -> bool:
        """Whether an executor has a task, or some of an array."""
        return record in self.of_record

    @property
    def weight(self) -> int:
        """How many rows are to be written."""
        return (
            len(self._dirty)
            + len(self.span_rows)
            + len(self.element_rows)
            + sum(len(self.gathered[name]) for name in _MANY)
        )

    # --- changing ---

    def put_staging(self, task: int, index: int, attempt: int, detail: Detail | None) -> None:
        """What moving the files of an attempt took, if they travelled."""
        if detail is not None and detail.staged is not None:
            self.gathered["staging"].append((task, index, attempt, *astuple(detail.staged)))

    def execute(self, sql: str, parameters: Sequence[object]) -> None:
        """Change a small table at once."""
        self.begin()
        self._database.execute(sql, parameters)

    def add(self, row: TaskRow) -> None:
        """A new task or array."""
        self._tasks[row.id] = row
        self._dirty.add(row.id)
        self._new.add(row.id)
        if row.is_array:
            self._arrays[row.id] = FoldedArray(row)

    def place(self, span: OpenSpan) -> None:
        """Add a span that an executor has."""
        self.open[span.span] = span
        self.of_record.setdefault(span.record, set()).add(span.span)
        self._dirty_spans.add(span.span)

    def take_from_span(self, span: OpenSpan, start: int, stop: int) -> None:
        """Elements of a span ended or were given back; with the last of them the span is dropped."""
        span.take(start, stop)
        self._dirty_spans.add(span.span)
        if not span.rest and span.span in self.open:
            del self.open[span.span]
            mine = self.of_record[span.record]
            mine.discard(span.span)
            if not mine:
                del self.of_record[span.record]
            if span.written:
                self._erase_span(span)

    def forget_successes(self, record: int, start: int, stop: int) -> None:
        """Elements were reset: cut out their successes, so that no later run finds them either."""
        self.write()
        execute, place = self._database.execute, (record, stop, start)
        for table, condition, at in (("spans", "id = ? AND state = 'done'", 1), ("memo", "record = ?", 2)):
            where = f"FROM {table} WHERE {condition} AND start < ? AND stop > ?"
            rows = execute(f"SELECT * {where}", place).fetchall()
            execute(f"DELETE {where}", place)
            for row in rows:  # its start is column `at`, its stop the next one
                for low, high in ((row[at], start), (stop, row[at + 1])):
                    if low < high:
                        values = (*row[:at], low, high, *row[at + 2 :])
                        execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
        execute("DELETE FROM elements WHERE id = ? AND idx < ? AND idx >= ? AND state = 'done'", place)
        self.task(record)

    def touch(self, span: OpenSpan) -> None:
        """Note that a span's state changed."""
        self._dirty_spans.add(span.span)

    def put_attempt(self, row: AttemptRow) -> None:
        """Note that an attempt's row is new or changed."""
        key = (row.id, row.idx, row.attempt, row.span)
        self._dropped_attempts.discard(key)
        self.attempts[key] = row

    def drop_attempt(self, row: AttemptRow) -> None:
        """Delete an attempt that never started and does not count."""
        key = (row.id, row.idx, row.attempt, row.span)
        self.attempts.pop(key, None)
        self._dropped_attempts.add(key)

    def forget_run(self, run: int) -> None:
        """Drop all rows of a run from memory; what was gathered must be written before."""
        gone = {record for record, row in self._tasks.items() if abs(row.run) == run}
        gone |= {record for record in self.of_record if (row := self.task(record)) and abs(row.run) == run}
        for record in gone:
            for number in self.of_record.pop(record, ()):
                del self.open[number]
            self._arrays.pop(record, None)
            self._tasks.pop(record, None)
            self.replicas.pop(record, None)
        self._with_rare -= gone
        self._dirty.clear()

    # --- writing ---

    def begin(self) -> None:
        """Begin a transaction unless one is open."""
        if not self._database.in_transaction:
            self._database.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Write everything and the position, together."""
        self.save()
        self._database.execute("COMMIT")
        self._shrink()

    def save(self) -> None:
        """Write everything and the position into the open transaction."""
        self.write()
        self._database.execute(
            f"UPDATE position SET {COLUMNS.replace(',', ' = ?,')} = ?",
            astuple(self.marks),
        )

    def write(self) -> None:
        """Write what is gathered into the open transaction, so that queries see it."""
        self.begin()
        database = self._database
        for name, rows in self.gathered.items():
            if rows:
                database.executemany(GATHERED[name], rows)
                rows.clear()
        for record in self._dirty & self._arrays.keys():
            self._write_array(self._arrays[record])
        self._write_open_spans()
        self._write_tasks()
        if self._dropped_attempts:
            where = "id = ? AND idx = ? AND attempt = ? AND span = ?"
            database.executemany(f"DELETE FROM attempts WHERE {where}", list(self._dropped_attempts))
        self._many("attempts", list(self.attempts.values()))
        self._many("elements", list(self.element_rows.values()))
        self._many("spans", self.span_rows)
        for gathered in (
            self._dirty,
            self._new,
            self._dropped_attempts,
            self.attempts,
            self.element_rows,
            self.span_rows,
        ):
            gathered.clear()

    def _many(self, table: str, rows: Sequence[msgspec.Struct]) -> None:
        if rows:
            self._database.executemany(SAVE[table], map(astuple, rows))

    def _write_tasks(self) -> None:
        inserts, updates, saves = [], [], []
        for record in sorted(self._dirty):
            row = self._tasks[record]
            if record in self._with_rare or has_rare(row):
                self._with_rare.add(record)
                saves.append(row)
            elif record in self._new:
                inserts.append(common(row))
            else:
                updates.append(changing(row))
        self._database.executemany(INSERT_COMMON, inserts)
        self._database.executemany(UPDATE_COMMON, updates)
        self._many("tasks", saves)

    def _write_array(self, fold: FoldedArray) -> None:
        fold.update_row()
        for index in fold.dirty:
            row = fold.unsuccessful[index]
            row.state = LABELS[fold.states[index]]
            self.element_rows[row.id, index] = row
            if row.state == "done":
                del fold.unsuccessful[index]
        fold.dirty.clear()
        if fold.ranges_changed:
            self._database.execute(ERASE_RANGES, (fold.row.id,))
            self.span_rows += fold.ranges
            fold.ranges_changed = False

    def _write_open_spans(self) -> None:
        for number in self._dirty_spans:
            span = self.open.get(number)
            if span is None or span.row:
                continue
            if span.written:
                self._erase_span(span)
            span.written = True
            row = self._tasks.get(span.record) or self.task(span.record)
            if row is None:
                continue
            fold = self.array(row)
            for low, high in span.rest:
                for start, stop, state in fold.open_pieces(low, high):
                    self.span_rows.append(
                        SpanRow(
                            span.record,
                            start,
                            stop,
                            state,
                            span.attempt,
                            span.executor,
                            span.placed,
                            span.started,
                            span=number,
                        )
                    )
        self._dirty_spans.clear()

    def _erase_span(self, span: OpenSpan) -> None:
        self.begin()
        self._database.execute(ERASE_SPAN, (span.span,))

    def _shrink(self) -> None:
        """Drop rows from memory that will hardly change any more."""
        self._forget(record for record, fold in self._arrays.items() if fold.row.state in ENDED_LABELS)
        if len(self._tasks) > self._check_above:
            ended = [record for record, row in self._tasks.items() if row.state in ENDED_LABELS]
            for record in ended:
                del self._tasks[record]
            self._with_rare.difference_update(ended)
            self._check_above = max(ENDED_CACHED, 2 * len(self._tasks))  # so each new row costs one look at another
        if len(self._tasks) > MAX_CACHED:
            self._tasks = {record: fold.row for record, fold in self._arrays.items()}
            self._with_rare &= self._tasks.keys()

    def _forget(self, records: Iterable[int]) -> None:
        for record in list(records):
            del self._arrays[record]
            self.replicas.pop(record, None)
            self._tasks.pop(record, None)
            self._with_rare.discard(record)

    def _load_open(self) -> None:
        for values in self.rows(f"SELECT * FROM attempts WHERE {IS_OPEN}"):
            row = AttemptRow(*values)  # type: ignore[arg-type]
            rest = [(row.idx, row.idx + 1)]
            span = OpenSpan(row.span, row.id, row.attempt, row.executor or 0, row.placed, rest, row.started, row=row)
            self.place(span)
        for values in self.rows(f"SELECT * FROM spans WHERE {IS_OPEN} ORDER BY span, start"):
            piece = SpanRow(*values)  # type: ignore[arg-type]
            if piece.span not in self.open:
                known = OpenSpan(
                    piece.span, piece.id, piece.attempt, piece.executor or 0, piece.placed, [], written=True
                )
                self.place(known)
            known = self.open[piece.span]
            if known.rest and known.rest[-1][1] == piece.start:  # only their states differ
                known.rest[-1] = (known.rest[-1][0], piece.stop)
            else:
                known.rest.append((piece.start, piece.stop))
            known.started = known.started or piece.started
        self._dirty_spans.clear()
        self._find_replicas()

    def _find_replicas(self) -> None:
        """Know the elements of arrays that several executors have: replicas have rows among the attempts."""
        for span in self.open.values():
            if span.row is not None and any(not self.open[other].row for other in self.of_record[span.record]):
                self.replicas.setdefault(span.record, set()).add(span.row.idx)
