"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from bough.model.texts.plurals import counted


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 tasks"), (1, "1 task"), (2, "2 tasks"), (1.0, "1 task"), (0.5, "0.5 tasks")]
)
def test_only_one_is_said_in_the_singular(number: float, said: str) -> None:
    assert counted(number, "task") == said


def test_a_noun_may_have_a_plural_of_its_own() -> None:
    assert counted(3, "dependency", "dependencies") == "3 dependencies"
    assert counted(1, "retry was", "retries were") == "1 retry was"
    assert counted(1_000_000_000_000, "task") == "1000000000000 tasks"
