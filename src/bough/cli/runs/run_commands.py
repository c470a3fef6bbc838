"""Runs the commands of `bough run -- COMMAND`: one, or one for each line or number.

A single command always runs, its output is shown while it runs, and its exit code becomes ours. Of many commands, what
earlier runs have done is reused, and the output of each is shown when it has ended, in one piece.
Rule: standard output carries what commands wrote to theirs and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from bough.api.session import launch
from bough.cli.output_writer import OutputWriter
from bough.cli.runs.command_texts import ManyCommands, compare, own_code
from bough.cli.runs.run_in_task import open_session
from bough.errors import BoughError, StoreHeld, TaskFailed, WorkflowTaken
from bough.model.ids import RecordId
from bough.model.outcomes import Cause
from bough.model.texts.terminal_text import harmless
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.futures.task import Task
    from bough.api.session.session import Session

LOOK = 0.1  # seconds between two looks at what a command has written
PIECE = 1 << 20  # bytes of it that are asked for at once
_NAMES = 100  # that are tried for a workflow that was given none
_AROUND = ("setup", "container")


def run_one(
    command: str | list[str], name: str, *, is_named: bool, options: Mapping[str, Any], to_stderr: bool, silent: bool
) -> int:
    """Run a command to its end; its own exit code."""
    with _session(name, is_named=is_named) as session:
        task = session.command(command, memo=False, **options)
        shown = _Shown(sys.stderr if to_stderr else sys.stdout, sys.stderr)
        if not options.get("retries"):
            _follow(session, task, shown)
        try:
            error = task.exception()
        except CancelledError:
            return 1
        shown.rest(task)
    if error is None:
        early = task.result().ended_by
        if early and not silent:
            print(f"bough: {harmless(early)}", file=sys.stderr)
        return 0
    if not silent:
        print(f"bough: {harmless(str(error))}", file=sys.stderr)
    if not isinstance(error, TaskFailed):
        return 1
    causes = {failure.cause for failure in session.progress.failures}
    return own_code(error.returncode, error.signal, is_started=Cause.NOT_STARTED not in causes)


def run_many(
    many: ManyCommands,
    name: str,
    *,
    is_named: bool,
    options: Mapping[str, Any],
    rule: str = "",
    in_order: bool,
    to_stderr: bool,
    silent: bool,
) -> int:
    """Run all commands to their end, and show what each wrote; failures are told by the display."""
    from bough.model.spaces import tie

    around = {name: options[name] for name in _AROUND if name in options}
    said = {"name": name} | {key: value for key, value in options.items() if key not in around}
    with _session(name, is_named=is_named) as session:
        array = session.sweep_indexed(many.template, tie(**many.columns), many.indices, said, around)
        compare(array, rule)
        for task in _ended(array.tasks()) if in_order else array.as_completed():
            shown = _Shown(sys.stderr if to_stderr else sys.stdout, sys.stderr)
            shown.rest(task, with_stderr=silent or task.state == "done")
    return 0


def preview(many: ManyCommands) -> list[str]:
    """The texts of all commands."""
    import os

    from bough.api.futures.completed import CommandRows
    from bough.api.submit.command_lines.command_plan import plan_sweep
    from bough.model.spaces import tie

    planned = plan_sweep(many.text, tie(**many.columns), {}, cwd=os.getcwd())
    rows = CommandRows(planned.template, planned.rows)
    return [rows.text(index) for index in range(len(many))]


def _session(name: str, *, is_named: bool) -> Session:
    """A session of its own, in a task on its cores: another command of the same name may run at the same time."""
    with launch.run_defaults(runs_commands=True):
        for number in range(1, _NAMES):
            try:
                return open_session(name if number == 1 else f"{name}-{number}", "raise")
            except (StoreHeld, WorkflowTaken):
                if is_named:
                    raise
        return open_session(name, "raise")


def _ended(tasks: Iterable[Task]) -> Iterator[Task]:
    for task in tasks:
        with suppress(CancelledError):
            task.exception()  # waits, and tells the session that somebody looked
        yield task


def _follow(session: Session, task: Task, shown: _Shown) -> None:
    """Show what a command writes until it has ended."""
    while wait([task], LOOK).not_done:
        try:
            for stream in ("stdout", "stderr"):
                offset = shown.seen[stream]
                said = session.ask(
                    questions.Output(RecordId(task.record), 0, questions.stream_name(stream), offset, PIECE)
                )
                shown.show(stream, said.data)
        except BoughError:
            return  # it cannot be seen from here: it is shown at the end


class _Shown:
    """What was shown of a command's output."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self.seen = {"stdout": 0, "stderr": 0}
        self._files = {"stdout": OutputWriter(out), "stderr": OutputWriter(err)}

    def show(self, stream: str, data: bytes) -> None:
        """Write it; on a terminal above a display that may be there."""
        self.seen[stream] += len(data)
        self._files[stream].write(data)

    def rest(self, task: Task, *, with_stderr: bool = True) -> None:
        """Show what has not been shown yet of a command that has ended."""
        detail = task._detail()
        for stream in ("stdout", "stderr") if with_stderr else ("stdout",):
            if detail is not None:
                self.show(stream, task._output(stream, getattr(detail, stream))[self.seen[stream] :])
            self._files[stream].end()
