"""A site that is taken away and comes back, again and again, with a server and executors of real processes.

Commands note each of their executions in a file, with the site where they ran.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from workshop import Workshop, opened_workshop

import bough
from bough.journal.codec import decode
from bough.model.events.facts import ElementFailed, Fact, Placed, SpanReturned
from bough.model.outcomes import Cause

ABSENCES = 20
KILLED_AFTER = {4, 11, 16}  # absences in which the server is killed; in the even ones while the site is there
LOOSE, SWEPT = 260, 100


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    with opened_workshop(tmp_path, monkeypatch) as made:
        yield made


class Sites:
    """Two sites of two cores: a stays, b is away while its file is there."""

    def __init__(self, shop: Workshop, *options: str) -> None:
        self.shop = shop
        self.away = shop.folder / "b-away"
        self.notes = shop.folder / "notes"
        self.notes.touch()
        shop.start("--reconnect", "60s")
        for site in ("a", "b"):
            shop.executor("--site", site, cores=2, env={"SITE": site})
        shop.bough("site", "availability", "b", "--file", str(self.away), "--every", "0.05s", *options)

    def entry(self, site: str) -> dict[str, object]:
        return next(one for one in self.shop.ask("sites") if one["site"] == site)

    def runs_on(self, site: str) -> int:
        """How many executions were begun there."""
        return sum(line.split()[2] == site for line in self.notes.read_text().splitlines())

    def leave(self) -> None:
        """B is taken away: when this returns, nothing of it is left there."""
        self.away.touch()
        self.shop.until(lambda: self.entry("b")["state"] == "away", "site b to leave")
        self.shop.until(lambda: self.entry("b")["tasks"] == 0, "what ran on b to be given back")

    def come_back(self) -> None:
        self.away.unlink()
        self.shop.until(lambda: self.entry("b")["state"] == "there", "site b to come back")

    def noted(self, name: str, seconds: str = "0.2") -> str:
        return f"echo {name} $BOUGH_ATTEMPT $SITE >> {self.notes}; sleep {seconds}"

    def restart_server(self) -> None:
        self.shop.kill()
        self.shop.start()

    def jobs(self) -> sqlite3.Connection:
        """The jobs database, brought up to date."""
        self.shop.ask("project")
        [path] = self.shop.home.rglob("journal.db")
        return sqlite3.connect(path)


def test_a_site_that_leaves_twenty_times_costs_nothing_but_time(shop: Workshop) -> None:
    sites = Sites(shop)
    with bough.Session(shop.address, name="w") as s:
        loose = [s.command(sites.noted(f"t{number}")) for number in range(LOOSE)]
        swept = s.sweep(sites.noted("s{i}"), bough.product(i=range(SWEPT)))
        for absence in range(ABSENCES):
            before = sites.runs_on("b")
            shop.until(lambda before=before: sites.runs_on("b") > before, "b to take part")  # type: ignore[misc]
            if absence in KILLED_AFTER and absence % 2 == 0:
                sites.restart_server()
            sites.leave()
            quiet = sites.runs_on("b")
            if absence in KILLED_AFTER and absence % 2:
                sites.restart_server()
                assert sites.entry("b")["state"] == "away"
            assert sites.runs_on("b") == quiet
            sites.come_back()
        results = [task.result() for task in loose]
        assert all(one.exit_code == 0 for one in results)
        assert sum(one.exit_code == 0 for one in swept.results()) == SWEPT
        assert s.processors() == {"a": 2, "b": 2}

    with sites.jobs() as jobs:
        states = dict(jobs.execute("SELECT state, count(*) FROM attempts WHERE idx = 0 GROUP BY state"))
        count = jobs.execute("SELECT sum(done), sum(failed) FROM tasks").fetchone()
        assert count == (LOOSE + SWEPT, 0)
        check_attempts(jobs)
        check_order(jobs)
    assert states.get("given back", 0) > 0, states


def check_attempts(jobs: sqlite3.Connection) -> None:
    """Every loose task succeeded once, and all attempts before were given back because site b left."""
    single = "SELECT attempts.* FROM attempts JOIN tasks ON tasks.id = attempts.id WHERE tasks.length = 1"
    done = Counter(row[0] for row in jobs.execute(f"SELECT id FROM ({single}) WHERE state = 'done'"))
    assert len(done) == LOOSE
    assert set(done.values()) == {1}
    others = jobs.execute(f"SELECT DISTINCT state, substr(message, 1, 24) FROM ({single}) WHERE state != 'done'")
    assert set(others) <= {("given back", "given back: site b left ")}
    unstarted = Counter(fact.record for fact in facts_of(jobs) if isinstance(fact, SpanReturned))
    for record, attempts in jobs.execute(f"SELECT id, group_concat(attempt) FROM ({single}) GROUP BY id"):
        found = set(map(int, attempts.split(",")))
        left_out = set(range(1, max(found) + 1)) - found  # the executor had not begun: then there is no row
        assert len(left_out) == unstarted[record]


def facts_of(journal: sqlite3.Connection) -> Iterator[Fact]:
    """All that was decided, in order."""
    for (row,) in journal.execute("SELECT facts FROM journal ORDER BY turn"):
        yield from decode(row)


def check_order(journal: sqlite3.Connection) -> None:
    """What was given back was placed again before anything that had never run.

    By the journal: the row of an attempt says when it ended where it ran, and until the server hears of that it may
    well place something else.
    """
    waiting: set[tuple[int, int]] = set()  # elements that were given back and not placed since
    given_back = 0
    for fact in facts_of(journal):
        if isinstance(fact, ElementFailed) and fact.failure.cause is Cause.GIVEN_BACK:
            waiting.add((fact.record, fact.index))
            given_back += 1
        elif isinstance(fact, Placed):
            placed = {(fact.record, index) for index in range(fact.start, fact.stop)}
            assert placed <= waiting or not waiting, (fact, waiting)
            waiting -= placed
    assert given_back


def test_what_ends_within_the_grace_counts_and_the_rest_is_given_back(shop: Workshop) -> None:
    sites = Sites(shop, "--grace", "2s")
    gate = shop.folder / "gate"
    with bough.Session(shop.address, name="w") as s:
        shop.bough("site", "away", "a")  # so that both run on b
        short = s.command(f"{sites.noted('short', '0')}; until [ -e {gate} ]; do sleep 0.02; done")
        long = s.command(f"{sites.noted('long', '0')}; [ $SITE = a ] || sleep 600")
        shop.until(lambda: sites.runs_on("b") == 2, "both to run on b")
        sites.away.touch()
        shop.until(lambda: sites.entry("b")["state"] == "away", "site b to leave")
        gate.touch()
        assert short.result().exit_code == 0
        shop.until(lambda: sites.entry("b")["tasks"] == 0, "the other one to be given back")
        said = shop.bough("explain", str(long.id)).stdout
        assert "its last attempt was given back: site b left" in said
        shop.bough("site", "back", "a")
        assert long.result().exit_code == 0
        assert (short.attempts, long.attempts) == (1, 2)
        said = "was given back: site b left"
        assert f"an earlier attempt {said}" in shop.bough("explain", str(long.id)).stdout
        assert f"{long.id}: attempt 1 {said}" in shop.bough("log", str(long.id)).stderr


def test_a_site_that_is_away_is_seen_and_said(shop: Workshop) -> None:
    sites = Sites(shop)
    away = shop.bough("site", "away", "a", "--reason", "repairs").stdout
    assert away == "site a is away: repairs\n"
    sites.leave()
    with bough.Session(shop.address, name="w") as s:
        assert s.processors() == {}
        task = s.command("true")
        said = shop.bough("explain", str(task.id)).stdout
        assert "where it could run is away: site a (repairs), site b" in said
        listed = shop.bough("site", "list").stdout
        assert "repairs; by hand" in listed
        shop.executor("--site", "b", env={"SITE": "b"})  # it joins while its site is away, and gets nothing
        sites.restart_server()
        assert {one["site"]: one["state"] for one in shop.ask("sites")} == {"a": "away", "b": "away"}
        assert shop.bough("site", "back", "a").stdout == "site a is there\n"
        assert task.result().exit_code == 0
        assert task.host == os.uname().nodename
    wrong = shop.bough("site", "availability", "b", "--calendar", "Mon 25:00-26:00", check=False)
    assert wrong.returncode == 2
    assert "no time of day: 25:00" in wrong.stderr
