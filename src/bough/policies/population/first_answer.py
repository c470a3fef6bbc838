"""The first answer wins: once so many members have succeeded, all others are needless.

Source: speculative and competing computation as in R. H. Halstead, "Multilisp", TOPLAS 1985; R. Osborne, "Speculative
computation in Multilisp", 1990.
"""

from __future__ import annotations

from collections.abc import Iterable

from bough.policy.interface import EndOthers, PopulationView


class FirstAnswer:
    """See the module."""

    def decide(self, view: PopulationView, /) -> Iterable[EndOthers]:
        """End all others once there are as many successes as the rule wants (`least`)."""
        if view.checkpoint < 0 and view.answers >= view.rule.least:
            count = view.answers
            yield EndOthers(f"{count} answer{'s are' if count > 1 else ' is'} there, and no more are wanted")
