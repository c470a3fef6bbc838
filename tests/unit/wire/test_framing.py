"""Frames: however bytes are cut, the messages come out whole; anything else is a protocol error."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.errors import ProtocolError
from bough.wire import client_messages, executor_messages, framing
from bough.wire.framing import Frames, frame, frame_list, server_frames, to_client_frames, to_executor_frames
from bough.wire.questions import Status

HELLO = client_messages.ClientHello(1, 42, "host", owner=True)
CHAT: list[object] = [
    HELLO,
    client_messages.Subscribe(),
    client_messages.Ask(1, Status()),
    client_messages.CloseSession("now"),
]
UNION = client_messages.FromClient | executor_messages.FromExecutor


def test_a_message_comes_out_as_it_went_in() -> None:
    assert server_frames().feed(frame(HELLO)) == [HELLO]


def test_a_frame_is_a_length_and_a_list() -> None:
    data = frame(HELLO)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert isinstance(msgspec.msgpack.decode(data[4:]), list)
    assert frame_list([HELLO]) == data


def test_a_stream_may_be_cut_at_every_byte() -> None:
    data = bytes(frame(*CHAT[:2]) + frame(CHAT[2]) + frame(CHAT[3]))
    for cut in range(len(data) + 1):
        frames = server_frames()
        assert frames.feed(data[:cut]) + frames.feed(data[cut:]) == CHAT


def test_a_stream_may_come_byte_by_byte() -> None:
    frames = server_frames()
    data = bytes(frame(*CHAT))
    assert [m for byte in data for m in frames.feed(bytes((byte,)))] == CHAT


def test_many_messages_in_many_frames_come_in_order() -> None:
    many = [client_messages.Accepted(n) for n in range(5000)]
    data = b"".join(bytes(frame(*many[n : n + 7])) for n in range(0, 5000, 7))
    frames = to_client_frames()
    found = [m for at in range(0, len(data), 1009) for m in frames.feed(data[at : at + 1009])]
    assert found == many


def test_an_empty_frame_says_nothing() -> None:
    frames = server_frames()
    assert frames.feed(frame()) == []
    assert frames.feed(b"") == []
    assert frames.feed(frame(HELLO)) == [HELLO]


def test_views_and_bytearrays_are_taken_and_not_kept() -> None:
    buffer = bytearray(frame(HELLO))
    frames = server_frames()
    assert frames.feed(memoryview(buffer)[:6]) == []
    buffer[:6] = b"XXXXXX"
    assert frames.feed(memoryview(buffer)[6:]) == [HELLO]


def test_bytes_of_a_message_do_not_change_with_the_buffer() -> None:
    frames = to_executor_frames()
    (blob,) = frames.feed(frame(client_messages.Blob(b"i" * 16, b"data" * 100)))  # type: ignore[arg-type]
    frames.feed(frame(client_messages.Blob(b"j" * 16, b"other" * 100)))  # type: ignore[arg-type]
    assert blob.data == b"data" * 100  # type: ignore[union-attr]


def test_a_frame_over_the_limit_is_refused_before_it_has_come() -> None:
    frames: Frames[object] = Frames(UNION, limit=100)
    with pytest.raises(ProtocolError, match="a frame of 101 bytes is over the limit of 100"):
        frames.feed((101).to_bytes(4, "big"))
    fine = frame(HELLO)
    assert Frames(UNION, limit=len(fine) - 4).feed(fine) == [HELLO]


def test_a_message_over_the_limit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MAX_FRAME", 50)
    with pytest.raises(ProtocolError, match=r"a message of \d+ bytes is over the limit of 50"):
        frame(client_messages.Blob(b"i" * 16, b"x" * 100))  # type: ignore[arg-type]


def sized(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"GET / HTTP/1.1\r\n",
        msgspec.msgpack.encode("text"),
        msgspec.msgpack.encode(["ch", 1, 2, "h"]),  # a message without its list
        msgspec.msgpack.encode([["nonsense", 1]]),
        msgspec.msgpack.encode([["ch", "one", 2, "h"]]),
        msgspec.msgpack.encode([["ch"]]),
        msgspec.msgpack.encode([{"a": 1}]),
        msgspec.msgpack.encode([["wel", 1, 1, 1, 1, "store"]]),  # lawful, but not from this side
        bytes(frame(HELLO)[4:-1]),
        bytes(frame(HELLO)[4:]) + b"\x00",
    ],
)
def test_garbage_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="a frame could not be read: "):
        server_frames().feed(sized(body))


@given(st.binary(max_size=300))
def test_random_bytes_are_messages_a_wait_or_a_protocol_error(data: bytes) -> None:
    for frames in (server_frames(), to_client_frames(), to_executor_frames()):
        for body in (data, sized(data)):
            try:
                assert isinstance(frames.feed(body), list)
            except ProtocolError:
                break


def test_a_peer_of_a_later_version_may_say_more() -> None:
    longer = msgspec.msgpack.encode([["bye", "drain", "and a new field"]])
    assert server_frames().feed(sized(longer)) == [client_messages.CloseSession("drain")]


def test_http_is_recognised_as_garbage_by_its_length() -> None:
    with pytest.raises(ProtocolError, match="over the limit"):
        server_frames().feed(b"GET / HTTP/1.1\r\n")


@pytest.mark.parametrize("text", [b"220 mail.example.org ESMTP\r\n", b"HTTP/1.1 400 Bad Request\r\n", b" \r\n "])
def test_a_program_that_speaks_plain_text_is_recognised_by_its_first_words(text: bytes) -> None:
    for frames in (to_client_frames(), to_executor_frames()):
        with pytest.raises(ProtocolError, match="over the limit"):
            frames.feed(text)


def test_behind_the_first_frame_the_limit_is_the_one_of_all() -> None:
    frames: Frames[object] = Frames(UNION, limit=1000, first=100)
    big = bytes(frame(client_messages.Blob(b"i" * 16, b"x" * 200)))  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="over the limit of 100"):
        frames.feed(big)
    frames = Frames(UNION, limit=1000, first=100)
    assert frames.feed(bytes(frame(HELLO)) + big[:50]) == [HELLO]
    assert len(frames.feed(big[50:])) == 1
    with pytest.raises(ProtocolError, match="over the limit of 1000"):
        frames.feed((1001).to_bytes(4, "big"))


def test_a_big_frame_in_small_pieces_is_kept_once() -> None:
    """However it is cut, no more is copied than the bytes that come: what is kept is one buffer that grows."""
    frames = server_frames()
    data = bytes(frame(client_messages.Blob(b"i" * 16, bytes(1 << 20))))  # type: ignore[arg-type]
    for at in range(0, len(data) - 4096, 4096):
        assert frames.feed(memoryview(data)[at : at + 4096]) == []
        assert frames.kept == at + 4096
    assert len(frames.feed(data[at + 4096 :])) == 1
    assert frames.kept == 0
