"""DAGMan files as plans: `bough run my.dag` runs what `condor_submit_dag my.dag` would have submitted.

A node is a task, a splice or a sub-DAG a group, and a category with MAXJOBS a group with a limit. Paths mean what they
mean to `condor_submit_dag`: relative to where it is called, or to DIR. Nodes that an earlier run has done are not run
again, as with a rescue DAG; a rescue file of HTCondor's counts too.

HTCondor reads a submit description, and the file of a sub-DAG, when the node is due. Here both are read before
anything runs, if they are there. A description that is missing and that an earlier node, or the node's PRE script, may
write is read when it is due (`node_text`). A sub-DAG is a task that runs `bough run` if it has scripts, decides about
itself (FINAL, ABORT-DAG-ON), or is not there yet.
Rule: every mistake is told with file and line before anything is submitted, but for files that are not there yet.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bough.describe.dagman.classad_expression import Value
from bough.describe.dagman.dag_file import MOST_FILES, Dag, DagNode, inside, read_dag, read_text
from bough.describe.dagman.node_command import (
    Job,
    LateJob,
    Surroundings,
    asks_for_the_dag,
    command,
    is_judged,
    late_text,
)
from bough.describe.dagman.submit_description import Expander, Submit, SubmitJob, parse
from bough.describe.dagman.submit_macros import FAILED, RETRY, STATUS
from bough.describe.plan import MOST_DEEP, Plan, PlanGroup, PlanTask, Verdict, Where, join, without_gc
from bough.describe.source_files import read_file
from bough.model.tasks import NODE_ATTRIBUTE

MOST_NODES = 2_000_000  # of one workflow
_DIGITS = 6  # of a number of cores
_OF_JOBS = ("command", "cores", "memory", "retries", "priority", "cwd", "env")  # what jobs say of their task
_MANY = 64  # dependencies of one line: more than this, and a group stands between

_KNOWN = {
    "retry": RETRY,
    "max_retries": "0",
    "dag_status": STATUS,
    "failed_count": FAILED,
    "dagmanjobid": "0",
    "dag_parent_names": "",
}  # macros that DAGMan gives every node

Note = Callable[[str], None]


def read(path: str, note: Note = lambda text: None) -> Plan:
    """Read a DAGMan file; `note` is told what was passed over."""
    plan = Plan(source=path, halt_file=f"{path}.halt")
    plan.root.where = Where(path)
    builder = _Builder(plan.root, note, path)
    with without_gc():
        dag = read_dag(path, "", note)
        builder.build_root(dag, (os.path.abspath(path),))
    plan.verdict = builder.verdict
    return plan


def node_text(path: str, name: str) -> str:
    """The shell text of a node's jobs, for a submit description that was not there when the DAG was read."""
    dag = read_dag(path, "", lambda text: None)
    builder = _Builder(Plan().root, lambda text: None, path)
    builder.survey(dag)
    holder, prefix = dag, ""
    while name not in holder.nodes and "+" in name:
        head, _, name = name.partition("+")
        node = holder.nodes.get(head)
        inner = node.inner if node is not None else None
        if node is not None and node.kind == "SUBDAG":
            folder = inside(holder.folder, node.folder)
            inner = read_dag(inside(folder, node.source), folder, lambda text: None)
            builder.outer = f"{prefix}{head}+"
        if inner is None:
            break
        holder, prefix = inner, f"{prefix}{head}+"
    if name not in holder.nodes:
        raise Where(path).wrong(f"there is no node {prefix}{name}")
    node = holder.nodes[name]
    jobs = list(builder.expander(node, prefix + name, holder).jobs())
    around = Surroundings(prefix + name, "", builder.nodes, builder.done, at_root=True)
    return late_text(node, jobs, around)


@dataclass(slots=True)
class _Place:
    """Where the nodes of one DAG go."""

    group: PlanGroup
    path: str = ""
    prefix: str = ""  # of the names of its nodes
    own: list[PlanTask] = field(default_factory=list)  # its tasks, but for those of categories
    far: list[PlanTask] = field(default_factory=list)  # tasks of it that are in groups elsewhere
    categories: dict[str, PlanGroup] = field(default_factory=dict)


@dataclass(slots=True)
class _Entry:
    """A node in the plan: what stands for it when others wait, and what is to be told of whom it waits for."""

    references: list[str]
    waits: list[list[str]]
    inner: dict[str, _Entry] | None = None  # of a splice

    def find(self, name: str) -> _Entry | None:
        """The entry of a node in a splice."""
        return _find(self.inner, name) if self.inner is not None else None


def _find(entries: dict[str, _Entry], name: str) -> _Entry | None:
    found = entries.get(name)
    if found is None and "+" in name:
        head, _, rest = name.partition("+")
        splice = entries.get(head)
        return splice.find(rest) if splice is not None else None
    return found


class _Builder:
    def __init__(self, root: PlanGroup, note: Note, path: str) -> None:
        self.root = root
        self.note = note
        self.path = path
        self.verdict: Verdict | None = None
        self.shared: dict[str, int] = {}  # limits of categories that hold for splices too
        self.shared_groups: dict[str, PlanGroup] = {}
        self.submits: dict[str, Submit | None] = {}  # None: not there yet
        self.joins = 0
        self.dags = 0
        self.checked: set[str] = set()  # files of sub-DAGs that are run as DAGs of their own
        self.tasks = 0
        self.nodes = 0  # of the DAG
        self.done = 0  # of these
        self.clusters: dict[str, int] = {}  # a number for each node, by its name
        self.parents: dict[int, dict[str, list[str]]] = {}  # by the identity of a DAG: what its nodes wait for
        self.environment: dict[str, str] = {}
        self.unfilled: list[Callable[[], None]] = []  # what makes the jobs of nodes that have several
        self.outer = ""  # what the names of tasks begin with that are in the sub-DAG at hand

    def _own(self, name: str) -> str:
        """The name of a node as its own DAG has it: a sub-DAG does not know what it is part of; a splice does."""
        return name.removeprefix(self.outer)

    # --- the whole DAG ----------------------------------------------------------------------------------

    def survey(self, dag: Dag) -> None:
        """Count the nodes, and see what holds for all of them."""
        for number, (name, node) in enumerate(dag.every_node(), start=1):
            self._count(1, node.where)
            self.clusters[name] = number
            self.done += node.done
        self.nodes = len(self.clusters)
        self.tasks = 0
        self.environment = dag.environment
        self._share(dag)

    def _share(self, dag: Dag) -> None:
        """Categories that begin with + are those of the whole DAG, and what is said highest up counts."""
        for name, limit in dag.limits.items():
            if name.startswith("+"):
                self.shared.setdefault(name, limit)
        for node in dag.nodes.values():
            if node.inner is not None:
                self._share(node.inner)

    def build_root(self, dag: Dag, files: tuple[str, ...]) -> None:
        """Put a whole DAG into the plan; `files` ends with its own, those before contain it."""
        self.survey(dag)
        entries, final = self.build(dag, _Place(self.root), files)
        for fill in self.unfilled:
            fill()
        aborts = {name: node.abort for name, node in dag.every_node() if node.abort is not None and not node.done}
        services = [node.name for node in dag.nodes.values() if node.kind == "SERVICE" and not node.done]
        if services:
            self._stop_services(services, entries, final)
        if final is not None or aborts or services:
            ignored = [*services, _STOP] if services else []
            self.verdict = Verdict(final.name if final is not None else "", aborts, ignored)

    def _stop_services(self, services: list[str], entries: dict[str, _Entry], final: PlanTask | None) -> None:
        """A task that ends what runs beside the DAG, once all of that has ended."""
        after = [one for name, entry in entries.items() if name not in services for one in entry.references]
        names = " ".join(map(shlex.quote, services))
        stop = PlanTask(
            f"bough here cancel {names}",
            name=_STOP,
            after=[final.name] if final is not None else after,
            cores=0,
            final=True,
            memo=False,
            where=self.root.where,
        )
        self.root.tasks.append(stop)

    def build(self, dag: Dag, place: _Place, files: tuple[str, ...]) -> tuple[dict[str, _Entry], PlanTask | None]:
        """Put the nodes of one DAG into a group."""
        self._count(len(dag.nodes), place.group.where)
        entries: dict[str, _Entry] = {}
        final: PlanTask | None = None
        for node in dag.nodes.values():
            if node.kind == "FINAL":
                final = self._task(node, place.prefix + node.name, dag)
            elif node.done:
                entries[node.name] = _Entry([], [])
            elif node.kind == "SPLICE":
                entries[node.name] = self._splice(node, dag, place, files)
            elif node.kind == "SUBDAG":
                entries[node.name] = self._subdag(node, dag, place, files)
            elif node.kind == "PROVISIONER":
                entries[node.name] = self._provisioner(node, dag, place)
            else:
                entries[node.name] = self._job(node, dag, place)
        for parents, children, where in dag.edges:
            self._edges(_entries(entries, parents, where), _entries(entries, children, where))
        for out, into, where in dag.connections:
            self._connect(dag, entries, out, into, where)
        self._provide(dag, entries)
        if final is not None:
            self._final(final, dag, entries, place)
        self._settle(place)
        return entries, final

    def _later(self, fill: Callable[[], None]) -> None:
        """Make the jobs of a node when all nodes are counted: what has too many is refused before that is paid for."""
        outer = self.outer

        def filling() -> None:
            self.outer = outer
            fill()

        self.unfilled.append(filling)

    def _count(self, more: int, where: Where) -> None:
        """A few lines can stand for any number of nodes: splices of splices, and queues."""
        self.tasks += more
        if self.tasks > MOST_NODES:
            raise where.wrong(f"that makes {self.tasks} nodes; a workflow has at most {MOST_NODES}")

    # --- nodes ------------------------------------------------------------------------------------------

    def _job(self, node: DagNode, dag: Dag, place: _Place) -> _Entry:
        name = place.prefix + node.name
        expander = None if node.noop else self._expander_if_there(node, name, dag)
        if expander is None or is_judged(node) or (expander.submit.is_plain and not expander.submit.queue):
            task = self._task(node, name, dag, expander)
            self._put(task, node, dag, place)
            return _Entry([task.name], [task.after])
        count = expander.count()
        if count == 1:
            task = self._scripted(node, name, dag, list(expander.jobs()))
            self._put(task, node, dag, place)
            return _Entry([task.name], [task.after])
        self._count(count, node.where)
        group = PlanGroup(_group_name(node.name), pipeline=False, retries=node.retries, where=node.where)
        group.attributes = {NODE_ATTRIBUTE: name}
        plain = DagNode(
            node.name,
            "JOB",
            "",
            node.where,
            node.folder,
            priority=node.priority,
            before=node.before,
            macros=node.macros,
        )

        def fill() -> None:
            for process, job in enumerate(expander.jobs()):
                task = self._scripted(plain, name, dag, [job])
                task.name = f"{name}.{process}"
                task.retries = 0
                group.tasks.append(task)

        self._later(fill)
        if node.pre is not None:
            pre = DagNode(node.name, "JOB", "", node.where, node.folder, noop=True, pre=node.pre)
            group.prologue.append(self._scripted(pre, name, dag, [_nothing(inside(dag.folder, node.folder))]))
        group.limit = self._limit(node, dag)
        place.group.groups.append(group)
        return _Entry([join(place.path, group.name)], [group.after])

    def _provisioner(self, node: DagNode, dag: Dag, place: _Place) -> _Entry:
        """A group of its own, so that its task can let the others start before it ends (`bough here release`)."""
        task = self._task(node, place.prefix + node.name, dag)
        group = PlanGroup(_group_name(node.name), tasks=[task], where=node.where)
        place.group.groups.append(group)
        return _Entry([join(place.path, group.name)], [group.after])

    def _provide(self, dag: Dag, entries: dict[str, _Entry]) -> None:
        """Nothing starts before the provisioner is ready."""
        for node in dag.nodes.values():
            if node.kind == "PROVISIONER" and not node.done:
                children = {name for _, names, _ in dag.edges for name in names}
                for name, entry in entries.items():
                    if name not in children and name != node.name and dag.nodes[name].kind != "SERVICE":
                        self._edges([entries[node.name]], [entry])

    def _task(self, node: DagNode, name: str, dag: Dag, expander: Expander | None = None) -> PlanTask:
        base = inside(dag.folder, node.folder)
        if node.noop:
            return self._scripted(node, name, dag, [_nothing(base)])
        expander = expander or self._expander_if_there(node, name, dag)
        if expander is None:
            text = f"bough describe --node {shlex.quote(name)} {shlex.quote(self.path)}"
            return self._scripted(node, name, dag, [LateJob(text)])
        if expander.submit.is_plain and not expander.submit.queue:
            return self._scripted(node, name, dag, [expander.one()])
        self._count(expander.count() - 1, node.where)
        task = self._scripted(node, name, dag, [_nothing(base)])

        def fill() -> None:
            made = self._scripted(node, name, dag, list(expander.jobs()) or [_nothing(base)])
            for key in _OF_JOBS:
                setattr(task, key, getattr(made, key))

        self._later(fill)
        return task

    def _scripted(self, node: DagNode, name: str, dag: Dag, jobs: Sequence[Job]) -> PlanTask:
        first = jobs[0]
        job = first if isinstance(first, SubmitJob) else _nothing()
        is_plain = len(jobs) == 1 and not (node.pre or node.post or node.abort) and node.unless is None
        text, folder = (job.text(), job.folder) if is_plain and job is first else ("$", "")
        if "$" in text:
            base = inside(dag.folder, node.folder)
            is_late = isinstance(first, LateJob)
            cluster, own = self.clusters.get(name, 0), self._own(name)
            around = Surroundings(
                own, base, self.nodes, self.done, dag.always_post, len(jobs), cluster, at_root=is_late
            )
            text, folder = command(node, jobs, around)
        return PlanTask(
            text,
            name=name,
            cores=0 if node.kind == "SERVICE" else job.cores,
            memory=job.memory,
            retries=0 if node.unless is not None or node.abort is not None else node.retries or job.retries,
            priority=node.priority or job.priority,
            final=node.kind == "FINAL",
            attributes=_attributes(node),
            cwd=folder,
            env={**self.environment, **job.environment} if is_plain and job.environment else self.environment,
            memo=node.kind not in ("FINAL", "SERVICE", "PROVISIONER") and (node.abort is None or node.abort[0] != 0),
            where=node.where,
        )

    # --- submit descriptions ----------------------------------------------------------------------------

    def _expander_if_there(self, node: DagNode, name: str, dag: Dag) -> Expander | None:
        """None: its submit description is read when the node is due."""
        submit = node.submit or dag.described.get(node.source)
        if submit is None:
            path = inside(inside(dag.folder, node.folder), node.source)
            submit = self.submits.get(path)
            if submit is None:
                waits = node.pre or node.post or node.kind == "FINAL" or node.name in self._parents(dag)
                submit = self._submit(path, node.where, may_come=bool(waits))
        if submit is None:
            return None
        expander = self.expander(node, name, dag, submit)
        if node.post is not None and not expander.names_a_program:
            if (told := f"{name} has no executable") not in submit.noted:
                submit.noted.add(told)
                self.note(f"{submit.file}: there is no executable; the POST script of {name} is told so, and decides")
            return None
        return expander

    def expander(self, node: DagNode, name: str, dag: Dag, submit: Submit | None = None) -> Expander:
        """What expands the submit description of a node."""
        base = inside(dag.folder, node.folder)
        submit = submit or node.submit or dag.described.get(node.source)
        if submit is None:
            submit = self._submit(inside(base, node.source), node.where, may_come=False)
            assert submit is not None
        cluster = str(self.clusters.get(name, 0))
        own = self._own(name)
        known = {**_KNOWN, "job": own, "node": own, "dag_node_name": own, "cluster": cluster, "clusterid": cluster}
        if node.retries:
            known["max_retries"] = str(node.retries)
        parents = self._parents(dag).get(node.name)
        if parents:
            known["dag_parent_names"] = ",".join(parents)

        def attributes() -> dict[str, Value]:
            return {
                "dagnodename": own,
                "dagparentnodenames": known["dag_parent_names"],
                "jobprio": node.priority,
                "clusterid": self.clusters.get(name, 0),
                "dagmanjobid": 0,
                "jobnotification": 0,
            }

        return Expander(
            submit,
            known,
            before=_filled(node.before, known) if node.before else {},
            after=_filled(node.macros, known) if node.macros else {},
            base=base,
            attributes=attributes,
            note=self.note,
        )

    def _parents(self, dag: Dag) -> dict[str, list[str]]:
        found = self.parents.get(id(dag))
        if found is None:
            found = self.parents[id(dag)] = {}
            for parents, children, _ in dag.edges:
                for child in children:
                    known = found.setdefault(child, [])
                    if len(known) < _MANY:
                        known += parents[:_MANY]
        return found

    def _submit(self, path: str, where: Where, *, may_come: bool) -> Submit | None:
        if path not in self.submits or (self.submits[path] is None and not may_come):
            if may_come and not os.path.exists(path):
                self.note(f"{where.file}:{where.line}: {path} is not there yet; it is read when the node is due")
                self.submits[path] = None
            else:
                lines = enumerate(read_text(path, where, "the submit description").split("\n"), start=1)
                self.submits[path] = parse(lines, path)
        return self.submits[path]

    # --- other DAGs -------------------------------------------------------------------------------------

    def _splice(self, node: DagNode, dag: Dag, place: _Place, files: tuple[str, ...]) -> _Entry:
        assert node.inner is not None
        group, inner, entries = self._inner(node, node.inner, place, files)
        place.far += inner.far
        return _Entry(
            [inner.path, *(task.name for task in inner.far)],
            [group.after, *(task.after for task in inner.far)],
            entries,
        )

    def _inner(
        self, node: DagNode, read: Dag, place: _Place, files: tuple[str, ...]
    ) -> tuple[PlanGroup, _Place, dict[str, _Entry]]:
        group = PlanGroup(_group_name(node.name), pipeline=False, where=node.where)
        inner = _Place(group, join(place.path, group.name), f"{place.prefix}{node.name}+")
        entries, _ = self.build(read, inner, files)
        place.group.groups.append(group)
        return group, inner, entries

    def _subdag(self, node: DagNode, dag: Dag, place: _Place, files: tuple[str, ...]) -> _Entry:
        """A sub-DAG as a group, or as a task that runs it when it is due."""
        name, folder = place.prefix + node.name, inside(dag.folder, node.folder)
        path = inside(folder, node.source)
        own = f"{os.path.splitext(os.path.basename(self.path))[0]}.{name.replace('+', '.').replace('/', '.')}"
        has_parents = node.name in self._parents(dag)
        late = node.noop or node.pre or is_judged(node) or self._limit(node, dag)
        late = late or os.path.isdir(inside(folder, os.path.join(".bough", own)))
        if not late and has_parents:
            late = not os.path.exists(path)
        read = None if late else self._read_subdag(node, path, folder, files)
        if read is None:
            text = f"bough run --quiet --reuse resume --name {shlex.quote(own)} {shlex.quote(node.source)}"
            task = self._scripted(node, name, dag, [_nothing(folder) if node.noop else text])
            task.cores = _cores_of(node)
            self._put(task, node, dag, place)
            return _Entry([task.name], [task.after])
        for known, _ in read.every_node():
            self.clusters[f"{name}+{known}"] = len(self.clusters) + 1
        outer, self.outer = self.outer, f"{name}+"
        group, inner, _ = self._inner(node, read, place, (*files, os.path.abspath(path)))
        self.outer = outer
        if node.priority:
            self._later(lambda: _prefer(group, node.priority))
        group.retries = node.retries
        group.attributes = {NODE_ATTRIBUTE: name}
        if has_parents:
            group.prologue.append(_unchanged(node, name, path))
        return _Entry(
            [inner.path, *(task.name for task in inner.far)], [group.after, *(task.after for task in inner.far)]
        )

    def _read_subdag(self, node: DagNode, path: str, folder: str, files: tuple[str, ...]) -> Dag | None:
        """The DAG of a file; None if it must be run as one of its own: it decides whether it succeeded, or asks."""
        real = os.path.abspath(path)
        self.dags += 1
        if len(files) > MOST_DEEP or self.dags > MOST_FILES:
            raise node.where.wrong(f"more than {MOST_DEEP} files contain each other, or there are too many of them")
        if real in files:
            names = " -> ".join(os.path.basename(file) for file in (*files[files.index(real) :], real))
            raise node.where.wrong(f"these files contain each other: {names}")
        read_text(path, node.where, "the DAG file")
        found = read_dag(path, folder, self.note)
        decides = any(
            inner.abort is not None or inner.kind in ("FINAL", "SERVICE", "PROVISIONER") or asks_for_the_dag(inner)
            for _, inner in found.every_node()
        )
        if decides or found.environment:
            if not folder and real not in self.checked:
                self.checked.add(real)
                self._check(path, found, (*files, real))
            return None
        return found

    def _check(self, path: str, dag: Dag, files: tuple[str, ...]) -> None:
        """Tell the mistakes of a sub-DAG that is run as one of its own; each file is looked at once."""
        root = Plan().root
        root.where = Where(path)
        checker = _Builder(root, lambda text: None, path)
        checker.checked, checker.dags = self.checked, self.dags
        checker.build_root(dag, files)
        self.dags = checker.dags

    # --- categories, order ------------------------------------------------------------------------------

    def _limit(self, node: DagNode, dag: Dag) -> int:
        return (self.shared if node.category.startswith("+") else dag.limits).get(node.category, 0)

    def _put(self, task: PlanTask, node: DagNode, dag: Dag, place: _Place) -> None:
        limit = self._limit(node, dag)
        if not limit:
            place.own.append(task)
            return
        shared = node.category.startswith("+")
        home, groups = (self.root, self.shared_groups) if shared else (place.group, place.categories)
        group = groups.get(node.category)
        if group is None:
            name = "category-" + _group_name(node.category.lstrip("+"))
            group = groups[node.category] = PlanGroup(name, pipeline=False, limit=limit, where=node.where)
            home.groups.append(group)
        group.tasks.append(task)
        if shared and place.group is not self.root:
            place.far.append(task)

    def _edges(self, parents: Sequence[_Entry], children: Sequence[_Entry]) -> None:
        references = list(dict.fromkeys(one for parent in parents for one in parent.references))
        if len(references) > 1 and len(children) > 1 and len(references) * len(children) > _MANY:
            self.joins += 1
            self.root.groups.append(PlanGroup(f"join-{self.joins}", after=references))
            references = [f"join-{self.joins}"]
        for child in children:
            for waits in child.waits:
                waits.extend(references)

    def _connect(self, dag: Dag, entries: dict[str, _Entry], out: str, into: str, where: Where) -> None:
        """CONNECT: what has pin N of one splice comes before what has pin N of the other."""
        found = []
        for name in (out, into):
            node = dag.find(name)
            if node is None or node.inner is None:
                raise where.wrong(f"CONNECT: there is no splice {name}")
            found.append(node.inner)
        pins_out, pins_in = found[0].pins_out, found[1].pins_in
        for name, pins in ((out, pins_out), (into, pins_in)):
            if sorted(pins) != list(range(1, len(pins) + 1)) or not pins:
                raise where.wrong(f"CONNECT: the pins of splice {name} are not numbered 1, 2, 3 and so on")
        if len(pins_out) != len(pins_in):
            raise where.wrong(f"CONNECT: splice {out} has {len(pins_out)} pins out, and {into} has {len(pins_in)} in")
        pinned = {name for names in pins_in.values() for name in names}
        waiting = {name for _, children, _ in found[1].edges for name in children}
        for name in found[1].nodes:
            if name not in pinned and name not in waiting and found[1].nodes[name].inner is None:
                raise where.wrong(f"CONNECT: node {name} of splice {into} waits for nothing and has no PIN_IN")
        for number, names in pins_out.items():
            before = [_find(entries, f"{out}+{name}") for name in names]
            after = [_find(entries, f"{into}+{name}") for name in pins_in[number]]
            self._edges([one for one in before if one is not None], [one for one in after if one is not None])

    def _final(self, task: PlanTask, dag: Dag, entries: dict[str, _Entry], place: _Place) -> None:
        if place.group is not self.root:
            place.group.epilogue.append(task)
            return
        for name, entry in entries.items():
            if dag.nodes[name].kind != "SERVICE":
                task.after += entry.references
        task.after = list(dict.fromkeys(task.after))
        place.own.append(task)

    def _settle(self, place: _Place) -> None:
        """Own tasks of a group wait for its subgroups, and nodes do not: beside subgroups they get one of their own."""
        if place.group is self.root or not place.group.groups:
            place.group.tasks += place.own
        elif place.own:
            place.group.groups.append(PlanGroup("nodes", tasks=place.own, pipeline=False, where=place.group.where))


_STOP = "stop-services"


def _entries(entries: dict[str, _Entry], names: list[str], where: Where) -> list[_Entry]:
    found = [entries[name] if name in entries else _find(entries, name) for name in names]
    return [one for one in found if one is not None]


def _filled(macros: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """VARS with what DAGMan itself fills in: $(JOB), $(RETRY) and so on; a macro that names itself means that, too."""
    return {key: _fill(key, value, known) if "$(" in value else value for key, value in macros.items()}


def _fill(key: str, value: str, known: Mapping[str, str]) -> str:
    for name in ("job", "node", "retry", "max_retries", "dag_status", "failed_count", "dag_parent_names"):
        value = value.replace(f"$({name.upper()})", known[name])
    own = known.get(key, "")
    at = value.lower().find(f"$({key})")
    while at >= 0:
        value = value[:at] + own + value[at + len(key) + 3 :]
        at = value.lower().find(f"$({key})", at + len(own))
    return value


def _attributes(node: DagNode) -> dict[str, str]:
    """The attributes of a task: VARS with a +."""
    some = (*node.before.items(), *node.macros.items()) if node.before or node.macros else ()
    return {key[1:]: value for key, value in some if key[0] == "+"}


def _group_name(name: str) -> str:
    """The name of a node as that of a group, which has no / and does not begin with a dot."""
    name = name.replace("/", "_")
    return f"_{name}" if name.startswith(".") else name


def _cores_of(node: DagNode) -> float:
    """The cores for all nodes of a late sub-DAG together: VARS NODE request_cpus="4"."""
    said = node.macros.get("request_cpus") or node.before.get("request_cpus") or "1"
    if not (said.isdecimal() and said.isascii() and len(said) <= _DIGITS and int(said)):
        raise node.where.wrong(f"request_cpus={said!r:.60}: give the number of cores that {node.name} may use")
    return int(said)


def _prefer(group: PlanGroup, priority: int) -> None:
    """Add the priority of a sub-DAG to those of its nodes."""
    for task in group.all_tasks():
        task.priority += priority
    for inner in group.groups:
        _prefer(inner, priority)


def _unchanged(node: DagNode, name: str, path: str) -> PlanTask:
    """A check that no earlier node has written the file of a sub-DAG anew since it was read."""
    digest = hashlib.sha256(read_file(path)).hexdigest()
    told = f"{path} was written anew after it had been read; remove it and run again, and it is read when {name} is due"
    line = shlex.quote(f"{digest}  {path}")
    return PlanTask(
        f"echo {line} | sha256sum --check --status - || {{ echo {shlex.quote(told)} >&2; exit 1; }}",
        name=f"{name}.unchanged",
        memo=False,
        where=node.where,
    )


def _nothing(folder: str = "") -> SubmitJob:
    return SubmitJob(["true"], folder, {})
