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
from typing import TYPE_CHECKING, Any

import msgspec

from bough import private
from bough.errors import BadValue, BoughError, SiteError, UserError
from bough.executor.files.command_files.declared_outputs import Outputs
from bough.executor.files.command_files.sandbox import Sandbox, aside_of, sandbox_name
from bough.executor.host.disk_space_wait import is_full
from bough.executor.host.processes import Unstartable, kill_group
from bough.executor.reports import are_long
from bough.executor.worker.call_text import show_values
from bough.executor.worker.commands.beside_thread import do_beside
from bough.executor.worker.commands.command_failures import (
    OF_DISK,
    failure_of,
    for_want_of_space,
    not_started,
    of_full_folder,
    unstartable,
    with_stderr,
)
from bough.executor.worker.commands.command_wait import CommandEnd, CommandWait
from bough.executor.worker.environment import THREADS, Environments, ProgramPaths, open_stdin
from bough.executor.worker.output_streams import sizes_of
from bough.executor.worker.serialisation import one_line
from bough.executor.worker.worker_channel import WorkerContext
from bough.executor.worker_protocol import (
    ATTRIBUTES,
    GROUP,
    INDEX,
    LATE,
    SINCE,
    SITE,
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
from bough.model.commands.playpens import put_files
from bough.model.commands.rendering import render_call, render_row
from bough.model.events.news import WorkFailed, WorkReturned, WorkStopped
from bough.model.files import absolute, is_url
from bough.model.outcomes import Cause, Detail, EndedEarly, Failure, Output, Staged, Stream
from bough.model.tasks import LATER
from bough.wire.executor_messages import RunSpan
from bough.wire.file_messages import HeldOutputs

if TYPE_CHECKING:
    from bough.executor.files.command_files.host_folders import Environment
    from bough.executor.files.command_files.playpen import Playpen
    from bough.executor.files.command_files.url_files import UrlFiles

_UNMOVED: Mapping[str, str] = MappingProxyType({})
_RESET = [int(number) for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM)]
_PATH = os.fsencode(os.defpath)
_IMPOSSIBLE = frozenset((errno.ENAMETOOLONG, errno.ENOTDIR, errno.EEXIST))  # no host has a file of such a name
_CHECKPOINT = VARIABLE.encode()
_TRIES = 12  # attempts at a full disk of the submitter's; the waits between them come to two and a half minutes
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

    def __init__(self, context: WorkerContext, sandboxes: str = "", *, is_far: bool = False) -> None:
        self._is_far = is_far  # the server cannot read what is written here
        self._sandboxes = sandboxes  # the folder for them
        self._context = context
        self._cells = context.cells
        self._streams = context.streams
        self._reports = context.reports
        self._blobs = context.blobs
        self._inbox = context.inbox
        self._values: tuple[Sequence[str], list[Any], int] | None = None  # of a sweep's span: names, rows, its start
        self._stop = 0  # the element of the span behind the last one that is run here
        self._cwd = ""  # where this process is; empty: unknown
        self._urls: UrlFiles | None = None  # what the element that runs has at URLs
        self._staged: Staged | None = None  # what was moved for it, if it is in no sandbox
        self._playpen: Playpen | None = None  # of the element that runs
        self._unpacked: Environment | None = None  # that the element that runs uses
        self._contents: dict[str, str] = {}  # of files that were brought: where they lie
        self._attributes = _own_attributes(context.environment)
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
            self._urls = self._staged = None
            if call.reads or call.writes:
                call = self._with_urls(call, sandbox_name(run.record, index, run.attempt))
            if directory:
                self._far_element(number, run, index, call, directory)
            elif self._is_ready(number, run, index, call):
                self._element(number, run, index, call)
            self._put_away()
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
        sandbox: Sandbox | None = None
        try:
            sandbox = Sandbox(name, directory, call)
            if run.checkpoint is not None and index in run.saved:
                sandbox.reads.append(run.checkpoint.path(run.record, index))
            begun = time.perf_counter()
            moved = self._bring(number, run, index, sandbox)
            if moved is None:  # the executor knows the bytes that have come, and says nothing if there are none
                stopped = Detail(index, staged=Staged(time.perf_counter() - begun))
                self._reports.say(WorkStopped(run.span, run.record, index, run.attempt, stopped))
                self._reports.flush()
                return
            sandbox.staged = msgspec.structs.replace(moved, stage_in=time.perf_counter() - begun)
        except Unstartable as error:
            if sandbox is not None:
                sandbox.remove()  # half of it would take the space that the next attempt needs
            self._not_started(run, index, error)
            return
        except (SiteError, UserError, OSError) as error:
            self._not_started(run, index, unstartable(error))
            return
        try:
            self._element(number, run, index, sandbox.call, sandbox)
        finally:
            self._clear(run, index, sandbox)

    def _clear(self, run: RunSpan, index: int, sandbox: Sandbox) -> None:
        """A command in a sandbox has ended: remove that, but for its checkpoint. Twice does no harm."""
        self._cwd = ""
        if run.checkpoint is not None:
            aside = aside_of(self._sandboxes, run.record, index)
            sandbox.set_aside(run.checkpoint.path(run.record, index), aside)
        sandbox.remove()

    def _put_away(self) -> None:
        """An element has ended: delete what was made for it alone."""
        if self._urls is not None:
            self._urls.remove()
        if self._playpen is not None:
            self._playpen.remove()
            self._playpen = None
            self._cwd = ""
        self._unpacked = None

    def _surround(self, run: RunSpan, index: int, call: CommandCall, sandbox: Sandbox | None) -> CommandCall:
        """Make the playpen and the environment of a command, if it has some; the command as it is run then."""
        settings = call.settings
        if not settings.environment and not settings.playpen:
            return call
        folder = os.path.dirname(os.path.dirname(self._sandboxes))
        if settings.environment:  # few commands have one
            from bough.executor.files.command_files.host_folders import host_folder, unpacked_environment

            contents = self._contents if self._urls is None else {**self._contents, **self._urls.contents}
            archive = contents.get(settings.environment, settings.environment)
            try:
                self._unpacked = unpacked_environment(host_folder(folder), archive)
            except (BoughError, OSError) as error:
                raise Unstartable(f"the environment {settings.environment} cannot be unpacked: {error}") from error
            both = "\n".join(filter(None, (self._unpacked.setup, settings.setup)))
            call = msgspec.structs.replace(call, settings=msgspec.structs.replace(settings, setup=both))
        if settings.playpen:
            from bough.executor.files.command_files.playpen import Playpen

            self._playpen = Playpen(folder, call, sandbox_name(run.record, index, run.attempt))
            self._playpen.prepare(sandbox.place if sandbox else str, self._attributes)
            inside = msgspec.structs.replace(call.settings, cwd=self._playpen.path)
            call = msgspec.structs.replace(call, settings=inside)
        return call

    def _with_urls(self, call: CommandCall, name: str) -> CommandCall:
        """A command as it is run: what it has at URLs is looked after separately."""
        if not any(":/" in path for path in (*call.reads, *call.writes.values())):
            return call
        from bough.executor.files.command_files.url_files import UrlFiles, has_urls  # few commands have some

        if not has_urls(call):
            return call
        site = os.fsdecode(self._context.environment.get(SITE.encode(), b""))
        self._urls = UrlFiles(os.path.dirname(os.path.dirname(self._sandboxes)), call, name, site)
        return self._urls.call

    def _is_ready(self, number: int, run: RunSpan, index: int, call: CommandCall) -> bool:
        """See to what a command needs in the executor's folder; False when it cannot start, or was stopped."""
        if run.looks and not self._find_inputs(number, run, index):
            return False
        if self._urls is None and not call.settings.playpen:
            return True
        begun = time.perf_counter()
        wanted = self._urls.wanted if self._urls is not None else []
        self._reports.say(StageInputs(number, run.span, index, wanted))  # the executor makes its folder
        self._reports.flush()
        answer = self._inbox.answer(number, index)
        if not isinstance(answer, InputsStaged):
            return False
        try:
            _check_brought(answer)
            if self._urls is not None:
                self._urls.prepare()
                self._urls.take(answer.files, answer.folders)
        except (Unstartable, BoughError, OSError) as error:
            self._not_started(run, index, unstartable(error))
            return False
        if wanted:
            self._staged = msgspec.structs.replace(answer.moved, stage_in=time.perf_counter() - begun)
        return True

    def _find_inputs(self, number: int, run: RunSpan, index: int) -> bool:
        """Have declared inputs brought to their places that are not there; False when that cannot be, or was stopped.

        They may be temporary outputs that another host holds, or have gone.
        """
        paths = [path for element, path in run.looks if element == index and not is_url(path)]
        missing = [path for path in dict.fromkeys(paths) if not os.path.lexists(path)]
        if not missing:
            return True
        self._reports.say(StageInputs(number, run.span, index, missing, in_place=True))
        self._reports.flush()
        answer = self._inbox.answer(number, index)
        if not isinstance(answer, InputsStaged):
            return False
        try:
            if answer.error:
                why = f"its input is not in its place and cannot be brought: {answer.error}"
                raise Unstartable(why, of_site=answer.of_site, lost=answer.lost, full=answer.full)
            from bough.executor.files.command_files.missing_inputs import put_in_places  # few commands miss some

            put_in_places(answer.files, answer.folders, (run.record, index, run.attempt))
        except Unstartable as error:
            self._not_started(run, index, error)
            return False
        return True

    def _bring(self, number: int, run: RunSpan, index: int, sandbox: Sandbox) -> Staged | None:
        """Have the files of a command brought; where they came from, None when it was stopped."""
        files: dict[str, str] = {}
        moved = Staged()
        folders: list[str] = []
        urls = self._urls.wanted if self._urls is not None else []
        if sandbox.reads or urls:
            fresh = put_files(sandbox.call.transfers)
            self._reports.say(StageInputs(number, run.span, index, [*sandbox.reads, *urls], fresh))
            self._reports.flush()
            answer = self._inbox.answer(number, index)
            if not isinstance(answer, InputsStaged):
                return None
            _check_brought(answer)
            files, folders, moved = answer.files, answer.folders, answer.moved
            self._contents = files
        if self._urls is not None:
            self._urls.prepare()
            self._urls.take({url: files.pop(url) for url in urls}, folders)
            folders = [path for path in folders if path in files]
        sandbox.fill(files, folders)
        return moved

    def _hand_over(
        self, number: int, run: RunSpan, index: int, sandbox: Sandbox, outputs: Outputs
    ) -> tuple[Output, ...]:
        """Give what a command made to the server; OSError when that cannot be."""
        begun = time.perf_counter()
        try:
            made, where = sandbox.made(outputs.hidden, outputs.gathered())
        except Unstartable as error:
            raise OSError(errno.ENOSPC if error.full else 0, str(error)) from error
        later = HeldOutputs(run.record, index, run.attempt, made) if run.limits.keep == LATER else None
        temporary = not run.limits.keep
        self._reports.say(StoreOutputs(number, run.span, index, made, where, temporary=temporary, later=later))
        self._reports.flush()
        answer = self._inbox.answer(number, index)
        if not isinstance(answer, OutputsStored):
            self.waiting.end = CommandEnd(None)  # it was stopped
            return ()
        if answer.error:
            raise OSError(0, f"the server cannot keep it: {answer.error}")
        sent = sum(one.size for one in made)
        sandbox.staged = msgspec.structs.replace(sandbox.staged, stage_out=time.perf_counter() - begun, sent=sent)
        told = sandbox.outputs(made, answer.times)
        return tuple([msgspec.structs.replace(one, later=True) for one in told]) if answer.later else told

    def _keep_streams(
        self, number: int, run: RunSpan, index: int, out: Stream | None, err: Stream | None
    ) -> tuple[Stream | None, Stream | None]:
        """Give what a command wrote to the server, which cannot read it here; as it was if that cannot be."""
        end = self.waiting.end
        if not self._is_far or not are_long(out, err) or (end and end.verdict is None):
            return out, err
        from bough.executor.worker.long_streams import hand_over  # few commands write so much

        found = hand_over(self._context, number, run.span, index, (out, err))
        if found is None:
            self.waiting.end = CommandEnd(None)  # it was stopped
            return out, err
        return found

    def _not_started(self, run: RunSpan, index: int, error: Unstartable) -> None:
        self._say_failed(run, index, not_started(error))

    def _say_failed(self, run: RunSpan, index: int, failure: Failure, detail: Detail | None = None) -> None:
        """Tell a failure, of a sweep's element with its values."""
        if self._values is not None:
            names, rows, start = self._values
            shown = show_values(zip(names, rows[index - start], strict=False))
            failure = msgspec.structs.replace(failure, parameters=shown)
        self._reports.say(WorkFailed(run.span, index, failure, detail))
        if failure.cause is Cause.NO_SPACE:
            self._reports.flush()  # the executor makes space before the next element needs it

    def _element(
        self, number: int, run: RunSpan, index: int, call: CommandCall, sandbox: Sandbox | None = None
    ) -> None:
        outputs = self._outputs_of(run, index, call, sandbox)
        self._moved = self._moved_files(sandbox)
        self._checkpoint = "" if run.checkpoint is None else _place_of(run.checkpoint.path(run.record, index), sandbox)
        started = time.time()
        begun = time.perf_counter()
        try:
            call = self._surround(run, index, call, sandbox)
            pid = self._start(run, index, call, outputs, is_in_sandbox=sandbox is not None)
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
        failure = self._judge(status, outputs, sandbox) if status or outputs or waiting.end or self._urls else None
        if failure:
            failure = self._as_meant(run, failure, sandbox, outputs, self._streams.error_tail(err))
        out, err = self._keep_streams(number, run, index, out, err)
        if survived:
            self._streams.seal()
        shown: tuple[Output, ...] = ()
        early = waiting.end.verdict if waiting.end else None
        if outputs and (failure or (waiting.end and not early)):
            outputs.discard()
        elif outputs or (self._urls is not None and not failure and (early or not waiting.end)):
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
            staged=sandbox.staged if sandbox else self._staged,
        )
        self._tell(run, index, failure, detail, sandbox)

    def _as_meant(
        self, run: RunSpan, failure: Failure, sandbox: Sandbox | None, outputs: Outputs | None, tail: str
    ) -> Failure:
        """A failure with what the command wrote last; a full disk may be the reason.

        In the submitter's directory that counts for commands of which all that they write is temporary: it goes with
        its last reader, and so does what others like them wrote, so there will be space.
        """
        if sandbox:
            failure = for_want_of_space(failure, sandbox.root)
        elif outputs and not run.limits.keep and run.attempt < _TRIES and self._staged is None:
            failure = of_full_folder(failure, outputs.full_folder(), tail)
        has_ended = failure.cause in {Cause.EXIT, Cause.SIGNAL, Cause.TIMEOUT, Cause.MEMORY, Cause.MISSING_OUTPUT}
        return with_stderr(failure, tail) if has_ended else failure

    def _outputs_of(self, run: RunSpan, index: int, call: CommandCall, sandbox: Sandbox | None) -> Outputs | None:
        """What looks after the outputs of a command; None: it declares none."""
        if not call.writes and not call.patterns:
            return None
        return Outputs(
            call.writes,
            run.record,
            index,
            run.attempt,
            known=(sandbox.writes, sandbox.patterns) if sandbox else None,
            mark=self._mark,
            in_place=call.in_place,
            patterns=call.patterns,
            is_replica=run.replica,
        )

    def _cut(self, run: RunSpan, index: int) -> None:
        """This command takes long: what waits behind it in its span goes to others."""
        self._reports.say(WorkReturned(run.span, index + 1, self._stop))
        self._reports.flush()
        self._stop = index + 1

    def _show(
        self, number: int, run: RunSpan, index: int, sandbox: Sandbox | None, outputs: Outputs | None
    ) -> tuple[tuple[Output, ...], Failure | None]:
        """Give the outputs of a command that succeeded their names; with what went wrong."""
        sent: list[Output] = []
        urls = self._urls
        if urls is not None and urls.writes:
            try:
                if not do_beside(self._inbox, number, index, lambda: sent.extend(urls.send())):
                    self.waiting.end = CommandEnd(None)  # it was stopped
            except (BoughError, OSError) as error:
                if outputs:
                    outputs.discard()
                site = isinstance(error, SiteError) and error.transient
                return (), Failure(Cause.MISSING_OUTPUT, f"its output cannot be sent: {error}", site=site)
        if outputs is None:
            return tuple(sent), None
        try:
            shown = self._hand_over(number, run, index, sandbox, outputs) if sandbox else outputs.show()
            if not run.limits.keep:
                shown = tuple([msgspec.structs.replace(one, kept=False) for one in shown])
        except OSError as error:
            outputs.discard()
            if sandbox and is_full(error):
                return (), Failure(Cause.NO_SPACE, str(error.strerror))
            what = f"an output cannot be given its name: {error}" if not sandbox else str(error.strerror)
            return (), Failure(Cause.MISSING_OUTPUT, what)
        return (*shown, *sent), None

    def _say_began(  # noqa: PLR0917 -- all that is known of a command
        self, number: int, run: RunSpan, index: int, pid: int, call: CommandCall, sandbox: Sandbox | None
    ) -> None:
        """Tell the executor where a command that is watched runs."""
        cwd = call.settings.cwd
        outputs = [absolute(path, cwd) for slot, path in call.writes.items() if slot not in call.in_place]
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

    def _tell(self, run: RunSpan, index: int, failure: Failure | None, detail: Detail, sandbox: Sandbox | None) -> None:
        """Say how a command ended; of one that was stopped only what it wrote, and that files travelled for it."""
        end = self.waiting.end
        if end and end.verdict is None:
            if detail.stdout or detail.stderr or detail.staged:
                self._reports.say(WorkStopped(run.span, run.record, index, run.attempt, detail))
                self._reports.flush()
        elif failure:
            if sandbox and failure.cause is Cause.NO_SPACE:
                self._clear(run, index, sandbox)  # the executor looks what there is without it
            self._tell_failure(run, index, failure, detail)
        else:
            self._reports.ends.append(detail)

    def _tell_failure(self, run: RunSpan, index: int, failure: Failure, detail: Detail) -> None:
        """A command that failed for want of space runs again: here once there is some in the store, or elsewhere."""
        if failure.cause in OF_DISK and self._streams.lacks_space:
            if self._streams.wait_for_space():
                self._reports.say(WorkReturned(run.span, index, index + 1))
                return
            failure = msgspec.structs.replace(failure, site=True)
        self._say_failed(run, index, failure, detail)

    def _start(
        self, run: RunSpan, index: int, call: CommandCall, outputs: Outputs | None, *, is_in_sandbox: bool
    ) -> int:
        settings = call.settings
        try:
            argv = render_call(call, self._hidden(outputs), run.needs.cores, run.attempt, self._moved)
        except Exception as error:
            raise Unstartable(f"the command cannot be made: {one_line(error)}", of_site=False) from error
        environment = self._environment_of(run, index, settings)
        if settings.setup or settings.container or settings.teardown:
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
                self._note.write([os.path.join(settings.cwd, path) for path in outputs.noted()])
        except OSError as error:
            what = "folder for an output cannot be made" if self._cwd else "directory cannot be entered"
            is_of_site = error.errno not in _IMPOSSIBLE
            text = f"the {what}: {error.filename}: {error.strerror}"
            raise Unstartable(text, of_site=is_of_site, full=is_in_sandbox and is_full(error)) from error
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

    def _environment_of(self, run: RunSpan, index: int, settings: CommandSettings) -> dict[bytes, bytes]:
        environment = self._environments.make(settings.env, run.needs.cores, f"{run.record}.{index}", run.attempt)
        if self._unpacked is not None:
            self._unpacked.put_first(environment)
        if self._playpen is not None:
            for name, value in self._playpen.variables(run.record, index).items():
                if name.decode() not in settings.env:
                    environment[name] = value
            path = b"%b:%b" % (os.fsencode(self._playpen.storage), os.fsencode(self._playpen.path))
            environment[b"PATH"] = path + b":" + environment.get(b"PATH", _PATH)
        return environment

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

    def _judge(self, status: int, outputs: Outputs | None, sandbox: Sandbox | None) -> Failure | None:
        verdict = self.waiting.end.verdict if self.waiting.end else None
        if self.waiting.end and not isinstance(verdict, EndedEarly):
            return verdict
        if status and not self.waiting.end:
            return failure_of(status, outputs.full_folder() if outputs else "")
        try:
            missing = self._missing(outputs)
        except OSError as error:
            if sandbox and is_full(error):
                return Failure(Cause.NO_SPACE, str(error.strerror))
            from bough.executor.files.command_files.playpen import why_not

            why = f"what it made cannot be got from its playpen: {why_not(error)}"
            return Failure(Cause.MISSING_OUTPUT, why, exit_code=0)
        if not missing:
            return None
        if isinstance(verdict, EndedEarly):
            text = f"{verdict.ended_by}; it had not written its output {', '.join(missing)} by then"
            return Failure(Cause.MISSING_OUTPUT, text)
        return Failure(Cause.MISSING_OUTPUT, f"did not write its output {', '.join(missing)}", exit_code=0)

    def _moved_files(self, sandbox: Sandbox | None) -> Mapping[str, str]:
        """Files that lie elsewhere than the command's text says."""
        moved = sandbox.moved if sandbox else _UNMOVED
        return moved if self._urls is None else {**moved, **self._urls.moved}

    def _hidden(self, outputs: Outputs | None) -> dict[str, str]:
        """Where an attempt writes its outputs."""
        hidden = outputs.hidden if outputs else {}
        return hidden if self._urls is None else {**hidden, **self._urls.hidden}

    def _missing(self, outputs: Outputs | None) -> list[str]:
        if self._playpen is not None and outputs:
            self._playpen.collect(outputs.hidden, self._attributes)
        missing = outputs.missing() if outputs else []
        return [*missing, *self._urls.missing()] if self._urls is not None else missing


def _check_brought(answer: InputsStaged) -> None:
    """Unstartable when inputs could not be brought."""
    if answer.error:
        why = f"its input cannot be brought: {answer.error}"
        raise Unstartable(why, of_site=answer.of_site, lost=answer.lost, full=answer.full)


def _place_of(path: str, sandbox: Sandbox | None) -> str:
    """Where a path of the submitter lies here."""
    return sandbox.place(path) if sandbox else path


def _own_attributes(environment: Mapping[bytes, bytes]) -> dict[str, str | float]:
    """What this executor was told to say of itself."""
    text = environment.get(ATTRIBUTES.encode(), b"")
    try:
        return msgspec.json.decode(text, type=dict[str, str | float]) if text else {}
    except msgspec.MsgspecError:
        return {}


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
