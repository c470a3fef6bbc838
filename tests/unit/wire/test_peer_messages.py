"""Tickets: what lets a reader have a content, and what does not."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from bough.errors import ProtocolError
from bough.wire.framing import Frames, frame
from bough.wire.peer_messages import AskContent, ContentComes, is_admitted, make_ticket

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


class FormerAsk(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """As it was before there were streams."""

    digest: bytes
    offset: int
    length: int
    reader: int
    until: float
    ticket: bytes


class FormerComes(msgspec.Struct, frozen=True, array_like=True, tag="comes"):
    """As it was before there were streams."""

    error: str = ""


def test_former_versions_understand_each_side_and_are_understood() -> None:
    former = FormerAsk(DIGEST, 0, 10, 7, 1000.0, RIGHT.ticket)
    assert Frames[object](FormerAsk).feed(frame(replace(RIGHT, transfer=9))) == [former]
    assert Frames[object](AskContent).feed(frame(former)) == [RIGHT]
    assert Frames[object](FormerComes).feed(frame(ContentComes(streams=8))) == [FormerComes()]
    assert Frames[object](ContentComes).feed(frame(FormerComes())) == [ContentComes(streams=0)]


@pytest.mark.parametrize(
    "wrong",
    [
        replace(RIGHT, offset=-1),
        replace(RIGHT, offset=1 << 63),
        replace(RIGHT, length=-1),
        replace(RIGHT, length=1 << 63),
        replace(RIGHT, transfer=-1),
        replace(RIGHT, transfer=1 << 63),
        ContentComes(streams=-1),
        ContentComes(streams=65),
    ],
)
def test_ranges_and_numbers_of_streams_are_bounded_in_their_types(wrong: AskContent | ContentComes) -> None:
    with pytest.raises(ProtocolError):
        Frames[object](type(wrong)).feed(frame(wrong))
