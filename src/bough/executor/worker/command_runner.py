"""Running commands in a worker: spawn, wait, judge, show outputs. The only module that starts programs.

A command is a process group of its own that dies as one. While it runs, a note names its hidden outputs: a worker
that is killed cannot delete them, and the server deletes what the notes name when all workers have ended
(`bough.server.cleanup`).

Rules: at any moment the group is in the shared memory or does not exist, so that the executor can end it. The note is
written before the command starts; one that is out of date does no harm, because hidden names are never used twice.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import msgspec

from bough import private
from bough.executor.files.declared_outputs import Outputs
from bough.executor.files.sandbox import Sandbox
from bough.executor.processes import Unstartable, kill_group
from bough.executor.worker.command_wait import CommandEnd, CommandWait
from bough.executor.worker.environment import Environments, ProgramPaths, open_stdin
from bough.executor.worker.serialisation import one_line, speaks_of_site
from bough.executor.worker.worker_channel import WorkerContext
from bough.executor.worker_protocol import (
    GROUP,
    INDEX,
    SINCE,
    InputsStaged,
    OutputsStored,
    StageInputs,
    StoreOutputs,
    WorkerDone,
)
from bough.model.commands.command import CommandCall, decode_call
from bough.model.commands.rendering import render_call, render_row
from bough.model.events.news import WorkFailed, WorkReturned
from bough.model.outcomes import Cause, Detail, Failure, Output
from bough.wire.executor_messages import RunSpan

_UNMOVED: Mapping[str, str] = MappingProxyType({})
_RESET = [int(number) for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM)]
_PATH = os.fsencode(os.defpath)
_OF_DISK = frozenset({Cause.EXIT, Cause.MISSING_OUTPUT})  # failures that a full disk may be the reason of
_AHEAD = 16  # rows that are filled in together: between programs the code for it has left the processor's cache


class OutputNote:
    """One file, made when it is first needed: paths, each ended by a zero byte."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._number = -1

    def write(self, hidden: Iterable[str]) -> None:
        """Put these paths in place of the earlier ones. A full disk may cost the note, never the command."""
        try:
            if self._number < 0:
                self._number = private.opener(self._path, os.O_WRONLY | os.O_CREAT)
            os.ftruncate(self._number, 0)
            os.pwrite(self._number, b"".join([os.fsencode(path) + b"\0" for path in hidden]), 0)
        except OSError:
            return


class CommandRunner:
    """Runs hand-overs of commands."""

    def __init__(self, context: WorkerContext, sandboxes: str = "") -> None:
        self._sandboxes = sandboxes  # the folder for them
        self._cells = context.cells
        self._streams = context.streams
        self._reports = context.reports
        self._blobs = context.blobs
        self._inbox = context.inbox
        self._cwd = ""  # where this process is; empty: unknown
        self._moved = _UNMOVED  # files that lie elsewhere than the command's text says
        self._programs = ProgramPaths()
        self._note = OutputNote(context.streams.path_of("hidden"))
        self._environments = Environments(context.environment)
        self.waiting = CommandWait(context.inbox, context.reports)
        self.spawning = False  # a process may exist that is not in the shared memory yet
        self.term_came = False  # TERM came meanwhile

    def run(self, number: int, run: RunSpan, directory: str = "") -> None:
        """Run all elements of a span and say how they ended; `directory`: the submitter's, if it is not seen here."""
        self._cwd = ""  # a function may have run in between, and a directory may have been replaced
        self._reports.begin_commands(run.span)
        make: Callable[[int], CommandCall] | None = None
        for index in range(run.start, run.stop):
            self._cells[INDEX] = index
            if self._inbox.stopped_by(number, index):
                continue
            try:
                make = make or self._maker(run, late=bool(directory))
                call = make(index)
            except Exception as error:  # noqa: BLE001 -- values of rows are the user's objects
                message = f"the command cannot be made: {one_line(error)}"
                self._reports.say(WorkFailed(run.span, index, Failure(Cause.NOT_STARTED, message)))
                continue
            if directory:
                self._far_element(number, run, index, call, directory)
            else:
                self._element(number, run, index, call)
            if self._inbox.quit is not None:
                return
        self._reports.say(WorkerDone(number))

    def _maker(self, run: RunSpan, *, late: bool) -> Callable[[int], CommandCall]:
        """What gives the call of an element."""
        if not run.is_array:
            return lambda _: decode_call(_payload(run))
        template, rows = self._blobs.template(run.body), self._blobs.items(run)
        made: dict[int, CommandCall] = {}

        def make(index: int) -> CommandCall:
            call = made.pop(index, None) or render_row(template, rows[index - run.start], late=late)
            if not made:
                try:
                    for ahead in range(index + 1, min(index + _AHEAD, run.stop)):
                        made[ahead] = render_row(template, rows[ahead - run.start], late=late)
                except Exception:  # noqa: BLE001 -- to be said when its turn comes
                    return call
            return call

        return make

    def _far_element(self, number: int, run: RunSpan, index: int, call: CommandCall, directory: str) -> None:
        """Run a command in a sandbox to which its files are brought."""
        name = f"{self._sandboxes}/{run.record}.{index}-{run.attempt}"
        try:
            sandbox = Sandbox(name, directory, call)
            if not self._bring(number, run, index, sandbox):
                return
        except Unstartable as error:
            self._not_started(run, index, error)
            return
        try:
            self._element(number, run, index, sandbox.call, sandbox)
        finally:
            self._cwd = ""
            sandbox.remove()

    def _bring(self, number: int, run: RunSpan, index: int, sandbox: Sandbox) -> bool:
        """Have the files of a command brought; False when it was stopped."""
        files: dict[str, str] = {}
        if sandbox.reads:
            self._reports.say(StageInputs(number, run.span, index, sandbox.reads))
            self._reports.flush()
            answer = self._inbox.answer(number, index)
            if not isinstance(answer, InputsStaged):
                return False
            if answer.error:
                raise Unstartable(f"its input cannot be brought: {answer.error}", of_site=answer.of_site)
            files = answer.files
        sandbox.fill(files)
        return True

    def _hand_over(
        self, number: int, run: RunSpan, index: int, sandbox: Sandbox, outputs: Outputs
    ) -> tuple[Output, ...]:
        """Give what a command made to the server; OSError when that cannot be."""
        try:
            made, where = sandbox.made(outputs.hidden)
        except Unstartable as error:
            raise OSError(0, str(error)) from error
        self._reports.say(StoreOutputs(number, run.span, index, made, where))
        self._reports.flush()
        answer = self._inbox.answer(number, index)
        if not isinstance(answer, OutputsStored):
            self.waiting.end = CommandEnd(None)  # it was stopped
            return ()
        if answer.error:
            raise OSError(0, f"the server cannot keep it: {answer.error}")
        return sandbox.outputs(made, answer.times)

    def _not_started(self, run: RunSpan, index: int, error: Unstartable) -> None:
        failure = Failure(Cause.NOT_STARTED, str(error), site=error.of_site)
        self._reports.say(WorkFailed(run.span, index, failure))

    def _element(
        self, number: int, run: RunSpan, index: int, call: CommandCall, sandbox: Sandbox | None = None
    ) -> None:
        known = sandbox.writes if sandbox else None
        outputs = Outputs(call.writes, run.record, index, run.attempt, known) if call.writes else None
        self._moved = sandbox.moved if sandbox else _UNMOVED
        started = time.time()
        begun = time.perf_counter()
        try:
            pid = self._start(run, index, call, outputs)
        except Unstartable as error:
            if outputs:
                outputs.discard()
            self._not_started(run, index, error)
            return
        waiting = self.waiting
        waiting.wait(pid, number, index)
        self._cells[SINCE] = 0
        _, status, usage = os.wait4(pid, 0)
        seconds = time.perf_counter() - begun
        waiting.lasted(seconds)
        survived = kill_group(pid)
        self._cells[GROUP] = 0
        out, err = self._streams.take()
        failure = self._judge(status, outputs) if status or outputs or waiting.end else None
        if failure and failure.cause in {Cause.EXIT, Cause.SIGNAL, Cause.TIMEOUT, Cause.MEMORY, Cause.MISSING_OUTPUT}:
            failure = _with_stderr(failure, self._streams.error_tail(err))
        if survived:
            self._streams.seal()
        shown: tuple[Output, ...] = ()
        if outputs and (failure or waiting.end):
            outputs.discard()
        elif outputs:
            try:
                shown = self._hand_over(number, run, index, sandbox, outputs) if sandbox else outputs.show()
            except OSError as error:
                outputs.discard()
                what = f"an output cannot be given its name: {error}" if not sandbox else str(error.strerror)
                failure = Failure(Cause.MISSING_OUTPUT, what)
        if waiting.end and waiting.end.failure is None:
            return  # stopped: nothing is reported
        detail = Detail(
            index,
            exit_code=os.waitstatus_to_exitcode(status),
            started=started,
            ended=started + seconds,
            cpu=usage.ru_utime + usage.ru_stime,
            memory=usage.ru_maxrss * 1024,
            stdout=out,
            stderr=err,
            outputs=shown,
        )
        if failure:
            self._tell_failure(run, index, failure, detail)
        else:
            self._reports.ends.append(detail)

    def _tell_failure(self, run: RunSpan, index: int, failure: Failure, detail: Detail) -> None:
        """A command that failed for want of space runs again: here once there is some in the store, or elsewhere."""
        if failure.cause in _OF_DISK and self._streams.lacks_space:
            if self._streams.wait_for_space():
                self._reports.say(WorkReturned(run.span, index, index + 1))
                return
            failure = msgspec.structs.replace(failure, site=True)
        self._reports.say(WorkFailed(run.span, index, failure, detail))

    def _start(self, run: RunSpan, index: int, call: CommandCall, outputs: Outputs | None) -> int:
        settings = call.settings
        try:
            argv = render_call(call, outputs.hidden if outputs else {}, run.needs.cores, run.attempt, self._moved)
        except Exception as error:
            raise Unstartable(f"the command cannot be made: {one_line(error)}", of_site=False) from error
        environment = self._environments.make(settings.env, run.needs.cores, f"{run.record}.{index}", run.attempt)
        try:
            if settings.cwd != self._cwd:
                self._cwd = ""
                os.chdir(settings.cwd)
                self._cwd = settings.cwd
            if outputs:
                outputs.prepare()
                self._note.write([os.path.join(settings.cwd, path) for path in outputs.hidden.values()])
        except OSError as error:
            what = "folder for an output cannot be made" if self._cwd else "directory cannot be entered"
            raise Unstartable(f"the {what}: {error.filename}: {error.strerror}") from error
        if settings.stdin is None and not settings.stdin_path:
            return self._spawn(argv, environment, -1)
        stdin = open_stdin(settings)
        try:
            return self._spawn(argv, environment, stdin)
        finally:
            if stdin >= 0:
                os.close(stdin)

    def _spawn(self, argv: list[str], environment: dict[bytes, bytes], stdin: int) -> int:
        path = environment.get(b"PATH", _PATH)
        actions = [(os.POSIX_SPAWN_DUP2, stdin, 0)] if stdin >= 0 else ()
        for program, words in self._programs.ways(argv, path):
            self.spawning = True
            try:
                pid = os.posix_spawn(
                    program,
                    words,
                    environment,
                    file_actions=actions,
                    setpgroup=0,
                    setsigmask=(),
                    setsigdef=_RESET,
                )
            except OSError as error:
                self.spawning = False
                if error.errno == errno.ENOEXEC:
                    continue
                self._programs.forget()
                raise Unstartable(f"the program {argv[0]!r} cannot be started: {error.strerror}") from error
            except ValueError as error:
                self.spawning = False
                raise Unstartable(f"the program {argv[0]!r} cannot be started: {error}", of_site=False) from error
            self._cells[GROUP] = pid
            self._cells[SINCE] = time.monotonic_ns()  # the executor keeps limits by it
            self.spawning = False
            if self.term_came:
                kill_group(pid)
                self._reports.leave()
            return pid
        raise Unstartable(f"the program {argv[0]!r} cannot be started: it is no program")

    def _judge(self, status: int, outputs: Outputs | None) -> Failure | None:
        if self.waiting.end:
            return self.waiting.end.failure
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            return Failure(Cause.SIGNAL, f"killed by signal {number} ({_signal_name(number)})", signal=number)
        code = os.WEXITSTATUS(status)
        if code:
            return Failure(Cause.EXIT, f"exit code {code}", exit_code=code)
        missing = outputs.missing() if outputs else []
        if missing:
            return Failure(Cause.MISSING_OUTPUT, f"did not write its output {', '.join(missing)}", exit_code=0)
        return None


def _payload(run: RunSpan) -> bytes:
    if run.payload_path:
        with open(run.payload_path, "rb") as file:
            return file.read()
    return run.payload


def _with_stderr(failure: Failure, tail: str) -> Failure:
    """A failure with what the command wrote last, which may say that it is the site's."""
    site = failure.cause is Cause.EXIT and speaks_of_site(tail, failure.exit_code)
    return msgspec.structs.replace(failure, stderr=tail, site=site)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
