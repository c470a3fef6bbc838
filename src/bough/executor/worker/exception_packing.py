"""An exception of the user's as bytes that the client can make it again from, whatever its class does.

Most exceptions pickle well. One that does not (its `__init__` takes other arguments than it passes on, its `__reduce__`
raises, an attribute is a lock) is taken apart: class, arguments and attributes are packed one by one, and the client
puts them together without calling `__init__`. What cannot travel is left out, and the exception that arrives says so.

Rules: whatever a function raises, bytes of bounded length come out, or none; none of the user's code that runs for it
can end the worker. `api.futures.remote_exceptions` reads what is written here.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Final

from bough.executor.worker.call_text import show_values

_MOST: Final = 32 << 20  # bytes of an exception: a bigger one is taken apart
_MOST_PART: Final = 1 << 20  # bytes of one argument or attribute of one that is taken apart
_MOST_TEXT: Final = 100_000  # characters of a message
_DEPTH: Final = 8  # of causes, and of groups inside each other
_MEMBERS: Final = 100  # of a group that are taken apart
_STATIC: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: not set for classes that are part of the interpreter
_HEAD, _TAIL = 2000, 6000  # characters of a traceback that are kept when it is long

Pack = Callable[[object], bytes]
Parts = dict[str, Any]


class RemoteTraceback(Exception):
    """Carries the text of a traceback from the process where it happened."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        """The traceback, set off from the line Python prints before it."""
        return f'\n"""\n{self.text}"""'


def pack_exception(error: BaseException, pack: Pack) -> bytes:
    """The exception with its causes; `pack` pickles a value so that it loads in the client."""
    try:
        data = pickle.dumps(_parts(error, pack, 0), 5)
    except BaseException:  # noqa: BLE001 -- attributes of exceptions are the user's code
        return b""
    return data if len(data) <= 2 * _MOST else b""


def _parts(error: BaseException, pack: Pack, depth: int) -> Parts:
    kind = type(error)
    parts: Parts = {
        "place": (kind.__module__, kind.__qualname__),
        "base": static_base(kind).__name__,
        "text": _text(error),
    }
    packed, why = _whole(error, pack)
    if packed:
        parts["whole"] = packed
    else:
        parts |= _taken_apart(error, pack, depth, why)
    if depth < _DEPTH:
        if error.__cause__ is not None:
            parts["cause"] = _parts(error.__cause__, pack, depth + 1)
        elif error.__context__ is not None and not error.__suppress_context__:
            parts["context"] = _parts(error.__context__, pack, depth + 1)
    if error.__suppress_context__:
        parts["suppress"] = True
    return parts


def _whole(error: BaseException, pack: Pack) -> tuple[bytes, str]:
    """The exception in one pickle, if that gives the same back; else why not."""
    try:
        data = pack(error)
        again = pickle.loads(data)  # many exceptions pickle well and cannot be made again
        if len(data) > _MOST:
            return b"", f"it is too big ({len(data)} bytes)"
        if type(again).__qualname__ != type(error).__qualname__ or _text(again) != _text(error):
            return b"", "its copy is different"
    except BaseException as problem:  # noqa: BLE001 -- the user's __reduce__ and __init__ may raise anything
        return b"", f"{type(problem).__name__}: {_text(problem)}"[:300]
    return data, ""


def _taken_apart(error: BaseException, pack: Pack, depth: int, why: str) -> Parts:
    base = static_base(type(error))
    reduced: Any = base.__reduce__(error)
    args = reduced[1] if len(reduced) > 1 and isinstance(reduced[1], tuple) else error.args
    state = dict(reduced[2]) if len(reduced) > 2 and isinstance(reduced[2], dict) else dict(vars(error))
    parts: Parts = {"why": why, "left": []}
    try:
        parts["kind"] = pack(type(error))
    except BaseException as problem:  # noqa: BLE001 -- as above
        parts["class_why"] = f"{type(problem).__name__}: {_text(problem)}"[:300]
    if isinstance(error, BaseExceptionGroup) and depth < _DEPTH:
        parts["message"] = str(error.message)[:_MOST_TEXT]
        parts["members"] = [_parts(one, pack, depth + 1) for one in error.exceptions[:_MEMBERS]]
        if len(error.exceptions) > _MEMBERS:
            parts["left"].append(f"{len(error.exceptions) - _MEMBERS} of its exceptions")
    else:
        parts["args"] = [_part(f"argument {at}", value, pack, parts["left"]) for at, value in enumerate(args)]
    named = {name: _part(f"attribute {name}", value, pack, parts["left"], b"") for name, value in state.items()}
    parts["state"] = {name: data for name, data in named.items() if data}
    return parts


def _part(what: str, value: object, pack: Pack, left: list[str], instead: bytes | None = None) -> bytes:
    """One argument or attribute; its text stands for an argument that cannot travel."""
    try:
        data = pack(value)
        pickle.loads(data)
        if len(data) <= _MOST_PART:
            return data
        left.append(f"{what} ({len(data)} bytes)")
    except BaseException:  # noqa: BLE001 -- as above
        left.append(f"{what} (a {type(value).__qualname__})")
    return pickle.dumps(show_values([("", value)]), 5) if instead is None else instead


def static_base(kind: type[BaseException]) -> type[BaseException]:
    """The first class above that is part of the interpreter, such as OSError: only it knows how its parts are made."""
    for one in kind.__mro__:
        if issubclass(one, BaseException) and not one.__flags__ & _STATIC:
            return one
    return BaseException


def _text(error: BaseException) -> str:
    try:
        text = str(error)[:_MOST_TEXT]
    except BaseException:  # noqa: BLE001 -- __str__ is the user's
        return ""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def traceback_text(error: BaseException, ours: frozenset[str]) -> str:
    """The traceback from the user's first frame on; `ours` are files whose frames come before it."""
    import traceback

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, trace))
    except BaseException:  # noqa: BLE001 -- it calls the user's __str__
        try:
            text = "".join(traceback.format_tb(trace)) + f"{type(error).__qualname__}\n"
        except BaseException:  # noqa: BLE001 -- a source file that cannot be decoded
            return ""
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n[... {len(text) - _HEAD - _TAIL} characters ...]\n{text[-_TAIL:]}"
    return text.encode(errors="backslashreplace").decode()
