"""The speeds of the hosts of a site: one number, an interval, a normal distribution, or one for each host.

    speed = 1.5                             # all alike
    speed = [4, 16]                         # drawn evenly from this interval
    speed = {mean = 10, deviation = 3}      # drawn from a normal distribution
    speeds = [1, 1, 2, 4]                   # one for each of the site's hosts

Rules: dice come with a seed, so that all policies meet the same hosts. A speed is above 0: what a normal distribution
draws below a hundredth of its mean is drawn again.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

Speed = Annotated[float, Meta(gt=0, le=1e6)]
SpeedRange = Annotated[list[Speed], Meta(min_length=2, max_length=2)]  # a tuple of two in a union ends msgspec 0.22
_LEAST = 0.01  # of the mean


class NormalSpeed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A normal distribution; its deviation is at most its mean, so that most draws count."""

    mean: Speed
    deviation: Annotated[float, Meta(ge=0, le=1e6)] = 0.0

    def draw(self, dice: Random) -> float:
        """The speed of one host."""
        while (speed := dice.gauss(self.mean, self.deviation)) < _LEAST * self.mean:
            pass
        return min(speed, 1e6)


SpeedSpec = Speed | SpeedRange | NormalSpeed


def draw_speed(spec: float | list[float] | NormalSpeed, dice: Random) -> float:
    """The speed of one host."""
    if isinstance(spec, NormalSpeed):
        return spec.draw(dice)
    return dice.uniform(*spec) if isinstance(spec, list) else spec


def wrong_with(spec: float | list[float] | NormalSpeed) -> str:
    """What a user should know of a speed that cannot be; nothing: it can."""
    if isinstance(spec, list) and spec[0] > spec[1]:
        return f"speed = [low, high], and {spec[0]:g} is above {spec[1]:g}"
    if isinstance(spec, NormalSpeed) and spec.deviation > spec.mean:
        return f"speed = {{mean, deviation}}, and the deviation {spec.deviation:g} is above the mean {spec.mean:g}"
    return ""
