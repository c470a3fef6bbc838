"""Parameter spaces: many combinations held as their axes; `bough.product` and `bough.tie` make them.

A space is a sequence of rows (tuples in the order of `names`) that are computed from their index, so 10^8 combinations
cost no memory. The last axis of a product varies fastest, as in nested loops.
Rule: a space never changes, and element k is the same wherever it is unpickled. Making a space checks its axes and
computes no combination. The name of this module stays: stored pickles name its classes.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, chain
from typing import Any, overload

from bough.errors import InvalidWorkload
from bough.model.refs import SIMPLE

Row = tuple[Any, ...]

CHUNK = 8192  # combinations handled at a time


class Space(Sequence[Row]):
    """A sequence of rows over named parameters; subclasses say how rows are computed."""

    __slots__ = ("_length", "names")

    names: tuple[str, ...]
    _length: int

    @abstractmethod
    def rows(self, start: int, stop: int) -> list[Row]:
        """The rows [start, stop), which must lie inside."""

    @abstractmethod
    def with_values(self, swap: Callable[[Any], Any]) -> Space:
        """The same space with other values: what `swap` makes of each one that is listed and no number or text."""

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
        try:
            self._length = len(self.values)
        except OverflowError:
            raise InvalidWorkload(f"parameter {name} is {values!r:.60}: too many values") from None

    def rows(self, start: int, stop: int) -> list[Row]:
        """The values [start, stop), each as a row of its own."""
        return list(zip(self.values[start:stop]))  # the fastest way to make 1-tuples

    def with_values(self, swap: Callable[[Any], Any]) -> Axis:
        """See `Space.with_values`."""
        if not isinstance(self.values, tuple | list) or SIMPLE.issuperset(map(type, self.values)):
            return self
        return Axis(self.names[0], tuple(map(swap, self.values)))

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

    def with_values(self, swap: Callable[[Any], Any]) -> Product:
        """See `Space.with_values`."""
        return Product(None, *(factor.with_values(swap) for factor in self.factors))

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

    def with_values(self, swap: Callable[[Any], Any]) -> Tie:
        """See `Space.with_values`."""
        return Tie(None, *(factor.with_values(swap) for factor in self.factors))

    def __reduce__(self) -> tuple[Any, ...]:
        return Tie, (None, *self.factors)


class RowCall:
    """A function that is called with the values of a row as keywords; it travels with the function in it."""

    __slots__ = ("fn", "names")

    def __init__(self, fn: Callable[..., Any], names: tuple[str, ...]) -> None:
        self.fn = fn
        self.names = names

    @property
    def __name__(self) -> str:
        return getattr(self.fn, "__name__", "")

    def __call__(self, row: Row) -> Any:
        """Call the function."""
        return self.fn(**dict(zip(self.names, row, strict=True)))

    def __reduce__(self) -> tuple[Any, ...]:
        return RowCall, (self.fn, self.names)


class Ranges(Sequence[int]):
    """The numbers of several ranges, one after the other, held as the ranges."""

    __slots__ = ("_ends", "parts")

    def __init__(self, *parts: range) -> None:
        self.parts = tuple(part for part in parts if part)
        self._ends = tuple(accumulate(map(len, self.parts)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"number {index} of {len(self)}")
        part = bisect_right(self._ends, position)
        return self.parts[part][position - (self._ends[part - 1] if part else 0)]

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return Ranges, self.parts


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
    """Values as a sequence that can be sliced and that no other code can change."""
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


def product(*spaces: Space, **axes: Iterable[Any]) -> Product:
    """Every combination of the given lists and spaces, as nested loops would make them: the last varies fastest.

        bough.product(q=queries, e=[1e-3, 1e-5])
        bough.product(bough.tie(a=alignments, h=models), e=[1e-3, 1e-5])

    Lists are used as they are, ranges and other sequences are not unfolded; other iterables are read
    to their end once, so an endless generator never returns: give it to an open array instead.
    """
    _check("product", spaces)
    return Product(axes, *spaces)


def tie(*spaces: Space, **axes: Iterable[Any]) -> Tie:
    """Lists that advance together: the i-th combination takes the i-th value of each. They must be equally long."""
    _check("tie", spaces)
    return Tie(axes, *spaces)


def _check(name: str, spaces: tuple[object, ...]) -> None:
    for space in spaces:
        if not isinstance(space, Space):
            raise InvalidWorkload(
                f"{name} takes spaces and named lists, not {space!r:.60}: write {name}(parameter=[...])"
            )
