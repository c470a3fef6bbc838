"""The median rule: a member that was never as good as the others were on average does not go on.

At a checkpoint a member is ended if its best score so far is worse than the median of the means that the members which
have succeeded had up to there. Source: D. Golovin et al., "Google Vizier: a service for black-box optimization", KDD
2017, section 3.2.2.
"""

from __future__ import annotations

from collections.abc import Iterable

from bough.policy.interface import EndMember, PopulationView


class Median:
    """See the module."""

    def decide(self, view: PopulationView, /) -> Iterable[EndMember]:
        """End the member that has just reached a checkpoint, if it is too bad."""
        rule, checkpoint = view.rule, view.checkpoint
        if checkpoint < 0:
            return
        others = view.averages(checkpoint)
        if len(others) < max(1, rule.least):
            return
        best = min(view.scores(view.member)[: checkpoint + 1])
        middle = (others[(len(others) - 1) // 2] + others[len(others) // 2]) / 2
        if best > middle:
            sign = -1 if rule.maximise else 1
            said = f"its best {rule.metric} by step {rule.checkpoints[checkpoint]:g} is {sign * best:g}"
            yield EndMember(*view.member, f"{said}, the median of {len(others)} others {sign * middle:g}")
