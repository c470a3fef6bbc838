"""What a slot takes from a value: its text, or the text of an attribute.

Strings count as paths when an attribute is asked for; lists, tuples and ranges stand for several words.
Rule: a slot reads attributes and never calls what it finds there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bough.errors import InvalidWorkload
from bough.model.paths import OF_PATHS


def plain(value: Any, form: str = "") -> str:
    """A value as text, unquoted."""
    kind = type(value)
    if kind is str:
        return format(value, form) if form else value
    if form:
        return format(value, form)
    if kind is int or kind is float:
        return str(value)
    if hasattr(kind, "__fspath__"):
        value = value.__fspath__()
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return str(value)


MANY = (list, tuple, range)  # types of values that become several words
_WITHOUT = (bool, int, float, complex, bytes, type(None))


def attribute(value: Any, path: str, slot: str) -> Any:
    """An attribute of a path as pathlib has it, or of any other object; `slot` is named in errors."""
    if isinstance(value, MANY) and not hasattr(value, "_fields"):
        return [attribute(item, path, slot) for item in value]
    for name in path.split("."):
        if hasattr(type(value), "__fspath__"):
            value = value.__fspath__()
        if isinstance(value, str):
            if name not in OF_PATHS:
                raise InvalidWorkload(f"slot {slot}: a path has no {name}, only {', '.join(OF_PATHS)}")
            value = OF_PATHS[name](value)
        elif isinstance(value, _WITHOUT) or not hasattr(value, name):
            raise InvalidWorkload(f"slot {slot}: {value!r:.60} is of type {type(value).__name__} and has no {name}")
        else:
            value = getattr(value, name)
            if callable(value):
                raise InvalidWorkload(f"slot {slot}: {name} would have to be called, which a slot cannot do")
    return value


def joined(value: Any, show: Callable[[Any], str]) -> str:
    """The text of a value that may be several words, each shown by itself."""
    return " ".join([show(item) for item in value]) if isinstance(value, MANY) else show(value)
