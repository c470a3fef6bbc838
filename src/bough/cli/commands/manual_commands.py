"""What commands share by which people run tasks themselves: who they are, which task, and the text of its command.

The text of an array's element is made here, as an executor would make it, but with outputs under their final names.
Rule: the server unpickles nothing; rows of a table are the user's own and are unpickled by the user's own process.

A task that was taken by hand (`bough take`), as `bough here --task` sees it: it asks the server and no executor.

Rule: the same words and answers as for a task that an executor runs.
"""

from __future__ import annotations

import argparse
import getpass
import os
import pickle
import re
import shlex
import socket
from typing import Any

import msgspec

from bough.api.task_context import Attribute, TaskContext
from bough.cli.targets.live_server import add_server_argument, connect_client
from bough.errors import UserError
from bough.model.bounds import Count, Index, read_number
from bough.model.commands.command import CommandCall, decode_call, decode_template
from bough.model.commands.rendering import render_call, render_row
from bough.model.ids import RecordId
from bough.model.outcomes import kept_time
from bough.wire import questions

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_INSIDE = frozenset({"payload", "body", "table", "pages", "answer", "text", "attributes"})  # not for people as they are

_ID = re.compile(r"(\d+)(?:\.(\d+))?\Z", re.ASCII)

Task = dict[str, Any]  # as the server describes it


def add_name_argument(parser: argparse.ArgumentParser) -> None:
    """The options of who takes tasks."""
    parser.add_argument("--as", dest="name", metavar="NAME", help="who you are (default: your login and host)")
    add_server_argument(parser)


def who(args: argparse.Namespace) -> str:
    """The name that somebody takes tasks under."""
    return args.name or f"{getpass.getuser()}@{socket.gethostname()}"


def read_id(text: str) -> tuple[int, int]:
    """Record and element of one task."""
    found = _ID.match(text)
    if found is None:
        raise UserError(f"{text!r:.60} is not the id of one task; say 12, or 12.3 for an element of an array")
    what = f"in the id {text!r:.60} a number"
    return read_number(what, found[1], Count), read_number(what, found[2] or "0", Index)


class ManualCommand(msgspec.Struct, frozen=True):
    """A command, ready to be run."""

    call: CommandCall
    words: list[str]

    @property
    def text(self) -> str:
        """As one would type it."""
        return self.words[-1] if self.call.settings.shell else shlex.join(self.words)


def make(task: Task) -> ManualCommand:
    """The command of a task."""
    if task["kind"] != "command":
        raise UserError(f"task {task['id']} is a function: only an executor can run it")
    try:
        call = decode_call(task["payload"]) if not task["is_array"] else _of_row(task)
    except (msgspec.MsgspecError, pickle.UnpicklingError, ImportError, AttributeError, IndexError) as error:
        raise UserError(f"the command of task {task['id']} cannot be made here: {error}") from error
    return ManualCommand(call, render_call(call, call.writes, task["cores"], max(1, task["attempt"])))


def _of_row(task: Task) -> CommandCall:
    index = task["index"]
    if task["table"]:
        row = pickle.loads(task["table"])[index : index + 1]
    else:
        start, _, data = task["pages"][0]
        row = pickle.loads(data)[index - start : index - start + 1]
    found = list(row)
    if not found:
        raise UserError(f"the table of array {task['record']} has no row {index}")
    return render_row(decode_template(task["body"]), found[0])


def attributes(task: Task) -> dict[str, object]:
    """All that people may want to know of a task: ours, and what the user gave it, by the names he gave."""
    shown: dict[str, object] = {name: value for name, value in task.items() if name not in _INSIDE}
    if task["kind"] == "command":
        made = make(task)
        settings = made.call.settings
        shown |= {
            "command": made.text,
            "directory": settings.cwd,
            "shell": shlex.join(settings.shell),
            "env": dict(settings.env),
            "stdin": settings.stdin_path,
            "outputs": dict(made.call.writes),
        }
    return {**task["attributes"], **shown}


def script(task: Task) -> list[str]:
    """Lines that run a task as an executor would: its directory, its environment, its input."""
    made = make(task)
    settings = made.call.settings
    threads = dict.fromkeys(_THREADS, str(max(1, int(task["cores"]))))
    number = f"{task['record']}.{task['index']}"
    own = {**settings.env, "BOUGH_TASK": number, "BOUGH_ATTEMPT": str(max(1, task["attempt"]))}
    folders = sorted({os.path.dirname(path) for path in made.call.writes.values()})
    lines = [f"cd {shlex.quote(settings.cwd)} || exit"]
    lines += [f"mkdir -p {shlex.quote(folder)}" for folder in folders]
    lines += [f": ${{{name}:={value}}}; export {name}" for name, value in threads.items() if name not in own]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in own.items()]
    command = shlex.join(made.words)
    if settings.stdin_path:
        command += f" < {shlex.quote(settings.stdin_path)}"
    elif settings.stdin is not None:
        command = f"printf %s {shlex.quote(settings.stdin.decode('utf-8', 'surrogateescape'))} | {command}"
    else:
        command += " < /dev/null"
    return [*lines, command]


def found_outputs(made: ManualCommand) -> tuple[list[tuple[str, str, int, int]], str]:
    """The declared outputs that are there, and one that is not."""
    found: list[tuple[str, str, int, int]] = []
    missing = ""
    for slot, path in made.call.writes.items():
        try:
            seen = os.stat(path)
        except OSError:
            missing = missing or path
        else:
            found.append((slot, path, seen.st_size, kept_time(seen.st_mtime_ns)))
    return found, missing


class Taken(TaskContext):
    """See the module."""

    def __init__(self, task: str, name: str, server: str | None) -> None:
        super().__init__("", None)
        self._record, self._index = read_id(task)
        self._name = name
        self._server = server

    def ask(self, question: questions.HereQuestion) -> dict[str, Attribute | bool]:
        """Ask the server; wait for the answer, however long."""
        with connect_client(self._server, patience=None) as server:
            return server.ask(questions.Here(RecordId(self._record), self._name, question, self._index))


def taken(args: argparse.Namespace) -> Taken:
    """The task that --task names."""
    return Taken(args.task, who(argparse.Namespace(name=args.who)), args.server)
