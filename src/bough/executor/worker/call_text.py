"""What a task was called with, as a short text for people: arguments of a function, values of a sweep.

It is made on the worker when a task fails, of objects that are the user's. Rule: whatever their classes do (a
`__repr__` that raises, or never ends), a line of bounded length comes out, and the task's own failure is told.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from types import FrameType
from typing import Any, Final

MOST: Final = 1000  # characters of a line
_VALUE: Final = 120  # characters of one value
_ITEMS: Final = 6  # of a collection that are shown
_DEPTH: Final = 3  # of collections inside each other
_STEPS: Final = 100_000  # instructions of the user's code that may run for it
_BITS: Final = 512  # of a number that is shown in digits
_PLAIN: Final = frozenset({float, complex, bool, type(None), range})


class _TooLong(BaseException):
    """The user's code took too many steps."""


def show_call(function: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The arguments of a call, by name as far as the function tells names: "n=3, colour='red'"."""
    from bough.model.spaces import RowCall  # late: only failures need it

    if isinstance(function, RowCall) and len(args) == 1:
        return show_values(zip(function.names, args[0], strict=False))
    names = _names(function)
    pairs = [(names[at] if at < len(names) else "", value) for at, value in enumerate(args)]
    return show_values([*pairs, *kwargs.items()])


def show_values(pairs: Iterable[tuple[str, Any]]) -> str:
    """Values with their names, as in "n=3, colour='red'"; one without a name stands alone."""
    parts: list[str] = []
    room = MOST
    for name, value in pairs:
        part = f"{name}={_guarded(value)}" if name else _guarded(value)
        room -= len(part) + 2
        if room < 0:
            parts.append("...")
            break
        parts.append(part)
    return _sendable(", ".join(parts)[: MOST + 8])


def _sendable(text: str) -> str:
    """In one line, and without half characters, which cannot be sent."""
    line = text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)
    return line.encode(errors="backslashreplace").decode()


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", errors="backslashreplace").decode()


def _names(function: object) -> tuple[str, ...]:
    """The names of positional parameters, as the function's code has them."""
    for _ in range(10):
        code = getattr(function, "__code__", None)
        if (code is None or not code.co_argcount) and hasattr(function, "__wrapped__"):
            function = function.__wrapped__
            continue
        if code is None:
            return ()
        bound = 1 if getattr(function, "__self__", None) is not None else 0
        names: tuple[str, ...] = code.co_varnames[bound : code.co_argcount]
        return names
    return ()


def _guarded(value: object) -> str:
    """A value as text, whatever its class does; the user's code has a budget of steps."""
    before = sys.gettrace()
    left = _STEPS

    def count(frame: FrameType, _event: str, _arg: object) -> Callable[..., Any]:
        nonlocal left
        frame.f_trace_opcodes = True  # a loop in one line has no other events
        left -= 1
        if left < 0:
            raise _TooLong
        return count

    try:
        sys.settrace(count)
        return _cut(_show(value, 0))
    except BaseException:  # noqa: BLE001 -- the user's code may raise anything, and it is a detail of a failure
        return f"<{type(value).__qualname__} object>"
    finally:
        sys.settrace(before)


def _cut(text: str, most: int = _VALUE) -> str:
    return text if len(text) <= most else f"{text[: most * 2 // 3]}...{text[-most // 4 :]}"


def _show(value: Any, depth: int) -> str:
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)
    if kind is str or kind is bytes:
        half = _VALUE // 2
        return repr(value) if len(value) <= _VALUE else f"{value[:half]!r}...{value[-half // 2 :]!r}"
    if kind is int:
        return repr(value) if value.bit_length() <= _BITS else f"<int of {value.bit_length()} bits>"
    if kind in _BRACKETS:
        return _show_items(value, depth)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return _show_fields(kind, zip(kind._fields, value, strict=False), depth)
    fields = getattr(kind, "__dataclass_fields__", None)
    if fields and "__repr__" in vars(kind) and vars(kind)["__repr__"].__qualname__.endswith("__repr__"):
        return _show_fields(kind, ((name, getattr(value, name)) for name in fields), depth)
    if hasattr(kind, "shape") and hasattr(kind, "dtype"):  # arrays of NumPy and its kin: megabytes of text otherwise
        return f"<{kind.__name__} {value.dtype} {value.shape}>"
    if hasattr(kind, "__fspath__"):
        return repr(str(value))
    return str(repr(value))


def _show_fields(kind: type, pairs: Iterable[tuple[str, Any]], depth: int) -> str:
    if depth >= _DEPTH:
        return f"{kind.__name__}(...)"
    shown = [f"{name}={_cut(_show(item, depth + 1))}" for name, item in islice(pairs, _ITEMS)]
    return f"{kind.__name__}({', '.join(shown)})"


_BRACKETS: Final[dict[Any, tuple[str, str]]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    **dict.fromkeys((set, frozenset, dict), ("{", "}")),
}


def _show_items(value: Any, depth: int) -> str:
    opening, closing = _BRACKETS[type(value)]
    if depth >= _DEPTH:
        return f"{opening}...{closing}"
    some = list(islice(value.items() if type(value) is dict else value, _ITEMS))
    if type(value) is dict:
        shown = [f"{_show(key, depth + 1)}: {_cut(_show(item, depth + 1))}" for key, item in some]
    else:
        shown = [_cut(_show(item, depth + 1)) for item in some]
    if len(value) > len(some):
        shown.append(f"... {len(value) - len(some)} more")
    comma = "," if type(value) is tuple and len(value) == 1 else ""
    return f"{opening}{', '.join(shown)}{comma}{closing}"
