"""Which files a task may have and leave, and whether this machine sees a submitter's directory.

The client declares the files of a task with its submission. Rule: an executor gets no file, and leaves none, that the
task it runs did not declare; this machine sees a directory if the token file that the client wrote is there with its
content, since a path of the same name proves nothing.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from bough.errors import StoreFailed, UserError
from bough.model.commands.command import decode_call
from bough.model.commands.playpens import put_files
from bough.model.files import Manifest, is_tidy, unpack_manifest, value_digest
from bough.model.ids import ExecutorId, RecordId, SpanId, number_of
from bough.model.outcomes import Output, ResultFile
from bough.model.tasks import ArraySpec, Dep, Item, Kind, TaskSpec
from bough.server.made_inputs import MadeInput, MadeInputs
from bough.server.turns.shell import Shell
from bough.wire.file_messages import DIGEST

_SEEN = 1.0  # seconds that a directory which was seen is believed to be there
_CALLS, _MANIFESTS = 256, 4  # how many of each are kept ready
K = TypeVar("K")
T = TypeVar("T")


class TaskOnExecutor(msgspec.Struct, frozen=True):
    """A task that an executor runs."""

    record: RecordId
    spec: TaskSpec | ArraySpec
    run: int
    index: int
    attempt: int
    declared: Manifest

    @property
    def checkpoint(self) -> str:
        """The path of its checkpoint; empty: it has none."""
        plan = self.spec.extras.checkpoint
        return plan.path(self.record, self.index) if plan is not None else ""


class FilePermissions:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._calls: OrderedDict[int, Manifest] = OrderedDict()
        self._manifests: OrderedDict[int, Manifest] = OrderedDict()
        self._pages: OrderedDict[tuple[int, int], Manifest] = OrderedDict()  # by record and first element
        self._sees = (-1, 0.0)  # the workflow whose directory was seen last, and until when that is believed
        self.made = MadeInputs(shell)

    def task_of(self, executor: ExecutorId, span: SpanId, index: int) -> TaskOnExecutor:
        """The task that an executor speaks of; UserError when the task is not with it."""
        queries = self._shell.queries
        found = queries.attempt_of(executor, span, index)
        if found is None:
            raise UserError("the task is not wanted from this executor any more")
        return self.task(found.record, index, found.attempt)

    def task(self, record: RecordId, index: int, attempt: int = 0) -> TaskOnExecutor:
        """A task that is in the core, and what it declares."""
        spec, run = self._shell.queries.spec_of(record), self._shell.queries.run_of(record)
        fed = self._fed(record, spec, index)
        return TaskOnExecutor(record, spec, run, index, attempt, fed or self._declared(spec))

    def _fed(self, record: RecordId, spec: TaskSpec | ArraySpec, index: int) -> Manifest | None:
        """The files of an element that was fed, which came with its page; None: it was not, or has none."""
        if isinstance(spec, TaskSpec) or spec.files:
            return None
        for page in self._shell.queries.pages_of(record, index):
            if page.files:
                key = (record, page.start)
                found = self._pages.get(key)
                if found is None:
                    try:
                        found = unpack_manifest(page.files)
                    except ValueError as error:
                        raise StoreFailed(f"the files of task {number_of(spec.id)} are not known: {error}") from error
                    _keep(self._pages, key, found, _MANIFESTS)
                return found
        return None

    def _declared(self, spec: TaskSpec | ArraySpec) -> Manifest:
        kept, most = (self._calls, _CALLS) if isinstance(spec, TaskSpec) else (self._manifests, _MANIFESTS)
        found = kept.get(spec.id)
        if found is None:
            found = Manifest({}, set())
            try:
                if not isinstance(spec, TaskSpec):
                    found = unpack_manifest(spec.files)
                elif spec.kind is Kind.COMMAND:
                    call = decode_call(spec.payload)
                    writes, folders, patterns = set(call.writes.values()), set(call.folders), set(call.patterns)
                    found = Manifest(call.reads, writes, folders, patterns)
            except (ValueError, msgspec.MsgspecError) as error:
                raise StoreFailed(f"the files of task {number_of(spec.id)} are not known: {error}") from error
            _keep(kept, spec.id, found, most)
        return found

    def always_sent(self, task: TaskOnExecutor) -> set[str]:
        """The inputs of a task that are sent anew whoever has them (`put`)."""
        spec = task.spec
        if not isinstance(spec, TaskSpec) or spec.kind is not Kind.COMMAND:
            return set()
        try:
            return set(put_files(decode_call(spec.payload).transfers))
        except (ValueError, msgspec.MsgspecError):
            return set()

    def digest_of(self, task: TaskOnExecutor, path: str) -> bytes | None:
        """The digest of a command's input, if it was sent to the server; None: it lies in its place.

        UserError when the task has not declared it.
        """
        if path and path == task.checkpoint and is_tidy(path):
            return self._shell.queries.checkpoint(task.record, task.index)
        value = value_digest(path)
        if value and task.spec.kind is Kind.FUNCTION:
            if not self._shell.queries.reads_path(task.record, task.index, path):
                raise _undeclared(task, path, "argument")
            return value
        digest = task.declared.reads.get(path)
        if digest is None or not is_tidy(path):
            raise _undeclared(task, path, "input")
        if digest:
            return digest
        made = self.made_for(task.record, task.index, path)
        return made.output.digest or None if made is not None else None

    def made_for(self, reader: RecordId, index: int, path: str) -> MadeInput | None:
        """The input of a task that one of those before it made; None: none of them has, as things stand."""
        return self.made.made_for(reader, index, path)

    def check_url(self, task: TaskOnExecutor, url: str) -> None:
        """UserError when a task has not declared a URL as an input."""
        if url not in task.declared.reads:
            raise _undeclared(task, url, "input")

    def is_folder(self, task: TaskOnExecutor, path: str) -> bool:
        """Whether the content of a command's input is the archive of a folder."""
        if task.declared.reads.get(path):
            return path in task.declared.folders
        made = self.made_for(task.record, task.index, path)
        if made is not None:
            return made.output.folder
        return os.path.isdir(path) and self.sees_directory_of(task.run)

    def is_value(self, task: TaskOnExecutor, path: str) -> bool:
        """Whether a path is that of big arguments of a function, or of a big result that it gets."""
        spec = task.spec
        if not isinstance(spec, TaskSpec) or spec.kind is not Kind.FUNCTION or not is_tidy(path):
            return False
        return path == spec.payload_path or any(
            path == result or path.startswith(f"{result}.") for dep in spec.inputs for result in self._results_of(dep)
        )

    def _results_of(self, dep: Dep) -> Iterator[str]:
        for success in self._shell.queries.results_of(dep):
            source, begin = RecordId(success.source), success.source_start
            end = begin + success.stop - success.start
            for _, _, span in self._shell.results.successes(success.turn, source, begin, end):
                if isinstance(span.results, ResultFile):
                    yield span.results.path

    def check_outputs(self, task: TaskOnExecutor, paths: list[str]) -> None:
        """UserError when a task may not write one of these."""
        if paths == [task.checkpoint] and is_tidy(task.checkpoint):
            return
        for path in paths:
            if not is_tidy(path) or not task.declared.may_write(path):
                raise _undeclared(task, path, "output")

    def sees_directory_of(self, run: int) -> bool:
        """Whether this machine sees the directory of a workflow."""
        now = self._shell.loop.time()
        if self._sees[0] == run and now < self._sees[1]:
            return True
        workflow = self._shell.queries.workflow(run)
        if workflow is None or not sees_directory(workflow.directory, workflow.token):
            return False
        self._sees = (run, now + _SEEN)
        return True

    def result_path(self, path: str) -> str:
        """The path of a big result, without links; UserError when it is none."""
        real = os.path.realpath(path)
        if not real.startswith(os.path.realpath(self._shell.info.folder("results")) + os.sep):
            raise UserError(f"{path} is not the result of a task")
        return real

    def outputs(self, dep: Dep, start: int = 0, stop: int = 1 << 62) -> list[Output]:
        """The outputs that successes made, of elements from `start` to `stop`."""
        return [made.output for made in self.made.made_by(dep, start, stop)]


def _undeclared(task: TaskOnExecutor, path: str, what: str) -> UserError:
    return UserError(f"{path} is not a declared {what} of task {number_of(task.record)}.{task.index}")


def _keep(kept: OrderedDict[K, T], key: K, value: T, most: int) -> None:
    kept[key] = value
    while len(kept) > most:
        kept.popitem(last=False)


def declared_inputs(item: Item) -> dict[str, bytes]:
    """The inputs of a task that the core has not numbered yet, or of all elements of an array, by path.

    Those that the client has sent have a digest, and others nothing.
    """
    try:
        if isinstance(item, ArraySpec) and item.kind is Kind.FUNCTION:
            files = item.reads.files if item.reads is not None else ()
            reads = {path: value_digest(path) for path in files if isinstance(path, str)}
        elif isinstance(item, ArraySpec):
            reads = unpack_manifest(item.files).reads
        elif isinstance(item, TaskSpec) and item.kind is Kind.FUNCTION:
            reads = {path: value_digest(path) for path in item.reads if isinstance(path, str)}
        elif isinstance(item, TaskSpec) and item.reads:
            reads = {path: b"" for path in item.reads if isinstance(path, str)}
            if item.kind is Kind.COMMAND and not item.payload_path:
                reads.update(decode_call(item.payload).reads)
        else:
            return {}
    except (ValueError, msgspec.MsgspecError):
        return {}  # it is said when the task wants them
    return {path: digest if len(digest) == DIGEST else b"" for path, digest in reads.items()}


def sees_directory(directory: str, token: str) -> bool:
    """Whether `.bough/token` in a directory holds a token."""
    if not directory or not token:
        return False
    try:
        with open(f"{directory}/.bough/token", encoding="utf-8") as file:
            return file.read(200).strip() == token
    except (OSError, UnicodeDecodeError):
        return False
