from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bough.executor.worker.call_text import MOST, show_call, show_values


def paint(n: int, colour: str = "red", *more: object, **named: object) -> None:
    """Has parameters."""


@dataclass
class Point:
    x: int
    y: Any


class Pair(NamedTuple):
    left: int
    right: int


def test_arguments_have_their_names() -> None:
    assert show_call(paint, (3, "blue", 4), {"size": 1.5}) == "n=3, colour='blue', 4, size=1.5"


def test_a_wrapped_function_and_a_method_tell_their_names() -> None:
    @functools.wraps(paint)
    def wrapper(*args: object) -> None:
        paint(*args)  # type: ignore[arg-type]

    assert show_call(wrapper, (1,), {}) == "n=1"
    assert show_call(Path("x").joinpath, ("y",), {}) in {"'y'", "args='y'"}
    assert show_call(functools.partial(paint, 1), ("x",), {}) == "'x'"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1, 2], "[1, 2]"),
        ((1,), "(1,)"),
        ({"a": {1}}, "{'a': {1}}"),
        (list(range(100)), "[0, 1, 2, 3, 4, 5, ... 94 more]"),
        ([[[[1]]]], "[[[[...]]]]"),
        (Point(1, "b"), "Point(x=1, y='b')"),
        (Pair(1, 2), "Pair(left=1, right=2)"),
        (Path("a/b"), "'a/b'"),
        (10**1000, "<int of 3322 bits>"),
        ("line\nbreak", r"'line\nbreak'"),
        (b"x", "b'x'"),
    ],
)
def test_values_are_shown_briefly(value: object, text: str) -> None:
    assert show_values([("", value)]) == text


class Endless:
    def __repr__(self) -> str:
        while True:
            pass


class Raising:
    def __repr__(self) -> str:
        raise SystemExit(3)


class NoText:
    def __repr__(self) -> str:
        return 3  # type: ignore[return-value]


class Long:
    def __repr__(self) -> str:
        return "x" * 10_000_000


@pytest.mark.parametrize("kind", [Endless, Raising, NoText])
def test_a_hostile_repr_does_no_harm(kind: type) -> None:
    assert show_values([("a", kind()), ("b", 1)]) == f"a=<{kind.__name__} object>, b=1"


def test_a_line_is_bounded() -> None:
    assert len(show_values([("a", Long())])) < 200
    assert len(show_values([(f"name{n}", "x" * 100) for n in range(1000)])) <= MOST + 10
    holds_itself: list[Any] = []
    holds_itself.append(holds_itself)
    assert show_values([("", holds_itself)]) == "[[[[...]]]]"


def test_what_cannot_be_sent_is_escaped() -> None:
    shown = show_values([("a", "\udcff"), ("b", "\x00\x1b")])
    assert shown.encode()
    assert shown.isprintable()
