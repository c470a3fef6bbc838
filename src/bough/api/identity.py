"""What a task computes, as a short digest: by it a later run finds work that is already done.

Functions count by their bytecode, constants, defaults, closures and the globals they use, followed
through the user's own modules; library code counts by its name and version. Values count by type and
content. Rules: no pickle bytes, no addresses, no line numbers, no docstrings, and the same digest in
every process; what cannot be told apart for certain has no digest (None) and is never reused.
"""

from __future__ import annotations

import array
import builtins
import copyreg
import datetime as dt
import decimal
import dis
import enum
import fractions
import functools
import logging
import marshal
import os
import pathlib
import sys
import sysconfig
import threading
import time
import types
import uuid
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, TypeGuard

import msgspec

from bough.model.commands import CommandCall, CommandTemplate
from bough.model.ids import MemoKey

SIZE = 16  # bytes of a digest
WHOLE = 16 << 20  # files up to this size count by their content

# --- whose code is it? --------------------------------------------------------------------------------

_LIBRARIES = tuple({os.path.realpath(path) + os.sep for path in sysconfig.get_paths().values() if path})
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_own: dict[str, tuple[object, bool]] = {}  # module name -> (the module, whether it is the user's)


def is_own(name: str | None) -> bool:
    """Whether a module is the user's own: `__main__`, or a source file beside the script or in the directory."""
    if name is None or name == "__main__":
        return True
    module = sys.modules.get(name)
    known = _own.get(name)
    if known is None or known[0] is not module:
        known = _own[name] = (module, module is not None and _lies_beside_script(module))
    return known[1]


def _lies_beside_script(module: object) -> bool:
    name = getattr(module, "__name__", "")
    if name in sys.builtin_module_names or name.partition(".")[0] == "bough":
        return False
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith((".py", ".pyc")):
        return False
    path = os.path.realpath(file)
    if path.startswith(_LIBRARIES) or any(part in path for part in _INSTALLED):
        return False
    places = [os.getcwd()]
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if isinstance(script, str):
        places.append(os.path.dirname(os.path.abspath(script)))
    return any(path.startswith(os.path.join(os.path.realpath(place), "")) for place in places)


def _library(name: str | None) -> str:
    """A library module by name and, if it says so itself, version."""
    if not name:
        return ""
    version = getattr(sys.modules.get(name.partition(".")[0]), "__version__", "")
    return f"{name} {version}" if isinstance(version, str) else name


# --- values -------------------------------------------------------------------------------------------


class _NoDigestError(Exception):
    """Something met on the way cannot be told apart from others of its kind."""


_SIMPLE: frozenset[type] = frozenset({int, float, str, bytes, bool, complex, type(None)})
_is_simple = _SIMPLE.issuperset
_FLAT: frozenset[type] = frozenset({tuple, list})


def value_digest(obj: object) -> bytes | None:
    """The digest of a value, or None if it has none (an open file, a lock, a generator)."""
    kind = type(obj)
    if kind in _FLAT and _is_simple(map(type, obj)):  # type: ignore[call-overload]
        # version 2 knows neither references nor interned strings: equal values, equal bytes
        return blake2b(marshal.dumps(obj, 2), digest_size=SIZE).digest()  # type: ignore[arg-type]
    return _digest(obj, None)


def _digest(obj: object, watch: _Watch | None) -> bytes | None:
    digester = _Digester(watch)
    try:
        digester.feed(obj)
    except _NoDigestError:
        return None
    except Exception:  # noqa: BLE001 - a strange object must not keep its task from running
        return None
    return digester.hash.digest()


class _Watch:
    """What a function's digest was made of, to see cheaply whether it still holds."""

    __slots__ = ("cells", "classes", "functions", "globals")

    def __init__(self) -> None:
        self.globals: list[tuple[dict[str, Any], str, object, bytes | None]] = []
        self.cells: list[tuple[types.CellType, object, bytes | None]] = []
        self.functions: list[tuple[types.FunctionType, tuple[Any, ...]]] = []
        self.classes: list[tuple[type, list[Any]]] = []

    def holds(self) -> bool:
        for scope, name, thing, digest in self.globals:
            now = scope.get(name, _MISSING)
            if now is not thing if digest is None else value_digest(now) != digest:
                return False
        for cell, thing, digest in self.cells:
            now = _contents(cell)
            if now is not thing if digest is None else value_digest(now) != digest:
                return False
        return all(_same(_made_of(fn), parts) for fn, parts in self.functions) and all(
            _same(list(vars(cls).values()), parts) for cls, parts in self.classes
        )


_MISSING = object()


def _contents(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled in yet
        return _MISSING


def _made_of(fn: types.FunctionType) -> tuple[Any, ...]:
    return (fn.__code__, fn.__defaults__, fn.__kwdefaults__, fn.__closure__, *fn.__dict__.values())


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def _is_fixed(obj: object) -> bool:
    """Whether being the same object means being the same value, given that functions and classes are watched."""
    return type(obj) in _SIMPLE or isinstance(obj, _FIXED) or (callable(obj) and hasattr(obj, "__wrapped__"))


_FIXED = (types.FunctionType, types.BuiltinFunctionType, type, types.ModuleType, logging.Logger)


class _Digester:
    """Feeds objects into one hash, each with a tag of its type."""

    def __init__(self, watch: _Watch | None = None) -> None:
        self.hash = blake2b(digest_size=SIZE)
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
        if kind in _SIMPLE or (kind in _FLAT and _is_simple(map(type, obj))):
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
        elif isinstance(obj, pathlib.PurePath):
            self.text(b"P" + kind.__name__.encode(), str(obj))
        elif _is_numpy(obj):
            self.inside(_Digester.numpy, obj)
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

    def items(self, obj: Iterable[Any]) -> None:
        items = list(obj)
        self.put(type(obj).__name__.encode(), b"%d" % len(items))
        for item in items:
            self.feed(item)

    def mapping(self, obj: Any) -> None:
        self.put(b"d", b"%d" % len(obj))
        for key, value in obj.items():
            self.feed(key)
            self.feed(value)

    def unordered(self, obj: Iterable[Any]) -> None:
        digests = [value_digest(item) for item in obj]
        if None in digests:
            raise _NoDigestError
        self.put(type(obj).__name__.encode(), b"".join(sorted(d for d in digests if d)))

    def numpy(self, obj: Any) -> None:
        dtype = obj.dtype
        self.text(b"n" + type(obj).__name__.encode(), f"{dtype.descr if dtype.names else dtype.str} {obj.shape}")
        if dtype.hasobject:
            self.feed(obj.tolist())
        elif obj.ndim == 0:
            self.put(b"n", obj.tobytes())
        else:
            whole = obj if obj.flags.c_contiguous else obj.copy(order="C")
            self.hash.update(whole.reshape(-1).view("u1").data if whole.size else b"")

    def other(self, obj: Any) -> None:
        """Anything that says how it is made again: by class and state."""
        kind = type(obj)
        reducer = copyreg.dispatch_table.get(kind)
        try:
            parts = reducer(obj) if reducer else obj.__reduce_ex__(4)
        except Exception as error:  # it says that it cannot be copied, in whatever way
            raise _NoDigestError from error
        if isinstance(parts, str):
            self.text(b"g", f"{_library(getattr(obj, '__module__', ''))} {parts}")
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
            self.text(b"c", f"{_library(cls.__module__)} {cls.__qualname__}")
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
            self.text(b"f", f"{_library(fn.__module__)} {fn.__qualname__}")
            if fn.__closure__ is None:
                return
        if self.is_known(fn):
            return
        if self.watch is not None:
            self.watch.functions.append((fn, _made_of(fn)))
        self.feed(fn.__defaults__)
        self.feed(fn.__kwdefaults__)
        for cell in fn.__closure__ or ():
            thing = _contents(cell)
            if self.watch is not None:
                self.watch.cells.append((cell, *self.watched(thing)))
            self.feed("empty cell" if thing is _MISSING else thing)
        if fn.__dict__:
            self.feed(fn.__dict__)
        if own:
            self.put(b"F")
            self.code(fn.__code__)
            self.scope(fn.__globals__, fn.__code__)

    def watched(self, thing: object) -> tuple[object, bytes | None]:
        """How to see later that a thing is the same: the thing, or the digest of its content."""
        if _is_fixed(thing) or thing is _MISSING:
            return thing, None
        digest = value_digest(thing)
        return (None, digest) if digest is not None else (object(), None)

    def code(self, code: types.CodeType) -> None:
        """Bytecode with its constants in place, so that their numbering does not count."""
        facts = _facts(code)
        self.put(b"x", facts.digest)
        for const in facts.nested:
            self.code(const)
        for const in facts.odd:
            self.feed(const)

    def scope(self, scope: dict[str, Any], code: types.CodeType) -> None:
        """The globals that a function and those nested in it use."""
        facts = _facts(code)
        for name in facts.globals:
            thing = scope.get(name, _MISSING)
            if thing is _MISSING:
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


def _is_numpy(obj: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(obj, (numpy.ndarray, numpy.generic))


_CLASS_NOISE = frozenset(
    """__module__ __dict__ __weakref__ __doc__ __qualname__ __annotations__ __firstlineno__ __static_attributes__
    __abstractmethods__ _abc_impl __annotate__ __annotations_cache__""".split()  # noqa: SIM905 - as a list it fills a page
)

_classes: dict[int, tuple[type, bytes]] = {}


def _class_digest(cls: type) -> bytes:
    """The digest of a class of the user's own, computed once: classes of arguments do not change."""
    found = _classes.get(id(cls))
    if found is None or found[0] is not cls:
        digester = _Digester(_Watch())
        digester.own_class(cls)
        found = _classes[id(cls)] = (cls, digester.hash.digest())
    return found[1]


class _CodeFacts:
    """What a code object says, worked out once."""

    __slots__ = ("attributes", "digest", "globals", "imports", "nested", "odd")

    def __init__(self, code: types.CodeType) -> None:
        self.nested: list[types.CodeType] = []  # code in it, in order of use
        self.odd: list[Any] = []  # constants that marshal does not write: frozensets
        self.attributes: tuple[str, ...]
        self.globals: tuple[str, ...]
        self.imports: tuple[str, ...]
        names: set[str] = set()
        imports: set[str] = set()
        stream: list[Any] = [
            (
                code.co_name,
                code.co_argcount,
                code.co_posonlyargcount,
                code.co_kwonlyargcount,
                code.co_flags & ~_DOC_FLAG,
            ),
            (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
            getattr(code, "co_exceptiontable", b""),
        ]
        arg = 0
        raw = code.co_code
        for at in range(0, len(raw), 2):
            op, arg = raw[at], arg << 8 | raw[at + 1]
            if op == dis.EXTENDED_ARG:
                continue
            if op in _TAKES_CONST:
                stream.append((op, self._const(code.co_consts[arg])))
            else:
                stream.append(op << 32 | arg)
                if op == _LOAD_GLOBAL:
                    names.add(code.co_names[arg >> _GLOBAL_SHIFT])
                elif op == _LOAD_NAME:
                    names.add(code.co_names[arg])
                elif op == _IMPORT_NAME:
                    imports.add(code.co_names[arg])
            arg = 0
        self.attributes = tuple(sorted({*code.co_names, *(n for c in self.nested for n in _facts(c).attributes)}))
        self.globals = tuple(sorted(names.union(*(_facts(c).globals for c in self.nested))))
        self.imports = tuple(sorted(imports.union(*(_facts(c).imports for c in self.nested))))
        self.digest = blake2b(marshal.dumps(stream, 2), digest_size=SIZE).digest()

    def _const(self, const: Any) -> Any:
        if isinstance(const, types.CodeType):
            self.nested.append(const)
            return "code"
        if type(const) in _SIMPLE:
            return const
        self.odd.append(const)
        return "constant"


_TAKES_CONST = frozenset(dis.hasconst)
_LOAD_GLOBAL = dis.opmap["LOAD_GLOBAL"]
_LOAD_NAME = dis.opmap["LOAD_NAME"]
_IMPORT_NAME = dis.opmap["IMPORT_NAME"]
_GLOBAL_SHIFT = 1  # since 3.11 the lowest bit says something else
_DOC_FLAG = 0x4000000  # since 3.13

_code_facts: dict[types.CodeType, _CodeFacts] = {}


def _facts(code: types.CodeType) -> _CodeFacts:
    found = _code_facts.get(code)
    if found is None:
        if len(_code_facts) > 4096:
            _code_facts.clear()
        found = _code_facts[code] = _CodeFacts(code)
    return found


def _method(self: _Digester, obj: types.MethodType) -> None:
    self.feed(obj.__func__)
    self.feed(obj.__self__)


def _builtin(self: _Digester, obj: types.BuiltinFunctionType) -> None:
    owner = obj.__self__
    self.text(b"b", f"{_library(obj.__module__)} {obj.__qualname__}")
    if owner is not None and not isinstance(owner, types.ModuleType):
        self.feed(owner)


def _partial(self: _Digester, obj: functools.partial[Any]) -> None:
    self.put(b"partial")
    self.feed(obj.func)
    self.feed(obj.args)
    self.feed(obj.keywords)


def _wrapper(self: _Digester, obj: Any) -> None:
    self.text(b"w", type(obj).__name__)
    self.feed(obj.__func__)


def _property(self: _Digester, obj: property) -> None:
    self.put(b"property")
    for part in (obj.fget, obj.fset, obj.fdel):
        self.feed(part)


def _named(self: _Digester, obj: Any) -> None:
    self.text(b"N", f"{type(obj).__name__} {obj.__qualname__}")


def _shown(self: _Digester, obj: Any) -> None:
    self.text(b"R" + type(obj).__name__.encode(), repr(obj))


def _instant(self: _Digester, obj: dt.datetime | dt.time) -> None:
    self.text(b"R" + type(obj).__name__.encode(), f"{obj.replace(tzinfo=None).isoformat()} {obj.fold}")
    self.feed(obj.tzinfo)


def _raw(self: _Digester, obj: bytearray | memoryview) -> None:
    self.put(type(obj).__name__.encode(), bytes(obj))


def _array(self: _Digester, obj: array.array[Any]) -> None:
    self.put(b"a" + obj.typecode.encode(), obj.tobytes())


def _refused(self: _Digester, obj: object) -> None:
    raise _NoDigestError(type(obj).__name__)


_FEEDERS: dict[type, Callable[[_Digester, Any], None]] = {
    list: _Digester.items,
    tuple: _Digester.items,
    dict: _Digester.mapping,
    types.MappingProxyType: _Digester.mapping,
    set: _Digester.unordered,
    frozenset: _Digester.unordered,
    types.FunctionType: _Digester.function,
    types.CodeType: _Digester.code,
    types.ModuleType: lambda self, obj: self.text(b"M", _library(obj.__name__)),
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    functools.partial: _partial,
    functools.cached_property: lambda self, obj: self.feed(obj.func),
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
    logging.Logger: lambda self, obj: self.text(b"L", obj.name),
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
_CONTAINERS = frozenset({list, tuple, dict, types.MappingProxyType, functools.partial, types.MethodType})

# --- functions and calls ------------------------------------------------------------------------------

_functions: dict[int, tuple[types.FunctionType, _Watch, MemoKey | None]] = {}
_lock = threading.Lock()


def function_key(fn: Callable[..., Any]) -> MemoKey | None:
    """What a function computes, or None if something it uses has no digest."""
    if type(fn) is not types.FunctionType:
        digest = _digest(fn, _Watch())
        return None if digest is None else MemoKey(digest)
    known = _functions.get(id(fn))
    if known is not None and known[0] is fn and known[1].holds():
        return known[2]
    watch = _Watch()
    digest = _digest(fn, watch)
    key = None if digest is None else MemoKey(digest)
    if key is None:
        _functions.pop(id(fn), None)
    elif not any(_is_heavy(thing) for _, thing, _ in watch.cells):
        with _lock:
            if len(_functions) >= 512:  # the oldest goes: closures made in a loop must not pile up
                _functions.pop(next(iter(_functions)))
            _functions[id(fn)] = (fn, watch, key)
    return key


def _is_heavy(thing: object) -> TypeGuard[str | bytes]:
    return isinstance(thing, str | bytes) and len(thing) > 4096


def call_key(function: MemoKey | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> MemoKey | None:
    """The memo key of a call: function and arguments; the order of keyword arguments does not count."""
    if function is None:
        return None
    positional = value_digest(args)
    named = value_digest(sorted(kwargs.items())) if kwargs else b""
    if positional is None or named is None:
        return None
    return MemoKey(blake2b(function + positional + named, digest_size=SIZE).digest())


# --- commands and files -------------------------------------------------------------------------------

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def command_key(call: CommandCall, reads: Iterable[tuple[str, bytes]] = (), base: str = "") -> MemoKey:
    """The memo key of a command: what is run and where, what it declares, and the identities of what it reads.

    `reads` are pairs of absolute path and identity, empty for a file that a task makes: that counts by
    its producer. Paths count relative to `base`, the session's directory, so that a moved folder is the same.
    """
    settings = call.settings
    writes = {slot: _relative(path, base) for slot, path in call.writes.items()}
    seen = [(_relative(path, base), identity) for path, identity in reads]
    what = ("call", call.parts, call.argv, writes, seen, settings.shell, settings.env, settings.stdin)
    where = (_relative(settings.cwd, base), _relative(settings.stdin_path, base))
    return MemoKey(blake2b(_encode((what, where)), digest_size=SIZE).digest())


def template_key(template: CommandTemplate, base: str = "") -> MemoKey:
    """The key of the body of a command array, without its rows."""
    settings = template.settings
    what = ("template", template.parts, template.names, template.derived, settings.shell, settings.env, settings.stdin)
    where = (_relative(settings.cwd, base), _relative(settings.stdin_path, base))
    return MemoKey(blake2b(_encode((what, where)), digest_size=SIZE).digest())


def _relative(path: str, base: str) -> str:
    if not path or not base:
        return path
    if path == base:
        return "."
    return path[len(base) + 1 :] if path.startswith(base.rstrip("/") + "/") else path


_files: dict[str, tuple[tuple[int, int, int], bytes]] = {}


def file_identity(path: str) -> bytes | None:
    """What a file holds: a digest of its content, for big ones of size and time; None if it is not there."""
    try:
        state = os.stat(path)
        if os.path.isdir(path):
            return _folder_identity(path)
        stamp = (state.st_size, state.st_mtime_ns, state.st_ino)
        known = _files.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        if state.st_size > WHOLE or not os.path.isfile(path):
            identity = blake2b(b"%d %d" % stamp[:2], digest_size=SIZE, person=b"stat").digest()
        else:
            with open(path, "rb") as file:
                identity = blake2b(file.read(), digest_size=SIZE).digest()
    except (FileNotFoundError, NotADirectoryError):
        return None
    # one written a moment ago may change again without its time stamp moving
    if time.time_ns() - state.st_mtime_ns > 50_000_000:
        if len(_files) >= 100_000:
            _files.clear()
        _files[path] = (stamp, identity)
    return identity


def _folder_identity(path: str) -> bytes:
    digest = blake2b(digest_size=SIZE, person=b"folder")
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            state = os.lstat(os.path.join(folder, name))
            line = f"{os.path.relpath(folder, path)}/{name} {state.st_size} {state.st_mtime_ns}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.digest()
