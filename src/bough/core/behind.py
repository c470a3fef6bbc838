"""What is let go of an array that a generator feeds, as its elements succeed: arguments, attempts, exact turns.

A success that lies behind is known by the range it is part of; which turn it was, the jobs database knows (`turn` 0
says so). Rule: what has not succeeded keeps all it had, because somebody may ask for another try; letting go
happens when pages come, which is a fact, so that a replay lets go of the same.
"""

from __future__ import annotations

from typing import Any

from bough.core.loose import Success
from bough.core.records import ArrayRecord
from bough.core.window import Window, holds_any


def let_go(array: ArrayRecord) -> None:
    """Keep of what succeeded only that it did."""
    states = array.states
    if not isinstance(states, Window) or not states.advance():
        return
    base, odd = states.base, states.odd
    ordered = sorted(odd)
    array.paged = [page for page in array.paged if page.stop > base or holds_any(ordered, page.start, page.stop)]
    array.found = _merged(array.successes(), base)
    tables: tuple[dict[int, Any], ...] = (
        array.attempts, array.trouble, array.failures, array.shunned, array.element_dependents,
    )  # fmt: skip
    for table in tables:
        for index in [index for index in table if index < base and index not in odd]:
            del table[index]


def _merged(found: list[Success], base: int) -> list[Success]:
    """Neighbours below the base as one."""
    kept: list[Success] = []
    for success in found:
        if kept and success.stop <= base and _continues(kept[-1], success):
            last = kept[-1]
            turn = last.turn if last.turn == success.turn else 0
            kept[-1] = Success(last.start, success.stop, turn, last.source, last.source_start, last.attempt)
        else:
            kept.append(success)
    return kept


def _continues(last: Success, success: Success) -> bool:
    return (
        last.stop == success.start
        and last.source == success.source
        and last.attempt == success.attempt
        and last.source_start + last.stop - last.start == success.source_start
    )
