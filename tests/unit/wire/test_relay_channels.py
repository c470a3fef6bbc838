from __future__ import annotations

import pytest

from bough.errors import ProtocolError
from bough.wire.framing import Frames, frame_list
from bough.wire.relay_channels import (
    BATCH,
    CHUNK,
    LINE_FRAME,
    WINDOW,
    ChannelClosed,
    ChannelCredit,
    ChannelData,
    ChannelOpened,
    Channels,
    FromRelay,
    ToRelay,
)


def linked(count: int) -> tuple[Channels, Channels]:
    """A relay's and a server's end with so many open channels, 1, 2, and so on."""
    relay, server = Channels(opens=True), Channels(opens=False)
    for _ in range(count):
        relay.open()
    for message in relay.take():
        server.hear(message)
    return relay, server


def carry(one: Channels, other: Channels, *, use: bool = True) -> dict[int, bytes]:
    """Send all that may be sent; what arrived by channel."""
    arrived: dict[int, bytes] = {}
    while batch := one.take():
        for message in batch:
            event = other.hear(message)
            if type(event) is ChannelData:
                arrived[event.channel] = arrived.get(event.channel, b"") + event.data
                if use:
                    other.used(event.channel, len(event.data))
    return arrived


def test_streams_of_many_channels_arrive_each_in_its_own_order_and_in_one_batch() -> None:
    relay, server = linked(3)
    for part in range(5):
        for number in (1, 2, 3):
            server.write(number, f"{number}-{part};".encode())

    batch = server.take()

    assert [message.channel for message in batch] == [1, 2, 3]
    assert server.take() == []
    for message in batch:
        assert relay.hear(message).data == "".join(f"{message.channel}-{part};" for part in range(5)).encode()


def test_both_directions_go_on_at_a_time() -> None:
    relay, server = linked(2)
    relay.write(1, b"up")
    server.write(1, b"down")
    server.write(2, b"too")

    assert carry(relay, server) == {1: b"up"}
    assert carry(server, relay) == {1: b"down", 2: b"too"}


def test_big_data_is_cut_into_chunks_and_batches_that_fit_a_frame() -> None:
    relay, server = linked(4)
    data = bytes(range(256)) * (WINDOW // 256)
    for number in (1, 2, 3, 4):
        relay.write(number, data)

    arrived: dict[int, bytes] = {}
    while batch := relay.take():
        assert max(len(message.data) for message in batch) <= CHUNK
        assert sum(len(message.data) for message in batch) <= BATCH
        assert len(frame_list(batch)) <= LINE_FRAME
        for message in batch:
            server.hear(message)
            arrived[message.channel] = arrived.get(message.channel, b"") + message.data
    assert arrived == dict.fromkeys((1, 2, 3, 4), data)


def test_a_flood_does_not_starve_a_word_of_another_channel() -> None:
    relay, _ = linked(2)
    relay.write(1, bytes(WINDOW))
    relay.write(2, b"word")

    first = relay.take()

    assert ChannelData(2, b"word") in first
    assert sum(len(message.data) for message in first) <= BATCH


def test_channels_take_turns_when_a_batch_has_no_room_for_all() -> None:
    relay, _ = linked(8)
    for number in range(1, 9):
        relay.write(number, bytes(CHUNK))

    first, second = relay.take(), relay.take()

    assert [message.channel for message in first] == [1, 2, 3, 4]
    assert [message.channel for message in second] == [5, 6, 7, 8]


def test_no_more_is_sent_than_was_granted_and_the_rest_follows_the_grant() -> None:
    relay, server = linked(2)
    relay.write(1, bytes(WINDOW + 10))
    relay.write(2, b"other")

    arrived = carry(relay, server, use=False)

    assert len(arrived[1]) == WINDOW
    assert arrived[2] == b"other"
    assert relay.waiting(1) == 10

    server.used(1, WINDOW)
    assert carry(server, relay) == {}
    assert carry(relay, server) == {1: bytes(10)}


def test_what_is_used_a_little_at_a_time_is_granted_in_bulk() -> None:
    relay, server = linked(1)
    relay.write(1, bytes(WINDOW))
    carry(relay, server, use=False)

    for _ in range(WINDOW // 1024):
        server.used(1, 1024)

    assert server.take() == [ChannelCredit(1, WINDOW // 2), ChannelCredit(1, WINDOW // 2)]


def test_a_close_follows_what_was_written_and_an_abort_overtakes_it() -> None:
    relay, server = linked(2)
    server.write(1, b"last word")
    server.close(1, "done")
    server.write(1, b"never")
    server.write(2, b"never")
    server.abort(2, "gone")

    batch = server.take()

    assert batch == [ChannelClosed(2, "gone"), ChannelData(1, b"last word"), ChannelClosed(1, "done")]
    assert [relay.hear(message) for message in batch] == batch
    assert len(relay) == len(server) == 0


def test_a_close_waits_for_the_grant_that_its_last_bytes_need() -> None:
    relay, server = linked(1)
    relay.write(1, bytes(WINDOW + 1))
    relay.close(1)
    carry(relay, server, use=False)
    assert len(relay) == 1

    server.used(1, WINDOW)
    carry(server, relay)
    assert relay.take() == [ChannelData(1, b"\0"), ChannelClosed(1)]
    assert len(relay) == 0


def test_a_relay_shuts_a_channel_too() -> None:
    relay, server = linked(1)
    relay.write(1, b"bye")
    relay.close(1)
    assert [server.hear(message) for message in relay.take()] == [ChannelData(1, b"bye"), ChannelClosed(1)]


def test_what_was_under_way_to_a_channel_that_has_ended_is_dropped() -> None:
    relay, server = linked(1)
    relay.write(1, b"late")
    late = relay.take()
    server.abort(1)

    assert [server.hear(message) for message in late] == [None]
    assert server.hear(ChannelCredit(1, 5)) is None
    assert server.hear(ChannelClosed(1)) is None
    assert relay.hear(server.take()[0]) == ChannelClosed(1)
    assert relay.write(1, b"to nobody") == 0
    relay.close(1)
    relay.used(1, 3)
    assert relay.take() == []


def test_data_that_arrives_while_a_channel_is_being_closed_is_dropped() -> None:
    relay, server = linked(1)
    server.write(1, bytes(WINDOW + 1))
    server.close(1)
    server.take()
    relay.write(1, b"x")
    assert [server.hear(message) for message in relay.take()] == [None]


@pytest.mark.parametrize(
    "message",
    [
        ChannelData(7, b"x"),
        ChannelClosed(7),
        ChannelCredit(7, 1),
        ChannelOpened(1),
        ChannelCredit(1, 1),
        ChannelCredit(1, -1),
        ChannelData(1, bytes(CHUNK + 1)),
    ],
)
def test_what_makes_no_sense_is_a_protocol_error(message: object) -> None:
    _, server = linked(1)
    with pytest.raises(ProtocolError):
        server.hear(message)


def test_only_a_relay_opens_channels() -> None:
    relay, _ = linked(1)
    with pytest.raises(ProtocolError):
        relay.hear(ChannelOpened(2))


def test_who_sends_more_than_was_granted_is_refused() -> None:
    _, server = linked(1)
    for _ in range(WINDOW // CHUNK):
        server.hear(ChannelData(1, bytes(CHUNK)))
    with pytest.raises(ProtocolError):
        server.hear(ChannelData(1, b"x"))


def test_all_messages_of_a_line_survive_the_wire() -> None:
    up = [ChannelOpened(1, "10.0.0.1"), ChannelData(1, b"\0\xff"), ChannelCredit(1, 5), ChannelClosed(1, "why")]
    assert Frames(FromRelay, LINE_FRAME).feed(bytes(frame_list(up))) == up
    assert Frames(ToRelay, LINE_FRAME).feed(bytes(frame_list(up[1:]))) == up[1:]
    with pytest.raises(ProtocolError):
        Frames(ToRelay, LINE_FRAME).feed(bytes(frame_list(up)))
