"""Monitors in a service: added while tasks run, behind relays of both kinds, and across a server that was killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from relay_site import Site
from service_client import until

import bough
from bough.api.session.session import opened_sessions
from bough.monitors import Metric, Regex
from bough.monitors.comparison import Halving

PATIENCE = 60.0
# prints its score, and after each line waits until it may print the next one
STEPS = "for i in $(seq 1 {steps}); do echo score={own}; touch {folder}/{own}.$i; {wait}; done"
WAIT = "until [ -e {folder}/go.$i ]; do sleep 0.05; done"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.clean_up()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "work-here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    opened_sessions.clear()


def stepping(folder: Path, own: object, steps: int = 100) -> str:
    wait = WAIT.format(folder=folder)
    return STEPS.format(steps=steps, own=own, folder=folder, wait=wait)


def let_go(folder: Path, step: int) -> None:
    (folder / f"go.{step}").touch()


def behind(site: Site, kind: str) -> None:
    """Executors with four cores in all: at the server, or behind a relay that forwards or shares out work."""
    execute = site.begin()
    if kind == "direct":
        site.executor(cores=4)
        return
    relay = site.relay(execute, "127.0.0.1:0", *(["--dispatch", "--reconnect", "5s"] if kind == "sharing" else []))
    site.executor("--server", str(relay.access), cores=4, joined=False)
    site.until_executors(lambda found: any(one["cores"] for one in found), "the executor", site.log)


@pytest.mark.parametrize("kind", ["direct", "forwarding", "sharing"])
def test_monitors_and_what_they_see_go_through_relays(site: Site, here: Path, kind: str) -> None:
    behind(site, kind)
    with bough.Session(f"unix:{site.address}", name="watched") as s:
        task = s.command(stepping(here, 7), monitors=[Metric("score=([0-9]+)", "score", at=[1, 2])])
        until((here / "7.1").exists, "the first step")
        until(lambda: task.series("score"), "the first value")
        task.monitor(Regex("stdout", "score=7", do="tag seven"), Regex("stdout", "score=(7)", above=6, do="finish"))
        for step in range(1, 6):
            let_go(here, step)
        done = task.result(PATIENCE)
        assert done.ended_by
        assert "seven" in task.tags
    said = site.bough("explain", "1", "--queue", "watched").stdout
    assert "ended by" in said, said
    rows = json.loads(site.bough("sql", "select action, value from firings order by n", "--json").stdout)
    assert "finish" in {row["action"] for row in rows}


def test_what_was_asked_before_the_server_was_killed_holds_after_it(site: Site, here: Path) -> None:
    behind(site, "direct")
    with bough.Session(f"unix:{site.address}", name="watched") as s:
        sweep = s.sweep(stepping(here, "{own}"), bough.product(own=[3, 1, 2, 4]))
        sweep.rule(Halving("score", at=[2, 4], pattern="score=([0-9]+)"))
        for own in (1, 2, 3, 4):
            until((here / f"{own}.1").exists, f"the start of {own}")
        site.kill()
        let_go(here, 1)
        let_go(here, 2)  # they reach the first checkpoint while the server is away
        for own in (1, 2, 3, 4):
            until((here / f"{own}.3").exists, f"the third step of {own}")
        site.start("--listen", "127.0.0.1:0", "--heartbeat", "2s", "--reconnect", "20s")
        for index in (0, 3):  # the worse half
            assert sweep[index].result(PATIENCE).ended_by
        assert not sweep[1].done()
        let_go(here, 3)
        let_go(here, 4)
        assert sweep[2].result(PATIENCE).ended_by
        assert not sweep[1].done()
        sweep.cancel()


def test_a_restart_costs_no_retry_and_what_was_seen_of_each_attempt_is_kept(site: Site, here: Path) -> None:
    behind(site, "sharing")
    with bough.Session(f"unix:{site.address}", name="again") as s:
        often = f"n=$(ls {here} | wc -l); touch {here}/try.$n; echo attempt=$n; [ $n -ge 2 ] || sleep 600"
        task = s.command(often, monitors=[Regex("stdout", "attempt=([01])", do="restart 2")])
        assert task.result(PATIENCE).exit_code == 0
        hopeless = s.command("echo bad; sleep 600", monitors=[Regex("stdout", "bad", do="restart 1")])
        error = hopeless.exception(PATIENCE)
        assert "ended by" in str(error)
    said = site.bough("explain", "1", "--queue", "again").stdout
    assert said.count("to be started again") == 2, said
    rows = json.loads(site.bough("sql", "select attempt, action from firings where idx = 0", "--json").stdout)
    assert sorted((row["attempt"], row["action"]) for row in rows)[:2] == [(1, "restart"), (1, "restart")]


def test_the_command_line_watches_what_a_service_runs_already(site: Site, here: Path) -> None:
    behind(site, "direct")
    with bough.Session(f"unix:{site.address}", name="watched") as s:
        task = s.command(stepping(here, 7))
        until((here / "7.1").exists, "the first step")
        added = site.bough("monitor", "watched:1", "regex:score=7", "--json")
        assert json.loads(added.stdout) == {"tasks": 1}
        let_go(here, 1)
        assert task.result(PATIENCE).ended_by
