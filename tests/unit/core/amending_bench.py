"""Workflows written as a few lines of text, submitted to a machine, changed and submitted again."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bough.core.actions.difference import Difference, find_difference, why_wrong
from bough.core.actions.dry_run import run_again
from bough.core.machine import Turn
from bough.model.events import facts, news
from bough.model.ids import GroupId, RecordId
from bough.model.states import TaskState
from bough.model.tasks import Dep, GroupSpec, Item, Kind, On, TaskExtras, TaskSpec
from bough.testing.builders import BODY, limits, needs
from tests.unit.core.core_bench import Bench

WORKFLOW = 50  # its group
_LINE = re.compile(r"(?P<path>\S+?)(?P<group>/)?(?: = (?P<command>\S+))?(?: < (?P<after>[^;]+))?(?: ; (?P<extras>.+))?")


def items(lines: Sequence[str], first: int) -> list[Item]:
    """Groups `g/ < a` and tasks `g/t = command < a, g/ ; release`, each after what it names; numbers from `first`."""
    found: list[Item] = []
    groups: dict[str, int] = {"": WORKFLOW}
    tasks: dict[str, int] = {}
    for number, line in enumerate(lines, first):
        match = _LINE.fullmatch(line)
        assert match is not None, line
        path, after = match["path"], match["after"]
        deps = tuple(
            Dep(On.GROUP, groups[name[:-1]]) if name.endswith("/") else Dep(On.TASK, tasks[name])
            for name in (after.split(", ") if after else ())
        )
        said = dict(part.partition("=")[::2] for part in (match["extras"] or "").split(", ") if part)
        above, _, name = path.rpartition("/")
        if match["group"]:
            groups[path] = number
            limit, timeout = int(said.get("limit", 0)), float(said.get("timeout", 0))
            found.append(GroupSpec(GroupId(number), name, GroupId(groups[above]), deps, limit, timeout=timeout))
            continue
        tasks[path] = number
        near = tasks[said["near"]] if "near" in said else 0
        found.append(
            TaskSpec(
                RecordId(number),
                Kind.COMMAND,
                BODY,
                (match["command"] or name).encode(),
                GroupId(groups[above]),
                name,
                needs=needs(float(said.get("cores", 1))),
                limits=limits(retries=int(said.get("retries", 0))),
                after=deps,
                extras=TaskExtras(release="release" in said, final="final" in said, same_host_as=near),
            )
        )
    return found


class Flow:
    """One workflow of a service."""

    def __init__(self, *lines: str, cores: float = 2, memos: bool = False, is_closed: bool = True) -> None:
        self.bench = Bench(cores)
        self.next = 100
        self.bench.tell(facts.RunOpened(2, "flow", "h", 1, group=GroupId(WORKFLOW), memos=memos))
        said = items(lines, self._numbers(len(lines)))
        self.bench.submit(*said)
        closed = [item.id for item in said if isinstance(item, GroupSpec)]
        closed += [GroupId(WORKFLOW)] if is_closed else []
        self.bench.tell(*map(news.GroupClosed, closed))

    def _numbers(self, count: int) -> int:
        self.next += 100
        assert count <= 100
        return self.next

    def difference(self, *lines: str) -> Difference:
        said = items(lines, self._numbers(len(lines)))
        state = self.bench.machine.state
        assert why_wrong(state, state.workflows[2], said) is None
        return find_difference(state.workflows[2], said)

    def amend(self, *lines: str) -> Difference:
        """Apply a description; what was foreseen to run again is what does."""
        found = self.difference(*lines)
        state = self.bench.machine.state
        self.again = run_again(state, state.workflows[2], found)
        idle = {self.ids[name] for name, word in self.states.items() if word == "skipped"}  # these are tried again
        turn = self.bench.tell(found.news)
        names = {id_: name for name, id_ in self.ids.items()}
        passed = {item.id for item in found.news.changed} | idle
        parts = [part[0] for fact in turn.facts if isinstance(fact, facts.Amended) for part in fact.parts]
        assert self.again == [names[record] for record in parts if record not in passed]
        return found

    @property
    def ids(self) -> dict[str, int]:
        """The numbers of what is in the workflow, by path."""
        found = {}
        for record in self.bench.machine.state.groups[WORKFLOW].records():
            path = record.group.path
            found[f"{path}/{record.spec.name}" if path else record.spec.name] = record.id
        return found

    @property
    def states(self) -> dict[str, str]:
        records = self.bench.machine.state.records
        return {name: TaskState(records[id_].state_of(0)).name.lower() for name, id_ in self.ids.items()}

    def end(self, *names: str) -> None:
        for name in names:
            self.bench.end(self.ids[name])

    def fail(self, name: str) -> Turn:
        return self.bench.fail(self.ids[name])

    @property
    def is_over(self) -> bool:
        return self.bench.machine.state.groups[WORKFLOW].finished
