"""Refusing what cannot be run, before anything of it is stored: unknown references, cycles, reused ids.

Rule: the message names what is wrong, and a cycle is named element by element. Most submissions name
only what is already there, in groups that nothing waits for; those are found lawful without a walk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bough.core.records.array_record import OPEN_STATES
from bough.core.records.group_record import GroupRecord, Workflow
from bough.core.state import State
from bough.errors import BadValue, UserError
from bough.model.arrays.array_indices import read_indices
from bough.model.arrays.element_reads import ElementReads, why_wrong
from bough.model.events import facts, news
from bough.model.ids import ROOT, number_of
from bough.model.sites.requirements import read_requirement
from bough.model.tasks import ArraySpec, Dep, GroupSpec, Item, On, Page, TaskSpec
from bough.model.texts.plurals import counted

Node = tuple[str, int]  # ("record" | "gate" | "group", id)


def check_submission(state: State, fact: facts.Submitted, *, replayed: bool = False) -> str | None:
    """Say why a submission cannot be accepted, or None. One that was, and is replayed, need not find its queues."""
    if all(map(_Plain(state), fact.items)):
        return None
    return _Batch(state, fact.items).refusal() or (None if replayed else check_queues(state, fact.items))


def check_queues(state: State, items: Iterable[Item]) -> str | None:
    """Say why items cannot be accepted because of the queues that they name, or None."""
    for item in items:
        if isinstance(item, GroupSpec) or not item.needs.queue:  # as most
            continue
        name = item.name or f"task {number_of(item.id)}"
        queue = state.named_queues.records.get(item.needs.queue)
        if queue is None or not queue.is_defined:
            there = ", ".join(one.name for one in state.named_queues.defined())
            known = f"there are: {there}" if there else "queues are made at a server, with bough queue add"
            return f"{name}: there is no queue {item.needs.queue}; {known}"
        most = queue.spec.max_cores
        if most and item.needs.cores > most:
            return f"{name} asks for {item.needs.cores:g} cores, and queue {queue.name} has at most {most:g}"
    return None


class _Plain:
    """Sees at a glance that a task is lawful: it has a new id, and all it names is there or came before it."""

    def __init__(self, state: State) -> None:
        self._records = state.records
        self._groups = state.groups
        self._new: set[int] = set()
        self._workflow: Workflow | None = None

    def __call__(self, item: Item) -> bool:
        if type(item) is not TaskSpec:
            return False
        if "\0" in item.name or "\0" in item.template or item.payload_path:
            return False  # it wants a closer look
        if item.needs.queue or ((item.writes or item.reads) and not _declares_paths(item)):
            return False
        if item.needs.requires and _check_requirement(item.needs.requires):
            return False
        id_, new, records = item.id, self._new, self._records
        group = self._groups.get(item.group)
        if group is None or group.closed or id_ in records or id_ in new or (item.group and _is_awaited(group)):
            return False
        new.add(id_)
        if group.workflow is not self._workflow:
            if self._workflow is not None:
                return False  # one that mixes workflows wants a closer look
            self._workflow = group.workflow
        for dep in item.after:
            there = records.get(dep.id)
            known = there.group.workflow is group.workflow if there is not None else dep.id in new
            if dep.on is not On.TASK or dep.index or not known or dep.id == id_ or (there and not there.length):
                return False
        return True


def _declares_paths(item: TaskSpec) -> bool:
    """Whether a task names its files by paths: only the core gives them numbers."""
    return all(type(ref) is str for ref in (*item.writes, *item.reads))


def _is_awaited(group: GroupRecord) -> bool:
    """Whether something waits for the end of a group or of one above it."""
    return any(above.dependents or above.waiting_for_end for above in group.chain())


def check_pages(state: State, fact: news.PagesAdded) -> str | None:
    """Say why pages cannot be added, or None."""
    record = state.records.get(fact.record)
    if record is None or not isinstance(record.spec, ArraySpec):
        return f"there is no array {number_of(fact.record)}"
    if not getattr(record, "open", False):
        return f"array {number_of(fact.record)} is complete and takes no more tasks"
    at = record.length
    for page in fact.pages:
        if page.start != at or page.stop < page.start:
            return f"array {number_of(fact.record)}: the next page must begin at {at}, not at {page.start}"
        if page.reads is not None and (problem := _wrong_page_reads(page, page.reads)):
            return f"array {number_of(fact.record)}: {problem}"
        at = page.stop
    return None


class _Batch:
    """One submission, with what is needed to walk it together with what is there."""

    def __init__(self, state: State, items: list[Item]) -> None:
        self.state = state
        self.items = items
        self.records: dict[int, TaskSpec | ArraySpec] = {}
        self.groups: dict[int, GroupSpec] = {}
        self.names: set[tuple[int, str]] = set()  # of its groups, with where they are
        self.outward = False  # whether what is there already may wait for something of the batch

    def refusal(self) -> str | None:
        suspicious = False
        for item in self.items:
            problem = self._add_group(item) if isinstance(item, GroupSpec) else self._add_record(item)
            if problem:
                return problem
        for item in self.items:
            for dep in _all_deps(item):
                problem, forward = self._check_dep(item, dep)
                if problem:
                    return problem
                suspicious = suspicious or forward
        self.outward = self._reaches_back()
        return self._cycle() if suspicious or self.outward else None

    def _add_group(self, item: GroupSpec) -> str | None:
        if item.id in self.state.groups or item.id in self.groups:
            return f"the group id {item.id} is taken"
        if "\0" in item.name:
            return f"the name of group {item.id} holds a NUL character; leave it out"
        parent = self.state.groups.get(item.parent)
        if parent is None and item.parent not in self.groups:
            return f"group {item.name}: there is no group {item.parent} to put it in"
        place = (item.parent, item.name)
        if place in self.names or (parent is not None and item.name in parent.child_names):
            return f"there is a group {item.name!r} already in the same place; choose another name"
        if parent is not None and parent.closed:
            return f"group {parent.path} is closed; nothing can be added to it"
        self.names.add(place)
        self.groups[item.id] = item
        return None

    def _add_record(self, item: TaskSpec | ArraySpec) -> str | None:
        if item.id in self.state.records or item.id in self.records:
            return f"the id {number_of(item.id)} is taken"
        if "\0" in item.name or "\0" in item.template or (type(item) is TaskSpec and "\0" in item.payload_path):
            what = f"the name of task {number_of(item.id)}, or the place of its arguments"
            return f"{what}, holds a NUL character; leave it out"
        group = self.state.groups.get(item.group)
        if group is None and item.group not in self.groups:
            return f"{_name(item)}: there is no group {item.group}"
        if group is not None and group.closed:
            return f"{_name(item)}: group {group.path} is closed; nothing can be added to it"
        if item.needs.gpus and item.needs.gpus != int(item.needs.gpus):
            return f"{_name(item)} asks for {item.needs.gpus:g} GPUs; give a whole number"
        if item.needs.requires and (problem := _check_requirement(item.needs.requires)):
            return f"{_name(item)}: {problem}"
        problem = _check_array(item) if isinstance(item, ArraySpec) else None
        if problem:
            return problem
        if type(item) is TaskSpec and not _declares_paths(item):
            return f"{_name(item)} names files by numbers; declare them by their paths"
        self.records[item.id] = item
        return None

    def _check_dep(self, item: Item, dep: Dep) -> tuple[str | None, bool]:
        """Say what is wrong with a dependency, and whether it names something of the same batch that may name it."""
        own, other = self._workflow_at(_place(item)), self._workflow_of(dep)
        if other is not None and own is not other:
            return f"{_name(item)} depends on {_target(dep)[0]} {number_of(dep.id)}, which is in another workflow", True
        if dep.is_group:
            if dep.id == ROOT or (own is not None and dep.id == own.group.id):
                return f"{_name(item)} cannot depend on the whole workflow it is part of", True
            known = dep.id in self.state.groups or dep.id in self.groups
            problem = None if known else f"{_name(item)} depends on group {dep.id}, which does not exist"
            return problem, dep.id in self.groups
        if dep.id == item.id and not isinstance(item, GroupSpec):
            return f"{_name(item)} depends on itself", True
        there = self.state.records.get(dep.id)
        length = there.length if there is not None else getattr(self.records.get(dep.id), "length", 1)
        if there is None and dep.id not in self.records:
            return f"{_name(item)} depends on {number_of(dep.id)}, which does not exist", True
        if dep.on is On.TASK and not 0 <= dep.index < length:
            number = number_of(dep.id)
            return (
                f"{_name(item)} depends on task {number}.{dep.index}, but {number} has {counted(length, 'task')}",
                True,
            )
        return None, there is None and (isinstance(item, GroupSpec) or dep.id >= item.id)

    def _workflow_at(self, group: int) -> Workflow | None:
        """The workflow that a group of the batch, or one that is there, belongs to."""
        while group in self.groups:
            group = self.groups[group].parent
        there = self.state.groups.get(group)
        return there.workflow if there is not None else None

    def _workflow_of(self, dep: Dep) -> Workflow | None:
        """The workflow that a dependency points into; None if it points at nothing."""
        if dep.is_group:
            return self._workflow_at(dep.id)
        there = self.state.records.get(dep.id)
        if there is not None:
            return there.group.workflow
        own = self.records.get(dep.id)
        return self._workflow_at(own.group) if own is not None else None

    def _reaches_back(self) -> bool:
        """Whether something that is there may wait for the batch.

        That takes a group that is there and gets something new: one that is waited for, or one that the new item
        itself waits for. Otherwise a cycle can only lie within the batch.
        """
        around: dict[int, set[int]] = {}  # the groups that are there around a place
        for item in self.items:
            place = at = _place(item)
            if place not in around:
                while at in self.groups:
                    at = self.groups[at].parent
                chain = list(self.state.groups[at].chain()) if at != ROOT else []
                if any(group.dependents or group.waiting_for_end for group in chain):
                    return True
                around[place] = {group.id for group in chain}
            if around[place] and any(dep.is_group and dep.id in around[place] for dep in _all_deps(item)):
                return True
        return False

    # --- the walk --------------------------------------------------------------------------------

    def _cycle(self) -> str | None:
        """Depth first over "waits for"; a node met again while it is being visited closes a cycle."""
        members: dict[int, list[Node]] = {}
        for spec in self.records.values():
            members.setdefault(spec.group, []).append(("record", spec.id))
        for group in self.groups.values():
            members.setdefault(group.parent, []).append(("group", group.id))
        visiting: dict[Node, None] = {}
        finished: set[Node] = set()
        for root in [("record", id_) for id_ in self.records] + [("group", id_) for id_ in self.groups]:
            if root in finished:
                continue
            stack = [(root, self._waits_for(root, members))]
            visiting[root] = None
            while stack:
                node, later = stack[-1]
                following = next(later, None)
                if following is None:
                    stack.pop()
                    del visiting[node]
                    finished.add(node)
                elif following in visiting:
                    path = list(visiting)
                    names = [self._node_name(n) for n in [*path[path.index(following) :], following]]
                    shown = [name for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
                    return f"cycle: {' -> '.join(shown)}; a task cannot wait for itself"
                elif following not in finished:
                    visiting[following] = None
                    stack.append((following, self._waits_for(following, members)))
        return None

    def _waits_for(self, node: Node, members: dict[int, list[Node]]) -> Iterator[Node]:
        kind, id_ = node
        if not self.outward and id_ not in (self.records if kind == "record" else self.groups):
            return
        if kind == "record":
            spec = self.records.get(id_)
            if spec is None:
                record = self.state.records[id_]
                if not record.runs(OPEN_STATES, 0, record.length):
                    return
                spec = record.spec
            yield from map(_target, _all_deps(spec))
            yield ("gate", spec.group)
        elif kind == "gate":
            own = self.groups.get(id_)
            there = self.state.groups.get(id_)
            if own is not None:
                yield from map(_target, own.after)
                yield ("gate", own.parent)
            elif there is not None and there.waits:
                yield from map(_target, there.after)
                if there.parent is not None:
                    yield ("gate", there.parent.id)
        else:
            yield from members.get(id_, [])
            group = self.state.groups.get(id_)
            if group is not None:
                yield from _members(group)
            yield ("gate", id_)

    def _node_name(self, node: Node) -> str:
        kind, id_ = node
        if kind == "record":
            there = self.state.records.get(id_)
            return _name(self.records.get(id_, there.spec if there else None))
        if id_ in self.groups:
            return f"group {self.groups[id_].name}"
        return f"group {self.state.groups[id_].path or '(the workflow)'}"


def _check_array(item: ArraySpec) -> str | None:
    """Say what is wrong with the elements of an array, or None."""
    if item.length < 0:
        return f"{_name(item)} cannot have {counted(item.length, 'task')}"
    if item.indices and (problem := _wrong_indices(item)):
        return problem
    if item.reads is not None and (problem := _wrong_reads(item, item.reads)):
        return problem
    wrong = next((index for index, _ in item.element_after if not 0 <= index < item.length), None)
    if wrong is not None:
        return f"{_name(item)} has dependencies for an element {wrong}, but has {counted(item.length, 'task')}"
    if item.table:
        return None
    at = 0
    for page in item.pages:
        if page.start != at or page.stop < page.start:
            return f"{_name(item)}: its pages do not follow each other at {at}"
        if page.reads is not None:
            return f"{_name(item)}: only pages that are fed say which files their elements read"
        at = page.stop
    return None if at == item.length else f"{_name(item)}: its pages hold {at} rows, not {item.length}"


def _wrong_page_reads(page: Page, reads: ElementReads) -> str:
    """Why the reads of a page cannot be taken; empty: they can."""
    if not all(type(ref) is str and "\0" not in ref for ref in reads.files):
        return "the files that its elements read are named by paths"
    return why_wrong(reads, page.stop - page.start, is_open=False)


def _wrong_reads(item: ArraySpec, reads: ElementReads) -> str:
    if not all(type(ref) is str for ref in reads.files):
        return f"{_name(item)} names files by numbers; declare them by their paths"
    problem = why_wrong(reads, item.length, is_open=item.open)
    return problem and f"{_name(item)}: {problem}"


def _wrong_indices(item: ArraySpec) -> str:
    try:
        many = sum(map(len, read_indices(item.indices, "the indexes")))
    except UserError as error:
        return f"{_name(item)}: {error}"
    return "" if many == item.length else f"{_name(item)}: it has {item.length} tasks, and {many} indexes for them"


def _members(group: GroupRecord) -> Iterator[Node]:
    for record in group.members:
        yield ("record", record.id)
    for child in group.children:
        if not child.finished:
            yield ("group", child.id)


def _all_deps(item: Item) -> Iterator[Dep]:
    yield from item.after
    if isinstance(item, ArraySpec):
        for _, deps in item.element_after:
            yield from deps


def _place(item: Item) -> int:
    """The group that an item is in."""
    return item.parent if isinstance(item, GroupSpec) else item.group


def _target(dep: Dep) -> Node:
    return ("group" if dep.is_group else "record", dep.id)


def _name(item: Item | None) -> str:
    if item is None:
        return "a task"
    if isinstance(item, GroupSpec):
        return f"group {item.name}"
    word = "array" if isinstance(item, ArraySpec) else "task"
    return item.name or f"{word} {number_of(item.id)}"


def _check_requirement(text: str) -> str | None:
    try:
        read_requirement(text)
    except BadValue as error:
        return str(error)
    return None
