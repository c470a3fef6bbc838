"""The numbers that a service gives: to clients for their records and groups, to runs and to executors.

They stand in the file `numbers` of the store's folder, one a line: the service's own run and the turn that opened
it, each range with the run it was given to, each executor. Rule: a number is on the disk before a peer hears of it,
so that none is given twice, whatever happens to the server.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Container
from typing import NamedTuple

from bough import private
from bough.errors import SiteError
from bough.model.ids import ExecutorId
from bough.stores.store_errors import reported

FILE = "numbers"
MOST = 1 << 32  # numbers given at a time
HIGHEST = 1 << 62  # number that there can be, see `model.bounds`
_LONG = 1_000  # lines that are not needed any more, after which the file is written anew


class IdRange(NamedTuple):
    """Records from `record` up and groups from `group` up, `many` of each, belong to a run."""

    run: int
    record: int
    group: int
    many: int


class IdRanges:
    """See the module."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, FILE)
        self._next_record = self._next_group = self._next_run = self._next_executor = 1
        self._by_run: dict[int, list[IdRange]] = {}
        self._whole = 0  # bytes of whole lines in the file
        self.own_run = self.own_turn = 0  # 0: not known here
        with reported(folder):
            self._read()
            self._file = private.opener(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.ftruncate(self._file, self._whole)

    def begin(self, run: int, turn: int) -> None:
        """The service's own run, and the turn that opened it."""
        self._write("run", run, turn)

    def beyond(self, *, record: int, group: int, run: int, executor: int) -> None:
        """These are taken already, whatever the file says."""
        self._next_record = max(self._next_record, record + 1)
        self._next_group = max(self._next_group, group + 1)
        self._next_run = max(self._next_run, run + 1)
        self._next_executor = max(self._next_executor, executor + 1)

    def give(self, run: int, count: int) -> IdRange:
        """A new range for a run."""
        given = IdRange(run, self._next_record, self._next_group, max(1, min(count, MOST)))
        if max(given.record, given.group) > HIGHEST - MOST:
            raise SiteError(
                "the store has no numbers left for tasks; begin another one with bough server start --store"
            )
        self._write("range", *given)
        return given

    def new_workflow(self) -> tuple[int, int]:
        """A run and a group for a new workflow; the range that it is given next makes them durable."""
        run, group = self._next_run, self._next_group
        self._next_run += 1
        self._next_group += 1
        return run, group

    def new_executor(self) -> ExecutorId:
        """A number for an executor."""
        number = self._next_executor
        self._write("executor", number)
        return ExecutorId(number)

    def owns_record(self, run: int, record: int) -> bool:
        """Whether a record's number was given to a run."""
        return any(one.record <= record < one.record + one.many for one in self._by_run.get(run, ()))

    def owns_group(self, run: int, group: int) -> bool:
        """Whether a group's number was given to a run."""
        return any(one.group <= group < one.group + one.many for one in self._by_run.get(run, ()))

    def forget(self, run: int) -> None:
        """Nothing more is submitted to a run; its numbers are never given again."""
        self._by_run.pop(run, None)

    def keep(self, runs: Container[int]) -> None:
        """Forget all but these runs, also in the file if that has become long."""
        every = [one for given in self._by_run.values() for one in given]
        for run in [run for run in self._by_run if run not in runs]:
            del self._by_run[run]
        kept = [one for given in self._by_run.values() for one in given]
        if len(every) - len(kept) < _LONG:
            return
        last = max(every, key=lambda one: one.record)  # nothing up to it is given again
        lines = [f"run {self.own_run} {self.own_turn}", f"executor {self._next_executor - 1}"]
        lines += [f"range {' '.join(map(str, one))}" for one in sorted({*kept, last})]
        hidden = f"{self._path}.{os.getpid()}"
        with reported(self._path):
            with open(hidden, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(hidden, self._path)
            os.close(self._file)
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _write(self, word: str, *numbers: int) -> None:
        with reported(self._path):
            self._append(f"{word} {' '.join(map(str, numbers))}\n".encode())
        self._note(word, list(numbers))

    def _append(self, line: bytes) -> None:
        """All of a line or nothing: a full disk takes a part of it without a word."""
        size = os.fstat(self._file).st_size
        try:
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
            os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, size)
            raise

    def _note(self, word: str, numbers: list[int]) -> None:
        match word, numbers:
            case "run", [run, turn]:
                self.own_run, self.own_turn = run, turn
                self.beyond(record=0, group=0, run=run, executor=0)
            case "range", [run, record, group, many]:
                self._by_run.setdefault(run, []).append(IdRange(run, record, group, many))
                self.beyond(record=record + many - 1, group=group + many - 1, run=run, executor=0)
            case "executor", [number]:
                self.beyond(record=0, group=0, run=0, executor=number)

    def _read(self) -> None:
        try:
            with open(self._path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return
        self._whole = data.rfind(b"\n") + 1  # what follows was torn by a crash
        for line in data[: self._whole].decode("ascii", "replace").splitlines():
            word, *numbers = line.split() or [""]
            if all(number.isdigit() for number in numbers):
                self._note(word, [int(number) for number in numbers])
