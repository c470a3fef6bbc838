"""What one call does to an object, no other call sees: arguments and results of the calls that one worker runs.

A worker reads the arguments of many calls at once, and tells of many results at once. Two calls may be given the same
object, as in `map(f, repeat(settings), range(10))`, and a function may return an object that its next call changes. In
a process of its own each call would have a copy. So each call gets a copy of its arguments, and a result is what it was
when its call returned. Example: `settings["seed"] = seed` in one call is not there in the next.

Rule: what nobody can change is not copied: numbers, texts, tuples of them, and what big arrays hold (it is read-only).
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Sequence
from itertools import chain
from types import FunctionType
from typing import Any

from bough.executor.worker.serialisation import SMALL, pack_parts
from bough.model.packed_values import Apart, holds_times, raw_if_apart
from bough.model.refs import SIMPLE, load_pickle


class Settled:
    """A result as it was when its call returned, pickled: the calls that come after it may change what it was."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return pickle.loads, (self.data,)


def is_fixed(value: object) -> bool:
    """Whether nobody can change a value."""
    kind = type(value)
    if kind is tuple:
        return SIMPLE.issuperset(map(type, value))  # type: ignore[call-overload]
    return kind in SIMPLE or (kind.__module__ == "numpy" and isinstance(value, sys.modules["numpy"].number))


def settled(value: object) -> object:
    """What stands for a result until it is told. None: it is big, or cannot be pickled, and is to be told at once."""
    try:
        data = pickle.dumps(value, 5, buffer_callback=_refuse_big)
    except _TooBigError:
        return None
    except BaseException:  # noqa: BLE001 -- reasons are many; that of packing it is the one that is told
        data = b""
    if data and b"__main__" not in data:
        return Settled(data) if len(data) <= SMALL else None
    try:
        return _copied_here(value, _refuse_big, ())
    except BaseException:  # noqa: BLE001 -- as above
        return None


def with_own_arguments(function: Callable[[Any], Any], items: Sequence[Any], *, star: bool) -> Callable[[Any], Any]:
    """A function that gives each call a copy of its item; the function itself, where no item can be changed."""
    if star:
        if SIMPLE.issuperset(map(type, chain.from_iterable(items))):
            return function
    elif SIMPLE.issuperset(map(type, items)):
        return function

    def call(item: Any) -> Any:
        return function(item if is_fixed(item) else own_copy(item))

    return call


def own_copy(value: Any) -> Any:
    """A copy that shares nothing with a value but what is read-only; the value itself, if it cannot be pickled."""
    apart = Apart()
    try:
        try:
            data = pickle.dumps(value, 5, buffer_callback=apart.take)
        except BaseException:  # noqa: BLE001 -- reasons are many
            data = b""
        if data and b"__main__" not in data:
            if holds_times(data):
                data, apart.buffers = pack_parts(value)
            return load_pickle(data, _unshared(apart.buffers))
        apart.buffers.clear()
        return _copied_here(value, apart.take, apart.buffers)
    except BaseException:  # noqa: BLE001 -- pickling and unpickling run the user's code
        return value


def _unshared(buffers: Sequence[memoryview]) -> list[memoryview | bytearray]:
    return [buffer if buffer.readonly else bytearray(buffer) for buffer in buffers]


class _TooBigError(Exception):
    """A buffer is to lie apart."""


def _refuse_big(buffer: pickle.PickleBuffer) -> bool:
    if raw_if_apart(buffer) is not None:
        raise _TooBigError
    return True


class _HerePickler(pickle.Pickler):
    """Names classes and functions by their place in a list: what it writes is read in this process."""

    def __init__(self, file: io.BytesIO, take: Callable[[pickle.PickleBuffer], bool]) -> None:
        super().__init__(file, 5, buffer_callback=take)
        self.named: list[object] = []

    def persistent_id(self, obj: object) -> int | None:
        """See `pickle.Pickler`."""
        if not isinstance(obj, type | FunctionType):
            return None
        self.named.append(obj)
        return len(self.named) - 1


class _HereUnpickler(pickle.Unpickler):
    named: Sequence[object] = ()

    def persistent_load(self, pid: int) -> object:
        """See `pickle.Unpickler`."""
        return self.named[pid]


def _copied_here(value: object, take: Callable[[pickle.PickleBuffer], bool], buffers: Sequence[memoryview]) -> object:
    """A copy of an object of the script's own classes: these go by value, which is dear, once for many results.

    `buffers`: those that `take` has taken.
    """
    with io.BytesIO() as file:
        pickler = _HerePickler(file, take)
        pickler.dump(value)
        file.seek(0)
        unpickler = _HereUnpickler(file, buffers=_unshared(buffers))
        unpickler.named = pickler.named
        return unpickler.load()
