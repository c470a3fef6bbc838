"""What a task computes, as a memo key: by it a later run finds work that is already done.

A call counts by its function and arguments, a command by its words, settings and the files it reads.
Rule: a task of which something has no digest has no key (None), and is never reused.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, TypeGuard

import msgspec

from bough.api.digests import digest, value_digest
from bough.api.watch import Watch
from bough.model.commands import CommandCall, CommandSettings, CommandTemplate
from bough.model.ids import DIGEST_SIZE, MemoKey

# --- functions and calls ------------------------------------------------------------------------------

_functions: dict[int, tuple[types.FunctionType, Watch, MemoKey | None]] = {}
_lock = threading.Lock()


def function_key(fn: Callable[..., Any]) -> MemoKey | None:
    """What a function computes, or None if something it uses has no digest."""
    if type(fn) is not types.FunctionType:
        found = digest(fn, Watch())
        return None if found is None else MemoKey(found)
    known = _functions.get(id(fn))
    if known is not None and known[0] is fn and known[1].holds(value_digest):
        return known[2]
    watch = Watch()
    found = digest(fn, watch)
    key = None if found is None else MemoKey(found)
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
    return MemoKey(blake2b(function + positional + named, digest_size=DIGEST_SIZE).digest())


# --- commands -----------------------------------------------------------------------------------------

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def command_key(call: CommandCall, reads: Iterable[tuple[str, bytes]] = (), base: str = "") -> MemoKey:
    """The memo key of a command: what is run and where, what it declares, and the identities of what it reads.

    `reads` are pairs of absolute path and identity, empty for a file that a task makes: that counts by
    its producer. Paths count relative to `base`, the session's directory, so that a moved folder is the same.
    """
    writes = {slot: _relative(path, base) for slot, path in call.writes.items()}
    seen = [(_relative(path, base), identity) for path, identity in reads]
    return _settled(("call", call.parts, call.argv, writes, seen), call.settings, base)


def template_key(template: CommandTemplate, base: str = "") -> MemoKey:
    """The key of the body of a command array, without its rows."""
    return _settled(("template", template.parts, template.names, template.derived), template.settings, base)


def _settled(what: tuple[object, ...], settings: CommandSettings, base: str) -> MemoKey:
    """The key of something that is run with these settings."""
    what = (*what, settings.shell, settings.env, settings.stdin)
    where = (_relative(settings.cwd, base), _relative(settings.stdin_path, base))
    return MemoKey(blake2b(_encode((what, where)), digest_size=DIGEST_SIZE).digest())


def _relative(path: str, base: str) -> str:
    if not path or not base:
        return path
    if path == base:
        return "."
    return path[len(base) + 1 :] if path.startswith(base.rstrip("/") + "/") else path
