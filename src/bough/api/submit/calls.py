"""Submitting function calls: loose ones, and maps as one array.

Rule: what cannot travel, or waits for what is not this session's, is refused before anything is submitted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import chain
from types import FunctionType
from typing import TYPE_CHECKING, Any

from bough import private
from bough.api.futures.array import Array, TaskList
from bough.api.futures.array_view import ArrayView
from bough.api.futures.completed import WithCompleted
from bough.api.futures.task import Task
from bough.api.memo.content_keys import call_key, function_key, known_call
from bough.api.pickling import make_pages, pack_arguments, pack_function, pack_known, pack_plain, pack_table
from bough.api.submit.arrays import ArrayParts, array_length, send_array
from bough.api.submit.options import Arguments, after_deps
from bough.errors import UserError
from bough.executor.disk_space_wait import SpaceWait, patiently
from bough.model.ids import DIGEST_SIZE, BlobId, MemoKey, RecordId
from bough.model.refs import pack_marked, pack_simple
from bough.model.spaces import Space
from bough.model.tasks import Dep, Kind, Page, TaskSpec

if TYPE_CHECKING:
    from bough.api.submit.context import SessionLike, SubmitContext
    from bough.api.submit.options import TaskOptions
    from bough.model.ids import GroupId

BIG = 256 << 10  # bytes; a bigger payload goes through a file
_PLAIN: frozenset[type] = frozenset({int, float, str, bytes, bool, complex, type(None), bytearray})
_is_plain = _PLAIN.issuperset
_FUNCTION = Kind.FUNCTION
_NO_KEY = MemoKey(b"")


def submit_call(  # noqa: PLR0917 - a tuple of the first three would be made for every call
    session: SessionLike,
    settings: TaskOptions,
    group: GroupId,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Task:
    """Submit one call. A million of them may come in a row: what all calls of a function share is made once."""
    if session.is_shut or session.connection.is_forked:
        session.check_open()
    if not callable(fn):
        raise UserError(f"submit needs a function, not {fn!r:.80}; a command line goes to command()")
    registry = session.registry
    name = settings.name or function_name(fn)
    blob: tuple[BlobId, bytes] | None = None
    after: tuple[Dep, ...] = ()
    inputs: tuple[Dep, ...] = ()
    short = pack_simple(args) if not kwargs else None
    # Before anything is pickled, which leaves marks in classes that the function may refer to.
    known, key = known_call(fn, short if settings.memo else None) if type(fn) is FunctionType else (None, None)
    if short is not None:
        payload = short
    elif _is_plain(map(type, args)) and _is_plain(map(type, kwargs.values())):
        payload = pack_plain(args, kwargs)
    else:
        given = Arguments(registry, args, kwargs)
        args, kwargs, after, inputs = given.args, given.kwargs, tuple(given.after), tuple(given.inputs)
        if given.commands:
            blob = pack_function(WithCompleted(fn, given.commands))
        short = pack_marked(args) if not kwargs else None
        payload = short if short is not None else pack_arguments(args, kwargs, name)
    if settings.after:
        waits = after_deps(settings.after, registry)
        after = tuple(dict.fromkeys((*waits, *after))) if after else waits
    if blob is None:
        blob = pack_function(fn) if known is None else known.blob or pack_known(known)
    if settings.memo and key is None:
        key = call_key(function_key(fn), args, kwargs) if known is None else known.call_key(args, kwargs, short)
    record = session.new_record()
    size, path = len(payload), ""
    if size > BIG and session.keeps_arguments:
        path = keep_argument(session.store, record, payload)
        payload, size = b"", 0
    spec = TaskSpec(
        record,
        _FUNCTION,
        blob[0],
        payload,
        group,
        name,
        name,
        settings.needs,
        settings.limits,
        settings.priority,
        after,
        inputs,
        key or _NO_KEY,
        path,
        (),
        settings.extras,
    )
    task = Task(registry, record, name, group)
    session.send_task(task, spec, size, (blob,))
    return task


def submit_map(
    context: SubmitContext, fn: Callable[..., Any], iterables: Sequence[Iterable[Any]], deadline: float | None
) -> Array:
    """Submit a call for every item, as one array."""
    session, settings, group = context
    session.check_open()
    if not callable(fn):
        raise UserError(f"map needs a function, not {fn!r:.80}; a command line goes to sweep()")
    if not iterables:
        raise UserError("map needs at least one iterable besides the function")
    star = len(iterables) > 1
    items: Any = iterables[0] if not star else zip(*iterables, strict=False)
    if not isinstance(items, range | Space):
        items = items if isinstance(items, list | tuple) else list(items)
        if holds_tasks(session, items, star=star):
            return _map_loose(context, fn, items, deadline, star=star)
    length = array_length(items)
    blob, data = pack_function(fn)
    table, pages, blobs = as_table(items)
    key = array_key(function_key(fn) if settings.memo else None, star=star)
    parts = ArrayParts(
        kind=Kind.FUNCTION,
        name=settings.name or function_name(fn),
        body=blob,
        length=length,
        table=table,
        pages=pages,
        blobs=((blob, data), *blobs),
        key=key,
        star=star,
    )
    elements = send_array(session, settings, group, parts)
    return ArrayView(elements, values=True, deadline=deadline)


def as_table(items: Sequence[Any]) -> tuple[BlobId, tuple[Page, ...], tuple[tuple[BlobId, bytes], ...]]:
    """Arguments as a table that workers compute from, or as pages; and the blobs to send."""
    if isinstance(items, range | Space):
        table, data = pack_table(items)
        return table, (), ((table, data),)
    return BlobId(b""), tuple(make_pages(items)), ()


def array_key(function: MemoKey | None, *, star: bool) -> MemoKey:
    """The key of the body of a function array; empty when it cannot be reused."""
    if function is None:
        return MemoKey(b"")
    return MemoKey(blake2b(b"map*" if star else b"map", key=function, digest_size=DIGEST_SIZE).digest())


def holds_tasks(session: SessionLike, items: Sequence[Any], *, star: bool) -> bool:
    """Whether tasks, arrays or outputs of tasks are among the items."""
    flat = chain.from_iterable(items) if star else items
    for kind in set(map(type, flat)) - _PLAIN:
        if issubclass(kind, Task | Array | str | list | tuple | dict):
            break
    else:
        return False
    return any(Arguments(session.registry, (item,), {}).after for item in items)


def _map_loose(
    context: SubmitContext, fn: Callable[..., Any], items: Sequence[Any], deadline: float | None, *, star: bool
) -> Array:
    """A map over values that are not there yet: each call waits for its own."""
    calls = items if star else [(item,) for item in items]
    tasks = [submit_call(*context, fn, tuple(args), {}) for args in calls]
    return TaskList(tasks, values=True, deadline=deadline)


def function_name(fn: Callable[..., Any]) -> str:
    """What a function is called in messages; empty when its name says nothing."""
    name = getattr(fn, "__name__", None) or getattr(getattr(fn, "func", None), "__name__", "")
    return name if isinstance(name, str) and name != "<lambda>" else ""


def keep_argument(store: str, record: RecordId, payload: bytes) -> str:
    """Write arguments that are too big to send to a file of the store."""
    path = os.path.join(store, "args", f"{record}.pickle")

    def write() -> None:
        try:
            with open(path, "wb", opener=private.opener) as file:
                file.write(payload)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise

    patiently(path, write, SpaceWait())
    return path
