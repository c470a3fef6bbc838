"""A worker: a forked process that runs what its executor hands over, one element after the other.

It dies with its executor: by the kernel's death signal, which is KILL while a function runs (it may be deep
in C code) and TERM while a command runs (whose process group must go first), and by the end of the socket.
Rule: everything a worker knows of an element is said before `WorkerDone`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import msgspec

from bough import logs
from bough.executor.host.devices import WorkerDevices
from bough.executor.host.processes import die, die_with_parent, kill_group
from bough.executor.worker.function_runner import FunctionRunner
from bough.executor.worker.output_streams import Streams
from bough.executor.worker.serialisation import Blobs, paths_of, with_paths
from bough.executor.worker.worker_channel import WorkerContext, WorkerInbox, WorkerReports
from bough.executor.worker_protocol import (
    GROUP,
    HANDOVER,
    INDEX,
    Answer,
    InputsStaged,
    StageInputs,
    WorkerDone,
    WorkerSpan,
)
from bough.model.events.news import WorkFailed
from bough.model.ids import BlobId
from bough.model.outcomes import Cause, Failure
from bough.model.tasks import Kind
from bough.movers.value_files import bring_by
from bough.wire.executor_messages import RunSpan

if TYPE_CHECKING:
    from bough.executor.worker.commands.command_runner import CommandRunner

_SHORT = 0.01  # seconds that news of short tasks may wait for each other


class WorkerSetting(msgspec.Struct, frozen=True):
    """What a worker is told at birth."""

    parent: int  # pid of the executor
    slot: str
    output_dir: str
    result_dir: str
    sandbox: str = ""  # where its sandboxes are made
    is_far: bool = False  # it cannot read the server's files


def work(
    sock: socket.socket, tokens: int, cells: memoryview[int], blobs: dict[BlobId, bytes], setting: WorkerSetting
) -> NoReturn:
    """Serve until the executor has ended. Never returns: the process is a fork of the executor."""
    try:
        _Worker(sock, tokens, cells, blobs, setting).serve()
    except BaseException:  # noqa: BLE001 -- nothing may get back into the executor's code
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(70)


def _say_on(log: int) -> Callable[[str], None]:
    """Write lines where the executor writes its own."""

    def say(text: str) -> None:
        with contextlib.suppress(OSError):  # it may lie on the disk that is full
            os.write(log, logs.line(logs.ERROR, "disk-full", text).encode())

    return say


class _Worker:
    def __init__(
        self,
        sock: socket.socket,
        tokens: int,
        cells: memoryview[int],
        blobs: dict[BlobId, bytes],
        setting: WorkerSetting,
    ) -> None:
        self._parent = setting.parent
        bring_by(self._bring_buffers)
        self._hand: WorkerSpan | None = None  # what runs now
        self._cells = cells
        self._sandbox, self._is_far = setting.sandbox, setting.is_far
        say = None if setting.is_far else _say_on(os.dup(2))  # before it is the output of tasks
        streams = Streams(setting.output_dir, setting.slot, cells, say)
        self._reports = WorkerReports(sock, setting.result_dir, cells, say)
        made = Blobs(blobs)
        self._inbox = WorkerInbox(sock, tokens, made, cells)
        self._context = WorkerContext(
            cells, streams, self._reports, made, self._inbox, dict(os.environb), WorkerDevices()
        )
        self._functions = FunctionRunner(self._context, is_far=setting.is_far)
        self._command_runner: CommandRunner | None = None
        self._kind: Kind | None = None
        signal.signal(signal.SIGTERM, self._on_term)
        self._be(Kind.COMMAND)

    def serve(self) -> None:
        """Run hand-overs until told to quit."""
        inbox, reports, cells = self._inbox, self._reports, self._cells
        while inbox.quit is None:
            hand = inbox.next()
            if hand is None:
                if reports.waiting:
                    reports.flush()
                if self._command_runner is not None:
                    self._command_runner.waiting.rest()
                inbox.read()
                continue
            cells[INDEX] = hand.run.start
            cells[HANDOVER] = hand.number
            self._be(hand.run.kind)
            self._context.devices.use(hand.devices)
            self._hand = hand
            if hand.run.kind == Kind.FUNCTION:
                run = self._with_values(hand) if self._is_far else hand.run
                if run is not None:
                    self._functions.run(hand.number, run, watched=hand.watched)
            else:
                self._commands().run(hand.number, hand.run, hand.directory, watched=hand.watched)
            cells[INDEX] = hand.run.stop  # nothing runs: a worker that dies now had finished
            if reports.due(_SHORT):
                reports.flush()
            inbox.forget_stops(hand.number)
        reports.leave()

    def _with_values(self, hand: WorkerSpan) -> RunSpan | None:
        """A function whose arguments, too big to be sent with it, were brought; None when it cannot run."""
        paths = paths_of(hand.run)
        if not paths:
            return hand.run
        answer = self._stage(hand, hand.run.start, paths)
        if isinstance(answer, InputsStaged) and not answer.error:
            return with_paths(hand.run, answer.files)
        if isinstance(answer, InputsStaged):
            text = f"its arguments cannot be brought: {answer.error}"
            failure = Failure(Cause.NOT_STARTED, text, site=answer.of_site)
            self._reports.say(WorkFailed(hand.run.span, hand.run.start, failure))
            self._reports.say(WorkerDone(hand.number))
        return None

    def _bring_buffers(self, paths: list[str]) -> dict[str, str]:
        """Have buffers brought that arguments name by their digests, while these are unpickled; where they lie."""
        hand = self._hand
        assert hand is not None
        answer = self._stage(hand, self._functions.loading, paths)
        if isinstance(answer, InputsStaged) and not answer.error:
            return answer.files
        why = answer.error if isinstance(answer, InputsStaged) else "the task was stopped"
        raise OSError(errno.EIO, f"a part of the arguments cannot be brought: {why}")

    def _stage(self, hand: WorkerSpan, element: int, paths: list[str]) -> Answer | None:
        """Have big arguments of a function brought; what that took is told with its end."""
        begun = time.perf_counter()
        self._reports.say(StageInputs(hand.number, hand.run.span, element, paths))
        self._reports.flush()
        answer = self._inbox.answer(hand.number, element)
        if isinstance(answer, InputsStaged) and not answer.error:
            self._functions.was_staged(
                element, msgspec.structs.replace(answer.moved, stage_in=time.perf_counter() - begun)
            )
        return answer

    def _commands(self) -> CommandRunner:
        if self._command_runner is None:
            from bough.executor.worker.commands.command_runner import CommandRunner

            self._command_runner = CommandRunner(self._context, self._sandbox, is_far=self._is_far)
        return self._command_runner

    def _be(self, kind: Kind) -> None:
        """Choose how to die with the executor."""
        if kind != self._kind:
            self._kind = kind
            if self._command_runner is not None:
                self._command_runner.waiting.leave()
            die_with_parent(signal.SIGKILL if kind == Kind.FUNCTION else signal.SIGTERM)
            if os.getppid() != self._parent:  # it died before we asked
                die(0)

    def _on_term(self, _number: int, _frame: object) -> None:
        """The executor died while a command runs, or wants a function ended: send the news and exit."""
        command_runner = self._command_runner
        if command_runner is not None and command_runner.spawning:
            command_runner.term_came = True  # it looks when it knows the group
            return
        if self._cells[GROUP]:
            kill_group(self._cells[GROUP])
        if self._reports.inside:
            self._reports.must_leave = True
        else:
            self._reports.leave()
