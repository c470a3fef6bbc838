"""`bough done`: say that a task that was taken by hand is over, and how.

Rule: harmless when repeated; nobody ends what somebody else has.
"""

from __future__ import annotations

import argparse

from bough.cli.handwork import add_name_argument, found_outputs, make, read_id, who
from bough.cli.output import Output
from bough.cli.service import connect
from bough.errors import InternalError, UserError

EXAMPLES = (
    "bough done 12",
    "bough done 12.3 --exit-code 1",
    "bough done 12 --as batch-17",
    "bough done 12 --give-back",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("id", metavar="ID", help="the task that bough take gave you")
    parser.add_argument("--exit-code", type=int, default=0, metavar="N", help="how its command ended (0: well)")
    parser.add_argument("--give-back", action="store_true", help="it was not run: somebody else shall have it")
    add_name_argument(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Report the end of a task."""
    record, index = read_id(args.id)
    if not 0 <= args.exit_code <= 255:
        raise UserError(f"--exit-code {args.exit_code}: exit codes go from 0 to 255")
    with connect(args.server) as server:
        task = server.ask("task", record=record, index=index)
        outputs: list[tuple[str, str, int, int]] = []
        missing = ""
        if isinstance(task, dict) and task["kind"] == "command" and not (args.exit_code or args.give_back):
            outputs, missing = found_outputs(make(task))
        told = server.ask(
            "done",
            record=record,
            index=index,
            name=who(args),
            exit_code=args.exit_code,
            give_back=args.give_back,
            outputs=outputs,
            missing=missing,
        )
    if not isinstance(told, dict):
        raise InternalError(f"the server answered done with {told!r:.80}")
    output.answer(told, lambda: [_line(told, missing)])
    return 0


def _line(told: dict[str, object], missing: str) -> str:
    if not told["changed"]:
        return f"task {told['id']} is {told['state']}; nobody has it by hand, nothing was changed"
    if missing:
        return f"task {told['id']} is {told['state']}: its output {missing} is not there"
    return f"task {told['id']} is {told['state']}"
