"""Parts of pickled lists, named without unpickling anything.

Results are pickled lists, one value per element of a span, and opaque to everything between the
worker that made them and the client that wants them. Rule: nothing here loads a pickle.
"""

from __future__ import annotations

STOP = b"."
HEAD = b"\x80\x04coperator\ngetitem\n"
_SLICE = b"cbuiltins\nslice\n"
_CALL_WITH_PAIR = b"\x86R"  # TUPLE2, REDUCE


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
    """What follows the original: the slice, the call and a STOP."""
    return b"".join((_SLICE, _number(skip), _number(skip + count), _CALL_WITH_PAIR, _CALL_WITH_PAIR, STOP))


def _number(value: int) -> bytes:
    return b"J" + value.to_bytes(4, "little")  # BININT
