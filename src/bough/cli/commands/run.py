"""`bough run`: run a workflow, or commands, to the end, with live progress.

A Python script runs as `__main__`, and the options become defaults of its sessions. A flat list, and every other form
that describes a workflow, is submitted through a session of our own. `--emulate` replays a recorded workflow: tasks
sleep or compute instead of running their commands. `--dry-run` shows what would run: a command of a flat list is
reused when the n-th command of its text succeeded in an earlier run, all it comes after is reused, and its declared
outputs are there and newer than its declared inputs.
Rule: with `--json` standard output carries one object and nothing else; what a script prints goes to standard error
then. `--dry-run` changes nothing. Modules are imported when a form needs them, because a session loads its own part
while its server starts.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bough.cli.main import Command, make_parser, put_on_path
from bough.cli.option_values import (
    add_checkpoint_arguments,
    add_monitor_argument,
    add_rule_argument,
    checkpointed,
    count,
    given_name,
    path_name,
    ruled,
)
from bough.cli.output import Output, choose, print_json
from bough.cli.runs.command_texts import many_commands, one_command
from bough.cli.runs.profiles import add_profile_argument, apply_profiles
from bough.cli.targets.locate import add_server_argument, store_of
from bough.describe.workflow_files import File, is_script, stem
from bough.errors import InvalidWorkload, UserError
from bough.model.reuse_scope import ALWAYS, MODES, NEVER

if TYPE_CHECKING:
    from bough.api.futures.task import Task
    from bough.cli.runs.run_sessions import Ended
    from bough.cli.targets.jobs_database import OpenDatabase
    from bough.describe.flat_list import FlatTask
    from bough.describe.plan import Plan, PlanTask
    from bough.describe.steps import Step
    from bough.describe.wfformat import TraceReplay

EXAMPLES = (
    "bough run workflow.py --options-of the script",
    "bough run --cores 4 --fail-fast commands.txt",
    "bough run -- python train.py --epochs 3          # its output, its exit code",
    "bough run --each-line names.txt -j 4 -- 'gzip -k {}'",
    "seq 1 100 | bough run --each-line - -- 'echo {} squared is $(({} * {}))'",
    "bough run Makefile all CFLAGS=-O3",
)

_DIGITS = 6  # of a number of cores
_KINDS = ("sleep", "cpu")  # of emulated tasks
_OF_TASKS = ("memory", "gpus", "timeout", "retries", "requires", "setup", "container")  # options of each command
OF_COMMANDS = ("each_line", "array", "keep_order", "monitor", "rule", "checkpoint", "checkpoint_file", *_OF_TASKS)

Twin = tuple[str, int]  # the text of a command, and which one of this text in its run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "what",
        nargs=argparse.REMAINDER,
        metavar="FILE [ARGS] | - | -- COMMAND",
        help="a Python script, a workflow description (see bough describe) or a flat list, with its arguments;"
        " - for a flat list from stdin; -- and a command",
    )
    parser.add_argument(
        "-j", "--cores", type=_cores, metavar="N", help="use N cores at once (default: all this process may use)"
    )
    parser.add_argument(
        "--each-line", type=path_name, metavar="FILE", help="run the command for each line of a file: {}; - for stdin"
    )
    parser.add_argument(
        "--array", metavar="RANGE", help="run the command for each number of 1-1000 or 1,5,10-20: {}, $BOUGH_INDEX"
    )
    parser.add_argument(
        "-k", "--keep-order", action="store_true", help="with --each-line and --array: show outputs in this order"
    )
    parser.add_argument("--memory", metavar="AMOUNT", help="memory of each command, as 4GB; 4GB*2: doubled by retries")
    parser.add_argument("--gpus", type=count, metavar="N", help="GPUs that each command needs, and has for itself")
    parser.add_argument(
        "--timeout", metavar="TIME", help="end each command after this time, as 1h; 1h*2: doubled by retries"
    )
    parser.add_argument("--retries", type=count, metavar="N", help="try a command that failed up to N more times")
    parser.add_argument(
        "--requires", metavar="TEXT", help="what the executor must have: \"memory_gb >= 64 and 'avx512' in cpu\""
    )
    parser.add_argument("--setup", metavar="TEXT", help="shell commands that run first, on its host: 'module load gcc'")
    parser.add_argument("--container", metavar="RUNTIME:IMAGE", help="run it in apptainer:IMAGE or docker:IMAGE")
    add_monitor_argument(parser)
    add_rule_argument(parser)
    add_checkpoint_arguments(parser)
    parser.add_argument(
        "--policy",
        metavar="NAME",
        help="the placement policy, as sjf or bough:delay=10s; by default fifo here, and with --site or --server that"
        " of the server, which must be the same",
    )
    parser.add_argument(
        "--replication",
        metavar="NAME",
        help="whether idle executors run what others run, too: none, careful-tail, tail, wqr or"
        " storage-affinity, as in wqr:cap=2,age=30s (default: of the policy bough careful-tail, of storage-affinity and"
        " wqr their own, else none)",
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="run everything, also what earlier runs have done (the same as --reuse never)",
    )
    parser.add_argument(
        "--reuse",
        choices=MODES,
        metavar="WHEN",
        help="what earlier runs have done counts: always (default), resume (only if they are unfinished) or never",
    )
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first failure")
    parser.add_argument("--echo", action="store_true", help="show what tasks print as it comes, named line by line")
    parser.add_argument("--dry-run", action="store_true", help="show what a file would run, and run nothing")
    parser.add_argument(
        "--name", type=given_name, metavar="NAME", help="the workflow's name (default: the file's stem)"
    )
    parser.add_argument(
        "--store", type=path_name, metavar="DIR", help="the folder of its store (default: ./.bough/NAME)"
    )
    parser.add_argument(
        "--queue", metavar="NAME", help="with a server: the queue that tasks go through, see bough queue list"
    )
    _add_emulation_arguments(parser)
    parser.add_argument(
        "--site",
        action="append",
        metavar="NAME,...",
        help="run it at these sites, of your own server, which is started if need be; local is this machine",
    )
    add_profile_argument(parser)
    add_server_argument(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Run a file, or commands."""
    put_on_path()
    words: list[str] = args.what
    if not words or words == ["--"]:
        raise UserError("give a FILE, - for stdin, or -- and a COMMAND; see bough run --help")
    if words[0] == "--":
        apply_profiles(args, "run", "")
        return _run_commands(args, output, words[1:])
    args.file, args.args = words[0], words[1:]
    if is_script(args.file):
        _refuse_of_commands(args)
        apply_profiles(args, "run", args.file, OF_COMMANDS)
        return _run_script(args)
    file = File(args.file)
    if args.args and not file.takes_arguments:
        args = _options_after_file(args)
        output = choose(json=args.json, quiet=args.quiet)
    _refuse_of_commands(args)
    apply_profiles(args, "run", args.file, OF_COMMANDS)
    if _emulation_of(args) is None and file.reader is None:
        return _run_list(args, output, file)
    return _run_plan(args, output, file)


def _refuse_of_commands(args: argparse.Namespace) -> None:
    for option in OF_COMMANDS:
        if getattr(args, option):
            raise UserError(
                f"--{option.replace('_', '-')} is for commands: bough run --{option.replace('_', '-')} ... -- COMMAND;"
                " of the tasks of a file it is said in the file"
            )


def _refuse_elsewhere(args: argparse.Namespace) -> None:
    elsewhere = "--server" if args.server else "--site" if _sites(args) not in (None, ["local"]) else ""
    if elsewhere:
        for option in ("cores", "store"):
            if getattr(args, option):
                raise UserError(f"--{option} is for runs on this machine; with {elsewhere} leave it out")


def _options_after_file(args: argparse.Namespace) -> argparse.Namespace:
    """A flat list takes no arguments: what stands behind it are options of ours."""
    parser = make_parser("run", Command(EXAMPLES, add_arguments, run))
    more = parser.parse_args(args.args)
    if more.what:
        raise UserError(f"a flat list takes no arguments, but options: {' '.join(args.args)}")
    given = {key: value for key, value in vars(args).items() if value and key != "args"}
    return argparse.Namespace(**(vars(more) | {"args": []} | given))


def _sites(args: argparse.Namespace) -> list[str] | None:
    """The sites that were named, by one option or several."""
    return [name for text in args.site for name in text.split(",")] if args.site else None


def _options(args: argparse.Namespace) -> dict[str, object]:
    """What the sessions are to take as defaults."""
    return {
        "server": args.server,
        "name": args.name,
        "store": args.store,
        "cores": args.cores,
        "policy": args.policy,
        "replication": args.replication,
        "reuse": _reuse(args),
        "fail_fast": args.fail_fast or None,
        "echo": args.echo or None,
        "sites": _sites(args),
        "queue": args.queue,
    }


def _reuse(args: argparse.Namespace) -> str:
    """Which earlier runs count."""
    if args.fresh and args.reuse not in {None, NEVER}:
        raise UserError(f"--fresh and --reuse {args.reuse} contradict each other; leave one of them out")
    return NEVER if args.fresh else args.reuse or ALWAYS


def _run_script(args: argparse.Namespace) -> int:
    _refuse_elsewhere(args)
    if args.dry_run:
        raise UserError("--dry-run is for flat lists; a Python script decides what to run while it runs")
    from bough.cli.runs.run_script import run_script
    from bough.cli.runs.run_sessions import watched_run

    with _prints_to_stderr(args.json):
        ended = watched_run(
            lambda: run_script(args.file, args.args), _options(args), silent=args.json or args.quiet, strict=False
        )
    if args.json:
        print_json(ended.as_json())
    return ended.exit_code


def _run_plan(args: argparse.Namespace, output: Output, file: File) -> int:
    _refuse_elsewhere(args)
    plan = file.plan(args.args, _emulation_of(args), output.note)
    from bough.describe.steps import steps

    lowered = steps(plan)
    if args.dry_run and _shows_difference(args, output, args.name or file.stem, lowered, whole=file.is_whole):
        return 0
    if args.dry_run:
        tasks = [step.task for step in lowered if step.task is not None]
        output.answer(
            [{"command": task.command, "name": task.name} for task in tasks], lambda: _flat_lines(plan, tasks)
        )
        return 0
    from bough.cli.runs.run_sessions import submit_steps

    judged = JudgedRun(plan, output)
    name = args.name or file.stem

    def work() -> int:
        return submit_steps(lowered, name, output.note, whole=file.is_whole, kept=judged.kept, halt_file=plan.halt_file)

    return _watched(args, work, judged.ended)


class JudgedRun:
    """A run of a plan that says itself whether it succeeded: by its FINAL node, or by a node that ends it."""

    def __init__(self, plan: Plan, output: Output) -> None:
        verdict = plan.verdict
        self._verdict = verdict
        self._output = output
        self._tasks = plan.task_count
        names = [] if verdict is None else [verdict.decider, *verdict.aborts, *verdict.ignored]
        self.kept: dict[str, Task | None] | None = dict.fromkeys(filter(None, names)) if names else None

    def ended(self, ended: Ended) -> Ended:
        """The run with the exit code that the plan gives it; one that was interrupted, or refused, keeps its own."""
        verdict = self._verdict
        if verdict is None or self.kept is None or ended.exit_code not in (0, 1):
            return ended
        if None in self.kept.values():
            return ended  # they are those of a workflow that was running already, and was changed
        from bough.cli.runs.run_sessions import codes_of

        codes = codes_of(self.kept)
        uncounted = sum(codes.get(name) != 0 for name in verdict.ignored)
        done = ended.counts.get("done", 0) + uncounted >= self._tasks
        code = verdict.exit_code(codes, others_done=done)
        stopper = verdict.ended_by(codes)
        if stopper:
            self._output.note(f"{stopper} ended the workflow (exit code {codes[stopper]})")
        if verdict.decider and (code == 0) is not done:
            how = "succeeded, and so did the workflow" if code == 0 else "failed, and so did the workflow"
            self._output.note(f"{verdict.decider} {how}")
        return ended._replace(exit_code=code)


def _shows_difference(
    args: argparse.Namespace, output: Output, name: str, steps: Sequence[Step], *, whole: bool = True
) -> bool:
    """Show what would be different about a workflow that is running at a server; whether there is one."""
    from bough.api.session import launch

    if not launch.server_address(args.server):
        return False
    from bough.cli.runs.submit_files import foresee, server_address

    foreseen = foresee(server_address(args.server), name, steps, whole=whole)
    if foreseen.found is not None:
        foreseen.show(output)
    return foreseen.found is not None


def _watched(
    args: argparse.Namespace, submit: Callable[[], int], judge: Callable[[Ended], Ended] = lambda ended: ended
) -> int:
    """Run what is submitted to its end, and say how that was."""
    from bough.cli.runs.run_sessions import watched_run

    with _prints_to_stderr(args.json):  # as --echo does
        ended = judge(watched_run(submit, _options(args), silent=args.json or args.quiet, strict=True))
    if args.json:
        print_json(ended.as_json())
    return ended.exit_code


def _flat_lines(plan: Plan, tasks: list[PlanTask]) -> list[str]:
    """A plan as a flat list; one that a flat list cannot hold, as names and commands."""
    from bough.describe import grouped_list

    try:
        return grouped_list.write(plan).splitlines()
    except InvalidWorkload:
        return [f"{task.name}: {task.command}" for task in tasks]


def _run_list(args: argparse.Namespace, output: Output, file: File) -> int:
    _refuse_elsewhere(args)
    from bough.describe import flat_list

    tasks = flat_list.read(file.source.text, file.source.name)
    if args.dry_run:
        name = args.name or file.stem
        shown = _shows_difference(args, output, name, flat_list.flat_steps(tasks, file.source.name))
        return 0 if shown else _show_unfinished(tasks, args, output, file.stem)
    from bough.cli.runs.run_sessions import submit_all

    return _watched(args, lambda: submit_all(tasks, args.name or file.stem, file.source.name, output.note))


def _run_commands(args: argparse.Namespace, output: Output, words: list[str]) -> int:
    """Run the command after `--`, or one for each line or number."""
    _refuse_elsewhere(args)
    for option in ("emulate", "scale", "files"):
        if getattr(args, option) is not None:
            raise UserError(f"--{option} is for a recorded workflow (WfFormat), not for a command")
    many = many_commands(words, args.array, args.each_line)
    command = one_command(words)
    if args.keep_order and many is None:
        raise UserError("--keep-order goes with --each-line or --array")
    from bough.api.submit.command_lines.commands import command_name

    if args.dry_run:
        from bough.cli.runs.run_commands import preview

        texts = [shlex.join(words) if len(words) > 1 else words[0]] if many is None else preview(many)
        output.answer([{"command": text} for text in texts], lambda: texts)
        return 0
    silent = args.json or args.quiet
    from bough.cli.runs.run_commands import run_many, run_one
    from bough.cli.runs.run_sessions import watched_run

    name = args.name or command_name(words[0]) or "command"
    options = {key: getattr(args, key) for key in _OF_TASKS if getattr(args, key) is not None}
    options |= ruled(args.monitor, args.rule, many=many is not None)
    options |= checkpointed(args.checkpoint, args.checkpoint_file)

    def work() -> int:
        if many is None:
            return run_one(
                command, name, is_named=bool(args.name), options=options, to_stderr=args.json, silent=args.quiet
            )
        return run_many(
            many,
            name,
            is_named=bool(args.name),
            options=options,
            rule=args.rule or "",
            in_order=args.keep_order,
            to_stderr=args.json,
            silent=silent,
        )

    with _prints_to_stderr(args.json):
        ended = watched_run(work, _options(args), silent=silent or many is None, strict=True)
    if args.json:
        print_json(ended.as_json())
    return ended.exit_code


@contextmanager
def _prints_to_stderr(wanted: bool) -> Iterator[None]:
    """Keep standard output for the final object: a script, what it starts, and echoes write to standard error."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


# --- numbers and emulation ----------------------------------------------------------------------------


def _cores(text: str) -> int:
    if not (text.isdecimal() and len(text) <= _DIGITS and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r:.60} is not a number of cores, 1 or more")
    return int(text)


def _add_emulation_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--emulate",
        nargs="?",
        const="sleep",
        type=_kind,
        metavar="KIND",
        help="replay a recorded workflow (WfFormat): sleep (default) or cpu, as long as each task took",
    )
    parser.add_argument("--scale", type=_factor, metavar="F", help="with --emulate: times the recorded run times")
    parser.add_argument(
        "--files", type=_factor, metavar="F", help="with --emulate: read and write files of F times the recorded sizes"
    )


def _emulation_of(args: argparse.Namespace) -> TraceReplay | None:
    if args.emulate is None:
        for option in ("scale", "files"):
            if getattr(args, option) is not None:
                raise UserError(f"--{option} goes with --emulate")
        return None
    from bough.describe.wfformat import TraceReplay

    scale = 1.0 if args.scale is None else args.scale
    return TraceReplay(args.emulate, scale, args.files or 0.0, f"{args.name or stem(args.file)}.files")


def _kind(text: str) -> str:
    if text not in _KINDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not one of {', '.join(_KINDS)}; write --emulate behind the file, or as --emulate=sleep"
        )
    return text


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0 <= factor < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no factor; give a number such as 0.01")
    return factor


# --- what a flat list would run -----------------------------------------------------------------------


def _show_unfinished(tasks: list[FlatTask], args: argparse.Namespace, output: Output, name: str) -> int:
    """Show the tasks that are not done yet, as a flat list."""
    from bough.describe import flat_list

    left = tasks
    place = store_of(args.store, args.name or name)
    if place is not None and _reuse(args) != NEVER:
        from bough.cli.targets.jobs_database import OpenDatabase, catch_up

        catch_up(place)
        with OpenDatabase(place) as database:
            left = would_run(tasks, finished(database, always=_reuse(args) == ALWAYS))
    if len(left) < len(tasks):
        output.note(f"{len(tasks) - len(left)} of {len(tasks)} tasks are done and would be reused")
    output.answer([task._asdict() for task in left], lambda: map(flat_list.show_task, left))
    return 0


def plain(command: str) -> str:
    """A text as the jobs database may hold it: a command that needs no shell is kept as words."""
    try:
        return shlex.join(shlex.split(command))
    except ValueError:
        return command


def finished(database: OpenDatabase, *, always: bool = True) -> set[Twin]:
    """The loose commands that were done: of all runs, or of those since the last one that ended well."""
    of = "" if always else "and run > (select coalesce(max(run), 0) from runs where complete = 1)"
    rows = database.rows(
        f"select run, command, state from tasks where kind = 'command' and not is_array {of} order by id"
    )
    seen: Counter[tuple[object, str]] = Counter()
    done: set[Twin] = set()
    for row in rows:
        command = plain(str(row["command"]))
        number = seen[row["run"], command]
        seen[row["run"], command] += 1
        if row["state"] == "done":
            done.add((command, number))
    return done


def would_run(tasks: Sequence[FlatTask], done: Iterable[Twin]) -> list[FlatTask]:
    """The tasks, dependencies first, that are not expected to be reused."""
    known = set(done)
    seen: Counter[str] = Counter()
    run: list[FlatTask] = []
    names: set[str] = set()  # of tasks that run
    made: set[str] = set()  # files that they write
    for task in tasks:
        command = plain(_text(task))
        twin = (command, seen[command])
        seen[command] += 1
        waits = any(other in names for other in task.after) or any(path in made for path in task.reads)
        if twin not in known or waits or not _is_up_to_date(task):
            run.append(task)
            names.add(task.name)
            made.update(task.writes)
    return run


def _text(task: FlatTask) -> str:
    """A command as the jobs database has it."""
    if not task.writes:
        return task.command
    from bough.api.submit.command_lines.declared_text import plan_with_files
    from bough.model.commands.command import final_text

    return final_text(plan_with_files(task.command, task.reads, task.writes, cwd=os.getcwd()).call)


def _is_up_to_date(task: FlatTask) -> bool:
    """Whether the declared outputs are there and no declared input is newer, as make looks at it."""
    try:
        written = [os.stat(path).st_mtime_ns for path in task.writes]
        return not written or all(os.stat(path).st_mtime_ns <= max(written) for path in task.reads)
    except OSError:
        return False
