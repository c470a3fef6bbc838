"""A service whose executor is far away: every message between the two takes half a round trip.

As root the line is a real one: server and executor in network namespaces of their own, joined by `tap_line.py`, and TLS
between them. Elsewhere `delay_line.py` holds up what passes through a Unix socket. Rule: a row says which it was.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

from timing import Home, until

_HERE = os.path.dirname(__file__)
_NEAR, _FAR = "10.78.0.1", "10.78.0.2"


class FarHome(Home):
    """A home with a line between its server and its executor."""

    line = "proxy"
    namespaces: tuple[str, str] | None = None  # the server's and the executor's

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        if self.namespaces is None:
            return super()._start(*words)
        namespace = self.namespaces[words[0] == "executor"]
        with open(os.path.join(self.folder, "log"), "ab") as log:
            command = ["ip", "netns", "exec", namespace, sys.executable, "-m", "bough.cli.main", *words]
            return subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def serve(self) -> None:
        """Start the server where the executor sees it."""
        if self.namespaces is None:
            super().serve()
            return
        self.server = server = self._start("server", "start", "--listen", f"{_NEAR}:0")
        until(lambda: self.note().get("pid") == server.pid)


@contextlib.contextmanager
def far_home(folder: str, cores: int, round_trip: float) -> Iterator[FarHome]:
    """A server, a line and an executor behind it, until the block is left."""
    made = FarHome(folder)
    with contextlib.ExitStack() as stack:
        stack.callback(made.end)
        if os.geteuid() == 0 and os.path.exists("/dev/net/tun") and shutil.which("ip"):
            made.line, made.namespaces = "TAP line", stack.enter_context(_tap_line(round_trip / 2))
            made.serve()
            made.execute(cores)
        else:
            made.serve()
            where = stack.enter_context(_proxy(made, round_trip / 2))
            made.executors.append(made._start("executor", "start", "--server", where, "--cores", str(cores)))
        yield made


@contextlib.contextmanager
def _tap_line(delay: float) -> Iterator[tuple[str, str]]:
    """Two namespaces and the line between them."""
    one, other = (f"bough{os.getpid()}{side}" for side in ("near", "far"))
    with contextlib.ExitStack() as stack:
        for name in (one, other):
            subprocess.run(["ip", "netns", "add", name], check=True)
            stack.callback(subprocess.run, ["ip", "netns", "del", name], check=False)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        script = os.path.join(_HERE, "tap_line.py")
        words = [one, f"{_NEAR}/24", other, f"{_FAR}/24", str(delay * 1e3)]
        line = subprocess.Popen([sys.executable, script, *words], stdout=subprocess.PIPE)
        stack.callback(_end, line)
        assert line.stdout is not None
        if line.stdout.readline() != b"up\n":
            raise RuntimeError("the line between the namespaces did not come up")
        yield one, other


@contextlib.contextmanager
def _proxy(made: Home, delay: float) -> Iterator[str]:
    """A Unix socket that leads to the server's with a delay."""
    path = os.path.join(made.folder, "line")
    script = os.path.join(_HERE, "delay_line.py")
    line = subprocess.Popen([sys.executable, script, path, made.socket.removeprefix("unix:"), str(delay * 1e3)])
    try:
        until(lambda: os.path.exists(path))
        yield f"unix:{path}"
    finally:
        _end(line)


def _end(line: subprocess.Popen[bytes]) -> None:
    line.kill()
    line.wait()
    if line.stdout is not None:
        line.stdout.close()
