"""The acceptance list of TrellisDAG, as far as it is about descriptions and schedules: each test names its item.

Descriptions are read by our readers, lowered, submitted to the real core and run there on simulated hosts; so these
figures test all of that together. Source of the figures: M. Goldenberg, TrellisDAG, M.Sc. thesis, University of
Alberta 2003, and what follows from its tables.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from bough.core.machine import Machine
from bough.describe import formats
from bough.describe.formats import Source
from bough.describe.plan import Plan, tidy
from bough.describe.trellisdag.description_script import read_script
from bough.describe.trellisdag.expansion import before_rows, declared_edges, jobs, reduced, targets
from bough.model.events.facts import Submitted
from bough.model.sites.resources import Needs
from bough.model.tasks import GroupSpec, TaskSpec
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Place, Policies, ReadyWork, View
from bough.policy.list_scheduling import in_order
from bough.sim.checkers_workload import lengths_of
from bough.sim.platforms.simulated_executor import ExecutorTraits, Fate, SimulatedExecutor
from bough.sim.schedule import Interval, degrees, intervals
from bough.sim.simulation import Simulation
from bough.sim.studies.trellisdag import makespan, replay
from bough.sim.studies.trellisdag_workloads import PLAIN_TIMES, SUPER_TIMES, Kings, Times
from tests.unit.describe.described_items import Described
from tests.unit.describe.description_scripts import (
    KINGS,
    KINGS_VIEW,
    RUNNING_EXAMPLE,
    SURVEY,
    TWO_LEVELS,
    WAVE,
    described,
)

CHECKERS = Path(__file__).parents[3] / "examples" / "checkers"
EXAMPLES = [(RUNNING_EXAMPLE, ()), (TWO_LEVELS, (4,)), (KINGS, ("pieces",)), (WAVE, (3,)), (SURVEY, (2, 3))]
Lengths = Callable[[str], float]  # of a command


def run_times(times: dict[Kings, Times]) -> Lengths:
    """How long the commands of the medium workload took."""

    def length(command: str) -> float:
        what, black, white, *_ = command.split()
        found = times[int(black), int(white)]
        return found.run if what == "./run" else found.ver

    return length


class Ran:
    """A description that was run."""

    def __init__(self, plan: Plan, length: Lengths, hosts: int = 0) -> None:
        self._described = Described(plan)
        commands = self._described.commands
        self.intervals = replay(self._described.items, {one: length(text) for one, text in commands.items()}, hosts)
        self.makespan = makespan(self.intervals)
        self.by_command = {commands[one.record]: one for one in self.intervals.values()}

    def computing(self) -> list[Interval]:
        return [one for command, one in self.by_command.items() if "run" in command]


# --- item 2: the running example -------------------------------------------------------------------------------


def through(plan: Plan, form: str, path: str) -> Plan:
    """A plan that was written in a form and read again."""
    source = Source(path, formats.write(plan, form))
    return formats.read(source, formats.find_reader(source) or formats.FLAT)


@pytest.mark.parametrize(("script", "args"), EXAMPLES)
def test_item_2_every_form_yields_the_same_job_graph(script: str, args: tuple[object, ...]) -> None:
    plan = described(script, *args)
    expected = targets(plan)
    makefile = through(plan, "make", "w.make")
    flat = through(makefile, "flat", "w.txt")
    json = through(flat, "json", "w.json")
    for other in (makefile, flat, json):
        assert tidy(other) == tidy(plan)
        found = targets(other)
        assert [(one.id, one.name, one.level) for one in found] == [(one.id, one.name, one.level) for one in expected]
        assert before_rows(found) == before_rows(expected)
        assert jobs(found) == jobs(expected)


def test_item_2_the_calls_of_mqsub_make_the_targets_jobs_and_edges_of_the_description() -> None:
    """A script of calls knows no levels and no subgroups: targets are groups there, prologues too."""
    plan = described(RUNNING_EXAMPLE)
    edges = {(one.removesuffix("_prologue"), other) for one, other in declared_edges(through(plan, "mqsub", "w.sh"))}
    across = {pair for pair in edges if pair[0] != pair[1].removesuffix("_prologue")}
    assert {(one, other.removesuffix("_prologue")) for one, other in across} == set(declared_edges(plan))
    assert (len(across), len(reduced(declared_edges(plan)))) == (47, 35)


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make: apt-get install make")
@pytest.mark.parametrize(("script", "args"), EXAMPLES)
def test_item_2_make_n_flattens_to_the_order_of_our_numbers(
    script: str, args: tuple[object, ...], tmp_path: Path
) -> None:
    plan = described(script, *args)
    (tmp_path / "M").write_text(formats.write(plan, "make"))
    words = ["make", "--no-print-directory", "-n", "-f", "M"]
    shown = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    real = [line for line in shown.stdout.splitlines() if line not in {"echo", "true", ":"}]
    assert real == [job.command for job in jobs(targets(plan)) if job.command]
    assert real == list(Described(plan).commands.values())
    flat = formats.write(plan, "flat")
    assert [line.rpartition(":: ")[2] for line in flat.splitlines() if ":: " in line] == real


# --- items 3 and 4: the medium workload ------------------------------------------------------------------------

MEDIUM = [((), PLAIN_TIMES, 3988.84), (("pieces",), SUPER_TIMES, 4002.35)]


@pytest.mark.parametrize(("args", "times", "seconds"), MEDIUM)
def test_item_3_the_minimal_schedule_of_the_description_and_five_hosts_without_overhead_are_equal(
    args: tuple[str, ...], times: dict[Kings, Times], seconds: float
) -> None:
    plan, length = described(KINGS, *args), run_times(times)
    unlimited, five = Ran(plan, length), Ran(plan, length, 5)
    assert round(unlimited.makespan, 2) == round(five.makespan, 2) == seconds
    assert {one.record: one.start for one in five.intervals.values()} == {
        one.record: one.start for one in unlimited.intervals.values()
    }


def test_item_4_on_five_hosts_6100_comes_half_as_late_again_with_supergroups_and_not_if_they_only_show() -> None:
    alone = Ran(described(KINGS), run_times(PLAIN_TIMES), 5)
    barred = Ran(described(KINGS, "pieces"), run_times(SUPER_TIMES), 5)
    shown = Ran(described(KINGS_VIEW), run_times(SUPER_TIMES), 5)
    first, second = alone.by_command["./run 6 1 0 0 0 0"].end, barred.by_command["./run 6 1 0 0 0 0"].end
    assert (round(first, 2), round(second, 2)) == (251.22, 399.87)
    assert second > 1.5 * first
    assert shown.by_command["./run 6 1"].end < 1.01 * first
    assert round(shown.makespan, 2) == round(Ran(described(KINGS), run_times(SUPER_TIMES)).makespan, 2)


@pytest.mark.parametrize(("args", "times", "seconds"), MEDIUM)
def test_item_4_a_delay_of_a_second_before_every_task_costs_less_than_a_percent(
    args: tuple[str, ...], times: dict[Kings, Times], seconds: float
) -> None:
    pure = run_times(times)
    late = Ran(described(KINGS, *args), lambda command: pure(command) + 1.0, 5)
    assert seconds < late.makespan < 1.01 * seconds


# --- item 6: four against three --------------------------------------------------------------------------------


def part_times(command: str) -> float:
    what, *numbers = command.split()
    run, ver = lengths_of(tuple(map(int, numbers)))  # type: ignore[arg-type]
    return run if what == "run" else ver


@pytest.fixture(scope="module")
def large() -> Plan:
    text = (CHECKERS / "checkers.py").read_text()
    text = text.replace('"./solve run"', '"run"').replace('"./solve ver"', '"ver"')
    return read_script(text, str(CHECKERS / "checkers.py"), ["4", "3"])


def test_item_6_the_description_has_20_slices_638_groups_1276_tasks_and_31_and_1050_edges(large: Plan) -> None:
    levels = [group.level for path, group in large.walk() if path]
    assert [levels.count(level) for level in ("Slice", "Rank")] == [20, 638]
    assert large.task_count == 1276
    after = [pair[1].rpartition("/")[2].partition("_")[0] for pair in declared_edges(large)]
    assert (after.count("Slice"), after.count("Rank")) == (31, 1050)


def test_item_6_at_most_22_computations_go_on_at_once_and_18_hosts_are_hardly_slower_than_any_number(
    large: Plan,
) -> None:
    unlimited, eighteen = Ran(large, part_times), Ran(large, part_times, 18)
    assert round(unlimited.makespan) == 32362
    assert max(degrees(unlimited.computing())) <= 22
    assert eighteen.makespan <= 1.015 * unlimited.makespan
    assert max(degrees(eighteen.intervals.values())) <= 18


# --- motivating examples, and the one function that chooses ----------------------------------------------------


class Longest:
    """Longest first, by an attribute of the user's own."""

    def rank(self, work: ReadyWork, /) -> float:
        return -float(work.attributes["est"])

    def place(self, view: View, /) -> Iterable[Place]:
        return in_order(view)


THREE = "group=a attr.est=10 :: ./job 10\ngroup=b attr.est=20 :: ./job 20\ngroup=c attr.est=40 :: ./job 40\n"


@pytest.mark.parametrize(("policy", "seconds"), [(Fifo(), 50.0), (Longest(), 40.0)])
def test_the_policy_hook_sees_attributes_so_that_three_jobs_take_50_s_in_order_and_40_s_longest_first(
    policy: Fifo | Longest, seconds: float
) -> None:
    source = Source("three.txt", THREE)
    made = Described(formats.read(source, formats.find_reader(source) or formats.FLAT))

    def model(spec: object, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        assert isinstance(spec, TaskSpec)
        return Fate(float(spec.name.split()[1]))

    simulation = Simulation(Machine(Policies(policy)), model, [SimulatedExecutor(n, Needs(cores=1)) for n in (1, 2)])  # type: ignore[arg-type]
    simulation.at(0.0, Submitted(made.items), *made.closed)
    simulation.run()
    assert makespan(intervals(simulation)) == seconds


def test_what_may_go_on_at_once_does_and_stages_wait_for_all_of_the_one_before() -> None:
    text = (
        "group=one :: ./A\ngroup=one :: ./B\ngroup=two deps=one :: ./C\n"
        "group=three deps=one :: ./D\ngroup=four deps=two,three :: ./E\n"
    )
    source = Source("stages.txt", text)
    ran = Ran(formats.read(source, formats.find_reader(source) or formats.FLAT), lambda _: 1.0)
    starts = {command: one.start for command, one in ran.by_command.items()}
    assert starts == {"./A": 0.0, "./B": 1.0, "./C": 2.0, "./D": 2.0, "./E": 3.0}


def test_item_10_the_first_of_several_jobs_that_release_takes_effect() -> None:
    text = "group=x release=yes :: ./a\ngroup=x release=yes :: ./b\ngroup=x :: ./c\ngroup=y deps=x :: ./d\n"
    source = Source("release.txt", text)
    ran = Ran(formats.read(source, formats.find_reader(source) or formats.FLAT), lambda _: 1.0)
    assert [ran.by_command[command].start for command in ("./a", "./b", "./c", "./d")] == [0.0, 1.0, 2.0, 1.0]


def test_a_dependency_between_supergroups_costs_as_many_edges_as_they_have_subgroups_and_not_all_pairs() -> None:
    script = (
        "Levels = [['X', 1], ['x', 2]]\n"
        "def generateGroup(level, sup): return [[1], [2]] if level == 'X' else [[sup[0], i] for i in range(30)]\n"
        "def isDependent(level, a, b, sup): return level == 'X' and a > b\n"
        "def getJobsExecutables(level, g): return ['run'] if level == 'x' else []\n"
        "def getJobsParameters(level, g): return [''] if level == 'x' else []\n"
    )
    plan = described(script)
    # rules R1 to R4: 30 to X_1, one to the prologue of X_2, 30 from that, and as much within X_2 and before X_1
    assert len(before_rows(targets(plan))) == 30 + 1 + 30 + 30 + 30 + 2 * 30
    items = Described(plan).items
    assert sum(len(item.after) for item in items if isinstance(item, GroupSpec | TaskSpec)) <= 62
