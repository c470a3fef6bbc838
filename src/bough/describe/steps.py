"""A plan as the steps that submit it: groups that open, tasks with all they wait for, groups that close.

The server knows no phases, so that prologue, subgroups, own tasks and epilogue become dependencies here. Steps come
in the order in which `make` would reach them, which is the order of their numbers: depth first, from the left, what
is waited for before what waits for it. Rule: N things before M tasks cost N + M dependencies, never N times M.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from bough.describe.plan import (
    Index,
    Plan,
    PlanGroup,
    PlanTask,
    Where,
    file_path,
    file_writers,
    join,
    made_place,
    without_gc,
)
from bough.errors import InvalidWorkload

PROLOGUE = "prologue"
ROOT = 0  # the number of the workflow's own group


class What(enum.IntEnum):
    """What a step does."""

    OPEN = 0
    TASK = 1
    CLOSE = 2


class For(enum.IntEnum):
    """What is waited for; the numbers are those of `model.tasks.On`."""

    TASK = 0
    RELEASE = 2  # of a group, or its end
    END = 3  # of a group, whatever was released


Wait = tuple[For, int]


class Step(NamedTuple):
    """One step. Groups and tasks have numbers of their own, from 1, in the order of the steps."""

    what: What
    number: int  # of the group or the task
    group: int = ROOT  # that a task, or a group that opens, is in
    waits: tuple[Wait, ...] = ()
    task: PlanTask | None = None
    near: int = 0  # the task that an affine one runs beside
    name: str = ""  # of a group that opens; one that begins with a dot is there for the sake of its dependencies
    spec: PlanGroup | None = None  # of a group that opens; None: it is a prologue, or hidden


# Nodes of the walk are numbers: four for each group, then one for each task. What a node reaches is what it waits for.
_GATE = 0  # a group may begin
_READY = 1  # its prologue has finished
_OWN = 2  # its subgroups are over
_END = 3
_KINDS = 4


def steps(plan: Plan) -> list[Step]:
    """The steps of a plan; `InvalidWorkload` names what is there twice, what is missing, and cycles."""
    with without_gc():
        return _Lowering(plan).run()


class _Slot:
    """What the walk knows of one group."""

    __slots__ = ("chain", "group", "number", "own", "parent", "path", "prologue", "tasks")

    def __init__(self, group: PlanGroup, path: str, parent: int) -> None:
        self.group = group
        self.path = path
        self.parent = parent
        self.number = ROOT
        self.prologue = 0  # the number of the group that the prologue is
        self.tasks: tuple[range, range, range] = (range(0), range(0), range(0))  # prologue, own, epilogue
        self.own: tuple[Wait, ...] | None = None  # what own tasks wait for, once it is known
        self.chain: dict[int, _Chain] = {}  # by phase


class _Chain:
    """Tasks that run one after the other: what the next one waits for."""

    __slots__ = ("last", "sure", "task")

    def __init__(self, waits: tuple[Wait, ...]) -> None:
        self.last = waits
        self.sure = waits  # whose success means that of all before
        self.task = 0

    def waits(self, *, final: bool) -> tuple[Wait, ...]:
        return self.last if final or self.sure is self.last else tuple(dict.fromkeys((*self.last, *self.sure)))

    def joined(self, number: int, *, final: bool) -> None:
        self.last = ((For.TASK, number),)
        self.task = number
        if not final:
            self.sure = self.last


class _Lowering:
    def __init__(self, plan: Plan) -> None:
        self.index = Index(plan)
        self.slots: list[_Slot] = []
        self.tasks: list[PlanTask] = []
        self.home: list[tuple[int, int]] = []  # by task: the slot of its group, and which of its phases
        self.numbers: list[int] = []  # of tasks, once they have one
        self.slot_of: dict[int, int] = {}  # by the identity of a group
        self.steps: list[Step] = []
        self.group_count = 0
        self.task_count = 0
        for path, group in plan.walk():
            self._lay_out(path, group)
        self.base = _KINDS * len(self.slots)  # the node of the first task
        self.node_of = {slot.path: at * _KINDS + _END for at, slot in enumerate(self.slots) if at}  # by reference
        for at, task in enumerate(self.tasks):
            if task.name:
                self.node_of.setdefault(task.name, self.base + at)
        self.makers = self._find_makers()  # by task: those that write what it reads

    def _find_makers(self) -> dict[int, list[int]]:
        writers = file_writers(self.tasks)
        found: dict[int, list[int]] = {}
        for at, task in enumerate(self.tasks) if writers else ():
            places = [made_place(file_path(task, path), writers) for path in task.reads]
            makers = dict.fromkeys(maker for place in places if place and (maker := writers[place]) != at)
            if makers:
                found[at] = list(makers)
        return found

    def _lay_out(self, path: str, group: PlanGroup) -> None:
        above = self.index.above.get(id(group))
        at = self.slot_of[id(group)] = len(self.slots)
        slot = _Slot(group, path, -1 if above is None else self.slot_of[id(above)])
        ranges: list[range] = []
        for phase, some in enumerate((group.prologue, group.tasks, group.epilogue)):
            first = len(self.tasks)
            self.tasks += some
            self.home += [(at, phase)] * len(some)
            ranges.append(range(first, len(self.tasks)))
        slot.tasks = (ranges[0], ranges[1], ranges[2])
        self.numbers += [0] * (len(self.tasks) - len(self.numbers))
        self.slots.append(slot)

    # --- the walk ---------------------------------------------------------------------------------------

    def run(self) -> list[Step]:
        seen = bytearray(self.base + len(self.tasks))  # 1: being visited, 2: done
        base, root = self.base, _END
        seen[root] = 1
        stack = [(root, self._before(root))]
        while stack:
            node, later = stack[-1]
            for following in later:
                if not seen[following]:
                    if following >= base and self._is_next(following - base, seen):
                        seen[following] = 2
                        self._emit_task(following - base)
                        continue
                    seen[following] = 1
                    stack.append((following, self._before(following)))
                    break
                if seen[following] == 1:
                    raise self._cycle([node for node, _ in stack], following)
            else:
                stack.pop()
                seen[node] = 2
                self._emit(node)
        return self.steps

    def _is_next(self, at: int, seen: bytearray) -> bool:
        """Whether all that must come before a task is there, as it is for most tasks."""
        home, phase = self.home[at]
        slot = self.slots[home]
        if phase != 1:
            return False
        before = self.base + at - 1 if slot.group.pipeline and at > slot.tasks[1].start else home * _KINDS + _OWN
        if seen[before] != 2 or any(seen[self.base + maker] != 2 for maker in self.makers.get(at, ())):
            return False
        after = self.tasks[at].after
        return not after or set(map(seen.__getitem__, map(self.node_of.__getitem__, after))) == {2}

    def _before(self, node: int) -> Iterator[int]:
        """What must have been submitted before a node, in order."""
        base = self.base
        if node >= base:
            return self._before_task(node - base)
        at, kind = divmod(node, _KINDS)
        if kind == _GATE:
            return self._before_gate(at)
        if kind == _OWN:
            return self._before_own(at)
        slot = self.slots[at]
        if kind == _READY:
            return chain((node - _READY + _GATE,), (base + task for task in slot.tasks[0]))
        ends = (self.slot_of[id(group)] * _KINDS + _END for group in slot.group.groups)
        return chain(ends, (node - _END + _OWN,), (base + task for some in slot.tasks[1:] for task in some))

    def _before_gate(self, at: int) -> Iterator[int]:
        slot = self.slots[at]
        if slot.parent >= 0:
            yield from self._targets(self._gate_references(slot))
            yield slot.parent * _KINDS + (_READY if self.slots[slot.parent].group.barrier else _GATE)

    def _before_own(self, at: int) -> Iterator[int]:
        slot = self.slots[at]
        if slot.group.barrier and at:
            for inner in slot.group.groups:
                yield self.slot_of[id(inner)] * _KINDS + _END
            yield from self._targets(self._matched(slot))
        yield at * _KINDS + _READY

    def _before_task(self, at: int) -> Iterator[int]:
        home, phase = self.home[at]
        slot, task = self.slots[home], self.tasks[at]
        if task.after:
            yield from self._targets(task.after)
        if at in self.makers:
            yield from (self.base + maker for maker in self.makers[at])
        if at > slot.tasks[phase].start and (phase != 1 or slot.group.pipeline):
            yield self.base + at - 1
        elif phase == 0:
            yield home * _KINDS + _GATE
            yield from self._targets(self._matched(slot))
        else:
            yield home * _KINDS + _OWN
            if phase == 2:
                for own in slot.tasks[1]:
                    yield self.base + own

    def _gate_references(self, slot: _Slot) -> list[str]:
        """What all of a group waits for."""
        group = slot.group
        return [*group.after, *self._namesakes(slot)] if group.barrier and not group.match else []

    def _matched(self, slot: _Slot) -> list[str]:
        """What only the own tasks of a group wait for, and its prologue, because its subgroups find namesakes."""
        return [*slot.group.after, *self._namesakes(slot)] if slot.group.match else []

    def _namesakes(self, slot: _Slot) -> list[str]:
        """What a group waits for because of `match` of the one it is in."""
        above = self.slots[slot.parent]
        if not above.group.match:
            return []
        wanted = [*above.group.after, *self._namesakes(above)]
        paths = [join(reference, slot.group.name) for reference in wanted]
        return [path if path in self.index.groups else ref for path, ref in zip(paths, wanted, strict=True)]

    def _targets(self, references: Sequence[str]) -> list[int]:
        return [self.node_of[reference] for reference in references]

    # --- steps ------------------------------------------------------------------------------------------

    def _emit(self, node: int) -> None:
        if node >= self.base:
            self._emit_task(node - self.base)
            return
        at, kind = divmod(node, _KINDS)
        slot = self.slots[at]
        if kind == _GATE and at:
            self._open(slot)
        elif kind == _READY and slot.prologue:
            self.steps.append(Step(What.CLOSE, slot.prologue))
        elif kind == _END and at:
            self.steps.append(Step(What.CLOSE, slot.number))

    def _waits_for(self, references: Sequence[str]) -> list[Wait]:
        base, slots, numbers = self.base, self.slots, self.numbers
        return [
            (For.TASK, numbers[node - base]) if node >= base else (For.RELEASE, slots[node // _KINDS].number)
            for node in self._targets(references)
        ]

    def _open(self, slot: _Slot) -> None:
        above = self.slots[slot.parent]
        waits = self._waits_for(self._gate_references(slot))
        if above.prologue:
            waits.append((For.END, above.prologue))
        slot.number = self._open_group(above.number, slot.group.name, waits, slot.group)

    def _open_group(self, parent: int, name: str, waits: Sequence[Wait], spec: PlanGroup | None) -> int:
        self.group_count += 1
        self.steps.append(Step(What.OPEN, self.group_count, parent, tuple(dict.fromkeys(waits)), name=name, spec=spec))
        return self.group_count

    def _emit_task(self, at: int) -> None:
        home, phase = self.home[at]
        slot, task = self.slots[home], self.tasks[at]
        line = slot.chain.get(phase)
        if line is None:
            line = slot.chain[phase] = self._begin(slot, phase)
        waits = line.waits(final=task.final)
        near = line.task
        if task.after:
            named = self._waits_for(task.after)
            waits = tuple(dict.fromkeys((*named, *waits))) if waits or len(named) > 1 else tuple(named)
            if not near and len(named) == 1 and named[0][0] is For.TASK:
                near = named[0][1]
        if at in self.makers:
            made = [(For.TASK, self.numbers[maker]) for maker in self.makers[at]]
            waits = tuple(dict.fromkeys((*waits, *made)))
        self.task_count += 1
        number = self.numbers[at] = self.task_count
        group = slot.prologue if phase == 0 else slot.number
        self.steps.append(Step(What.TASK, number, group, waits, task, near if task.affinity else 0))
        if phase != 1 or slot.group.pipeline:
            line.joined(number, final=task.final)

    def _begin(self, slot: _Slot, phase: int) -> _Chain:
        """The first task of a phase has come."""
        group = slot.group
        matched = self._waits_for(self._matched(slot))
        if phase == 0:
            slot.prologue = self._open_group(slot.number, PROLOGUE, matched, None)
            return _Chain(())
        own = tuple(dict.fromkeys((*matched, *self._own_waits(slot))))
        if phase == 1:
            if len(own) > 1 and not group.pipeline and len(slot.tasks[1]) > 1:
                hidden = self._open_group(slot.number, ".own", own, None)
                self.steps.append(Step(What.CLOSE, hidden))
                own = ((For.END, hidden),)
            slot.own = own
            return _Chain(own)
        if group.pipeline and 1 in slot.chain:
            return slot.chain[1]
        mine = [(For.TASK, self.numbers[task]) for task in slot.tasks[1]]
        return _Chain((*(own if slot.own is None else slot.own), *mine))

    def _own_waits(self, slot: _Slot) -> Iterator[Wait]:
        if slot.group.barrier and slot.number:
            if slot.prologue:
                yield For.END, slot.prologue
            for inner in slot.group.groups:
                yield For.END, self.slots[self.slot_of[id(inner)]].number

    # --- cycles -----------------------------------------------------------------------------------------

    def _cycle(self, path: list[int], again: int) -> InvalidWorkload:
        ring = [*path[path.index(again) :], again]
        named: list[str] = []
        for node in ring:
            name = self._name(node)
            if not named or named[-1] != name:
                named.append(name)
        where = next((self._where(node) for node in ring if self._where(node).line), self._where(again))
        return where.wrong(f"these wait for each other: {' -> '.join(named)}")

    def _name(self, node: int) -> str:
        if node >= self.base:
            name = self.tasks[node - self.base].label
        else:
            name = self.slots[node // _KINDS].path or "the workflow"
        line = self._where(node).line
        return f"{name} (line {line})" if line else name

    def _where(self, node: int) -> Where:
        return self.tasks[node - self.base].where if node >= self.base else self.slots[node // _KINDS].group.where
