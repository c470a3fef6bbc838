"""How far a description reaches, stage by stage, for analysis and for tests against the original system.

TrellisDAG (Goldenberg 2003) expands what a user declares (E0) into targets of a Makefile (E1), one row of its table
`Before` per edge of those (E2), dependencies between jobs (E3) and, in thought, all pairs (E4). Bough itself needs no
targets and no empty jobs: `steps` says what it submits. Rule: the numbers here are those of the original, which
follow the order in which `make` reaches the targets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple

from bough.describe.plan import Index, Plan, PlanGroup, PlanTask
from bough.errors import InvalidWorkload

PROLOGUE = "_prologue"


class ExpandedRule(NamedTuple):
    """A target of the Makefile: a group, or the prologue of one."""

    name: str
    needs: tuple[str, ...]  # other targets
    order: tuple[str, ...]  # other targets, in which are the tasks it waits for
    tasks: tuple[PlanTask, ...]
    group: PlanGroup
    is_prologue: bool = False
    is_loose: bool = False  # a task outside of groups


class ExpandedTarget(NamedTuple):
    """A target with its number; that of a group without commands has one empty job all the same."""

    id: int
    name: str
    level: int  # 0: the highest
    before: tuple[int, ...]  # targets it waits for
    jobs: tuple[int, ...]
    tasks: tuple[PlanTask, ...]


class ExpandedJob(NamedTuple):
    """A row of the table of jobs."""

    id: int
    target: int
    command: str  # empty: it does nothing


def target_names(plan: Plan) -> dict[int, str]:
    """What groups, and tasks outside of groups, are called as targets, by their identity.

    That is their name where it is unique, else the path of the group.
    """
    often = Counter(group.name for _, group in plan.walk())
    often.update(task.name for task in plan.root.tasks)
    found = {id(group): group.name if often[group.name] == 1 else path for path, group in plan.walk()}
    free = (name for number in count(1) if (name := f"task_{number}") not in often)
    found.update((id(task), task.name if often[task.name] == 1 else next(free)) for task in plan.root.tasks)
    return found


def _targets_of(
    references: Iterable[str], index: Index, names: dict[int, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The targets that references of a plan mean, and those of groups in which there are tasks that they mean."""
    others = [index.find(reference) for reference in references]
    needs = dict.fromkeys(names[id(other)] for other in others if id(other) in names)
    order = dict.fromkeys(names[id(index.home[id(other)])] for other in others if id(other) not in names)
    return tuple(needs), tuple(name for name in order if name not in needs)


def rules(plan: Plan) -> list[ExpandedRule]:
    """E1: a rule for every group and for every prologue, in the order of the description."""
    index, names = Index(plan), target_names(plan)
    found: list[ExpandedRule] = []
    for path, group in plan.walk():
        if path:
            found += _rules_of(group, index, names)
    for task in plan.root.tasks:
        needs, order = _targets_of(task.after, index, names)
        found.append(ExpandedRule(names[id(task)], needs, order, (task,), plan.root, is_loose=True))
    return found


def _rules_of(group: PlanGroup, index: Index, names: dict[int, str]) -> Iterator[ExpandedRule]:
    name = names[id(group)]
    above = index.above[id(group)]
    own = f"{name}{PROLOGUE}"
    inner = tuple(names[id(one)] for one in group.groups) or (own,)  # R1, R2; a group of a higher level may be empty
    tasks = (*group.tasks, *group.epilogue)
    later = _order(name, inner, tasks, index, names)
    yield ExpandedRule(name, inner, later, tasks, group)
    needs, order = _targets_of(group.after, index, names)
    has_sibling = any(index.above.get(id(index.find(reference))) is above for reference in group.after)
    if not has_sibling and id(above) in index.above:  # R4, else R3
        needs = (*needs, f"{names[id(above)]}{PROLOGUE}")
    order = tuple(dict.fromkeys((*order, *_order(name, needs, group.prologue, index, names))))
    yield ExpandedRule(own, needs, order, tuple(group.prologue), group, is_prologue=True)


def _order(
    name: str, needs: Iterable[str], tasks: Iterable[PlanTask], index: Index, names: dict[int, str]
) -> tuple[str, ...]:
    """The targets that tasks of a rule wait for, besides what the rule needs."""
    wanted = [one for task in tasks for some in _targets_of(task.after, index, names) for one in some]
    return tuple(one for one in dict.fromkeys(wanted) if one not in needs and one != name)


def targets(plan: Plan) -> list[ExpandedTarget]:
    """E2: the targets with their numbers, in the order in which `make all` reaches them."""
    by_name = {rule.name: rule for rule in rules(plan)}
    names = target_names(plan)
    depth = {level: number for number, level in enumerate(plan.levels)}
    ids: dict[str, int] = {}
    found: list[ExpandedTarget] = []
    job = 0
    first = [names[id(one)] for some in (plan.root.groups, plan.root.tasks) for one in some]
    for name in _post_order(by_name, first):
        rule = by_name[name]
        ids[name] = len(found) + 1
        jobs = tuple(range(job + 1, job + 1 + (len(rule.tasks) or 1)))
        job = jobs[-1]
        before = tuple(ids[other] for other in (*rule.needs, *rule.order))
        found.append(ExpandedTarget(ids[name], name, depth.get(rule.group.level, 0), before, jobs, rule.tasks))
    return found


def _post_order(by_name: dict[str, ExpandedRule], first: list[str]) -> Iterator[str]:
    seen: set[str] = set()
    open_: set[str] = set()
    for root in first:
        if root in seen:
            continue
        seen.add(root)
        open_.add(root)
        stack = [(root, _reached(by_name[root]))]
        while stack:
            name, later = stack[-1]
            following = next(later, None)
            if following is None:
                stack.pop()
                open_.discard(name)
                yield name
            elif following in open_:
                raise InvalidWorkload(f"{following} waits for itself, by way of {name}")
            elif following not in seen:
                seen.add(following)
                open_.add(following)
                stack.append((following, _reached(by_name[following])))


def _reached(rule: ExpandedRule) -> Iterator[str]:
    return iter((*rule.needs, *rule.order))


def jobs(found: list[ExpandedTarget]) -> list[ExpandedJob]:
    """The table of jobs, empty ones included."""
    return [
        ExpandedJob(number, target.id, target.tasks[at].command if target.tasks else "")
        for target in found
        for at, number in enumerate(target.jobs)
    ]


def before_rows(found: list[ExpandedTarget]) -> list[tuple[int, int]]:
    """The table `Before`: (the target that is waited for, the target that waits)."""
    return [(other, target.id) for target in found for other in target.before]


# --- edges between groups ---------------------------------------------------------------------------------


def declared_edges(plan: Plan) -> list[tuple[str, str]]:
    """E0: (path of the group that is waited for, path of the group that waits)."""
    return [(other, path) for path, group in plan.walk() for other in group.after]


def reduced(edges: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The edges that no chain of others stands for (the transitive reduction)."""
    ahead: dict[str, list[str]] = {}
    for before, after in edges:
        ahead.setdefault(before, []).append(after)
    reach: dict[str, frozenset[str]] = {}

    def reached(node: str) -> frozenset[str]:
        stack = [node]
        while stack:
            top = stack[-1]
            missing = [other for other in ahead.get(top, ()) if other not in reach]
            if missing:
                stack += missing
                continue
            stack.pop()
            reach[top] = frozenset(ahead.get(top, ())).union(*(reach[other] for other in ahead.get(top, ())))
        return reach[node]

    return [
        (before, after)
        for before, after in edges
        if not any(after in reached(other) for other in ahead[before] if other != after)
    ]
