"""`bough command`: print the command of one task, as text or as a script that runs it as an executor would.

Rule: it looks and changes nothing.
"""

from __future__ import annotations

import argparse

from bough.cli.commands.manual_commands import make, read_id, script
from bough.cli.output import Output
from bough.cli.targets.live_server import add_server_argument, connect_client
from bough.model.ids import RecordId
from bough.wire import questions

EXAMPLES = ("bough command 12", "bough command 12.3 --script | bash")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("id", metavar="ID", help="one task: 12, or 12.3 of an array")
    parser.add_argument("--script", action="store_true", help="with its directory, environment and input, for a shell")
    add_server_argument(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Print it."""
    record, index = read_id(args.id)
    with connect_client(args.server, "read") as server:
        task = server.ask(questions.Task(RecordId(record), index))
    text = "\n".join(script(task)) if args.script else make(task).text
    output.answer({"id": task["id"], "command": text}, lambda: [text])
    return 0
