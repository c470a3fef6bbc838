"""What operators are told without asking, and the command or mail program that tells them.

`Notices` looks at facts as they are written, and every few seconds for silent executors, overlong tasks and workflows
that are stuck. `NoticeCommand` runs the user's command or the machine's mail program. Rule: the same thing is not told
twice within an hour; commands run a few at once, each with a time limit and a process group of its own, and the server
never waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
from collections import deque
from collections.abc import Callable, Sequence
from email.message import EmailMessage

import msgspec

from bough import logs
from bough.core.queries.answers import WorkflowInfo
from bough.errors import UserError
from bough.model.events.facts import (
    ExecutorDrained,
    ExecutorJoined,
    ExecutorLost,
    ExecutorSuspended,
    Fact,
    RunClosed,
    SpanStarted,
)
from bough.model.ids import ExecutorId, Seconds
from bough.server.turns.shell import Shell

KINDS = ("finished", "stuck", "overlong", "silent", "suspended", "lost")
_LOOK = 5.0  # seconds between two looks
_AGAIN = 3600.0  # seconds within which the same thing is not said again
_NAMED = 5  # tasks of a silent executor that are named
LIMIT = 30.0  # seconds for one message
_AT_ONCE = 3
_MOST_WAITING = 100
_MOST_PRINTED = 2000  # bytes of what a command says that are logged
_PLACES = "/usr/sbin:/usr/lib:/usr/bin:/bin"


class OperatorNotice(msgspec.Struct, frozen=True):
    """One thing worth knowing."""

    event: str
    text: str
    workflow: str = ""
    task: str = ""
    host: str = ""


class NoticeRules(msgspec.Struct, frozen=True):
    """What is told of, and what counts as too long."""

    kinds: tuple[str, ...] = KINDS
    factor: float = 10.0  # times the user's estimate, or the measured mean
    least: Seconds = 600.0  # and at least so long


def read_kinds(text: str) -> tuple[str, ...]:
    """Kinds of events as people list them; "suspended" means lost executors, too."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in KINDS:
            raise UserError(f"there is no event {word!r} to be told of; there are: {', '.join(KINDS)}")
    return tuple(dict.fromkeys([*words, *(["lost"] if "suspended" in words else [])]))


class Notices:
    """Finds what operators should know. `say` brings the message."""

    def __init__(self, shell: Shell, rules: NoticeRules, say: Callable[[OperatorNotice], None]) -> None:
        self._shell = shell
        self._queries = shell.queries
        self._rules = rules
        self._say = say
        self._said: dict[tuple[object, ...], Seconds] = {}
        self._hosts: dict[int, str] = {}
        self._leaving: set[int] = set()
        self._started: dict[int, Seconds] = {}  # spans that were reported to run, and when
        self._stuck: set[int] = set()  # workflows that were stuck at the last look
        self._silent: set[ExecutorId] = set()  # executors that were missing at the last look
        self._timer: asyncio.TimerHandle | None = None
        self._hear: dict[type, Callable[..., None]] = {
            ExecutorJoined: self._joined,
            ExecutorDrained: lambda fact: self._leaving.add(fact.executor),
            ExecutorSuspended: self._suspended,
            ExecutorLost: self._lost,
            RunClosed: self._closed,
            SpanStarted: self._began,
        }
        for executor in self._queries.executors():
            self._hosts[executor.number] = executor.host
            if executor.is_draining:
                self._leaving.add(executor.number)
        now = shell.clock.now()
        for attempt in self._queries.attempts():  # when they began is not known any more: now, at the latest
            self._started[attempt.span] = now

    def start(self) -> None:
        """Look now and then."""
        self._timer = self._shell.loop.call_later(_LOOK, self._look)

    def stop(self) -> None:
        """Say nothing more."""
        self._hear = {}
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self, notice: OperatorNotice, *key: object) -> None:
        now = self._shell.clock.now()
        known = (notice.event, *key)
        if notice.event not in self._rules.kinds or now < self._said.get(known, 0.0) + _AGAIN:
            return
        self._said = {old: when for old, when in self._said.items() if now < when + _AGAIN}
        self._said[known] = now
        self._say(notice)

    # --- what is heard -----------------------------------------------------------------------------------

    def hear(self, facts: Sequence[Fact]) -> None:
        """Look through the facts of a turn."""
        hear = self._hear
        for fact in facts:
            handler = hear.get(type(fact))
            if handler is not None:
                handler(fact)

    def _joined(self, fact: ExecutorJoined) -> None:
        self._hosts[fact.executor] = fact.host
        self._leaving.discard(fact.executor)

    def _began(self, fact: SpanStarted) -> None:
        self._started.setdefault(fact.span, self._shell.clock.now())

    def _suspended(self, fact: ExecutorSuspended) -> None:
        peer = self._shell.peers.executors.get(fact.executor)
        if peer is None or not peer.ready:
            return  # it is missing, and that is another matter
        host = self._hosts.get(fact.executor, "")
        left = max(0.0, fact.until - self._shell.clock.now())
        text = f"executor {fact.executor} on {host} is suspended for {left:.0f} s: {fact.reason}"
        self._tell(OperatorNotice("suspended", text, host=host), fact.executor)

    def _lost(self, fact: ExecutorLost) -> None:
        host = self._hosts.pop(fact.executor, "")
        if fact.executor not in self._leaving:
            text = f"executor {fact.executor} on {host} is lost: {fact.reason}; others get its tasks"
            self._tell(OperatorNotice("lost", text, host=host), fact.executor)
        self._leaving.discard(fact.executor)
        self._silent.discard(fact.executor)

    def _closed(self, fact: RunClosed) -> None:
        workflow = self._queries.workflow(fact.run)
        if workflow is not None and workflow.group:
            counts = self._queries.counts([workflow.group])
            text = f"workflow {workflow.name}, run {workflow.run}, has ended: {counts}"
            self._tell(OperatorNotice("finished", text, workflow.name), workflow.run)

    # --- what is looked at -------------------------------------------------------------------------------

    def _look(self) -> None:
        self._timer = self._shell.loop.call_later(_LOOK, self._look)
        if self._shell.is_stuck:
            return
        self._look_for_silence()
        self._look_for_overlong(self._shell.clock.now())
        if not self._shell.is_busy:
            self._look_for_stuck()

    def _look_for_silence(self) -> None:
        """Executors that were missing at the last look, too, and have something to do."""
        missing = {number for number in self._queries.executor_numbers() if number not in self._shell.peers.executors}
        missing.difference_update(self._queries.manual_executors())
        for number in missing & self._silent:
            attempts = self._queries.attempts_on(number)
            if attempts:
                host, tasks = attempts[0].host, [self._queries.label(one.record, one.left[0][0]) for one in attempts]
                shown = ", ".join(tasks[:_NAMED]) + (", ..." if len(tasks) > _NAMED else "")
                text = f"no sign of life from executor {number} on {host}, which has {shown}"
                self._tell(OperatorNotice("silent", text, task=tasks[0], host=host), number)
        self._silent = missing

    def _look_for_overlong(self, now: Seconds) -> None:
        rules, queries = self._rules, self._queries
        for number, began in list(self._started.items()):
            expected = queries.expected_left(number)
            if expected is None:
                del self._started[number]
                continue
            ran = now - began
            if expected and ran > max(rules.least, rules.factor * expected):
                self._tell_overlong(number, ran, expected)

    def _tell_overlong(self, span: int, ran: Seconds, expected: Seconds) -> None:
        attempt = self._queries.attempt(span)
        if attempt is not None:
            task, host = self._queries.task(attempt.record, attempt.left[0][0]), attempt.host
            text = f"task {task.id} has run on {host} for {ran:.0f} s, and {expected:.0f} s were expected"
            self._tell(OperatorNotice("overlong", text, task.workflow, task.id, host), task.record, task.index)

    def _look_for_stuck(self) -> None:
        """Workflows that were stuck at the last look, too."""
        found: dict[int, tuple[WorkflowInfo, str]] = {}
        for workflow in self._queries.workflows():
            why = self._queries.why_stuck(workflow.run)
            if why:
                found[workflow.run] = workflow, why
        for run in found.keys() & self._stuck:
            workflow, why = found[run]
            text = f"workflow {workflow.name}, run {run}, cannot continue: {why}"
            self._tell(OperatorNotice("stuck", text, workflow.name), run)
        self._stuck = set(found)


class NoticeCommand:
    """Tells a notice. `command` is run by a shell for every notice; `address` gets it by mail."""

    def __init__(self, command: str = "", address: str = "", limit: float = LIMIT) -> None:
        if address and (address.startswith("-") or not address.isprintable() or " " in address):
            raise UserError(f"--notify-mail {address!r}: not an address")
        self._command = command
        self._address = address
        self._mailer = find_mailer() if address else []
        self._limit = limit
        self._waiting: deque[tuple[str, list[str], bytes, OperatorNotice]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def say(self, notice: OperatorNotice) -> None:
        """Tell a notice to the log, the command and the mail program."""
        notice = msgspec.structs.replace(notice, text=" ".join(notice.text.replace("\0", "").split()))
        logs.info("notice", notice.text)
        if self._command:
            self._put(("", ["/bin/sh", "-c", self._command], b"", notice))
        if self._address:
            words, body = self._mail(notice)
            self._put(("mail", words, body, notice))

    def _put(self, deferred: tuple[str, list[str], bytes, OperatorNotice]) -> None:
        if len(self._waiting) >= _MOST_WAITING:
            logs.warning("notice-dropped", "too many notices wait to be brought; this one is only in the log")
            return
        self._waiting.append(deferred)
        self._next()

    def _next(self) -> None:
        while self._waiting and len(self._tasks) < _AT_ONCE:
            task = asyncio.get_running_loop().create_task(self._bring(*self._waiting.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._brought)

    def _brought(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logs.warning("notice-failed", f"a notice could not be brought: {error}")
        if not task.cancelled():
            self._next()

    async def _bring(self, what: str, words: list[str], body: bytes, notice: OperatorNotice) -> None:
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
            logs.warning(
                "notice-failed",
                f"the notice's {what or 'command'} took longer than {self._limit:g} s and was ended: {notice.event}",
            )
            return
        for line in said[:_MOST_PRINTED].decode("utf-8", "replace").splitlines():
            logs.info("notice-output", f"notice, {notice.event}: {line}")
        if process.returncode:
            logs.warning(
                "notice-failed", f"the notice's {what or 'command'} ended with {process.returncode}: {notice.event}"
            )

    def _mail(self, notice: OperatorNotice) -> tuple[list[str], bytes]:
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


def environment(notice: OperatorNotice) -> dict[str, str]:
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
