"""Folds facts about runs, their groups and executors.

A session has one run at a time, whose root group is 0. A service's own run has the executors; each workflow in it is
a run whose tasks lie in one group and below. Rule: rows of a workflow's groups have paths relative to that group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from bough.model.events import facts as f
from bough.model.events.news import GroupClosed
from bough.model.ids import ROOT
from bough.model.outcomes import Cause, Failure
from bough.model.sites.queue_specs import QueueSpec
from bough.model.states import ENDED, labels_of
from bough.model.tasks import GroupSpec, On
from bough.stores.jobs.fold_tasks import ArrayRangeFold, TaskFold
from bough.stores.jobs.rows import shown
from bough.stores.jobs.tables import JobsTables, replace

ON: Final = {On.TASK: "task", On.ARRAY: "array", On.GROUP: "group", On.END: "end"}

_RUN: Final = replace(
    "runs",
    "run",
    "name, host, pid, opened, closed, reason, policy, turn, grp, directory, owner, complete, reuse, script, base",
)
_GROUP: Final = replace("groups", "id, run", "parent, name, path, closed")
_ENABLED: Final = """
WITH RECURSIVE inside(id) AS (
  SELECT CAST(? AS BIGINT) UNION SELECT groups.id FROM groups JOIN inside ON groups.parent = inside.id
  WHERE groups.run = ? AND groups.id != 0)
UPDATE groups SET disabled = 0 WHERE run = ? AND disabled = 1 AND id IN (SELECT id FROM inside)"""
_EXECUTOR: Final = replace(
    "executors", "id", 'run, site, host, pid, cores, memory, gpus, joined, "left", reason, resources, attributes'
)  # fmt: skip
_UNFINISHED: Final = f"SELECT id FROM tasks WHERE run = ? AND state NOT IN {labels_of(ENDED)}"
_SWEEP: Final = """
INSERT INTO sweeps VALUES (?, ?, ?) ON CONFLICT (first) DO UPDATE SET removed = excluded.removed,
last = CASE WHEN excluded.last > sweeps.last THEN excluded.last ELSE sweeps.last END"""
_IN_GROUP: Final = """
WITH RECURSIVE inside(id) AS (
  SELECT CAST(? AS BIGINT) UNION SELECT groups.id FROM groups JOIN inside ON groups.parent = inside.id
  WHERE groups.run = ? AND groups.id != 0)
SELECT id FROM tasks WHERE run = ? AND grp IN (SELECT id FROM inside) ORDER BY id"""

# tables that have rows of a run, by what says so; tasks last, since others are found through them
_BY_TASK: Final = {
    "elements": "id", "spans": "id", "attempts": "id", "files": "id", "after": "id", "memo": "record",
    "firings": "id", "series": "id", "staging": "id", "arrays": "record", "array_pages": "record",
}  # fmt: skip
_KNOWN: Final = 10_000  # groups whose run is remembered, and uses of blobs; what is forgotten is looked up again

_BY_RUN: Final = (
    "tasks",
    "groups",
    "group_after",
    "attributes",
    "declared",
    "runs",
    "borrowed",
    "lasting",
    "executors",
    "pilots",
)


class RunFold:
    """Facts about runs, groups and executors."""

    def __init__(
        self, tables: JobsTables, tasks_fold: TaskFold, spans: ArrayRangeFold, blob_used: Callable[[bytes], None]
    ) -> None:
        self._tables = tables
        self._tasks = tasks_fold
        self._ranges = spans
        self._blob_used = blob_used  # called with each blob that a run uses
        self._run_of: dict[int, int] = {}
        self._gated: dict[int, bool] = {}
        self._used: set[tuple[bytes, int]] = set()

    # --- which run ---

    def run_of(self, group: int) -> int:
        """The run whose group this is."""
        if group == ROOT:
            return self._tables.marks.run
        run = self._run_of.get(group)
        if run is None:
            if len(self._run_of) > _KNOWN:
                self._run_of.clear()
            found = self._tables.rows("SELECT max(run) FROM groups WHERE id = ?", (group,))[0][0]
            run = self._run_of[group] = self._tables.marks.run if found is None else int(str(found))
        return run

    def is_gated(self, group: int) -> bool:
        """Whether a group, or one above it, has dependencies: what is submitted there begins as waiting."""
        if group == ROOT:
            return False
        known = self._gated.get(group)
        if known is None:
            if len(self._gated) > _KNOWN:
                self._gated.clear()
            self._tables.write()
            found = self._tables.rows(
                "SELECT parent, EXISTS (SELECT 1 FROM group_after WHERE group_after.run = groups.run"
                " AND group_after.id = groups.id) FROM groups WHERE id = ? ORDER BY run DESC LIMIT 1",
                (group,),
            )
            above = found[0][0] if found else None
            known = bool(found and found[0][1]) or (above is not None and self.is_gated(int(str(above))))
            self._gated[group] = known
        return known

    def group_changed(self) -> None:
        """A group waits for other things than before."""
        self._gated.clear()

    def use(self, blob: bytes, run: int) -> None:
        """A task or an array of a workflow's run needs a blob."""
        if blob and (blob, run) not in self._used:
            if len(self._used) > _KNOWN:
                self._used.clear()
            self._used.add((blob, run))
            self._tables.gathered["blob_uses"].append((blob, run))
            self._blob_used(blob)

    def records_in(self, group: int) -> list[int]:
        """Everything in a group and below; the root of a service holds all workflows."""
        self._tables.write()
        run = self.run_of(group)
        if group == ROOT and self._tables.marks.service:
            found = self._tables.rows("SELECT id FROM tasks WHERE run >= ? ORDER BY id", (run,))
        else:
            found = self._tables.rows(_IN_GROUP, (group, run, run))
        return [int(str(values[0])) for values in found]

    # --- runs ---

    def opened(self, now: float, turn: int, fact: f.RunOpened) -> None:
        """A run began."""
        tables, marks = self._tables, self._tables.marks
        marks.last = max(marks.last, fact.run)
        if fact.group == ROOT:
            marks.run, marks.clean = fact.run, 0
            self._run_of.clear()
        else:
            marks.service, marks.group = 1, max(marks.group, fact.group)
            self._run_of[fact.group] = fact.run
        values = (
            fact.run, shown(fact.name), shown(fact.host), fact.pid, now, None, None, fact.policy, turn, fact.group,
            shown(fact.directory), shown(fact.user), None, int(fact.reuse), shown(fact.script), fact.base,
        )  # fmt: skip
        tables.execute(_RUN, values)
        tables.execute(_GROUP, (fact.group, fact.run, None, "", "", 0))

    def closed(self, now: float, fact: f.RunClosed) -> None:
        """A run ended, and with a service's own run all workflows in it."""
        tables, runs = self._tables, [fact.run]
        complete = int(fact.reason == "done" and not fact.unfinished)
        tables.execute("UPDATE runs SET complete = ? WHERE run = ?", (complete, fact.run))
        if fact.unfinished and tables.rows("SELECT 1 FROM runs WHERE run = ? AND closed IS NOT NULL", (fact.run,)):
            return  # it had ended well, and its script raised an error later
        if fact.run == tables.marks.run:
            tables.marks.clean = 1
            inside = "SELECT run FROM runs WHERE run > ? AND closed IS NULL ORDER BY run"
            runs += [int(str(values[0])) for values in tables.rows(inside, (fact.run,))]
        for run in runs:
            tables.execute("UPDATE runs SET closed = ?, reason = ? WHERE run = ?", (now, shown(fact.reason), run))
            gone = 'UPDATE executors SET "left" = ?, reason = ? WHERE run = ? AND "left" IS NULL'
            tables.execute(gone, (now, "the run ended", run))
            if fact.reason != "done":
                self._skip_unfinished(run, now, fact.reason)

    def _skip_unfinished(self, run: int, now: float, reason: str) -> None:
        tables = self._tables
        tables.write()
        failure = Failure(Cause.CLOSED, f"the run ended before it could run ({reason})")
        stopped = Failure(Cause.CLOSED, f"the run ended while it ran ({reason})")
        for (record,) in tables.rows(_UNFINISHED, (run,)):
            row = tables.task(record)  # type: ignore[arg-type]
            if row and row.is_array:
                self._ranges.stopped(row, now, stopped)
                self._ranges.skipped(row, now, 0, row.length, failure)
                row.is_open = 0
            elif row and row.state == "running":
                self._tasks.stop(row, now, "cancelled", stopped)
            elif row:
                self._tasks.skipped(row, now, failure)

    def revived(self, turn: int, run: int) -> None:
        """A retired run is in the core again: its old snapshot is useless."""
        self._tables.execute("DELETE FROM snapshots WHERE run = ? AND turn < ?", (run, turn))

    def removed(self, turn: int, run: int) -> None:
        """Delete all rows of a run; `sweeps` says where its facts are until `removal` has taken them out."""
        tables = self._tables
        found = tables.rows("SELECT turn, grp FROM runs WHERE run = ?", (run,))
        if not found:
            return
        end = turn
        if not found[0][1]:  # a session's runs follow each other
            after = tables.rows("SELECT min(turn) FROM runs WHERE turn > ?", (found[0][0],))[0][0]
            end = turn if after is None else min(turn, int(str(after)))
            tables.execute(_SWEEP, (turn, turn, turn))
        tables.write()
        tables.forget_run(run)
        kept = tables.rows("SELECT turn FROM snapshots WHERE run = ?", (run,))
        if kept:  # it was retired in the turn after that, and nothing was said of it between then and now
            tables.execute(_SWEEP, (turn, turn, turn))
        tables.execute(_SWEEP, (found[0][0], int(str(kept[0][0])) + 1 if kept else end, turn))
        for (lent,) in tables.rows("SELECT DISTINCT turn FROM borrowed WHERE run = ?", (run,)):
            tables.execute(_SWEEP, (lent, lent, turn))
        for table, column in _BY_TASK.items():
            inside = f"{column} IN (SELECT id FROM tasks WHERE run IN (?, ?))"
            tables.execute(f"DELETE FROM {table} WHERE {inside}", (run, -run))
        for table in _BY_RUN:
            tables.execute(f"DELETE FROM {table} WHERE run IN (?, ?)", (run, -run))  # also what had left it
        once = "INSERT INTO blob_uses SELECT blob, 0 FROM blob_uses WHERE run = ? ON CONFLICT DO NOTHING"
        tables.execute(once, (run,))
        tables.execute("DELETE FROM blob_uses WHERE run = ?", (run,))
        self._run_of = {group: other for group, other in self._run_of.items() if other != run}

    # --- groups ---

    def add_group(self, spec: GroupSpec) -> None:
        """A group was submitted."""
        tables = self._tables
        tables.marks.group = max(tables.marks.group, spec.id)
        run = self.run_of(spec.parent)
        self._run_of[spec.id] = run
        self._gated[spec.id] = bool(spec.after) or self.is_gated(spec.parent)
        above = tables.rows("SELECT path FROM groups WHERE run = ? AND id = ?", (run, spec.parent))
        name = shown(spec.name)
        path = f"{above[0][0]}/{name}" if above and above[0][0] else name
        tables.execute(_GROUP, (spec.id, run, spec.parent, name, path, 0))
        on = [(spec.id, run, ON[dep.on], dep.id, dep.index) for dep in spec.after]
        tables.gathered["group_after"] += on
        self.use(spec.watch, run)
        if spec.attributes:
            tables.gathered["attributes"] += [("group", spec.id, *map(shown, pair), run) for pair in spec.attributes]

    def group_closed(self, fact: GroupClosed) -> None:
        """Nothing more will be added to a group."""
        self.close_group(fact.group)

    def close_group(self, group: int) -> None:
        """Mark a group as closed."""
        run = self.run_of(group)
        self._tables.execute("UPDATE groups SET closed = 1 WHERE run = ? AND id = ?", (run, group))

    def group_held(self, group: int, *, disabled: bool) -> None:
        """A user disabled a group, or released it with all groups below it."""
        run = self.run_of(group)
        if disabled:
            self._tables.execute("UPDATE groups SET disabled = 1 WHERE run = ? AND id = ?", (run, group))
        else:
            self._tables.execute(_ENABLED, (group, run, run))

    def group_released(self, group: int, *, released: bool) -> None:
        """A task released those that wait for its group; or that task was reset."""
        run, value = self.run_of(group), int(released)
        self._tables.execute("UPDATE groups SET released = ? WHERE run = ? AND id = ?", (value, run, group))

    # --- executors ---

    def executor_joined(self, now: float, fact: f.ExecutorJoined) -> None:
        """An executor connected or reconnected."""
        marks = self._tables.marks
        marks.executor = max(marks.executor, fact.executor)
        has = fact.capacity
        values = (shown(fact.site), shown(fact.host), fact.pid, has.cores, has.memory, has.gpus, now, None, None)
        more = _as_json(has.named), _as_json(fact.attributes)
        self._tables.execute(_EXECUTOR, (fact.executor, marks.run, *values, *more))

    def executor_resized(self, fact: f.ExecutorResized) -> None:
        """There are more or fewer executors behind a relay."""
        has = fact.capacity
        sized = "UPDATE executors SET cores = ?, memory = ?, gpus = ? WHERE id = ?"
        self._tables.execute(sized, (has.cores, has.memory, has.gpus, fact.executor))

    def queue_changed(self, turn: int, now: float, queue: str, spec: QueueSpec | None) -> None:
        """A named queue has these limits from now on; None: it is removed."""
        limits = None if spec is None else msgspec.json.encode(spec).decode()
        self._tables.gathered["queues"].append((turn, queue, now, limits))

    def executor_lost(self, now: float, fact: f.ExecutorLost) -> None:
        """An executor was lost: the spans it had are given back."""
        gone = 'UPDATE executors SET "left" = ?, reason = ? WHERE id = ?'
        self._tables.execute(gone, (now, shown(fact.reason), fact.executor))
        for span in [span for span in self._tables.open.values() if span.executor == fact.executor]:
            row = self._tables.task(span.record)
            lost = fact.reason or "the executor was lost"
            if row and row.is_array:
                self._ranges.given_back(row, now, span, 0, row.length, lost=lost)
            elif row:
                self._tasks.given_back(row, now, span, lost=lost)


def _as_json(pairs: Sequence[tuple[str, object]]) -> str | None:
    """Values by name; None: there are none."""
    return shown(msgspec.json.encode(dict(pairs)).decode()) if pairs else None
