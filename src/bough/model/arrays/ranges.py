"""Ranges of indexes: short sorted lists of disjoint [start, stop) pairs.

Rule: the common case is one range that shrinks from its front, and it is the fast one.
"""

from __future__ import annotations

Ranges = list[list[int]]


def take(ranges: Ranges, start: int, stop: int) -> Ranges:
    """Remove [start, stop) and return the parts of it that were there."""
    if len(ranges) == 1:
        first = ranges[0]
        if first[0] == start and stop <= first[1]:
            if stop == first[1]:
                ranges.clear()
            else:
                first[0] = stop
            return [[start, stop]] if stop > start else []
    taken: Ranges = []
    kept: Ranges = []
    for low, high in ranges:
        cut_low, cut_high = max(low, start), min(high, stop)
        if cut_low >= cut_high:
            kept.append([low, high])
            continue
        taken.append([cut_low, cut_high])
        if low < cut_low:
            kept.append([low, cut_low])
        if cut_high < high:
            kept.append([cut_high, high])
    ranges[:] = kept
    return taken


def add(ranges: Ranges, start: int, stop: int) -> None:
    """Add [start, stop), which must not be there, keeping the list sorted and merged."""
    if not ranges or ranges[-1][1] <= start:
        if ranges and ranges[-1][1] == start:
            ranges[-1][1] = stop
        else:
            ranges.append([start, stop])
        return
    ranges.append([start, stop])
    ranges.sort()
    merged: Ranges = []
    for low, high in ranges:
        if merged and merged[-1][1] >= low:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    ranges[:] = merged


def size(ranges: Ranges) -> int:
    """How many indexes there are."""
    return sum(stop - start for start, stop in ranges)


def runs_of(states: bytes | bytearray, wanted: bytes, start: int, stop: int) -> Ranges:
    """The maximal runs within [start, stop) whose state is one of `wanted`."""
    found: Ranges = []
    chosen = states[start:stop].translate(_membership(wanted))
    at = chosen.find(b"\x01")
    while at >= 0:
        end = chosen.find(b"\x00", at)
        if end < 0:
            end = len(chosen)
        found.append([start + at, start + end])
        at = chosen.find(b"\x01", end)
    return found


_tables: dict[bytes, bytes] = {}


def _membership(wanted: bytes) -> bytes:
    table = _tables.get(wanted)
    if table is None:
        table = _tables[wanted] = bytes(1 if value in wanted else 0 for value in range(256))
    return table
