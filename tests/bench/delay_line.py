"""A line with a delay: what comes in on one Unix socket goes out to another one so many milliseconds later.

python delay_line.py LISTEN TARGET MILLISECONDS
"""

from __future__ import annotations

import asyncio
import sys


async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter, delay: float) -> None:
    """Pass on what comes, each piece after the delay, in order, until the source ends."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, piece = await queue.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not piece:
                target.close()
                return
            target.write(piece)
            await target.drain()

    delivering = asyncio.create_task(deliver())
    while True:
        piece = await source.read(1 << 20)
        queue.put_nowait((loop.time() + delay, piece))
        if not piece:
            break
    await delivering


async def serve(listen: str, target: str, delay: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(target)
        await asyncio.gather(carry(reader, far_writer, delay), carry(far_reader, writer, delay), return_exceptions=True)

    server = await asyncio.start_unix_server(connected, listen)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], float(sys.argv[3]) / 1e3))
