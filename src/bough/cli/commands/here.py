"""`bough here`: what a running task can ask for and say of itself, for scripts in any language.

Rule: it talks to the executor of the task alone, and loads next to nothing, unless it is about a task that was
taken with `bough take`; a lock that is not free is exit code 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from bough.api.task_context import TaskContext, here
from bough.cli.main import add_verb
from bough.cli.option_values import count
from bough.cli.output import Output, cell
from bough.errors import UnknownName, UserError

EXAMPLES = (
    "bough here attribute name",
    'bough here status "reading genome 3 of 12" --progress 0.25',
    "bough here report step=3 score=-1.5",
    "bough here lock database && update; bough here unlock database",
    "bough here lock licence --no-wait || exit 0",
    "bough here release",
    'eval "$(bough here counts)"; echo "$failed tasks have failed"',
    "bough here cancel monitor",
)
_BUSY = 1  # the exit code when another task has the lock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verbs."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    told = add_verb(verbs, "attribute", "print one of the task's attributes, or all", EXAMPLES[:1])
    told.add_argument("name", nargs="?", metavar="NAME", help="only this one, bare (all)")
    said = add_verb(verbs, "status", "say what the task does, for bough status and bough watch", EXAMPLES[1:2])
    said.add_argument("text", metavar="TEXT", help="in words")
    said.add_argument("--progress", type=_share, metavar="SHARE", help="how much of it is done, 0 to 1")
    told = add_verb(verbs, "report", "report numbers, which join the task's series of these names", EXAMPLES[2:3])
    told.add_argument(
        "numbers", nargs="+", metavar="NAME=N", help="step=N says at which step they are (counted from 1)"
    )
    told.add_argument("--total", type=count, metavar="N", help="steps of a whole run")
    add_verb(verbs, "alive", "give a sign of life, for tasks that are sent again after a silence", ["bough here alive"])
    taken = add_verb(verbs, "lock", "take a lock, which is freed at the latest when the task ends", EXAMPLES[3:5])
    taken.add_argument("name", metavar="NAME", help="of the lock; the same for all tasks of the server")
    taken.add_argument("--no-wait", action="store_true", help="exit with 1 when another task has it (wait for it)")
    freed = add_verb(verbs, "unlock", "free a lock that the task has", ["bough here unlock database"])
    freed.add_argument("name", metavar="NAME", help="of the lock")
    add_verb(verbs, "release", "let those start that wait for the task's group", EXAMPLES[5:6])
    add_verb(verbs, "counts", "print how many tasks of the workflow are done, failed and so on", EXAMPLES[6:7])
    ended = add_verb(verbs, "cancel", "cancel other tasks of the workflow", EXAMPLES[7:])
    ended.add_argument("names", nargs="*", metavar="NAME", help="of a task")
    ended.add_argument("--all", action="store_true", help="all others, but for final ones")
    for verb in verbs.choices.values():
        verb.add_argument("--task", metavar="ID", help="one that you took with bough take (the one that asks)")
        verb.add_argument(
            "--as", dest="taker", metavar="NAME", help="with --task: the name it was taken under (your login and host)"
        )
        verb.add_argument("--server", metavar="ADDRESS", help="with --task: the server it is of (your own)")


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r:.60} is not a share; say 0.25 for a quarter")
    return share


def run(args: argparse.Namespace, output: Output) -> int:
    """Do what the verb says."""
    do: dict[str, Callable[[TaskContext, argparse.Namespace, Output], int]] = {
        "attribute": _attribute,
        "status": _status,
        "report": _report,
        "alive": _alive,
        "lock": _lock,
        "unlock": _unlock,
        "release": _release,
        "counts": _counts,
        "cancel": _cancel,
    }
    if args.task is not None:
        from bough.cli.commands.manual import ManualTaskContext

        return do[args.verb](ManualTaskContext(args.task, args.taker, args.server), args, output)
    return do[args.verb](here(), args, output)


def _attribute(task: TaskContext, args: argparse.Namespace, output: Output) -> int:
    if args.name is None:
        shown = dict(task.attributes)
        output.answer(shown, lambda: [f"{name}: {cell(value)}" for name, value in shown.items()])
        return 0
    try:
        value = task.attributes[args.name]
    except KeyError:
        known = ", ".join(task.attributes)
        raise UnknownName(f"the task has no attribute {args.name!r}; there are: {known}") from None
    output.answer(value, lambda: [value if isinstance(value, str) else cell(value)])
    return 0


def _status(task: TaskContext, args: argparse.Namespace, output: Output) -> int:
    if args.progress is not None:
        task.progress(args.progress)
    task.status(args.text)
    return 0


def _report(task: TaskContext, args: argparse.Namespace, output: Output) -> int:
    found: dict[str, float] = {}
    for text in args.numbers:
        name, _, value = text.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            name = ""
        if not name:
            raise UserError(f"{text!r:.60} is not of the form NAME=N, such as score=-1.5")
    task.report(step=found.pop("step", None), total=args.total, **found)
    return 0


def _alive(task: TaskContext, args: argparse.Namespace, output: Output) -> int:
    task.alive()
    return 0


def _lock(task: TaskContext, args: argparse.Namespace, output: Output) -> int:
    lock = task.lock(args.name, wait=not args.no_wait)
    if args.json:
        output.answer({"name": args.name, "taken": lock.taken, "owner": lock.owner}, lambda: ())
    elif not lock and not args.quiet:
        import sys

        print(f"bough: the lock {args.name!r} is not free: task {lock.owner} has it", file=sys.stderr)
    return 0 if lock else _BUSY


def _unlock(task: TaskContext, args: argparse.Namespace, output: Output) -> int:
    task.unlock(args.name)
    return 0


def _release(task: TaskContext, args: argparse.Namespace, output: Output) -> int:
    task.release()
    return 0


def _counts(task: TaskContext, args: argparse.Namespace, output: Output) -> int:
    counts = task.counts()
    output.answer(counts, lambda: [f"{name}={count}" for name, count in counts.items()])
    return 0


def _cancel(task: TaskContext, args: argparse.Namespace, output: Output) -> int:
    if not args.names and not args.all:
        raise UserError("say which tasks to cancel by their names, or give --all")
    count = task.cancel(*args.names, all_others=args.all)
    output.answer({"cancelled": count}, lambda: ())
    return 0
