"""The numbers that a service gives: to clients for their records and groups, to runs and to executors.

They stand in the file `numbers` of the store's folder, one a line: the service's own run and the turn that opened
it, the base of each workflow's records (see `model.ids`), each range with the run and the process it was given to,
each executor. Records of a workflow are numbered without gaps: what a client did not use is given to the next client
when the first one has left, or when its process is known to have ended. Only a client on another host that never said
goodbye keeps the numbers that it was given.

Rule: a number is on the disk before a peer hears of it, so that none is given twice, whatever happens to the server.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Container
from typing import NamedTuple

from bough import private
from bough.errors import SiteError
from bough.model.ids import NUMBERS, ExecutorId
from bough.stores.store_errors import reported

FILE = "numbers"
MOST = 1 << 32  # numbers given at a time
HIGHEST = 1 << 62  # number that there can be, see `model.bounds`
_LONG = 100  # lines that the file may have beyond twice what is needed, before it is written anew


class IdRange(NamedTuple):
    """Records from `record` up and groups from `group` up, `many` of each, belong to a run."""

    run: int
    record: int
    group: int
    many: int


class _Client(NamedTuple):
    """The process that has a range."""

    pid: int = 0
    host: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether it is known to have ended: only of a process on this host."""
        if not self.pid or self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False


class IdRanges:
    """See the module."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, FILE)
        self._next_group = self._next_run = self._next_executor = 1
        self._by_run: dict[int, list[IdRange]] = {}  # groups, and records of earlier versions
        self._bases: dict[str, int] = {}  # by the name of the workflow
        self._base_of: dict[int, int] = {}  # by run
        self._used: dict[int, int] = {}  # by base: the highest record that there is
        self._given: dict[int, int] = {}  # by base: the highest record that a client may use
        self._lent: dict[int, list[tuple[_Client, IdRange]]] = {}  # by base: what clients have that have not left
        self._whole = 0  # bytes of whole lines in the file
        self._count = 0  # lines in it
        self.own_run = self.own_turn = 0  # 0: not known here
        with reported(folder):
            self._read()
            self._file = private.opener(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.ftruncate(self._file, self._whole)

    def begin(self, run: int, turn: int) -> None:
        """The service's own run, and the turn that opened it."""
        self._write("run", run, turn)

    def beyond(self, *, group: int, run: int, executor: int) -> None:
        """These are taken already, whatever the file says."""
        self._next_group = max(self._next_group, group + 1)
        self._next_run = max(self._next_run, run + 1)
        self._next_executor = max(self._next_executor, executor + 1)

    # --- workflows -----------------------------------------------------------------------------------

    def knows(self, name: str) -> bool:
        """Whether the numbers of a workflow's records are known."""
        return name in self._bases

    def name_workflow(self, run: int, name: str, highest: int = 0) -> None:
        """A run belongs to a workflow; `highest`: the highest record of it that is known, if any.

        Runs of one name share a base. Records of an earlier version have none: the workflow's new records get one, and
        go on from the highest number.
        """
        if run not in self._base_of:
            base = self._bases.get(name) or highest - highest % NUMBERS or run * NUMBERS
            self._write("workflow", run, base, text=name)
        self.use(run, highest)

    def base_of(self, run: int) -> int:
        """Where the numbers of a run's records begin."""
        return self._base_of[run]

    def use(self, run: int, record: int) -> None:
        """There is such a record: numbers up to it are not given again. One of an earlier version counts as well."""
        base = self._base_of.get(run)
        if base is not None and record:
            self._note("used", [base + record % NUMBERS], "")

    def give(self, run: int, count: int, pid: int = 0, host: str = "") -> IdRange:
        """A new range for a run, whose base is known, and for a process."""
        base = self._base_of[run]
        many = max(1, min(count, MOST))
        lent = self._lent[base] = [one for one in self._lent.get(base, ()) if not one[0].has_ended]
        highest = max(self._used.get(base, base), *(one.record + one.many - 1 for _, one in lent), base)
        if highest + many >= base + NUMBERS or max(base, self._next_group) > HIGHEST - MOST:
            raise SiteError("the workflow has no numbers left for tasks; submit to another one")
        given = IdRange(run, highest + 1, self._next_group, many)
        self._write("lent", *given, pid, text=host)
        return given

    def left(self, run: int, pid: int, host: str) -> None:
        """A client has left: what it did not use is given to the next one."""
        base = self._base_of.get(run)
        if base is not None and any(client == (pid, host) for client, _ in self._lent.get(base, ())):
            self._write("used", self._used.get(base, base), is_urgent=False)
            self._write("left", run, pid, text=host, is_urgent=False)

    def ended(self, run: int) -> None:
        """A run takes nothing more: what its clients did not use is given to the next run of the workflow."""
        base = self._base_of.get(run)
        if base is not None:
            self._write("used", self._used.get(base, base), is_urgent=False)
            self._write("ended", run, is_urgent=False)

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
        base = self._base_of.get(run, -1)
        if base >= 0 and base < record <= self._given.get(base, 0):
            return True
        return record < NUMBERS and any(
            one.record <= record < one.record + one.many for one in self._by_run.get(run, ())
        )

    def owns_group(self, run: int, group: int) -> bool:
        """Whether a group's number was given to a run."""
        return any(one.group <= group < one.group + one.many for one in reversed(self._by_run.get(run, ())))

    def forget(self, run: int) -> None:
        """Nothing more is submitted to a run; its numbers are never given again."""
        self.ended(run)
        self._by_run.pop(run, None)
        self._base_of.pop(run, None)

    def keep(self, runs: Container[int]) -> None:
        """Forget all but these runs, also in the file if that has become long."""
        highest = max((one.group + one.many - 1 for given in self._by_run.values() for one in given), default=0)
        for run in [run for run in {*self._by_run, *self._base_of} if run not in runs]:
            self._by_run.pop(run, None)
            self._note("ended", [run], "")
            self._base_of.pop(run, None)
        lines = self._lines(highest)
        if self._count > 2 * len(lines) + _LONG:
            self._rewrite(lines)

    def _lines(self, highest: int) -> list[str]:
        """What the file must say; `highest`: the highest group that was ever given."""
        lines = [f"run {self.own_run} {self.own_turn}", f"executor {self._next_executor - 1}", f"range 0 0 {highest} 1"]
        lines += [f"range {' '.join(map(str, one))}" for given in self._by_run.values() for one in given]
        lines += [f"workflow 0 {base} {_hidden(name)}" for name, base in self._bases.items()]
        lines += [f"workflow {run} {base} {_hidden('')}" for run, base in self._base_of.items()]
        lines += [f"used {record}" for record in self._used.values()]
        for lent in self._lent.values():
            lines += [f"lent {' '.join(map(str, one))} {client.pid} {_hidden(client.host)}" for client, one in lent]
        return lines

    def _rewrite(self, lines: list[str]) -> None:
        with reported(self._path):
            private.write_file(self._path, "".join(f"{line}\n" for line in lines).encode())
            os.close(self._file)
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._count = len(lines)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _write(self, word: str, *numbers: int, text: str | None = None, is_urgent: bool = True) -> None:
        with reported(self._path):
            hidden = "" if text is None else f" {_hidden(text)}"
            self._append(f"{word} {' '.join(map(str, numbers))}{hidden}\n".encode(), is_urgent)
        self._count += 1
        self._note(word, list(numbers), text or "")

    def _append(self, line: bytes, is_urgent: bool) -> None:
        """All of a line or nothing: a full disk takes a part of it without a word. What is not urgent may be lost."""
        size = os.fstat(self._file).st_size
        try:
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
            if is_urgent:
                os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, size)
            raise

    def _note(self, word: str, numbers: list[int], text: str) -> None:
        match word, numbers:
            case "run", [run, turn]:
                self.own_run, self.own_turn = run, turn
                self.beyond(group=0, run=run, executor=0)
            case "executor", [number]:
                self.beyond(group=0, run=0, executor=number)
            case "range", [run, record, group, many]:
                self._by_run.setdefault(run, []).append(IdRange(run, record, group, many))
                self.beyond(group=group + many - 1, run=run, executor=0)
            case _:
                self._note_workflow(word, numbers, text)

    def _note_workflow(self, word: str, numbers: list[int], text: str) -> None:
        match word, numbers:
            case "workflow", [run, base]:
                if text:
                    self._bases[text] = base
                if run:
                    self._base_of[run] = base
                    self.beyond(group=0, run=run, executor=0)
            case "lent", [run, record, group, many, pid]:
                given = IdRange(run, record, group, many)
                base = record - record % NUMBERS
                self._lent.setdefault(base, []).append((_Client(pid, text), given))
                self._given[base] = max(self._given.get(base, 0), record + many - 1)
                if given not in self._by_run.get(run, ())[-1:]:
                    self._note("range", list(given), "")
            case "left", [run, pid]:
                self._return(run, lambda client, _: client == (pid, text))
            case "ended", [run]:
                self._return(run, lambda _, given: given.run == run)
            case "used", [record]:
                base = record - record % NUMBERS
                self._used[base] = max(self._used.get(base, base), record)
                self._given[base] = max(self._given.get(base, 0), record)

    def _return(self, run: int, which: Callable[[_Client, IdRange], bool]) -> None:
        base = self._base_of.get(run, -1)
        self._lent[base] = [one for one in self._lent.get(base, ()) if not which(*one)]

    def _read(self) -> None:
        try:
            with open(self._path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return
        self._whole = data.rfind(b"\n") + 1  # what follows was torn by a crash
        for line in data[: self._whole].decode("ascii", "replace").splitlines():
            word, *numbers = line.split() or [""]
            text = _shown(numbers.pop()) if numbers and numbers[-1].startswith("=") else ""
            self._count += 1
            if all(number.isdigit() for number in numbers):
                self._note(word, [int(number) for number in numbers], text)


def _hidden(text: str) -> str:
    """A text as one word of the file."""
    return "=" + text.encode("utf-8", "surrogatepass").hex()


def _shown(word: str) -> str:
    try:
        return bytes.fromhex(word[1:]).decode("utf-8", "surrogatepass")
    except ValueError:
        return ""
