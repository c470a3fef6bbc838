"""DAGMan files as plans: `bough run my.dag` runs what `condor_submit_dag my.dag` would have submitted.

A node is a task, a splice or a sub-DAG a group, and a category with MAXJOBS a group with a limit. Paths mean what they
mean to `condor_submit_dag`: relative to where it is called, or to DIR. Nodes that an earlier run has done are not run
again, as with a rescue DAG.

A node is one command: its PRE script, its job and its POST script. A retry of a node runs all three again, which is
what an attempt of a task does. What ran last decides (HTCondor manual, "Node Success/Failure"): a PRE script that fails
ends the node, a POST script overrules the job. A node without scripts is the plain command of its job.
Rule: every mistake is told with file and line before anything is submitted.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bough.describe.dagman.dag_file import MOST_FILES, Dag, DagNode, DagScript, inside, read_dag, read_text
from bough.describe.dagman.submit_description import RETRY, Expander, Submit, SubmitJob, parse, quote
from bough.describe.plan import MOST_DEEP, Plan, PlanGroup, PlanTask, Where, join, without_gc

_UNKNOWN = ("$DAG_STATUS", "$FAILED_COUNT", "$DAGID")
_ATTEMPT = "retry=$((${BOUGH_ATTEMPT:-1} - 1))"


def command(node: DagNode, name: str, job: SubmitJob, base: str) -> tuple[str, str]:
    """The text of a node's command, and the folder where it runs."""
    text = "true" if node.noop else job.text()
    if node.pre is None and node.post is None and node.unless is None:
        return (f"{_ATTEMPT}; {text}" if "$retry" in text else text), job.folder
    if job.folder != base:
        text = f"cd {shlex.quote(job.folder)} && {text}"
    lines = []
    if node.pre is not None:
        lines.append(f"pre=0; {_script(node.pre, node, name)} || pre=$?")
        if node.skip:
            lines.append(f"if [ $pre = {node.skip} ]; then exit 0; fi")
        lines.append("if [ $pre != 0 ]; then exit $pre; fi")
    elif node.post is not None:
        lines.append("pre=0")
    if node.post is None:
        lines.append(f"( {text} )")
    else:
        lines.append(f"status=0; ( {text} ) || status=$?")
        lines.append("if [ $status -gt 128 ]; then status=$((128 - status)); fi")  # it was ended by a signal
        lines.append(_script(node.post, node, name))
    body = "; ".join(lines)
    if node.unless is None:
        return (f"{_ATTEMPT}; {body}" if "$retry" in body else body), base
    return (
        f"for ((retry = 0; retry <= {node.retries}; retry++)); do code=0; ( {body} ) || code=$?; "
        f"if [ $code = 0 ] || [ $code = {node.unless} ]; then exit $code; fi; done; exit $code"
    ), base


def _script(script: DagScript, node: DagNode, name: str) -> str:
    values = {
        "$JOB": quote(name),
        "$RETRY": '"$retry"',
        "$MAX_RETRIES": str(node.retries),
        "$RETURN": '"$status"',
        "$PRE_SCRIPT_RETURN": '"$pre"',
        "$JOBID": '"$BOUGH_TASK"',
    }
    words = [quote(script.words[0])]
    for word in script.words[1:]:
        if word.upper() in _UNKNOWN:
            raise script.where.wrong(f"{word} is not known to a script here; it knows {', '.join(values)}")
        words.append(values.get(word.upper()) or quote(word))
    return " ".join(words)


_ZEROS = dict.fromkeys(("cluster", "clusterid", "dag_status", "failed_count"), "0")  # what HTCondor would fill in
MOST_NODES = 2_000_000  # of one workflow
_MANY = 64  # dependencies of one line: more than this, and a group stands between


def read(path: str, note: Callable[[str], None] = lambda text: None) -> Plan:
    """Read a DAGMan file; `note` is told what was passed over."""
    plan = Plan(source=path)
    plan.root.where = Where(path)
    builder = _Builder(plan.root, note)
    with without_gc():
        dag = read_dag(path, "", note)
        builder.shared = {name: limit for name, limit in dag.limits.items() if name.startswith("+")}
        builder.build(dag, _Place(plan.root), (os.path.abspath(path),))
    return plan


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


class _Builder:
    def __init__(self, root: PlanGroup, note: Callable[[str], None]) -> None:
        self.root = root
        self.note = note
        self.shared: dict[str, int] = {}  # limits of categories that hold for splices too
        self.shared_groups: dict[str, PlanGroup] = {}
        self.submits: dict[str, Submit] = {}
        self.joins = 0
        self.jobs: dict[tuple[str, str], SubmitJob] = {}  # of descriptions without macros, by file and folder
        self.dags = 0
        self.tasks = 0

    def build(self, dag: Dag, place: _Place, files: tuple[str, ...]) -> None:
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
            else:
                entries[node.name] = self._job(node, dag, place)
        for parents, children, _ in dag.edges:
            self._edges([entries[name] for name in parents], [entries[name] for name in children])
        if final is not None:
            self._final(final, dag, entries, place)
        self._settle(place)

    def _count(self, more: int, where: Where) -> None:
        """A few lines can stand for any number of nodes: splices of splices, and queues."""
        self.tasks += more
        if self.tasks > MOST_NODES:
            raise where.wrong(f"that makes {self.tasks} nodes; a workflow has at most {MOST_NODES}")

    # --- nodes ------------------------------------------------------------------------------------------

    def _job(self, node: DagNode, dag: Dag, place: _Place) -> _Entry:
        name = place.prefix + node.name
        expander = None if node.noop else self._expander(node, name, dag)
        count = 1 if expander is None or expander.submit.queue == "1" else expander.count()
        if count == 1:
            task = self._task(node, name, dag, expander)
            self._put(task, node, dag, place)
            return _Entry([task.name], [task.after])
        if node.post is not None or node.unless is not None:
            what = "a POST script" if node.post is not None else "UNLESS-EXIT"
            raise node.where.wrong(f"{node.name} queues {count} jobs and has {what}, which must judge one; queue 1")
        self._count(count, node.where)
        group = PlanGroup(node.name, pipeline=False, retries=node.retries, where=node.where)
        for process in range(count):
            task = self._task(node, name, dag, self._expander(node, name, dag, process), alone=False)
            task.name = f"{name}.{process}"
            task.retries = 0
            group.tasks.append(task)
        if node.pre is not None:
            pre = DagNode(node.name, "JOB", "", node.where, node.folder, noop=True, pre=node.pre)
            group.prologue.append(self._scripted(pre, name, inside(dag.folder, node.folder), _nothing()))
        group.limit = self._limit(node, dag)
        place.group.groups.append(group)
        return _Entry([join(place.path, node.name)], [group.after])

    def _task(
        self, node: DagNode, name: str, dag: Dag, expander: Expander | None = None, *, alone: bool = True
    ) -> PlanTask:
        base = inside(dag.folder, node.folder)
        if node.noop:
            return self._scripted(node, name, base, _nothing(base))
        expander = expander or self._expander(node, name, dag)
        key = (expander.submit.file, base)
        plain = not node.macros and key in self.jobs
        job = self.jobs[key] if plain else expander.job()
        if not plain and node.submit is None and not any("$" in value for value, _ in expander.submit.values.values()):
            self.jobs[key] = job
        if not alone:
            node = DagNode(node.name, "JOB", "", node.where, node.folder, priority=node.priority, macros=node.macros)
        return self._scripted(node, name, base, job)

    def _scripted(self, node: DagNode, name: str, base: str, job: SubmitJob) -> PlanTask:
        text, folder = command(node, name, job, base)
        return PlanTask(
            text,
            name=name,
            cores=job.cores,
            memory=job.memory,
            retries=0 if node.unless is not None else node.retries or job.retries,
            priority=node.priority or job.priority,
            final=node.kind == "FINAL",
            attributes={key[1:]: value for key, value in node.macros.items() if key[0] == "+"},
            cwd=folder,
            env=job.environment,
            memo=node.kind != "FINAL",
            where=node.where,
        )

    def _expander(self, node: DagNode, name: str, dag: Dag, process: int = 0) -> Expander:
        base = inside(dag.folder, node.folder)
        submit = node.submit or dag.described.get(node.source) or self._submit(inside(base, node.source), node.where)
        number = str(process)
        own = {"job": name, "node": name, "retry": RETRY, "process": number, "procid": number} | _ZEROS
        return Expander(submit, own | node.macros, base=base)

    def _submit(self, path: str, where: Where) -> Submit:
        found = self.submits.get(path)
        if found is None:
            lines = enumerate(read_text(path, where, "the submit description").split("\n"), start=1)
            found = self.submits[path] = parse(lines, path)
        return found

    # --- other DAGs -------------------------------------------------------------------------------------

    def _splice(self, node: DagNode, dag: Dag, place: _Place, files: tuple[str, ...]) -> _Entry:
        group, inner = self._inner(node, dag, place, files)
        place.far += inner.far
        return _Entry(
            [inner.path, *(task.name for task in inner.far)], [group.after, *(task.after for task in inner.far)]
        )

    def _inner(self, node: DagNode, dag: Dag, place: _Place, files: tuple[str, ...]) -> tuple[PlanGroup, _Place]:
        folder = inside(dag.folder, node.folder)
        path = inside(folder, node.source)
        real = os.path.abspath(path)
        self.dags += 1
        if len(files) > MOST_DEEP or self.dags > MOST_FILES:
            raise node.where.wrong(f"more than {MOST_DEEP} files contain each other, or there are too many of them")
        if real in files:
            names = " -> ".join(os.path.basename(file) for file in (*files[files.index(real) :], real))
            raise node.where.wrong(f"these files contain each other: {names}")
        read_text(path, node.where, "the DAG file")
        group = PlanGroup(node.name, pipeline=False, where=node.where)
        inner = _Place(group, join(place.path, node.name), f"{place.prefix}{node.name}+")
        self.build(read_dag(path, folder, self.note), inner, (*files, real))
        place.group.groups.append(group)
        return group, inner

    def _subdag(self, node: DagNode, dag: Dag, place: _Place, files: tuple[str, ...]) -> _Entry:
        """A sub-DAG as a group; one that has scripts, or that a node before it makes, as a task that runs it."""
        folder = inside(dag.folder, node.folder)
        alone = node.noop or node.pre or node.post or node.unless is not None
        if not alone and not os.path.exists(inside(folder, node.source)):
            alone = any(node.name in children for _, children, _ in dag.edges)
        if alone:
            name = place.prefix + node.name
            job = SubmitJob(["bough", "run", "--quiet", "--name", name.replace("+", "."), node.source], folder, {})
            task = self._scripted(node, name, folder, job)
            self._put(task, node, dag, place)
            return _Entry([task.name], [task.after])
        group, inner = self._inner(node, dag, place, files)
        group.retries = node.retries
        return _Entry(
            [inner.path, *(task.name for task in inner.far)], [group.after, *(task.after for task in inner.far)]
        )

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
            name = "category-" + node.category.lstrip("+")
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

    def _final(self, task: PlanTask, dag: Dag, entries: dict[str, _Entry], place: _Place) -> None:
        if place.group is not self.root:
            place.group.epilogue.append(task)
            return
        parents = {name for names, _, _ in dag.edges for name in names}
        task.after += [one for name, entry in entries.items() if name not in parents for one in entry.references]
        place.own.append(task)

    def _settle(self, place: _Place) -> None:
        """Own tasks of a group wait for its subgroups, and nodes do not: beside subgroups they get one of their own."""
        if place.group is self.root or not place.group.groups:
            place.group.tasks += place.own
        elif place.own:
            place.group.groups.append(PlanGroup("nodes", tasks=place.own, pipeline=False, where=place.group.where))


def _nothing(folder: str = "") -> SubmitJob:
    return SubmitJob(["true"], folder, {})
