"""What a worker makes of bytes: functions, tables of arguments, values of inputs.

Rule: each raises what unpickling raises; the caller says whose fault it is.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

from bough.model.commands import CommandTemplate, decode_template
from bough.model.ids import BlobId
from bough.model.outcomes import ResultFile
from bough.model.shortcalls import SIMPLE, Call, unpack_call
from bough.wire.work import Run, Value

_KEPT = 256  # things made from blobs that are kept; sessions rarely have more functions


class Shelf:
    """Blobs, and what was made of them."""

    def __init__(self, blobs: dict[BlobId, bytes]) -> None:
        self.blobs = blobs
        self._made: dict[BlobId, Any] = {}

    def _make(self, blob: BlobId, make: Callable[[bytes], Any]) -> Any:
        made = self._made.get(blob)
        if made is None:
            made = make(self.blobs[blob])
            if len(self._made) >= _KEPT:
                del self._made[next(iter(self._made))]
            self._made[blob] = made
        return made

    def function(self, blob: BlobId) -> Callable[..., Any]:
        """The function of a body."""
        found: Callable[..., Any] = self._make(blob, pickle.loads)
        return found

    def template(self, blob: BlobId) -> CommandTemplate:
        """The command template of a body."""
        found: CommandTemplate = self._make(blob, decode_template)
        return found

    def items(self, run: Run) -> list[Any]:
        """The arguments of an array's span, one per element."""
        if run.table:
            table: Sequence[Any] = self._make(run.table, pickle.loads)
            return list(table[run.start : run.stop])
        found: list[Any] = []
        for page in run.pages:
            first, last = max(run.start, page.start), min(run.stop, page.stop)
            if first < last:
                found += pickle.loads(page.data)[first - page.start : last - page.start]
        if len(found) != run.stop - run.start:
            raise ValueError(f"pages hold {len(found)} of {run.stop - run.start} arguments")
        return found


def arguments(run: Run, previous: Any = None) -> list[Call]:
    """Positional and keyword arguments of a hand-out of loose functions, with the values of their inputs put in.

    `previous` is the value of the run before, for an input that was made just here.
    """
    packed = run.payload
    if run.payload_path:
        with open(run.payload_path, "rb") as file:
            packed = file.read()
    packs = [packed, *(payload for _, payload in run.along)][run.start : run.stop] if run.along else [packed]
    if run.chained:
        del packs[1:]  # the others take what those before them make
    if not run.inputs:
        return [unpack_call(one, ()) for one in packs]
    values = _values(run, previous)
    calls = [unpack_call(packs.pop(0), values)]
    shared = SIMPLE.issuperset(map(type, values))  # otherwise each gets its own: what one does the next must not see
    return calls + [unpack_call(one, values if shared else _values(run, previous)) for one in packs]


def link(packed: bytes, previous: Any) -> Call:
    """The arguments of a task whose only input is the value of the one before."""
    return unpack_call(packed, [_copied(previous)])


def _values(run: Run, previous: Any) -> list[Any]:
    return [read_value(value) if value.pages or not run.behind else _copied(previous) for value in run.inputs]


def _copied(value: Any) -> Any:
    """A value as another process would get it: what is done to it stays without effect on the original."""
    if type(value) in SIMPLE:
        return value
    from bough.executor.results import pack

    return pickle.loads(pack(value))


def read_value(value: Value) -> Any:
    """The value of one input."""
    found: list[Any] = []
    for start, stop, packed in value.pages:
        first, last = max(start, value.start), min(stop, value.stop)
        if first < last:
            found += _unpack(packed)[first - start : last - start]
    return found[0] if value.single else found


def _unpack(packed: bytes | ResultFile) -> list[Any]:
    if isinstance(packed, ResultFile):
        with open(packed.path, "rb") as file:
            loaded: list[Any] = pickle.load(file)
    else:
        loaded = pickle.loads(packed)
    return loaded
