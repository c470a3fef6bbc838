"""What a command that succeeded left: exit code, what it wrote, its files.

Rule: it reads like `subprocess.CompletedProcess`; texts are read from their files when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bough.api.reading import read_stream_bytes
from bough.model.outcomes import Detail, Output, Stream
from bough.model.refs import replaced

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
        """The exit code: 0, for otherwise the task had failed."""
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
