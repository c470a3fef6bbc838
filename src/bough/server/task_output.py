"""What tasks wrote to stdout and stderr: read here, or from the executor that has it.

A client names a task and an offset in its own output, or a file and an offset in that, as the jobs database has them.
A running task's output is with its executor; that of one that was cancelled or killed is, too, until it has ended.
Executors whose files the server cannot read send short outputs with their reports; the server keeps them, and from then
on they are named by their place here. Long ones come as contents before the report does. Rule: files are read only
below the store's own folders for outputs and contents, and executors keep the same rule for their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from bough import private
from bough.errors import PeerLost, UnknownName, UserError
from bough.model.events.news import WorkFailed, WorkNews, WorkStopped, WorkSucceeded
from bough.model.files import is_tidy
from bough.model.ids import ExecutorId, RecordId, number_of
from bough.model.outcomes import Cause, Detail, Failure, ResultFile, Stream
from bough.model.tasks import Dep, On
from bough.server.peers import DeferredRequest, ExecutorPeer
from bough.server.turns.shell import Shell
from bough.stores.folder.store_folder import path_in
from bough.stores.store import KeptStreams
from bough.wire import questions
from bough.wire.executor_messages import OutputRead, ReadOutput
from bough.wire.questions import OutputReply

MOST = 16 << 20  # bytes of one answer
_MADE_BY = re.compile(r"x(\d+)-")  # how executors name their output files


class TaskOutput:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._asked: dict[int, tuple[DeferredRequest[questions.Output], ExecutorPeer, int]] = {}  # with the attempt
        self._last = 0

    def ask(self, deferred: DeferredRequest[questions.Output]) -> None:
        """Answer, now or when the executor has."""
        wanted = deferred.question
        if wanted.path:
            executor = wanted.executor
            if not executor:
                named = _MADE_BY.match(os.path.basename(wanted.path))
                executor = ExecutorId(int(named[1])) if named else executor
            self._read(deferred, Stream(wanted.path, 0, wanted.offset + wanted.length), executor, wanted.attempt)
            return
        running = self._shell.queries.attempt_at(wanted.record, wanted.index, wanted.attempt)
        if running is not None and wanted.attempt in {0, running.attempt}:
            self._ask_executor(deferred, running.executor, running.attempt)
        else:
            self._ask_for_kept(deferred, may_run=True)

    def _ask_for_kept(self, deferred: DeferredRequest[questions.Output], *, may_run: bool) -> None:
        """Answer for a task that does not run; `may_run`: it was ended and may not be dead yet."""
        wanted = deferred.question
        found = self._of_success(wanted) or self._shell.store.output_of(wanted.record, wanted.index)
        if found is None and not self._shell.queries.can_find(wanted.record):
            raise UnknownName(f"there is no task {number_of(wanted.record)}")
        if found is None or (wanted.attempt and found.attempt != wanted.attempt):
            deferred.answer(OutputReply(b"", attempt=wanted.attempt))
            return
        stream: Stream | None = getattr(found, wanted.stream)
        if stream is not None:
            self._read(deferred, stream, found.executor, found.attempt)
        elif may_run and found.executor in self._shell.peers.executors and not found.is_whole:
            self._ask_executor(deferred, found.executor, found.attempt)
        else:
            deferred.answer(OutputReply(b"", attempt=found.attempt))

    def _of_success(self, wanted: questions.Output) -> KeptStreams | None:
        """What a task that succeeded wrote, and the executor that ran it."""
        if not self._shell.queries.can_find(wanted.record):
            return None  # of an earlier run, or none at all
        found = self._shell.queries.results_of(Dep(On.TASK, wanted.record, wanted.index))
        if not found:
            return None
        at = wanted.index - found[0].start + found[0].source_start
        span = self._shell.results.find(found[0].turn, RecordId(found[0].source), at)
        detail = next((detail for detail in span.details if detail.index == at), None)
        streams = (detail.stdout, detail.stderr) if detail is not None else (None, None)
        return KeptStreams(*streams, span.executor, found[0].attempt, is_whole=True)

    def _read(
        self, deferred: DeferredRequest[questions.Output], stream: Stream, executor: ExecutorId, attempt: int
    ) -> None:
        """Answer with a part of a file, which is here or with an executor."""
        wanted = deferred.question
        offset = stream.offset + wanted.offset
        length = max(0, min(MOST, wanted.length, stream.length - wanted.offset))
        data = read_here(self._shell.info.folder("out"), stream.path, offset, length)
        if data is None:  # what was long is kept as a content
            contents, name = self._shell.info.folder("files"), os.path.basename(stream.path)
            data = read_here(contents, f"{contents}/{name[:2]}/{name}", offset, length)
        if data is not None:
            deferred.answer(OutputReply(data, attempt=attempt))
        else:
            fetch = ReadOutput(0, wanted.record, wanted.index, wanted.stream, stream.path, offset, length)
            self._forward(deferred, executor, fetch, attempt)

    def _ask_executor(self, deferred: DeferredRequest[questions.Output], executor: ExecutorId, attempt: int) -> None:
        """Ask for what a task that runs has written so far."""
        wanted = deferred.question
        length = min(MOST, wanted.length)
        fetch = ReadOutput(0, wanted.record, wanted.index, wanted.stream, "", wanted.offset, length)
        self._forward(deferred, executor, fetch, attempt)

    def _forward(
        self, deferred: DeferredRequest[questions.Output], number: ExecutorId, fetch: ReadOutput, attempt: int
    ) -> None:
        executor = self._shell.peers.executors.get(number)
        if executor is None:
            raise UserError(f"executor {number}, which has this output, is not here")
        self._last += 1
        self._asked[self._last] = (deferred, executor, attempt)
        executor.connection.send(msgspec.structs.replace(fetch, request=self._last))

    def fetched(self, executor: ExecutorPeer, message: OutputRead) -> None:
        """An executor has answered."""
        asked = self._asked.get(message.request)
        if asked is None or asked[1] is not executor:
            return
        del self._asked[message.request]
        deferred, _, attempt = asked
        if message.error and not deferred.question.path:  # it has ended meanwhile, and its report says where it wrote
            self._shell.after_turn(lambda: deferred.attempt(lambda one: self._ask_for_kept(one, may_run=False)))
            self._shell.schedule()
        else:
            deferred.answer(OutputReply(message.data, message.more, message.error, attempt, message.size))

    def on_lost(self, executor: ExecutorPeer) -> None:
        """What an executor was asked for will not come."""
        for number in [number for number, asked in self._asked.items() if asked[1] is executor]:
            self._asked.pop(number)[0].refuse(PeerLost("the executor that has this output has disconnected"))


def read_here(folder: str, path: str, offset: int, length: int) -> bytes | None:
    """A part of a file below a folder; None when it is not there."""
    real = os.path.realpath(path_in(folder, path))
    if not real.startswith(os.path.realpath(folder) + os.sep):
        return None
    try:
        with open(real, "rb") as file:
            return os.pread(file.fileno(), length, offset)
    except OSError:
        return None


def with_own_results(news: Sequence[WorkNews], folder: str) -> Sequence[WorkNews]:
    """The same news; a big result that is said to lie outside of our folder for them is none."""
    if any(_is_strange(fact, folder) for fact in news):
        return [_refused(fact) if _is_strange(fact, folder) else fact for fact in news]
    return news


def _is_strange(fact: WorkNews, folder: str) -> bool:
    if type(fact) is not WorkSucceeded or type(fact.results) is not ResultFile:
        return False
    return not fact.results.path.startswith(f"{folder}/") or not is_tidy(fact.results.path)


def _refused(fact: WorkNews) -> WorkNews:
    assert isinstance(fact, WorkSucceeded)
    return WorkFailed(fact.span, fact.start, Failure(Cause.UNSENDABLE, "its result is not where results are kept"))


class KeptOutput:
    """Two append-only files for every executor."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def kept(self, executor: int, news: Sequence[WorkNews]) -> list[WorkNews]:
        """The same news, with what was written kept here."""
        return [self._kept(executor, fact) for fact in news]

    def _kept(self, executor: int, fact: WorkNews) -> WorkNews:
        if isinstance(fact, WorkSucceeded) and fact.details:
            return replace(fact, details=tuple(self._detail(executor, detail) for detail in fact.details))
        if isinstance(fact, WorkFailed | WorkStopped) and fact.detail is not None:
            return replace(fact, detail=self._detail(executor, fact.detail))
        return fact

    def _detail(self, executor: int, detail: Detail) -> Detail:
        if not (detail.stdout and detail.stdout.data) and not (detail.stderr and detail.stderr.data):
            return detail
        stdout, stderr = self._stream(executor, "out", detail.stdout), self._stream(executor, "err", detail.stderr)
        return replace(detail, stdout=stdout, stderr=stderr)

    def _stream(self, executor: int, suffix: str, stream: Stream | None) -> Stream | None:
        if stream is None or not stream.data:
            return stream
        path = f"{self._folder}/x{executor}-far.{suffix}"
        offset = 0
        try:
            descriptor = private.opener(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                offset = os.lseek(descriptor, 0, os.SEEK_END)
                written = os.write(descriptor, stream.data)
            finally:
                os.close(descriptor)
        except OSError:
            written = 0
        if written < len(stream.data):  # the disk is full: it can still be asked for where it is
            return replace(stream, data=b"")
        return Stream(path, offset, written)
