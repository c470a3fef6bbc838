"""The report of an experiment, or of a replayed run, as lines for people and as a value for programs.

Rule: columns about files stand there only if the workload has some; those about runs with several seeds only if there
were several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bough.api.display.surroundings import show_seconds
from bough.cli.output import table_lines
from bough.model.sites.resources import show_bytes
from bough.model.texts.plurals import counted
from bough.sim.experiment_report import Difference, PolicyRow, Report

if TYPE_CHECKING:
    from bough.analysis.replayed_runs import Prediction, RecordedRun

_Column = tuple[str, Callable[[PolicyRow], str]]

_TIMES: Sequence[_Column] = (
    ("makespan", lambda row: show_seconds(row.makespan)),
    ("+-", lambda row: _spread(row.spread)),
    ("lower bound", lambda row: show_seconds(row.lower_bound)),
    ("of lower bound", lambda row: f"{row.ratio:.3f}"),
    ("slow-down", lambda row: f"{row.slowdown:.3f}"),
    ("response", lambda row: show_seconds(row.response)),
    ("95 %", lambda row: show_seconds(row.response_95)),
    ("wait", lambda row: show_seconds(row.wait)),
)
_RESOURCES: Sequence[_Column] = (
    ("speed-up", lambda row: f"{row.speedup:.1f}"),
    ("efficiency", lambda row: f"{row.efficiency:.1%}"),
    ("utilisation", lambda row: f"{row.utilisation:.1%}"),
    ("performance index", lambda row: f"{row.performance_index:.3f}"),
    ("provisioning", lambda row: show_seconds(row.provisioning)),
    ("node-hours used", lambda row: f"{row.node_hours_used:.3g}"),
    ("idle", lambda row: f"{row.node_hours_idle:.3g}"),
    ("peak queue", lambda row: f"{row.peak_queue:.0f}"),
    ("CPU waste", lambda row: f"{row.cpu_waste:.1%}"),
)
_FILES: Sequence[tuple[str, Callable[[Any], str]]] = (
    ("cache hits", lambda data: f"{data.hits:.1%}"),
    ("peer hits", lambda data: f"{data.peer_hits:.1%}"),
    ("read from cache", lambda data: show_bytes(round(data.bytes_local))),
    ("on its way", lambda data: show_bytes(round(data.bytes_joined))),
    ("from the site", lambda data: show_bytes(round(data.bytes_store))),
    ("from peers", lambda data: show_bytes(round(data.bytes_peer))),
    ("from home", lambda data: show_bytes(round(data.bytes_origin))),
    ("moved", lambda data: show_bytes(round(data.bytes_moved))),
    ("network waste", lambda data: f"{data.network_waste:.1%}"),
)


def report_value(report: Report) -> dict[str, object]:
    """For programs."""
    return {
        "workload": report.workload,
        "tasks": report.tasks,
        "cores": report.cores,
        "shared": report.shared,
        "policies": [msgspec.to_builtins(row) for row in report.rows()],
        "differences": report.records("differences"),
        "runs": report.records("runs"),
    }


_Table = tuple[str, list[tuple[str, ...]]]  # a heading, and rows of which the first is the head


def report_tables(report: Report) -> Iterator[_Table]:
    """What people read, by subject."""
    rows = report.rows()
    seeds = len({run.seed for run in report.runs})
    many = f", {counted(seeds, 'seed')}" if seeds > 1 else ""
    with_files = [row for row in rows if row.data is not None]
    shared = f"; two or more tasks read {report.shared:.1%} of the bytes" if with_files else ""
    title = f"{report.workload}: {counted(report.tasks, 'task')} on {report.cores:g} cores{many}{shared}"
    yield title, _rows(rows, [column for column in _TIMES if seeds > 1 or column[0] != "+-"])
    yield "resources", _rows(rows, _RESOURCES)
    if with_files:
        head = ("policy", "delivery", *(name for name, _ in _FILES))
        body = [(row.policy, show_seconds(row.delivery), *(show(row.data) for _, show in _FILES)) for row in with_files]
        yield "files", [head, *body]
    if seeds > 1 and (apart := report.differences()):
        yield f"seed by seed against {apart[0].against}", _differences(apart)
    complaints = [(row.policy, f"{row.runs} of {seeds}", row.complaint) for row in rows if row.complaint]
    if complaints:
        yield "complaints", [("policy", "runs that ended", ""), *complaints]


def report_lines(report: Report) -> Iterator[str]:
    """For people."""
    yield from _lines(report_tables(report))


def _lines(tables: Iterable[_Table]) -> Iterator[str]:
    for number, (heading, rows) in enumerate(tables):
        if number:
            yield ""
        yield heading
        yield from table_lines(rows[0], rows[1:])


# --- a run that was -----------------------------------------------------------------------------------

SHOWN = 10  # tasks whose prediction was furthest off


def replay_value(was: RecordedRun, again: Prediction, others: Sequence[Prediction]) -> dict[str, object]:
    """For programs: all tasks."""
    return {
        "workload": was.workload.name,
        "tasks": len(was.actual),
        "cores": was.cores,
        "policy": was.policy,
        "calibration": msgspec.to_builtins(was.calibration),
        "predicted": again.makespan,
        "actual": was.makespan,
        "error": again.error,
        "mean_error": again.mean_error,
        "complaint": again.outcome.complaint,
        "by_task": [{**msgspec.to_builtins(one), "error": one.error} for one in again.tasks],
        "what_if": [
            {
                "policy": one.policy,
                "cores": one.cores,
                "makespan": one.makespan,
                "utilisation": one.outcome.utilisation,
                "ratio": one.outcome.ratio,
                "complaint": one.outcome.complaint,
            }
            for one in others
        ],
    }


def what_changed(hosts: float, link: float) -> list[str]:
    """What is otherwise than it was."""
    return [f"{hosts:g} times the hosts"] * (hosts != 1) + [f"links {link:g} times as fast"] * (link != 1)


def replay_tables(
    was: RecordedRun, again: Prediction, others: Sequence[Prediction], hosts: float, link: float, *, shown: int = SHOWN
) -> Iterator[_Table]:
    """What people read: the makespan, the tasks that were furthest off, and what would be if."""
    said = was.calibration
    error = f"{again.error:+.1%}" if again.error is not None else ""
    yield (
        f"{was.workload.name}: {counted(len(was.actual), 'task')} on {was.cores:g} cores, policy {was.policy}",
        [
            ("", "predicted", "actual", "error"),
            ("makespan", _makespan(again), show_seconds(was.makespan), error),
            ("ends of tasks, mean of what they are off", f"{again.mean_error:.3f} s", "", ""),
            ("Bough itself, a task", f"{said.overhead * 1000:.1f} ms", "", ""),
            ("Bough itself, until the first task", f"{said.startup:.3f} s", "", ""),
        ],
    )
    worst = sorted(again.tasks, key=lambda one: -abs(one.error))[:shown]
    left = len(again.tasks) - len(worst)
    closer = f"; {counted(left, 'task')} more, --tasks {len(again.tasks)} or --json shows all" if left else ""
    yield (
        f"task by task, those first that were furthest off{closer}",
        [
            ("task", "name", "start", "end", "actual start", "end", "error of end"),
            *(
                (
                    one.id,
                    one.name,
                    *(f"{when:.3f}" for when in (one.start, one.end, one.actual_start, one.actual_end)),
                    f"{one.error:+.3f} s",
                )
                for one in worst
            ),
        ],
    )
    if again.outcome.complaint:
        yield "complaints", [("policy", ""), (again.policy, again.outcome.complaint)]
    if others:
        yield (
            ", ".join(["what if", *what_changed(hosts, link)]),
            [
                ("policy", "makespan", "change", "of lower bound", "utilisation", ""),
                *(
                    (
                        one.policy,
                        _makespan(one),
                        f"{one.makespan / again.makespan - 1:+.1%}" if again.makespan and one.outcome.ended else "",
                        f"{one.outcome.ratio:.3f}" if one.outcome.ended else "-",
                        f"{one.outcome.utilisation:.1%}" if one.outcome.ended else "-",
                        one.outcome.complaint,
                    )
                    for one in others
                ),
            ],
        )


def _makespan(predicted: Prediction) -> str:
    return show_seconds(predicted.makespan) if predicted.outcome.ended else "-"


def replay_lines(
    was: RecordedRun, again: Prediction, others: Sequence[Prediction], hosts: float, link: float, *, shown: int = SHOWN
) -> Iterator[str]:
    """For people."""
    yield from _lines(replay_tables(was, again, others, hosts, link, shown=shown))


def _rows(rows: Sequence[PolicyRow], columns: Sequence[_Column]) -> list[tuple[str, ...]]:
    head = ("policy", *(name for name, _ in columns))
    return [head, *((row.policy, *(show(row) if row.runs else "-" for _, show in columns)) for row in rows)]


def _differences(apart: Sequence[Difference]) -> list[tuple[str, ...]]:
    head = ("policy", "makespan", "+-", "relative", "faster", "")
    body = [
        (
            one.policy,
            ("-" if one.makespan < 0 else "+") + show_seconds(abs(one.makespan)),
            show_seconds(one.spread),
            f"{one.relative:+.1%}",
            f"{one.faster} of {one.pairs}",
            "" if one.is_clear else "not clear",
        )
        for one in apart
    ]
    return [head, *body]


def _spread(seconds: float) -> str:
    return show_seconds(seconds) if seconds else ""
