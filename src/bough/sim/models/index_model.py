"""A distributed index of where data is, beside the central one: what a look-up costs (Falkon, 3.6).

A peer-to-peer replica location service took 0.5 ms for a look-up with one node, and a little over 3 ms with 15; the
thesis extrapolates to 15 ms for a million. A logarithm fits: 0.5 + 0.92 ln(n) ms. A hash table in memory takes 0.25 to
1 us, up to four million look-ups a second.
Rule: these are fits of printed figures, and no measurements of ours.
"""

from __future__ import annotations

from math import log

from bough.errors import UserError
from bough.model.ids import Seconds

CENTRAL_RATE = 4.18e6  # look-ups a second of one hash table, as printed
ENTRY = 200  # bytes of an entry, as printed
_FIRST, _GROWTH = 0.5e-3, 0.92e-3  # seconds


def lookup_seconds(nodes: int) -> Seconds:
    """How long a look-up takes in an index that so many nodes share."""
    if nodes < 1:
        raise UserError(f"an index of {nodes} nodes: say at least 1")
    return _FIRST + _GROWTH * log(nodes)


def lookup_rate(nodes: int) -> float:
    """Look-ups a second of all nodes together, each of which does one after the other."""
    return nodes / lookup_seconds(nodes)


def break_even(rate: float = CENTRAL_RATE) -> int:
    """The fewest nodes that together do as many look-ups a second as one table."""
    low, high = 1, 1
    while lookup_rate(high) < rate:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        if lookup_rate(middle) < rate:
            low = middle + 1
        else:
            high = middle
    return low


def central_bytes(entries: int) -> int:
    """What a central index needs in memory."""
    return entries * ENTRY
