"""Folds journalled facts into the jobs database and the memos, turn by turn.

`JobsFold` knows which handler takes which fact; the work on rows is done in `fold_tasks`, `fold_runs` and, for changed
workflow descriptions, in `AmendmentFold` below.
Rule: the tables depend on the facts only, never on how many turns were folded at once, nor on the process that folded
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from bough.model.commands.command import array_text, task_text
from bough.model.events import facts as f
from bough.model.events.facts import Amended
from bough.model.events.news import GroupClosed, PagesAdded
from bough.model.outcomes import Cause, Failure, ResultFile
from bough.model.sites.resources import needs_text
from bough.model.tasks import ArraySpec, Dep, GroupSpec, Item, Kind, On, TaskSpec
from bough.stores.database import Database
from bough.stores.jobs.fold_observations import ObservationFold
from bough.stores.jobs.fold_pilots import PilotFold
from bough.stores.jobs.fold_runs import ON, RunFold
from bough.stores.jobs.fold_tasks import ArrayRangeFold, TaskFold, enter, first_state
from bough.stores.jobs.rows import ENDED_LABELS, PENDING_LABELS, TaskRow, shown
from bough.stores.jobs.tables import Blob, JobsTables, Success

_WITHDRAWN: Final = Failure(Cause.CANCELLED, "the workflow's description no longer has it")


KINDS: Final = {Kind.FUNCTION: "function", Kind.COMMAND: "command"}
HEAVY: Final = 50_000  # gathered rows after which they are written

Targeted = f.Cancelled | f.Killed | f.Held | f.Released | f.Retried


class JobsFold:
    """Takes the facts of turn after turn, and writes the tables when it is told to commit."""

    def __init__(
        self, database: Database, blob: Blob, success: Success, blob_used: Callable[[bytes], None] = lambda _: None
    ) -> None:
        self._tables = JobsTables(database, blob, success)
        self._tasks = TaskFold(self._tables)
        self._ranges = ArrayRangeFold(self._tables)
        self._runs = RunFold(self._tables, self._tasks, self._ranges, blob_used)
        self._amendments = AmendmentFold(self._tables, self._tasks, self._runs)
        self._observations = ObservationFold(self._tables)
        self._pilots = PilotFold(self._tables)
        self._now = 0.0
        self._turn = 0
        self._handlers: dict[type, Callable[..., None]] = {
            f.RunOpened: self._on_run_opened,
            f.RunClosed: self._on_run_closed,
            f.RunRemoved: self._on_run_removed,
            f.RunRevived: self._on_run_revived,
            f.Submitted: self._on_submitted,
            PagesAdded: self._on_pages_added,
            GroupClosed: self._runs.group_closed,
            f.ExecutorJoined: self._on_executor_joined,
            f.ExecutorResized: self._on_executor_resized,
            f.ExecutorLost: self._on_executor_lost,
            f.PilotAsked: lambda fact: self._pilots.asked(self._now, fact),
            f.PilotQueued: lambda fact: self._pilots.queued(self._now, fact),
            f.PilotReleased: self._pilots.released,
            f.PilotEnded: lambda fact: self._pilots.ended(self._now, fact),
            f.QueueDefined: lambda fact: self._runs.queue_changed(self._turn, self._now, fact.queue, fact.spec),
            f.QueueRemoved: lambda fact: self._runs.queue_changed(self._turn, self._now, fact.queue, None),
            f.Placed: self._on_placed,
            f.Replicated: self._on_replicated,
            f.SpanStarted: self._on_span_started,
            f.SpanEnded: self._on_span_ended,
            f.ElementFailed: self._on_element_failed,
            f.SpanReturned: self._on_span_returned,
            f.OutputKept: self._on_output_kept,
            f.Observed: self._on_observed,
            f.MonitorsAdded: self._on_monitors_added,
            f.RetryDue: self._on_retry_due,
            f.Freed: self._on_freed,
            f.MemoLookedUp: self._on_memo_looked_up,
            f.Skipped: self._on_skipped,
            f.Cancelled: self._on_targeted,
            f.Killed: self._on_targeted,
            f.Held: self._on_targeted,
            f.Released: self._on_targeted,
            f.Retried: self._on_targeted,
            f.WasReset: self._on_reset,
            f.MadeAgain: self._on_made_again,
            f.Amended: self._on_amended,
            f.GroupReleased: self._on_group_released,
            f.Prioritised: self._on_prioritised,
        }  # executors drained, suspended and resumed, runs retired, Stopping, and ends that are asked for change no row

    @property
    def position(self) -> int:
        """The last turn that was folded."""
        return self._tables.marks.turn

    @property
    def heavy(self) -> bool:
        """Whether it is time to commit."""
        return self._tables.weight >= HEAVY

    def fold(self, turn: int, now: float, facts: Sequence[f.Fact]) -> None:
        """Take the facts of the next turn."""
        self._turn, self._now = turn, now
        for fact in facts:
            handle = self._handlers.get(type(fact))
            if handle:
                handle(fact)
        self._tables.marks.turn = turn

    def commit(self) -> None:
        """Write what was folded."""
        self._tables.commit()

    def fold_one(self, turn: int, now: float, fact: f.Fact) -> None:
        """Take one fact of the next turn and write what follows from it into the open transaction."""
        before = self._tables.marks.turn
        self.fold(turn, now, (fact,))
        self._tables.marks.turn = before
        self._tables.save()

    def reserve(self, numbers: Mapping[str, int]) -> None:
        """Reserve ids that a fact gave which is not folded."""
        self._tables.reserve(numbers)

    # --- runs, executors and submissions ---

    def _on_run_opened(self, fact: f.RunOpened) -> None:
        self._runs.opened(self._now, self._turn, fact)

    def _on_run_closed(self, fact: f.RunClosed) -> None:
        self._runs.closed(self._now, fact)

    def _on_run_removed(self, fact: f.RunRemoved) -> None:
        self._runs.removed(self._turn, fact.run)

    def _on_run_revived(self, fact: f.RunRevived) -> None:
        self._runs.revived(self._turn, fact.run)

    def _on_executor_joined(self, fact: f.ExecutorJoined) -> None:
        self._runs.executor_joined(self._now, fact)
        if fact.pilot:
            self._pilots.started(self._now, fact)

    def _on_executor_resized(self, fact: f.ExecutorResized) -> None:
        self._runs.executor_resized(fact)

    def _on_executor_lost(self, fact: f.ExecutorLost) -> None:
        self._runs.executor_lost(self._now, fact)

    def _on_submitted(self, fact: f.Submitted) -> None:
        for file in fact.files:
            if file.written:
                run = self._runs.run_of(file.group)
                shared = 0 if run == self._tables.marks.run else run
                self._tables.gathered["declared"].append((shown(file.path), shared))
        self._add(fact.items)

    def _add(self, items: Sequence[Item]) -> None:
        marks = self._tables.marks
        for item in items:
            if type(item) is TaskSpec:
                self._add_task(item)
                marks.record = max(marks.record, item.id)
            elif type(item) is ArraySpec:
                self._add_array(item)
                marks.record = max(marks.record, item.id)
            elif type(item) is GroupSpec:
                self._runs.add_group(item)

    def _add_task(self, spec: TaskSpec) -> None:
        waits = int(bool(spec.after) or self._runs.is_gated(spec.group))
        run = self._runs.run_of(spec.group)
        self._tables.add(
            TaskRow(
                spec.id,
                run,
                spec.group,
                shown(spec.name),
                KINDS[spec.kind],
                1,
                0,
                first_state(waits),
                0,
                shown(task_text(spec)),
                self._now,
                priority=spec.priority,
                cores=spec.needs.cores,
                waits=waits,
                releases=int(spec.extras.release),
                needs=needs_text(spec.needs),
            )
        )
        if spec.after:
            self._add_after(spec.id, -1, spec.after)
        if spec.extras.attributes:
            self._add_attributes(spec, run)
        if spec.always:
            self._tables.gathered["lasting"].append((run, spec.id, 0))
        shared = 0 if run == self._tables.marks.run else run  # a session's paths are those of all its runs
        self._runs.use(spec.body, run)
        self._runs.use(spec.extras.watch, run)
        if spec.writes:  # paths are of an earlier version, or of a changed description
            paths = [ref for ref in spec.writes if isinstance(ref, str)]
            self._tables.gathered["declared"] += [(shown(path), shared) for path in paths]

    def _add_array(self, spec: ArraySpec) -> None:
        tables = self._tables
        waits = int(bool(spec.after or spec.element_after) or self._runs.is_gated(spec.group))
        run = self._runs.run_of(spec.group)
        length = max(spec.length, max((page.stop for page in spec.pages), default=0))
        tables.add(
            TaskRow(
                spec.id,
                run,
                spec.group,
                shown(spec.name),
                KINDS[spec.kind],
                length,
                1,
                "waiting",
                0,
                shown(array_text(spec, tables.blob)),
                self._now,
                priority=spec.priority,
                cores=spec.needs.cores,
                is_open=int(spec.open),
                waits=waits,
                releases=int(spec.extras.release),
                indices=spec.indices,
                needs=needs_text(spec.needs),
                ended=None if length else self._now,
            )
        )
        self._add_after(spec.id, -1, spec.after)
        for index, after in spec.element_after:
            self._add_after(spec.id, index, after)
        self._add_attributes(spec, run)
        if spec.always:
            tables.gathered["lasting"].append((run, spec.id, 1))
        self._runs.use(spec.body, run)
        self._runs.use(spec.table, run)
        self._runs.use(spec.extras.watch, run)
        if spec.key:
            tables.gathered["arrays"].append((spec.id, run, spec.key, length, spec.table))
            if spec.pages:
                tables.gathered["array_pages"].append((spec.id, self._turn))

    def _add_after(self, record: int, index: int, after: Sequence[Dep]) -> None:
        self._tables.gathered["after"] += [(record, ON[dep.on], dep.id, dep.index, index) for dep in after]

    def _add_attributes(self, spec: TaskSpec | ArraySpec, run: int) -> None:
        own = spec.extras.attributes
        self._tables.gathered["attributes"] += [("task", spec.id, *map(shown, pair), run) for pair in own]

    def _on_pages_added(self, fact: PagesAdded) -> None:
        row = self._tables.task(fact.record)
        if row is None:
            return
        self._ranges.grown(row, self._now, fact)
        self._tables.gathered["lengths"].append((row.length, row.id))
        if fact.pages:
            self._tables.gathered["array_pages"].append((fact.record, self._turn))

    # --- spans ---

    def _on_placed(self, fact: f.Placed) -> None:
        marks = self._tables.marks
        marks.span = max(marks.span, fact.span)
        row = self._tables.task(fact.record)
        if row is None:
            return
        if row.is_array:
            self._ranges.placed(row, self._now, fact)
        else:
            self._tasks.placed(row, self._now, fact)

    def _on_replicated(self, fact: f.Replicated) -> None:
        marks = self._tables.marks
        marks.span = max(marks.span, fact.span)
        row = self._tables.task(fact.record)
        if row is not None:
            (self._ranges if row.is_array else self._tasks).replicated(row, self._now, fact)

    def _on_span_started(self, fact: f.SpanStarted) -> None:
        span = self._tables.open.get(fact.span)
        row = self._tables.task(fact.record or (span.record if span else 0))
        if row is None:
            return
        if row.is_array:
            self._ranges.started(row, self._now, span, fact.start, fact.stop)
        else:
            self._tasks.started(row, self._now, span)

    def _on_span_ended(self, fact: f.SpanEnded) -> None:
        row = self._tables.task(fact.record)
        if row is None:
            return
        if row.is_array:
            self._ranges.ended(row, self._now, self._turn, fact)
        else:
            self._tasks.ended(row, self._now, self._turn, fact)
        if fact.key:
            checked = isinstance(fact.results, ResultFile) or any(detail.outputs for detail in fact.details)
            attempt = fact.same_as or fact.attempt
            memo = (fact.key, row.id, fact.start, fact.stop, attempt, self._turn, row.run, int(checked))
            self._tables.gathered["memo"].append(memo)

    def _on_element_failed(self, fact: f.ElementFailed) -> None:
        row = self._tables.task(fact.record)
        if row is None:
            return
        if row.is_array:
            self._ranges.failed(row, self._now, self._turn, fact)
        else:
            self._tasks.failed(row, self._now, self._turn, fact)

    def _on_span_returned(self, fact: f.SpanReturned) -> None:
        span = self._tables.open.get(fact.span)
        row = self._tables.task(span.record) if span else None
        if span is None or row is None:
            return
        if row.is_array:
            self._ranges.given_back(row, self._now, span, fact.start, fact.stop, lost=None)
        else:
            self._tasks.given_back(row, self._now, span, lost=None)

    def _on_output_kept(self, fact: f.OutputKept) -> None:
        row = self._tables.task(fact.record)
        if row is None:
            return
        self._tables.put_staging(row.id, fact.index, fact.attempt, fact.detail)
        if row.is_array:
            self._ranges.output_kept(row, fact)
        else:
            self._tasks.output_kept(row, fact)

    def _on_observed(self, fact: f.Observed) -> None:
        if self._tables.task(fact.record) is not None:
            self._observations.observed(self._turn, fact)

    def _on_monitors_added(self, fact: f.MonitorsAdded) -> None:
        target = fact.target
        row = None if target.is_group else self._tables.task(target.id)
        if target.is_group or row is not None:
            self._runs.use(fact.plan, row.run if row is not None else self._runs.run_of(target.id))

    def _on_retry_due(self, fact: f.RetryDue) -> None:
        row = self._tables.task(fact.record)
        if row and row.is_array:
            self._ranges.freed(row, fact.index, fact.index + 1)
        elif row:
            self._tasks.freed(row)

    def _on_freed(self, fact: f.Freed) -> None:
        for first, last in fact.tasks:
            for record in range(first, last + 1):
                if (row := self._tables.task(record)) is not None:
                    self._tasks.freed(row)
        for record, start, stop in fact.parts:
            if (row := self._tables.task(record)) is not None:
                self._ranges.freed(row, start, stop)

    def _on_memo_looked_up(self, fact: f.MemoLookedUp) -> None:
        row = self._tables.task(fact.record)
        if row and row.is_array:
            self._ranges.memo_found(row, self._now, fact)
        elif row:
            self._tasks.memo_found(row, self._now, fact)
        if row and fact.found:
            self._tables.gathered["borrowed"].append((fact.turn, fact.source, row.run))

    def _on_skipped(self, fact: f.Skipped) -> None:
        row = self._tables.task(fact.record)
        if row and row.is_array:
            self._ranges.skipped(row, self._now, fact.start, fact.stop, fact.failure)
        elif row:
            self._tasks.skipped(row, self._now, fact.failure)

    # --- actions of users on tasks, arrays and groups ---

    def _on_targeted(self, fact: Targeted) -> None:
        if fact.target.is_group and (isinstance(fact, f.Released) or (isinstance(fact, f.Held) and fact.disabled)):
            self._runs.group_held(fact.target.id, disabled=isinstance(fact, f.Held))
        for row in self._targets(fact.target):
            if not row.is_array:
                self._act_on_task(fact, row)
                continue
            start, stop = 0, row.length
            if not fact.target.is_group and fact.stop:
                start, stop = fact.target.index, min(fact.stop, row.length)
            elif fact.target.on is On.TASK:
                start, stop = fact.target.index, fact.target.index + 1
            self._act_on_range(fact, row, start, stop)

    def _act_on_task(self, fact: Targeted, row: TaskRow) -> None:
        match fact:
            case f.Cancelled():
                self._tasks.cancelled(row, self._now)
            case f.Killed():
                self._tasks.killed(row, self._now)
            case f.Held():
                self._tasks.held(row)
            case f.Released():
                self._tasks.released(row)
            case f.Retried():
                self._tasks.retried(row)

    def _act_on_range(self, fact: Targeted, row: TaskRow, start: int, stop: int) -> None:
        match fact:
            case f.Cancelled():
                self._ranges.cancelled(row, self._now, start, stop)
            case f.Killed():
                self._ranges.killed(row, self._now, self._turn, start, stop)
            case f.Held():
                self._ranges.held(row, self._now, start, stop)
            case f.Released():
                self._ranges.released(row, start, stop)
            case f.Retried():
                self._ranges.retried(row, start, stop)

    def _on_amended(self, fact: f.Amended) -> None:
        self._amendments.remove(self._now, fact)
        self._amendments.change(fact)
        self._on_reset(fact)
        self._add(fact.added)
        self._amendments.close(fact)

    def _on_reset(self, fact: f.WasReset | f.Amended) -> None:
        for record, start, stop in fact.parts:
            row = self._tables.task(record)
            if row and row.is_array:
                self._ranges.reset(row, self._now, start, stop)
            elif row:
                self._tasks.reset(row, self._now)
        for group in {row.grp for record, _, _ in fact.parts if (row := self._tables.task(record))}:
            self._runs.group_released(group, released=False)

    def _on_made_again(self, fact: f.MadeAgain) -> None:
        row = self._tables.task(fact.record)
        if row and row.is_array:
            self._ranges.reset(row, self._now, fact.index, fact.index + 1)
        elif row:
            self._tasks.reset(row, self._now)

    def _on_group_released(self, fact: f.GroupReleased) -> None:
        self._runs.group_released(fact.group, released=True)

    def _on_prioritised(self, fact: f.Prioritised) -> None:
        for row in self._targets(fact.target):
            row.priority = fact.priority

    def _targets(self, target: Dep) -> Iterator[TaskRow]:
        records = [target.id]
        if target.is_group:
            records = self._runs.records_in(target.id)
        for record in records:
            row = self._tables.task(record)
            if row:
                yield row


class AmendmentFold:
    """Facts about a changed workflow description.

    A task or group that the description no longer has leaves its run: its rows have the run's number negated, so that
    no name finds them and nothing counts them. It can still be found by its id, until the run is removed.
    """

    def __init__(self, tables: JobsTables, tasks: TaskFold, runs: RunFold) -> None:
        self._tables = tables
        self._tasks = tasks
        self._runs = runs

    def remove(self, now: float, fact: Amended) -> None:
        """Removed tasks are ended, and leave their run with the removed groups."""
        self._tables.write()  # so that there are rows to change
        for record in fact.removed:
            row = self._tables.task(record)
            if row is not None:
                if row.state not in ENDED_LABELS:
                    self._tasks.stop(row, now, "cancelled", _WITHDRAWN)
                row.run = -fact.run
                self._move("tasks", fact.run, record)
                self._move("attributes", fact.run, record, "kind = 'task' AND ")
        for group in fact.removed_groups:
            self._move("groups", fact.run, group)
            self._move("group_after", fact.run, group)
            self._move("attributes", fact.run, group, "kind = 'group' AND ")

    def _move(self, table: str, run: int, number: int, which: str = "") -> None:
        self._tables.execute(f"UPDATE {table} SET run = ? WHERE {which}run = ? AND id = ?", (-run, run, number))

    def change(self, fact: Amended) -> None:
        """Write changed descriptions; the fact's `parts` say what runs again."""
        for item in fact.changed:
            if isinstance(item, GroupSpec):
                self._tables.execute("DELETE FROM group_after WHERE run = ? AND id = ?", (fact.run, item.id))
                on = [(item.id, fact.run, ON[dep.on], dep.id, dep.index) for dep in item.after]
                self._tables.gathered["group_after"] += on
                self._runs.group_changed()
                self._put_attributes(fact.run, "group", item.id, item.attributes)
            elif isinstance(item, TaskSpec) and (row := self._tables.task(item.id)) is not None:
                self._change_task(row, item)
                self._put_attributes(fact.run, "task", item.id, item.extras.attributes)

    def _put_attributes(self, run: int, kind: str, number: int, own: Sequence[tuple[str, str]]) -> None:
        self._tables.execute("DELETE FROM attributes WHERE run = ? AND kind = ? AND id = ?", (run, kind, number))
        self._tables.gathered["attributes"] += [(kind, number, *map(shown, pair), run) for pair in own]

    def _change_task(self, row: TaskRow, spec: TaskSpec) -> None:
        tables = self._tables
        row.command, row.cores, row.priority = shown(task_text(spec)), spec.needs.cores, spec.priority
        row.waits = int(bool(spec.after) or self._runs.is_gated(spec.group))
        row.releases = int(spec.extras.release)
        row.needs = needs_text(spec.needs)
        own = (row.command, row.cores, row.waits, row.releases, row.needs, row.id)
        changed = "UPDATE tasks SET command = ?, cores = ?, waits = ?, releases = ?, needs = ? WHERE id = ?"
        tables.execute(changed, own)
        tables.execute("DELETE FROM after WHERE id = ?", (row.id,))
        tables.gathered["after"] += [(row.id, ON[dep.on], dep.id, dep.index, -1) for dep in spec.after]
        if row.state in PENDING_LABELS and row.state != "held" and not tables.is_out(row.id):
            enter(row, first_state(row.waits))

    def close(self, fact: Amended) -> None:
        """New groups are closed."""
        for item in fact.added:
            if isinstance(item, GroupSpec):
                self._runs.close_group(item.id)
