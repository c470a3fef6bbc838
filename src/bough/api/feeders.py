"""How values of the standard library's types go into a digest, type by type.

Rule: a type that is listed here counts by what it means, not by how it is pickled; one that cannot be told
apart from others of its kind is refused.
"""

from __future__ import annotations

import array
import datetime as dt
import decimal
import fractions
import functools
import logging
import types
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from bough.api.ownership import library
from bough.model.refs import Ref


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
