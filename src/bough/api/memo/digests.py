"""Digests of values and of code: the same for what computes the same, in every process.

Functions count by their bytecode, constants, defaults, closures and the globals they use, followed through the user's
own modules. Library code counts by its name and version. Values count by type and content; a type of the standard
library counts by what it means, not by how it is pickled.

Rules: no pickle bytes, no addresses, no line numbers, no docstrings. What cannot be told apart for certain has no
digest (None).
"""

from __future__ import annotations

import array
import builtins
import copyreg
import datetime as dt
import decimal
import enum
import fractions
import functools
import logging
import marshal
import sys
import threading
import types
import uuid
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Protocol

from bough.api.memo.file_identities import argument_identity, is_path
from bough.api.memo.function_code import MISSING, Watch, contents, facts_of, is_fixed, is_own, library, made_of
from bough.model.ids import DIGEST_SIZE
from bough.model.packed_values import APART
from bough.model.refs import SIMPLE, Ref


class NoDigestError(Exception):
    """Something met on the way cannot be told apart from others of its kind."""


class Sink(Protocol):
    """What values are fed into."""

    def put(self, tag: bytes, data: bytes = b"") -> None:
        """Take bytes."""

    def text(self, tag: bytes, text: str) -> None:
        """Take a text."""

    def feed(self, obj: Any) -> None:
        """Take a value of any type."""


def _items(to: Sink, obj: list[Any] | tuple[Any, ...]) -> None:
    to.put(type(obj).__name__.encode(), b"%d" % len(obj))
    for item in obj:
        to.feed(item)


def _mapping(to: Sink, obj: Mapping[Any, Any]) -> None:
    to.put(b"d", b"%d" % len(obj))
    for key, value in obj.items():
        to.feed(key)
        to.feed(value)


def _method(to: Sink, obj: types.MethodType) -> None:
    to.feed(obj.__func__)
    to.feed(obj.__self__)


def _builtin(to: Sink, obj: types.BuiltinFunctionType) -> None:
    owner = obj.__self__
    to.text(b"b", f"{library(obj.__module__)} {obj.__qualname__}")
    if owner is not None and not isinstance(owner, types.ModuleType):
        to.feed(owner)


def _partial(to: Sink, obj: functools.partial[Any]) -> None:
    to.put(b"partial")
    to.feed(obj.func)
    to.feed(obj.args)
    to.feed(obj.keywords)


def _wrapper(to: Sink, obj: Any) -> None:
    to.text(b"w", type(obj).__name__)
    to.feed(obj.__func__)


def _property(to: Sink, obj: property) -> None:
    to.put(b"property")
    for part in (obj.fget, obj.fset, obj.fdel):
        to.feed(part)


def _named(to: Sink, obj: Any) -> None:
    to.text(b"N", f"{type(obj).__name__} {obj.__qualname__}")


def _shown(to: Sink, obj: Any) -> None:
    to.text(b"R" + type(obj).__name__.encode(), repr(obj))


def _instant(to: Sink, obj: dt.datetime | dt.time) -> None:
    to.text(b"R" + type(obj).__name__.encode(), f"{obj.replace(tzinfo=None).isoformat()} {obj.fold}")
    to.feed(obj.tzinfo)


def _raw(to: Sink, obj: bytearray | memoryview) -> None:
    to.put(type(obj).__name__.encode(), bytes(obj))


def _array(to: Sink, obj: array.array[Any]) -> None:
    to.put(b"a" + obj.typecode.encode(), obj.tobytes())


def _refused(to: Sink, obj: object) -> None:
    raise NoDigestError(type(obj).__name__)


def _ref(to: Sink, obj: Ref) -> None:
    to.put(b"ref", b"%d" % obj.n)


FEEDERS: dict[type, Callable[[Sink, Any], None]] = {
    Ref: _ref,
    list: _items,
    tuple: _items,
    dict: _mapping,
    types.MappingProxyType: _mapping,
    types.ModuleType: lambda to, obj: to.text(b"M", library(obj.__name__)),
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    functools.partial: _partial,
    functools.cached_property: lambda to, obj: to.feed(obj.func),
    staticmethod: _wrapper,
    classmethod: _wrapper,
    property: _property,
    types.MemberDescriptorType: _named,
    types.GetSetDescriptorType: _named,
    types.MethodDescriptorType: _named,
    types.WrapperDescriptorType: _named,
    type(Ellipsis): _shown,
    type(NotImplemented): _shown,
    range: _shown,
    decimal.Decimal: _shown,
    fractions.Fraction: _shown,
    uuid.UUID: _shown,
    logging.Logger: lambda to, obj: to.text(b"L", obj.name),
    dt.date: _shown,
    dt.timedelta: _shown,
    dt.timezone: _shown,
    dt.datetime: _instant,
    dt.time: _instant,
    bytearray: _raw,
    memoryview: _raw,
    array.array: _array,
    types.GeneratorType: _refused,
    types.CoroutineType: _refused,
    types.FrameType: _refused,
    types.TracebackType: _refused,
}


_is_simple = SIMPLE.issuperset
_FLAT: frozenset[type] = frozenset({tuple, list})


def value_digest(obj: object) -> bytes | None:
    """The digest of a value, or None if it has none (an open file, a lock, a generator)."""
    kind = type(obj)
    if kind in _FLAT and _is_simple(map(type, obj)):  # type: ignore[call-overload]
        # version 2 knows neither references nor interned strings: equal values, equal bytes
        return blake2b(marshal.dumps(obj, 2), digest_size=DIGEST_SIZE).digest()  # type: ignore[arg-type]
    return digest(obj, None)


def argument_digest(obj: object) -> bytes | None:
    """As `value_digest`, of an argument: a `Path` in it counts by what its file holds, not only by its name."""
    if type(obj) in _FLAT and _is_simple(map(type, obj)):  # type: ignore[call-overload]
        return value_digest(obj)
    return digest(obj, None, reads_files=True)


def digest(obj: object, watch: Watch | None, *, reads_files: bool = False) -> bytes | None:
    """The digest of anything, or None; `watch` notes what a function's was made of."""
    digester = _Digester(watch, reads_files=reads_files)
    try:
        digester.feed(obj)
    except NoDigestError:
        return None
    except Exception:  # noqa: BLE001 - a strange object must not keep its task from running
        return None
    return digester.hash.digest()


class _Digester:
    """Feeds objects into one hash, each with a tag of its type."""

    def __init__(self, watch: Watch | None = None, *, reads_files: bool = False) -> None:
        self.reads_files = reads_files
        self.hash = blake2b(digest_size=DIGEST_SIZE)
        self.watch = watch
        self.seen: dict[int, tuple[int, object]] = {}  # functions and classes, by id, with their number
        self.path: set[int] = set()  # containers being fed, to notice those that hold themselves

    def put(self, tag: bytes, data: bytes = b"") -> None:
        self.hash.update(b"%b%d:" % (tag, len(data)))
        self.hash.update(data)

    def text(self, tag: bytes, text: str) -> None:
        self.put(tag, text.encode("utf-8", "surrogatepass"))

    def feed(self, obj: Any) -> None:
        kind = type(obj)
        if kind in SIMPLE or (kind in _FLAT and _is_simple(map(type, obj))):
            self.put(b"m", marshal.dumps(obj, 2))
            return
        feeder = _FEEDERS.get(kind)
        if feeder is not None:
            if kind in _CONTAINERS:
                self.inside(feeder, obj)
            else:
                feeder(self, obj)
            return
        if isinstance(obj, type):
            self.cls(obj)
        elif isinstance(obj, enum.Enum):
            self.cls(type(obj))
            self.text(b"e", obj.name)
        elif is_path(obj):
            self.file(obj)
        elif _is_numpy(obj):
            self.inside(_Digester.numpy if _is_plain_numpy(kind) else _Digester.other, obj)
        elif callable(obj) and hasattr(obj, "__wrapped__"):  # lru_cache and other decorators written in C
            self.cls(kind)
            self.inside(lambda self, obj: self.feed(obj.__wrapped__), obj)
        else:
            self.inside(_Digester.other, obj)

    def inside(self, feeder: Callable[[_Digester, Any], None], obj: Any) -> None:
        """Feed something that may hold itself."""
        if id(obj) in self.path:
            self.put(b"again")
            return
        self.path.add(id(obj))
        feeder(self, obj)
        self.path.discard(id(obj))

    def file(self, path: Any) -> None:
        """A path: its text, and for an argument what its file holds."""
        self.text(b"P" + type(path).__name__.encode(), str(path))
        if self.reads_files:
            identity = argument_identity(path)
            if identity is None:
                raise NoDigestError(str(path))
            self.put(b"file", identity)

    def unordered(self, obj: Iterable[Any]) -> None:
        digests = [argument_digest(item) if self.reads_files else value_digest(item) for item in obj]
        if None in digests:
            raise NoDigestError
        self.put(type(obj).__name__.encode(), b"".join(sorted(d for d in digests if d)))

    def numpy(self, obj: Any) -> None:
        dtype = obj.dtype
        self.text(b"n" + type(obj).__name__.encode(), f"{dtype.descr if dtype.names else dtype.str} {obj.shape}")
        if obj.nbytes >= APART and (number := _known_buffer(obj)):
            self.put(b"kept C" if obj.flags.c_contiguous else b"kept F", number)
        elif dtype.hasobject:
            self.feed(obj.tolist())
        elif obj.ndim == 0:
            self.put(b"n", obj.tobytes())
        else:
            whole = obj if obj.flags.c_contiguous else obj.copy(order="C")
            self.hash.update(whole.reshape(-1).view("u1").data if whole.size else b"")

    def other(self, obj: Any) -> None:
        """Anything that says how it is made again: by class and state."""
        kind = type(obj)
        if _is_proxy(obj):  # what it stands for lives in another process, and ends with it
            raise NoDigestError(f"a {kind.__name__} of a manager")
        reducer = copyreg.dispatch_table.get(kind)
        try:
            parts = reducer(obj) if reducer else obj.__reduce_ex__(4)
        except Exception as error:  # it says that it cannot be copied, in whatever way
            raise NoDigestError from error
        if isinstance(parts, str):
            self.text(b"g", f"{library(getattr(obj, '__module__', ''))} {parts}")
            return
        self.put(b"o", b"%d" % len(parts))
        self.cls(kind)
        for number, part in enumerate(parts):
            if number >= 3 and part is not None:  # iterators over items
                self.feed(list(part))
            else:
                self.feed(part)

    # --- code ---

    def is_known(self, obj: object) -> bool:
        """Whether a function or class was fed before; then its number is fed."""
        known = self.seen.get(id(obj))
        if known is not None:
            self.put(b"seen", b"%d" % known[0])
            return True
        self.seen[id(obj)] = (len(self.seen), obj)
        return False

    def cls(self, cls: type) -> None:
        """A class: one's own by what is in it, others by name."""
        if not is_own(cls.__module__) or cls is type(None):
            self.text(b"c", f"{library(cls.__module__)} {cls.__qualname__}")
            return
        if self.watch is None:  # of a value: its class is hashed once
            self.put(b"C", _class_digest(cls))
            return
        self.own_class(cls)

    def own_class(self, cls: type) -> None:
        if self.is_known(cls):
            return
        members = dict(vars(cls))
        if self.watch is not None:
            self.watch.classes.append((cls, list(members.values())))
        self.text(b"C", cls.__qualname__)
        for base in cls.__bases__:
            self.cls(base)
        if issubclass(cls, enum.Enum):
            self.feed({name: member.value for name, member in cls.__members__.items()})
            members = {
                name: value for name, value in members.items() if isinstance(value, types.FunctionType | property)
            }
        for name in sorted(members):
            if name not in _CLASS_NOISE:
                self.text(b".", name)
                self.feed(members[name])

    def function(self, fn: types.FunctionType) -> None:
        own = is_own(fn.__module__)
        if not own:
            self.text(b"f", f"{library(fn.__module__)} {fn.__qualname__}")
            if fn.__closure__ is None:
                return
        if self.is_known(fn):
            return
        if self.watch is not None:
            self.watch.functions.append((fn, made_of(fn)))
        self.feed(fn.__defaults__)
        self.feed(fn.__kwdefaults__)
        for cell in fn.__closure__ or ():
            thing = contents(cell)
            if self.watch is not None:
                self.watch.cells.append((cell, *self.watched(thing)))
            self.feed("empty cell" if thing is MISSING else thing)
        if fn.__dict__:
            self.feed(fn.__dict__)
        if own:
            self.put(b"F")
            self.code(fn.__code__)
            self.scope(fn.__globals__, fn.__code__)

    def watched(self, thing: object) -> tuple[object, bytes | None]:
        """How to see later that a thing is the same: the thing, or the digest of its content."""
        if is_fixed(thing) or thing is MISSING:
            return thing, None
        digest = value_digest(thing)
        return (None, digest) if digest is not None else (object(), None)

    def code(self, code: types.CodeType) -> None:
        """Bytecode with its constants in place, so that their numbering does not count."""
        facts = facts_of(code)
        self.put(b"x", facts.digest)
        for const in facts.nested:
            self.code(const)
        for const in facts.odd:
            self.feed(const)

    def scope(self, scope: dict[str, Any], code: types.CodeType) -> None:
        """The globals that a function and those nested in it use."""
        facts = facts_of(code)
        for name in facts.globals:
            thing = scope.get(name, MISSING)
            if thing is MISSING:
                if not hasattr(builtins, name):
                    self.text(b"missing", name)
                continue
            if self.watch is not None:
                self.watch.globals.append((scope, name, *self.watched(thing)))
            self.text(b"G", name)
            if isinstance(thing, types.ModuleType) and is_own(thing.__name__):
                self.module_parts(thing, facts.attributes)
            else:
                self.feed(thing)
        for name in facts.imports:
            module = sys.modules.get(name)
            if module is not None and is_own(name):
                self.module_parts(module, facts.attributes)

    def module_parts(self, module: types.ModuleType, names: Iterable[str]) -> None:
        """What a function uses of a module of the user's own."""
        self.text(b"M", module.__name__)
        parts = vars(module)
        for name in names:
            if name in parts and not (name.startswith("__") and name.endswith("__")):
                thing = parts[name]
                if self.watch is not None:
                    self.watch.globals.append((parts, name, *self.watched(thing)))
                self.text(b".", name)
                if not isinstance(thing, types.ModuleType):
                    self.feed(thing)
                elif thing is not module and not self.is_known(thing):
                    self.module_parts(thing, names) if is_own(thing.__name__) else self.feed(thing)


class KnownBuffers(threading.local):
    """Buffers of what is packed in this thread: `find` says of an address and a size what counts in place of the bytes.

    Empty: it is not one of them, or it was, and what it belonged to is gone.
    """

    find: Callable[[int, int], bytes] | None = None


known_buffers = KnownBuffers()


def _known_buffer(array: Any) -> bytes:
    if known_buffers.find is None or not (array.flags.c_contiguous or array.flags.f_contiguous):
        return b""
    return known_buffers.find(array.__array_interface__["data"][0], array.nbytes)


def add_feeder(kind: type, feeder: Callable[[Sink, Any], None]) -> None:
    """Say how a type of ours is fed."""
    _FEEDERS[kind] = feeder


def _is_proxy(obj: object) -> bool:
    managers = sys.modules.get("multiprocessing.managers")
    return managers is not None and isinstance(obj, managers.BaseProxy)


def _is_numpy(obj: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(obj, (numpy.ndarray, numpy.generic))


def _is_plain_numpy(kind: type) -> bool:
    """Whether an array has nothing besides its type and what it holds, as masks and what other subclasses add to it."""
    package, _, inner = kind.__module__.partition(".")
    return package == "numpy" and inner.partition(".")[0] != "ma"


_CLASS_NOISE = frozenset(
    """__module__ __dict__ __weakref__ __doc__ __qualname__ __annotations__ __firstlineno__ __static_attributes__
    __abstractmethods__ _abc_impl __annotate__ __annotations_cache__""".split()  # noqa: SIM905 - as a list it fills a page
)

_classes: dict[int, tuple[type, bytes]] = {}


def _class_digest(cls: type) -> bytes:
    """The digest of a class of the user's own, computed once: classes of arguments do not change."""
    found = _classes.get(id(cls))
    if found is None or found[0] is not cls:
        digester = _Digester(Watch())
        digester.own_class(cls)
        found = _classes[id(cls)] = (cls, digester.hash.digest())
    return found[1]


_FEEDERS: dict[type, Callable[[_Digester, Any], None]] = {
    **FEEDERS,
    set: _Digester.unordered,
    frozenset: _Digester.unordered,
    types.FunctionType: _Digester.function,
    types.CodeType: _Digester.code,
}
_CONTAINERS = frozenset({list, tuple, dict, types.MappingProxyType, functools.partial, types.MethodType})
