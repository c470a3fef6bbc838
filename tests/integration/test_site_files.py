"""Files in the storage of one site that are read at another: they travel as any content does. Hosts are real links.

Hosts are network namespaces, which takes root; without, these tests are skipped. Each host sees an empty folder in the
place of the client's, and that is the storage of its site: nobody else sees what a task writes there.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from linked_hosts import LinkedHosts, LinkedService, linked, until

import bough
from bough.api.session.session import opened_sessions
from bough.errors import BadValue, InvalidWorkload, TaskFailed

MB = 1 << 20

pytestmark = linked


class Sites:
    """A server, and hosts of sites."""

    def __init__(self, folder: Path) -> None:
        self.hosts = LinkedHosts(folder, 4)
        self.service = LinkedService(self.hosts, folder, "--heartbeat", "3s", "--reconnect", "6s")
        self.folder = folder
        self.storage = self.service.here / "storage"
        self._count = 0

    def host(self, number: int, site: str, *words: str) -> None:
        self.service.executor(number, "--site", site, "--resource", f"h{number}=9", *words)
        self._count += 1
        self.service.await_executors(self._count)

    def session(self, name: str) -> bough.Session:
        return bough.Session(self.service.socket, name=name)

    def name(self, site: str, file: str) -> str:
        return f"{site}:{self.storage}/{file}"

    def write(self, s: bough.Session, site: str, file: str, size: int = 4 * MB) -> str:
        """Have a task write a file of a site; its digest."""
        made = s.command(f"head -c {size} /dev/urandom > {{o:w}}; sha256sum < {{o:w}}", o=self.name(site, file))
        return made.result(60).stdout.split()[0]

    def sql(self, text: str) -> list[dict[str, int]]:
        return json.loads(self.service.bough("sql", text, "--json", "--server", self.service.socket))

    def moved(self, task: bough.Task) -> tuple[int, ...]:
        """Bytes that came for a task: from the cache, from peers, from the server."""
        text = f"select cached, from_peers, from_origin from staging where id = {task.record}"
        until(lambda: self.sql(text), "the row")
        (row,) = self.sql(text)
        return tuple(row.values())

    def pids(self) -> dict[str, int]:
        found = json.loads(self.service.bough("executor", "list", "--json", "--server", self.service.socket))
        return {name: int(one["pid"]) for one in found for name in one["named"]}


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    monkeypatch.setenv("BOUGH_HOME", "")
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    made = Sites(tmp_path)
    monkeypatch.chdir(made.service.here)
    try:
        yield made
    finally:
        made.hosts.close()
        opened_sessions.clear()


def test_a_task_names_files_of_several_sites_and_runs_at_one_of_these(sites: Sites) -> None:
    sites.host(1, "alpha")
    sites.host(2, "beta")
    sites.host(3, "gamma")
    with sites.session("both") as s:
        a, b = (sites.write(s, site, "f.bin") for site in ("alpha", "beta"))
        names = {"x": sites.name("alpha", "f.bin"), "y": sites.name("beta", "f.bin")}
        before = sites.hosts.sent(0)
        text = "uname -n; sha256sum {x:r} {y:r}; basename {x:r}"
        first = s.command(text, **names)
        host, one, x, other, y, name = first.result(120).stdout.split()
        assert (one, other, name) == (a, b, "f.bin")
        assert host.rpartition("-")[2] in "12"  # where one of them lies
        assert sorted(path == f"{sites.storage}/f.bin" for path in (x, y)) == [False, True]
        assert sites.moved(first) == (0, 4 * MB, 0)
        third = s.options(sites=["gamma"]).command(text, **names)
        assert third.result(120).stdout.split()[1::2][:2] == [a, b]
        assert sites.moved(third) == (0, 8 * MB, 0)
        again = s.options(sites=["gamma"]).sweep("echo {n}; sha256sum {x:r} {y:r}", bough.tie(n=[1, 2]), **names)
        assert [one.stdout.split()[1::2] for one in again.results()] == [[a, b], [a, b]]
        assert sites.hosts.sent(0) - before < MB  # the server sent none of it
        each = s.sweep("sha256sum {x:r}", bough.tie(x=list(names.values())))
        assert [one.stdout.split()[0] for one in each.results()] == [a, b]
    with sites.session("fed") as s:
        fed = s.feed("sha256sum {x:r}", [{"x": name} for name in names.values()])
        fed.wait_all(120)
        assert [task.result().stdout.split()[0] for task in fed] == [a, b]


def test_what_changes_at_a_site_is_seen_and_folders_and_small_files_travel_too(sites: Sites) -> None:
    sites.host(1, "alpha")
    sites.host(2, "beta", "--no-peers")
    with sites.session("changes") as s:
        there, here = s.options(sites=["alpha"]), s.options(sites=["beta"])
        for word in ("one", "two"):
            there.command(
                f"mkdir -p {sites.storage}/d/e; echo {word} | tee {sites.storage}/small > {sites.storage}/d/e/f"
            ).result(60)
            assert here.command("cat {x:r}", x=sites.name("alpha", "small")).result(60).stdout == f"{word}\n"
            folder = here.command("cat {d:r}/e/f; basename {d:r}", d=sites.name("alpha", "d"))
            assert folder.result(60).stdout == f"{word}\nd\n"
        digest = sites.write(s, "beta", "f.bin")  # who has it serves nobody: it goes through the server
        read = there.command("sha256sum < {x:r}", x=sites.name("beta", "f.bin"))
        assert read.result(60).stdout.split()[0] == digest
        assert sites.moved(read) == (0, 0, 4 * MB)


def test_another_host_of_its_site_is_asked_when_the_first_one_does_not_answer(sites: Sites) -> None:
    data = sites.folder / "common.bin"
    data.write_bytes(os.urandom(2 * MB))
    sites.host(1, "alpha")
    sites.host(2, "beta")
    sites.host(3, "alpha")
    os.kill(sites.pids()["h1"], signal.SIGSTOP)
    try:
        with sites.session("lost") as s:
            read = s.options(sites=["beta"]).command("wc -c < {x:r}", x=f"alpha:{data}")
            assert read.result(120).stdout.strip() == str(2 * MB)
    finally:
        os.kill(sites.pids().get("h1", sites.pids()["h3"]), signal.SIGCONT)


def test_an_executor_that_lives_and_does_not_say_what_is_there_is_not_waited_for(sites: Sites) -> None:
    paths = [sites.folder / f"{number}.bin" for number in range(3)]
    for path in paths:
        path.write_bytes(os.urandom(MB))
    sites.host(1, "alpha")
    sites.host(2, "beta")
    with sites.session("hangs") as s:
        reads = [s.options(sites=["beta"]).command("wc -c < {x:r}", x=f"alpha:{paths[0]}")]
        reads[0].result(60)
        stopped = children(sites.pids()["h1"])  # among them what looks at files, as if their storage hung
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            sites.host(3, "alpha")
            reads += [s.options(sites=["beta"]).command("wc -c < {x:r}", x=f"alpha:{path}") for path in paths[1:2]]
            reads[1].result(60)
            begun = time.monotonic()
            reads += [s.options(sites=["beta"]).command("wc -c < {x:r}", x=f"alpha:{path}") for path in paths[2:]]
            reads[2].result(60)
            assert time.monotonic() - begun < 15, "the one that was silent is asked last"
            assert "h1" in sites.pids(), "it has not left"
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
    assert [read.result().stdout.strip() for read in reads] == [str(MB)] * 3
    assert "warning site-file-unanswered: executor 1 on" in (sites.folder / "server.log").read_text()


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_what_cannot_be_had_of_a_site_is_said_in_a_line(sites: Sites) -> None:
    sites.host(2, "beta")
    with sites.session("wrong") as s:
        here = s.options(sites=["beta"])
        nobody = here.command("cat {x:r}", x="alpha:/data/x")
        with pytest.raises(TaskFailed, match="/data/x lies at alpha: no executor of alpha is here"):
            nobody.result(60)
        sites.host(1, "alpha", "--cache-size", "1MB")
        said = {
            "/nowhere": "/nowhere is not there at alpha",
            "/dev/zero": "/dev/zero at alpha is neither a file nor a folder",
            "/../../nowhere/x": "/nowhere/x is not there at alpha",
            "/" + "x" * 300: "is not there at alpha",
        }
        for path, why in said.items():
            with pytest.raises(TaskFailed, match=why):
                here.command("cat {x:r}", x=f"alpha:{path}").result(60)
        sites.write(s, "alpha", "big.bin")
        with pytest.raises(TaskFailed, match=r"it has 4.* and the cache of a host there 1.*\(--cache-size\)"):
            here.command("cat {x:r}", x=sites.name("alpha", "big.bin")).result(60)
        with pytest.raises(InvalidWorkload, match="a task writes to the storage of one site"):
            s.command("touch {x:w} {y:w}", x="alpha:/x", y="beta:/y")
        with pytest.raises(BadValue, match="it writes a file of alpha, where it may not run: beta"):
            here.command("touch {x:w}", x="alpha:/x")
        with pytest.raises(InvalidWorkload, match=r"feed: it writes files of alpha: give sites=\['alpha'\]"):
            s.feed("touch {x:w}", [{"x": "alpha:/x"}]).wait_all()
        with pytest.raises(BadValue, match="control characters"):
            s.command("cat {x:r}", x="alpha:/x\ny")
        assert here.command("echo ok").result(60).stdout == "ok\n"
