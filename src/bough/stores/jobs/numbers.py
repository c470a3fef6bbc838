"""From the numbers that people write to records of the jobs database.

Runs of one workflow, that is of one name, share the base of their records (see `model.ids`). A session's store has one
workflow, whose base is 0. Workflows of a service that an earlier version opened have records without a base, and since
then records whose base is their run's. Rule: a number is looked for in one workflow, in all of its runs; an id that has
its base with it is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bough.model.ids import NUMBERS

Ask = Callable[[str, Sequence[Any]], Sequence[Mapping[str, Any]]]  # a statement and its values, to rows


def bases_of(ask: Ask, run: int) -> tuple[list[int], list[int]]:
    """Where the numbers of a run's workflow begin, and the runs of the workflow; no runs: all of the store."""
    rows = ask("select * from runs where name = (select name from runs where run = ?)", [run])
    if not rows or not all(row["grp"] for row in rows):
        return [0], []
    bases = {base for row in rows for base in ((row["base"],) if row.get("base") else (0, row["run"] * NUMBERS))}
    return sorted(bases), [row["run"] for row in rows]


def numbered(ask: Ask, run: int, first: int, last: int) -> tuple[str, list[int]]:
    """A condition on `tasks`, and its values: the records of these numbers, both included, in a run's workflow."""
    if first >= NUMBERS:  # ids as SQL and $BOUGH_TASK have them, which name their workflow themselves
        return "tasks.id between ? and ?", [first, last]
    bases, runs = bases_of(ask, run)
    first, last = min(first, NUMBERS - 1), min(last, NUMBERS - 1)
    condition = " or ".join(["tasks.id between ? and ?"] * len(bases))
    values = [base + number for base in bases for number in (first, last)]
    if not runs:
        return f"({condition})", values
    return f"({condition}) and tasks.run in ({', '.join('?' * len(runs))})", [*values, *runs]
