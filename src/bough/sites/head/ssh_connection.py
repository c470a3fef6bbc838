"""One connection to a host by the system's own `ssh`, on which errands run and through which executors reach us.

The user's configuration, agent and known hosts count; `BatchMode`, because a server has no terminal. The master lives
as long as its stdin is open, so it ends with the server, however that ends. A host that wants a password or a second
factor is logged in to by its user, from a terminal (`login_words`): a master that answers at our control socket is
adopted, and outlives us. Rule: a command line names the host, our own control socket and one constant command; what is
secret goes by stdin.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import socket
from collections.abc import Callable
from typing import Any, Final

from bough.errors import SiteError
from bough.sites.head.errands import ERRAND, PATIENCE, Said, first_line, pack, read_answer, receive, run
from bough.sites.site_kind import SentFile

_KEEP: Final = ("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3", "-o", "ConnectTimeout=20")
_LOST: Final = 255  # the exit code of ssh when its connection was lost
_PRIVATE: Final = ("-o", "ForwardX11=no", "-o", "ForwardAgent=no", "-o", "PermitLocalCommand=no")
_PLAIN: Final = ("-o", "BatchMode=yes", *_PRIVATE)
_PERSIST: Final = "12h"  # for which a master that a user has opened stays without being used
_READY: Final = "bough-ready"


class SshConnection:
    """See the module. `on_lost` is called when a connection that stood is gone."""

    def __init__(self, host: str, python: str, control: str, on_lost: Callable[[], None], login: str = "") -> None:
        self.host = host
        self.python = python or "python3"
        self._control = control
        self._on_lost = on_lost
        self._login = login  # what a user does to log in
        self._is_adopted = False  # the master is the user's, and ours only a session on it
        self._master: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._forwarded: set[str] = set()  # sockets there

    @property
    def is_open(self) -> bool:
        """Whether it stands, as far as is known."""
        return self._master is not None and self._master.returncode is None

    async def open(self) -> bool:
        """Connect; False: it stood already."""
        async with self._lock:
            if self.is_open:
                return False
            await self._end()
            if not await self._adopt():
                await self._connect()
            return True

    def login_words(self) -> list[str]:
        """The command by which a user opens the master from a terminal; none: a master is there."""
        if self.is_open or _is_answered(self._control):
            return []
        options = ["-o", "ControlMaster=yes", "-o", f"ControlPersist={_PERSIST}", "-o", "ClearAllForwardings=yes"]
        return ["ssh", "-S", self._control, *_PRIVATE, *_KEEP, *options, "-T", "--", self.host, "exec true"]

    async def _adopt(self) -> bool:
        """Use the master that a user has opened, by a session on it that ends with it; False: there is none."""
        self._forwarded.clear()
        if not _is_answered(self._control):
            return False
        # without a master ssh would connect by itself: then it must not
        argv = ["ssh", "-S", self._control, *_PLAIN, "-o", "ControlMaster=no", "-o", "ProxyCommand=exec false"]
        process = await asyncio.create_subprocess_exec(
            *argv,
            *("-T", "--", self.host, f"echo {_READY}; exec cat >/dev/null"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        with contextlib.suppress(TimeoutError, ValueError):
            async with asyncio.timeout(PATIENCE):
                while line := await process.stdout.readline():
                    if line.strip() == _READY.encode():
                        self._master, self._is_adopted = process, True
                        self._watch = asyncio.ensure_future(self._until_lost(process))
                        return True
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return False

    async def log_out(self) -> None:
        """End a master that a user has opened."""
        if self._is_adopted:
            await self._run(["-O", "exit", "--", self.host], b"", PATIENCE)

    async def _connect(self) -> None:
        self._forwarded.clear()
        options = ["-o", "ControlMaster=yes", "-o", "ControlPersist=no", "-o", "ClearAllForwardings=yes", "-T"]
        argv = ["ssh", "-S", self._control, *_PLAIN, *_KEEP, *options, "--", self.host, "exec cat >/dev/null"]
        try:
            self._master = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise SiteError("there is no ssh here: install OpenSSH's client") from None
        ended = asyncio.ensure_future(self._master.wait())
        try:
            async with asyncio.timeout(PATIENCE):
                while not os.path.exists(self._control):
                    done, _ = await asyncio.wait([ended], timeout=0.02)
                    if done:
                        problem = explain_ssh(await _rest(self._master), self.host, self._login)
                        raise SiteError(problem, transient=True)
        except TimeoutError:
            await self._end()
            raise SiteError(f"{self.host} does not answer: is it on, and is its name right?", transient=True) from None
        finally:
            ended.cancel()
        self._watch = asyncio.ensure_future(self._until_lost(self._master))

    async def _until_lost(self, master: asyncio.subprocess.Process) -> None:
        said = bytearray()
        assert master.stderr is not None
        while piece := await master.stderr.read(4096):  # it must not wait for us
            said[:] = (said + piece)[-4096:]
        await master.wait()
        if self._master is master:
            self._on_lost()

    def way(self, there: str, here: str) -> str:
        """The socket there, which `forward` makes."""
        return there

    async def forward(self, there: str, here: str) -> None:
        """Let whoever connects to a Unix socket there reach one here; again, if its file there was removed."""
        # ssh would say that it does so already, and not make the file; an adopted one may do so for a server before us
        if there in self._forwarded or self._is_adopted:
            await self._run(["-O", "cancel", "-R", f"{there}:{here}", "--", self.host], b"", PATIENCE)
        self._forwarded.add(there)
        found = await self._run(["-O", "forward", "-R", f"{there}:{here}", "--", self.host], b"", PATIENCE)
        if found.code:
            raise SiteError(
                f"{self.host} does not forward Unix sockets to us: {first_line(found.said) or 'no reason was given'};"
                " its sshd needs AllowStreamLocalForwarding yes"
            )

    async def errand(self, request: dict[str, Any], load: bytes = b"", patience: float = PATIENCE) -> dict[str, Any]:
        """Have something done there, see `far_side`."""
        found = await self._run(self._errand_words(), pack(request, load), patience)
        return read_answer(found, self.host, self.python, transient=not self.is_open or found.code == _LOST)

    async def fetch(self, request: dict[str, Any], target: str) -> SentFile:
        """Have a file sent from there."""
        argv = self._words(self._errand_words())
        return await receive(argv, pack(request, b""), self.host, self.python, target)

    def _errand_words(self) -> list[str]:
        return ["-T", "--", self.host, f"exec {shlex.quote(self.python)} -c '{ERRAND}'"]

    async def _run(self, words: list[str], data: bytes, patience: float) -> Said:
        return await run(self._words(words), data, patience, self.host)

    def _words(self, words: list[str]) -> list[str]:
        return ["ssh", "-S", self._control, *_PLAIN, "-o", "ControlMaster=no", *words]

    async def close(self) -> None:
        """End the connection; whoever is still connecting learns it at once."""
        if self._master is not None:
            _terminate(self._master)
        async with self._lock:
            await self._end()

    async def _end(self) -> None:
        master, self._master, self._is_adopted = self._master, None, False
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if master is not None:
            _terminate(master)
            await master.wait()
        if not _is_answered(self._control):
            with contextlib.suppress(OSError):  # a master removes it itself, unless it was killed
                os.unlink(self._control)


def _terminate(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()


def _is_answered(control: str) -> bool:
    """Whether a master is there."""
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(control)
        except OSError:
            return False
    return True


def explain_ssh(said: bytes, host: str, login: str = "") -> str:
    """What ssh says when it cannot connect, in one line that says how to mend it."""
    text = said.decode("utf-8", "replace")
    line = first_line(said)
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in text:
        return f"the host key of {host} is not the one that is known: ask who runs it, then ssh-keygen -R its name"
    if "Host key verification failed" in text:
        return f"the host key of {host} is not known: connect once by hand with ssh {host}, and compare it"
    if login and ("Permission denied" in text or "Too many authentication failures" in text):
        return f"{host} wants a password or a second factor: {login}"
    if "Permission denied" in text:
        return f"{host} does not let us in without a password: set up a key, so that ssh -o BatchMode=yes {host} works"
    if "Could not resolve" in text:
        return f"the name of {host} is not known: {line}"
    return f"{host} cannot be reached: {line or 'ssh ended without a word'}"


async def _rest(process: asyncio.subprocess.Process) -> bytes:
    assert process.stderr is not None
    return await process.stderr.read(65536)
