"""What tasks left: results, and for a command its exit code, texts and files.

`Completed` reads like `subprocess.CompletedProcess`. `CommandRows` tells the text, outputs and inputs of an element
of a command array.

Rule: nothing is read or rendered before it is asked for, and a big result is mapped, not copied.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bough.api.pickling import loads
from bough.errors import NotPicklable, StoreFailed
from bough.model.bounds import MOST
from bough.model.commands.command import CommandTemplate, shown_text
from bough.model.commands.rendering import render_row, row_files
from bough.model.outcomes import Detail, Output, ResultFile, Results, Stream
from bough.model.refs import replaced
from bough.movers.value_files import read_value
from bough.stores.folder.store_folder import why_unreadable
from bough.wire.client_messages import TasksSucceeded

if TYPE_CHECKING:
    from bough.model.monitoring.observations import SeenTask


def load_results(results: Results) -> list[Any]:
    """The values of a span."""
    if isinstance(results, ResultFile):
        return _load_file(results)
    if results is None:
        raise StoreFailed("a function ended without a result")
    return _loads(results)


def _loads(data: Any, buffers: Sequence[Any] = ()) -> list[Any]:
    """Read pickled values; whatever that raises, the caller asked for a result, and is told that it is not there."""
    try:
        values: list[Any] = loads(data, buffers)
    except (Exception, SystemExit) as error:
        raise NotPicklable(f"the result cannot be read here: {type(error).__name__}: {error}") from error
    return values


def _load_file(results: ResultFile) -> list[Any]:
    try:
        values: list[Any] = read_value(results.path, _loads)
    except (OSError, ValueError) as error:
        raise StoreFailed(f"the result in {results.path} cannot be read: {why_unreadable(error)}") from error
    return values


def detail_of(message: TasksSucceeded, index: int) -> Detail | None:
    """What is known of one element's run."""
    details = message.details
    if not details:
        return None
    at = index - message.start
    if at < len(details) and details[at].index == index:  # every element has one: commands
        return details[at]
    return next((detail for detail in details if detail.index == index), None)


def read_stream_bytes(stream: Stream | None) -> bytes:
    """A task's own part of an output file."""
    if stream is None or not stream.length:
        return b""
    try:
        with open(stream.path, "rb") as file:
            file.seek(stream.offset)
            return file.read(stream.length)
    except OSError as error:
        raise StoreFailed(f"the output in {stream.path} cannot be read: {why_unreadable(error)}") from error


def read_kept(store: str, record: int, index: int, name: str) -> bytes:
    """What a task wrote, by the jobs database of a store whose server has ended; nothing if the store is gone."""
    from bough.stores.folder.store_folder import path_in
    from bough.stores.jobs.jobs_reader import JobsDatabase
    from bough.stores.schema import FILE

    if not os.path.isfile(os.path.join(store, FILE)):
        return b""
    columns = f"SELECT {name}_path, {name}_offset, {name}_length FROM"
    with JobsDatabase(store) as database:
        found = database.query(f"{columns} elements WHERE id = ? AND idx = ?", (record, index))[1]
        found = found or database.query(f"{columns} tasks WHERE id = ? AND is_array = 0", (record,))[1]
    for path, offset, length in found:
        if isinstance(path, str) and isinstance(offset, int) and isinstance(length, int):
            return read_stream_bytes(Stream(path_in(f"{store}/out", path), offset, length))
    return b""


def read_seen(store: str, record: int, start: int, stop: int) -> list[SeenTask]:
    """What was seen of watched tasks, by the jobs database of a store whose server has ended."""
    from bough.stores.jobs.fold_observations import FIRINGS, SERIES, seen_tasks
    from bough.stores.jobs.jobs_reader import JobsDatabase
    from bough.stores.schema import FILE

    if not os.path.isfile(os.path.join(store, FILE)):
        return []
    place = (record, start, stop, MOST)
    with JobsDatabase(store) as database:
        return seen_tasks(database.query(FIRINGS, place)[1], database.query(SERIES, place)[1])


Read = Callable[[str, Stream | None], bytes]  # a stream's name, and where it lies


def _read_here(_: str, stream: Stream | None) -> bytes:
    return read_stream_bytes(stream)


class Completed:
    """The result of a command."""

    __slots__ = ("_detail", "_read", "args", "outputs")

    def __init__(self, args: str, detail: Detail, outputs: Mapping[str, str], read: Read | None = None) -> None:
        self.args = args  # the command's text, as it was submitted
        self.outputs = outputs  # paths of declared outputs by slot
        self._detail = detail
        self._read = read or _read_here  # what it wrote may lie on another machine

    @property
    def returncode(self) -> int:
        """The exit code: 0, for otherwise the task had failed; or whatever it was, if a monitor ended it early."""
        return self._detail.exit_code

    @property
    def exit_code(self) -> int:
        """The same as `returncode`, by the name that Bough has for it elsewhere."""
        return self._detail.exit_code

    @property
    def stdout(self) -> str:
        """What it wrote to standard output."""
        return self._read("stdout", self._detail.stdout).decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """What it wrote to standard error."""
        return self._read("stderr", self._detail.stderr).decode("utf-8", "replace")

    @property
    def stdout_bytes(self) -> bytes:
        """What it wrote to standard output, undecoded."""
        return self._read("stdout", self._detail.stdout)

    @property
    def stderr_bytes(self) -> bytes:
        """What it wrote to standard error, undecoded."""
        return self._read("stderr", self._detail.stderr)

    @property
    def stdout_file(self) -> Stream | None:
        """The file, offset and length of its standard output; None if it wrote nothing."""
        return self._detail.stdout

    @property
    def stderr_file(self) -> Stream | None:
        """The file, offset and length of its standard error; None if it wrote nothing."""
        return self._detail.stderr

    @property
    def files(self) -> tuple[Output, ...]:
        """Declared outputs with their size and time of change."""
        return self._detail.outputs

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return max(0.0, self._detail.ended - self._detail.started)

    @property
    def ended_by(self) -> str:
        """The monitor that ended it early, and why, in one line; empty if it ended by itself."""
        return self._detail.ended_by

    @property
    def cpu(self) -> float:
        """Processor time it used, in seconds."""
        return self._detail.cpu

    @property
    def memory(self) -> int:
        """Its peak memory, in bytes."""
        return self._detail.memory

    def __reduce__(self) -> tuple[object, ...]:
        return Completed, (self.args, self._detail, {slot: str(path) for slot, path in self.outputs.items()})

    def __repr__(self) -> str:
        return f"Completed(args={self.args!r}, returncode={self.returncode})"


class WithCompleted:
    """A function that gets `Completed` values where executors hand it what is known of a command's run."""

    def __init__(self, fn: Callable[..., Any], commands: list[str]) -> None:
        self.fn = fn
        self.commands = commands  # texts in the order in which their results stand in the arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        texts = iter(self.commands)

        def complete(detail: Detail) -> Completed:
            return Completed(next(texts, ""), detail, {output.slot: output.path for output in detail.outputs})

        return self.fn(*replaced(args, Detail, complete), **replaced(kwargs, Detail, complete))


class CommandRows:
    """A template and the rows it is filled with."""

    __slots__ = ("_first", "_rows", "_template")

    def __init__(self, template: CommandTemplate, rows: Sequence[Any]) -> None:
        self._template = template
        self._rows = rows
        self._first = 0  # the element of the first row

    def text(self, index: int) -> str:
        """The command of an element; empty if its row was forgotten."""
        at = index - self._first
        return shown_text(render_row(self._template, self._rows[at])) if at >= 0 else ""

    def writes(self, index: int) -> dict[str, str]:
        """The output slots of an element and their absolute paths."""
        at = index - self._first
        return render_row(self._template, self._rows[at]).writes if at >= 0 else {}

    def forget(self, before: int) -> None:
        """Drop the rows before an element; only for rows that are held in a list."""
        assert isinstance(self._rows, list)
        del self._rows[: max(0, before - self._first)]
        self._first = max(self._first, before)

    def reads(self, row: Any) -> list[str]:
        """The absolute paths of the files that a row reads."""
        return row_files(self._template, row)[0]

    def add(self, rows: Sequence[Any]) -> None:
        """More rows came; only for rows that are held in a list."""
        assert isinstance(self._rows, list)
        self._rows += rows
