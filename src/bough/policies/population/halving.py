"""Successive halving: at each checkpoint only the best share of the members goes on, by default the better half.

A checkpoint is judged once every member that runs has reached it, so that members are compared with all of their wave
and none waits for tasks that have no room yet; those that come later are ranked among all that got there. Source: K.
Jamieson and A. Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", AISTATS 2016; that
nobody waits for the rest is of L. Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from bough.policy.interface import EndMember, PopulationView


class Halving:
    """See the module."""

    def decide(self, view: PopulationView, /) -> Iterable[EndMember]:
        """End the members beyond the best share at each checkpoint that can be judged now."""
        rule = view.rule
        for checkpoint in range(len(rule.checkpoints)) if view.checkpoint < 0 else (view.checkpoint,):
            count = view.reached(checkpoint)
            if count < max(2, rule.least) or view.awaited(checkpoint):
                continue
            kept = max(1, ceil(rule.keep * count))
            for place, (_, member) in enumerate(view.ranking(checkpoint)[kept:], kept + 1):
                if not view.has_ended(member):
                    at = f"{rule.metric} at step {rule.checkpoints[checkpoint]:g}"
                    yield EndMember(*member, f"{at} is number {place} of {count}, and {kept} go on")
