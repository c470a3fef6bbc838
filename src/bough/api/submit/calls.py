"""Submitting function calls: loose ones, and maps as one array.

Rules: what waits for what is not this session's is refused before anything is submitted. A loose call that cannot
travel is told by its future; a map that cannot is refused.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as futures_wait
from hashlib import blake2b
from itertools import chain, repeat
from types import FunctionType
from typing import TYPE_CHECKING, Any

from bough import private
from bough.api.futures.array import Array, TaskList
from bough.api.futures.array_view import ArrayView
from bough.api.futures.completed import WithCompleted
from bough.api.futures.task import Task
from bough.api.manager_keys import holds_proxies
from bough.api.memo.content_keys import call_key, function_key, known_call
from bough.api.memo.decorator import is_memo
from bough.api.memo.file_identities import identities_in
from bough.api.pickling import make_pages, pack_arguments, pack_function, pack_known, pack_plain, pack_table
from bough.api.submit.arrays import ArrayParts, array_length, is_in_parts, send_array
from bough.api.submit.deferred_calls import DeferredCall
from bough.api.submit.task_options.options import NAMES, Arguments, after_deps
from bough.errors import BadValue, InvalidWorkload, NotPicklable, NotRun, UnknownKeyword, WrongType
from bough.executor.host.disk_space_wait import SpaceWait, patiently
from bough.model.arrays.element_reads import ElementReads, pack_reads
from bough.model.ids import DIGEST_SIZE, BlobId, MemoKey, RecordId
from bough.model.refs import pack_marked, pack_simple
from bough.model.spaces import Axis, Product, RowCall, Space, Tie
from bough.model.tasks import Dep, Kind, Page, TaskExtras, TaskSpec

if TYPE_CHECKING:
    from bough.api.futures.elements import ArrayElements
    from bough.api.submit.context import SessionLike, SubmitContext
    from bough.api.submit.task_options.options import TaskOptions
    from bough.api.values.packing import Packing
    from bough.model.ids import GroupId

BIG = 256 << 10  # bytes; a bigger payload goes through a file
_PLAIN: frozenset[type] = frozenset({int, float, str, bytes, bool, complex, type(None), bytearray})
_is_plain = _PLAIN.issuperset
_OPTIONS = frozenset(NAMES)
_FUNCTION = Kind.FUNCTION
_NO_KEY = MemoKey(b"")
_MOST_READING = 1 << 20  # elements that say what they read of a space at a service; a bigger one travels as a whole


def submit_call(  # noqa: PLR0917 - a tuple of the first three would be made for every call
    session: SessionLike,
    settings: TaskOptions,
    group: GroupId,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Task:
    """Submit one call. A million of them may come in a row: what all calls of a function share is made once."""
    if session.is_shut or session.connection.is_forked or settings.needs is not session.possible_needs:
        session.check_open()
        session.check_needs(settings.needs)
    if not callable(fn):
        raise WrongType(f"submit needs a function, not {fn!r:.80}; a command line goes to command()")
    if kwargs and not _OPTIONS.isdisjoint(kwargs):
        _refuse_options(fn, kwargs)
    try:
        return _send_call(session, settings, group, fn, args, kwargs)
    except (NotPicklable, NotRun) as error:  # told by the future, as ProcessPoolExecutor does
        task = Task(session.registry, session.new_record(), settings.name or function_name(fn), group)
        session.registry.not_sent(task, error)
        return task


def _refuse_options(fn: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Refuse options of tasks that were given as if they were arguments, to a function that does not take them."""
    from inspect import Parameter, signature  # late: it loads a lot

    try:
        parameters = signature(fn).parameters
    except (TypeError, ValueError):  # of some written in C nobody knows
        return
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    wrong = next((name for name in kwargs if name in _OPTIONS and name not in parameters), None)
    if wrong is not None:
        called = function_name(fn) or "the function"
        raise UnknownKeyword(
            f"{called} takes no {wrong}; for an option of the task: s.options({wrong}=...).submit(...)"
        )


def _send_call(  # noqa: C901, PLR0917 - as above
    session: SessionLike,
    settings: TaskOptions,
    group: GroupId,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    task: Task | None = None,  # it was made before, and has waited for futures of others
) -> Task:
    registry = session.registry
    name = settings.name or function_name(fn)
    blob: tuple[BlobId, bytes] | None = None
    after: tuple[Dep, ...] = ()
    inputs: tuple[Dep, ...] = ()
    reads: tuple[str, ...] = ()  # buffers that the server has
    short = pack_simple(args) if not kwargs else None
    # Before anything is pickled, which leaves marks in classes that the function may refer to.
    wants_key = settings.memo is not False
    known, key = known_call(fn, short if wants_key else None) if type(fn) is FunctionType else (None, None)
    if short is not None:
        payload = short
    elif _is_plain(map(type, args)) and _is_plain(map(type, kwargs.values())):
        payload = pack_plain(args, kwargs)
    else:
        given = Arguments(registry, args, kwargs)
        if given.others:
            return _defer(session, (settings, group, fn, args, kwargs), name, given.others, task)
        args, kwargs, after, inputs = given.args, given.kwargs, tuple(given.after), tuple(given.inputs)
        if given.commands:
            blob = pack_function(WithCompleted(fn, given.commands))
        short = pack_marked(args) if not kwargs else None
        if short is not None:
            payload = short
        else:
            task = Task(registry, session.new_record(), name, group) if task is None else task
            with session.packing() as packing:
                payload = pack_arguments(args, kwargs, name, packing)
                if wants_key and known is not None:
                    key = known.call_key(args, kwargs, short)
                elif wants_key:
                    key = call_key(function_key(fn), args, kwargs)
                packing.hold(task.record)
                reads = packing.contents()
            wants_key = False  # there is one, if there can be
    if settings.after:
        waits = after_deps(settings.after, registry)
        after = tuple(dict.fromkeys((*waits, *after))) if after else waits
    if blob is None:
        blob = pack_function(fn) if known is None else known.blob or pack_known(known)
    if wants_key and key is None:
        key = call_key(function_key(fn), args, kwargs) if known is None else known.call_key(args, kwargs, short)
    if session.initializer is not None:
        blob, key = session.initializer.blob(blob), session.initializer.key(key)
    watching = settings.watching
    if watching is not None or session.groups.watch_keys:
        key = session.groups.watched_key(key, group, watching)
    task = Task(registry, session.new_record(), name, group) if task is None else task
    record = RecordId(task.record)
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
        settings.call_needs,
        settings.limits,
        settings.priority,
        after,
        inputs,
        key or _NO_KEY,
        path,
        (),
        settings.extras if settings.extras.checkpoint is None else _with_checkpoint(settings.extras),
        reads,
        settings.memo if settings.memo is not None else known.is_memo if known is not None else is_memo(fn),
    )
    session.send_task(task, spec, size, (blob,) if watching is None else (blob, watching.blob))
    return task


def _with_checkpoint(extras: TaskExtras) -> TaskExtras:
    """The extras of a call that can save its state."""
    from bough.api.submit.task_options.checkpoint_options import placed  # few can

    return placed(extras, os.getcwd(), os.getcwd())


def _defer(
    session: SessionLike,
    call: tuple[TaskOptions, GroupId, Callable[..., Any], tuple[Any, ...], dict[str, Any]],
    name: str,
    others: Sequence[Future[Any]],
    task: Task | None,
) -> Task:
    """Submit a call when futures of others are done; in a group, which may be closed by then, wait for them here."""
    settings, group, *_ = call
    if group != session.root or settings.after:
        futures_wait(others)
        return _send_call(session, *call)
    made = Task(session.registry, session.new_record(), name, group) if task is None else task
    DeferredCall(session, made, lambda: _send_call(session, *call, task=made)).start(others)
    return made


def submit_map(
    context: SubmitContext, fn: Callable[..., Any], iterables: Sequence[Iterable[Any]], deadline: float | None
) -> Array:
    """Submit a call for every item, as one array."""
    session, settings, _ = context
    session.check_open()
    session.check_needs(settings.needs)
    if not callable(fn):
        raise WrongType(f"map needs a function, not {fn!r:.80}; a command line goes to sweep()")
    if not iterables:
        raise BadValue("map needs at least one iterable besides the function")
    star = len(iterables) > 1
    items: Any = iterables[0] if not star else zip(*iterables, strict=False)
    wants_key = settings.memo is not False
    identities: dict[str, bytes] = {}
    if not isinstance(items, range | Space):
        items = items if isinstance(items, list | tuple) else list(items)
        kinds = set(map(type, chain.from_iterable(items) if star else items)) - _PLAIN
        if kinds and holds_tasks(session, items, kinds):
            return _map_loose(context, fn, items, deadline, star=star)
        if kinds and wants_key:
            identities = identities_in(items)
    elif wants_key and isinstance(items, Space):
        identities = identities_in(items)
    elements = _send_calls(context, fn, items, star=star, identities=identities)
    return ArrayView(elements, values=True, deadline=deadline)


def _send_calls(
    context: SubmitContext,
    fn: Callable[..., Any],
    items: Sequence[Any],
    *,
    star: bool = False,
    names: tuple[str, ...] = (),
    identities: dict[str, bytes] | None = None,
) -> ArrayElements:
    """Submit an array of calls; with `names` the values of an item are keywords."""
    session, settings, group = context
    length = array_length(items)
    key = body_key(session, fn, is_reused=settings.memo is not False, star=star)  # before pickling, which leaves marks
    if key and names:
        key = MemoKey(blake2b("\0".join(names).encode(), key=key, digest_size=DIGEST_SIZE).digest())
    blob, data = pack_body(session, RowCall(fn, names) if names else fn)
    record, reads = session.new_record() if not session.is_remote else 0, None
    pages: tuple[Page, ...] = ()
    if isinstance(items, range | Space):
        table, blobs, reads = _as_table(session, record, items)
    else:
        table, blobs = BlobId(b""), ()
        with session.packing() as packing:
            pages = tuple(make_pages(items, apart=packing))
            for number, page in enumerate(pages):
                packing.hold_page(record, number, page.start, page.stop)
            reads = _page_reads(packing, pages)
    if holds_proxies(data, *(page.data for page in pages)):
        key = _NO_KEY
    key = session.groups.watched_key(key, group, settings.watching)
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
        record=record,
        identities=identities or {},
        always=settings.memo or (settings.memo is None and is_memo(fn)),
        reads=reads,
    )
    return send_array(session, settings, group, parts)


def _page_reads(packing: Packing, pages: Sequence[Page]) -> ElementReads | None:
    """The buffers that the server has which elements read: all elements of a page those of the page."""
    if not packing.contents():
        return None
    each = (packing.contents(number) for number, page in enumerate(pages) for _ in range(page.start, page.stop))
    return pack_reads(each, is_open=is_in_parts(pages))


def submit_call_sweep(
    context: SubmitContext,
    fn: Callable[..., Any],
    space: Space,
    where: Callable[..., Any] | None,
    parameters: Mapping[str, Any],
) -> Array:
    """Submit a call for every combination of a space, with the parameters as keywords, as one array."""
    from bough.model.filtering import filtered

    session, settings, _ = context
    session.check_open()
    session.check_needs(settings.needs)
    if not isinstance(space, Space):
        raise InvalidWorkload(f"a sweep runs over bough.product(...) or bough.tie(...), not {space!r:.60}")
    if where is not None and not callable(where):
        raise InvalidWorkload(f"where is {where!r:.60}; give a function of the parameters")
    twice = next((name for name in parameters if name in space.names), None)
    if twice is not None:
        raise InvalidWorkload(f"parameter {twice} is given twice: in the space and beside it")
    rows: Space = filtered(space, where) if where is not None else space
    if parameters:  # the same for every row
        rows = Product(None, rows, Tie({name: (value,) for name, value in parameters.items()}))
    _check_keywords(fn, rows.names)
    if _axes_hold_tasks(session, rows):
        given = (dict(zip(rows.names, row, strict=True)) for row in rows)
        return TaskList([submit_call(*context, fn, (), keywords) for keywords in given])
    identities = identities_in(rows) if settings.memo is not False else None
    return ArrayView(_send_calls(context, fn, rows, names=rows.names, identities=identities))


def _check_keywords(fn: Callable[..., Any], names: Sequence[str]) -> None:
    """Refuse a function that cannot be called with these keywords, as far as it tells its own."""
    import inspect

    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        raise InvalidWorkload(
            f"sweep: {function_name(fn) or 'the function'}{signature} cannot be called with the parameters"
            f" {', '.join(names)}: {error}"
        ) from None


def _axes_hold_tasks(session: SessionLike, space: Space) -> bool:
    """Whether tasks, arrays or outputs of tasks are among the values of a space."""
    if isinstance(space, Axis):
        kinds = set() if isinstance(space.values, range) else set(map(type, space.values)) - _PLAIN
        return bool(kinds) and holds_tasks(session, space.values, kinds)
    if isinstance(space, Product | Tie):
        return any(_axes_hold_tasks(session, factor) for factor in space.factors)
    inner = getattr(space, "space", None)  # of a filtered one
    return isinstance(inner, Space) and _axes_hold_tasks(session, inner)


def pack_body(session: SessionLike, fn: Callable[..., Any]) -> tuple[BlobId, bytes]:
    """The function of an array as a blob, with the session's initializer if it has one."""
    blob = pack_function(fn)
    return blob if session.initializer is None else session.initializer.blob(blob)


def body_key(session: SessionLike, fn: Callable[..., Any], *, is_reused: bool, star: bool = False) -> MemoKey:
    """The memo key of the function of an array; empty when it is not to be reused."""
    key = function_key(fn) if is_reused else None
    return array_key(key if session.initializer is None else session.initializer.key(key), star=star)


def _as_table(
    session: SessionLike, record: int, items: range | Space
) -> tuple[BlobId, tuple[tuple[BlobId, bytes], ...], ElementReads | None]:
    """Arguments as a table that workers compute from, the blobs to send, and what the server has of them."""
    if isinstance(items, range) or (session.is_remote and len(items) > _MOST_READING):
        table, data = pack_table(items)
        return table, ((table, data),), None
    with session.packing() as packing:
        table, data = pack_table(items, packing)
        if packing.size:  # each value that is big is written once, as if it had been shared
            items = items.with_values(packing.shared_if_big)
            packing.begin()
            table, data = pack_table(items)
        packing.packed(data)
        packing.hold_array(record, len(items))
        contents = packing.contents()
    return table, ((table, data),), pack_reads(repeat(contents, len(items))) if contents else None


def array_key(function: MemoKey | None, *, star: bool) -> MemoKey:
    """The key of the body of a function array; empty when it cannot be reused."""
    if function is None:
        return MemoKey(b"")
    return MemoKey(blake2b(b"map*" if star else b"map", key=function, digest_size=DIGEST_SIZE).digest())


def holds_tasks(session: SessionLike, items: Sequence[Any], kinds: Iterable[type]) -> bool:
    """Whether tasks, arrays or outputs of tasks are among the items, whose types these are."""
    for kind in kinds:
        if issubclass(kind, Future | Array | str | list | tuple | dict):
            break
    else:
        return False
    try:
        return any(Arguments(session.registry, (item,), {}).stands_for_others for item in items)
    except NotRun:  # the call that takes it tells
        return True


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
