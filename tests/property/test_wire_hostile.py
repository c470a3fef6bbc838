"""The wire against chance: valid messages survive any cutting, anything else is a `ProtocolError` and nothing more."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bough.errors import ProtocolError
from bough.wire.framing import Frames, frame_list
from tests.fuzz.fuzz_wire import UNIONS, kinds, make_many, mutate
from tests.fuzz.messages import valid

unions = st.sampled_from(sorted(UNIONS))


def sized(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("name", UNIONS)
def test_every_kind_of_message_survives_the_wire(name: str) -> None:
    dice = random.Random(1)
    for kind in kinds(UNIONS[name]):
        for _ in range(20):
            message = valid(kind, dice)
            assert Frames(UNIONS[name]).feed(frame_list([message])) == [message]


@given(unions, st.randoms(use_true_random=False), st.lists(st.integers(0, 5), max_size=6), st.data())
def test_messages_survive_arbitrary_cutting(
    name: str, dice: random.Random, sizes: list[int], data: st.DataObject
) -> None:
    lists = [make_many(UNIONS[name], size, dice) for size in sizes]
    stream = b"".join(bytes(frame_list(messages)) for messages in lists)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    frames: Frames[object] = Frames(UNIONS[name])
    found = [m for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) for m in frames.feed(stream[a:b])]
    assert found == [message for messages in lists for message in messages]


@given(unions, st.binary(max_size=400), st.booleans())
@example("server", b"\x91\x94\xa3ask\x01\xa1x\x81\xa1k\xa2\xff\xfe", True)  # text that is not UTF-8
@example("server", b"\x91\x92\xa3\xff\xfe\xfd\x01", True)
@example("server", b"\x91\x94\xa3ask\x01\xa1x\x81\xa1k" + b"\x91" * 100_000, True)  # too deep
@example("client", b"\x91\x93\xa3ans\x01" + b"\x81\xa1k" * 100_000, True)
@example("server", b"\xdd\xff\xff\xff\xff", True)  # a list of four billion
def test_random_bytes_raise_nothing_but_protocol_errors(name: str, data: bytes, whole: bool) -> None:
    frames: Frames[object] = Frames(UNIONS[name])
    with contextlib.suppress(ProtocolError):
        frames.feed(sized(data) if whole else data)


@given(unions, st.randoms(use_true_random=False))
def test_broken_messages_raise_nothing_but_protocol_errors(name: str, dice: random.Random) -> None:
    one, other = (bytes(frame_list(make_many(UNIONS[name], 2, dice))) for _ in range(2))
    frames: Frames[object] = Frames(UNIONS[name])
    with contextlib.suppress(ProtocolError):
        frames.feed(mutate(one, other, dice))
