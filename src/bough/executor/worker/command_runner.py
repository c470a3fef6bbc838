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
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec

from bough import private
from bough.errors import BadValue
from bough.executor.files.declared_outputs import Outputs
from bough.executor.files.sandbox import Sandbox, aside_of, sandbox_name
from bough.executor.processes import Unstartable, kill_group
from bough.executor.worker.call_text import show_values
from bough.executor.worker.command_wait import CommandEnd, CommandWait
from bough.executor.worker.environment import THREADS, Environments, ProgramPaths, open_stdin
from bough.executor.worker.output_streams import sizes_of
from bough.executor.worker.serialisation import one_line, speaks_of_site
from bough.executor.worker.worker_channel import WorkerContext
from bough.executor.worker_protocol import (
    GROUP,
    INDEX,
    LATE,
    SINCE,
    ElementBegan,
    ElementEnded,
    ElementJudged,
    InputsStaged,
    OutputsStored,
    StageInputs,
    StoreOutputs,
    TaskPlace,
    WorkerDone,
)
from bough.model.checkpoints import VARIABLE
from bough.model.commands.command import CommandCall, CommandSettings, decode_call
from bough.model.commands.rendering import render_call, render_row
from bough.model.events.news import WorkFailed, WorkReturned, WorkStopped
from bough.model.files import absolute
from bough.model.outcomes import Cause, Detail, EndedEarly, Failure, Output, Staged
from bough.wire.executor_messages import RunSpan

_UNMOVED: Mapping[str, str] = MappingProxyType({})
_RESET = [int(number) for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM)]
_PATH = os.fsencode(os.defpath)
_CHECKPOINT = VARIABLE.encode()
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
        self._values: tuple[Sequence[str], list[Any], int] | None = None  # of a sweep's span: names, rows, its start
        self._stop = 0  # the element of the span behind the last one that is run here
        self._cwd = ""  # where this process is; empty: unknown
        self._checkpoint = ""  # of the element that runs: where it is, or is to be
        self._moved = _UNMOVED  # files that lie elsewhere than the command's text says
        self._programs = ProgramPaths()
        self._note = OutputNote(context.streams.path_of("hidden"))
        self._mark = context.environment.get(b"BOUGH_RUN", b"")
        self._environments = Environments(context.environment, context.devices)
        self.waiting = CommandWait(context.inbox, context.reports)
        self._watched: list[str] | None = None  # files that are followed while an element runs; None: it is not watched
        self._sizes: dict[str, int] = {}  # of those that were there before it began
        self.spawning = False  # a process may exist that is not in the shared memory yet
        self.term_came = False  # TERM came meanwhile

    def run(self, number: int, run: RunSpan, directory: str = "", *, watched: list[str] | None = None) -> None:
        """Run all elements of a span and say how they ended; `directory`: the submitter's, if it is not seen here."""
        self._watched = watched
        self._cwd = ""  # a function may have run in between, and a directory may have been replaced
        self._reports.begin_commands(run.span)
        self._values = None
        make: Callable[[int], CommandCall] | None = None
        self._stop = run.stop
        for index in range(run.start, run.stop):
            if index >= self._stop:
                break
            self._cells[INDEX] = index
            if self._inbox.stopped_by(number, index):
                continue
            try:
                make = make or self._maker(run, late=bool(directory))
                call = make(index)
            except Exception as error:  # noqa: BLE001 -- values of rows are the user's objects
                message = f"the command cannot be made: {one_line(error)}"
                self._say_failed(run, index, Failure(Cause.NOT_STARTED, message))
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
        self._values = (template.names, rows, run.start)
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
        name = f"{self._sandboxes}/{sandbox_name(run.record, index, run.attempt)}"
        try:
            sandbox = Sandbox(name, directory, call)
            if run.checkpoint is not None and index in run.saved:
                sandbox.reads.append(run.checkpoint.path(run.record, index))
            begun = time.perf_counter()
            moved = self._bring(number, run, index, sandbox)
            if moved is None:
                return
            sandbox.staged = Staged(time.perf_counter() - begun, 0, *moved)
        except Unstartable as error:
            self._not_started(run, index, error)
            return
        try:
            self._element(number, run, index, sandbox.call, sandbox)
        finally:
            self._cwd = ""
            if run.checkpoint is not None:
                aside = aside_of(self._sandboxes, run.record, index)
                sandbox.set_aside(run.checkpoint.path(run.record, index), aside)
            sandbox.remove()

    def _bring(self, number: int, run: RunSpan, index: int, sandbox: Sandbox) -> tuple[int, int, int] | None:
        """Have the files of a command brought; bytes by where they came from, None when it was stopped."""
        files: dict[str, str] = {}
        moved = (0, 0, 0)
        if sandbox.reads:
            self._reports.say(StageInputs(number, run.span, index, sandbox.reads))
            self._reports.flush()
            answer = self._inbox.answer(number, index)
            if not isinstance(answer, InputsStaged):
                return None
            if answer.error:
                raise Unstartable(f"its input cannot be brought: {answer.error}", of_site=answer.of_site)
            files, moved = answer.files, answer.moved
        sandbox.fill(files)
        return moved

    def _hand_over(
        self, number: int, run: RunSpan, index: int, sandbox: Sandbox, outputs: Outputs
    ) -> tuple[Output, ...]:
        """Give what a command made to the server; OSError when that cannot be."""
        begun = time.perf_counter()
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
        sent = sum(one.size for one in made)
        sandbox.staged = msgspec.structs.replace(sandbox.staged, stage_out=time.perf_counter() - begun, sent=sent)
        return sandbox.outputs(made, answer.times)

    def _not_started(self, run: RunSpan, index: int, error: Unstartable) -> None:
        self._say_failed(run, index, Failure(Cause.NOT_STARTED, str(error), site=error.of_site))

    def _say_failed(self, run: RunSpan, index: int, failure: Failure, detail: Detail | None = None) -> None:
        """Tell a failure, of a sweep's element with its values."""
        if self._values is not None:
            names, rows, start = self._values
            shown = show_values(zip(names, rows[index - start], strict=False))
            failure = msgspec.structs.replace(failure, parameters=shown)
        self._reports.say(WorkFailed(run.span, index, failure, detail))

    def _element(
        self, number: int, run: RunSpan, index: int, call: CommandCall, sandbox: Sandbox | None = None
    ) -> None:
        known = sandbox.writes if sandbox else None
        outputs = None
        if call.writes:
            outputs = Outputs(call.writes, run.record, index, run.attempt, known=known, mark=self._mark)
        self._moved = sandbox.moved if sandbox else _UNMOVED
        self._checkpoint = "" if run.checkpoint is None else _place_of(run.checkpoint.path(run.record, index), sandbox)
        started = time.time()
        begun = time.perf_counter()
        try:
            pid = self._start(run, index, call, outputs)
        except Unstartable as error:
            if outputs:
                outputs.discard()
            self._not_started(run, index, error)
            return
        if self._watched is not None or self._cells[LATE] == number:
            self._say_began(number, run, index, pid, call, sandbox)
        waiting = self.waiting
        waiting.wait(pid, number, index, partial(self._cut, run, index) if index + 1 < self._stop else None)
        self._cells[SINCE] = 0
        _, status, usage = os.wait4(pid, 0)
        seconds = time.perf_counter() - begun
        waiting.lasted(seconds)
        survived = kill_group(pid)
        self._cells[GROUP] = 0
        if self._watched is not None or self._cells[LATE] == number:
            self._hear_verdict(number, index)
        out, err = self._streams.take()
        failure = self._judge(status, outputs) if status or outputs or waiting.end else None
        if failure and failure.cause in {Cause.EXIT, Cause.SIGNAL, Cause.TIMEOUT, Cause.MEMORY, Cause.MISSING_OUTPUT}:
            failure = _with_stderr(failure, self._streams.error_tail(err))
        if survived:
            self._streams.seal()
        shown: tuple[Output, ...] = ()
        early = waiting.end.verdict if waiting.end else None
        if outputs and (failure or (waiting.end and not early)):
            outputs.discard()
        elif outputs:
            shown, failure = self._show(number, run, index, sandbox, outputs)
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
            ended_by=early.ended_by if isinstance(early, EndedEarly) else "",
            staged=sandbox.staged if sandbox else None,
        )
        self._tell(run, index, failure, detail)

    def _cut(self, run: RunSpan, index: int) -> None:
        """This command takes long: what waits behind it in its span goes to others."""
        self._reports.say(WorkReturned(run.span, index + 1, self._stop))
        self._reports.flush()
        self._stop = index + 1

    def _show(
        self, number: int, run: RunSpan, index: int, sandbox: Sandbox | None, outputs: Outputs
    ) -> tuple[tuple[Output, ...], Failure | None]:
        """Give the outputs of a command that succeeded their names; with what went wrong."""
        try:
            return self._hand_over(number, run, index, sandbox, outputs) if sandbox else outputs.show(), None
        except OSError as error:
            outputs.discard()
            what = f"an output cannot be given its name: {error}" if not sandbox else str(error.strerror)
            return (), Failure(Cause.MISSING_OUTPUT, what)

    def _say_began(  # noqa: PLR0917 -- all that is known of a command
        self, number: int, run: RunSpan, index: int, pid: int, call: CommandCall, sandbox: Sandbox | None
    ) -> None:
        """Tell the executor where a command that is watched runs."""
        cwd = call.settings.cwd
        outputs = [absolute(path, cwd) for path in call.writes.values()]
        stdout, stderr = self._streams.begins()
        within = sandbox.within if sandbox else ("", "")
        sizes = self._sizes if self._watched is not None else None
        place = TaskPlace(run.record, index, run.attempt, pid, cwd, stdout, stderr, outputs, sizes, *within)
        self._reports.say(ElementBegan(number, place))
        self._reports.flush()

    def _hear_verdict(self, number: int, index: int) -> None:
        """Have all judged that a watched command wrote, before it is said how it ended."""
        end = self.waiting.end
        if end and end.verdict is None:
            return
        self._reports.say(ElementEnded(number, index, *self._streams.ends()))
        self._reports.flush()
        answer = self._inbox.answer(number, index)
        if not isinstance(answer, ElementJudged):
            self.waiting.end = CommandEnd(None)  # it was stopped
        elif answer.verdict is not None and not end:
            self.waiting.end = CommandEnd(answer.verdict)

    def _tell(self, run: RunSpan, index: int, failure: Failure | None, detail: Detail) -> None:
        """Say how a command ended; of one that was stopped only what it wrote."""
        end = self.waiting.end
        if end and end.verdict is None:
            if detail.stdout or detail.stderr:
                self._reports.say(WorkStopped(run.span, run.record, index, run.attempt, detail))
                self._reports.flush()
        elif failure:
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
        self._say_failed(run, index, failure, detail)

    def _start(self, run: RunSpan, index: int, call: CommandCall, outputs: Outputs | None) -> int:
        settings = call.settings
        try:
            argv = render_call(call, outputs.hidden if outputs else {}, run.needs.cores, run.attempt, self._moved)
        except Exception as error:
            raise Unstartable(f"the command cannot be made: {one_line(error)}", of_site=False) from error
        environment = self._environments.make(settings.env, run.needs.cores, f"{run.record}.{index}", run.attempt)
        if settings.setup or settings.container:
            argv = _surrounded(argv, settings, environment)
        try:
            if self._checkpoint:
                environment[_CHECKPOINT] = os.fsencode(self._checkpoint)
                os.makedirs(os.path.dirname(self._checkpoint), mode=0o700, exist_ok=True)
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
        if self._watched:
            self._sizes = sizes_of(self._watched)
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
            verdict = self.waiting.end.verdict
            if not isinstance(verdict, EndedEarly):
                return verdict
            missing = outputs.missing() if outputs else []
            text = f"{verdict.ended_by}; it had not written its output {', '.join(missing)} by then"
            return Failure(Cause.MISSING_OUTPUT, text) if missing else None
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            return Failure(Cause.SIGNAL, f"killed by signal {number} ({_signal_name(number)})", signal=number)
        code = os.WEXITSTATUS(status)
        if code:
            full = outputs.full_folder() if outputs else ""
            reason = f"; the disk of {full} was full" if full else ""
            return Failure(Cause.EXIT, exit_message(code) + reason, exit_code=code)
        missing = outputs.missing() if outputs else []
        if missing:
            return Failure(Cause.MISSING_OUTPUT, f"did not write its output {', '.join(missing)}", exit_code=0)
        return None


def _place_of(path: str, sandbox: Sandbox | None) -> str:
    """Where a path of the submitter lies here."""
    return sandbox.place(path) if sandbox else path


def _surrounded(argv: list[str], settings: CommandSettings, environment: dict[bytes, bytes]) -> list[str]:
    """A command behind its setup, in its container."""
    from bough.model.commands.containers import CONTAINER_COMMAND, around  # late: few commands have either

    template = os.fsdecode(environment.get(CONTAINER_COMMAND.encode(), b""))
    variables = [*settings.env, "BOUGH_TASK", "BOUGH_ATTEMPT", *map(bytes.decode, THREADS)]
    try:
        user = f"{os.geteuid()}:{os.getegid()}"
        return around(argv, settings, template=template, user=user, variables=dict.fromkeys(variables))
    except BadValue as error:
        raise Unstartable(str(error)) from error


def _payload(run: RunSpan) -> bytes:
    if run.payload_path:
        with open(run.payload_path, "rb") as file:
            return file.read()
    return run.payload


def _with_stderr(failure: Failure, tail: str) -> Failure:
    """A failure with what the command wrote last, which may say that it is the site's."""
    site = failure.cause is Cause.EXIT and speaks_of_site(tail, failure.exit_code)
    return msgspec.structs.replace(failure, stderr=tail, site=site)


def exit_message(code: int) -> str:
    """An exit code in a line; those that a shell makes of signals are explained, for nobody knows them by heart."""
    if code == _BROKEN_PIPE:
        return (
            f"exit code {code} (SIGPIPE: a program wrote into a pipe whose reader had ended, as in yes | head -1;"
            " if that is right, put 'set +o pipefail;' before the command)"
        )
    number = code - _OF_SIGNAL
    if number in _SIGNALS:
        return f"exit code {code} (a program that the shell started was ended by {_signal_name(number)})"
    return f"exit code {code}"


_OF_SIGNAL = 128  # a shell adds it to the number of the signal that ended a program
_BROKEN_PIPE = _OF_SIGNAL + signal.SIGPIPE
_SIGNALS = frozenset(map(int, signal.Signals))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
