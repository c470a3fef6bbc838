"""The analysis of one run: what it took, the least it could have taken, what held it up, how much ran at once.

Rows of a jobs database become the graph of a run, and what ran where and when. A group's end comes after all in it; its
release after a task that releases it or, without one, after its own tasks and the releases of its subgroups. Elements
of an array take the mean time of their span, unless they have a row of their own. What was reused took no time in this
run, and what has not run takes none.

In the minimal schedule every task starts the moment that what it depends on is there, on any number of processors: the
longest path through the graph with the measured times (TrellisDAG 3.6). Nodes that are no tasks (gates, ends and
releases of groups, whole arrays) take no time. The lower bound is the larger of the minimal schedule and the work
divided by the cores that were used.
Rule: pure, and without recursion, because chains may be long.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from bough.model.arrays.array_indices import range_label, task_label
from bough.model.ids import number_of
from bough.sim.schedule import Concurrency, concurrency

Key = tuple[str, int, int]  # kind, number of a record or group, element


class RunNode(msgspec.Struct):
    """Something that is reached after others are."""

    seconds: float = 0.0
    before: list[Key] = []
    first: bool = False  # reached with the first of those before it, not with the last


class Schedule(msgspec.Struct):
    """When each node is reached at the earliest, and what it waited for last."""

    finish: dict[Key, float]
    waited: dict[Key, Key]

    @property
    def makespan(self) -> float:
        """When the last one is reached."""
        return max(self.finish.values(), default=0.0)

    def path(self) -> list[Key]:
        """The nodes of a longest path, in the order of time."""
        if not self.finish:
            return []
        at: Key | None = max(self.finish, key=lambda key: self.finish[key])
        found: list[Key] = []
        while at is not None:
            found.append(at)
            at = self.waited.get(at)
        return found[::-1]


def minimal(nodes: Mapping[Key, RunNode]) -> Schedule:
    """The minimal schedule; what is not among the nodes is there from the beginning, and so is what a cycle needs."""
    finish: dict[Key, float] = {}
    waited: dict[Key, Key] = {}
    entered: set[Key] = set()
    for root in nodes:
        stack = [root]
        while stack:
            key = stack[-1]
            if key in finish:
                stack.pop()
                continue
            node = nodes[key]
            if key not in entered:
                entered.add(key)
                open_ones = [one for one in node.before if one in nodes and one not in finish and one not in entered]
                if open_ones:
                    stack += open_ones
                    continue
            stack.pop()
            ready = [one for one in node.before if one in finish]
            if ready:
                last = (min if node.first else max)(ready, key=lambda one: finish[one])
                waited[key] = last
                finish[key] = finish[last] + node.seconds
            else:
                finish[key] = node.seconds
    return Schedule(finish, waited)


Row = dict[str, Any]
Ask = Callable[[str, Sequence[object]], Sequence[Row]]

_OF_RUN = "id in (select id from tasks where run = ?)"


class RunInterval(msgspec.Struct, frozen=True):
    """Something that ran: one task, or one span of an array."""

    label: str
    host: str
    start: float
    end: float
    executor: int = 0
    cores: float = 1.0


class Recorded:
    """One run as its rows tell it."""

    def __init__(self, ask: Ask, run: int) -> None:
        self._ask = ask
        self.run = run
        self.nodes: dict[Key, RunNode] = {}
        self.many: dict[Key, int] = {}  # elements that a node stands for, if not one
        self.names: dict[int, str] = {}
        self.tasks: dict[int, Row] = {}
        columns = "id, grp, name, is_array, length, state, seconds, reused, releases, cores, indices"
        columns += ", done, failed, skipped, cancelled"
        for row in ask(f"select {columns} from tasks where run = ? order by id", [run]):
            self.tasks[row["id"]] = row
            self.names[row["id"]] = str(row["name"] or "")
        self._single: dict[int, dict[int, list[Key]]] = defaultdict(lambda: defaultdict(list))
        self._after: dict[int, list[Key]] = defaultdict(list)
        self._needed: dict[int, set[int]] = defaultdict(set)  # elements that something waits for
        self._read_after()
        self._add_groups()
        for row in self.tasks.values():
            if row["is_array"]:
                self._add_array(row)
            else:
                self._add_task(row)

    # --- the graph -----------------------------------------------------------------------------------

    def _target(self, row: Row) -> Key:
        kind, number = row["on_kind"], int(row["on_id"])
        if kind == "group":
            return ("release", number, 0)
        if kind == "end":
            return ("end", number, 0)
        known = self.tasks.get(number)
        if known is None or not known["is_array"]:
            return ("task", number, 0)
        if kind == "array":
            return ("array", number, 0)
        self._needed[number].add(int(row["on_idx"]))
        return ("task", number, int(row["on_idx"]))

    def _read_after(self) -> None:
        for row in self._ask(f"select id, on_kind, on_id, on_idx, idx from after where {_OF_RUN}", [self.run]):
            if row["idx"] is not None and row["idx"] >= 0 and self.tasks[row["id"]]["is_array"]:
                self._single[row["id"]][row["idx"]].append(self._target(row))
            else:
                self._after[row["id"]].append(self._target(row))

    def _add_groups(self) -> None:
        gates: dict[int, list[Key]] = defaultdict(list)
        for row in self._ask("select id, on_kind, on_id, on_idx from group_after where run = ?", [self.run]):
            gates[row["id"]].append(self._target(row))
        groups = self._ask("select id, parent from groups where run = ? order by id", [self.run])
        known = {row["id"] for row in groups}
        inside: dict[int, list[int]] = defaultdict(list)
        members: dict[int, list[Row]] = defaultdict(list)
        for row in groups:
            if row["parent"] is not None and row["parent"] in known:
                inside[row["parent"]].append(row["id"])
        for task in self.tasks.values():
            members[task["grp"]].append(task)
        for row in groups:
            number, gate = row["id"], ("gate", row["id"], 0)
            above = [("gate", row["parent"], 0)] if row["parent"] in known else []
            self.nodes[gate] = RunNode(before=gates[number] + above)
            own = [self._whole(task) for task in members[number]]
            releasing = [self._whole(task) for task in members[number] if task["releases"]]
            self.nodes["end", number, 0] = RunNode(before=[gate, *own, *(("end", one, 0) for one in inside[number])])
            if releasing:
                self.nodes["release", number, 0] = RunNode(before=releasing, first=True)
            else:
                below: list[Key] = [("release", one, 0) for one in inside[number]]
                self.nodes["release", number, 0] = RunNode(before=[gate, *own, *below])

    @staticmethod
    def _whole(task: Row) -> Key:
        return ("array" if task["is_array"] else "task", task["id"], 0)

    def _add_task(self, row: Row) -> None:
        seconds = 0.0 if row["reused"] else float(row["seconds"] or 0.0)
        self.nodes["task", row["id"], 0] = RunNode(seconds, [*self._after[row["id"]], ("gate", row["grp"], 0)])

    def _add_array(self, row: Row) -> None:
        """One node for what all elements wait for, one for the longest of each span, and those with something own."""
        number = row["id"]
        start: Key = ("start", number, 0)
        self.nodes[start] = RunNode(before=[*self._after[number], ("gate", row["grp"], 0)])
        lengths = self._lengths(number)
        special = self._needed[number] | set(self._single[number])
        shown = set(special)
        for low, high, mean, own in lengths:
            longest = (
                max(own, key=lambda index: own[index], default=low) if max(own.values(), default=0) > mean else low
            )
            shown.add(longest)
            if longest not in special:
                self.many["task", number, longest] = high - low - sum(1 for index in special if low <= index < high)
        for index in shown:
            seconds = next((own.get(index, mean) for low, high, mean, own in lengths if low <= index < high), 0.0)
            self.nodes["task", number, index] = RunNode(seconds, [start, *self._single[number].get(index, ())])
        self.nodes["array", number, 0] = RunNode(before=[start, *(("task", number, index) for index in shown)])

    def _lengths(self, number: int) -> list[tuple[int, int, float, dict[int, float]]]:
        """Ranges of elements with their mean time and the times of those that have one of their own."""
        own = {
            row["idx"]: float(row["seconds"])
            for row in self._ask(
                "select idx, seconds from elements where id = ? and seconds is not null and coalesce(reused, 0) = 0",
                [number],
            )
        }
        rows = self._ask(
            "select start, stop, seconds, reused from spans where id = ? and state = 'done' order by start", [number]
        )
        found = []
        for row in rows:
            low, high = row["start"], row["stop"]
            mean = 0.0 if row["reused"] else float(row["seconds"] or 0.0) / (high - low)
            mine = {index: own[index] for index in range(low, high) if index in own} if own else {}
            found.append((low, high, mean, mine))
        return found

    # --- what ran ------------------------------------------------------------------------------------

    def intervals(self) -> list[RunInterval]:
        """All that ran, also tries that failed, in the order of their starts."""
        hosts = {row["id"]: str(row["host"] or "") for row in self._ask("select id, host from executors", [])}
        ran = "started is not null and ended is not null"
        found = [
            RunInterval(
                self.label(row["id"], row["idx"]),
                str(row["host"] or "") or hosts.get(row["executor"], ""),
                row["started"],
                max(row["started"], row["ended"]),
                row["executor"] or 0,
                float(self.tasks[row["id"]]["cores"] or 1),
            )
            for row in self._ask(
                f"select id, idx, executor, host, started, ended from attempts where {_OF_RUN} and {ran}", [self.run]
            )
        ]
        for row in self._ask(
            f"select id, start, stop, executor, started, ended from spans where {_OF_RUN} and {ran}"
            " and state = 'done' and executor is not null",
            [self.run],
        ):
            low, high = row["start"], row["stop"] - 1
            label = range_label(row["id"], low, high, self.tasks[row["id"]]["indices"] or "")
            cores = float(self.tasks[row["id"]]["cores"] or 1)
            end = max(row["started"], row["ended"])
            found.append(
                RunInterval(label, hosts.get(row["executor"], ""), row["started"], end, row["executor"], cores)
            )
        return sorted(found, key=lambda one: (one.start, one.label))

    def label(self, number: int, index: int) -> str:
        """A task as people name it."""
        task = self.tasks[number]
        return task_label(number, index, task["indices"] or "") if task["is_array"] else str(number_of(number))


def fit_cores(intervals: Sequence[RunInterval], cores: Mapping[int, float]) -> list[RunInterval]:
    """The intervals, moved back by so much that no executor runs more at once than it has cores for.

    Ends of functions and of spans are known as late as they were reported, several at once, so that neighbours seem
    to overlap. What would have to move by more than `_MOVED` runs beside others for another reason: it stays.
    """
    by_executor: dict[int, list[RunInterval]] = {}
    for one in intervals:
        by_executor.setdefault(one.executor, []).append(one)
    found: list[RunInterval] = []
    for executor, some in by_executor.items():
        unit = min(one.cores for one in some) or 1.0
        count = int(cores.get(executor, 0.0) / unit + 1e-9)
        if not executor or count < 1:
            found += some
            continue
        until = [math.inf] * count  # of each core: when what ran later on it began; ascending
        for one in sorted(some, key=lambda ran: (-ran.end, -ran.start)):
            width = min(count, max(1, round(one.cores / unit)))
            end = min(one.end, until[-width])
            if one.end - end > _MOVED:
                found.append(one)
                continue
            moved = msgspec.structs.replace(one, start=one.start - (one.end - end), end=end)
            until[-width:] = [moved.start] * width
            until.sort()
            found.append(moved)
    return sorted(found, key=lambda one: (one.start, one.label))


_MOVED = 1.0  # seconds


class RunStep(msgspec.Struct, frozen=True):
    """One task of the critical path, with its place in the minimal schedule."""

    label: str
    name: str
    start: float
    seconds: float


class Analysis(msgspec.Struct):
    """See the module. Times in seconds."""

    run: int
    makespan: float  # from the first start to the last end
    minimal: float  # on any number of processors, without overheads
    work: float  # of all that ran, times cores
    cores: float  # of the executors that ran something
    path: list[RunStep]
    measured: Concurrency
    model: Concurrency  # of the minimal schedule
    intervals: list[RunInterval]

    @property
    def bound(self) -> float:
        """No schedule on these cores is shorter."""
        return max(self.minimal, self.work / self.cores if self.cores else 0.0)

    @property
    def over_bound(self) -> float | None:
        """How many times the lower bound it took."""
        return self.makespan / self.bound if self.bound else None

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "run": self.run,
            "makespan": self.makespan,
            "minimal": self.minimal,
            "work": self.work,
            "cores": self.cores,
            "bound": self.bound,
            "over_bound": self.over_bound,
            "critical_path": [msgspec.structs.asdict(step) for step in self.path],
            "concurrency": {
                "highest": self.measured.highest,
                "mean": self.measured.mean,
                "seconds_at": {str(degree): seconds for degree, seconds in self.measured.at.items()},
            },
            "minimal_concurrency": {
                "highest": self.model.highest,
                "mean": self.model.mean,
                "seconds_at": {str(degree): seconds for degree, seconds in self.model.at.items()},
            },
        }


def analyse(ask: Ask, run: int) -> Analysis:
    """Analyse a run; `ask` puts a question in SQL, with its values, to a jobs database."""
    recorded = Recorded(ask, run)
    schedule = minimal(recorded.nodes)
    ran = recorded.intervals()
    used = {one.executor for one in ran if one.executor}
    there = {row["id"]: row["cores"] or 0 for row in ask("select id, cores from executors", []) if row["id"] in used}
    cores = sum(there.values())
    ran = fit_cores(ran, there)
    path = [
        RunStep(
            recorded.label(key[1], key[2]), recorded.names[key[1]], schedule.finish[key] - node.seconds, node.seconds
        )
        for key in schedule.path()
        if key[0] == "task" and (node := recorded.nodes[key]).seconds > 0
    ]
    best = [
        (schedule.finish[key] - node.seconds, schedule.finish[key], recorded.many.get(key, 1))
        for key, node in recorded.nodes.items()
        if key[0] == "task" and node.seconds > 0
    ]
    makespan = max(one.end for one in ran) - min(one.start for one in ran) if ran else 0.0
    work = sum((one.end - one.start) * one.cores for one in ran)
    busy = concurrency((one.start, one.end, 1) for one in ran)
    return Analysis(run, makespan, schedule.makespan, work, cores, path, busy, concurrency(best), ran)
