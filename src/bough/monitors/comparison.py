"""Rules that compare tasks of an array or a group while they run, so that the needless ones end early.

    from bough.monitors.comparison import Halving

    sweep = s.sweep("./train --rate {rate}", bough.product(rate=rates))
    sweep.rule(Halving("loss", at=[10, 30, 90], pattern="loss=([0-9.]+)"))   # the better half goes on at each

Members that are ended count as done, with what they wrote so far; with cancel=True they are cancelled. Those that have
not started are cancelled. Rule: a rule is checked when it is made, and is a value that nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from bough.errors import BadValue
from bough.model.bounds import within
from bough.model.monitoring.population_rules import PopulationRule, check_rule
from bough.monitors import Metric


class Rule:
    """The base of rules; `metric` finds the numbers in what members print, if a pattern was given."""

    def __init__(self, rule: PopulationRule, pattern: str | None = None) -> None:
        self.rule = within("rule", rule, PopulationRule)
        check_rule(rule)
        whole = [int(at) for at in rule.checkpoints if float(at).is_integer()]
        self.metric = Metric(pattern, rule.metric, at=whole) if pattern is not None else None

    def __repr__(self) -> str:
        return f"<rule {self.rule.policy}>"


def _steps(at: Iterable[float]) -> tuple[float, ...]:
    steps = tuple(float(step) for step in at)
    if not steps:
        raise BadValue("at names no step: say at which steps tasks are compared, as in at=[10, 30, 90]")
    return steps


class Halving(Rule):
    """At each step in `at` the best share of the tasks goes on, and the others end: successive halving.

    A step is judged once all tasks that run have reached it. Lower values are better, unless `maximise`.
    """

    def __init__(
        self,
        metric: str,
        at: Iterable[float],
        *,
        keep: float = 0.5,
        maximise: bool = False,
        least: int = 2,
        cancel: bool = False,
        pattern: str | None = None,
    ) -> None:
        rule = PopulationRule("halving", metric, _steps(at), maximise, keep, least, cancel)
        super().__init__(rule, pattern)


class MedianRule(Rule):
    """A task ends at a step if its best value so far is worse than the median of what finished ones had on average."""

    def __init__(
        self,
        metric: str,
        at: Iterable[float],
        *,
        maximise: bool = False,
        least: int = 3,
        cancel: bool = False,
        pattern: str | None = None,
    ) -> None:
        rule = PopulationRule("median", metric, _steps(at), maximise, least=least, cancel=cancel)
        super().__init__(rule, pattern)


class FirstAnswer(Rule):
    """Once so many tasks have succeeded, the others are cancelled."""

    def __init__(self, count: int = 1, *, cancel: bool = True) -> None:
        super().__init__(PopulationRule("first-answer", least=count, cancel=cancel))
