"""Selectors: every form, and what is refused. (The parser is pure; it lives in the model.)"""

from __future__ import annotations

import pytest

from bough.errors import UserError
from bough.model.texts.selectors import (
    All,
    Elements,
    Last,
    Named,
    Records,
    Selector,
    Within,
    read_selector,
    read_selectors,
    show_selector,
)


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("last", Last()),
        ("all", All()),
        ("*", All()),
        ("12", Records(12, 12)),
        ("5-9", Records(5, 9)),
        ("12.3", Elements(12, 3, 3)),
        ("12.3-40", Elements(12, 3, 40)),
        ("align/*", Within("align")),
        ("align/sub/*", Within("align/sub")),
        ("align/plot", Named("align/plot")),
        ("plot", Named("plot")),
        ("plot-2", Named("plot-2")),
        ("12a", Named("12a")),
        ("1.2.3", Named("1.2.3")),
        ("blast?*", Named("blast?*")),
    ],
)
def test_a_selector_is_read(text: str, selector: Selector) -> None:
    assert read_selector(text) == selector


@pytest.mark.parametrize("text", ["last", "all", "12", "5-9", "12.3", "12.3-40", "a/b/*", "plot"])
def test_a_selector_is_shown_as_it_was_read(text: str) -> None:
    assert show_selector(read_selector(text)) == text


def test_a_comma_list_keeps_its_order() -> None:
    assert read_selectors("plot, 3,align/*") == (Named("plot"), Records(3, 3), Within("align"))


@pytest.mark.parametrize("number", ["4611686018427387905", "9223372036854775808", "9" * 5000])
def test_numbers_that_no_store_can_hold_are_refused(number: str) -> None:
    for text in (number, f"1-{number}", f"{number}.1", f"1.{number}", f"1.2-{number}", f"plot,{number}"):
        with pytest.raises(UserError, match="in the selector"):
            read_selectors(text)
    assert read_selector("0" * 5000 + "12") == Records(12, 12)


@pytest.mark.parametrize("text", ["a\0b", "\udcff", "y" * 70_000])
def test_texts_that_no_store_can_hold_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="selector"):
        read_selectors(text)


@pytest.mark.parametrize("text", ["", "1,", ",", "/", "a//b", "9-5", "3.9-5"])
def test_what_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="selector"):
        read_selectors(text)


def test_a_pattern_knows_that_it_is_one() -> None:
    assert Named("a*").is_pattern
    assert not Named("a").is_pattern
