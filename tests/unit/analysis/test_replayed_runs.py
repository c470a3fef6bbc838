"""Recorded runs as the simulator takes them: calibration by hand, predictions, releases, executors that leave."""

from __future__ import annotations

import pytest

from bough.analysis.recorded_workloads import in_order
from bough.analysis.replayed_runs import Calibration, predict, recorded_run
from bough.describe.task_graph import GraphNode, Ordering, QueueChange, RecordedTask, RunExecutor, TaskGraph, order
from bough.errors import UserError
from bough.model.sites.queue_specs import QueueSpec
from bough.model.sites.resources import Needs


def _task(name: str, start: float, seconds: float, *before: str, **others: object) -> RecordedTask:
    return RecordedTask(
        name, name, before=list(before), seconds=seconds, submitted=100.0, started=100.0 + start, host="h",
        state="done", **others,  # type: ignore[arg-type]
    )  # fmt: skip


def _run(*tasks: RecordedTask, cores: float = 2, **others: object) -> TaskGraph:
    executors = [RunExecutor(7, "lab", "h", Needs(cores), 99.5, 200.0)]
    return TaskGraph("w", list(tasks), [], executors, "fifo", 99.0, 200.0, **others)  # type: ignore[arg-type]


# two cores; a start-up of 0.5 s, and 0.1 s before each later task
STAIRS = _run(
    _task("a", 0.5, 4.0),
    _task("b", 0.5, 2.0),
    _task("c", 2.6, 3.0, "b"),
    _task("d", 5.7, 1.0, "a", "c"),
)


def test_what_bough_itself_took_is_found_between_a_free_core_and_a_start() -> None:
    run = recorded_run(STAIRS)
    assert run.calibration.startup == pytest.approx(0.5)
    assert run.calibration.overhead == pytest.approx(0.1)
    assert run.makespan == pytest.approx(6.7)
    assert (run.cores, run.policy) == (2, "fifo")


def test_a_replay_meets_what_was() -> None:
    found = predict(recorded_run(STAIRS))
    assert found.error == pytest.approx(0.0, abs=0.02)  # the first task has no gap in the run that was
    assert {one.name for one in found.tasks} == set("abcd")
    assert max(abs(one.error) for one in found.tasks) < 0.11
    assert {one.host for one in found.tasks} == {"h"}


def test_another_number_of_cores_and_another_policy_are_predicted_from_it() -> None:
    run = recorded_run(STAIRS)
    one = predict(run, cores=1)
    assert one.makespan == pytest.approx(0.5 + 10 + 4 * 0.1)
    assert (one.actual, one.error, one.tasks) == (None, None, [])
    free = Calibration()
    assert predict(run, cores=1, calibration=free).makespan == pytest.approx(10)
    loose = recorded_run(_run(*(_task(f"t{n}", n, 1.0) for n in range(8)), cores=1))
    assert predict(loose, hosts=2, calibration=free).makespan == pytest.approx(4)
    assert predict(loose, hosts=2.4, calibration=free).cores == 2
    assert predict(loose, policy="ljf", calibration=free).policy == "ljf"


def test_slower_links_make_the_moving_of_files_longer() -> None:
    run = recorded_run(_run(_task("a", 0, 4.0, staged=1.0, inputs={"in": 5}, outputs={"out": 7})))
    free = Calibration()
    assert predict(run, calibration=free).makespan == pytest.approx(5)
    assert predict(run, link=0.5, calibration=free).makespan == pytest.approx(6)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(UserError, match="positive"):
            predict(run, link=wrong)


def test_tries_that_failed_take_their_time_and_an_executor_that_left_is_gone() -> None:
    graph = _run(_task("a", 0, 4.0, tried=3.0), _task("b", 0, 10.0))
    graph.executors = [RunExecutor(1, "lab", "h", Needs(1), 100.0, 104.0), RunExecutor(2, "lab", "h", Needs(1), 100.0)]
    found = predict(recorded_run(graph), calibration=Calibration())
    assert found.makespan == pytest.approx(17.0)  # a begins anew when the first has left


def _leaving(*tasks: RecordedTask) -> TaskGraph:
    """One host of one core after the other, each for three seconds."""
    graph = _run(*tasks)
    graph.executors = [RunExecutor(n, "lab", f"h{n}", Needs(1), 100.0 + 3 * n, 103.0 + 3 * n) for n in range(7)]
    return graph


def test_a_replay_in_which_tasks_fail_says_so_unless_they_failed_in_the_run() -> None:
    long, short = _task("long", 0, 5.0), _task("short", 25, 0.5)
    found = predict(recorded_run(_leaving(long, short)), calibration=Calibration())
    assert found.outcome.complaint.startswith("1 of 2 tasks failed; the first: task 1 (long) failed: ")
    assert (found.outcome.ended, found.error) == (False, None)
    long.state = "failed"
    found = predict(recorded_run(_leaving(long, short)), calibration=Calibration())
    assert (found.outcome.ended, found.outcome.complaint) == (True, "")
    assert [one.name for one in found.tasks] == ["short"]


def test_tasks_that_were_submitted_later_arrive_later() -> None:
    late = _task("b", 50, 1.0)
    late.submitted = 150.0
    assert predict(recorded_run(_run(_task("a", 0, 1.0), late)), calibration=Calibration()).makespan == pytest.approx(
        51
    )


GB = 10**9


def _asking(*needs: Needs) -> TaskGraph:
    """Tasks of one second that ask for something, on two hosts of four cores."""
    graph = _run(*(_task(f"t{number}", 0, 1.0, needs=one) for number, one in enumerate(needs)))
    gpu = Needs(4, 10 * GB, 1, (("license", 1.0),))
    graph.executors = [
        RunExecutor(1, "lab", "h1", gpu, 100.0, attributes=(("cpu", ("avx2",)),)),
        RunExecutor(2, "den", "h2", Needs(4), 100.0),
    ]
    return graph


@pytest.mark.parametrize(
    ("needs", "seconds", "hosts"),
    [
        (Needs(2), 1.0, {"h1", "h2"}),
        (Needs(memory=10 * GB, sites=("lab",)), 4.0, {"h1"}),
        (Needs(gpus=1), 4.0, {"h1"}),
        (Needs(named=(("license", 1.0),)), 4.0, {"h1"}),
        (Needs(sites=("den",)), 1.0, {"h2"}),
        (Needs(2, requires="'avx2' in cpu"), 2.0, {"h1"}),
    ],
)
def test_a_replay_asks_for_all_that_tasks_asked_for(needs: Needs, seconds: float, hosts: set[str]) -> None:
    run = recorded_run(_asking(*[needs] * 4))
    found = predict(run, calibration=Calibration())
    assert (found.makespan, {one.host for one in found.tasks}) == (seconds, hosts)
    assert predict(run, cores=4, calibration=Calibration()).makespan == max(1, needs.cores)  # asks for cores alone


def test_a_replay_has_the_limits_of_named_queues_from_the_time_they_were_given() -> None:
    graph = _asking(*[Needs(queue="night")] * 8)
    free = Calibration()
    for changes, seconds in (
        ([(50.0, QueueSpec())], 1.0),
        ([(50.0, QueueSpec()), (60.0, QueueSpec(max_cores=2))], 4.0),
        ([(50.0, QueueSpec(max_cores=1)), (101.5, QueueSpec(max_cores=3))], 4.0),
        ([(50.0, QueueSpec(max_cores=1)), (100.5, None)], 1.5),
    ):
        graph.queues = [QueueChange(when, "night", spec) for when, spec in changes]
        assert predict(recorded_run(graph), calibration=free).makespan == seconds
    graph.queues = [QueueChange(50.0, "night", QueueSpec(max_time=0.5))]
    assert "ran longer than 0.5 s" in predict(recorded_run(graph), calibration=free).outcome.complaint


def test_a_run_without_executors_cannot_be_replayed() -> None:
    graph = _run(_task("a", 0, 1.0))
    graph.executors = []
    with pytest.raises(UserError, match="nothing has run"):
        recorded_run(graph)


def test_the_order_of_submission_stays_where_it_can() -> None:
    tasks = [RecordedTask(name, name, before=before) for name, before in (("c", ["a"]), ("a", []), ("b", []))]
    assert [task.id for task in in_order(TaskGraph("w", tasks))] == ["a", "c", "b"]
    joint = RecordedTask("j", "joint", before=["a", "b"], is_joint=True)
    tasks = [joint, RecordedTask("a", "a"), RecordedTask("b", "b"), RecordedTask("x", "x"), RecordedTask("z", "z")]
    tasks[4].before = ["j"]
    assert [task.id for task in in_order(TaskGraph("w", tasks))] == ["a", "b", "x", "j", "z"]
    tasks[1].before = ["z"]
    with pytest.raises(UserError, match="waits for itself"):
        in_order(TaskGraph("w", tasks))


def test_waiting_for_a_group_ends_with_its_release_and_waiting_for_all_of_it_does_not() -> None:
    for kind, expected in (("end", ["1"]), ("whole", ["1", "2"])):
        ordering, graph = Ordering(), TaskGraph("w")
        tasks = {number: RecordedTask(str(number), str(number)) for number in (1, 2, 3)}
        ordering.add_group(5, 0)
        ordering.add_task(1, 5, release=True)
        ordering.add_task(2, 5)
        ordering.add_task(3, 0, [GraphNode(kind, 5)])
        order(graph, ordering, tasks)
        assert tasks[3].before == expected
