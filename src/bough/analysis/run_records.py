"""A run as the jobs database knows it, as a graph of tasks with their times, machines and files.

Elements of arrays are tasks of their own, and those without a row have the mean time of the span they ran in. The jobs
database knows which files were written; a task is said to read those of the tasks before it that its command names.
Rule: nothing is asked per task, so that a run of any size takes a handful of questions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from bough.describe.task_graph import (
    GraphNode,
    Ordering,
    QueueChange,
    RecordedTask,
    RunExecutor,
    RunMachine,
    TaskGraph,
    order,
)
from bough.errors import UnknownName, UserError
from bough.model.arrays.array_indices import task_label
from bough.model.ids import number_of
from bough.model.sites.queue_specs import QueueSpec
from bough.model.sites.requirements import Attributes
from bough.model.sites.resources import Needs, read_needs

_TASKS = """select tasks.id, grp, name, length, is_array, indices, state, command, submitted, started, ended, seconds,
    host, memory, cpu, cores, needs, priority, reused, releases from tasks where run = ? order by id"""
MOST_TASKS = 2_000_000  # each of them is an object here
_IN_RUN = "in (select id from tasks where run = ?)"
Fields = Mapping[str, Any]


class RunRows(Protocol):
    """What answers questions about a run: a jobs database."""

    def rows(self, statement: str, arguments: Sequence[Any] = (), /) -> Sequence[Mapping[str, Any]]:
        """Rows by column name."""


def read_record(database: RunRows, run: int, where: str = "the store") -> TaskGraph:
    """One run of a workflow."""
    found = database.rows("select name, opened, closed, policy from runs where run = ?", [run])
    if not found:
        raise UnknownName(f"{where} has no run {run}")
    record = TaskGraph(str(found[0]["name"] or "workflow"))
    record.opened, record.closed = _time(found[0]["opened"]), _time(found[0]["closed"])
    record.policy = str(found[0]["policy"] or "")
    return _RunReader(database, run, record).read()


def _time(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


class _RunReader:
    def __init__(self, database: RunRows, run: int, record: TaskGraph) -> None:
        self.database = database
        self.run = run
        self.record = record
        roots = database.rows("select id from groups where run = ? and path = ''", [run])
        self.root = int(roots[0]["id"] or 0) if roots else 0
        self.paths: dict[int, str] = {}
        self.numbers: dict[int, int] = {}  # by record: that of its first task
        self.arrays: set[int] = set()
        self.tasks: dict[int, RecordedTask] = {}
        self.ordering = Ordering()
        self.hosts: dict[int, str] = {}  # by executor
        self.used: set[int] = set()  # executors that ran something
        self.needs: dict[tuple[str, float], Needs] = {}

    def read(self) -> TaskGraph:
        machines = self._executors()
        rows = self._ask(_TASKS)
        at = 1
        for row in rows:
            self.numbers[row["id"]] = at
            at += (row["length"] or 0) if row["is_array"] else 1
            if row["is_array"]:
                self.arrays.add(row["id"])
        if at > MOST_TASKS:
            raise UserError(f"run {self.run} has {at - 1} tasks; a file is written of at most {MOST_TASKS}")
        waits, element_waits = self._after()
        self._groups()
        for row in rows:
            self._record(row, waits)
        for number, some in element_waits.items():
            self.ordering.add_waits(number, some)
        self._spans()
        self._elements()
        self._attempts()
        order(self.record, self.ordering, self.tasks)
        self._files()
        self._staging()
        self._queues()
        used = dict.fromkeys(task.host for task in self.record.tasks if task.host)
        self.record.machines = [machines.get(host) or RunMachine(host) for host in used]
        self.record.executors = [one for one in self.record.executors if one.id in self.used]
        return self.record

    def _ask(self, question: str) -> Sequence[Fields]:
        return self.database.rows(question, [self.run])

    def _executors(self) -> dict[str, RunMachine]:
        """All hosts that the database knows: executors of a service belong to no single run."""
        machines: dict[str, RunMachine] = {}
        for one in self.database.rows(
            """select id, site, host, cores, memory, gpus, joined, "left", resources, attributes
            from executors order by id"""
        ):
            row: Fields = one
            host = str(row["host"] or "")
            self.record.executors.append(
                RunExecutor(
                    row["id"],
                    str(row["site"] or ""),
                    host,
                    Needs(
                        float(row["cores"] or 0),
                        int(row["memory"] or 0),
                        float(row["gpus"] or 0),
                        tuple(sorted(_by_name(row["resources"]).items())),
                    ),
                    float(row["joined"] or 0.0),
                    row["left"],
                    msgspec.convert(list(_by_name(row["attributes"]).items()), Attributes),
                )
            )
            self.hosts[row["id"]] = host
            known = machines.setdefault(host, RunMachine(host))
            known.cores = max(known.cores, int(row["cores"] or 0))
            known.memory = max(known.memory, int(row["memory"] or 0))
        return machines

    # --- what waits for what ----------------------------------------------------------------------------

    def _node(self, row: Fields) -> GraphNode | None:
        kind, target = row["on_kind"], row["on_id"]
        if kind in {"group", "end"}:
            return GraphNode("end" if kind == "group" else "whole", self._group(target))
        if target not in self.numbers:
            return None  # a task of another run
        if kind == "array":
            return GraphNode("end", -target)
        return GraphNode("task", self.numbers[target] + (row["on_idx"] or 0))

    def _group(self, group: int) -> int:
        return 0 if group == self.root else group

    def _groups(self) -> None:
        waits: dict[int, list[GraphNode]] = defaultdict(list)
        for one in self._ask("select id, on_kind, on_id, on_idx from group_after where run = ?"):
            node = self._node(one)
            if node is not None:
                waits[one["id"]].append(node)
        for one in self._ask("select id, parent, path from groups where run = ? order by id"):
            self.paths[one["id"]] = str(one["path"] or "")
            if one["id"] != self.root:
                self.ordering.add_group(one["id"], self._group(one["parent"] or 0), waits[one["id"]])

    def _after(self) -> tuple[dict[int, list[GraphNode]], dict[int, list[GraphNode]]]:
        """By record what all of it waits for, and by task what single elements wait for."""
        waits: dict[int, list[GraphNode]] = defaultdict(list)
        single: dict[int, list[GraphNode]] = defaultdict(list)
        question = f"select id, on_kind, on_id, on_idx, idx from after where id {_IN_RUN}"
        for one in self._ask(question):
            node = self._node(one)
            if node is None:
                continue
            if one["idx"] is not None and one["idx"] >= 0 and one["id"] in self.arrays:
                single[self.numbers[one["id"]] + one["idx"]].append(node)
            else:
                waits[one["id"]].append(node)
        return waits, single

    # --- tasks ------------------------------------------------------------------------------------------

    def _record(self, row: Fields, waits: dict[int, list[GraphNode]]) -> None:
        record, group = row["id"], self._group(row["grp"] or 0)
        path = self.paths.get(row["grp"] or 0, "")
        if not row["is_array"]:
            task = self._task(row, f"{number_of(record)}", path)
            task.seconds, task.started = _seconds(row), row["started"]
            task.host, task.memory, task.cpu = row["host"] or "", row["memory"], row["cpu"]
            self.tasks[self.numbers[record]] = task
            self.ordering.add_task(self.numbers[record], group, waits[record], release=bool(row["releases"]))
            return
        self.ordering.add_group(-record, group, waits[record])
        for index in range(row["length"] or 0):
            self.tasks[self.numbers[record] + index] = self._task(
                row, task_label(record, index, row["indices"] or ""), path
            )
            self.ordering.add_task(self.numbers[record] + index, -record)

    def _task(self, row: Fields, name: str, path: str) -> RecordedTask:
        return RecordedTask(
            name,
            row["name"] or name,
            row["command"] or "",
            group=path,
            state=row["state"] or "",
            needs=self._needs(row["needs"], row["cores"] or 1),
            priority=row["priority"] or 0,
            seconds=0.0,
            submitted=row["submitted"],
        )

    def _needs(self, text: str | None, cores: float) -> Needs:
        """One object for tasks that need the same."""
        key = text or "", cores
        found = self.needs.get(key)
        if found is None:
            found = self.needs[key] = read_needs(text, cores)
        return found

    def _queues(self) -> None:
        """What limits the queues had that tasks of the run name."""
        named = {task.needs.queue for task in self.record.tasks if task.needs.queue}
        if named:
            for one in self.database.rows("select queue, time, limits from queues order by turn"):
                if one["queue"] in named:
                    limits = msgspec.json.decode(one["limits"], type=QueueSpec) if one["limits"] else None
                    self.record.queues.append(QueueChange(one["time"], one["queue"], limits))

    def _spans(self) -> None:
        question = f"select id, start, stop, state, executor, started, seconds from spans where id {_IN_RUN}"
        for one in self._ask(question):
            self.used.add(one["executor"] or 0)
            if one["state"] == "lost":
                continue
            count = max(one["stop"] - one["start"], 1)
            each = (one["seconds"] or 0) / count
            for index in range(one["start"], one["stop"]):
                task = self.tasks.get(self.numbers[one["id"]] + index)
                if task is not None:
                    task.state, task.seconds = one["state"], each
                    task.host = self.hosts.get(one["executor"], "")
                    task.started = one["started"] + each * (index - one["start"]) if one["started"] else None

    def _elements(self) -> None:
        question = f"""select id, idx, state, host, started, ended, seconds, memory, cpu, reused
            from elements where id {_IN_RUN}"""
        for one in self._ask(question):
            task = self.tasks.get(self.numbers[one["id"]] + one["idx"])
            if task is not None:
                task.state, task.seconds = one["state"], _seconds(one)
                task.started, task.host = one["started"], one["host"] or task.host
                task.memory, task.cpu = one["memory"], one["cpu"]

    def _attempts(self) -> None:
        """Which executors ran something, and what tries took that did not count."""
        question = f"select id, idx, executor, state, started, ended from attempts where id {_IN_RUN}"
        for one in self._ask(question):
            self.used.add(one["executor"] or 0)
            task = self.tasks.get(self.numbers[one["id"]] + (one["idx"] or 0))
            if task is None or task.state != "done" or one["state"] not in {"failed", "lost"}:
                continue
            if one["started"] and one["ended"]:
                task.tried += max(0.0, one["ended"] - one["started"])

    def _staging(self) -> None:
        question = f"select id, idx, stage_in, stage_out from staging where id {_IN_RUN}"
        for one in self._ask(question):
            task = self.tasks.get(self.numbers[one["id"]] + (one["idx"] or 0))
            if task is not None:
                task.staged = (one["stage_in"] or 0.0) + (one["stage_out"] or 0.0)

    def _files(self) -> None:
        by_id = {task.id: task for task in self.record.tasks}
        for one in self._ask(f"select id, idx, path, size from files where id {_IN_RUN}"):
            task = self.tasks.get(self.numbers[one["id"]] + (one["idx"] or 0))
            if task is not None:
                task.outputs[str(one["path"])] = int(one["size"] or 0)
        for task in self.record.tasks:
            for before in task.before:
                for path, size in by_id[before].outputs.items():
                    if path in task.command or path.rpartition("/")[2] in task.command:
                        task.inputs[path] = size


def _by_name(text: str | None) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}


def _seconds(row: Fields) -> float:
    if row["reused"]:
        return 0.0  # it took its time in another run
    if row["seconds"] is not None:
        return float(row["seconds"])
    if row["started"] and row["ended"]:
        return float(row["ended"] - row["started"])
    return 0.0
