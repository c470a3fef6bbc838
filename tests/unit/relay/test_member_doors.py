"""Doors to members: what goes through, and when they are shut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from bough.model.ids import ExecutorId
from bough.relay import member_doors
from bough.relay.member_doors import MemberDoors

NUMBER = ExecutorId(5)
SIZE = 8 << 20


async def with_door(
    use: Callable[[MemberDoors, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> None:
    """A member that sends SIZE bytes to whoever greets it, and waits for the end; and a reader at its door."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            assert await reader.readexactly(5) == b"hello"
            for _ in range(SIZE >> 18):
                writer.write(b"z" * (1 << 18))
                await writer.drain()
            await reader.read()
        writer.close()
        over.set()

    over = asyncio.Event()
    member = await asyncio.start_server(serve, "127.0.0.1", 0)
    doors = MemberDoors()
    doors.address = "127.0.0.1"
    port = int(member.sockets[0].getsockname()[1])
    way = doors.way_to(NUMBER, "127.0.0.1", port)
    assert way is not None
    assert doors.way_to(NUMBER, "127.0.0.1", port) == way
    reader, writer = await asyncio.open_connection(*way)
    try:
        await asyncio.wait_for(use(doors, reader, writer), 30)
    finally:
        writer.close()
        doors.close()
        await asyncio.wait_for(over.wait(), 10)
        member.close()


async def hangs_up(reader: asyncio.StreamReader) -> bool:
    """Whether the other end does so, whatever it says before; TimeoutError when it does not."""
    with contextlib.suppress(ConnectionError):
        while await asyncio.wait_for(reader.read(1 << 20), 10):
            pass
    return True


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_all_bytes_go_through_to_a_reader_that_is_slow(run: Callable[..., None]) -> None:
    async def use(doors: MemberDoors, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hel")
        await asyncio.sleep(0.05)
        writer.write(b"lo")
        count = 0
        while count < SIZE:
            data = await reader.read(1 << 16)
            assert data.strip(b"z") == b""
            assert data
            count += len(data)
            if count % (1 << 20) < 1 << 14:
                await asyncio.sleep(0.01)
        assert count == SIZE

    run(with_door(use))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_who_comes_when_there_are_too_many_gets_the_place_of_one_that_says_nothing(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_doors, "_MOST", 2)
    monkeypatch.setattr(member_doors, "_WAITING", 2)
    monkeypatch.setattr(member_doors, "_QUIET", 0.3)

    async def use(doors: MemberDoors, first: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = writer.get_extra_info("peername")
        writer.write(b"hello")
        await first.readexactly(1)
        second, other = await asyncio.open_connection(*place)
        other.write(b"hello")
        await second.readexactly(SIZE)  # and then it is kept
        more = [await asyncio.open_connection(*place) for _ in range(4)]
        for _, one in more:
            one.write(b"hello")
        until = asyncio.get_running_loop().time() + 1.5
        while asyncio.get_running_loop().time() < until:  # the first one goes on all the time
            await first.read(1 << 12)
            await asyncio.sleep(0.01)
        assert await hangs_up(second)
        door = doors._doors[NUMBER]
        assert len(door.open) == 2
        let_in = [bool(one._buffer) for one, _ in more]  # type: ignore[attr-defined]
        assert sum(let_in) >= 1
        assert not first.at_eof()
        for _, one in ((second, other), *more):
            one.close()
        async with asyncio.timeout(10):
            while len(door.open) > 1 or door.coming:
                await asyncio.sleep(0.01)

    run(with_door(use))


def test_a_door_leads_from_where_this_host_is_now() -> None:
    async def move() -> None:
        doors = MemberDoors()
        doors.address = "127.0.0.1"
        before = doors.way_to(NUMBER, "127.0.0.1", 9)
        await asyncio.sleep(0)
        doors.address = "127.0.0.2"
        way = doors.way_to(NUMBER, "127.0.0.1", 9)
        assert way is not None
        assert way != before
        assert doors.way_to(NUMBER, "127.0.0.1", 9) == way
        reader, writer = await asyncio.open_connection(*way)
        assert writer.get_extra_info("peername")[0] == "127.0.0.2"
        assert await hangs_up(reader)  # there is no such member
        writer.close()
        doors.close()
        await asyncio.sleep(0.01)

    asyncio.run(move())


def test_a_door_that_is_shut_hangs_up_and_lets_nobody_else_in() -> None:
    async def use(doors: MemberDoors, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.readexactly(1)
        place = writer.get_extra_info("peername")
        doors.shut(NUMBER)
        assert await hangs_up(reader)
        with pytest.raises(OSError):
            await asyncio.open_connection(*place)

    asyncio.run(with_door(use))


@pytest.mark.parametrize("member", ["127.0.0.1", "::1%" + "a" * 70])  # what is no address, too, has that form
def test_who_comes_to_a_member_that_is_not_there_is_hung_up_on(member: str) -> None:
    async def come() -> None:
        doors = MemberDoors()
        assert doors.way_to(NUMBER, member, 9) is None  # nobody knows where others reach this host
        doors.address = "127.0.0.1"
        assert doors.serve(doors._host)
        assert not doors.serve("elsewhere")
        way = doors.way_to(NUMBER, member, 9)
        assert way is not None
        reader, writer = await asyncio.open_connection(*way)
        writer.write(b"x" * 100)
        assert await hangs_up(reader)
        writer.close()
        doors.close()
        await asyncio.sleep(0)

    asyncio.run(come())
