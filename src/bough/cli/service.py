"""What `bough server`, `executor` and `relay` share: a question to the running server, starting detached.

Rule: a command that starts something in the background returns only when that answers, or says why it does not.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from bough import private
from bough.cli.live import PATIENCE as ANSWER
from bough.cli.live import Server
from bough.errors import PeerLost, SiteError
from bough.model.ids import ExecutorId
from bough.transport.access import find_access
from bough.transport.dial import dial
from bough.transport.home import make_server_dir
from bough.wire.messages import Manage, Management

PATIENCE = 30.0  # seconds that something started in the background has to answer


def add_server_argument(parser: argparse.ArgumentParser) -> None:
    """The option that names the server."""
    parser.add_argument(
        "--server", metavar="ADDRESS", help="unix:PATH, HOST:PORT or an access file (default: $BOUGH_SERVER, your own)"
    )


class Service(Server):
    """A connection to a service, by which it and its executors can be told what to do."""

    def manage(self, what: Management, executors: Sequence[int] = ()) -> object:
        """Say it, and wait for the answer."""
        number = next(self._numbers)
        self._send(Manage(number, what, [ExecutorId(one) for one in executors]))
        return self._answer(number)


def connect(server: str | None, role: str = "submit", patience: float | None = ANSWER) -> Service:
    """The server that was named, or the user's own; SiteError when it is not there. `patience` is for answers."""
    dialled = dial(find_access(server, role))
    dialled.sock.settimeout(patience)
    service = Service(dialled.sock)
    try:
        service.greet(dialled.proof, dialled.leftover)
    except BaseException:
        dialled.sock.close()
        raise
    return service


def detach(words: Sequence[str], log_name: str, is_up: Callable[[int], bool], folder: str = "") -> int:
    """Start `python -m bough.cli.main WORDS` in a session of its own; its pid, once `is_up` says so."""
    log_path = os.path.join(folder or make_server_dir(), log_name)
    with open(log_path, "ab", opener=private.opener) as log:
        begin = log.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "bough.cli.main", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        code = process.poll()
        if code is not None:
            problem = SiteError(_last_line(log_path, begin) or f"it ended with {code}; see {log_path}")
            problem.exit_code = code if code > 0 else 3
            raise problem
        try:
            if is_up(process.pid):
                process.returncode = 0  # it is nobody's child from now on: do not complain that it runs
                return process.pid
        except PeerLost:
            pass
        time.sleep(0.02)
    process.kill()
    raise SiteError(f"it did not come up within {PATIENCE:g} s: {_last_line(log_path, begin)}; see {log_path}")


def _last_line(path: str, begin: int) -> str:
    with open(path, "rb") as file:
        file.seek(begin)
        lines = file.read().decode("utf-8", "replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return last.removeprefix("bough: ").removeprefix("bough executor: ")
