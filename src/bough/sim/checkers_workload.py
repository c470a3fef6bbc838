"""All checkers databases of 4 black against 3 white pieces: 638 parts, each computed and then verified.

A slice (black kings, white kings, black checkers, white checkers) waits for those in which a checker has become a king;
a part of it (ranks of the leading checkers) for those in which one has gone ahead. What waits for a part starts when
that is computed. Goldenberg's thesis (TrellisDAG, University of Alberta 2003, the large experiment) prints no times:
those here are stand-ins, a straight line over the number of positions, fitted to the published makespan.
Rule: nothing is scheduled here; parts are numbered in the order in which `make` would reach them, depth first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import comb
from typing import Final, TypeVar

from bough.model.ids import ROOT, BlobId, GroupId, RecordId, Seconds
from bough.model.tasks import Dep, GroupSpec, Item, Kind, On, TaskExtras, TaskSpec
from bough.sim.workload import SimulatedTask, Workload

PARTS: Final = 638
BLACK, WHITE = 4, 3
Slice = tuple[int, int, int, int]
Part = tuple[int, int, int, int, int, int]
T = TypeVar("T")

_BASE, _SLOPE, _CHECKED = 6.0, 6.19267e-6, 0.28  # seconds; seconds a position; of which verification takes a part
_KINGS = (2952.50, 828.36)  # 4300, which the medium experiment measured


def slices() -> list[Slice]:
    """In the order of their generator."""
    return [(bk, wk, BLACK - bk, WHITE - wk) for bk in range(BLACK + 1) for wk in range(WHITE + 1)]


def parts(of: Slice) -> list[Part]:
    """In the order of their generator."""
    black, white = (range(7) if checkers else range(1) for checkers in of[2:])
    return [(*of, br, wr) for br in black for wr in white]


def promoted(one: Slice) -> list[Slice]:
    """The slices it waits for, as far as they exist."""
    bk, wk, bc, wc = one
    return [other for other in ((bk + 1, wk, bc - 1, wc), (bk, wk + 1, bc, wc - 1)) if min(other) >= 0]


def advanced(one: Part) -> list[Part]:
    """The parts of its slice that it waits for, as far as they exist."""
    *of, br, wr = one
    there = parts((of[0], of[1], of[2], of[3]))
    return [other for other in ((*of, br + 1, wr), (*of, br, wr + 1)) if other in there]


def positions(part: Part) -> int:
    """How many positions a part has: all within its ranks less those that do not reach one of them."""
    bk, wk, bc, wc, br, wr = part
    checkers = 0
    for b in range(1 + bool(bc)):
        for w in range(1 + bool(wc)):
            ways = _within(bc, wc, br - b, wr - w)
            checkers += -ways if b != w else ways
    left = 32 - bc - wc
    return checkers * comb(left, bk) * comb(left - bk, wk)


@cache
def _within(bc: int, wc: int, br: int, wr: int) -> int:
    """In how many ways checkers stand on the first br + 1 rows of their sides."""
    black, white = 4 * (br + 1), 4 * (wr + 1)
    both = 4 * max(0, br + wr - 6) if bc and wc else 0  # squares on which either may stand
    return sum(comb(both, k) * comb(black - both, bc - k) * comb(white - k, wc) for k in range(min(bc, both) + 1))


def lengths_of(part: Part) -> tuple[Seconds, Seconds]:
    """How long the computation takes and how long the verification: of the part and its mirror image."""
    if part[:4] == (4, 3, 0, 0):
        return _KINGS
    work = _SLOPE * 2 * positions(part)
    return _BASE + work, _BASE / 2 + _CHECKED * work


def grouped() -> tuple[list[Item], dict[int, Seconds]]:
    """What is submitted, in groups, and how long each task takes: odd ones compute, the next one verifies."""
    items: list[Item] = []
    lengths: dict[int, Seconds] = {}
    groups: dict[tuple[int, ...], GroupId] = {}

    def open_group(kind: str, numbers: tuple[int, ...], before: Sequence[tuple[int, ...]], parent: GroupId) -> GroupId:
        group = groups[numbers] = GroupId(len(groups) + 1)
        name = "_".join([kind, *map(str, numbers)])
        items.append(GroupSpec(group, name, parent, tuple(Dep(On.GROUP, groups[one]) for one in before)))
        return group

    for one in depth_first(slices(), promoted):
        above = open_group("Slice", one, promoted(one), ROOT)
        for part in depth_first(parts(one), advanced):
            group = open_group("Rank", part, advanced(part), above)
            record = RecordId(len(lengths) + 1)
            lengths[record], lengths[record + 1] = lengths_of(part)
            items.append(
                TaskSpec(record, Kind.COMMAND, BlobId(b""), b"", group, "run", extras=TaskExtras(release=True))
            )
            after = (Dep(On.TASK, record),)
            items.append(TaskSpec(RecordId(record + 1), Kind.COMMAND, BlobId(b""), b"", group, "ver", after=after))
    return items, lengths


def tasks(number: int = PARTS) -> Workload:
    """The first of the parts as tasks without groups, which wait for what their groups would wait for.

    All parts of a slice lead to the one with the leading checkers on their first ranks. So a slice has been computed
    when that has, and what waits for a slice waits for that.
    """
    made: list[SimulatedTask] = []
    places: dict[Part, int] = {}
    last: dict[Slice, int] = {}
    for one in depth_first(slices(), promoted):
        for part in depth_first(parts(one), advanced):
            if len(places) == number:
                break
            computing, checking = lengths_of(part)
            after = [places[other] for other in advanced(part)] or [last[other] for other in promoted(one)]
            name = "_".join(map(str, part))
            places[part] = last[one] = len(made)
            made.append(SimulatedTask(f"run {name}", computing, tuple(after), template="run"))
            made.append(SimulatedTask(f"ver {name}", checking, (places[part],), template="ver"))
    return Workload("checkers", made)


def depth_first(every: Sequence[T], before: Callable[[T], Sequence[T]]) -> Iterator[T]:
    """Each after what it waits for, as far to the left as that allows."""
    seen: set[T] = set()

    def visit(one: T) -> Iterator[T]:
        if one not in seen:
            seen.add(one)
            for other in before(one):
                yield from visit(other)
            yield one

    for one in every:
        yield from visit(one)
