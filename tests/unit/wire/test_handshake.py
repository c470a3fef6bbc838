"""Proofs: they hold for one token, one role, one server and one connection, and for nothing else."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.errors import ProtocolError
from bough.wire import handshake
from bough.wire.client_messages import VERSION, Ask, ClientHello, Proof
from bough.wire.framing import frame, server_frames
from bough.wire.handshake import FIRST_FRAME, NONCE, check, prove, split_first
from bough.wire.questions import Status

TOKEN, OTHER = b"t" * 32, b"o" * 32
SERVER, PEER = b"s" * NONCE, b"p" * NONCE
PRINT = "ab" * 32
HELLO = ClientHello(VERSION, 1, "host")


def good() -> Proof:
    return prove("submit", TOKEN, SERVER, PEER, PRINT)


def test_a_proof_holds_for_what_it_was_made_for() -> None:
    assert check(good(), TOKEN, SERVER, PRINT)


def test_a_proof_does_not_show_the_token() -> None:
    assert TOKEN not in frame(good())


def test_another_token_does_not_hold() -> None:
    assert not check(good(), OTHER, SERVER, PRINT)


def test_a_replayed_proof_does_not_hold_since_the_nonce_differs() -> None:
    assert not check(good(), TOKEN, b"z" * NONCE, PRINT)


def test_a_proof_for_one_server_does_not_hold_at_another() -> None:
    assert not check(good(), TOKEN, SERVER, "cd" * 32)


def test_a_proof_of_another_version_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    proof = good()
    monkeypatch.setattr(handshake, "VERSION", VERSION + 1)
    assert not check(proof, TOKEN, SERVER, PRINT)


@pytest.mark.parametrize("change", [{"role": "execute"}, {"nonce": b"q" * NONCE}, {"mac": b"m" * 32}, {"mac": b""}])
def test_no_field_of_a_proof_may_be_changed(change: dict[str, object]) -> None:
    assert not check(msgspec.structs.replace(good(), **change), TOKEN, SERVER, PRINT)


@pytest.mark.parametrize("nonce", [b"", b"x", b"x" * (NONCE + 1)])
def test_a_nonce_of_another_length_does_not_hold(nonce: bytes) -> None:
    assert not check(prove("submit", TOKEN, SERVER, nonce, PRINT), TOKEN, SERVER, PRINT)


@given(st.binary(max_size=40), st.binary(max_size=40), st.text(max_size=9), st.text(max_size=9))
def test_parts_do_not_run_into_each_other(one: bytes, two: bytes, role: str, mark: str) -> None:
    whole = prove(role, TOKEN, one, two, mark).mac
    assert prove(role, TOKEN, one + b"x", two, mark).mac != whole
    if one != two:
        assert prove(role, TOKEN, two, one, mark).mac != whole
    if role:
        assert prove(role[:-1], TOKEN, one, two, role[-1] + mark).mac != whole


def test_the_first_frame_is_a_proof_and_the_rest_is_for_later() -> None:
    first, second = frame(good(), HELLO), frame(Ask(1, Status()))
    found = split_first(first + second)
    assert found is not None
    proof, rest = found
    assert proof == good()
    assert server_frames().feed(rest) == [HELLO, Ask(1, Status())]


def test_a_proof_alone_leaves_nothing() -> None:
    assert split_first(frame(good())) == (good(), b"")


def test_an_incomplete_first_frame_is_waited_for() -> None:
    data = frame(good(), HELLO)
    assert [split_first(data[:n]) for n in range(len(data))] == [None] * len(data)


def test_what_follows_the_proof_is_not_read_yet() -> None:
    found = split_first(frame(good(), {"what": "nonsense"}))
    assert found is not None
    with pytest.raises(ProtocolError):
        server_frames().feed(found[1])


@pytest.mark.parametrize("size", [FIRST_FRAME + 1, (1 << 32) - 1])
def test_a_long_first_frame_is_refused_by_its_length(size: int) -> None:
    with pytest.raises(ProtocolError, match="over the limit"):
        split_first(size.to_bytes(4, "big"))


BAD_TEXT = b"\x91\x94\xa5proof\xa2\xff\xfe\xc4\0\xc4\0"
DEEP = b"\x91\x94\xa5proof" + b"\x91" * 60_000


@pytest.mark.parametrize(
    "data",
    [
        frame(),
        frame(HELLO),
        frame("proof"),
        b"\0\0\0\x01\xc1",
        b"\0\0\0\0",
        len(BAD_TEXT).to_bytes(4, "big") + BAD_TEXT,
        len(DEEP).to_bytes(4, "big") + DEEP,
    ],
    ids=["empty", "hello", "text", "no code", "nothing", "bad text", "deep"],
)
def test_anything_but_a_proof_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        split_first(bytes(data))


@given(st.binary(max_size=300))
def test_random_bytes_are_a_protocol_error_or_incomplete(data: bytes) -> None:
    for text in (data, len(data).to_bytes(4, "big") + data):
        try:
            found = split_first(text)
        except ProtocolError:
            continue
        assert found is None or isinstance(found[0], Proof)
