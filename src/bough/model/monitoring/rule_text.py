"""Rules about populations in one line of text, as the command line takes them.

    halving:loss,10/30/90                  at steps 10, 30 and 90 of the metric `loss`, the better half goes on
    halving:loss,10/30/90,keep=0.25        the best quarter does
    median:score,50/100,maximise,least=5   higher values are better, and five must have finished before any is ended
    first-answer, first-answer:3           once one has succeeded, or three, the others are cancelled

Behind the steps come options: `keep=SHARE`, `least=N`, `maximise`, `cancel` (cancelled instead of finished). Any other
word before the colon is a policy of another package. Rule: whatever is read is within the bounds of `PopulationRule`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from bough.errors import BadValue, UserError
from bough.model.bounds import in_plain_words, shown
from bough.model.monitoring.monitor_text import monitor_text, read_monitor
from bough.model.monitoring.monitors import MOST_CHECKPOINTS, Metric
from bough.model.monitoring.population_rules import PopulationRule, check_rule

_FIRST: Final = "first-answer"
_LEAST: Final = {"halving": 2, "median": 3}
_LONGEST: Final = 10_000  # characters


def read_rule(text: str) -> PopulationRule:
    """What a text says; a UserError names it and says what is wrong."""
    try:
        if len(text) > _LONGEST:
            raise BadValue(f"a rule has at most {_LONGEST} characters")
        rule = _read(text)
        rule = msgspec.msgpack.decode(msgspec.msgpack.encode(rule), type=PopulationRule)
        check_rule(rule)
    except UserError as error:
        raise BadValue(f"rule {shown(text)}: {error}") from None
    except (msgspec.MsgspecError, UnicodeEncodeError, OverflowError) as error:
        raise BadValue(f"rule {shown(text)}: {in_plain_words(str(error))}") from None
    return rule


def _read(text: str) -> PopulationRule:
    policy, _, rest = text.partition(":")
    words = [word.strip() for word in rest.split(",")] if rest.strip() else []
    if not policy or policy != policy.strip():
        raise BadValue("it begins with a policy: halving:METRIC,STEP/STEP, median:METRIC,STEP/STEP or first-answer:N")
    if policy == _FIRST:
        if len(words) > 1:
            raise BadValue("it takes one number: first-answer:3")
        return PopulationRule(policy, least=_whole("the number", words[0]) if words else 1, cancel=True)
    if len(words) < 2:
        raise BadValue(f"it needs a metric and steps, as in {policy}:loss,10/30/90")
    options = dict(_options(words[2:]))
    options.setdefault("least", _LEAST.get(policy, 1))
    steps = tuple([_number("a step", step) for step in words[1].split("/")])
    return PopulationRule(policy, words[0], steps, **options)


def _options(words: Iterable[str]) -> Iterator[tuple[str, Any]]:
    for word in words:
        name, equals, value = word.partition("=")
        if name in {"maximise", "cancel"} and not equals:
            yield name, True
        elif name == "keep" and equals:
            yield name, _number(name, value)
        elif name == "least" and equals:
            yield name, _whole(name, value)
        else:
            raise BadValue(f"{shown(word)} is no option; there are keep=SHARE, least=N, maximise and cancel")


def _number(what: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadValue(f"{what} is {shown(text)}; it must be a number") from None


def _whole(what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise BadValue(f"{what} is {shown(text)}; it must be a whole number")
    return int(text)


def with_checkpoints(monitors: Iterable[str], rule: PopulationRule) -> list[str]:
    """Texts of monitors: the metric by which a rule compares is told at once where it does."""
    steps = tuple([int(step) for step in rule.checkpoints if step >= 0 and step.is_integer()])
    found: list[str] = []
    for text in monitors:
        item = read_monitor(text)
        if isinstance(item, Metric) and item.name == rule.metric:
            there = tuple(sorted({*item.checkpoints, *steps})[:MOST_CHECKPOINTS])
            text = monitor_text(msgspec.structs.replace(item, checkpoints=there))  # noqa: PLW2901
        found.append(text)
    return found
