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
from bough.wire.work import Run, Value

_SIMPLE = frozenset({int, float, complex, bool, str, bytes, type(None)})
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


def arguments(run: Run, previous: Any = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a loose function, with the values of its inputs put in.

    `previous` is the value of the run before, for an input that was made just here.
    """
    packed = run.payload
    if run.payload_path:
        with open(run.payload_path, "rb") as file:
            packed = file.read()
    args, kwargs = pickle.loads(packed)
    if run.inputs:
        from bough.model.refs import resolve

        values = [read_value(value) if value.pages or not run.behind else _copied(previous) for value in run.inputs]
        args, kwargs = resolve(tuple(args), values), resolve(kwargs, values)
    return args, kwargs


def _copied(value: Any) -> Any:
    """A value as another process would get it: what is done to it stays without effect on the original."""
    if type(value) in _SIMPLE:
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
