"""The content that came first goes first (Falkon, 3.4: FIFO)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from bough.policy.interface import CachedContent


class FifoEviction:
    """See the module."""

    def rank(self, content: CachedContent, random: Random, /) -> tuple[float, ...]:
        """When it came."""
        return (content.inserted,)
