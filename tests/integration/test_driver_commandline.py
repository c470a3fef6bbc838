"""Trellis Driver's acceptance list, item 3: what `mqsub`, `mqdel` and `mqstat` did (F15 to F17), by Bough's commands.

A metaqueue is a workflow (`--queue`), a target a group of it (`--group`), a prerequisite target `--after 'target/*'`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from service_client import Service, until

GATED = "while [ ! -e {gate} ]; do sleep 0.02; done"


class Queues:
    """A server with two slots, and the commands."""

    def __init__(self, service: Service, folder: Path) -> None:
        self._service = service
        self.folder = folder

    def bough(self, *words: str, check: bool = True) -> str:
        return self._service.bough(*words, check=check).stdout

    def submit(self, *words: str) -> int:
        """Submit and return at once; the job's number."""
        (number,) = json.loads(self.bough("submit", "--json", *words))["ids"]
        return int(number)

    @contextlib.contextmanager
    def blocked(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command that is still under way."""
        words = (sys.executable, "-m", "bough.cli.main", *words)
        process = subprocess.Popen(words, env=self._service.environment, stdout=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def jobs(self, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.bough("status", "--json", *words, check=False) or "[]")
        return found

    def states(self, queue: str) -> dict[int, str]:
        return {job["record"]: job["state"] for job in self.jobs("--queue", queue, "all")}

    def until_state(self, queue: str, number: int, state: str) -> None:
        until(lambda: self.states(queue)[number] == state, f"job {number} to be {state}")

    def gated(self, name: str) -> tuple[Path, str]:
        gate = self.folder / name
        return gate, GATED.format(gate=gate)


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queues]:
    folder = tmp_path_factory.mktemp("mq")
    service = Service(folder / "s")
    try:
        service.start()
        service.executor(cores=2)
        yield Queues(service, folder)
    finally:
        service.clean_up()


def test_f15_a_blocking_submit_returns_when_the_job_is_done_and_says_how_it_ended(queues: Queues) -> None:
    gate, command = queues.gated("blocking")
    about = ("--queue", "blocking", "--group", "t")
    with queues.blocked("submit", "--wait", *about, "--", command) as waiting:
        until(lambda: "running" in queues.states("blocking").values(), "the job to run")
        assert waiting.poll() is None
        gate.touch()
        assert waiting.wait(60) == 0
    assert list(queues.states("blocking").values()) == ["done"]
    with queues.blocked("submit", "--wait", *about, "--", "exit 3") as failing:
        assert failing.wait(60) == 3  # the exit code of the command


def test_f15_a_job_waits_for_all_jobs_of_each_target_it_names(queues: Queues) -> None:
    one, first = queues.gated("one")
    other, second = queues.gated("other")
    about = ("--queue", "targets", "--group")
    queues.submit(*about, "blast", "--", first)
    queues.submit(*about, "blast", "--", "true")
    queues.submit(*about, "sensors", "--", second)
    parse = queues.submit(*about, "parse", "--after", "blast/*,sensors/*", "--", "true")
    free = queues.submit(*about, "free", "--", "true")
    one.touch()
    queues.until_state("targets", free, "done")
    assert queues.states("targets")[parse] == "waiting"
    other.touch()
    queues.until_state("targets", parse, "done")
    ended = {job["record"]: job for job in queues.jobs("--queue", "targets", "all")}
    before = [job["ended"] for job in ended.values() if job["record"] not in (parse, free)]
    assert len(before) == 3
    assert max(before) <= ended[parse]["started"]


def test_f15_queues_are_apart_and_there_is_one_for_those_who_name_none(queues: Queues) -> None:
    here, there = queues.submit("--queue", "here", "--", "true"), queues.submit("--", "true")
    queues.until_state("here", here, "done")
    queues.until_state("default", there, "done")
    assert len(queues.states("here")) == len(queues.states("default")) == 1  # each counts its jobs from 1


def test_f16_a_job_is_removed_by_its_number_whether_it_waits_or_runs(queues: Queues) -> None:
    _, command = queues.gated("never")
    running = queues.submit("--queue", "removal", "--group", "first", "--", command)
    waiting = queues.submit("--queue", "removal", "--after", "first/*", "--", "true")
    queues.until_state("removal", running, "running")
    queues.bough("cancel", "--queue", "removal", str(waiting))
    queues.bough("cancel", "--queue", "removal", str(running))
    queues.until_state("removal", running, "cancelled")
    queues.until_state("removal", waiting, "cancelled")


def test_f17_jobs_are_listed_by_queue_target_and_state(queues: Queues) -> None:
    gate, command = queues.gated("listing")
    about = ("--queue", "listing", "--group")
    runs = [queues.submit(*about, target, "--", command) for target in ("a", "b")]
    waits = queues.submit(*about, "b", "--after", str(runs[0]), "--", "true")
    for number in runs:
        queues.until_state("listing", number, "running")

    def numbers(*words: str) -> list[int]:
        return sorted(job["record"] for job in queues.jobs("--queue", "listing", *words))

    assert numbers("all") == [*runs, waits]
    assert numbers("b/*") == [runs[1], waits]
    assert numbers("--running") == runs
    assert numbers("b/*", "--running") == [runs[1]]
    assert numbers("--group", "b", "--state", "waiting") == [waits]
    gate.touch()
    queues.until_state("listing", waits, "done")
    assert numbers("--running") == []
