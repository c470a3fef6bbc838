"""Any content goes, each as likely as the others (Falkon, 3.4: Random)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from bough.policy.interface import CachedContent


class RandomEviction:
    """See the module."""

    def rank(self, content: CachedContent, random: Random, /) -> tuple[float, ...]:
        """A number from the dice."""
        return (random.random(),)
