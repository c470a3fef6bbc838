"""Plans of any shape at the real core: a task may start exactly when all that the plan puts before it has ended."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bough.describe import formats
from bough.describe.formats import Source
from bough.describe.plan import Plan, PlanGroup, PlanTask, join, tidy
from bough.describe.steps import Step, What, steps
from bough.model.events.news import GroupClosed
from bough.model.ids import GroupId
from bough.model.tasks import Dep, GroupSpec, On
from bough.testing.builders import task
from tests.unit.core.core_bench import Bench

Names = dict[int, str]  # of tasks, by number


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Trees of groups, in which groups and tasks wait for groups that come before them in the walk."""
    count = iter(range(1000))
    places: list[tuple[str, PlanGroup]] = []

    def tasks(most: int) -> list[PlanTask]:
        return [PlanTask(f"t{next(count)}") for _ in range(draw(st.integers(0, most)))]

    def groups(path: str, depth: int) -> list[PlanGroup]:
        found = []
        for number in range(draw(st.integers(0, 3 if depth < 2 else 0))):
            barrier = draw(st.booleans()) or draw(st.booleans())
            one = PlanGroup(f"g{number}", pipeline=draw(st.booleans()), barrier=barrier)
            where = join(path, one.name)
            before = [other for other, _ in places if not where.startswith(f"{other}/")]
            if before and draw(st.booleans()):
                one.after = draw(st.lists(st.sampled_from(before), max_size=2, unique=True))
                one.match = barrier and draw(st.booleans())
            one.prologue = tasks(2) if barrier else []
            one.groups = groups(where, depth + 1)
            one.tasks = tasks(3)
            one.epilogue = tasks(2) if barrier else []
            places.append((where, one))
            found.append(one)
        return found

    plan = Plan()
    plan.root.groups = groups("", 0)
    plan.root.tasks = tasks(2)
    paths = [path for path, _ in places]
    for one in plan.root.tasks:
        if paths and draw(st.booleans()):
            one.after = [draw(st.sampled_from(paths))]
    return plan


class Meaning:
    """What must have ended before each task, straight from what a plan means: all pairs, nothing shared."""

    def __init__(self, plan: Plan) -> None:
        self.groups = dict(plan.walk())
        self.before: dict[str, set[str]] = {}
        self.gates: dict[str, set[str]] = {}  # what each group waits for; one that is empty ends with that
        self._visit("", plan.root, set(), [])

    def _all(self, path: str) -> set[str]:
        inside = {other: one for other, one in self.groups.items() if other == path or other.startswith(f"{path}/")}
        empty = [other for other, one in inside.items() if not one.groups and not list(one.all_tasks())]
        found = {task.command for one in inside.values() for task in one.all_tasks()}
        return found.union(*(self.gates[other] for other in empty))

    def _named(self, references: list[str]) -> set[str]:
        return {name for reference in references for name in self._all(reference)}

    def _visit(self, path: str, group: PlanGroup, above: set[str], matched: list[str]) -> None:
        """`above`: what everything in the group waits for; `matched`: groups whose namesakes it waits for."""
        namesakes = [join(other, group.name) if join(other, group.name) in self.groups else other for other in matched]
        wanted = [*group.after, *namesakes] if group.barrier else []
        gate = above if group.match else above | self._named(wanted)
        self.gates[path] = gate
        whole = above | self._named(wanted)
        ready = self._chain(group.prologue, whole)
        ready = ready if group.prologue else gate
        inner = ready | gate
        for one in group.groups:
            self._visit(join(path, one.name), one, inner, wanted if group.match else [])
        own = whole | ready
        if group.barrier and path:
            own |= {name for one in group.groups for name in self._all(join(path, one.name))}
        if group.pipeline:
            done = self._chain(group.tasks, own)
        else:
            done = set(own)
            for task_ in group.tasks:
                self.before[task_.command] = own | self._named(task_.after)
                done.add(task_.command)
        self._chain(group.epilogue, done)

    def _chain(self, tasks: list[PlanTask], before: set[str]) -> set[str]:
        for one in tasks:
            self.before[one.command] = before | self._named(one.after)
            before = {*before, one.command}
        return before


def put(bench: Bench, lowered: list[Step]) -> Names:
    """Submit steps to the core."""
    names: Names = {}
    for step in lowered:
        deps = tuple(Dep(On(int(on)), number) for on, number in step.waits)
        if step.what is What.OPEN:
            bench.submit(GroupSpec(GroupId(step.number), step.name, GroupId(step.group), deps))
        elif step.what is What.CLOSE:
            bench.tell(GroupClosed(GroupId(step.number)))
        else:
            assert step.task is not None
            names[step.number] = step.task.command
            bench.submit(task(step.number, *deps, group=step.group))
    return names


@settings(max_examples=30, deadline=None)
@given(plans(), st.randoms(use_true_random=False))
def test_tasks_start_exactly_when_all_before_them_has_ended(plan: Plan, dice: object) -> None:
    meaning = Meaning(plan).before
    bench = Bench(1000)
    names = put(bench, steps(plan))
    assert set(names.values()) == set(meaning)
    ended: set[str] = set()
    while len(ended) < len(names):
        placed = {number for number in names if bench.state(number) == "placed"}
        may = {number for number, name in names.items() if name not in ended and meaning[name] <= ended}
        assert placed == may
        chosen = dice.choice(sorted(placed))  # type: ignore[attr-defined]
        bench.end(chosen)
        ended.add(names[chosen])
    assert all(group.finished for group in bench.machine.state.groups.values() if group.id)


@settings(max_examples=60, deadline=None)
@given(plans())
def test_plans_of_any_shape_come_back_from_every_form(plan: Plan) -> None:
    for form, path in (("flat", "w.txt"), ("make", "w.make"), ("json", "w.json")):
        source = Source(path, formats.write(plan, form))
        again = formats.read(source, formats.find_reader(source) or formats.FLAT)
        assert tidy(again) == tidy(plan)


@settings(max_examples=60, deadline=None)
@given(plans())
def test_dependencies_are_no_more_than_groups_tasks_and_references(plan: Plan) -> None:
    lowered = steps(plan)
    said = sum(len(one.after) for _, one in plan.walk())
    within = sum(len(group.groups) for _, group in plan.walk())
    most = 3 * len(lowered) + 4 * said + 3 * within
    assert sum(len(step.waits) for step in lowered) <= most
