"""What goes to an executor with a span: blobs it has not seen, and the values of its inputs.

Rule: a blob goes to an executor once; values are sent as the bytes they were reported as.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec.structs import replace

from bough.core.queries.facade import Queries
from bough.errors import StoreFailed
from bough.model.blobs import is_blob
from bough.model.events.facts import SpanEnded
from bough.model.events.orders import SendSpan
from bough.model.ids import BlobId, RecordId
from bough.model.outcomes import Detail, ResultFile, Results, Success
from bough.model.tasks import LATER, Dep, Kind, On, TaskSpec
from bough.server.peers import ExecutorPeer
from bough.server.turns.result_parts import Pages, ResultCache, part
from bough.wire.client_messages import Blob
from bough.wire.executor_messages import MOST_LOOKS, RunSpan, Value, spread
from bough.wire.file_messages import WorkDirectory

# bytes of a value that goes with a span to an executor that cannot read our files; bigger ones are brought as contents
MOST_CARRIED = 1 << 20


class SpanSender:
    """Makes messages of `SendSpan` orders."""

    def __init__(
        self,
        results: ResultCache,
        read_blob: Callable[[BlobId], bytes],
        queries: Queries,
        *,
        names_directories: bool,
    ) -> None:
        self._results = results
        self._read_blob = read_blob
        self._queries = queries
        self._names_directories = names_directories  # executors of a service are told where commands run

    def send(self, order: SendSpan, executor: ExecutorPeer) -> None:
        """Say it to the executor; StoreFailed when something it needs is not in the store."""
        spec = order.spec
        limits = spec.limits
        if limits.keep == LATER and (
            executor.is_relay  # it does not pass on what its executors write back
            or not self._queries.may_write_later(spec.id, order.start, order.stop)
        ):
            limits = replace(limits, keep=True)
        run = self._queries.run_of(spec.id) if self._names_directories and spec.kind is Kind.COMMAND else 0
        looks = self._queries.inputs_that_may_go(spec.id, order.start, order.stop)[:MOST_LOOKS]
        blobs = [self._blob(blob) for blob in (spec.body, *order.watch) if blob and blob not in executor.blobs]
        if isinstance(spec, TaskSpec):
            inputs = [self._value(dep) for dep in spec.inputs] if spec.inputs else []
            payload, path = spec.payload, spec.payload_path
            if not executor.shared:
                inputs = [_carried(value) for value in inputs]
                if path and os.path.getsize(path) <= MOST_CARRIED:  # what is bigger is asked for as a file
                    payload, path = _content(path), ""
            message = RunSpan(
                order.span,
                spec.id,
                order.start,
                order.stop,
                order.attempt,
                spec.kind,
                spec.body,
                payload=payload,
                payload_path=path,
                needs=spec.needs,
                limits=limits,
                inputs=inputs,
                expected=order.expected,
                name=spec.name,
                after_span=order.behind,
                run=run,
                batch=list(order.along),
                chained=order.chained,
                watch=order.watch,
                checkpoint=spec.extras.checkpoint,
                saved=self._saved(order, executor),
                replica=order.replica,
                looks=looks,
            )
        else:
            if spec.table and spec.table not in executor.blobs:
                blobs.append(self._blob(spec.table))
            message = RunSpan(
                order.span,
                spec.id,
                order.start,
                order.stop,
                order.attempt,
                spec.kind,
                spec.body,
                is_array=True,
                table=spec.table,
                pages=order.pages,
                star=spec.star,
                needs=spec.needs,
                limits=limits,
                expected=order.expected,
                name=spec.name,
                after_span=order.behind,
                run=run,
                watch=order.watch,
                checkpoint=spec.extras.checkpoint,
                saved=self._saved(order, executor),
                replica=order.replica,
                looks=looks,
            )
        say = executor.connection.say
        if run and run not in executor.directories_sent:
            executor.directories_sent.add(run)
            say(self._directory_of(run))
        for blob in blobs:
            executor.has(blob.id)
            say(blob)
        if message.batch and not executor.hello.together:
            for one in spread(message):
                say(one)
        else:
            say(message)

    def send_blob(self, blob: BlobId, executor: ExecutorPeer) -> None:
        """Say a blob to an executor, if it has not seen it; StoreFailed when it is not in the store."""
        if blob not in executor.blobs:
            found = self._blob(blob)
            executor.has(blob)
            executor.connection.say(found)

    def _saved(self, order: SendSpan, executor: ExecutorPeer) -> tuple[int, ...]:
        """The elements that an executor with sandboxes can begin from a checkpoint: the server has it, or sees it."""
        plan = order.spec.extras.checkpoint
        if plan is None or executor.shared or order.attempt == 1:
            return ()
        kept = set(self._queries.checkpoints(order.spec.id, order.start, order.stop))
        indices = range(order.start, order.stop)
        return tuple(at for at in indices if at in kept or os.path.isfile(plan.path(order.spec.id, at)))

    def _directory_of(self, run: int) -> WorkDirectory:
        """Where the commands of a workflow run."""
        workflow = self._queries.workflow(run)
        assert workflow is not None
        return WorkDirectory(run, workflow.directory, workflow.token)

    def _blob(self, blob: BlobId) -> Blob:
        try:
            data = self._read_blob(blob)
        except KeyError:
            raise StoreFailed(f"its function, table or plan {blob.hex()} was never sent to the server") from None
        if not is_blob(blob, data):
            raise StoreFailed(
                f"its function, table or plan {blob.hex()} was damaged in the store: see bough store check"
            )
        return Blob(blob, data)

    def _value(self, dep: Dep) -> Value:
        successes = self._queries.results_of(dep)
        if not successes and dep.on is On.TASK:
            return Value(dep.index, dep.index + 1, [])  # it is made just before, by the one this one is behind
        if dep.on is On.TASK:
            return self._one(dep.index, successes[0])
        pages: Pages = []
        for success in successes:
            shift = success.start - success.source_start
            end = success.source_start + success.stop - success.start
            source = RecordId(success.source)
            for low, high, span in self._results.successes(success.turn, source, success.source_start, end):
                pages.append((low + shift, high + shift, _page(span, part(span, low, high), low, high)))
        return Value(pages[0][0] if pages else 0, pages[-1][1] if pages else 0, pages, single=False)

    def _one(self, index: int, success: Success) -> Value:
        """One element: the worker takes it from the whole page, which need not be cut for it."""
        shift = success.start - success.source_start
        span = self._results.find(success.turn, RecordId(success.source), index - shift)
        page = _page(span, span.results, span.start, span.stop)
        return Value(index, index + 1, [(span.start + shift, span.stop + shift, page)])


def _carried(value: Value) -> Value:
    """The same for an executor that cannot read our files."""
    pages: Pages = [
        (start, stop, _content(page.path) if isinstance(page, ResultFile) and page.size <= MOST_CARRIED else page)
        for start, stop, page in value.pages
    ]
    return Value(value.start, value.stop, pages, value.single)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _page(span: SpanEnded, results: Results, start: int, stop: int) -> bytes | ResultFile:
    """The values of some elements: results of functions, or what is known of commands."""
    if results is not None:
        return results
    import pickle

    details = {detail.index: detail for detail in span.details}
    return pickle.dumps([details.get(index) or Detail(index) for index in range(start, stop)])
