"""Parts of pickled result lists, cut without loading anything.

The results of a span are a pickled list, opaque to every process between the worker that made it and the client that
wants it. `cut` makes the pickle of a part of such a list. Rule: nothing is unpickled, and `pickle` is not even loaded:
a server starts without it.
"""

from __future__ import annotations

from typing import Final

STOP: Final = b"."
HEAD: Final = b"\x80\x04coperator\ngetitem\n"
_SLICE: Final = b"cbuiltins\nslice\n"
_CALL_WITH_PAIR: Final = b"\x86R"  # TUPLE2, REDUCE


def cut(data: bytes, skip: int, count: int) -> bytes:
    """A pickle of `loads(data)[skip:skip + count]`, made without loading anything.

    A pickle is a program for a stack machine: this one pushes `operator.getitem`, runs the original up to
    its STOP, pushes the slice and calls.
    """
    return b"".join((HEAD, memoryview(data)[:-1], tail(skip, count)))


def nones(count: int) -> bytes:
    """A pickled list of so many times None."""
    return b"\x80\x04](" + b"N" * count + b"e" + STOP


def tail(skip: int, count: int) -> bytes:
    """The end of such a program, after the original: the slice, the call and a STOP."""
    return b"".join((_SLICE, _number(skip), _number(skip + count), _CALL_WITH_PAIR, _CALL_WITH_PAIR, STOP))


def _number(value: int) -> bytes:
    return b"J" + value.to_bytes(4, "little")  # BININT
