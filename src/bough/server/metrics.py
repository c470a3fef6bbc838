"""`GET /metrics` for Prometheus: an HTTP responder of one page.

Rule: it reads one small request within a few seconds, answers and hangs up; it is bound to the loopback address
unless another one was named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bough.errors import SiteError
from bough.server.prometheus import CONTENT_TYPE
from bough.transport.access import split_address

_PATIENCE = 5.0  # seconds for a request
_MOST_BYTES = 8192  # of its head
_MOST_AT_ONCE = 32
LOOPBACK = "127.0.0.1"


def read_address(text: str) -> tuple[str, int]:
    """Host and port; a port alone is on the loopback address."""
    return split_address(text if ":" in text else f"{LOOPBACK}:{text}")


class MetricsPage:
    """See the module."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._server: asyncio.Server | None = None
        self._at_once = 0

    async def open(self, host: str, port: int) -> int:
        """Listen; the port. SiteError when that is not possible."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=_MOST_BYTES)
        except OSError as error:
            raise SiteError(f"the metrics cannot be served at {host}:{port}: {error.strerror or error}") from error
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._at_once += 1
        try:
            if self._at_once <= _MOST_AT_ONCE:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _PATIENCE)
                writer.write(self._response(head.split(b"\r\n", 1)[0]))
                await asyncio.wait_for(writer.drain(), _PATIENCE)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever it was does not speak HTTP, or is gone
        finally:
            self._at_once -= 1
            writer.close()

    def _response(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        path = rest.split(b" ")[0].split(b"?")[0]
        if method not in {b"GET", b"HEAD"}:
            return _reply("405 Method Not Allowed", "only GET\n", extra="Allow: GET, HEAD\r\n")
        if path != b"/metrics":
            return _reply("404 Not Found", "see /metrics\n")
        return _reply("200 OK", self._text(), CONTENT_TYPE, with_body=method == b"GET")


def _reply(
    status: str, body: str, kind: str = "text/plain; charset=utf-8", *, extra: str = "", with_body: bool = True
) -> bytes:
    data = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{extra}Connection: close\r\n\r\n"
    )
    return head.encode() + (data if with_body else b"")
