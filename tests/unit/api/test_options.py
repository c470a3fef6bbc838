"""Options of tasks: what they become, and what is refused by name."""

from __future__ import annotations

import pytest

from bough.api.options import DEFAULTS, read_options
from bough.errors import UserError


def test_options_become_needs_and_limits() -> None:
    found = read_options(
        DEFAULTS,
        {
            "cores": 2,
            "memory": "4GB",
            "gpus": 1,
            "resources": {"license": 1},
            "timeout": "1h",
            "retries": 2,
            "name": "x",
        },
    )
    assert (found.needs.cores, found.needs.memory, found.needs.gpus) == (2, 4 * 10**9, 1)
    assert found.needs.named == (("license", 1),)
    assert (found.limits.timeout, found.limits.memory, found.limits.retries) == (3600, 4 * 10**9, 2)
    assert found.name == "x"


def test_later_options_win_and_none_says_nothing() -> None:
    base = read_options(DEFAULTS, {"cores": 2, "priority": 3, "memo": False})
    found = read_options(base, {"cores": None, "priority": 5})
    assert (found.needs.cores, found.priority, found.memo) == (2, 5, False)
    assert read_options(base, {"name": None}) is base


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("cores", -1, "cores is -1"),
        ("cores", "two", "cores is 'two'"),
        ("memory", "much", "memory is 'much'"),
        ("timeout", "soon", "timeout is 'soon'"),
        ("timeout", float("inf"), "timeout is inf"),
        ("backoff", -1, "backoff is -1"),
        ("retries", 1.5, "retries is 1.5"),
        ("resources", {"cores": 1}, "give cores= instead"),
        ("resources", ["license"], "give a dict"),
        ("name", 5, "name is 5"),
        ("after", "12", "after is '12'"),
        ("speed", 1, "no option 'speed'"),
    ],
)
def test_a_wrong_option_is_named(option: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_options(DEFAULTS, {option: value})


def test_the_time_after_which_a_silent_task_is_sent_again_is_read() -> None:
    assert read_options(DEFAULTS, {"replay": "2m"}).limits.replay == 120
    assert read_options(read_options(DEFAULTS, {"replay": 5}), {"retries": 1}).limits.replay == 5
