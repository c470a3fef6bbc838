"""Values with big buffers as bytes: a pickle in which the buffers lie apart and aligned, so that a reader can map them.

A value is pickled by protocol 5: what arrays hold (`APART` bytes or more) is left out of the pickle, the *head*. Head
and buffers together are a pickle again: a call of `joined` with all of them. Who just loads it gets the value; who
knows the layout (`split`) gets views of the buffers, and copies nothing.

Rule: a buffer of `APART` bytes or more lies apart and is read-only where it arrives; a smaller one is part of the head.
The name of this module stays: stored pickles name `joined`.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from collections.abc import Callable, Sequence
from operator import methodcaller
from pickle import PickleBuffer
from typing import Any, Final

from bough.model.refs import load_pickle

APART: Final = 256 << 10  # bytes
_ALIGNED: Final = 64  # bytes: what arrays in memory are aligned to
_BYTES: Final = b"\x8e"  # BINBYTES8: a length of 8 bytes, little-endian, and so many bytes
_LENGTH: Final = 8
_BEGIN: Final = b"\x80\x05cbough.model.packed_values\njoined\n("
_END: Final = b"tR."  # TUPLE, REDUCE, STOP
_TIMES: Final = (b"\x8c\x02M8", b"\x8c\x02m8")  # how NumPy's types of times and of spans of time are pickled
MOST_BEGIN: Final = len(_BEGIN)  # bytes by which one is known

Buffer = bytes | memoryview


def joined(head: Any, *rest: Any) -> Any:
    """The value of a head and its buffers; before each of these stands what aligns it."""
    return load_pickle(head, rest[1::2])


def raw_if_apart(buffer: PickleBuffer) -> memoryview | None:
    """The bytes of a buffer that is to lie apart; None: it is to be part of the pickle."""
    try:
        raw = buffer.raw()
    except BufferError:  # it is not in one piece
        return None
    return raw if raw.nbytes >= APART else None


class Apart:
    """Takes the big buffers of a value while it is pickled: `buffer_callback=apart.take`."""

    __slots__ = ("buffers",)

    def __init__(self) -> None:
        self.buffers: list[memoryview] = []

    def take(self, buffer: PickleBuffer) -> bool:
        """Whether a buffer is to be part of the pickle."""
        raw = raw_if_apart(buffer)
        if raw is not None:
            self.buffers.append(raw)
        return raw is None

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(buffer.nbytes for buffer in self.buffers)


def holds_times(data: bytes) -> bool:
    """Whether a pickle may hold big arrays of times; see `dumps_times`."""
    return len(data) >= APART and "numpy" in sys.modules and any(mark in data for mark in _TIMES)


def dumps_times(value: object, take: Callable[[PickleBuffer], object]) -> bytes:
    """Pickle so that `take` gets the buffers of big arrays of times, too.

    These have none of their own: NumPy makes what they hold a part of the pickle. Here they travel as whole numbers.
    """
    with io.BytesIO() as file:
        pickler = pickle.Pickler(file, 5, buffer_callback=take)
        pickler.dispatch_table = {**copyreg.dispatch_table, sys.modules["numpy"].ndarray: _reduced}
        pickler.dump(value)
        return file.getvalue()


def _reduced(array: Any) -> Any:
    is_whole = array.flags.c_contiguous or array.flags.f_contiguous
    if array.dtype.kind in "mM" and array.nbytes >= APART and is_whole:
        return methodcaller("view", array.dtype), (array.view("i8"),)
    return array.__reduce_ex__(5)


def pieces(head: bytes, buffers: Sequence[Buffer]) -> list[Buffer]:
    """What to write, in order; without buffers the head is all."""
    if not buffers:
        return [head]
    found: list[Buffer] = [b"".join((_BEGIN, _BYTES, _length(head))), head]
    at = len(found[0]) + len(head)
    for buffer in buffers:
        pad = bytes(-(at + 2 * (1 + _LENGTH)) % _ALIGNED)
        found.append(b"".join((_BYTES, _length(pad), pad, _BYTES, _length(buffer))))
        found.append(buffer)
        at += len(found[-2]) + memoryview(buffer).nbytes
    found.append(_END)
    return found


def is_split(begin: bytes) -> bool:
    """Whether something that begins so has buffers that lie apart."""
    return begin[:MOST_BEGIN] == _BEGIN


def split(data: Any) -> tuple[bytes, list[memoryview]] | None:
    """The head and views of the buffers, of bytes or a map of a file; None: there are none, it is a plain pickle.

    ValueError when it was cut short.
    """
    whole = memoryview(data)
    if not is_split(bytes(whole[:MOST_BEGIN])):
        return None
    parts: list[memoryview] = []
    at = len(_BEGIN)
    while bytes(whole[at : at + 1]) == _BYTES:
        start = at + 1 + _LENGTH
        at = start + int.from_bytes(whole[at + 1 : start], "little")
        parts.append(whole[start:at])
    if bytes(whole[at : at + len(_END) + 1]) != _END:
        raise ValueError("the file of a value is damaged: it does not end where it should")
    return bytes(parts[0]), parts[2::2]


def _length(data: Buffer) -> bytes:
    return memoryview(data).nbytes.to_bytes(_LENGTH, "little")
