"""`bough simulate`: how long a workflow would take on a platform, under each of some policies.

The scheduler is the one that runs live; only hosts and time are simulated. Rule: nothing of yours runs or is changed.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from msgspec import Meta

from bough.cli.campaign_stores import campaign_store
from bough.cli.option_values import count, path_name
from bough.cli.output import Output
from bough.cli.simulation_tables import (
    SHOWN,
    replay_lines,
    replay_tables,
    replay_value,
    report_lines,
    report_tables,
    report_value,
    what_changed,
)
from bough.cli.targets.locate import HOME, JOURNAL
from bough.describe.workflow_files import read_text
from bough.errors import UserError
from bough.model.bounds import LONGEST, Count, read_number, within
from bough.model.ids import read_seconds
from bough.sim.application_workloads import APPLICATIONS, application
from bough.sim.experiment import simulate, trace
from bough.sim.information import Information, read_information
from bough.sim.platforms.platform import Platform, one_site, read_platform
from bough.sim.platforms.platform_files import with_files
from bough.sim.policy_texts import compared
from bough.sim.policy_watch import MOST_PATIENCE, PATIENCE

if TYPE_CHECKING:
    from bough.analysis.simulation_pictures import Bar
    from bough.describe.task_graph import TaskGraph
    from bough.sim.experiment_report import Report
    from bough.sim.workload import Workload

EXAMPLES = (
    "bough simulate montage.json --cores 64 --policy fifo,sjf",
    "bough simulate workflow.txt --platform lab.toml --seconds 90s --seeds 20 --noise 0.2 --json",
    "bough simulate montage.json --platform lab.toml --policy good-cache-compute:threshold=0.9,window=5,fifo",
    "bough simulate montage.json --platform grid.toml --policy storage-affinity+storage-affinity,workqueue+wqr",
    "bough simulate --workload moldyn --cores 216 --policy workqueue --replication none,wqr,tail --information 0.3",
    "bough simulate .bough/survey --cores 16 --policy fifo,heft --gantt survey.svg --html survey.html",
    "bough simulate --replay .bough/survey",
    "bough simulate --replay .bough/survey:2 --policy ljf,heft --scale-hosts 2 --scale-link 0.5",
)
_Factor = Annotated[float, Meta(gt=0, le=1000)]
_Cores = Annotated[int, Meta(ge=1, le=10_000)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="a workflow file, a recorded workflow (WfFormat), or a store of a run"
    )
    parser.add_argument("--args", metavar="WORDS", help="arguments of a description script, as one text")
    parser.add_argument("--platform", metavar="FILE", help="the sites and their hosts, as TOML")
    parser.add_argument("--cores", type=int, metavar="N", help="instead of a platform: one host of N cores")
    parser.add_argument(
        "--policy",
        metavar="A,B,C",
        help="placement policies to compare (fifo; of a replay: its own). Options stand behind a colon, as in"
        " good-cache-compute:threshold=0.9,window=5,fifo: a part that is NAME=VALUE belongs to the policy before it."
        " Behind a plus stands a replication policy of its own: workqueue+wqr",
    )
    parser.add_argument(
        "--replication",
        metavar="A,B,C",
        help="whether idle executors run what others run, too: none, careful-tail, tail, wqr,"
        " storage-affinity; wqr:cap=2,age=30s. Of several, each with each policy that names none behind a plus"
        " (default: as live)",
    )
    parser.add_argument(
        "--provisioning",
        metavar="NAME",
        help="how many pilots are asked for at sites with a queue (adaptive); as of bough server start",
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="runs of each policy, with other dice (1)")
    parser.add_argument("--parallel", type=int, metavar="N", help="simulate on N cores at once, as a workflow of Bough")
    parser.add_argument(
        "--store",
        metavar="FOLDER",
        help="with --parallel: keep what was simulated here, and go on with it after a kill",
    )
    parser.add_argument("--noise", type=float, metavar="X", help="times differ from the file's, by 10%% for 0.1")
    parser.add_argument(
        "--information",
        metavar="WHAT",
        help="what policies know of run times: measured so far (default), perfect, snapshot (of hosts as they were at"
        " the start), or estimates that are off by 30%% for 0.3",
    )
    parser.add_argument(
        "--workload", metavar="NAME", help="instead of a file: a published application, as it was described; ? for all"
    )
    parser.add_argument(
        "--patience", metavar="TIME", help="real time that a policy may take for one answer: its run ends then (60s)"
    )
    parser.add_argument("--seconds", metavar="TIME", help="what tasks take of which the file says nothing")
    parser.add_argument(
        "--gantt", type=path_name, metavar="PICTURE", help="draw what ran where (first seed): a .svg, .png or .pdf file"
    )
    parser.add_argument("--html", type=path_name, metavar="PAGE", help="write a page with the tables and the picture")
    parser.add_argument(
        "--replay",
        metavar="STORE",
        help="a run that was: its name, its store or journal; STORE:N for its run N: predicted against actual",
    )
    parser.add_argument(
        "--tasks", type=count, metavar="N", help=f"with --replay: show the N tasks that were furthest off ({SHOWN})"
    )
    parser.add_argument(
        "--scale-hosts",
        "--nodes",
        metavar="X",
        help="what if there were X times as many executors (--replay), or hosts at each site (--platform)",
    )
    parser.add_argument(
        "--scale-link",
        metavar="X",
        help="what if links were X times as fast: with --platform the bandwidth of each link; with --replay, which"
        " simulates no links, the times that files took are divided by X",
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Simulate and answer."""
    if args.replay is not None:
        return _replay(args, output)
    for option, value in (("--scale-hosts", args.scale_hosts), ("--scale-link", args.scale_link)):
        if value is not None and args.platform is None:
            raise UserError(f"{option} is of a run that was, or of a platform: give --replay STORE, or --platform FILE")
    if args.tasks is not None:
        raise UserError("--tasks is of a run that was: give --replay STORE")
    if args.workload == "?":
        output.table(("name", "what"), [(name, one.about) for name, one in APPLICATIONS.items()])
        return 0
    if (args.file is None) == (args.workload is None):
        raise UserError("give a workflow file, --workload NAME, or --replay STORE for a run that was")
    platform = _platform(args)
    if args.workload is not None:
        _refuse(args, ("args", "seconds"), "a published application says what its tasks take")
        workload = application(args.workload)
    else:
        from bough.analysis.recorded_workloads import workload_of

        workload = workload_of(_graph(args.file, args.args or ""), unknown=_seconds(args.seconds, "--seconds", LONGEST))
    report = _report(args, workload, platform)
    if args.gantt or args.html:
        from bough.analysis.simulation_pictures import Bar

        options = _options(args)
        traced = {row.policy: trace(workload, platform, row.policy, **options) for row in report.rows()}
        bars = {
            name: [Bar(host, one.start, one.end, workload.tasks[one.record - 1].template) for one, host in some]
            for name, some in traced.items()
        }
        _draw(args, workload.name, bars, report_tables(report))
    output.answer(report_value(report), lambda: report_lines(report))
    return 1 if any(run.complaint for run in report.runs) else 0


class _Options(TypedDict):
    """What a report and its picture have in common."""

    noise: float
    information: Information
    provisioning: NotRequired[str]
    patience: float


def _options(args: argparse.Namespace) -> _Options:
    found: _Options = {
        "noise": 0.0 if args.noise is None else args.noise,
        "information": read_information("measured" if args.information is None else args.information),
        "patience": _patience(args.patience),
    }
    if args.provisioning is not None:
        found["provisioning"] = args.provisioning
    return found


def _refuse(args: argparse.Namespace, names: Iterable[str], because: str) -> None:
    """Refuse options that would change nothing."""
    for name in names:
        if getattr(args, name) is not None:
            raise UserError(f"{because}; leave {'FILE' if name == 'file' else '--' + name.replace('_', '-')} out")


def _report(args: argparse.Namespace, workload: Workload, platform: Platform) -> Report:
    """The report, of simulations one after the other, or in a session of this command's own."""
    once = partial(
        simulate,
        workload,
        platform,
        args.policy or "fifo",
        seeds=1 if args.seeds is None else args.seeds,
        replication=args.replication,
        **_options(args),
    )
    if args.parallel is None:
        _refuse(args, ("store",), "--store is of simulations beside each other: give --parallel N")
        return once()
    from bough.api.session.session import Session

    cores = within("--parallel", args.parallel, _Cores)
    with (
        campaign_store(args.store) as folder,
        Session(name="simulate", store=folder, cores=cores, reuse="resume" if args.store else "never") as session,
    ):
        return once(session=session)


def _draw(
    args: argparse.Namespace,
    name: str,
    bars: Mapping[str, Sequence[Bar]],
    tables: Iterable[tuple[str, Sequence[Sequence[str]]]],
) -> None:
    from bough.analysis.simulation_pictures import write_page, write_picture

    if args.gantt:
        write_picture(args.gantt, name, bars)
    if args.html:
        write_page(args.html, name, bars, tables)


def _replay(args: argparse.Namespace, output: Output) -> int:
    _refuse(args, ("file", "workload", "platform", "cores"), "--replay takes tasks and hosts from the run that was")
    _refuse(args, ("args", "seconds", "noise", "information"), "--replay takes times from the run that was")
    _refuse(args, ("seeds", "parallel", "store"), "--replay throws no dice: each policy has one run")
    _refuse(args, ("provisioning",), "--replay asks for no pilots: executors come when they came")
    from bough.analysis.replayed_runs import actual_bars, predict, predicted_bars, recorded_run

    was = recorded_run(recorded_graph(args.replay))
    hosts, link = _factor("--scale-hosts", args.scale_hosts), _factor("--scale-link", args.scale_link)
    patience = _patience(args.patience)
    again = predict(was, patience=patience)
    others = []
    if args.policy or args.replication or (hosts, link) != (1.0, 1.0):
        policies = compared(args.policy or was.policy, args.replication)
        others = [predict(was, policy=policy, hosts=hosts, link=link, patience=patience) for policy in policies]
    shown = SHOWN if args.tasks is None else args.tasks
    if args.gantt or args.html:
        changed = what_changed(hosts, link)
        bars = {"as it was": actual_bars(was), f"predicted, {was.policy}": predicted_bars(was, again)}
        bars |= {", ".join(["what if", one.policy, *changed]): predicted_bars(was, one) for one in others}
        _draw(args, was.workload.name, bars, replay_tables(was, again, others, hosts, link, shown=shown))
    output.answer(replay_value(was, again, others), lambda: replay_lines(was, again, others, hosts, link, shown=shown))
    return 1 if any(one.outcome.complaint for one in (again, *others)) else 0


def _graph(path: str, words: str) -> TaskGraph:
    """What a file says, or what a store has recorded."""
    from bough.analysis.workload_files import described_graph, is_store

    if is_store(path):
        if words:
            raise UserError("--args is of a description script, and a store has none; leave --args out")
        return recorded_graph(path)
    try:
        said = shlex.split(words)
    except ValueError as error:
        raise UserError(f"--args {words!r}: {error}") from None
    return described_graph(path, said)


def recorded_graph(text: str) -> TaskGraph:
    """A run, by its name, its store or its journal, and its number if that is not the last one."""
    from bough.analysis.run_records import read_record
    from bough.cli.targets.jobs_database import open_database
    from bough.cli.targets.selection import choose_run

    name, colon, number = text.rpartition(":")
    if not colon or os.path.exists(text) or not number.isdecimal():
        name, number = text, "0"
    folder = os.path.dirname(name) or "." if os.path.basename(name) == JOURNAL else name
    is_folder = os.path.isfile(os.path.join(folder, JOURNAL))
    if not is_folder and os.path.exists(folder) and not os.path.isfile(os.path.join(HOME, folder, JOURNAL)):
        raise UserError(f"--replay {text}: this is no store of a run; give .bough/NAME, or the name of a workflow")
    asked = argparse.Namespace(
        name=None if is_folder else folder,
        run=read_number("the number of the run", number, Count),
        store=folder if is_folder else None,
        server=None,
    )
    with open_database(asked) as database:
        return read_record(database, choose_run(database, asked), database.label)


def _factor(option: str, text: str | None) -> float:
    """A factor as people write it: 2, x2 or 0.5."""
    if text is None:
        return 1.0
    try:
        return within(option, float(text.lower().removeprefix("x")), _Factor)
    except (ValueError, UserError):
        raise UserError(f"{option} {text}: say a factor above 0 and up to 1000, such as 2 or 0.5") from None


def _platform(args: argparse.Namespace) -> Platform:
    if args.platform is not None:
        if args.cores is not None:
            raise UserError("--platform and --cores exclude each other; give one")
        folder = os.path.dirname(os.path.abspath(args.platform))
        found = read_platform(read_text(args.platform, "a platform"), args.platform)
        found = found.scaled(
            hosts=_factor("--scale-hosts", args.scale_hosts), link=_factor("--scale-link", args.scale_link)
        )
        return with_files(found, lambda path: read_text(os.path.join(folder, path), "a log or trace"))
    if args.cores is None:
        raise UserError("say where it would run: --platform FILE, or --cores N")
    if not 1 <= args.cores <= 1_000_000:
        raise UserError(f"--cores {args.cores}: say 1 to 1000000")
    return one_site(1, args.cores)


def _patience(text: str | None) -> float:
    found = _seconds(text, "--patience", MOST_PATIENCE)
    return PATIENCE if found is None else found


def _seconds(text: str | None, option: str, most: float) -> float | None:
    if text is None:
        return None
    try:
        found = read_seconds(text)
    except ValueError as error:
        raise UserError(f"{option} {text!r} is no time: {error}") from None
    if not 0 <= found <= most:
        raise UserError(f"{option} {text!r} is out of bounds: say 0 to {most:g} seconds")
    return found
