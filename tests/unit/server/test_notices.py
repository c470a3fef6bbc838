from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_service_life import Harness

from bough.errors import UserError
from bough.model.events.facts import ExecutorSuspended
from bough.model.events.news import Hold, WorkStarted, WorkSucceeded
from bough.model.ids import RecordId, number_of
from bough.model.tasks import Dep, Kind, Limits, On, TaskSpec
from bough.server.service.upkeep.notices import (
    KINDS,
    NoticeCommand,
    NoticeRules,
    Notices,
    OperatorNotice,
    find_mailer,
    read_kinds,
)
from bough.wire.client_messages import CloseSession, DoAction, Submit
from bough.wire.executor_messages import Leaving, Report, RunSpan

HOUR = 3600.0
EVERYTHING = NoticeRules()


class HandClock:
    def __init__(self, harness: Harness) -> None:
        self._loop = harness.loop

    def now(self) -> float:
        return 1e9 + self._loop.now

    def jump(self) -> float:
        return 0.0


class Watch:
    """A service whose notices are kept."""

    def __init__(self, folder: Path, rules: NoticeRules = EVERYTHING) -> None:
        self.service = Harness(folder)
        self.service.shell.clock = HandClock(self.service)  # type: ignore[assignment]
        self.said: list[OperatorNotice] = []
        self.notices = Notices(self.service.shell, rules, self.said.append)
        self.service.shell.on_facts.append(self.notices.hear)
        self.notices.start()

    @property
    def events(self) -> list[str]:
        return [notice.event for notice in self.said]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    made = Watch(tmp_path)
    yield made
    made.service.numbers.close()


def test_a_workflow_that_ends_is_told_of_with_its_counts(watch: Watch) -> None:
    client, executor = watch.service.client("survey"), watch.service.executor()
    client.submit(1)
    (run,) = executor.said(RunSpan)
    executor.say(Report(1, [WorkSucceeded(run.span, 0, 1, 0.1)]))
    client.say(CloseSession("drain"))

    (notice,) = watch.said
    assert (notice.event, notice.workflow) == ("finished", "survey")
    assert "1 done" in notice.text


def test_a_workflow_that_is_held_is_stuck_and_told_of_once_an_hour(watch: Watch) -> None:
    client = watch.service.client("survey")
    client.submit(2)
    client.say(DoAction(5, Hold(Dep(On.GROUP, client.welcome.group))))

    watch.service.loop.advance(5)
    assert watch.said == []
    watch.service.loop.advance(5)
    assert watch.events == ["stuck"]
    assert "bough release" in watch.said[0].text
    for _ in range(10):
        watch.service.loop.advance(60)
    assert watch.events == ["stuck"]
    watch.service.loop.advance(HOUR)
    watch.service.loop.advance(5)
    assert watch.events == ["stuck", "stuck"]


def test_a_workflow_whose_tasks_nobody_can_run_is_stuck_and_one_that_runs_is_not(watch: Watch) -> None:
    client, executor = watch.service.client("survey"), watch.service.executor()
    client.submit(2)
    assert executor.said(RunSpan)
    for _ in range(4):
        watch.service.loop.advance(5)
    assert "stuck" not in watch.events
    executor.say(Leaving())
    executor.hang_up()
    for _ in range(2):
        watch.service.loop.advance(5)

    assert watch.events == ["stuck"]
    assert "there is no executor" in watch.said[0].text


def test_an_executor_that_is_suspended_is_told_of_and_one_that_is_missing_only_when_silent(watch: Watch) -> None:
    client, executor = watch.service.client(), watch.service.executor()
    watch.service.shell.news(ExecutorSuspended(executor.number, 2e9, "5 tasks failed there"))
    watch.service.loop.run()
    assert watch.events == ["suspended"]
    assert watch.said[0].host == "node"

    busy = watch.service.executor()
    (task,) = client.submit(1)
    assert busy.said(RunSpan)
    busy.hang_up()
    watch.service.loop.advance(5)
    assert watch.events == ["suspended"]
    watch.service.loop.advance(5)
    assert watch.events == ["suspended", "silent"]
    assert watch.said[1].task == str(number_of(task))
    for _ in range(20):
        watch.service.loop.advance(5)
    assert watch.events[:3] == ["suspended", "silent", "lost"]


def test_an_executor_that_leaves_is_no_news(watch: Watch) -> None:
    executor = watch.service.executor()
    executor.say(Leaving("it was idle"))
    executor.hang_up()

    assert watch.said == []


def test_a_task_is_overlong_by_its_estimate_and_the_least_time(tmp_path: Path) -> None:
    watch = Watch(tmp_path, NoticeRules(KINDS, factor=3.0, least=100.0))
    client, executor = watch.service.client("survey"), watch.service.executor()
    number = RecordId(client.welcome.first_id)
    spec = TaskSpec(number, Kind.COMMAND, b"", b"", group=client.welcome.group, limits=Limits(walltime=20.0))
    client.say(Submit([spec], 1))
    (run,) = executor.said(RunSpan)
    executor.say(Report(1, [WorkStarted(run.span, 0, 1)]))

    for _ in range(19):
        watch.service.loop.advance(5)
        executor.say(Report(1, []))
    assert watch.said == []
    for _ in range(3):
        watch.service.loop.advance(5)

    assert watch.events == ["overlong"]
    told = watch.said[0]
    assert (told.task, told.host, told.workflow) == (str(number_of(number)), "node", "survey")
    watch.service.numbers.close()


def test_only_the_kinds_that_are_wanted_are_told_of(tmp_path: Path) -> None:
    watch = Watch(tmp_path, NoticeRules(("stuck",)))
    watch.service.client("survey").say(CloseSession("drain"))
    assert watch.said == []
    watch.service.numbers.close()

    assert read_kinds("suspended, finished") == ("suspended", "finished", "lost")
    with pytest.raises(UserError, match="no event 'lunch'"):
        read_kinds("stuck,lunch")


# --- bringing ------------------------------------------------------------------------------------------


def bring(messenger: NoticeCommand, *notices: OperatorNotice, seconds: float = 10.0) -> None:
    async def go() -> None:
        for notice in notices:
            messenger.say(notice)
        until = asyncio.get_running_loop().time() + seconds
        while messenger._tasks and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.01)
        await messenger.close()

    asyncio.run(go())


def test_a_command_learns_all_from_its_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    command = f'echo "$BOUGH_EVENT/$BOUGH_WORKFLOW/$BOUGH_TASK/$BOUGH_HOST/$BOUGH_TEXT" > {out}; echo said; exit 3'
    bring(NoticeCommand(command), OperatorNotice("overlong", "too\nlong", "survey", "12.3", "node"))

    assert out.read_text() == "overlong/survey/12.3/node/too long\n"
    log = capsys.readouterr().err
    assert "notice, overlong: said" in log
    assert "ended with 3" in log


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    bring(NoticeCommand("sleep 60 & sleep 60", limit=0.2), OperatorNotice("stuck", "x"))

    assert time.monotonic() - begun < 10
    assert "took longer than 0.2 s" in capsys.readouterr().err


def test_few_run_at_once_and_too_many_are_only_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = f"mkdir {tmp_path}/$$; ls {tmp_path} | wc -l >> {tmp_path}.seen; sleep 0.05; rmdir {tmp_path}/$$"
    bring(NoticeCommand(command), *(OperatorNotice("stuck", f"{n}") for n in range(12)), seconds=20)

    seen = [int(line) for line in Path(f"{tmp_path}.seen").read_text().split()]
    assert len(seen) == 12
    assert max(seen) <= 3
    bring(NoticeCommand("true"), *(OperatorNotice("stuck", f"{n}") for n in range(200)))
    assert "too many notices" in capsys.readouterr().err


def test_mail_goes_through_the_program_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sendmail"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words; cat > {tmp_path}/mail\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    bring(NoticeCommand(address="ann@example.org"), OperatorNotice("finished", "workflow survey has ended"))

    assert (tmp_path / "words").read_text() == "-oi -t\n"
    mail = (tmp_path / "mail").read_text()
    assert "To: ann@example.org" in mail
    assert "Subject: bough: workflow survey has ended" in mail
    with pytest.raises(UserError, match="not an address"):
        NoticeCommand(address="-rx")


def test_a_machine_without_a_mail_program_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("bough.server.service.upkeep.notices._PLACES", str(tmp_path))

    with pytest.raises(UserError, match="needs a program sendmail or mail"):
        find_mailer()
