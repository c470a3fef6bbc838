"""`bough.memo`: marks a function whose results any later run may reuse, however the run that made them ended.

Rule: the function stays what it is; it gets an attribute, or a wrapper where it cannot have one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar

from bough.errors import WrongType
from bough.model.bounds import shown

F = TypeVar("F", bound=Callable[..., Any])
_MARK: Final = "__bough_memo__"


def memo(function: F) -> F:
    """Mark a function: a call of it with the same arguments is taken from any earlier run.

    Use it for functions whose value depends on their arguments alone. A `Path` among the arguments counts by the
    content of its file. It is a decorator (`@bough.memo`), and a call for functions of others: `bough.memo(math.exp)`.
    """
    if not callable(function):
        raise WrongType(f"memo is for a function, not {shown(function)}")
    try:
        setattr(function, _MARK, True)
    except (AttributeError, TypeError):  # a function written in C, a bound method
        wrapped = functools.partial(function)
        setattr(wrapped, _MARK, True)
        return wrapped  # type: ignore[return-value] # it is called in the same way
    return function


def is_memo(function: Callable[..., Any]) -> bool:
    """Whether a function was marked, itself or inside of a `functools.partial`."""
    if getattr(function, _MARK, False):
        return True
    return isinstance(function, functools.partial) and is_memo(function.func)
