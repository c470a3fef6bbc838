"""Parts of a parameter space: the combinations for which a filter is true, held as one bit each.

Rule: the filter is called once for each combination, where the workload is written; a filtered space needs only its
bits wherever it is unpickled. The name of this module stays: stored pickles name `Filtered`.
"""

from __future__ import annotations

import inspect
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import compress, starmap
from operator import itemgetter
from typing import Any

from bough.errors import InvalidWorkload
from bough.model.bounds import MOST_TASKS
from bough.model.spaces import CHUNK, Row, Space

MOST_LOOKED_AT = 8 * MOST_TASKS  # combinations: a bit each
_BLOCK = 256  # bytes of the bitmap for each entry of the directory
_EXPANDED = tuple(bytes((byte >> bit) & 1 for bit in range(8)) for byte in range(256))
_DIGITS = b"01" + bytes(254)  # flags as the digits of a binary number


class Filtered(Space):
    """The combinations of a space whose bit is set; bit i is bit i % 8 of byte i // 8."""

    __slots__ = ("_directory", "bitmap", "space")

    def __init__(self, space: Space, bitmap: bytes) -> None:
        if len(bitmap) * 8 < len(space):
            raise ValueError("the bitmap is shorter than the space")
        self.space = space
        self.bitmap = bitmap
        self.names = space.names
        total = 0
        directory = array("Q")  # combinations kept before each block
        for at in range(0, len(bitmap), _BLOCK):
            directory.append(total)
            total += int.from_bytes(bitmap[at : at + _BLOCK], "little").bit_count()
        self._directory = directory
        self._length = total

    def position(self, k: int) -> int:
        """Where in the whole space the k-th kept combination is."""
        block = bisect_right(self._directory, k) - 1
        left = k - self._directory[block]
        at = block * _BLOCK
        for byte in self.bitmap[at : at + _BLOCK]:
            count = byte.bit_count()
            if left < count:
                bits = _EXPANDED[byte]
                bit = -1
                for _ in range(left + 1):
                    bit = bits.index(1, bit + 1)
                return at * 8 + bit
            left -= count
            at += 1
        raise IndexError(k)

    def rows(self, start: int, stop: int) -> list[Row]:
        """The kept combinations [start, stop)."""
        first, last = self.position(start), self.position(stop - 1)
        if (last - first) > 16 * (stop - start):  # few are kept: compute only those
            return [self.space.rows(at, at + 1)[0] for at in self._positions(first, last + 1)]
        found: list[Row] = []
        for at in range(first, last + 1, CHUNK):
            end = min(at + CHUNK, last + 1)
            found += compress(self.space.rows(at, end), self._bits(at, end))
        return found

    def _bits(self, start: int, stop: int) -> bytes:
        """One byte, 0 or 1, for each combination in [start, stop)."""
        low = start // 8
        expanded = b"".join(map(_EXPANDED.__getitem__, self.bitmap[low : (stop + 7) // 8]))
        return expanded[start - low * 8 : stop - low * 8]

    def _positions(self, start: int, stop: int) -> Iterator[int]:
        for at in range(start // 8 // _BLOCK * _BLOCK, (stop + 7) // 8, _BLOCK):
            chunk = self.bitmap[at : at + _BLOCK]
            if not any(chunk):
                continue
            for number, byte in enumerate(chunk, at):
                if byte:
                    for bit, kept in enumerate(_EXPANDED[byte]):
                        if kept and start <= number * 8 + bit < stop:
                            yield number * 8 + bit

    def with_values(self, swap: Callable[[Any], Any]) -> Filtered:
        """See `Space.with_values`."""
        return Filtered(self.space.with_values(swap), self.bitmap)

    def __reduce__(self) -> tuple[Any, ...]:
        return Filtered, (self.space, self.bitmap)


def filtered(space: Space, where: Callable[..., Any]) -> Filtered:
    """Keep the combinations for which `where` is true; it gets the parameters its own parameters name."""
    if len(space) > MOST_LOOKED_AT:
        raise InvalidWorkload(
            f"where would be called for {len(space)} combinations; at most {MOST_LOOKED_AT} are possible"
        )
    call = _caller(space, where)
    bits = bytearray()
    for start in range(0, len(space), CHUNK):
        rows = space.rows(start, min(start + CHUNK, len(space)))
        flags = bytes(map(bool, call(rows)))
        number = int(flags[::-1].translate(_DIGITS), 2)
        bits += number.to_bytes((len(flags) + 7) // 8, "little")
    return Filtered(space, bytes(bits))


def _caller(space: Space, where: Callable[..., Any]) -> Callable[[list[Row]], Iterable[Any]]:
    """How to call `where` for many rows, by the names of its parameters."""
    names = space.names
    try:
        parameters = list(inspect.signature(where).parameters.values())
    except (TypeError, ValueError):  # a builtin: it can only be called in order
        return lambda rows: starmap(where, rows)
    kinds = [parameter.kind for parameter in parameters]
    if kinds == [inspect.Parameter.VAR_POSITIONAL]:
        return lambda rows: starmap(where, rows)
    open_kinds = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    for parameter in parameters:
        if parameter.name not in names and parameter.default is parameter.empty and parameter.kind not in open_kinds:
            raise InvalidWorkload(
                f"where asks for {parameter.name}, which is no parameter; parameters are {', '.join(names)}"
            )
    known = [parameter for parameter in parameters if parameter.name in names]
    in_order = inspect.Parameter.KEYWORD_ONLY not in kinds and parameters[: len(known)] == known
    if not in_order or not known or inspect.Parameter.VAR_KEYWORD in kinds:
        everything = inspect.Parameter.VAR_KEYWORD in kinds
        wanted = [(i, name) for i, name in enumerate(names) if everything or any(p.name == name for p in known)]
        return lambda rows: (where(**{name: row[i] for i, name in wanted}) for row in rows)
    indexes = [names.index(parameter.name) for parameter in known]
    if indexes == list(range(len(names))):
        return lambda rows: starmap(where, rows)
    if len(indexes) == 1:
        return lambda rows: map(where, map(itemgetter(indexes[0]), rows))
    return lambda rows: starmap(where, map(itemgetter(*indexes), rows))
