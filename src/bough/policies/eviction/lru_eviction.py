"""The least recently used content goes first (Falkon, 3.4: LRU, which all of its experiments used)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from bough.policy.interface import CachedContent


class LruEviction:
    """See the module."""

    def rank(self, content: CachedContent, random: Random, /) -> tuple[float, ...]:
        """When it was used last."""
        return (content.used,)
