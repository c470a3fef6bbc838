"""An HTTP server whose files have marks or none, come whole or cut off; it counts what it was asked for.

`python marked_http.py ADDRESS PORT FOLDER` serves a folder and writes a line for each request to its standard output.
The name of a file says what is done with it: `plain*` has no ETag and no time, `cut*` is cut off in the middle the
first time, `long*` has no length and never ends, `moving*` has another ETag each time, of `slow*` the second half is
sent when there is a file called `go`.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class MarkedHandler(BaseHTTPRequestHandler):
    """See the module."""

    protocol_version = "HTTP/1.1"
    server: MarkedServer

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        name = self.path.lstrip("/").partition("?")[0]
        self.server.asked[self.command, name] += 1
        print(f"{self.command} {name}\n", end="", flush=True)  # in one go: tests count these lines
        try:
            data = (self.server.folder / name).read_bytes()
        except OSError:
            self.send_error(404)
            return
        self.send_response(200)
        if not name.startswith(("plain", "moving")):
            self.send_header("ETag", hashlib.md5(data, usedforsecurity=False).hexdigest())
        if name.startswith("moving"):
            self.send_header("ETag", str(next(self.server.numbers)))
        self.send_header("Connection", "close")
        if not name.startswith("long"):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.close_connection = True
        if self.command == "HEAD":
            return
        with contextlib.suppress(OSError):
            while name.startswith("long"):
                self.wfile.write(bytes(1 << 16))
            if name.startswith("slow"):
                half, data = data[: len(data) // 2], data[len(data) // 2 :]
                self.wfile.write(half)
                while not (self.server.folder / "go").exists():
                    time.sleep(0.05)
            is_cut = name.startswith("cut") and self.server.asked["GET", name] == 1
            self.wfile.write(data[: len(data) // 2] if is_cut else data)

    def log_message(self, *_: object) -> None:
        """Requests are counted instead."""


class MarkedServer(ThreadingHTTPServer):
    """See the module."""

    daemon_threads = True

    def __init__(self, address: str, port: int, folder: Path) -> None:
        self.folder = folder
        self.asked: Counter[tuple[str, str]] = Counter()
        self.numbers = itertools.count()
        super().__init__((address, port), MarkedHandler)

    def begin(self) -> str:
        """Serve in a thread; the URL of the folder."""
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return f"http://{self.server_address[0]}:{self.server_address[1]}"


if __name__ == "__main__":
    os.chdir("/")
    MarkedServer(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])).serve_forever()
