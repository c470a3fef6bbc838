"""`bough attribute`: print what is known of one task: name, group, directory, environment, the user's own attributes.

Rule: it looks and changes nothing; one attribute alone is printed bare, for scripts.
"""

from __future__ import annotations

import argparse

from bough.cli.commands.manual_commands import attributes, read_id
from bough.cli.output import Output, cell
from bough.cli.targets.live_server import add_server_argument, connect_client
from bough.errors import UnknownName
from bough.model.ids import RecordId
from bough.wire import questions

EXAMPLES = ("bough attribute 12", "bough attribute 12 directory", "bough attribute 12.3 env.TMPDIR")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("id", metavar="ID", help="one task: 12, or 12.3 of an array")
    parser.add_argument("attribute", nargs="?", metavar="NAME", help="only this one; env.X for a variable (all)")
    add_server_argument(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Print one attribute, or all."""
    record, index = read_id(args.id)
    with connect_client(args.server, "read") as server:
        task = server.ask(questions.Task(RecordId(record), index))
    shown = attributes(task)
    if args.attribute is None:
        output.answer(shown, lambda: [f"{name}: {_text(value)}" for name, value in shown.items()])
        return 0
    name, _, inner = args.attribute.partition(".")
    value = shown.get(name)
    if name not in shown or (inner and not (isinstance(value, dict) and inner in value)):
        raise UnknownName(f"task {args.id} has no attribute {args.attribute!r}; there are: {', '.join(shown)}")
    if inner and isinstance(value, dict):
        value = value[inner]
    output.answer(value, lambda: [value if isinstance(value, str) else _text(value)])
    return 0


def _text(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={cell(inner)}" for name, inner in value.items())
    return cell(value)
