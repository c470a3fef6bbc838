"""What a server learns of sites: what files, commands and calendars say, and what happens when they say nothing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bough.core.machine import Machine
from bough.core.queries.facade import Queries
from bough.errors import UserError
from bough.model.events import facts
from bough.model.sites.availability import RuleKind, SiteRule
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies
from bough.server.service.sites.site_watch import Availability, LookFailed, SiteWatch, check_rule, read_file

PATIENCE = 60.0


class Core:
    """A core that takes in news at once, in the place of a shell."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.machine = Machine(Policies(Fifo()))
        self.queries = Queries(self.machine)
        self.now = 1.0
        self.machine.turn(0.0, [facts.RunOpened(1, "test", "h", 1)])

    def news(self, *said: Any) -> None:
        self.now += 1
        self.machine.turn(self.now, said)

    def after_turn(self, then: Callable[[], None]) -> None:
        then()

    @property
    def state(self) -> tuple[bool, str]:
        site = self.queries.site("b")
        return (site.is_away, site.reason) if site is not None else (False, "")


def watch(rule: SiteRule, story: Callable[[Core, SiteWatch], Any], **options: Any) -> None:
    """Watch site b by a rule while a story goes on."""

    async def live() -> None:
        core = Core()
        core.news(facts.SiteRuleSet("b", rule))
        watching = SiteWatch(core, **options)  # type: ignore[arg-type]
        watching.start()
        try:
            await story(core, watching)
        finally:
            watching.stop()

    asyncio.run(live())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def entry(watching: SiteWatch) -> dict[str, Any]:
    [found] = watching._sites()  # type: ignore[misc,attr-defined] # as `bough site list` asks
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, Availability(True)),
        ("", Availability(False, "the file {} is there")),
        ("away\n", Availability(False, "the file {} is there")),
        ("Away: until Monday\nmore", Availability(False, "until Monday")),
        ("free\n", Availability(True)),
        ("FREE, for now", Availability(True)),
    ],
)
def test_a_file_says_whether_a_site_is_there(tmp_path: Path, text: str | None, found: Availability) -> None:
    path = tmp_path / "b"
    if text is not None:
        path.write_text(text)
    assert read_file(str(path)) == found._replace(reason=found.reason.format(path))


def test_a_file_that_says_something_else_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "b"
    path.write_bytes(b"\xff maybe")
    with pytest.raises(LookFailed, match="neither away nor free"):
        read_file(str(path))
    with pytest.raises(LookFailed, match="cannot be read: Is a directory"):
        read_file(str(tmp_path))
    with pytest.raises(LookFailed, match="folder of the file"):
        read_file(str(tmp_path / "gone" / "b"))


def test_a_site_leaves_and_returns_by_its_file_and_keeps_its_state_when_that_is_unclear(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "b"
    path.parent.mkdir()

    async def story(core: Core, watching: SiteWatch) -> None:
        path.write_text("away repairs")
        await until(lambda: core.state == (True, "repairs"))
        path.parent.rename(tmp_path / "elsewhere")
        await until(lambda: "is not there" in entry(watching)["trouble"])
        assert core.state == (True, "repairs")
        path.parent.mkdir()
        await until(lambda: core.state == (False, ""))
        assert not entry(watching)["trouble"]

    watch(SiteRule(RuleKind.FILE, str(path), every=0.05), story)


def test_a_command_says_it_by_its_exit_code_and_its_first_line_is_the_reason(tmp_path: Path) -> None:
    away = tmp_path / "away"
    script = f"if [ -e {away} ]; then echo busy; yes | head -c 1000000; exit 1; fi"

    async def story(core: Core, _: SiteWatch) -> None:
        away.touch()
        await until(lambda: core.state == (True, "busy"))
        away.unlink()
        await until(lambda: core.state == (False, ""))

    watch(SiteRule(RuleKind.COMMAND, script, every=0.05), story)


@pytest.mark.parametrize(
    ("command", "trouble"),
    [("sleep 600", "took longer than 0.2 s"), ("/nowhere/x", "ended with 127"), ("kill -9 $$", "ended with -9")],
)
def test_a_command_that_cannot_tell_leaves_a_site_as_it_is(command: str, trouble: str) -> None:
    async def story(core: Core, watching: SiteWatch) -> None:
        await until(lambda: trouble in entry(watching)["trouble"])
        assert core.state == (False, "")

    watch(SiteRule(RuleKind.COMMAND, command, every=0.05), story, limit=0.2)


def test_a_file_system_that_does_not_answer_is_asked_once(tmp_path: Path) -> None:
    path = tmp_path / "b"
    os.mkfifo(path)  # to open it waits for a writer

    async def story(core: Core, watching: SiteWatch) -> None:
        await until(lambda: "does not answer" in entry(watching)["trouble"])
        assert len(watching._threads._threads) == 1
        assert core.state == (False, "")
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))

    watch(SiteRule(RuleKind.FILE, str(path), every=0.05), story, limit=0.1)


def test_what_a_user_said_stands_whatever_the_rule_says(tmp_path: Path) -> None:
    async def story(core: Core, watching: SiteWatch) -> None:
        core.news(facts.SiteLeft("b", "by a user", 0.0, True))
        watching._learn("b", SiteRule(), Availability(True))
        assert core.state == (True, "by a user")

    watch(SiteRule(), story)


def test_a_calendar_says_when_it_changes() -> None:
    async def story(core: Core, watching: SiteWatch) -> None:
        await until(lambda: core.state[0])
        assert entry(watching)["next_change"] is not None
        assert entry(watching)["reason"].startswith("by its calendar")

    noon = 1_800_000_000.0
    day = time.strftime("%a", time.localtime(noon + 2 * 86400))
    watch(SiteRule(RuleKind.CALENDAR, day), story, now=lambda: noon)


@pytest.mark.parametrize(
    "rule",
    [SiteRule(RuleKind.FILE, "relative"), SiteRule(RuleKind.COMMAND, " "), SiteRule(RuleKind.CALENDAR, "Someday")],
)
def test_a_rule_that_could_never_be_looked_at_is_refused(rule: SiteRule) -> None:
    with pytest.raises(UserError):
        check_rule(rule)
