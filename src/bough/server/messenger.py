"""Who brings messages to people: a command of the user's, or the machine's own mail program.

Rule: a few at once, each with a time limit, all of its own process group; what they print goes to the log, and the
server never waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
from collections import deque
from email.message import EmailMessage

import msgspec

from bough.errors import UserError
from bough.server.log import log
from bough.server.notices import Notice

LIMIT = 30.0  # seconds for one message
_AT_ONCE = 3
_MOST_WAITING = 100
_MOST_PRINTED = 2000  # bytes of what a command says that are logged
_PLACES = "/usr/sbin:/usr/lib:/usr/bin:/bin"


class Messenger:
    """See the module. `command` is run by a shell for every notice; `address` gets it by mail."""

    def __init__(self, command: str = "", address: str = "", limit: float = LIMIT) -> None:
        if address and (address.startswith("-") or not address.isprintable() or " " in address):
            raise UserError(f"--notify-mail {address!r}: not an address")
        self._command = command
        self._address = address
        self._mailer = find_mailer() if address else []
        self._limit = limit
        self._waiting: deque[tuple[str, list[str], bytes, Notice]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def say(self, notice: Notice) -> None:
        """Bring a notice to whoever wants it."""
        notice = msgspec.structs.replace(notice, text=" ".join(notice.text.replace("\0", "").split()))
        log(f"notice: {notice.text}")
        if self._command:
            self._put(("", ["/bin/sh", "-c", self._command], b"", notice))
        if self._address:
            words, body = self._mail(notice)
            self._put(("mail", words, body, notice))

    def _put(self, errand: tuple[str, list[str], bytes, Notice]) -> None:
        if len(self._waiting) >= _MOST_WAITING:
            log("too many notices wait to be brought; this one is only in the log")
            return
        self._waiting.append(errand)
        self._next()

    def _next(self) -> None:
        while self._waiting and len(self._tasks) < _AT_ONCE:
            task = asyncio.get_running_loop().create_task(self._bring(*self._waiting.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._brought)

    def _brought(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log(f"a notice could not be brought: {error}")
        if not task.cancelled():
            self._next()

    async def _bring(self, what: str, words: list[str], body: bytes, notice: Notice) -> None:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE if body else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **environment(notice)},
            start_new_session=True,
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(body or None), self._limit)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            if not isinstance(error, TimeoutError):
                raise
            log(f"the notice's {what or 'command'} took longer than {self._limit:g} s and was ended: {notice.event}")
            return
        for line in said[:_MOST_PRINTED].decode("utf-8", "replace").splitlines():
            log(f"notice, {notice.event}: {line}")
        if process.returncode:
            log(f"the notice's {what or 'command'} ended with {process.returncode}: {notice.event}")

    def _mail(self, notice: Notice) -> tuple[list[str], bytes]:
        subject = f"bough: {notice.text}"[:200]
        if os.path.basename(self._mailer[0]) == "sendmail":
            message = EmailMessage()
            message["To"] = self._address
            message["Subject"] = subject
            message.set_content(f"{notice.text}\n\nThe server on {socket.gethostname()} says this.\n")
            return [*self._mailer, "-oi", "-t"], bytes(message)
        return [*self._mailer, "-s", subject, self._address], f"{notice.text}\n".encode()

    async def close(self) -> None:
        """Let those on their way arrive, a moment at most."""
        self._waiting.clear()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=1.0)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def environment(notice: Notice) -> dict[str, str]:
    """How a command learns what it is about."""
    return {
        "BOUGH_EVENT": notice.event,
        "BOUGH_WORKFLOW": notice.workflow.replace("\0", ""),
        "BOUGH_TASK": notice.task,
        "BOUGH_HOST": notice.host,
        "BOUGH_TEXT": notice.text,
    }


def find_mailer() -> list[str]:
    """The machine's mail program; UserError when it has none."""
    path = f"{os.environ.get('PATH', '')}:{_PLACES}"
    for name in ("sendmail", "mail", "mailx"):
        found = shutil.which(name, path=path)
        if found:
            return [found]
    raise UserError("--notify-mail needs a program sendmail or mail on this machine; use --notify with a command")
