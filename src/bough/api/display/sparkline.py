"""Numbers as a row of bars, one letter each: `bough stats`, `bough watch`.

Rule: pure text from numbers; many numbers share a bar, which shows their mean.
"""

from __future__ import annotations

from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int, *, from_zero: bool = True) -> str:
    """Numbers as bars, the highest full. They stand on 0, or else on the lowest of them."""
    many = min(width, len(values))
    means = []
    for at in range(many):
        part = values[at * len(values) // many : (at + 1) * len(values) // many]
        means.append(sum(part) / len(part))
    floor = 0.0 if from_zero else min(means, default=0.0)
    most = max(means, default=0.0) - floor
    if most <= 0:
        return BARS[0] * many
    return "".join(BARS[min(len(BARS) - 1, int((mean - floor) / most * (len(BARS) - 1) + 0.999))] for mean in means)
