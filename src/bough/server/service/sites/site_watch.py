"""Learns whether sites may be used: looks at their files, runs their commands, reads their calendars.

There is one look at a time for each site, with a time limit. A file is read in a thread, because a network file system
may never answer; a thread that hangs is not waited for, and no second one is started beside it. Rule: a look that fails
says nothing of the site: it is logged and shown by `bough site list`, and the last answer stands. What a user said by
hand stands until a user says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from calendar import timegm
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import msgspec

from bough import logs
from bough.core.queries.answers import PilotInfo, SiteInfo
from bough.errors import BoughError, UnknownName, UserError
from bough.model.events.facts import SiteLeft, SiteReturned, SiteRuleSet
from bough.model.ids import Seconds
from bough.model.sites.availability import ALWAYS, RuleKind, SiteRule, read_calendar
from bough.server.peers import ClientPeer, DeferredRequest, Handler, answered_by
from bough.server.turns.shell import Shell
from bough.wire import questions
from bough.wire.questions import Question

_EVERY: Final = {RuleKind.FILE: 1.0, RuleKind.COMMAND: 10.0, RuleKind.CALENDAR: 60.0}  # seconds between two looks
_LIMIT: Final = 30.0  # seconds that a look may take
_SHORTEST: Final = 0.05  # seconds between two looks
_AT_ONCE: Final = 8  # files that are looked at at the same time
_MOST_READ: Final = 4096  # bytes of a file
_LAST_WORDS: Final = 0.2  # seconds to read what a command wrote, after its end
_MOST_SAID: Final = 300  # characters of a reason
_RESERVED: Final = frozenset({"manual", "hand"})  # sites of people who take tasks


class Availability(NamedTuple):
    """What a look has found."""

    is_there: bool
    reason: str = ""


class LookFailed(Exception):
    """A look has found nothing out."""


def read_file(path: str) -> Availability:
    """What an availability file says: a site is there if there is none, or if its first word is `free`."""
    try:
        with open(path, "rb") as file:
            text = file.read(_MOST_READ).decode("utf-8", "replace")
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(path)):
            raise LookFailed(f"the folder of the file {path} is not there") from None
        return Availability(True)
    except OSError as error:
        raise LookFailed(f"the file {path} cannot be read: {error.strerror}") from error
    word, _, rest = text.strip().partition("\n")[0].partition(" ")
    if word.rstrip(":,").lower() == "free":
        return Availability(True)
    if word and word.rstrip(":,").lower() != "away":
        raise LookFailed(f"the file {path} says neither away nor free, but {word[:40]!r}")
    return Availability(False, rest.strip()[:_MOST_SAID] or f"the file {path} is there")


def wall_clock(at: Seconds) -> Seconds:
    """What the clock on the wall shows at an instant, see `model.sites.availability`."""
    return timegm(time.localtime(at)) + at % 1


class SiteWatch:
    """See the module. `now` is the time on the wall; `reached` says why a site is not reached."""

    def __init__(
        self,
        shell: Shell,
        *,
        limit: Seconds = _LIMIT,
        now: Callable[[], Seconds] = time.time,
        reached: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._reached = reached
        self._shell = shell
        self._limit = limit
        self._now = now
        self._threads = ThreadPoolExecutor(_AT_ONCE, "site-file")
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._troubles: dict[str, str] = {}
        self._hanging: set[str] = set()  # files that a thread still looks at
        self.handlers: dict[type[Question[Any]], Handler] = {
            questions.Sites: answered_by(self._sites),
            questions.SetSiteRule: self._set_rule,
            questions.MoveSite: self._move,
        }

    def start(self) -> None:
        """Look after all sites that have a rule."""
        for site in self._shell.queries.sites():
            self._watch(site.name, site.rule)

    def stop(self) -> None:
        """Look no more."""
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- looking -----------------------------------------------------------------------------------

    def _watch(self, site: str, rule: SiteRule) -> None:
        before = self._watches.pop(site, None)
        if before is not None:
            before.cancel()
        self._troubles.pop(site, None)
        if rule.kind is not RuleKind.ALWAYS:
            self._watches[site] = self._shell.loop.create_task(self._look_again_and_again(site, rule))

    async def _look_again_and_again(self, site: str, rule: SiteRule) -> None:
        while True:
            try:
                async with asyncio.timeout(self._limit):
                    found = await self._look(rule)
            except (LookFailed, TimeoutError, BoughError, OSError) as error:
                self._note_trouble(
                    site, str(error) or f"{rule.kind.value} {rule.text} took longer than {self._limit:g} s"
                )
            else:
                self._troubles.pop(site, None)
                self._learn(site, rule, found)
            await asyncio.sleep(self._pause(rule))

    def _pause(self, rule: SiteRule) -> Seconds:
        pause = rule.every or _EVERY[rule.kind]
        if rule.kind is RuleKind.CALENDAR:
            change = read_calendar(rule.text).next_change(self._now(), wall_clock)
            pause = min(pause, change - self._now()) if change is not None else pause
        return max(_SHORTEST, pause)

    async def _look(self, rule: SiteRule) -> Availability:
        if rule.kind is RuleKind.FILE:
            return await self._look_at_file(rule.text)
        if rule.kind is RuleKind.COMMAND:
            return await _run(rule.text)
        is_there = read_calendar(rule.text).is_open(wall_clock(self._now()))
        return Availability(is_there, "" if is_there else f"by its calendar: {rule.text}")

    async def _look_at_file(self, path: str) -> Availability:
        if path in self._hanging:
            raise LookFailed(f"the file {path} is still being looked at: its file system does not answer")
        self._hanging.add(path)
        look = self._shell.loop.run_in_executor(self._threads, read_file, path)
        look.add_done_callback(lambda done: self._looked(path, done))
        return await asyncio.shield(look)

    def _looked(self, path: str, done: asyncio.Future[Availability]) -> None:
        self._hanging.discard(path)
        if not done.cancelled():
            done.exception()  # whoever waited has heard it

    def _note_trouble(self, site: str, text: str) -> None:
        if self._troubles.get(site) != text:
            self._troubles[site] = text
            logs.warning(
                "site-unclear", f"whether site {site} may be used is not known: {text}; the last answer stands"
            )

    def _learn(self, site: str, rule: SiteRule, found: Availability) -> None:
        """Tell the core what is new."""
        known = self._known(site)
        if known is not None and known.by_hand:
            return
        is_away = known is not None and known.is_away
        if is_away and found.is_there:
            logs.info("site-returned", f"site {site} may be used again")
            self._shell.news(SiteReturned(site))
        elif not is_away and not found.is_there:
            logs.info("site-left", f"site {site} left: {found.reason}; what runs there has {rule.grace:g} s")
            self._shell.news(SiteLeft(site, found.reason, rule.grace))

    def _known(self, site: str) -> SiteInfo | None:
        return self._shell.queries.site(site)

    # --- what clients ask --------------------------------------------------------------------------

    def _sites(self, *_: object) -> object:
        return [self._entry(site) for site in self._shell.queries.sites()]

    def _entry(self, site: SiteInfo) -> dict[str, object]:
        change: Seconds | None = None
        if site.rule.kind is RuleKind.CALENDAR and not site.by_hand:
            change = read_calendar(site.rule.text).next_change(self._now(), wall_clock)
        return {
            "site": site.name,
            "state": "away" if site.is_away else "there",
            "executors": site.executors,
            "cores": site.cores,
            "tasks": site.tasks,
            "reason": site.reason,
            "by_hand": site.by_hand,
            "since": site.since or None,
            "next_change": change,
            "rule": site.rule.kind.value,
            "text": site.rule.text,
            "grace": site.rule.grace,
            "trouble": self._troubles.get(site.name, ""),
            **self._pilots(site),
        }

    def _pilots(self, site: SiteInfo) -> dict[str, object]:
        """How pilots are started there, which there are, and what keeps others from being started."""
        if site.spec is None:
            return {"spec": None, "pilots": [], "problem": ""}
        queries = self._shell.queries
        usage = queries.site_usage(site.name, self._shell.clock.now())
        return {
            "spec": msgspec.to_builtins(site.spec),
            "pilots": [_pilot(pilot) for pilot in site.pilots],
            "problem": self._reached(site.name) or site.trouble,
            "no_more": queries.why_no_pilot(site.name),
            "waits": queries.site_waits(site.name),
            "room": site.room,
            "core_hours": msgspec.structs.asdict(usage) if usage is not None else {},
        }

    def _answer(self, deferred: DeferredRequest[Any], name: str) -> None:
        """Answer with a site as it is once all that was said is written."""

        def answer() -> None:
            site = self._known(name)
            deferred.answer(self._entry(site) if site is not None else {"site": name, "state": "there"})

        self._shell.after_turn(lambda: deferred.attempt(lambda _: answer()))

    def _set_rule(self, deferred: DeferredRequest[questions.SetSiteRule]) -> None:
        _check_owner(deferred.client)
        site, rule = deferred.question.site, deferred.question.rule
        _check_site(site)
        check_rule(rule)
        self._shell.news(SiteRuleSet(site, rule))
        known = self._known(site)
        if rule == ALWAYS and known is not None and known.is_away and not known.by_hand:
            self._shell.news(SiteReturned(site))
        self._shell.after_turn(lambda: self._watch(site, rule))
        self._answer(deferred, site)

    def _move(self, deferred: DeferredRequest[questions.MoveSite]) -> None:
        _check_owner(deferred.client)
        asked = deferred.question
        _check_site(asked.site)
        known = self._known(asked.site)
        if known is None and not asked.away:
            there = ", ".join(site.name for site in self._shell.queries.sites()) or "none"
            raise UnknownName(f"there is no site {asked.site}; there are: {there}")
        if asked.away:
            self._shell.news(SiteLeft(asked.site, asked.reason or "a user said so", asked.grace, by_hand=True))
        elif known is not None:
            self._shell.news(SiteReturned(asked.site))
            self._shell.after_turn(lambda: self._watch(asked.site, known.rule))  # which may say that it is away still
        self._answer(deferred, asked.site)


def _pilot(pilot: PilotInfo) -> dict[str, object]:
    return {
        "pilot": pilot.pilot,
        "state": "leaving" if pilot.released else pilot.state.value,
        "handle": pilot.handle,
        "asked": pilot.asked,
        "started": pilot.started or None,
        "executors": pilot.executors,
        "busy": pilot.busy,
        "cores": pilot.cores,
        "allocation": pilot.allocation,
        "reason": pilot.released or pilot.reason,
    }


def check_rule(rule: SiteRule) -> None:
    """Refuse a rule that could never be looked at."""
    if rule.kind is RuleKind.CALENDAR:
        read_calendar(rule.text)
    elif rule.kind is RuleKind.FILE and not os.path.isabs(rule.text):
        raise UserError(f"the availability file {rule.text!r:.80} needs an absolute path on the server's machine")
    elif rule.kind is RuleKind.COMMAND and not rule.text.strip():
        raise UserError("the availability command is empty; say, for example, --command 'test ! -e /shared/away'")


def _check_site(name: str) -> None:
    if name in _RESERVED:
        raise UserError(f"{name} is not a site: it stands for people who take tasks themselves")


def _check_owner(client: ClientPeer) -> None:
    if client.connection.role != "owner":
        raise UserError("only a user of the server's Unix socket can say when sites may be used")


async def _run(command: str) -> Availability:
    """Whether a command says, by its exit code, that a site may be used; 126 and 127 say that it cannot run."""
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    )
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:  # a start that is broken off leaves its pipe open
        await _end(await starting)
        raise
    said = bytearray()
    reading = asyncio.create_task(_gather(process, said))
    try:
        code = await process.wait()
        await asyncio.wait([reading], timeout=_LAST_WORDS)
    finally:
        reading.cancel()
        await _end(process)
    line = said.decode("utf-8", "replace").strip().partition("\n")[0][:_MOST_SAID]
    if code < 0 or code in {126, 127}:
        raise LookFailed(f"the command {command!r:.80} ended with {code}: {line}".rstrip(": "))
    return Availability(code == 0, line or f"the command {command!r:.80} ended with {code}")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Leave nothing of a command, nor of the pipe to it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):  # the system may be slow to end it, and it is not waited for
        async with asyncio.timeout(_LAST_WORDS):
            await process.wait()
    process._transport.close()  # type: ignore[attr-defined] # else it stays open until somebody collects it


async def _gather(process: asyncio.subprocess.Process, said: bytearray) -> None:
    """Read what a command writes, to its end, and keep the beginning."""
    assert process.stdout is not None
    while piece := await process.stdout.read(_MOST_READ):
        said += piece[: _MOST_READ - len(said)]
