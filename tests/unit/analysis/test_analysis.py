"""The analysis of runs: minimal schedule with releases, critical path, degree of concurrency, pictures."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest

from bough.analysis import Analysis, analyse
from bough.analysis.pictures import draw, lanes
from bough.analysis.run_report import Key, RunInterval, RunNode, fit_cores, minimal
from bough.errors import SiteError, UserError
from bough.model.events import facts
from bough.model.ids import ExecutorId, RecordId, SpanId
from bough.model.outcomes import Detail
from bough.model.sites.resources import Needs
from bough.model.tasks import ArraySpec, Dep, Item, Kind, On, TaskSpec
from bough.sim.schedule import concurrency
from bough.sim.studies.trellisdag_workloads import PLAIN_TIMES, SUPER_TIMES, Shape, Times, items, run_id
from bough.stores.jobs.jobs_reader import JobsDatabase
from bough.stores.sql.sqlite import SqliteStore

BEGUN = 1000.0
Ran = dict[int, tuple[float, float]]  # from when to when each loose task ran


def analysed(folder: Path, what: list[Item], ran: Ran, *more: facts.Fact) -> Analysis:
    """Write a run into a store, and analyse it."""
    store = SqliteStore(folder)
    opening: list[facts.Fact] = [
        facts.RunOpened(1, "w", "h", 1),
        facts.ExecutorJoined(ExecutorId(1), "s", "node", 1, Needs(4)),
        facts.Submitted(what),
    ]
    store.append(1, 1.0, opening)
    told: list[facts.Fact] = []
    for record, (start, end) in ran.items():
        told.append(facts.Placed(SpanId(record), RecordId(record), 0, 1, 1, ExecutorId(1)))
        detail = Detail(0, started=BEGUN + start, ended=BEGUN + end)
        about = {"details": (detail,), "record": record, "attempt": 1, "executor": 1}
        told.append(facts.SpanEnded(SpanId(record), 0, 1, end - start, **about))  # type: ignore[arg-type]
    store.append(2, 2.0, [*told, *more])
    store.project()
    store.close()
    jobs = JobsDatabase(str(folder))
    try:
        return analyse(jobs.rows, 1)  # type: ignore[arg-type]
    finally:
        jobs.close()


def one_by_one(times: dict[tuple[int, int], Times]) -> Ran:
    """All tasks of the medium experiment on one host, one after the other."""
    at, ran = 0.0, {}
    for database, took in times.items():
        for record, seconds in ((run_id(database), took.run), (run_id(database) + 1, took.ver)):
            ran[record] = (at, at + seconds)
            at += seconds
    return ran


@pytest.mark.parametrize(
    ("times", "shape", "least", "degrees"),
    [
        (PLAIN_TIMES, Shape(), 3988.84, {1: 2795.88, 2: 924.47, 3: 121.38, 4: 85.09, 5: 62.02}),
        (SUPER_TIMES, Shape("order"), 4002.35, {1: 2813.65, 2: 886.36, 3: 180.78, 4: 67.76, 5: 53.80}),
        (SUPER_TIMES, Shape("order", whole=True), 4129.81, None),
        (PLAIN_TIMES, Shape(release=False), 4116.26, None),
    ],
)
def test_the_medium_experiment_of_trellisdag_has_its_published_minimal_schedule(
    tmp_path: Path, times: dict[tuple[int, int], Times], shape: Shape, least: float, degrees: dict[int, float] | None
) -> None:
    found = analysed(tmp_path, items(shape), one_by_one(times))
    assert found.minimal == pytest.approx(least, abs=0.02)
    assert found.makespan == pytest.approx(sum(took.run + took.ver for took in times.values()))
    assert found.measured.at.keys() == {1}
    if degrees is not None:
        assert found.model.highest == 5
        assert {degree: round(seconds, 2) for degree, seconds in found.model.at.items()} == pytest.approx(
            degrees, abs=0.02
        )


def test_the_critical_path_is_named_task_by_task(tmp_path: Path) -> None:
    found = analysed(tmp_path, items(Shape()), one_by_one(PLAIN_TIMES))
    assert [step.name for step in found.path][-2:] == ["run 4300", "ver 4300"]
    assert found.path[0].start == 0
    assert sum(step.seconds for step in found.path) == pytest.approx(found.minimal)
    for step, following in zip(found.path, found.path[1:], strict=False):
        assert following.start == pytest.approx(step.start + step.seconds)


def test_the_lower_bound_knows_how_many_cores_there_were(tmp_path: Path) -> None:
    tasks = [TaskSpec(RecordId(id_), Kind.COMMAND, b"", b"") for id_ in range(1, 9)]  # type: ignore[arg-type]
    found = analysed(
        tmp_path, list(tasks), {id_: ((id_ - 1) // 4 * 3.0, (id_ - 1) // 4 * 3.0 + 2) for id_ in range(1, 9)}
    )
    assert (found.minimal, found.work, found.cores, found.bound) == (2.0, 16.0, 4.0, 4.0)
    assert found.over_bound == pytest.approx(5 / 4)
    assert found.measured.mean == pytest.approx(16 / 5)
    assert found.as_json()["concurrency"] == {"highest": 4, "mean": pytest.approx(3.2), "seconds_at": {"4": 4.0}}


def test_elements_of_arrays_take_their_share_and_may_be_waited_for_one_by_one(tmp_path: Path) -> None:
    array = ArraySpec(RecordId(1), Kind.FUNCTION, b"", 4)  # type: ignore[arg-type]
    one = TaskSpec(RecordId(2), Kind.COMMAND, b"", b"", after=(Dep(On.TASK, 1, 3),))  # type: ignore[arg-type]
    all_ = TaskSpec(RecordId(3), Kind.COMMAND, b"", b"", after=(Dep(On.ARRAY, 1),))  # type: ignore[arg-type]
    spans: list[facts.Fact] = []
    for number, start, stop, seconds in ((11, 0, 3, 6.0), (12, 3, 4, 5.0)):
        spans.append(facts.Placed(SpanId(number), RecordId(1), start, stop, 1, ExecutorId(1)))
        about = {"record": 1, "attempt": 1, "executor": 1}
        spans.append(facts.SpanEnded(SpanId(number), start, stop, seconds, **about))  # type: ignore[arg-type]
    found = analysed(tmp_path, [array, one, all_], {2: (0, 1), 3: (0, 3)}, *spans)
    assert found.minimal == 8.0
    assert [step.label for step in found.path] == ["1.3", "3"]
    assert found.model.highest == 4


def test_the_longest_path_is_found_without_recursion() -> None:
    chain: dict[Key, RunNode] = {("task", n, 0): RunNode(1.0, [("task", n - 1, 0)]) for n in range(5000, 0, -1)}
    assert minimal(chain).makespan == 5000
    assert len(minimal(chain).path()) == 5000


def test_what_ends_at_a_moment_has_ended_before_what_starts_then() -> None:
    found = concurrency([(0, 1, 1), (1, 2, 1), (1, 3, 1)])
    assert (found.highest, found.at, found.steps) == (2, {1: 2.0, 2: 1.0}, [(0, 1), (1, 2), (2, 1), (3, 0)])


def test_tasks_of_a_host_that_overlap_are_drawn_in_lanes() -> None:
    ran = [
        RunInterval("1", "a", 0, 2),
        RunInterval("2", "a", 1, 3),
        RunInterval("3", "b", 1, 2),
        RunInterval("4", "a", 2, 3),
    ]
    assert [lane for lane, _ in lanes(ran)] == [0, 1, 0, 0]


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_picture_is_drawn(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'bough[plot]'")
    found = analysed(tmp_path / "store", items(Shape()), one_by_one(PLAIN_TIMES))
    draw(str(tmp_path / f"x.{kind}"), found, found, 500)
    assert (tmp_path / f"x.{kind}").read_bytes()[:5] in {b"\x89PNG\r", b"<?xml"}


def test_a_picture_of_a_kind_that_is_not_known_is_refused(tmp_path: Path) -> None:
    found = analysed(tmp_path / "store", items(Shape()), {})
    with pytest.raises(UserError, match=r"ends with \.png"):
        draw(str(tmp_path / "x.txt"), found)


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: object, **more: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)  # type: ignore[arg-type]

    found = analysed(tmp_path / "store", items(Shape()), {})
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SiteError, match=r"bough\[plot\]"):
        draw(str(tmp_path / "x.png"), found)


# --- no more at once than there are cores -----------------------------------------------------------------


def test_ends_that_were_reported_together_are_moved_back_onto_the_cores_there_are() -> None:
    """Two cores ran six spans of 10 ms each; three ends at a time were heard of, late."""
    told = [
        RunInterval(str(number), "h", at - 0.01, at, 1)
        for number, at in enumerate((1.03, 1.03, 1.03, 1.06, 1.06, 1.06))
    ]
    assert max(lane for lane, _ in lanes(told)) == 2
    fitted = fit_cores(told, {1: 2.0})
    assert max(lane for lane, _ in lanes(fitted)) == 1
    assert sorted(one.label for one in fitted) == sorted(one.label for one in told)
    assert all(one.end - one.start == pytest.approx(0.01) for one in fitted)
    assert max(one.end for one in fitted) == 1.06


def test_what_really_ran_beside_others_stays_where_it_was() -> None:
    parent = RunInterval("parent", "h", 0.0, 10.0, 1)  # it lends its core while it waits
    inner = [RunInterval(str(number), "h", 2.0 + 3 * number, 4.0 + 3 * number, 1) for number in range(2)]
    assert fit_cores([parent, *inner], {1: 1.0}) == [parent, *inner]
    unknown = [RunInterval("a", "h", 0.0, 1.0), RunInterval("b", "h", 0.0, 1.0)]
    assert fit_cores(unknown, {}) == unknown


def test_wide_and_narrow_tasks_share_the_cores() -> None:
    wide = RunInterval("wide", "h", 1.0, 2.0, 1, 2.0)
    narrow = RunInterval("narrow", "h", 0.4, 1.1, 1, 1.0)
    assert fit_cores([narrow, wide], {1: 2.0})[0].end == 1.0
