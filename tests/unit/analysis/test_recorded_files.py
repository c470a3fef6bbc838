"""The files of recorded workflows: who reads what whom, and what traces say that cannot be."""

from __future__ import annotations

from bough.analysis.recorded_workloads import workload_of
from bough.describe.task_graph import RecordedTask, TaskGraph
from bough.sim.experiment import simulate
from bough.sim.platforms.platform import one_site, read_platform


def _task(name: str, inputs: dict[str, int], outputs: dict[str, int], *before: str) -> RecordedTask:
    return RecordedTask(name, name, before=list(before), seconds=10.0, inputs=inputs, outputs=outputs)


def test_tasks_read_and_write_the_files_that_the_trace_names() -> None:
    graph = TaskGraph("w", [_task("a", {"in": 5}, {"mid": 7}), _task("b", {"mid": 7, "in": 5}, {"out": 9}, "a")])
    work = workload_of(graph)
    assert [(file.name, file.size) for file in work.files] == [("in", 5), ("mid", 7), ("out", 9)]
    assert [(task.reads, task.writes) for task in work.tasks] == [((0,), (1,)), ((1, 0), (2,))]


def test_what_cannot_be_does_not_count() -> None:
    tasks = [
        _task("a", {"late": 1, "own": 2, "": 3}, {"own": 2, "both": 4}),
        _task("b", {"both": 4}, {"late": 1, "both": 4}, "a"),
    ]
    work = workload_of(TaskGraph("w", tasks))
    names = [file.name for file in work.files]
    assert [[names[one] for one in task.reads] for task in work.tasks] == [[], ["both"]]
    assert [[names[one] for one in task.writes] for task in work.tasks] == [["own", "both"], ["late"]]


def test_files_over_a_link_take_time_and_the_report_says_which_way_they_came() -> None:
    tasks = [_task(f"t{number}", {"in": 100_000_000}, {}) for number in range(4)]
    work = workload_of(TaskGraph("w", tasks))
    slow = read_platform('[home]\nbandwidth = "10MB/s"\n[site.a]\nhosts = 2\n[site.a.uplink]\nbandwidth = "10MB/s"\n')
    (row,) = simulate(work, slow, ["bough"]).rows()
    assert row.data is not None
    assert row.makespan > 20 + 9  # two rounds of 10 s, and 100 MB over 10 MB/s before them
    read = row.data.bytes_local + row.data.bytes_joined + row.data.bytes_peer + row.data.bytes_origin
    assert read == 400_000_000
    assert row.data.bytes_origin >= 100_000_000
    assert row.delivery > 0
    assert 0 < row.data.hits < 1
    (quick,) = simulate(work, one_site(2), ["bough"]).rows()
    assert quick.makespan == 20
