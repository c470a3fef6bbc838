"""Checkpoints: how an executor has a running task save its state before it ends it.

`Saving` is one request: the processes of the task get a signal, or a command runs beside them, and then the file is
watched. It is written when it has changed and not again for a moment. The command runs in the folder in which the task
does, in a session of its own, and leaves its exit code in a file, since whoever reaps orphans may reap it, too.
`Carrying` brings a checkpoint to the server, where that does not see the folder of the submitter; the news that the
task was given back wait for it.

Rules: what goes wrong costs the checkpoint and never the task, and is said with the news. A file that a failed command
changed is set aside, so that no attempt begins with half a checkpoint. Nothing here blocks: files are read in pieces.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from bough.executor.host.processes import kill_group
from bough.executor.worker_protocol import OutputsStored, StoreOutputs, ToWorker
from bough.model.checkpoints import VARIABLE, CheckpointPlan
from bough.wire.file_messages import DIGEST, MadeFile

if TYPE_CHECKING:
    from bough.executor.files.staging.staging import Staging
    from bough.model.ids import SpanId

_STILL: Final = 0.2  # seconds without a change after which a file is taken for complete
_PIECE: Final = 16 << 20  # bytes that are read in one round
_RUN: Final = '/bin/sh -c "$1" > "$0/said" 2>&1; echo $? > "$0/code.new"; mv "$0/code.new" "$0/code"'

Stamp = tuple[int, int, int]
_NO_FILE: Final[Stamp] = (0, 0, 0)


def stamp_of(path: str) -> Stamp:
    """What changes when a file is written."""
    try:
        found = os.stat(path)
    except OSError:
        return _NO_FILE
    return found.st_ino, found.st_size, found.st_mtime_ns


class Saving:
    """See the module. `group`: the processes of the task; `aside`: where the file is when a sandbox was removed."""

    def __init__(  # noqa: PLR0917
        self, plan: CheckpointPlan, path: str, group: int, task: str, now: float, aside: str = ""
    ) -> None:
        self._path = path
        self._aside = aside
        self._before = self._last = stamp_of(path)
        self._changed_at = now
        self._folder = ""  # of a command that runs
        self._group = 0  # of that
        self.trouble = ""  # why there will be no checkpoint
        self.is_written = False
        try:
            if plan.signal:
                os.killpg(group, plan.signal)
            else:
                self._start(plan.command, group, task)
        except OSError as error:
            self.trouble = f"no checkpoint could be asked for: {error.strerror}"

    def _start(self, command: str, group: int, task: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="bough-checkpoint-")
        environment = {**os.environ, VARIABLE: self._path, "BOUGH_PID": str(group), "BOUGH_TASK": task}
        process = subprocess.Popen(
            ["/bin/sh", "-c", _RUN, self._folder, command],
            cwd=os.readlink(f"/proc/{group}/cwd"),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._group = process.pid
        process.returncode = 0  # whoever reaps it: its code is in the file

    def is_over(self, now: float) -> bool:
        """Look: whether the checkpoint is written, so that the task may be ended."""
        if self.is_written or self.trouble:
            return self.is_written
        if self._group:
            code = self._code()
            if code is None:
                return False
            if code:
                said = self._said()
                self.trouble = f"its checkpoint command ended with {code}{f': {said}' if said else ''}"
                self._set_aside()
                return False
            self.is_written = os.path.exists(self._path)
            if not self.is_written:
                self.trouble = f"its checkpoint command did not write {self._path}"
            return self.is_written
        found = stamp_of(self._path)
        if found != self._last:
            self._last, self._changed_at = found, now
        self.is_written = found not in {self._before, _NO_FILE} and now - self._changed_at >= _STILL
        return self.is_written

    def has_changed(self) -> bool:
        """Whether the file was written since it was asked for; for a task that has ended."""
        stamps = {stamp_of(path) for path in (self._path, self._aside) if path}
        return not stamps <= {self._before, _NO_FILE}

    def outcome(self) -> str:
        """What is said of it with the news."""
        if self.is_written or (not self._group and not self.trouble and self.has_changed()):
            return "with a checkpoint"
        if self.trouble:
            return self.trouble
        return "it wrote no checkpoint in time"

    def close(self) -> None:
        """End what still runs for it."""
        if not self._folder:
            return
        if self._group and self._code() is None:
            kill_group(self._group, signal.SIGKILL)
            self.trouble = self.trouble or "its checkpoint command did not end in time"
            self._set_aside()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder, self._group = "", 0

    def _code(self) -> int | None:
        try:
            with open(f"{self._folder}/code", encoding="ascii") as file:
                return int(file.read(10))
        except (OSError, ValueError):
            return None

    def _said(self) -> str:
        try:
            with open(f"{self._folder}/said", encoding="utf-8", errors="replace") as file:
                return next((line for line in reversed(file.read(4096).splitlines()) if line.strip()), "")[:200]
        except OSError:
            return ""

    def _set_aside(self) -> None:
        if stamp_of(self._path) not in {self._before, _NO_FILE}:
            with contextlib.suppress(OSError):
                os.replace(self._path, f"{self._path}.failed")


def forget(plan: CheckpointPlan, record: int, index: int, aside: str) -> None:
    """A task has succeeded: a checkpoint in a folder of ours, or one that was set aside, is not needed any more."""
    for path in (plan.path(record, index) if plan.file.endswith("/") else "", aside):
        if path:
            with contextlib.suppress(OSError):
                os.unlink(path)


class Carrying:
    """A checkpoint on its way to the server; it is what staging knows as a worker."""

    name = "checkpoints"

    def __init__(self, staging: Staging, span: SpanId, index: int, path: str, local: str) -> None:
        """`path`: at the submitter, `local`: where it lies here."""
        self._staging = staging
        self._span, self._index = span, index
        self._path, self._local = path, local
        self._sum = blake2b(digest_size=DIGEST)
        self._size = 0
        self._offered = False
        self.is_over = False
        self.trouble = ""
        try:
            self._file = open(local, "rb", buffering=0)  # noqa: SIM115 -- it is read by and by
            if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                self._file.close()
                self._give_up("it is no plain file")
        except OSError as error:
            self._give_up(str(error.strerror))

    def step(self) -> None:
        """Read on; when all is read the server is told."""
        if self.is_over or self._offered:
            return
        try:
            piece = self._file.read(_PIECE)
            if piece:
                self._sum.update(piece)
                self._size += len(piece)
                return
            self._file.close()
        except OSError as error:
            self._give_up(str(error.strerror))
            return
        self._offered = True
        made = MadeFile(self._path, self._sum.digest(), self._size)
        self._staging.outputs.store(self, StoreOutputs(0, self._span, self._index, [made], [self._local]))

    def send(self, messages: list[ToWorker]) -> None:
        """The server has answered."""
        for message in messages:
            if isinstance(message, OutputsStored):
                self.is_over = True
                self.trouble = message.error and f"its checkpoint could not be kept: {message.error}"
        with contextlib.suppress(OSError):
            os.unlink(self._local)

    def _give_up(self, why: str) -> None:
        self.is_over = True
        self.trouble = f"its checkpoint cannot be read: {why}"
