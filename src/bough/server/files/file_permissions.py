"""Which files a task may have and leave; whether a directory is seen here.

Which files a task may have brought and may leave, and where their content is: what a client declared counts.

Rule: an executor gets no file, and writes none, that the task it runs did not declare.

Whether this machine sees a submitter's directory.

Rule: it does if the token file that the client wrote is there with its content; that a path of that name exists
proves nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from bough.errors import StoreFailed, UserError
from bough.model.commands.command import decode_call
from bough.model.files import Manifest, is_tidy, unpack_manifest
from bough.model.ids import ExecutorId, RecordId, SpanId
from bough.model.outcomes import Output, ResultFile
from bough.model.tasks import ArraySpec, Dep, Kind, On, TaskSpec
from bough.server.turns.shell import Shell

_CALLS, _MANIFESTS, _ARRAYS = 256, 4, 8  # how many of each are kept ready
T = TypeVar("T")


class TaskOnExecutor(msgspec.Struct, frozen=True):
    """A task that an executor runs."""

    record: RecordId
    spec: TaskSpec | ArraySpec
    run: int
    index: int
    attempt: int
    declared: Manifest


class FilePermissions:
    """See the module."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._calls: OrderedDict[int, Manifest] = OrderedDict()
        self._manifests: OrderedDict[int, Manifest] = OrderedDict()
        self._made: OrderedDict[tuple[int, int, int], dict[str, Output]] = OrderedDict()

    def aim(self, executor: ExecutorId, span: SpanId, index: int) -> TaskOnExecutor:
        """The task that an executor speaks of; UserError when it has no business with it."""
        queries = self._shell.queries
        found = queries.attempt_of(executor, span, index)
        if found is None:
            raise UserError("the task is not wanted from this executor any more")
        spec, run = queries.spec_of(found.record), queries.run_of(found.record)
        return TaskOnExecutor(found.record, spec, run, index, found.attempt, self._declared(spec))

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
                    found = Manifest(call.reads, set(call.writes.values()))
            except (ValueError, msgspec.MsgspecError) as error:
                raise StoreFailed(f"the files of task {spec.id} are not known: {error}") from error
            _keep(kept, spec.id, found, most)
        return found

    def digest_of(self, aim: TaskOnExecutor, path: str) -> tuple[bytes, int] | None:
        """The content of a command's input, if it was sent to the server: its digest and size (-1: not known).

        None: it lies in its place. UserError when the task has not declared it.
        """
        digest = aim.declared.reads.get(path)
        if digest is None or not is_tidy(path):
            raise _undeclared(aim, path, "input")
        if digest:
            return digest, -1
        for dep in self._dependencies(aim):
            made = self._outputs_of(dep).get(path)
            if made is not None:
                return (made.digest, made.size) if made.digest else None
        return None

    def is_value(self, aim: TaskOnExecutor, path: str) -> bool:
        """Whether a path is that of big arguments of a function, or of a big result that it gets."""
        spec = aim.spec
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

    def check_outputs(self, aim: TaskOnExecutor, paths: list[str]) -> None:
        """UserError when a task may not write one of these."""
        for path in paths:
            if path not in aim.declared.writes or not is_tidy(path):
                raise _undeclared(aim, path, "output")

    def _dependencies(self, aim: TaskOnExecutor) -> list[Dep]:
        spec = aim.spec
        deps = list(spec.after)
        if not isinstance(spec, TaskSpec):
            deps += [dep for index, own in spec.element_after if index == aim.index for dep in own]
        return [dep for dep in deps if not dep.is_group]

    def _outputs_of(self, dep: Dep) -> dict[str, Output]:
        """What a task, or all tasks of an array, made, by path."""
        if dep.on is On.TASK:
            return {made.path: made for made in self.outputs(dep)}
        successes = self._shell.queries.results_of(dep)
        key = (dep.id, len(successes), max((success.turn for success in successes), default=0))
        found = self._made.get(key)
        if found is None:
            found = {made.path: made for made in self.outputs(dep)}
            _keep(self._made, key, found, _ARRAYS)
        return found

    def outputs(self, dep: Dep, start: int = 0, stop: int = 1 << 62) -> list[Output]:
        """The outputs that successes made, of elements from `start` to `stop`."""
        found: list[Output] = []
        for success in self._shell.queries.results_of(dep):
            shift = success.start - success.source_start
            low, high = max(success.start, start), min(success.stop, stop)
            if dep.on is On.TASK:
                low, high = max(low, dep.index), min(high, dep.index + 1)
            if low >= high:
                continue
            source = RecordId(success.source)
            for first, last, span in self._shell.results.successes(success.turn, source, low - shift, high - shift):
                for detail in span.details:
                    if first <= detail.index < last:
                        found += detail.outputs
        return found


def _undeclared(aim: TaskOnExecutor, path: str, what: str) -> UserError:
    spec = aim.spec
    if not isinstance(spec, TaskSpec) and not spec.files:
        return UserError("files of a feed cannot travel: its commands must see the submitter's directory; use sweep")
    return UserError(f"{path} is not a declared {what} of task {aim.record}.{aim.index}")


K = TypeVar("K")


def _keep(kept: OrderedDict[K, T], key: K, value: T, most: int) -> None:
    kept[key] = value
    while len(kept) > most:
        kept.popitem(last=False)


def sees_directory(directory: str, token: str) -> bool:
    """Whether `.bough/token` in a directory holds a token."""
    if not directory or not token:
        return False
    try:
        with open(f"{directory}/.bough/token", encoding="utf-8") as file:
            return file.read(200).strip() == token
    except (OSError, UnicodeDecodeError):
        return False
