"""What known tasks will read goes last; of the rest the least recently used goes first.

Our own: LRU is wrong where a queue reads the same files in turn, one more than fit. Who waits is known, so a content
that more of the waiting tasks want stays longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from bough.policy.interface import CachedContent


class NeededLast:
    """See the module."""

    def rank(self, content: CachedContent, random: Random, /) -> tuple[float, ...]:
        """How many known tasks want it, then when it was used last."""
        return (content.wanted, content.used)
