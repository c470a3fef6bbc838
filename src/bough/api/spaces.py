"""`bough.product` and `bough.tie`: how users write down parameter spaces.

Rule: the constructors check and never compute combinations, so any size costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bough.errors import InvalidWorkload
from bough.model.spaces import Product, Space, Tie


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
