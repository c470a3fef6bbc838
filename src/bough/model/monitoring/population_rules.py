"""Rules about a population: tasks of an array or a group that are compared, so that the needless ones end early.

A rule names a policy (`policies.population`) and what it goes by. Members are compared at checkpoints, steps of a
metric, in the order of the steps. Rule: it is data, bounded here, that is journalled with the population it is for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from bough.errors import BadValue
from bough.model.bounds import Finite, Name, Word
from bough.model.monitoring.monitors import MOST_CHECKPOINTS


class PopulationRule(msgspec.Struct, frozen=True, array_like=True):
    """See the module."""

    policy: Word  # "halving", "median", "first-answer", or that of another package
    metric: Name = ""  # by which members are compared
    checkpoints: Annotated[tuple[Finite, ...], Meta(max_length=MOST_CHECKPOINTS)] = ()  # steps, ascending
    maximise: bool = False  # higher values are better
    keep: Annotated[float, Meta(gt=0, le=1)] = 0.5  # the share of members that goes on at a checkpoint
    least: Annotated[int, Meta(ge=1, le=1 << 32)] = 1  # how many must be there before any is ended
    cancel: bool = False  # members that run are cancelled; otherwise they end as successes with what they have so far
    options: Annotated[tuple[tuple[Name, Name], ...], Meta(max_length=64)] = ()  # for policies of other packages


def check_rule(rule: PopulationRule) -> None:
    """Refuse what the types let pass."""
    if any(low >= high for low, high in zip(rule.checkpoints, rule.checkpoints[1:], strict=False)):
        raise BadValue(
            f"the checkpoints of {rule.policy} must ascend: {', '.join(f'{at:g}' for at in rule.checkpoints)}"
        )
    if rule.checkpoints and not rule.metric:
        raise BadValue(f"{rule.policy} compares members at checkpoints: it needs the name of a metric")


def scores_at(rule: PopulationRule, points: Iterable[tuple[float, float, float]]) -> tuple[float, ...]:
    """The scores of a member at the checkpoints that it has reached, by its (step, time, value); lower is better."""
    scores: list[float] = []
    for step, _, value in points:
        scores += [-value if rule.maximise else value] * (reached(rule, step, len(scores)) - len(scores))
    return tuple(scores)


def reached(rule: PopulationRule, step: float, already: int) -> int:
    """How many checkpoints a member has reached at a step, if it had so many already."""
    while already < len(rule.checkpoints) and step >= rule.checkpoints[already]:
        already += 1
    return already
