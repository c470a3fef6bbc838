"""Running functions in a worker: a span in one tight loop, or one loose call.

Rule: what one element does (raise, print, exit, change directory) is the outcome of that element alone; only the death
of the process ends the loop.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from msgspec.structs import replace

from bough.executor.reports import are_long
from bough.executor.worker import current_task
from bough.executor.worker.call_isolation import with_own_arguments
from bough.executor.worker.call_text import show_call
from bough.executor.worker.environment import THREADS, threads_text
from bough.executor.worker.output_streams import sizes_of
from bough.executor.worker.serialisation import Filed, arguments, exception_failure, link, loading_failure
from bough.executor.worker.worker_channel import SpanProgress, WorkerContext
from bough.executor.worker_protocol import (
    INDEX,
    LATE,
    SINCE,
    ElementBegan,
    ElementEnded,
    ElementJudged,
    TaskPlace,
    Verdict,
    WorkerDone,
)
from bough.model.checkpoints import VARIABLE
from bough.model.events.news import WorkReturned
from bough.model.ids import SpanId
from bough.model.outcomes import Detail, Failure, ResultFile, Staged, Stream
from bough.model.refs import SIMPLE
from bough.movers.kept_maps import kept_maps
from bough.movers.value_files import forget_recent
from bough.wire.executor_messages import RunSpan


class FunctionRunner:
    """Runs hand-overs of functions."""

    def __init__(self, context: WorkerContext, *, is_far: bool = False) -> None:
        self._is_far = is_far  # folders of the submitter are not seen here
        self._context = context
        self._cells = current_task.cells = context.cells
        self._streams = context.streams
        self._reports = context.reports
        self._blobs = context.blobs
        self._inbox = context.inbox
        self._number = 0  # of the hand-over
        self._first = SpanId(0)  # the span of its first element
        self._is_batch = False  # each of its elements has a span of its own
        self._watched: list[str] | None = None  # files that are followed while it runs; None: it is not watched
        self._threads = [name for name in map(os.fsdecode, THREADS) if os.fsencode(name) not in context.environment]
        self._cores = 0.0
        self._called: tuple[Any, bool, bool] = (None, False, False)  # the user's function, `is_array` and `star`
        self._previous: tuple[SpanId, Any] | None = None  # the loose run that has just succeeded, and its value
        self._made: list[Any] = []  # the value of the element that was run last, if it succeeded
        self.loading = 0  # the element whose arguments are unpickled now
        self._staged: dict[int, Staged] = {}  # what moving big arguments took, by the element that they came with
        self._home = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def run(self, number: int, run: RunSpan, *, watched: list[str] | None = None) -> None:
        """Run all elements of a span and say how they ended."""
        self._number, self._watched = number, watched
        self._first, self._is_batch = run.span, bool(run.batch)
        previous, self._previous, self._made = self._previous, None, []
        if run.after_span and (previous is None or previous[0] != run.after_span):
            self._reports.say(WorkReturned(run.span, run.start, run.stop))
            self._reports.say(WorkerDone(number))
            self._staged.clear()
            return
        self._clear_up(run)
        name = f"{run.record}-{run.attempt}-{run.span}"
        progress = SpanProgress(run.span, run.start, run.stop, name, is_batch=bool(run.batch))
        self._reports.begin(progress)
        self._cells[INDEX] = self.loading = run.start
        try:
            function = self._blobs.function(run.body)
            calls = self._arguments(run, previous and previous[1])
        except BaseException as error:  # noqa: BLE001 -- unpickling runs the user's code
            failure = loading_failure(error, "the function or its arguments")
            for index in range(run.start, run.stop):
                self._reports.fail(index, failure)
        else:
            self._called = (function, run.is_array, run.star)
            if not run.is_array:
                function = _spread(function)
            else:
                if run.star:
                    function = _starred(function)
                if run.table or len(calls) > 1:  # a page is read anew for each span, a table is kept
                    function = with_own_arguments(function, calls, star=run.star)
            self._run_calls(function, calls, progress, run)
            if self._made and (run.chained or not (run.is_array or run.batch)):
                self._previous = (run.last, self._made.pop())
        self._staged.clear()
        self._reports.end(WorkerDone(number))
        self._let_go_of_big()

    def was_staged(self, element: int, staged: Staged) -> None:
        """Big arguments of an element, or of all in its page, were brought."""
        before = self._staged.get(element)
        self._staged[element] = staged if before is None else before + staged

    def _clear_up(self, run: RunSpan) -> None:
        """Leave nothing of what ran before to the next run."""
        current_task.run = run
        if VARIABLE in os.environ:  # of what ran before
            del os.environ[VARIABLE]
        os.fchdir(self._home)
        if run.needs.cores != self._cores:
            self._cores = run.needs.cores
            os.environ.update(dict.fromkeys(self._threads, threads_text(self._cores)))
        self._streams.restore()
        if run.limits.memory:  # what calls before it had mapped would count as its own
            forget_recent()
            kept_maps.forget()

    def _arguments(self, run: RunSpan, previous: Any) -> list[Any]:
        """Those of all elements; what is brought for them is brought for the first element of a page."""
        return self._blobs.items(run, self._begin_page) if run.is_array else arguments(run, previous)

    def _begin_page(self, element: int) -> None:
        self.loading = element

    def _let_go_of_big(self) -> None:
        """The value that the next run may want is read from its file, if it has one: so it is in memory once."""
        if self._previous is not None and not self._is_far and isinstance(file := self._reports.last, ResultFile):
            self._previous = (self._previous[0], Filed(file))

    def _run_calls(self, function: Any, calls: list[Any], progress: SpanProgress, run: RunSpan) -> None:
        if run.chained:
            self._run_chain(function, calls[0], progress, run)
        elif (
            run.limits.timeout
            or run.limits.memory
            or run.attempt > 1
            or self._watched is not None
            or run.checkpoint
            or self._staged
        ):
            self._run_watched(function, calls, progress, run)
        else:
            self._run_all(function, calls, progress, run.start)

    def _run_all(self, function: Any, calls: list[Any], progress: SpanProgress, index: int) -> None:
        """The fast path: nothing per element but the call, the clock and three looks."""
        cells, append, add, clock = self._cells, progress.results.append, self._reports.add, time.perf_counter
        wrote = self._streams.wrote
        last = calls.pop()
        progress.calls = calls
        for item in calls:
            try:
                value = function(item)
            except BaseException as error:  # noqa: BLE001 -- also SystemExit: it ends the element, not the worker
                self._failed(index, error, item)
            else:
                if wrote[0]:
                    self._printed(index, progress)
                if type(value) in SIMPLE:
                    append(value)  # from here on it may be told
                    progress.done_at = clock()
                else:
                    add(progress, value)
            index += 1
            cells[INDEX] = index  # before the next is taken, see `worker_channel`
        if progress.is_cut:
            self._reports.give_back_rest(index)
            return
        self._run_last(function, last, progress, index)

    def _run_last(self, function: Any, item: Any, progress: SpanProgress, index: int) -> None:
        """The last element also owns output that Python did not see: of C code, or of children."""
        self._cells[INDEX] = index
        try:
            value = function(item)
        except BaseException as error:  # noqa: BLE001 -- as above
            verdict = self._hear_verdict(index)
            if verdict is None:
                self._failed(index, error, item, last=True)
                return
            value = None
        else:
            verdict = self._hear_verdict(index)
        done_at = time.perf_counter()
        if isinstance(verdict, Failure):
            out, err = self._take(index)
            staged = self._staged.pop(index, None)
            self._reports.fail(index, verdict, Detail(index, stdout=out, stderr=err, staged=staged))
            return
        if verdict is not None:
            out, err = self._take(index)
            staged = self._staged.pop(index, None)
            progress.details.append(Detail(index, stdout=out, stderr=err, ended_by=verdict.ended_by, staged=staged))
            value = verdict
        elif self._streams.grown() or index in self._staged:
            self._printed(index, progress)
        self._made = [value]
        progress.results.append(value)
        progress.done_at = done_at

    def _hear_verdict(self, index: int) -> Verdict:
        """Have all judged that a watched call wrote, before it is said how it ended; None: as it did."""
        if self._watched is None and self._cells[LATE] != self._number:
            return None
        self._cells[SINCE] = 0  # its time is not counted any more
        self._reports.say(ElementEnded(self._number, index, *self._streams.ends()))
        self._reports.flush()
        answer = self._inbox.answer(self._number, index)
        return answer.verdict if isinstance(answer, ElementJudged) else None

    def _say_began(self, run: RunSpan, index: int) -> None:
        """Tell the executor where a call that is watched runs."""
        stdout, stderr = self._streams.begins()
        sizes = sizes_of(self._watched or [])
        place = TaskPlace(run.record, index, run.attempt, os.getpid(), os.getcwd(), stdout, stderr, [], sizes)
        self._reports.say(ElementBegan(self._number, place))
        self._reports.flush()

    def _run_chain(self, function: Any, item: Any, progress: SpanProgress, run: RunSpan) -> None:
        """Tasks each of which takes the value of the one before; behind one that fails all are given back."""
        cells, append, add, clock = self._cells, progress.results.append, self._reports.add, time.perf_counter
        wrote = self._streams.wrote
        for index in range(run.start, run.stop - 1):
            cells[INDEX] = index
            try:
                value = function(item)
            except BaseException as error:  # noqa: BLE001 -- as above
                self._failed(index, error, item)
                break
            if wrote[0] or index in self._staged:
                self._printed(index, progress)
            if type(value) in SIMPLE:
                append(value)
                progress.done_at = clock()
            else:
                add(progress, value)
            try:
                item = link(run.batch[index][1], value)
            except BaseException as error:  # noqa: BLE001 -- unpickling runs the user's code
                index += 1  # noqa: PLW2901 -- it is this one that cannot be run
                self._reports.fail(index, loading_failure(error, "its arguments"))
                break
        else:
            self._run_last(function, item, progress, run.stop - 1)
            return
        if index + 1 < run.stop:
            self._reports.say(WorkReturned(run.span, index + 1, run.stop))

    def _run_watched(self, function: Any, calls: list[Any], progress: SpanProgress, run: RunSpan) -> None:
        """Elements with limits, or tried before: each is told at once, so that it dies alone if it kills its worker."""
        progress.calls, index = calls, run.start
        for item in calls:
            if run.checkpoint is not None and not self._is_far:
                _show_checkpoint(run.checkpoint.path(run.record, index))
            if self._watched is not None:
                self._say_began(run, index)
            self._cells[SINCE] = time.monotonic_ns()
            self._run_last(function, item, progress, index)
            self._cells[SINCE] = 0
            index += 1
            self._cells[INDEX] = index  # before the next is taken, see `worker_channel`
            if index < run.stop:
                self._reports.flush()
        if progress.is_cut:
            self._reports.give_back_rest(index)

    def _failed(self, index: int, error: BaseException, item: Any, *, last: bool = False) -> None:
        failure = exception_failure(error, self._parameters(item))  # runs code of the user's, which may print
        printed = self._streams.grown() if last else self._streams.wrote[0]
        out, err = self._take(index) if printed else (None, None)
        if err:
            failure = replace(failure, stderr=self._streams.error_tail(err))
        staged = self._staged.pop(index, None)
        detail = Detail(index, stdout=out, stderr=err, staged=staged) if out or err or staged else None
        self._reports.fail(index, failure, detail)

    def _take(self, index: int) -> tuple[Stream | None, Stream | None]:
        """What an element wrote; to a server that cannot read it here it is given, if it is long."""
        out, err = self._streams.take()
        if not self._is_far or not are_long(out, err):
            return out, err
        from bough.executor.worker.long_streams import hand_over  # few functions write so much

        self._cells[SINCE] = 0  # its time is not counted any more
        span, at = (SpanId(self._first + index), 0) if self._is_batch else (self._first, index)
        return hand_over(self._context, self._number, span, at, (out, err)) or (out, err)

    def _parameters(self, item: Any) -> str:
        """What the user's function was called with."""
        function, is_array, star = self._called
        if not is_array:
            return show_call(function, *item)
        return show_call(function, item if star else (item,), {})

    def _printed(self, index: int, progress: SpanProgress) -> None:
        out, err = self._take(index)
        staged = self._staged.pop(index, None)
        if out or err or staged:
            progress.details.append(Detail(index, stdout=out, stderr=err, staged=staged))


def _show_checkpoint(path: str) -> None:
    """Tell a function where its checkpoint is, or is to be."""
    os.environ[VARIABLE] = path
    with contextlib.suppress(OSError):  # the function says so when it writes there
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)


def _spread(function: Any) -> Any:
    """A function of (args, kwargs)."""

    def call(item: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        return function(*item[0], **item[1])

    return call


def _starred(function: Any) -> Any:
    """A function of one tuple of arguments."""

    def call(item: tuple[Any, ...]) -> Any:
        return function(*item)

    return call
