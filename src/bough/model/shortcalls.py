"""Arguments that are numbers, texts and marks for values that come later: most calls have no others.

They travel as a tuple in the marshal format, version 2, which is read and written several times as fast as a pickle,
and gives the same bytes for the same arguments, so that the memo key of a call is made of them too. Rule: the first
byte says what it is: simple arguments, arguments with marks, or a pickle of positional and keyword arguments.
"""

from __future__ import annotations

import marshal
import pickle
from collections.abc import Sequence
from typing import Any

from bough.model.refs import Ref, resolve

SIMPLE: frozenset[type] = frozenset({int, float, str, bytes, bool, complex, type(None)})
_SIMPLE, _MARKED = b"sr"
_is_simple = SIMPLE.issuperset

Call = tuple[Sequence[Any], dict[str, Any]]


def pack_simple(args: tuple[Any, ...]) -> bytes | None:
    """Positional arguments as bytes; None if they are not all numbers and texts."""
    return b"s" + marshal.dumps(args, 2) if _is_simple(map(type, args)) else None


def pack_marked(args: tuple[Any, ...]) -> bytes | None:
    """The same for arguments some of which are marks; such a one counts as a tuple, of which there are no others."""
    if not _is_simple([kind for kind in map(type, args) if kind is not Ref]):
        return None
    return b"r" + marshal.dumps(tuple([(arg.n,) if type(arg) is Ref else arg for arg in args]), 2)


def unpack_call(packed: bytes, values: Sequence[Any]) -> Call:
    """Positional and keyword arguments from bytes, with the values that have come in the places of their marks."""
    if packed[0] == _SIMPLE:
        return marshal.loads(packed[1:]), {}
    if packed[0] == _MARKED:
        return [values[arg[0]] if type(arg) is tuple else arg for arg in marshal.loads(packed[1:])], {}
    args, kwargs = pickle.loads(packed)
    return (resolve(tuple(args), values), resolve(kwargs, values)) if values else (args, kwargs)
