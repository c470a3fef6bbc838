"""Parameter spaces: many combinations held as their axes, and marks for values that come later.

A space is a sequence of rows (tuples in the order of `names`) that are computed from their index,
so 10^8 combinations cost no memory. The last axis of a product varies fastest, as in nested loops.
Rule: a space never changes, and element k is the same wherever it is unpickled.
"""

from __future__ import annotations

import inspect
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, compress, starmap
from operator import itemgetter
from typing import Any, overload

from bough.errors import InvalidWorkload

Row = tuple[Any, ...]

CHUNK = 8192  # combinations handled at a time


class Ref:
    """Stands for the n-th input value in pickled arguments until a worker puts it in."""

    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n

    def __reduce__(self) -> tuple[type[Ref], tuple[int]]:
        return Ref, (self.n,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other.n == self.n

    def __hash__(self) -> int:
        return hash((Ref, self.n))

    def __repr__(self) -> str:
        return f"Ref({self.n})"


_ATOMS: frozenset[type] = frozenset({int, float, str, bytes, bool, complex, type(None), bytearray})


def resolve(obj: Any, values: Sequence[Any]) -> Any:
    """Replace every `Ref` inside nested lists, tuples and dicts; without one the same object comes back."""
    return replaced(obj, Ref, lambda ref: values[ref.n])


def replaced(obj: Any, kind: type | tuple[type, ...], swap: Callable[[Any], Any]) -> Any:
    """Swap instances of `kind`, no primitive type, inside nested lists, tuples and dict values."""
    try:
        return _replaced(obj, kind, swap)
    except RecursionError:  # a structure that holds itself: nothing of ours can be in it
        return obj


def _replaced(obj: Any, kind: type | tuple[type, ...], swap: Callable[[Any], Any]) -> Any:
    if isinstance(obj, kind):
        return swap(obj)
    if isinstance(obj, list | tuple):
        if _ATOMS.issuperset(map(type, obj)):
            return obj
        items = [_replaced(item, kind, swap) for item in obj]
        if all(map(_is, items, obj)):
            return obj
        make = getattr(obj, "_make", None) or type(obj)  # named tuples
        return items if type(obj) is list else make(items)
    if isinstance(obj, dict) and not _ATOMS.issuperset(map(type, obj.values())):
        news = {key: _replaced(value, kind, swap) for key, value in obj.items()}
        changed = {key: new for key, new in news.items() if new is not obj[key]}
        if changed:
            obj = obj.copy()  # keeps the kind: defaultdict, OrderedDict
            obj.update(changed)
    return obj


def _is(a: object, b: object) -> bool:
    return a is b


class Space(Sequence[Row]):
    """A sequence of rows over named parameters; subclasses say how rows are computed."""

    __slots__ = ("_length", "names")

    names: tuple[str, ...]
    _length: int

    def rows(self, start: int, stop: int) -> list[Row]:
        """The rows [start, stop), which must lie inside."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step == 1:
                return self.rows(start, stop) if start < stop else []
            return [self.rows(i, i + 1)[0] for i in range(start, stop, step)]
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"combination {index} of {self._length}")
        return self.rows(position, position + 1)[0]

    def __iter__(self) -> Iterator[Row]:
        for start in range(0, self._length, CHUNK):
            yield from self.rows(start, min(start + CHUNK, self._length))

    def __mul__(self, other: Space) -> Product:
        """Every row of this space with every row of the other."""
        if not isinstance(other, Space):
            return NotImplemented
        return Product({}, self, other)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash((type(self), self.names, self._length))

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} of {', '.join(self.names)}: {self._length} combinations>"


class Axis(Space):
    """The values of one parameter."""

    __slots__ = ("values",)

    def __init__(self, name: str, values: Iterable[Any]) -> None:
        self.names = (name,)
        self.values = _sequence(name, values)
        self._length = len(self.values)

    def rows(self, start: int, stop: int) -> list[Row]:
        """The values [start, stop), each as a row of its own."""
        return list(zip(self.values[start:stop]))  # the fastest way to make 1-tuples

    def __reduce__(self) -> tuple[Any, ...]:
        return Axis, (self.names[0], self.values)


class Product(Space):
    """Every combination of its axes and factors; the last varies fastest."""

    __slots__ = ("factors",)

    def __init__(self, axes: dict[str, Any] | None = None, *factors: Space) -> None:
        self.factors = (*factors, *(Axis(name, values) for name, values in (axes or {}).items()))
        self.names = _joined_names(self.factors)
        length = 1
        for factor in self.factors:
            length *= len(factor)
        if length >= 1 << 62:
            raise InvalidWorkload(f"the product of {', '.join(self.names)} has {length:.0e} combinations: too many")
        self._length = length

    def rows(self, start: int, stop: int) -> list[Row]:
        """The combinations [start, stop)."""
        return _product_rows(self.factors, start, stop)

    def __reduce__(self) -> tuple[Any, ...]:
        return Product, (None, *self.factors)


class Tie(Space):
    """Lists that advance together: row i holds the i-th value of each."""

    __slots__ = ("factors",)

    def __init__(self, axes: dict[str, Any] | None = None, *factors: Space) -> None:
        self.factors = (*factors, *(Axis(name, values) for name, values in (axes or {}).items()))
        if not self.factors:
            raise InvalidWorkload("tie needs at least one list")
        self.names = _joined_names(self.factors)
        first = self.factors[0]
        for other in self.factors[1:]:
            if len(other) != len(first):
                raise InvalidWorkload(
                    f"tied lists must be equally long: {'*'.join(first.names)} has {len(first)} values,"
                    f" {'*'.join(other.names)} has {len(other)}"
                )
        self._length = len(first)

    def rows(self, start: int, stop: int) -> list[Row]:
        """The rows [start, stop)."""
        if all(type(factor) is Axis for factor in self.factors):
            columns = [factor.values[start:stop] for factor in self.factors if isinstance(factor, Axis)]
            return list(zip(*columns, strict=True))
        parts = [factor.rows(start, stop) for factor in self.factors]
        return [tuple(chain.from_iterable(row)) for row in zip(*parts, strict=True)]

    def __reduce__(self) -> tuple[Any, ...]:
        return Tie, (None, *self.factors)


def _product_rows(factors: tuple[Space, ...], start: int, stop: int) -> list[Row]:
    """Rows of a product: a partial run of the last factor, whole runs, and a partial one."""
    if start >= stop:
        return []
    if not factors:
        return [()]
    tail = factors[-1]
    if len(factors) == 1:
        return tail.rows(start, stop)
    size = len(tail)
    first, last = start // size, (stop - 1) // size
    heads = _product_rows(factors[:-1], first, last + 1)
    if first == last:
        head = heads[0]
        return [head + row for row in tail.rows(start - first * size, stop - first * size)]
    offset, end = start - first * size, stop - last * size
    head = heads[0]
    rows = [head + row for row in tail.rows(offset, size)]
    if last - first > 1:
        whole = tail.rows(0, size)
        if size == 1:
            row = whole[0]
            rows += [head + row for head in heads[1:-1]]
        else:
            rows += [head + row for head in heads[1:-1] for row in whole]
    head = heads[-1]
    rows += [head + row for row in tail.rows(0, end)]
    return rows


def _joined_names(factors: tuple[Space, ...]) -> tuple[str, ...]:
    names = tuple(chain.from_iterable(factor.names for factor in factors))
    for name in names:
        if names.count(name) > 1:
            raise InvalidWorkload(f"parameter {name} is given twice")
    return names


def _sequence(name: str, values: Any) -> Sequence[Any]:
    """Values as something to slice that nobody changes behind our back."""
    if isinstance(values, str | bytes):
        raise InvalidWorkload(f"parameter {name} is one text, {values!r:.60}: give a list of values")
    if isinstance(values, range | tuple):
        return values
    if isinstance(values, Sequence) and not isinstance(values, list):
        try:
            values[0:0]
        except Exception:  # noqa: BLE001 - whatever it raises, it cannot be sliced
            return tuple(values)
        return values
    if isinstance(values, AbstractSet):  # its order differs from run to run
        try:
            return tuple(sorted(values))
        except TypeError:
            return tuple(values)
    try:
        return tuple(values)
    except TypeError:
        raise InvalidWorkload(f"parameter {name} is {values!r:.60}: give a list of values") from None


# --- filtered spaces ----------------------------------------------------------------------------------

_BLOCK = 256  # bytes of the bitmap for each entry of the directory
_EXPANDED = tuple(bytes((byte >> bit) & 1 for bit in range(8)) for byte in range(256))


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

    def __reduce__(self) -> tuple[Any, ...]:
        return Filtered, (self.space, self.bitmap)


def filtered(space: Space, where: Callable[..., Any]) -> Filtered:
    """Keep the combinations for which `where` is true; it gets the parameters its own parameters name."""
    call = _caller(space, where)
    bits = bytearray()
    for start in range(0, len(space), CHUNK):
        rows = space.rows(start, min(start + CHUNK, len(space)))
        flags = bytes(map(bool, call(rows)))
        number = int(flags[::-1].translate(_DIGITS), 2)
        bits += number.to_bytes((len(flags) + 7) // 8, "little")
    return Filtered(space, bytes(bits))


_DIGITS = bytes([48, 49]) + bytes(254)


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
