"""Tickets: what lets a reader have a content, and what does not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bough.wire.peer_messages import AskContent, is_admitted, make_ticket

SECRET, DIGEST = b"s" * 32, b"d" * 32
RIGHT = AskContent(DIGEST, 0, 10, 7, 1000.0, make_ticket(SECRET, DIGEST, 7, 1000.0))


def test_a_ticket_holds_for_its_content_its_reader_and_its_time() -> None:
    assert is_admitted(SECRET, RIGHT, 900.0)
    assert is_admitted(SECRET, RIGHT, 1500.0)  # clocks differ
    assert not is_admitted(SECRET, RIGHT, 2000.0)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(RIGHT, digest=b"e" * 32),
        replace(RIGHT, digest=b"d" * 31),
        replace(RIGHT, reader=8),
        replace(RIGHT, until=1e9),
        replace(RIGHT, until=float("nan")),
        replace(RIGHT, ticket=b"t" * 32),
    ],
)
def test_nothing_else_is_admitted(wrong: AskContent) -> None:
    assert not is_admitted(SECRET, wrong, 900.0)


def test_the_secret_of_another_executor_is_worth_nothing() -> None:
    assert not is_admitted(b"o" * 32, RIGHT, 900.0)
