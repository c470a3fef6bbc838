"""`bough take`: get the next ready task to run it oneself; the same one again until it is done.

Rule: the exit code says what the answer is, so that a script can loop without reading texts.
"""

from __future__ import annotations

import argparse
import socket

from bough.cli.commands.manual_commands import add_name_argument, attributes, make, who
from bough.cli.output import Output
from bough.cli.targets.live_server import connect_client
from bough.wire import questions

EXAMPLES = (
    "bough take",
    "bough take --queue nightly --as batch-17",
    '{ read -r id; command=$(cat); } < <(bough take); bash -c "$command"; bough done $id --exit-code $?',
)

CODES = {"task": 0, "none": 10, "done": 11, "blocked": 12}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.description = (
        "Get the next ready task, to run it yourself: its id on the first line, its command on the others. The same"
        " task is given again until bough done. Only commands can be taken: functions need an executor. Exit codes:"
        " 0 a task; 10 nothing is ready now, ask again; 11 everything has ended; 12 nothing can become ready until"
        " somebody acts."
    )
    parser.add_argument("--queue", "--name", dest="queue", default="", metavar="NAME", help="only of this workflow")
    parser.add_argument("--group", default="", metavar="PATH", help="only of this group, and below it")
    add_name_argument(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Take a task, or say why there is none."""
    with connect_client(args.server) as server:
        task = server.ask(questions.Take(who(args), socket.gethostname(), args.queue, args.group))
    answer = task["answer"]
    if answer != "task":
        output.note(task["text"])
        output.answer(task, list)
        return CODES[answer]
    made = make(task)
    output.answer({"answer": answer, **attributes(task)}, lambda: [task["id"], made.text])
    return 0
