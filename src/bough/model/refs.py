"""Marks in arguments for values that come later, and putting the values in.

Rule: only lists, tuples and dicts are looked into; what holds no mark comes back as the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

_ATOMS: frozenset[type] = frozenset({int, float, str, bytes, bool, complex, type(None), bytearray})


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
