"""ClassAd expressions: what they are worth, and what is not understood."""

from __future__ import annotations

import pytest

from bough.describe.dagman.classad_expression import Value, evaluate, shown


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("7.0 / 2", 3.5),
        ('"a" == "A"', True),
        ('"a" =?= "A"', False),
        ("nothing == 1", None),
        ("nothing =?= undefined", True),
        ("nothing || true", True),
        ("nothing && false", False),
        ("!(1 < 2)", False),
        ('size > 3 ? "big" : "small"', "big"),
        ("ifThenElse(isUndefined(nothing), My.Size, 0)", 5),
        (r"strcat(\"a b\", \"-\", size)", "a b-5"),
        ("max({1, size, 2}) + min(3, 4)", 8),
        ('substr("abcdef", -3, 2)', "de"),
        ("int(3.7) + round(2.5) + ceiling(1.1)", 7),
    ],
)
def test_what_an_expression_is_worth(text: str, value: Value) -> None:
    found = evaluate(text, {"size": 5})
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 +", "ends too early"),
        ("1 2", "'2' is not understood"),
        ("(1", r"\) is missing"),
        ("1 / 0", "cannot be calculated"),
        ("frob(1)", "the function frob is not known"),
        ("substr(1)", "does not take these values"),
        ('"a" + 1', "is no number"),
        ("$x", "is not understood"),
        ("(" * 100, "nested too deep"),
        ("9" * 18 + "*" + "9" * 18, "is too big"),
    ],
)
def test_what_is_not_understood_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(text, {})


def test_values_are_shown_as_htcondor_shows_them() -> None:
    assert [shown(value) for value in (None, True, 2, 2.5, "x")] == ["undefined", "true", "2", "2.5", "x"]
