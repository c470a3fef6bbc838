"""The last values of a series, and whether they hardly change any more: by standard deviation, or by slope.

Sums over the window are kept up to date value by value, around a centre near the values, and made anew at least once
per window. Rule: the sums only say when it is surely not a plateau; whenever they cannot tell, all values of the
window are looked at, with exact sums. So rounding never decides.
"""

from __future__ import annotations

import math

_EPSILON = 2.0**-52


class PlateauWindow:
    """A window that moves over values. All are finite and at most 1e300."""

    def __init__(self, size: int, below: float, *, slope: bool) -> None:
        self._size = size
        self._below = below
        self._slope = slope
        self._half = (size - 1) / 2
        self._norm = size * (size * size - 1) / 12  # the sum of squared distances of positions from their middle
        self.measure = 0.0  # what decided last: the standard deviation, or the slope
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget all values."""
        self._ring: list[float] = []
        self._at = 0  # of the oldest value
        self._left = 0  # values until the sums are made anew
        self._centre = self._sum = self._other = self._far = self._sure = 0.0

    def take(self, values: list[float]) -> int:
        """Take values in; how many of them it took until there was a plateau, 0: there is none."""
        ring, size, count = self._ring, self._size, 0
        if len(ring) < size:
            count = min(len(values), size - len(ring))
            ring += values[:count]
            if len(ring) < size:
                return 0
            if self._look():
                return count
        slide = self._slide_slope if self._slope else self._slide
        while count < len(values):
            taken, is_sure = slide(values[count : count + self._left])
            count += taken
            self._left -= taken
            if not (is_sure and self._left) and self._look():
                return count
        return 0

    def _slide(self, values: list[float]) -> tuple[int, bool]:
        """Take values in while the sums rule out a plateau; how many were, and whether it is ruled out still."""
        ring, at, size, centre = self._ring, self._at, self._size, self._centre
        total, squares, far, sure = self._sum, self._other, self._far, self._sure
        taken, is_sure = 0, True
        for value in values:
            old = ring[at] - centre
            ring[at] = value
            at += 1
            if at == size:
                at = 0
            new = value - centre
            square = new * new
            total += new - old
            squares += square - old * old
            taken += 1
            if square > far:
                far = square
                sure = self._surely_above(far)
            is_sure = size * squares - total * total > sure
            if not is_sure:
                break
        self._at, self._sum, self._other, self._far, self._sure = at, total, squares, far, sure
        return taken, is_sure

    def _slide_slope(self, values: list[float]) -> tuple[int, bool]:
        """As `_slide`, by the sum of values each times its position in the window."""
        ring, at, size, centre, half = self._ring, self._at, self._size, self._centre, self._half
        total, weighted, far, sure = self._sum, self._other, self._far, self._sure
        taken, is_sure = 0, True
        for value in values:
            old = ring[at] - centre
            ring[at] = value
            at += 1
            if at == size:
                at = 0
            new = value - centre
            weighted += (size - 1) * new - (total - old)  # all that stay move one place down
            total += new - old
            taken += 1
            if abs(new) > far:
                far = abs(new)
                sure = self._surely_above(far)
            is_sure = abs(weighted - half * total) > sure
            if not is_sure:
                break
        self._at, self._sum, self._other, self._far, self._sure = at, total, weighted, far, sure
        return taken, is_sure

    def _surely_above(self, far: float) -> float:
        """What the sums must exceed to rule out a plateau, rounding errors included; `far`: the farthest from centre.

        An update errs by some units in the last place of the biggest sum, and there are at most as many updates as the
        window is long before the sums are made anew.
        """
        size, below = self._size, self._below
        if self._slope:
            return self._norm * (below * (1 + 1e-9) + 1000 * _EPSILON * far)
        return size * size * (below * below * (1 + 1e-9) + 64 * _EPSILON * size * far)

    def _look(self) -> bool:
        """Look at all values of a full window, and make the sums anew; whether it is a plateau."""
        at, size, half = self._at, self._size, self._half
        values = self._ring[at:] + self._ring[:at]
        self._centre = centre = math.fsum(values) / size
        moved = [value - centre for value in values]
        self._sum = math.fsum(moved)
        self._left = size
        if self._slope:
            self._other = math.fsum([place * value for place, value in enumerate(moved)])
            self._far = max(map(abs, moved))
            leaning = math.fsum([(place - half) * value for place, value in enumerate(moved)])
            self.measure = leaning / self._norm
        else:
            squares = [value * value for value in moved]
            self._other = math.fsum(squares)
            self._far = max(squares)
            self.measure = math.sqrt(self._other / size)
        self._sure = self._surely_above(self._far)
        return abs(self.measure) < self._below
