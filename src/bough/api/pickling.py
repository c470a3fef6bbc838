"""Makes functions, arguments and parameter tables into bytes that another process can read, and reads what comes back.

Plain pickle comes first, because it is fast. What is defined in `__main__` or in modules beside the script goes by
value through cloudpickle, because workers never import those.

cloudpickle sends a class along with its instances. Read back as it is, the copy would be written over the script's
own class, or, in a later run, be another class of the same name. So a class of the script is named in pickles by its
place and content.

Rules: what cannot travel is refused here, before anything is submitted, with a message that names the guilty part;
also texts that are not UTF-8. All runs name a class alike, and a class that is here is never changed.
"""

from __future__ import annotations

import builtins
import errno
import io
import pickle
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

import cloudpickle
from cloudpickle import cloudpickle as inside

from bough.api import manager_keys
from bough.api.memo.content_keys import Known, known_function
from bough.api.memo.digests import digest
from bough.api.memo.function_code import is_own
from bough.errors import BoughError, InvalidWorkload, NotPicklable, SiteError
from bough.model.blobs import blob_id
from bough.model.ids import BlobId, MemoKey
from bough.model.packed_values import dumps_times, holds_times, split
from bough.model.refs import NESTED, FormerUnpickler, load_pickle
from bough.model.tasks import Page
from bough.movers.value_files import joined_apart, left_unread, names_files

PAGE_ITEMS = 1000  # of a page of arguments
PAGE_BYTES = 64 << 10
unpack = load_pickle
Take = Callable[[pickle.PickleBuffer], object]  # gets a buffer; false: it is not to be part of the pickle

_MARK = b"_make_skeleton_"  # in every pickle that holds a class
_PREFIX = "bough"
_OF_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE})

_named: weakref.WeakSet[type] = weakref.WeakSet()


class ScriptPickler(cloudpickle.Pickler):  # type: ignore[misc] # it has no types
    """cloudpickle's, with names for classes that other runs give them too."""

    def reducer_override(self, obj: Any) -> Any:
        """Name a class before it is pickled; leave out the key of a manager's proxy."""
        if manager_keys.is_proxy(obj):
            return manager_keys.reduced(obj)
        if isinstance(obj, type) and obj not in _named:
            _name(obj)
        return super().reducer_override(obj)


def dumps(obj: object, take: Take | None = None) -> bytes:
    """Pickle so that nothing of the user's own modules is needed to read it; `take` gets the buffers."""
    with io.BytesIO() as file:
        ScriptPickler(file, 5, buffer_callback=take).dump(obj)
        return file.getvalue()


def loads(data: Any, buffers: Sequence[Any] = ()) -> Any:
    """Read a pickle, bytes or a map of a file, with the classes that are here; `buffers` lie apart."""
    if data.find(_MARK) < 0:
        try:
            return pickle.loads(data, buffers=buffers) if buffers else pickle.loads(data)
        except ModuleNotFoundError:  # a store of an earlier version names modules as they were called then
            return load_pickle(data, buffers)
    if not buffers and (parts := split(data)) is not None:
        data, buffers = parts
    return _Unpickler(io.BytesIO(data) if isinstance(data, bytes) else data, buffers).load()  # a map is a file, too


def loads_unread(data: bytes) -> Any:
    """As `loads`; where buffers lie in files that may be gone, `Unread` stands for a value."""
    return loads(data) if not names_files(data) else _UnreadUnpickler(io.BytesIO(data), ()).load()


def _name(kind: type) -> None:
    _named.add(kind)
    module, name = kind.__module__, kind.__qualname__
    if is_own(module) and _find(module, name) is kind:
        content = digest(kind, None)
        if content is not None:
            inside._lookup_class_or_track(f"{_PREFIX}:{module}:{name}:{content.hex()}", kind)


def _find(module: str, name: str) -> object:
    """What has a name in a module now; None if nothing."""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _here(tracker: object) -> type | None:
    """The class that a name in a pickle means, if it is here already."""
    if not isinstance(tracker, str):
        return None
    if tracker.startswith(f"{_PREFIX}:"):
        _, module, name, _ = tracker.split(":")
        found = _find(module, name)
        if isinstance(found, type):
            return found
    known: type | None = inside._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker)
    return known


class _Unpickler(FormerUnpickler):
    def __init__(self, file: Any, buffers: Sequence[Any]) -> None:
        super().__init__(file, buffers=buffers)
        self._made: set[int] = set()  # ids of classes that this pickle brought

    def find_class(self, module: str, name: str) -> Any:
        if module == inside.__name__:
            if name == "_make_skeleton_class":
                return lambda *args: self._class(inside._make_skeleton_class, args, args[4])
            if name == "_make_skeleton_enum":
                return lambda *args: self._class(inside._make_skeleton_enum, args, args[5])
            if name == "_class_setstate":
                return self._set_state
        if (module, name) == NESTED:
            return loads
        return super().find_class(module, name)

    def _class(self, make: Callable[..., type], args: tuple[Any, ...], tracker: object) -> type:
        found = _here(tracker)
        if found is None:
            found = make(*args)
            self._made.add(id(found))
        return found

    def _set_state(self, kind: type, state: Any) -> type:
        if id(kind) in self._made:
            inside._class_setstate(kind, state)
        return kind


class _UnreadUnpickler(_Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (joined_apart.__module__, joined_apart.__name__):
            return left_unread
        return super().find_class(module, name)


# --- modules that travel by value ---------------------------------------------------------------------

_lock = threading.Lock()
_looked_at: set[str] = set()
_registry: set[str] = inside._PICKLE_BY_VALUE_MODULES  # names, ours and those that the user chose
_chosen = 0  # how many were in it
_marks: tuple[bytes, ...] = (b"__main__",)  # names in a pickle that a worker could not import


def _register() -> None:
    """Tell cloudpickle of own modules that were imported since the last look; take in those that the user told it."""
    global _marks, _chosen
    if len(sys.modules) == len(_looked_at) and len(_registry) == _chosen:
        return
    with _lock:
        for name, module in list(sys.modules.items()):
            if name in _looked_at:
                continue
            _looked_at.add(name)
            if name != "__main__" and type(module) is types.ModuleType and is_own(name):
                cloudpickle.register_pickle_by_value(module)
            elif name == manager_keys.MODULE:
                _marks = (*_marks, manager_keys.MARK)
        _marks = tuple({b"__main__", *_marks, *(name.encode() for name in _registry)})
        _chosen = len(_registry)
        _looked_at.intersection_update(list(sys.modules))


class BuffersApart(Protocol):
    """Where big buffers of arguments go."""

    def begin(self) -> Take:
        """Something is pickled, perhaps for the second time; what gets its buffers."""

    def packed(self, head: bytes) -> bytes:
        """It is pickled: a pickle of it, of which big buffers are not a part."""

    @property
    def size(self) -> int:
        """Bytes of the big buffers of what was pickled last."""


def _dumps(obj: object, apart: BuffersApart | None = None) -> bytes:
    """Pickle; what `apart` takes is not part of the result, and is not put anywhere yet."""
    _register()
    try:
        data = pickle.dumps(obj, 5, buffer_callback=apart.begin() if apart is not None else None)
    except Exception:  # noqa: BLE001 - whatever it raises, cloudpickle has the last word
        return by_value(obj, apart)
    for mark in _marks:
        if mark in data:
            return by_value(obj, apart)
    return dumps_times(obj, apart.begin()) if apart is not None and holds_times(data) else data


def by_value(obj: object, apart: BuffersApart | None = None) -> bytes:
    """Pickle so that nothing of the user's own modules is needed to read it."""
    _register()
    return dumps(obj, apart.begin() if apart is not None else None)


# --- functions ----------------------------------------------------------------------------------------

_BIG = 1 << 20  # bytes; of bigger functions only the latest is kept
_packed: dict[tuple[types.CodeType, MemoKey], tuple[BlobId, bytes]] = {}
_big: dict[tuple[types.CodeType, MemoKey], tuple[BlobId, bytes]] = {}


def pack_function(fn: Callable[..., Any]) -> tuple[BlobId, bytes]:
    """A function as a blob. Packed again only if it, or something it uses, has changed."""
    known = known_function(fn) if type(fn) is types.FunctionType else None
    return _pack(fn) if known is None else pack_known(known)


def pack_known(known: Known) -> tuple[BlobId, bytes]:
    """As `pack_function`, of what was seen to be unchanged just now."""
    if known.blob is not None:
        return known.blob
    slot = (known.fn.__code__, known.key)  # with the code: equal functions on other lines have other tracebacks
    blob = _packed.get(slot) or _big.get(slot)
    if blob is None:
        blob = _pack(known.fn)
        kept, most = (_packed, 256) if len(blob[1]) <= _BIG else (_big, 1)
        while len(kept) >= most:
            kept.pop(next(iter(kept)), None)
        kept[slot] = blob
    if len(blob[1]) <= _BIG:
        known.blob = blob
    return blob


def _pack(fn: Callable[..., Any]) -> tuple[BlobId, bytes]:
    try:
        data = _dumps(fn)
    except Exception as error:
        raise _refused(error, f"{_title(fn)} cannot be sent to a worker", lambda found: _culprit(fn, found)) from error
    return blob_id(data), data


def is_disk_trouble(error: BaseException) -> bool:
    """Whether an error is of the disk or of the memory, and not of the object that was to be packed."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _OF_DISK)


def _refused(error: Exception, what: str, reason: Callable[[Exception], str]) -> BoughError:
    """What to raise for something that was not packed; a class' own `__reduce__` may have met a full disk."""
    if is_disk_trouble(error):
        said = getattr(error, "strerror", "") or "the memory is full"
        return SiteError(f"{what}: {said}; free some space and try again", transient=True)
    return NotPicklable(f"{what}: {reason(error)}")


def _title(fn: object) -> str:
    name = getattr(fn, "__qualname__", None) or getattr(getattr(fn, "func", None), "__qualname__", None)
    return f"function {name}" if name else f"a {type(fn).__name__} object"


def _culprit(fn: object, error: Exception) -> str:
    """Which part of a function cannot be pickled, found by trying them one by one."""
    for what, value in _parts(fn, set()):
        reason = _refusal(value)
        if reason:
            return f"{what} is of type {type(value).__name__} ({reason})"
    return _one_line(error)


def _parts(fn: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """What a function takes along, inner functions' parts before those functions."""
    if id(fn) in seen:
        return
    seen.add(id(fn))
    if isinstance(fn, types.MethodType):
        yield f"the object {fn.__name__} is called on", fn.__self__
        fn = fn.__func__
    if hasattr(fn, "func") and hasattr(fn, "keywords"):  # functools.partial
        yield from ((f"argument {number}", value) for number, value in enumerate(fn.args))
        yield from ((f"argument {name}", value) for name, value in fn.keywords.items())
        fn = fn.func
    if not isinstance(fn, types.FunctionType):
        return
    found = [(f"its default {value!r:.40}", value) for value in fn.__defaults__ or ()]
    found += [(f"the default of {name}", value) for name, value in (fn.__kwdefaults__ or {}).items()]
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            found.append((f"variable {name} that it uses", cell.cell_contents))
        except ValueError:
            continue
    names = _global_names(fn.__code__)
    found += [(f"global {name} that it uses", fn.__globals__[name]) for name in names if name in fn.__globals__]
    for what, value in found:
        if isinstance(value, types.FunctionType) and is_own(value.__module__):
            yield from ((f"{inner} (in {value.__qualname__})", part) for inner, part in _parts(value, seen))
        yield what, value


def _global_names(code: types.CodeType) -> list[str]:
    names = list(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names += _global_names(const)
    return [name for name in dict.fromkeys(names) if not hasattr(builtins, name)]


def _refusal(value: object) -> str:
    """Why a value cannot be pickled; empty if it can."""
    try:
        _dumps(value)
    except Exception as error:  # noqa: BLE001 - this is what we want to know
        return _one_line(error)
    return ""


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


# --- arguments ----------------------------------------------------------------------------------------


def pack(obj: object, what: str = "the value", apart: BuffersApart | None = None) -> bytes:
    """Pickle anything; `what` names it in the error. What `apart` takes is not part of the result."""
    try:
        return _dumps(obj, apart)
    except Exception as error:
        raise _refused(error, f"{what} cannot be sent to a worker", lambda found: _inside(obj, found)) from error


def pack_plain(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Pickle arguments that are numbers and texts, which every process can read."""
    return pickle.dumps((args, kwargs), 5)


def pack_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], function: str = "", apart: BuffersApart | None = None
) -> bytes:
    """Pickle the arguments of a call; an error names the position or the keyword. `apart` takes their big buffers."""
    try:
        data = _dumps((args, kwargs), apart)
    except Exception as error:
        of = f" of {function}" if function else ""
        if is_disk_trouble(error):
            raise _refused(error, f"the arguments{of} cannot be packed", str) from error
        named = [(f"argument {number + 1}", value) for number, value in enumerate(args)]
        named += [(f"argument {name}", value) for name, value in kwargs.items()]
        for name, value in named:
            if _refusal(value):
                raise NotPicklable(f"{name}{of} cannot be sent to a worker: {_inside(value, error)}") from error
        raise NotPicklable(f"the arguments{of} cannot be sent to a worker: {_one_line(error)}") from error
    return data if apart is None else apart.packed(data)


def _inside(obj: object, error: Exception, depth: int = 0) -> str:
    """The innermost part that cannot be pickled: its place and type."""
    inner: Iterable[tuple[str, Any]] = ()
    if isinstance(obj, list | tuple):
        inner = ((f"item {number}", value) for number, value in enumerate(obj))
    elif isinstance(obj, dict):
        inner = ((f"the value of {key!r:.40}", value) for key, value in obj.items())
    elif hasattr(obj, "__dict__") and not isinstance(obj, type | types.FunctionType | types.ModuleType):
        inner = ((f"its attribute {name}", value) for name, value in vars(obj).items())
    if depth < 8:
        for name, value in inner:
            if _refusal(value):
                return f"{name}: {_inside(value, error, depth + 1)}"
    return f"it is of type {type(obj).__name__} ({_refusal(obj) or _one_line(error)})"


# --- tables -------------------------------------------------------------------------------------------


def pack_table(table: Sequence[Any], apart: BuffersApart | None = None) -> tuple[BlobId, bytes]:
    """A range or a space as a blob: workers compute their items from it. What `apart` takes is not part of it."""
    data = pack(table, "the parameter table", apart)
    return blob_id(data), data


def pack_shared(value: object, apart: BuffersApart) -> bytes:
    """Pickle a value that many calls are to share; the head only, its buffers are in `apart`."""
    try:
        return _dumps(value, apart)
    except Exception as error:
        raise _refused(error, "the value cannot be sent to workers", lambda found: _inside(value, found)) from error


def make_pages(items: Iterable[Any], start: int = 0, apart: BuffersApart | None = None) -> Iterator[Page]:
    """Cut items into pages of at most 1,000 items and about 64 kB; a big item has a page of its own.

    `apart` takes the big buffers of each page, and is told of a page before that is yielded.
    """
    source = iter(items)
    count = PAGE_ITEMS
    left: list[Any] = []
    while True:
        chunk = left[:count]
        left = left[count:]
        chunk += islice(source, count - len(chunk))
        if not chunk:
            return
        data = _pack_items(chunk, start, apart)
        size = len(data) if apart is None else len(data) + apart.size
        if size > PAGE_BYTES and len(chunk) > 1:
            # too big: guess from what it came to, and try again with fewer
            count = max(1, min(len(chunk) // 2, len(chunk) * PAGE_BYTES * 3 // (size * 4)))
            left = chunk + left
            continue
        yield Page(start, start + len(chunk), data if apart is None else apart.packed(data))
        start += len(chunk)
        count = max(1, min(PAGE_ITEMS, len(chunk) * 16, len(chunk) * PAGE_BYTES * 3 // (size * 4)))


def _pack_items(chunk: list[Any], start: int, apart: BuffersApart | None) -> bytes:
    try:
        return _dumps(chunk, apart)
    except Exception as error:
        if is_disk_trouble(error):
            raise _refused(error, f"items {start} to {start + len(chunk) - 1} cannot be packed", str) from error
        for number, item in enumerate(chunk, start):
            if _refusal(item):
                raise NotPicklable(f"item {number} cannot be sent to a worker: {_inside(item, error)}") from error
        raise NotPicklable(f"items {start} to {start + len(chunk) - 1}: {_one_line(error)}") from error


def check_sendable(what: str, text: str) -> None:
    """Refuse a text that is not valid Unicode; `what` names it."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise unsendable(what, text) from None


def unsendable(what: str, text: str) -> InvalidWorkload:
    """What to say of a text that is not valid Unicode."""
    return InvalidWorkload(f"{what} holds {text!r:.100}, which is not valid Unicode; rename the file, or choose others")
