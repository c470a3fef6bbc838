"""What a task computes, as a memo key: by it a later run finds work that is already done.

A call counts by its function and arguments, a command by its words, settings and the files it reads. A `Path` among
the arguments of a call counts by what its file holds, as a declared input of a command does (`file_identities`).

Rule: a task of which something has no digest has no key (None), and is never reused.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, TypeGuard

import msgspec

from bough.api.memo.decorator import is_memo
from bough.api.memo.digests import argument_digest, digest, value_digest
from bough.api.memo.function_code import Watch
from bough.model.commands.command import CommandCall, CommandSettings, CommandTemplate, encode_call
from bough.model.ids import DIGEST_SIZE, BlobId, MemoKey
from bough.model.refs import pack_marked, pack_simple

# --- functions and calls ------------------------------------------------------------------------------

_functions: dict[int, Known] = {}
_lock = threading.Lock()


class Known:
    """A function that has a key, for as long as nothing it is made of changes."""

    __slots__ = ("_seed", "_watch", "blob", "fn", "is_memo", "key")

    def __init__(self, fn: types.FunctionType, watch: Watch, key: MemoKey) -> None:
        self.fn = fn
        self.key = key
        self.is_memo = is_memo(fn)  # a mark that is set later changes the function, and so makes another one of this
        self.blob: tuple[BlobId, bytes] | None = None  # for `packing`: the function as it travels
        self._watch = watch
        self._seed = _seed(key)

    def holds(self, fn: object) -> bool:
        """Whether this is about a function, as it is now."""
        return self.fn is fn and self._watch.holds(value_digest)

    def call_key(self, args: tuple[Any, ...], kwargs: dict[str, Any], short: bytes | None = None) -> MemoKey | None:
        """The memo key of a call; `short`: its arguments as `refs` has packed them, if it can."""
        return _call_key(self._seed.copy(), args, kwargs) if short is None else self.short_key(short)

    def short_key(self, short: bytes) -> MemoKey:
        """The memo key of a call whose arguments are packed already, by `refs`."""
        seed = self._seed.copy()
        seed.update(short)
        return MemoKey(seed.digest())


def known_call(fn: types.FunctionType, short: bytes | None) -> tuple[Known | None, MemoKey | None]:
    """What is known of a function now, and the memo key of a call whose arguments are packed already, if they are."""
    known = known_function(fn)
    return known, None if known is None or short is None else known.short_key(short)


def known_function(fn: types.FunctionType) -> Known | None:
    """What is known of a function now; None if something it uses has no digest."""
    known = _functions.get(id(fn))
    if known is not None and known.holds(fn):
        return known
    watch = Watch()
    found = digest(fn, watch)
    if found is None:
        _functions.pop(id(fn), None)
        return None
    known = Known(fn, watch, MemoKey(found))
    if not any(_is_heavy(thing) for _, thing, _ in watch.cells):
        with _lock:
            if len(_functions) >= 512:  # the oldest goes: closures made in a loop must not pile up
                _functions.pop(next(iter(_functions)))
            _functions[id(fn)] = known
    return known


def function_key(fn: Callable[..., Any]) -> MemoKey | None:
    """What a function computes, or None if something it uses has no digest."""
    if type(fn) is types.FunctionType:
        known = known_function(fn)
        return None if known is None else known.key
    found = digest(fn, Watch())
    return None if found is None else MemoKey(found)


def _is_heavy(thing: object) -> TypeGuard[str | bytes]:
    return isinstance(thing, str | bytes) and len(thing) > 4096


def call_key(function: MemoKey | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> MemoKey | None:
    """The memo key of a call: function and arguments; the order of keyword arguments does not count."""
    return None if function is None else _call_key(_seed(function), args, kwargs)


def _seed(function: MemoKey) -> blake2b:
    """The beginning of the digests of all calls of a function."""
    return blake2b(function, digest_size=DIGEST_SIZE, person=b"call")


def _call_key(seed: blake2b, args: tuple[Any, ...], kwargs: dict[str, Any]) -> MemoKey | None:
    short = (pack_simple(args) or pack_marked(args)) if not kwargs else None
    if short is not None:  # most calls: one digest will do, and the first byte says so
        seed.update(short)
        return MemoKey(seed.digest())
    positional = argument_digest(args)
    named = argument_digest(sorted(kwargs.items())) if kwargs else b""
    if positional is None or named is None:
        return None
    seed.update(b"d" + positional + named)
    return MemoKey(seed.digest())


# --- commands -----------------------------------------------------------------------------------------

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_NONE = _encode([])
_CALL = b"\x92\x98" + _encode("call")  # how what is settled of a call begins: a pair, the first of it with 8 parts


def command_key(call: CommandCall, reads: Iterable[tuple[str, bytes]] = (), base: str = "") -> MemoKey:
    """The memo key of a command: what is run and where, what it declares, and the identities of what it reads.

    `reads` are pairs of absolute path and identity, empty for a file that a task makes: that counts by
    its producer. Paths count relative to `base`, the session's directory, so that a moved folder is the same.
    """
    writes = {slot: _relative(path, base) for slot, path in call.writes.items()}
    seen = [(_relative(path, base), identity) for path, identity in reads]
    beside = ([_relative(path, base) for path in call.patterns],) if call.patterns else ()
    if call.settings.playpen:
        moved = [(one.kind, _relative(one.local, base), one.remote, one.when) for one in call.transfers]
        beside = (*beside, ["playpen", *moved])
    return _settled(("call", call.parts, call.argv, writes, seen, *beside), call.settings, base)


class Alike:
    """Commands that declare no files and have the same settings: their payloads and keys, from the commands alone.

    What they have in common is encoded once; a payload is what `encode_call` makes, a key what `command_key` does.
    """

    __slots__ = ("_argv", "_key_head", "_key_tail", "_parts")

    encode = staticmethod(_encode)

    def __init__(self, settings: CommandSettings, base: str = "") -> None:
        self._parts = encode_call(CommandCall(settings, parts=[""]))[: -len(_encode([""]))]
        self._argv = encode_call(CommandCall(settings, argv=[[""]]))[: -len(_encode([[""]]))]
        whole = _settling(("call", [], [], {}, []), settings, base)
        self._key_head, rest = whole[: len(_CALL)], whole[len(_CALL) :]
        self._key_tail = rest[2 * len(_NONE) :]
        assert whole == _CALL + 2 * _NONE + self._key_tail

    def payload(self, body: bytes, *, is_text: bool) -> bytes:
        """The encoded call of an encoded command: the parts of a text, or the words."""
        return (self._parts if is_text else self._argv) + body

    def key(self, body: bytes, *, is_text: bool) -> MemoKey:
        """Its memo key."""
        what = body + _NONE if is_text else _NONE + body
        return MemoKey(blake2b(self._key_head + what + self._key_tail, digest_size=DIGEST_SIZE).digest())


def template_key(template: CommandTemplate, base: str = "") -> MemoKey:
    """The key of the body of a command array, without its rows."""
    beside: tuple[object, ...] = (template.inputs, template.outputs) if template.inputs or template.outputs else ()
    if template.transfers:
        beside = (*beside, ["playpen", *template.transfers])
    return _settled(("template", template.parts, template.names, template.derived, *beside), template.settings, base)


def _settled(what: tuple[object, ...], settings: CommandSettings, base: str) -> MemoKey:
    """The key of something that is run with these settings."""
    return MemoKey(blake2b(_settling(what, settings, base), digest_size=DIGEST_SIZE).digest())


def _settling(what: tuple[object, ...], settings: CommandSettings, base: str) -> bytes:
    what = (*what, settings.shell, settings.env, settings.stdin)
    where: tuple[str, ...] = (_relative(settings.cwd, base), _relative(settings.stdin_path, base))
    if settings.setup or settings.container:  # most have neither: their keys are as they were before there were any
        where = (*where, settings.setup, settings.container)
    if settings.teardown or settings.environment:
        where = (*where, "after", settings.teardown, _relative(settings.environment, base))
    return _encode((what, where))


def _relative(path: str, base: str) -> str:
    if not path or not base:
        return path
    if path == base:
        return "."
    return path[len(base) + 1 :] if path.startswith(base.rstrip("/") + "/") else path
