"""Random messages made from the messages' own types, so that a new message or field is covered by itself.

`valid` keeps to the bounds that the types say, and likes their edges. `hostile` is a valid message as plain lists, some
of whose fields are out of bounds, of another type or missing. Rule: both depend on nothing but the dice.
"""

from __future__ import annotations

import functools
import math
import random
import re
import typing
from typing import Any

import msgspec
from msgspec import inspect

_DEEP = 5
_WORDS = ("", "a", "status", "a/b.c", "näh", "last", "1", "*", "{x}", "../../etc/passwd", "/etc/passwd", "x" * 200)
_HUGE = (2**31, 2**32, 2**53, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**31), -(2**62), -(2**63))
_FLOATS = (float("nan"), float("inf"), float("-inf"), -0.0, 1e308, -1e308, 5e-324, -1.0, 1e15, 1e19)
_TEXTS = (
    "\0",
    "a\0b",
    "/\0",
    "\n",
    "\x1b[2J",
    "\ud7ff",
    "/" * 5000,
    "../" * 50,
    "é" * 3000,
    "%s%n",
    "'; drop table tasks; --",
)


def kinds(union: object) -> list[type]:
    """The messages of a union."""
    return list(typing.get_args(union))


def valid(kind: type, dice: random.Random, known: dict[str, typing.Sequence[Any]] | None = None) -> Any:
    """A message of a kind within its bounds; `known`: values by field name that mean something to who hears it."""
    return _build(_shape(kind), dice, 0, known or {}, "")


def hostile(kind: type, dice: random.Random, known: dict[str, typing.Sequence[Any]] | None = None) -> Any:
    """A message of a kind as plain data, one to three places of which are wrong."""
    plain = msgspec.to_builtins(valid(kind, dice, known), builtin_types=(bytes,))
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        plain = _spoil(plain, dice)
    return plain


_shape = functools.cache(inspect.type_info)  # reading a type takes ten times as long as making a message


# --- within bounds ---------------------------------------------------------------------------------


def _build(  # noqa: C901 -- a table of types
    shape: inspect.Type, dice: random.Random, depth: int, known: dict[str, Any], name: str
) -> Any:
    if isinstance(shape, inspect.Metadata):
        return _build(shape.type, dice, depth, known, name)
    if name in known and known[name] and dice.random() < 0.7:
        found = dice.choice(known[name])
        if type(found) in _FITS.get(type(shape), ()):
            return found
    few = range(0 if depth > _DEEP else dice.choice((0, 1, 1, 3)))
    match shape:
        case inspect.NoneType():
            return None
        case inspect.BoolType():
            return dice.random() < 0.5
        case inspect.IntType():
            return _whole(shape, dice)
        case inspect.FloatType():
            low, high = _edges(shape, -1e300, 1e300)
            return min(max(dice.choice((low, high, 0.0, 1.5, dice.random(), dice.random() * 1e9)), low), high)
        case inspect.StrType():
            return _text(shape, dice)
        case inspect.BytesType():
            return dice.randbytes(_length(shape, dice, dice.choice((0, 16, 32, dice.randrange(300)))))
        case inspect.AnyType() | inspect.CustomType():
            return dice.choice((None, 1, "x", [1, "y"], {"k": [b"z"]}))
        case inspect.StructType():
            fields = {field.name: _build(field.type, dice, depth + 1, known, field.name) for field in shape.fields}
            return shape.cls(**fields)
        case inspect.UnionType():
            ends = [one for one in shape.types if not isinstance(one, inspect.StructType)]
            return _build(dice.choice(ends if ends and depth > _DEEP else shape.types), dice, depth, known, name)
        case inspect.ListType() | inspect.VarTupleType():
            count = _length(shape, dice, len(few))
            items = [_build(shape.item_type, dice, depth + 1, known, name) for _ in range(count)]
            return items if isinstance(shape, inspect.ListType) else tuple(items)
        case inspect.TupleType():
            return tuple(_build(item, dice, depth + 1, known, name) for item in shape.item_types)
        case inspect.DictType():
            parts, count = (shape.key_type, shape.value_type), _length(shape, dice, len(few))
            return dict(tuple(_build(part, dice, depth + 1, known, name) for part in parts) for _ in range(count))
        case inspect.EnumType():
            return dice.choice(list(shape.cls))
        case inspect.LiteralType():
            return dice.choice(list(shape.values))
    raise AssertionError(f"no random value for {shape}")


_FITS: dict[type, tuple[type, ...]] = {
    inspect.IntType: (int,),
    inspect.FloatType: (int, float),
    inspect.StrType: (str,),
    inspect.BytesType: (bytes,),
}


def _edges(shape: Any, low: float, high: float) -> tuple[Any, Any]:
    """The least and the most that a number may be; a bound that it must not reach is for fractions."""
    if shape.gt is not None:
        low = math.nextafter(shape.gt, math.inf)
    return (low if shape.ge is None else shape.ge), (high if shape.le is None else shape.le)


def _whole(shape: inspect.IntType, dice: random.Random) -> int:
    low, high = _edges(shape, -(2**63), 2**63 - 1)
    near = (0, 1, 2, 3, -1, dice.getrandbits(8), dice.getrandbits(31), dice.getrandbits(62))
    return min(max(dice.choice((*near, low, high)), low), high)


def _length(shape: Any, dice: random.Random, wanted: int) -> int:
    return min(max(wanted, shape.min_length or 0), wanted if shape.max_length is None else shape.max_length)


def _text(shape: inspect.StrType, dice: random.Random) -> str:
    text = dice.choice((*_WORDS, "x" * dice.randrange(300)))
    text = text[: len(text) if shape.max_length is None else shape.max_length]
    fits = len(text) >= (shape.min_length or 0) and (shape.pattern is None or re.search(shape.pattern, text))
    return text if fits else "x" * max(shape.min_length or 0, 1)


# --- out of bounds ---------------------------------------------------------------------------------


def _spoil(plain: Any, dice: random.Random) -> Any:
    """The same data with one place changed."""
    places = list(_places(plain, ()))
    path = dice.choice(places)
    return _replaced(plain, path, dice)


def _places(value: Any, path: tuple[Any, ...]) -> typing.Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, list | tuple):
        for at, inner in enumerate(value[:50]):
            yield from _places(inner, (*path, at))
    elif isinstance(value, dict):
        for key, inner in list(value.items())[:50]:
            yield from _places(inner, (*path, key))


def _replaced(value: Any, path: tuple[Any, ...], dice: random.Random) -> Any:
    if not path:
        return _wrong(value, dice)
    if isinstance(value, dict):
        return {key: _replaced(inner, path[1:], dice) if key == path[0] else inner for key, inner in value.items()}
    return [_replaced(inner, path[1:], dice) if at == path[0] else inner for at, inner in enumerate(value)]


def _wrong(value: Any, dice: random.Random) -> Any:
    if dice.random() < 0.15:  # another type
        return dice.choice((None, True, 0, -1, 1.5, "", "x", b"", b"\0" * 16, [], {}, [[]], {"": None}))
    match value:
        case bool():
            return dice.choice((0, 1, None, "yes"))
        case int():
            return max(
                -(2**63), min(2**64 - 1, dice.choice((*_HUGE, value + 1, -value, value * 2, dice.getrandbits(64))))
            )
        case float():
            return dice.choice((*_FLOATS, value + 1, -value))
        case str():
            return dice.choice((*_TEXTS, value + "\0", "x" * dice.choice((257, 70_000))))
        case bytes():
            return dice.choice((b"", b"\0" * 65, dice.randbytes(16), dice.randbytes(dice.choice((32, 1000, 300_000)))))
        case list() | tuple():
            less = list(value[: len(value) // 2])
            return dice.choice((less, [*value, *value], [*value, None], list(reversed(value)), [list(value)] * 3))
        case dict():
            return dice.choice(({}, {**value, "x": 1}, list(value.items()), {1: 2}))
    return dice.choice((0, "", [], {}))
