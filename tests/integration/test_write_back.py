"""Outputs that are written back in bulk, after their tasks: safe before anybody is told that they are done.

The executors are on hosts that are network namespaces, which takes root; without, it is skipped.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import as_completed
from pathlib import Path

import pytest
from linked_hosts import LinkedHosts, LinkedService, linked, until

import bough
from bough.api.session.session import opened_sessions

LONG = ("--cores", "2", "--gather", "600s")  # as long as something runs there, nothing is written back
MAKE = "echo made > {o:w}; echo 1 >> {count}"


class Site:
    """A server, and executors on hosts that do not see the client's directory."""

    def __init__(self, folder: Path) -> None:
        self.hosts = LinkedHosts(folder, 3)
        self.service = LinkedService(self.hosts, folder, "--heartbeat", "2s", "--reconnect", "3s")
        self.folder, self.here = folder, self.service.here
        self.count = folder / "count"  # a line for each time that something was made
        self.count.touch()

    def start(self, number: int, *words: str) -> None:
        self.service.executor(number, "--resource", f"h{number}=9", *words)

    def start_near(self) -> None:
        """An executor that sees the client's directory."""
        access, work = str(self.service.access), str(self.folder / "near")
        words = ["executor", "start", "--server", access, "--cores", "1", "--work", work, "--resource", "h0=9"]
        self.hosts.spawn(0, [*self.service.python, *words], "near.log")

    def executors(self) -> list[dict[str, object]]:
        found = json.loads(self.service.bough("executor", "list", "--json", "--server", self.service.socket))
        assert isinstance(found, list)
        return found

    def pid(self, number: int) -> int:
        return next(int(str(one["pid"])) for one in self.executors() if f"h{number}" in str(one["named"]))

    def made(self) -> int:
        return len(self.count.read_text().splitlines())


class FarService(LinkedService):
    """Its server does not see the client's directory either."""

    def start(self, port: str) -> None:
        words = [*self.python, "server", "start", "--listen", f"{self.hosts.address(0)}:{port}"]
        self.hosts.spawn(0, words, "server.log", self.here)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("BOUGH_HOME", "")
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    made = Site(tmp_path)
    monkeypatch.chdir(made.here)
    try:
        yield made
    finally:
        made.hosts.close()
        opened_sessions.clear()


@linked
def test_all_are_in_their_places_when_their_tasks_are_done_and_readers_need_not_wait(site: Site) -> None:
    site.start(1, "--cores", "2")
    site.start(2)
    site.service.await_executors(2)
    with bough.Session(site.service.socket, name="later") as s:
        space = bough.product(n=range(40))
        made = s.sweep("echo {n} > {o:w}; : > {e:w}", space, o="out/{n}.txt", e="out/{n}.empty", keep="later")
        big = s.command("head -c 3000000 /dev/zero > {o:w}", o="big.bin", keep="later")
        folder = s.command("mkdir {o:w}; echo in > {o}/x", o="folder", keep="later")
        total = s.command("cat {x:r} > {o:w}", x=[task.outputs["o"] for task in made], o="total.txt", keep="later")
        for task in as_completed([*made, big, folder, total], timeout=120):
            assert all(os.path.exists(str(path)) for path in task.outputs.values()), task
    assert sorted(int(line) for line in (site.here / "total.txt").read_text().split()) == list(range(40))
    assert [(site.here / f"out/{n}.txt").read_text() for n in range(40)] == [f"{n}\n" for n in range(40)]
    assert all((site.here / f"out/{n}.empty").stat().st_size == 0 for n in range(40))
    assert (site.here / "big.bin").stat().st_size == 3_000_000
    assert (site.here / "folder/x").read_text() == "in\n"
    site.service.bough("fetch", "later", "--to", str(site.folder / "copy"), "--server", site.service.socket)
    assert len(list((site.folder / "copy").rglob("*.txt"))) == 41
    with bough.Session(site.service.socket, name="later", reuse="always") as s:
        again = s.sweep("echo {n} > {o:w}; : > {e:w}", space, o="out/{n}.txt", e="out/{n}.empty", keep="later")
        again.wait_all()
        assert all(task.reused for task in again)


@linked
def test_folders_are_gathered_too_and_readers_in_the_directory_need_not_wait(site: Site) -> None:
    site.start(1, *LONG)
    site.start(2)
    site.start_near()
    site.service.await_executors(3)
    text = "mkdir {o:w}; echo in > {o}/x; echo deep > {o}/y; echo 1 >> {count}"
    options = {"count": str(site.count), "keep": "later", "resources": {"h1": 1}}
    with bough.Session(site.service.socket, name="folders") as s:
        busy = s.command("sleep 600", resources={"h1": 1})
        folder, file = s.command(text, o="out/folder", **options), s.command(MAKE, o="made.txt", **options)
        read = s.command("cat {x:r}/x {x}/y", x=folder, resources={"h2": 1})
        near = s.command("cat {x:r}/x {y:r}; touch {seen}; until [ -e {gate} ]; do sleep 0.1; done; cat {x}/y",
            x=folder, y=file, seen=str(site.folder / "seen"), gate=str(site.folder / "gate"), resources={"h0": 1},
        )  # fmt: skip
        assert read.result(120).stdout == "in\ndeep\n"
        until((site.folder / "seen").exists, "the one in the directory")
        assert not folder.done()
        assert "its outputs are on their way" in folder.explain()
        busy.cancel()
        folder.result(120)
        file.result(120)
        (site.folder / "gate").touch()
        assert near.result(120).stdout == "in\nmade\ndeep\n"  # what it reads was not taken away from it
        assert (site.here / "out/folder/x").read_text() == "in\n"
    assert site.made() == 2
    with bough.Session(site.service.socket, name="folders", reuse="always") as s:
        again = s.command(text, o="out/folder", **options), s.command(MAKE, o="made.txt", **options)
        for task in again:
            task.result(120)
        assert all(task.reused for task in again)
    assert site.made() == 2


@linked
def test_many_folders_and_one_that_is_big_are_in_their_places_when_their_tasks_are_done(site: Site) -> None:
    site.start(1, "--cores", "2")
    site.service.await_executors(1)
    with bough.Session(site.service.socket, name="many") as s:
        made = s.sweep("mkdir {o:w}; echo {n} > {o}/x", bough.product(n=range(20)), o="out/{n}", keep="later")
        big = s.command("mkdir {o:w}; head -c 3000000 /dev/zero > {o}/x", o="big", keep="later")
        for task in as_completed([*made, big], timeout=120):
            assert all(os.path.isdir(str(path)) for path in task.outputs.values()), task
    assert [(site.here / f"out/{n}/x").read_text() for n in range(20)] == [f"{n}\n" for n in range(20)]
    assert (site.here / "big/x").stat().st_size == 3_000_000
    assert not [path for path in site.here.rglob("*") if path.name.startswith(".") and path.name != ".bough"]
    with bough.Session(site.service.socket, name="many", reuse="always") as s:
        again = s.sweep("mkdir {o:w}; echo {n} > {o}/x", bough.product(n=range(20)), o="out/{n}", keep="later")
        again.wait_all()
        assert all(task.reused for task in again)


@linked
def test_what_was_not_written_back_when_its_executor_was_killed_is_made_again(site: Site) -> None:
    site.start(1, *LONG)
    site.start(2)
    site.service.await_executors(2)
    with bough.Session(site.service.socket, name="killed") as s:
        busy = s.command("sleep 600", resources={"h1": 1})
        made = s.command(MAKE, o="made.txt", count=str(site.count), keep="later", resources={"h1": 1})
        read = s.command("cat {x:r}", x=made, resources={"h2": 1})
        assert read.result(120).stdout == "made\n"
        assert not made.done()
        assert not (site.here / "made.txt").exists()
        assert "its outputs are on their way" in made.explain()
        assert "outputs of 1 task are on their way" in site.service.bough("status", "--server", site.service.socket)
        os.kill(site.pid(1), signal.SIGKILL)
        busy.cancel()
        site.start(1)
        made.result(120)
        assert (site.here / "made.txt").read_text() == "made\n"
        assert "it was made again: its outputs were not written back yet" in made.explain()
    assert site.made() == 2
    assert read.attempts == 1


@linked
def test_a_server_that_was_killed_knows_what_is_still_to_be_written_back(site: Site) -> None:
    site.start(1, *LONG)
    site.start(2)
    site.service.await_executors(2)
    with bough.Session(site.service.socket, name="restarted") as s:
        busy = s.command("sleep 600", resources={"h1": 1})
        made = s.command(MAKE, o="made.txt", count=str(site.count), keep="later", resources={"h1": 1})
        s.command("cat {x:r}", x=made, resources={"h2": 1}).result(120)
        assert not made.done()
        port = json.loads((site.service.home / "server" / "server.json").read_text())["address"].rpartition(":")[2]
        server = json.loads((site.service.home / "server" / "server.json").read_text())["pid"]
        os.kill(server, signal.SIGKILL)
        site.service.start(port)
        until(lambda: made.explain().find("its outputs are on their way") >= 0, "the server", 60)
        until(lambda: len(site.executors()) == 2, "the executors", 60)
        assert not (site.here / "made.txt").exists()
        busy.cancel()
        made.result(120)
        assert (site.here / "made.txt").read_text() == "made\n"
    assert site.made() == 1


@linked
def test_an_executor_that_drains_writes_back_all_that_it_has_before_it_leaves(site: Site) -> None:
    site.start(1, *LONG)
    site.service.await_executors(1)
    with bough.Session(site.service.socket, name="drained") as s:
        busy = s.command("sleep 600", resources={"h1": 1})
        made = s.sweep("echo {n} > {o:w}", bough.product(n=range(9)), o="{n}.txt", keep="later", resources={"h1": 0.5})
        until(lambda: _are_done(site, 9), "their ends", 120)
        assert not list(site.here.glob("*.txt"))
        number = site.executors()[0]["executor"]
        site.service.bough("executor", "drain", str(number), "--server", site.service.socket)
        made.wait_all()
        assert len(list(site.here.glob("*.txt"))) == 9
        busy.cancel()
        until(lambda: not site.executors(), "its leave", 60)
        site.start(2)  # nobody has a copy in a cache: the files are read from their places
        assert s.command("cat {x:r}", x=made[3], resources={"h2": 1}).result(120).stdout == "3\n"
        assert made[3].attempts == 1
        assert "made again" not in made[3].explain()


def _are_done(site: Site, count: int) -> bool:
    return f"outputs of {count} tasks are on their way" in site.service.bough("status", "--server", site.service.socket)


@linked
def test_a_task_whose_outputs_cannot_be_written_fails_and_says_so(site: Site) -> None:
    site.start(1, *LONG)
    site.service.await_executors(1)
    with bough.Session(site.service.socket, name="blocked", on_failure="ignore") as s:
        busy = s.command("sleep 600", resources={"h1": 1})
        made = s.command("echo made > {o:w}", o="blocked/made.txt", keep="later", resources={"h1": 1})
        good = s.command("echo good > {o:w}", o="good.txt", keep="later", resources={"h1": 1})
        until(lambda: _are_done(site, 2), "their ends", 120)
        (site.here / "blocked").write_text("a file\n")
        busy.cancel()
        good.result(120)
        error = made.exception(120)
        assert isinstance(error, bough.TaskFailed)
        assert "blocked" in str(error)
    assert (site.here / "good.txt").read_text() == "good\n"


@linked
def test_what_is_fed_and_what_a_small_cache_cannot_hold_is_safe_too(site: Site) -> None:
    site.start(1, "--cores", "2", "--cache-size", "1MB")
    site.service.await_executors(1)
    with bough.Session(site.service.socket, name="fed") as s:
        rows = ({"n": n, "o": f"fed/{n}.txt"} for n in range(60))
        fed = s.options(keep="later").feed("echo {n} > {o:w}", rows, keep=False)
        assert len(list(fed)) == 60
        assert len(list((site.here / "fed").glob("*.txt"))) == 60
        big = s.sweep(  # more than may be held there
            "head -c 300000 /dev/zero > {o:w}; echo {n} >> {o:w}", bough.product(n=range(6)), o="big/{n}", keep="later"
        )
        big.wait_all()
        assert [os.path.getsize(site.here / f"big/{n}") for n in range(6)] == [300_002] * 6


@linked
def test_a_client_whose_server_does_not_see_its_directory_gets_them_from_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOUGH_HOME", "")
    hosts = LinkedHosts(tmp_path, 2)
    try:
        service = FarService(hosts, tmp_path)
        monkeypatch.chdir(service.here)
        service.executor(1, "--cores", "2")
        service.await_executors(1)
        for is_again in (False, True):
            with bough.Session(service.socket, name="far", reuse="always") as s:
                made = s.sweep("echo {n} > {o:w}", bough.product(n=range(9)), o="{n}.txt", keep="later")
                total = s.command("cat {x:r} > {o:w}", x=list(made), o="total.txt", keep="later")
                total.result(120)
                made.wait_all()
                assert all(task.reused is is_again for task in (*made, total))
            assert sorted((service.here / "total.txt").read_text().split()) == [str(n) for n in range(9)]
            assert all((service.here / f"{n}.txt").read_text() == f"{n}\n" for n in range(9))
    finally:
        hosts.close()
        opened_sessions.clear()


@linked
def test_an_executor_that_is_told_to_end_writes_back_what_it_holds_first(site: Site) -> None:
    site.start(1, *LONG)
    site.service.await_executors(1)
    with bough.Session(site.service.socket, name="ended") as s:
        busy = s.command("sleep 600", resources={"h1": 1})
        made = s.command(MAKE, o="made.txt", count=str(site.count), keep="later", resources={"h1": 1})
        until(lambda: "its outputs are on their way" in made.explain(), "its end", 120)
        os.kill(site.pid(1), signal.SIGTERM)
        made.result(120)
        busy.cancel()
        assert (site.here / "made.txt").read_text() == "made\n"
    assert site.made() == 1
