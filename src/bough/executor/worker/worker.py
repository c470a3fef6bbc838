"""The slot worker: a forked process that runs what its executor hands over, one element after the other.

It dies with its executor: by the kernel's death signal, which is KILL while a function runs (it may be deep
in C code) and TERM while a command runs (whose process group must go first), and by the end of the socket.
Rule: everything a worker knows of an element is said before `WorkerDone`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import msgspec

from bough.executor.processes import die, die_with_parent, kill_group
from bough.executor.worker.function_runner import FunctionRunner
from bough.executor.worker.output_streams import Streams
from bough.executor.worker.serialisation import Blobs
from bough.executor.worker.worker_channel import WorkerContext, WorkerInbox, WorkerReports
from bough.executor.worker_protocol import GROUP, HAND, INDEX, InputsStaged, StageInputs, WorkerDone, WorkerSpan
from bough.model.events.news import WorkFailed
from bough.model.ids import BlobId
from bough.model.outcomes import Cause, Failure
from bough.model.tasks import Kind
from bough.wire.executor_messages import RunSpan

if TYPE_CHECKING:
    from bough.executor.worker.command_runner import CommandRunner

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
    sock: socket.socket, tokens: int, board: memoryview[int], blobs: dict[BlobId, bytes], setting: WorkerSetting
) -> NoReturn:
    """Serve until the executor is gone. Never returns: the process is a fork of the executor."""
    try:
        _Worker(sock, tokens, board, blobs, setting).serve()
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
            os.write(log, f"bough executor: {text}\n".encode())

    return say


class _Worker:
    def __init__(
        self,
        sock: socket.socket,
        tokens: int,
        board: memoryview[int],
        blobs: dict[BlobId, bytes],
        setting: WorkerSetting,
    ) -> None:
        self._parent = setting.parent
        self._board = board
        self._sandbox, self._is_far = setting.sandbox, setting.is_far
        say = None if setting.is_far else _say_on(os.dup(2))  # before it is the output of tasks
        streams = Streams(setting.output_dir, setting.slot, board, say)
        self._speaker = WorkerReports(sock, setting.result_dir, board, say)
        shelf = Blobs(blobs)
        self._inbox = WorkerInbox(sock, tokens, shelf, board)
        self._desk = WorkerContext(board, streams, self._speaker, shelf, self._inbox, dict(os.environb))
        self._functions = FunctionRunner(self._desk)
        self._launcher: CommandRunner | None = None
        self._kind: Kind | None = None
        signal.signal(signal.SIGTERM, self._on_term)
        self._be(Kind.COMMAND)

    def serve(self) -> None:
        """Run hand-overs until told to quit."""
        inbox, speaker, board = self._inbox, self._speaker, self._board
        while inbox.quit is None:
            hand = inbox.next()
            if hand is None:
                if speaker.waiting:
                    speaker.flush()
                if self._launcher is not None:
                    self._launcher.waiting.rest()
                inbox.read()
                continue
            board[INDEX] = hand.run.start
            board[HAND] = hand.number
            self._be(hand.run.kind)
            if hand.run.kind == Kind.FUNCTION:
                run = self._with_values(hand) if self._is_far else hand.run
                if run is not None:
                    self._functions.run(hand.number, run)
            else:
                self._commands().run(hand.number, hand.run, hand.directory)
            board[INDEX] = hand.run.stop  # nothing runs: whoever dies now had finished
            if speaker.due(_SHORT):
                speaker.flush()
            inbox.forget_halts(hand.number)
        speaker.leave()

    def _with_values(self, hand: WorkerSpan) -> RunSpan | None:
        """A function whose arguments, too big to be sent with it, were brought; None when it cannot run."""
        from bough.executor.worker.serialisation import paths_of, with_paths

        paths = paths_of(hand.run)
        if not paths:
            return hand.run
        self._speaker.say(StageInputs(hand.number, hand.run.span, hand.run.start, paths))
        self._speaker.flush()
        answer = self._inbox.answer(hand.number, hand.run.start)
        if isinstance(answer, InputsStaged) and not answer.error:
            return with_paths(hand.run, answer.files)
        if isinstance(answer, InputsStaged):
            text = f"its arguments cannot be brought: {answer.error}"
            failure = Failure(Cause.NOT_STARTED, text, site=answer.of_place)
            self._speaker.say(WorkFailed(hand.run.span, hand.run.start, failure))
            self._speaker.say(WorkerDone(hand.number))
        return None

    def _commands(self) -> CommandRunner:
        if self._launcher is None:
            from bough.executor.worker.command_runner import CommandRunner

            self._launcher = CommandRunner(self._desk, self._sandbox)
        return self._launcher

    def _be(self, kind: Kind) -> None:
        """Choose how to die with the executor."""
        if kind != self._kind:
            self._kind = kind
            if self._launcher is not None:
                self._launcher.waiting.leave()
            die_with_parent(signal.SIGKILL if kind == Kind.FUNCTION else signal.SIGTERM)
            if os.getppid() != self._parent:  # it died before we asked
                die(0)

    def _on_term(self, _number: int, _frame: object) -> None:
        """The executor died while a command runs, or wants a function ended: last words, and out."""
        launcher = self._launcher
        if launcher is not None and launcher.spawning:
            launcher.doomed = True  # it looks when it knows the group
            return
        if self._board[GROUP]:
            kill_group(self._board[GROUP])
        if self._speaker.inside:
            self._speaker.last_words = True
        else:
            self._speaker.leave()
