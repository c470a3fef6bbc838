"""The least frequently used content goes first, of equals the least recently used (Falkon, 3.4: LFU)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from bough.policy.interface import CachedContent


class LfuEviction:
    """See the module."""

    def rank(self, content: CachedContent, random: Random, /) -> tuple[float, ...]:
        """How often it was used, then when."""
        return (content.uses, content.used)
