"""`bough done`: say that a task that was taken by hand is over, and how; or declare groups and tasks done.

One id means the task that somebody took; anything else, or `--declare`, is declared done without having run. Rule:
harmless when repeated; nobody ends what somebody else has; what has a value that others take is left out.
"""

from __future__ import annotations

import argparse
import re

from bough.cli.commands.act import act, nothing_runs
from bough.cli.commands.manual_commands import found_outputs, make, read_id, who
from bough.cli.option_values import count, whole
from bough.cli.output import Output
from bough.cli.targets.live_server import connect_client
from bough.cli.targets.locate import add_store_arguments
from bough.errors import UserError
from bough.model.events.news import DeclareDone
from bough.model.ids import RecordId
from bough.wire import questions

EXAMPLES = (
    "bough done 12",
    "bough done 12.3 --exit-code 1",
    "bough done 12 --as batch-17",
    "bough done 12 --give-back",
    "bough done align plot",
    "bough done 12 --declare",
)

_ID = re.compile(r"\d+(\.\d+)?\Z")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "selectors", nargs="+", metavar="ID", help="the task that bough take gave you, or groups to declare done"
    )
    parser.add_argument("--exit-code", type=whole, default=0, metavar="N", help="how its command ended (0: well)")
    parser.add_argument("--give-back", action="store_true", help="it was not run: somebody else shall have it")
    parser.add_argument("--declare", action="store_true", help="declare it done although nobody took it")
    parser.add_argument("--run", type=count, metavar="N", help=argparse.SUPPRESS)
    parser.set_defaults(selector=None, states=None, state=None, group=None)
    parser.add_argument("--as", dest="who", metavar="NAME", help="who you are (default: your login and host)")
    add_store_arguments(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Report the end of a task, or declare tasks done."""
    if args.declare or len(args.selectors) > 1 or not _ID.match(args.selectors[0]):
        if args.exit_code or args.give_back:
            raise UserError("--exit-code and --give-back are about one task that you took; give its id")
        return act(args, output, DeclareDone, "declared done", nothing_runs("declare done"))
    record, index = read_id(args.selectors[0])
    if not 0 <= args.exit_code <= 255:
        raise UserError(f"--exit-code {args.exit_code}: exit codes go from 0 to 255")
    with connect_client(args.server) as server:
        task = server.ask(questions.Task(RecordId(record), index))
        outputs: list[tuple[str, str, int, int]] = []
        missing = ""
        if task["kind"] == "command" and not (args.exit_code or args.give_back):
            outputs, missing = found_outputs(make(task))
        name = who(argparse.Namespace(name=args.who))
        told = server.ask(
            questions.Done(RecordId(record), name, index, args.exit_code, outputs, missing, args.give_back)
        )
    output.answer(told, lambda: [_line(told, missing)])
    return 0


def _line(told: dict[str, object], missing: str) -> str:
    if not told["changed"]:
        return f"task {told['id']} is {told['state']}; nobody has it by hand, nothing was changed"
    if missing:
        return f"task {told['id']} is {told['state']}: its output {missing} is not there"
    return f"task {told['id']} is {told['state']}"
