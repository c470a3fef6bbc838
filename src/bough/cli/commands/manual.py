"""`bough take`, `done`, `command` and `attribute`: tasks that people, or schedulers of their own, run themselves.

`take` gives a ready task and gives the same one again until `done` reports its end; `command` and `attribute` only
look. The text of an array element's command is made here, as an executor would make it, but with outputs under their
final names. Rule: the server unpickles nothing: rows of a table are the user's own, and the user's own process
unpickles them. `done` is harmless when repeated, and only the name that took a task ends it. The exit code of `take`
says what the answer is, so that a script need not read texts.
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
from bough.cli.main import Command
from bough.cli.option_values import count, whole
from bough.cli.output import Output, cell
from bough.cli.targets.live_server import ServerClient, add_server_argument, connect_client
from bough.cli.targets.locate import add_store_arguments
from bough.errors import UnknownName, UserError
from bough.model.arrays.array_indices import positions
from bough.model.bounds import Count, read_number
from bough.model.commands.command import CommandCall, decode_call, decode_template
from bough.model.commands.containers import CONTAINER_COMMAND, around
from bough.model.commands.rendering import render_call, render_row
from bough.model.events.news import DeclareDone
from bough.model.ids import NUMBERS, RecordId
from bough.model.outcomes import kept_time
from bough.model.texts.plurals import counted
from bough.wire import here_questions, questions

TAKE_CODES = {"task": 0, "none": 10, "done": 11, "blocked": 12}  # the exit code of `bough take`, by the answer
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_INSIDE = frozenset(
    {"payload", "body", "table", "pages", "answer", "text", "attributes", "position"}
)  # not for people as they are
_ID = re.compile(r"(?:(?P<workflow>[^:]+):)?(?P<number>\d+)(?:\.(?P<index>\d+))?\Z", re.ASCII)

Task = dict[str, Any]  # as the server describes it


# --- take -----------------------------------------------------------------------------------------------


def _add_take_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Get the next ready task, to run it yourself: its id on the first line, its command on the others. The same"
        " task is given again until bough done. Only commands can be taken: functions need an executor. Exit codes:"
        " 0 a task; 10 nothing is ready now, ask again; 11 everything has ended; 12 nothing can become ready until"
        " a user acts."
    )
    parser.add_argument("--name", "--queue", dest="queue", default="", metavar="NAME", help="only of this workflow")
    parser.add_argument("--group", default="", metavar="PATH", help="only of this group, and below it")
    _add_name_argument(parser)
    add_server_argument(parser)


def _take(args: argparse.Namespace, output: Output) -> int:
    with connect_client(args.server) as server:
        task = server.ask(questions.Take(manual_name(args.taker), socket.gethostname(), args.queue, args.group))
        answer = task["answer"]
        alike = server.ask(questions.Numbered(task["record"])) if answer == "task" else []
    if answer != "task":
        output.note(task["text"])
        output.answer(task, list)
        return TAKE_CODES[answer]
    made = make_command(task)
    shown = task["id"] if len(alike) == 1 else f"{task['workflow']}:{task['id']}"  # one id for the commands that follow
    output.answer({"answer": answer, **attributes(task)}, lambda: [shown, made.text])
    return 0


# --- done -----------------------------------------------------------------------------------------------


def _add_done_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "selectors", nargs="+", metavar="ID", help="the task that bough take gave you, or groups to declare done"
    )
    parser.add_argument("--exit-code", type=whole, default=0, metavar="N", help="how its command ended (0: well)")
    parser.add_argument("--give-back", action="store_true", help="it was not run: give it to another")
    parser.add_argument("--declare", action="store_true", help="declare it done although it was not taken")
    parser.add_argument("--run", type=count, metavar="N", help=argparse.SUPPRESS)
    parser.set_defaults(selector=None, states=None, state=None, group=None)
    _add_name_argument(parser)
    add_store_arguments(parser)


def _done(args: argparse.Namespace, output: Output) -> int:
    """One id is the task that was taken; anything else, or `--declare`, is declared done without having run."""
    if args.declare or len(args.selectors) > 1 or not _ID.match(args.selectors[0]):
        if args.exit_code or args.give_back:
            raise UserError("--exit-code and --give-back are about one task that you took; give its id")
        from bough.cli.commands.act import act  # with the jobs database, which `bough take` in a loop does without

        return act(args, output, {"declared done": DeclareDone}, "there is nothing to declare done")
    read_id(args.selectors[0])  # before a server is looked for
    if not 0 <= args.exit_code <= 255:
        raise UserError(f"--exit-code {args.exit_code}: exit codes go from 0 to 255")
    with connect_client(args.server) as server:
        record, index = find_one(server, args.selectors[0], args.taker)
        task = server.ask(questions.Task(record, index))
        outputs: list[tuple[str, str, int, int]] = []
        missing = ""
        if task["kind"] == "command" and not (args.exit_code or args.give_back):
            outputs, missing = found_outputs(make_command(task))
        name = manual_name(args.taker)
        told = server.ask(questions.Done(record, name, index, args.exit_code, outputs, missing, args.give_back))
    output.answer(told, lambda: [_done_line(told, missing)])
    return 0


def _done_line(told: dict[str, object], missing: str) -> str:
    if not told["changed"]:
        return f"task {told['id']} is {told['state']}; it is not taken, nothing was changed"
    if missing:
        return f"task {told['id']} is {told['state']}: its output {missing} is not there"
    return f"task {told['id']} is {told['state']}"


# --- command, attribute ---------------------------------------------------------------------------------


def _add_command_arguments(parser: argparse.ArgumentParser) -> None:
    _add_id_argument(parser)
    parser.add_argument("--script", action="store_true", help="with its directory, environment and input, for a shell")
    add_server_argument(parser)


def _command(args: argparse.Namespace, output: Output) -> int:
    task = _look(args)
    text = "\n".join(script(task)) if args.script else make_command(task).text
    output.answer({"id": task["id"], "command": text}, lambda: [text])
    return 0


def _add_attribute_arguments(parser: argparse.ArgumentParser) -> None:
    _add_id_argument(parser)
    parser.add_argument("attribute", nargs="?", metavar="NAME", help="only this one; env.X for a variable (all)")
    add_server_argument(parser)


def _attribute(args: argparse.Namespace, output: Output) -> int:
    """All attributes by name, or one of them bare, for scripts."""
    shown = attributes(_look(args))
    if args.attribute is None:
        output.answer(shown, lambda: [f"{name}: {_value_text(value)}" for name, value in shown.items()])
        return 0
    name, _, inner = args.attribute.partition(".")
    value = shown.get(name)
    if name not in shown or (inner and not (isinstance(value, dict) and inner in value)):
        raise UnknownName(f"task {args.id} has no attribute {args.attribute!r}; there are: {', '.join(shown)}")
    if inner and isinstance(value, dict):
        value = value[inner]
    output.answer(value, lambda: [value if isinstance(value, str) else _value_text(value)])
    return 0


def _value_text(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={cell(inner)}" for name, inner in value.items())
    return cell(value)


def _look(args: argparse.Namespace) -> Task:
    read_id(args.id)  # before a server is looked for
    with connect_client(args.server, "read") as server:
        return server.ask(questions.Task(*find_one(server, args.id, None)))


SUBCOMMANDS = {
    "take": Command(
        (
            "bough take",
            "bough take --name nightly --as batch-17",
            '{ read -r id; command=$(cat); } < <(bough take); bash -c "$command"; bough done $id --exit-code $?',
        ),
        _add_take_arguments,
        _take,
    ),
    "done": Command(
        (
            "bough done 12",
            "bough done 12.3 --exit-code 1",
            "bough done 12 --as batch-17",
            "bough done 12 --give-back",
            "bough done align plot",
            "bough done 12 --declare",
        ),
        _add_done_arguments,
        _done,
    ),
    "command": Command(("bough command 12", "bough command 12.3 --script | bash"), _add_command_arguments, _command),
    "attribute": Command(
        ("bough attribute 12", "bough attribute 12 directory", "bough attribute 12.3 env.TMPDIR"),
        _add_attribute_arguments,
        _attribute,
    ),
}


# --- which task, under which name -----------------------------------------------------------------------


def _add_id_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="one task: 12, or 12.3 of an array")


def _add_name_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--as", dest="taker", metavar="NAME", help="the name you take tasks under (default: your login and host)"
    )


def manual_name(given: str | None) -> str:
    """The name that tasks are taken under."""
    return given or f"{getpass.getuser()}@{socket.gethostname()}"


def read_id(text: str) -> tuple[str, int, int | None]:
    """The workflow that is named, if one is, and the numbers of one task and of its element, if it has one."""
    found = _ID.match(text)
    if found is None:
        raise UserError(
            f"{text!r:.60} is not the id of one task; say 12, 12.3 for an element of an array, or WORKFLOW:12"
        )
    what = f"in the id {text!r:.60} a number"
    index = None if found["index"] is None else read_number(what, found["index"], Count)
    return found["workflow"] or "", read_number(what, found["number"], Count), index


def find_one(server: ServerClient, text: str, taker: str | None) -> tuple[RecordId, int]:
    """The record and the element that an id names: of the task that was taken, or of the only workflow that has one."""
    workflow, number, index = read_id(text)
    if number >= NUMBERS:  # as $BOUGH_TASK and SQL have it
        return RecordId(number), index or 0
    rows = server.ask(questions.Numbered(number, workflow, manual_name(taker))) or _finished(server, workflow, number)
    if not rows:
        where = f" in the workflow {workflow}" if workflow else ""
        raise UnknownName(f"there is no task {number}{where}; see bough status")
    if len(rows) > 1 and not rows[0]["taken"]:
        names = ", ".join(f"{row['workflow']}:{text}" for row in rows)
        raise UserError(f"several workflows have a task {number}; say which: {names}")
    found = rows[0]
    start, stop = positions(str(found["indices"]), index, index) if index is not None else (0, 1)
    if not start < stop <= found["length"]:
        raise UnknownName(f"{number} has {counted(found['length'], 'task')}, there is no {number}.{index}")
    return RecordId(found["record"]), start


def _finished(server: ServerClient, workflow: str, number: int) -> list[Task]:
    """Tasks of workflows that are not in the server's memory any more."""
    server.ask(questions.Project())
    asked = "select tasks.id, runs.name, length, indices from tasks join runs using (run) where number = ?"
    named = [" and name = ?", workflow] if workflow else [""]
    answer = server.ask(questions.Sql(f"{asked}{named[0]} and runs.grp != 0", [number, *named[1:]]))
    return [
        {"record": row[0], "workflow": row[1], "length": row[2], "indices": row[3], "taken": False}
        for row in answer.rows
    ]


class ManualTaskContext(TaskContext):
    """A task that was taken, as `bough here --task` sees it: it asks the server, as no executor runs the task."""

    def __init__(self, task: str, name: str | None, server: str | None) -> None:
        super().__init__("", None)
        read_id(task)
        self._id = task
        self._name = manual_name(name)
        self._server = server

    def ask(self, question: here_questions.HereQuestion) -> dict[str, Attribute | bool]:
        """Ask the server; wait for the answer, however long."""
        with connect_client(self._server, timeout=None) as server:
            record, index = find_one(server, self._id, self._name)
            return server.ask(questions.Here(record, self._name, question, index))


# --- its command ----------------------------------------------------------------------------------------


class ManualCommand(msgspec.Struct, frozen=True):
    """A command, ready to be run."""

    call: CommandCall
    words: list[str]

    @property
    def text(self) -> str:
        """As one would type it."""
        return self.words[-1] if self.call.settings.shell else shlex.join(self.words)


def make_command(task: Task) -> ManualCommand:
    """The command of a task."""
    if task["kind"] != "command":
        raise UserError(f"task {task['id']} is a function: only an executor can run it")
    try:
        call = decode_call(task["payload"]) if not task["is_array"] else _of_row(task)
    except (msgspec.MsgspecError, pickle.UnpicklingError, ImportError, AttributeError, IndexError) as error:
        raise UserError(f"the command of task {task['id']} cannot be made here: {error}") from error
    return ManualCommand(call, render_call(call, call.writes, task["cores"], max(1, task["attempt"])))


def _of_row(task: Task) -> CommandCall:
    index = task["position"]
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
    """All that people may want to know of a task: ours, and what the user gave it, by the user's names."""
    shown: dict[str, object] = {name: value for name, value in task.items() if name not in _INSIDE}
    if task["kind"] == "command":
        made = make_command(task)
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
    made = make_command(task)
    settings = made.call.settings
    threads = dict.fromkeys(_THREADS, str(max(1, int(task["cores"]))))
    number = f"{task['record']}.{task['index']}"
    own = {**settings.env, "BOUGH_TASK": number, "BOUGH_ATTEMPT": str(max(1, task["attempt"]))}
    folders = sorted({os.path.dirname(path) for path in made.call.writes.values()})
    lines = [f"cd {shlex.quote(settings.cwd)} || exit"]
    lines += [f"mkdir -p {shlex.quote(folder)}" for folder in folders]
    lines += [f": ${{{name}:={value}}}; export {name}" for name, value in threads.items() if name not in own]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in own.items()]
    user = f"{os.geteuid()}:{os.getegid()}"
    template = os.environ.get(CONTAINER_COMMAND, "")
    command = shlex.join(around(made.words, settings, template=template, user=user, variables=[*threads, *own]))
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
