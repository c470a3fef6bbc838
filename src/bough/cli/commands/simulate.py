"""`bough simulate`: how long a workflow would take on a platform, under each of some policies.

The scheduler is the one that runs live; only hosts and time are simulated. Rule: nothing of yours runs or is changed.
"""

from __future__ import annotations

import argparse

from bough.api.display.surroundings import show_seconds
from bough.cli.output import Output, table_lines
from bough.cli.workflow_files import File, read_text
from bough.errors import UserError
from bough.model.ids import read_seconds
from bough.sim.experiment import PolicyRow, Report, simulate
from bough.sim.platform import Platform, one_site, read_platform

EXAMPLES = (
    "bough simulate montage.json --cores 64 --policy fifo,sjf",
    "bough simulate workflow.txt --platform lab.toml --seconds 90s",
    "bough simulate montage.json --platform lab.toml --policy fifo,sjf --seeds 20 --noise 0.2 --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("file", metavar="FILE", help="a workflow file, or a recorded workflow (WfFormat)")
    parser.add_argument("--platform", metavar="FILE", help="the sites and their hosts, as TOML")
    parser.add_argument("--cores", type=int, metavar="N", help="instead of a platform: one host of N cores")
    parser.add_argument("--policy", default="fifo", metavar="A,B,C", help="placement policies to compare (fifo)")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="runs of each policy, with other dice (1)")
    parser.add_argument(
        "--noise", type=float, default=0.0, metavar="X", help="times differ from the file's, by 10%% for 0.1"
    )
    parser.add_argument("--seconds", metavar="TIME", help="what tasks take of which the file says nothing")


def run(args: argparse.Namespace, output: Output) -> int:
    """Simulate and answer."""
    from bough.analysis.recorded_workloads import workload_of
    from bough.describe.task_graph import of_plan

    platform = _platform(args)
    file = File(args.file)
    workload = workload_of(of_plan(file.plan(), file.stem), unknown=_seconds(args.seconds))
    policies = [name.strip() for name in args.policy.split(",") if name.strip()]
    report = simulate(workload, platform, policies, seeds=args.seeds, noise=args.noise)
    rows = report.rows()
    output.answer(_value(report, rows), lambda: _lines(report, rows))
    return 1 if any(row.complaint for row in rows) else 0


def _platform(args: argparse.Namespace) -> Platform:
    if args.platform is not None:
        if args.cores is not None:
            raise UserError("--platform and --cores exclude each other; give one")
        return read_platform(read_text(args.platform), args.platform)
    if args.cores is None:
        raise UserError("say where it would run: --platform FILE, or --cores N")
    if not 1 <= args.cores <= 1_000_000:
        raise UserError(f"--cores {args.cores}: say 1 to 1000000")
    return one_site(1, args.cores)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        found = read_seconds(text)
    except ValueError as error:
        raise UserError(f"--seconds {text!r} is no time: {error}") from None
    if not 0 <= found <= 1e15:
        raise UserError(f"--seconds {text!r} is no time of a task")
    return found


def _value(report: Report, rows: list[PolicyRow]) -> dict[str, object]:
    columns = PolicyRow.__struct_fields__
    return {
        "workload": report.workload,
        "tasks": report.tasks,
        "cores": report.cores,
        "policies": [{name: getattr(row, name) for name in columns} for row in rows],
    }


def _lines(report: Report, rows: list[PolicyRow]) -> list[str]:
    head = ("policy", "makespan", "+-", "of lower bound", "response", "utilisation", "speed-up", "")
    body = [
        (
            row.policy,
            show_seconds(row.makespan),
            show_seconds(row.spread) if row.spread else "",
            f"{row.ratio:.3f}",
            show_seconds(row.response),
            f"{row.utilisation:.1%}",
            f"{row.speedup:.1f}",
            row.complaint,
        )
        for row in rows
    ]
    return [f"{report.workload}: {report.tasks} tasks on {report.cores:g} cores", *table_lines(head, body)]
