"""Rules about populations as texts: what each means, and what is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.errors import BadValue
from bough.model.monitoring.monitor_text import read_monitor
from bough.model.monitoring.monitors import Metric
from bough.model.monitoring.population_rules import PopulationRule
from bough.model.monitoring.rule_text import read_rule, with_checkpoints
from bough.monitors.comparison import FirstAnswer, Halving, MedianRule

STEPS = (10.0, 30.0, 90.0)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("halving:loss,10/30/90", Halving("loss", STEPS).rule),
        ("halving:loss,10/30/90,keep=0.25,maximise", Halving("loss", STEPS, keep=0.25, maximise=True).rule),
        ("halving:loss,10,cancel", Halving("loss", [10], cancel=True).rule),
        ("median:loss,10/30/90", MedianRule("loss", STEPS).rule),
        ("median:loss,10/30/90,least=5", MedianRule("loss", STEPS, least=5).rule),
        ("first-answer", FirstAnswer().rule),
        ("first-answer:3", FirstAnswer(3).rule),
        ("keep-three:loss,10/30/90", PopulationRule("keep-three", "loss", STEPS)),
    ],
)
def test_a_text_means_what_its_object_does(text: str, rule: PopulationRule) -> None:
    assert read_rule(text) == rule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with a policy"),
        ("halving", "needs a metric and steps"),
        ("halving:loss", "needs a metric and steps"),
        ("halving:loss,ten", "a step is 'ten'"),
        ("halving:loss,30/10", "must ascend"),
        ("halving:,10", "needs the name of a metric"),
        ("halving:loss,10,keep=2", "<= 1"),
        ("halving:loss,10,keep=much", "keep is 'much'"),
        ("halving:loss,nan", "rule 'halving:loss,nan'"),
        ("halving:loss,10,fast", "'fast' is no option"),
        ("first-answer:0", ">= 1"),
        ("first-answer:x", "must be a whole number"),
        ("first-answer:1,2", "one number"),
        ("halving:loss," + "/".join(map(str, range(300))), "256"),
        ("halving:\udc80,10", "rule"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, message: str) -> None:
    with pytest.raises(BadValue) as refused:
        read_rule(text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.text(st.sampled_from("halving:ls,1/0.-=eankepmxic "), max_size=30))
def test_any_text_is_a_rule_or_an_error(text: str) -> None:
    for whole in (text, f"halving:{text}", f"median:x,{text}"):
        try:
            rule = read_rule(whole)
        except BadValue:
            continue
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(rule), type=PopulationRule) == rule


def test_the_metric_that_decides_is_told_at_the_steps_that_decide() -> None:
    rule = read_rule("halving:loss,10/30.5/90")
    texts = ["metric:loss=(.*),at=5", "metric:score=(.*)", "after:1h"]
    first, *others = with_checkpoints(texts, rule)
    found = read_monitor(first)
    assert isinstance(found, Metric)
    assert found.checkpoints == (5, 10, 90)
    assert others == texts[1:]
