"""How something is done on the host that a site's pilots are started from: by SSH, or on this very machine.

An errand is `far_side`, sent as text by stdin with its request to a Python there. Rules: a command line is constant;
what is secret goes by stdin; what went wrong is a `SiteError`, transient if nobody knows what came of the errand.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final, NamedTuple, Protocol

from bough import private
from bough.errors import SiteError
from bough.sites.head.far_side import MARK
from bough.sites.site_kind import SentFile

PATIENCE: Final = 30.0  # seconds for a connection, or an errand without a load
_TOO_OLD: Final = "bough-too-old"
_PIECE: Final = 1 << 20
_MOST_SAID: Final = 300  # characters of what a command says
_LAST_WORDS: Final = 5.0  # seconds for what was killed to be gone
ERRAND: Final = (  # no quote, dollar or exclamation mark in it: every shell takes it in single quotes
    f'import sys;sys.version_info<(3,11) and sys.exit("{_TOO_OLD} %d.%d"%sys.version_info[:2]);'
    'exec(compile(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())),"bough","exec"))'
)


class Connection(Protocol):
    """See the module."""

    @property
    def host(self) -> str:
        """How people call the host."""

    @property
    def python(self) -> str:
        """The Python there that errands and executors run with."""

    async def open(self) -> bool:
        """Be connected; False: it was before."""

    def way(self, there: str, here: str) -> str:
        """The Unix socket by which processes there reach one here: `there` if that has to be forwarded."""

    async def forward(self, there: str, here: str) -> None:
        """Let whoever connects to a Unix socket there reach one here, if that needs anything."""

    async def errand(self, request: dict[str, Any], load: bytes = b"", patience: float = PATIENCE) -> dict[str, Any]:
        """Have something done there."""

    async def fetch(self, request: dict[str, Any], target: str) -> SentFile:
        """Have a file sent from there to a path here, see `far_side.send`."""

    def login_words(self) -> list[str]:
        """The command by which a user opens it from a terminal; none: that is not needed."""

    async def log_out(self) -> None:
        """End what a user has opened."""

    async def close(self) -> None:
        """End the connection; twice does no harm."""


class Said(NamedTuple):
    """What a process has said."""

    code: int
    out: bytes
    said: bytes


class LocalConnection:
    """This very machine: errands are processes here, and executors use the server's own socket."""

    host = "this machine"

    def __init__(self, python: str) -> None:
        self.python = python or sys.executable
        self._is_open = False

    async def open(self) -> bool:
        """There is nothing to do."""
        was, self._is_open = self._is_open, True
        return not was

    def way(self, there: str, here: str) -> str:
        """The server's own socket."""
        return here

    async def forward(self, there: str, here: str) -> None:
        """There is nothing to do."""

    async def errand(self, request: dict[str, Any], load: bytes = b"", patience: float = PATIENCE) -> dict[str, Any]:
        """Run it here."""
        try:
            found = await run([self.python, "-c", ERRAND], pack(request, load), patience, self.host)
        except (FileNotFoundError, PermissionError):
            found = Said(127, b"", b"")
        return read_answer(found, self.host, self.python, transient=False)

    async def fetch(self, request: dict[str, Any], target: str) -> SentFile:
        """Copy it here."""
        return await receive([self.python, "-c", ERRAND], pack(request, b""), self.host, self.python, target)

    def login_words(self) -> list[str]:
        """There is nothing to do."""
        return []

    async def log_out(self) -> None:
        """There is nothing to do."""

    async def close(self) -> None:
        """There is nothing to do."""
        self._is_open = False


def pack(request: dict[str, Any], load: bytes) -> bytes:
    """What an errand reads from stdin."""
    script = resources.files("bough.sites.head").joinpath("far_side.py").read_bytes()
    line = json.dumps({**request, "size": len(load)}).encode()
    return b"%d\n%b%b\n%b" % (len(script), script, line, load)


def read_answer(found: Said, host: str, python: str, *, transient: bool) -> dict[str, Any]:
    """What an errand has answered; `transient`: if it did not, that may have been the connection."""
    marked = [text for text in found.out.decode("utf-8", "replace").splitlines() if text.startswith(MARK)]
    if not marked:
        raise SiteError(_no_answer(found, host, python), transient=transient)
    try:
        answer: dict[str, Any] = json.loads(marked[-1].removeprefix(MARK))
    except ValueError as error:
        raise SiteError(f"the answer of {host} cannot be read: {error}") from error
    if "trouble" in answer:
        raise SiteError(f"{host}: {answer['trouble']}")
    told: dict[str, Any] = answer["ok"]
    return told


def _no_answer(found: Said, host: str, python: str) -> str:
    text = found.said.decode("utf-8", "replace")
    if _TOO_OLD in text:
        version = text.partition(_TOO_OLD)[2].split()[0]
        return f"{python} on {host} is Python {version}, and 3.11 or newer is needed: name another one with --python"
    if found.code in {126, 127}:
        return f"there is no {python} on {host}: name one with --python"
    line = first_line(found.said)
    return f"{host} did not do what it was asked for (exit code {found.code}): {line}".rstrip(": ")


async def run(argv: Sequence[str], data: bytes, patience: float, host: str) -> Said:
    """Run a process to its end, with this on stdin."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(patience):
            out, said = await _converse(process, data)
    except TimeoutError:
        raise SiteError(f"{host} has not answered within {patience:g} s", transient=True) from None
    finally:
        await _end(process)
    return Said(process.returncode or 0, out, said)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Leave nothing of a process that has not ended by itself."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    assert process.stdout is not None
    assert process.stderr is not None
    # until Python 3.13.1 the end of a process is only heard when its pipes have been read to their ends
    heard = asyncio.gather(process.stdout.read(), process.stderr.read(), process.wait())
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(heard, _LAST_WORDS)


async def receive(argv: Sequence[str], data: bytes, host: str, python: str, target: str) -> SentFile:
    """Run an errand that sends a file, and write that to a path here; SiteError, OSError of this machine."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    stdin, out, said = process.stdin, process.stdout, process.stderr
    assert stdin is not None
    assert out is not None
    assert said is not None
    try:
        with contextlib.suppress(ConnectionError, RuntimeError):
            stdin.write(data)
            await stdin.drain()
        stdin.close()
        answer = await _answer(out, said, host, python)
        size, mark, came = int(answer["size"]), str(answer["mark"]), bool(answer["follows"])
        if came:
            await _receive(out, size, host, target)
            after = await _answer(out, said, host, python)
            mark = mark if after["mark"] == mark else ""
        return SentFile(size, mark, came)
    except TimeoutError:
        raise SiteError(f"{host} has sent nothing for {PATIENCE:g} s", transient=True) from None
    except (ValueError, KeyError, TypeError) as error:
        raise SiteError(f"what {host} sends cannot be read: {error}") from error
    finally:
        await _end(process)


async def _answer(out: asyncio.StreamReader, said: asyncio.StreamReader, host: str, python: str) -> dict[str, Any]:
    """The next answer among what a process says."""
    async with asyncio.timeout(PATIENCE):
        while line := await out.readline():
            if line.startswith(MARK.encode()):
                return read_answer(Said(0, line, b""), host, python, transient=True)
        return read_answer(Said(1, b"", await said.read(_MOST_SAID)), host, python, transient=True)


async def _receive(out: asyncio.StreamReader, size: int, host: str, target: str) -> None:
    """Write what comes to a new file, whose disk has room for it."""
    loop = asyncio.get_running_loop()
    free = shutil.disk_usage(os.path.dirname(target)).free
    if size > free // 2:  # it is copied once more
        raise SiteError(f"the disk of the server has no room for {size} bytes that {host} would send")
    with open(target, "xb", opener=private.opener) as file:
        while size:
            async with asyncio.timeout(PATIENCE):
                piece = await out.read(min(size, _PIECE))
            if not piece:
                raise SiteError(f"{host} ended before all had come", transient=True)
            await loop.run_in_executor(None, file.write, piece)
            size -= len(piece)


async def _converse(process: asyncio.subprocess.Process, data: bytes) -> tuple[bytes, bytes]:
    """What a process says to what it is told. One that ends before it has read that has said why."""
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin is not None
    assert stdout is not None
    assert stderr is not None

    async def tell() -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):  # the latter is uvloop's for a pipe that is closed
            stdin.write(data)
            await stdin.drain()
        stdin.close()

    out, said, _ = await asyncio.gather(stdout.read(), stderr.read(), tell())
    await process.wait()
    return out, said


def first_line(said: bytes) -> str:
    """The first line of what a command says that is no warning."""
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    plain = [line for line in lines if not line.startswith(("Warning:", "@"))]
    return (plain or lines or [""])[0][:_MOST_SAID]
