"""Functions, arguments, results and errors as bytes and back; and whether the task or the site failed.

Small results go together, big ones into files of their own, from which readers map what arrays hold (`value_files`). An
exception travels with its traceback, see `exception_packing`. Arguments too big to travel with their call are files of
the server that are brought like others.

Rules: plain pickle first, cloudpickle where that fails or would point into `__main__`, which is another module at the
other end. One result that cannot travel fails alone, and whatever a function raises, bytes come out that load in the
client. A file that cannot be written leaves nothing. A failure is the site's only if it clearly says so: nothing was
started at all, or the system said that a disk is full, a file handle stale, a device broken; the core finds out
whether the task works elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from bough.executor.host.disk_space_wait import SpaceWait, patiently
from bough.executor.worker.exception_packing import RemoteTraceback, pack_exception, traceback_text
from bough.model.commands.command import CommandTemplate, decode_template
from bough.model.ids import BlobId
from bough.model.outcomes import Cause, Failure, ResultFile, Results
from bough.model.packed_values import Apart, dumps_times, holds_times, pieces
from bough.model.refs import SIMPLE, Call, load_pickle, unpack_call
from bough.movers.result_memory import put_in_memory
from bough.movers.value_files import names_files, pickle_in, read_value, write_file
from bough.wire.executor_messages import RunSpan, Value

SMALL = 256_000  # bytes that are sent; more is written to a file
_KEPT = 256  # things made from blobs that are kept; sessions rarely have more functions
_LINE = 500  # characters of a message
_ERRORS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ESTALE,
        errno.EIO,
        errno.EROFS,
        errno.ENFILE,
        errno.EMFILE,
        errno.ENODEV,
        errno.EHOSTDOWN,
    }
)
_NOT_FOUND = 127
_HERE = os.path.dirname(__file__)
_OURS = frozenset(  # files whose frames stand around a call
    (
        __file__,
        os.path.join(_HERE, "call_isolation.py"),
        os.path.join(_HERE, "function_runner.py"),
        os.path.join(_HERE, "prepared_function.py"),
        os.path.join(os.path.dirname(os.path.dirname(_HERE)), "model", "spaces.py"),
    )
)
_WORDS = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EIO, errno.EROFS))


class Blobs:
    """Blobs, and what was made of them."""

    def __init__(self, blobs: dict[BlobId, bytes]) -> None:
        self.data = blobs
        self._made: dict[BlobId, Any] = {}

    def _make(self, blob: BlobId, make: Callable[[bytes], Any]) -> Any:
        made = self._made.get(blob)
        if made is None:
            made = make(self.data[blob])
            if len(self._made) >= _KEPT:
                del self._made[next(iter(self._made))]
            self._made[blob] = made
        return made

    def function(self, blob: BlobId) -> Callable[..., Any]:
        """The function of a body."""
        found: Callable[..., Any] = self._make(blob, load_pickle)
        return found

    def template(self, blob: BlobId) -> CommandTemplate:
        """The command template of a body."""
        found: CommandTemplate = self._make(blob, decode_template)
        return found

    def _table(self, blob: BlobId) -> Sequence[Any]:
        """A table of arguments; one that names files of big values is made anew, so that those are let go of."""
        is_new = blob not in self._made
        data = self.data[blob]
        table: Sequence[Any] = load_pickle(data) if is_new and names_files(data) else self._make(blob, load_pickle)
        return table

    def items(self, run: RunSpan, on_page: Callable[[int], None] | None = None) -> list[Any]:
        """The arguments of an array's span, one per element; `on_page` is told the first element of each page."""
        if run.table:
            table: Sequence[Any] = self._table(run.table)
            return list(table[run.start : run.stop])
        found: list[Any] = []
        for page in run.pages:
            first, last = max(run.start, page.start), min(run.stop, page.stop)
            if first < last:
                if on_page is not None:
                    on_page(first)
                found += load_pickle(page.data)[first - page.start : last - page.start]
        if len(found) != run.stop - run.start:
            raise ValueError(f"pages hold {len(found)} of {run.stop - run.start} arguments")
        return found


def arguments(run: RunSpan, previous: Any = None) -> list[Call]:
    """Positional and keyword arguments of loose functions, with the values of their inputs put in.

    `previous` is the value of the run before, for an input that was made just here.
    """
    packed = run.payload
    if run.payload_path:
        with pickle_in(run.payload_path) as data:  # it is of one task, so that there is no batch
            return [unpack_call(data, _values(run, previous) if run.inputs else ())]
    packs = [packed, *(payload for _, payload in run.batch)][run.start : run.stop] if run.batch else [packed]
    if run.chained:
        del packs[1:]  # the others take what those before them make
    if not run.inputs:
        return [unpack_call(one, ()) for one in packs]
    values = _values(run, previous)
    calls = [unpack_call(packs.pop(0), values)]
    shared = SIMPLE.issuperset(map(type, values))  # otherwise each gets its own: what one does the next must not see
    return calls + [unpack_call(one, values if shared else _values(run, previous)) for one in packs]


def link(packed: bytes, previous: Any) -> Call:
    """The arguments of a task whose only input is the value of the one before."""
    return unpack_call(packed, [_copied(previous)])


def _values(run: RunSpan, previous: Any) -> list[Any]:
    return [input_value(value) if value.pages or not run.after_span else _copied(previous) for value in run.inputs]


class Filed:
    """Stands for the value of the run before, where that was written to a file."""

    __slots__ = ("file",)

    def __init__(self, file: ResultFile) -> None:
        self.file = file


def _copied(value: Any) -> Any:
    """A value as another process would get it: what is done to it stays without effect on the original."""
    if type(value) in SIMPLE:
        return value
    if type(value) is Filed:
        return _unpack(value.file)[0]
    packed = pack_parts(value)
    return load_pickle(packed.head, [bytes(buffer) for buffer in packed.buffers])


def input_value(value: Value) -> Any:
    """The value of one input."""
    found: list[Any] = []
    for start, stop, packed in value.pages:
        first, last = max(start, value.start), min(stop, value.stop)
        if first < last:
            found += _unpack(packed)[first - start : last - start]
    return found[0] if value.single else found


def _unpack(packed: bytes | ResultFile) -> list[Any]:
    loaded: list[Any] = read_value(packed.path) if isinstance(packed, ResultFile) else load_pickle(packed)
    return loaded


def is_site_failure(error: BaseException) -> bool:
    """Whether an exception says that the site failed where it was raised."""
    return isinstance(error, OSError) and error.errno in _ERRORS


def speaks_of_site(stderr: str, exit_code: int | None = None) -> bool:
    """Whether what a command wrote last says so; a shell says by its exit code that it found no program."""
    if exit_code == _NOT_FOUND and "not found" in stderr:
        return True
    return any(word in stderr for word in _WORDS)


def rebuild_error(error: BaseException, text: str) -> BaseException:
    """The exception with the remote traceback as its cause: what stores of earlier versions hold."""
    error.__cause__ = RemoteTraceback(text)
    return error


def one_line(error: BaseException) -> str:
    """Say an exception as in "ValueError: no such colour"."""
    name = type(error).__qualname__
    try:
        text = " ".join(str(error).split())
    except BaseException:  # noqa: BLE001 -- __str__ is the user's
        text = ""
    line = (f"{name}: {text}" if text else name)[:_LINE]
    return line if line.isascii() else line.encode(errors="backslashreplace").decode()  # it must be fit to be sent


def _raised(cause: Cause, message: str, error: BaseException, *, site: bool = False, parameters: str = "") -> Failure:
    """A failure with the exception that says it, and its traceback."""
    packed, trace = pack_exception(error, pack), traceback_text(error, _OURS)
    return Failure(cause, message, error=packed, site=site, traceback=trace, parameters=parameters)


def exception_failure(error: BaseException, parameters: str = "") -> Failure:
    """A function raised; `parameters` say what it was called with."""
    return _raised(Cause.EXCEPTION, one_line(error), error, site=is_site_failure(error), parameters=parameters)


def loading_failure(error: BaseException, what: str) -> Failure:
    """A function or its arguments could not be made here; `what` says which of them."""
    if isinstance(error, ImportError):
        module = error.name or "a module"
        message = f"{what} needs the module {module!r}, which cannot be imported here: {one_line(error)}"
        return _raised(Cause.NOT_STARTED, message, error, site=True)
    if is_site_failure(error):
        return _raised(Cause.NOT_STARTED, f"{what} cannot be read here: {one_line(error)}", error, site=True)
    return _raised(Cause.UNSENDABLE, f"{what} cannot be unpickled: {one_line(error)}", error)


def unsendable_failure(value: object, error: BaseException) -> Failure:
    """A result cannot be pickled; a full disk, which a class' own `__reduce__` may meet, is the site's failure."""
    if is_site_failure(error):
        return _raised(Cause.EXCEPTION, f"the result cannot be packed: {one_line(error)}", error, site=True)
    kind = type(value)
    message = (
        f"the result, a {kind.__module__}.{kind.__qualname__}, cannot be pickled ({one_line(error)}); "
        "return plain data or write a file"
    )
    return Failure(Cause.UNSENDABLE, message=message[: 2 * _LINE])


class Packed(NamedTuple):
    """A pickled value: the pickle, and the big buffers that lie apart from it."""

    head: bytes
    buffers: list[memoryview]

    @property
    def size(self) -> int:
        """Bytes of all."""
        return len(self.head) + sum([buffer.nbytes for buffer in self.buffers])


def pack(value: object) -> bytes:
    """Pickle a value, in one piece, so that it loads in the client."""
    return _packed(value, None)


def pack_parts(value: object) -> Packed:
    """Pickle a value so that it loads in the client; what big arrays hold is not copied."""
    apart = Apart()
    head = _packed(value, apart)
    return Packed(head, apart.buffers)


def _packed(value: object, apart: Apart | None) -> bytes:
    take = None if apart is None else apart.take
    try:
        data = pickle.dumps(value, 5, buffer_callback=take)
    except BaseException:  # noqa: BLE001 -- reasons are many; cloudpickle's own error is the one that counts
        data = b""
    if data and b"__main__" not in data:
        if apart is None or not holds_times(data):
            return data
        apart.buffers.clear()
        return dumps_times(value, apart.take)
    import cloudpickle

    if apart is not None:
        apart.buffers.clear()
    packed: bytes = cloudpickle.dumps(value, 5, buffer_callback=take)
    return packed


def pack_results(
    start: int,
    values: list[object],
    directory: str,
    prefix: str,
    *,
    packed: Packed | None = None,
    pause: SpaceWait | None = None,
) -> Iterator[tuple[int, int, Results | Failure]]:
    """Cut values of the elements from `start` into (start, stop, bytes, file or failure), in order.

    `packed` are all of them, if that was done already; `pause` as in `write_result`.
    """
    try:
        data = packed or pack_parts(values)
    except BaseException as error:  # noqa: BLE001 -- __reduce__ is the user's, and may raise SystemExit
        if len(values) == 1:
            yield start, start + 1, unsendable_failure(values[0], error)
            return
    else:
        if not data.buffers and len(data.head) <= SMALL:
            yield start, start + len(values), data.head
            return
        if len(values) == 1:
            yield start, start + 1, write_result(data, directory, f"{prefix}-{start}", pause)
            return
    middle = len(values) // 2
    yield from pack_results(start, values[:middle], directory, prefix, pause=pause)
    yield from pack_results(start + middle, values[middle:], directory, prefix, pause=pause)


def write_result(data: Packed, directory: str, name: str, pause: SpaceWait | None = None) -> ResultFile | Failure:
    """Write a big result beside the others; complete under its name or not there.

    `pause` waits when the disk is full, as it must be if that is the store's; without one it is a failure of the site.
    """
    path = os.path.join(directory, f"{name}.pickle")
    hidden = os.path.join(directory, f".{name}.part")

    def write() -> int:
        parts = pieces(*data)
        size = sum([memoryview(part).nbytes for part in parts])
        held = put_in_memory(directory, f"{name}.pickle", parts, size)
        try:
            if held:
                os.symlink(held, hidden)
            else:
                write_file(hidden, parts)
            os.replace(hidden, path)
        except OSError:
            for left in (hidden, held):
                with contextlib.suppress(OSError):
                    os.unlink(left)
            raise
        return size

    try:
        what = f"a result of {data.size} bytes in {directory}"
        size = write() if pause is None else patiently(what, write, pause)
    except OSError as error:
        message = f"the result of {data.size} bytes cannot be written: {error}"
        return _raised(Cause.EXCEPTION, message, error, site=True)
    return ResultFile(path, size)


def paths_of(run: RunSpan) -> list[str]:
    """The files of a server that a function's arguments lie in."""
    found = [run.payload_path] if run.payload_path else []
    for value in run.inputs:
        found += [page.path for _, _, page in value.pages if isinstance(page, ResultFile)]
    return list(dict.fromkeys(found))


def with_paths(run: RunSpan, files: dict[str, str]) -> RunSpan:
    """The same run, with the files where they lie here."""

    def here(value: Value) -> Value:
        pages = [
            (start, stop, replace(page, path=files[page.path]) if isinstance(page, ResultFile) else page)
            for start, stop, page in value.pages
        ]
        return replace(value, pages=pages)

    path = files[run.payload_path] if run.payload_path else ""
    return replace(run, payload_path=path, inputs=[here(value) for value in run.inputs])
