"""Doors to members: what goes through, and when they are shut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from bough.model.ids import ExecutorId
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


def test_who_comes_to_a_member_that_is_not_there_is_hung_up_on() -> None:
    async def come() -> None:
        doors = MemberDoors()
        assert doors.way_to(NUMBER, "127.0.0.1", 9) is None  # nobody knows where others reach this host
        doors.address = "127.0.0.1"
        assert doors.serve(doors._host)
        assert not doors.serve("elsewhere")
        way = doors.way_to(NUMBER, "127.0.0.1", 9)
        assert way is not None
        reader, writer = await asyncio.open_connection(*way)
        writer.write(b"x" * 100)
        assert await hangs_up(reader)
        writer.close()
        doors.close()
        await asyncio.sleep(0)

    asyncio.run(come())
