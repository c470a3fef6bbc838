"""The life of files that tasks make: held by the host that made them, made again when lost, removed when read.

Some of it is on hosts that are network namespaces with names of their own, which takes root; without, that is skipped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from linked_hosts import LinkedHosts, LinkedService, linked, until

import bough
from bough.api.session.session import opened_sessions

SIZE = 3_000_000
MAKE = f"head -c {SIZE} /dev/zero | tr '\\0' x > {{o:w}}; echo 1 >> {{count}}"


class Site:
    """A server, and executors on hosts that do not see the client's directory."""

    def __init__(self, folder: Path) -> None:
        self.hosts = LinkedHosts(folder, 4)
        self.service = LinkedService(self.hosts, folder, "--heartbeat", "2s", "--reconnect", "3s")
        self.folder, self.here = folder, self.service.here
        self.count = folder / "count"  # a line for each time that something was made
        self.count.touch()

    def start(self, *numbers: int, words: tuple[str, ...] = ()) -> None:
        for number in numbers:
            self.service.executor(number, "--resource", f"h{number}=9", *words)
        self.service.await_executors(len(numbers))

    def start_in_place(self, number: int, count: int) -> None:
        """An executor that sees the client's directory; it is the last of so many."""
        words = ["--server", str(self.service.access), "--cores", "1", "--work", str(self.folder / f"host-{number}")]
        words = [*self.service.python, "executor", "start", *words, "--resource", f"h{number}=9"]
        self.hosts.spawn(number, words, f"executor-{number}.log")
        self.service.await_executors(count)

    def copies(self, number: int) -> list[Path]:
        found = (self.folder / f"host-{number}").glob("bough-contents-*/*")
        return [path for path in found if len(path.name) == 64]

    def stored(self) -> list[Path]:
        found = (self.service.home / "server").glob("store/**/files/??/*")
        return [path for path in found if len(path.name) == 64]

    def pid(self, number: int) -> int:
        found = json.loads(self.service.bough("executor", "list", "--json", "--server", self.service.socket))
        return next(int(one["pid"]) for one in found if f"h{number}" in one["named"])

    def kill(self, number: int) -> None:
        os.kill(self.pid(number), signal.SIGKILL)

    def lose_copies(self, number: int) -> None:
        subprocess.run(["sh", "-c", f"rm -rf '{self.folder}'/host-{number}/bough-contents-*"], check=True)

    def made(self) -> int:
        return len(self.count.read_text().splitlines())


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
def test_a_temporary_output_stays_at_its_maker_is_read_by_peers_and_goes_with_its_last_reader(site: Site) -> None:
    site.start(1, 2)
    with bough.Session(site.service.socket, name="held") as s:
        made = s.command(MAKE, o="made.bin", count=str(site.count), keep=False, resources={"h1": 1})
        small = s.command("echo few > {o:w}", o="few.txt", keep=False, resources={"h1": 1})
        made.result(120)
        small.result(120)
        assert not site.stored(), "the server has none of it"
        assert len(site.copies(1)) == 2
        read = s.command("wc -c < {x:r}; cat {y:r}", x=made, y=small, resources={"h2": 1})
        assert read.result(120).stdout.split() == [str(SIZE), "few"]
        until(lambda: not site.copies(1) and not site.copies(2) and not site.stored(), "the end of all copies", 60)
    assert site.made() == 1
    assert not list(site.here.glob("*.bin"))


@linked
def test_a_host_that_goes_while_the_server_takes_something_from_it_holds_up_nobody(site: Site) -> None:
    site.start(1, 2)
    with bough.Session(site.service.socket, name="frozen") as s:
        made = s.command(MAKE, o="made.bin", count=str(site.count), keep=False, resources={"h1": 1})
        made.result(120)
        site.lose_copies(1)
        frozen = site.pid(1)
        os.kill(frozen, signal.SIGSTOP)  # it answers nothing; the server finds that out by its heartbeat
        try:
            last = s.command("wc -c < {x:r}", x=made, resources={"h2": 1})
            site.service.executor(1, "--resource", "h1=9")
            assert last.result(100).stdout.split() == [str(SIZE)]
        finally:
            os.kill(frozen, signal.SIGKILL)
    assert site.made() == 2


@linked
def test_a_reader_in_the_directory_gets_what_another_host_holds_until_the_last_reader_is_done(site: Site) -> None:
    site.start(1)
    site.start_in_place(2, 2)
    gate, begun = site.folder / "gate", site.folder / "begun"
    with bough.Session(site.service.socket, name="mixed") as s:
        made = s.command(MAKE, o="sub/made.bin", count=str(site.count), keep=False, resources={"h1": 1})
        folder = s.command("mkdir {o:w}; echo few > {o}/few.txt", o="few", keep=False, resources={"h1": 1})
        for one in (made, folder):
            one.result(120)
        assert not list(site.here.glob("[a-z]*"))
        text = "wc -c < {x:r}; cat {y:r}/few.txt; touch {begun:raw}; until [ -e {gate:raw} ]; do sleep 0.05; done; pwd"
        read = s.command(text, x=made, y=folder, begun=str(begun), gate=str(gate), resources={"h2": 1})
        until(begun.exists, "the reader")
        assert (site.here / "sub" / "made.bin").stat().st_size == SIZE
        gate.touch()
        assert read.result(120).stdout.split() == [str(SIZE), "few", str(site.here)]
        until(lambda: not (site.here / "sub" / "made.bin").exists(), "the end of the copy in the directory", 60)
        until(lambda: not site.copies(1), "the end of all copies", 60)
        assert not site.stored()
    assert site.made() == 1


@linked
def test_what_is_lost_is_made_again_for_a_reader_in_the_directory(site: Site) -> None:
    site.start(1)
    site.start_in_place(2, 2)
    with bough.Session(site.service.socket, name="remade") as s:
        made = s.command(MAKE, o="made.bin", count=str(site.count), keep=False, resources={"h1": 1})
        made.result(120)
        site.lose_copies(1)
        read = s.command("wc -c < {x:r}", x=made, resources={"h2": 1})
        assert read.result(120).stdout.split() == [str(SIZE)]
    assert site.made() == 2


@linked
def test_what_was_lost_with_its_host_is_made_again_with_all_that_it_was_made_of(site: Site) -> None:
    site.start(1, 2)
    with bough.Session(site.service.socket, name="lost") as s:
        first = s.command(MAKE, o="first.bin", count=str(site.count), keep=False, resources={"h1": 1})
        text = "cat {x:r} {x:r} > {o:w}; echo 2 >> {count}"
        # two readers, so that the first file is not dropped when the second one is made
        second = s.command(text, x=first, o="second.bin", count=str(site.count), keep=False, resources={"h1": 1})
        other = s.command("echo done > {o:w}", o="other.txt", resources={"h2": 1})
        second.result(120)
        other.result(120)
        site.kill(1)
        site.lose_copies(1)
        last = s.command("wc -c < {x:r}", x=second, resources={"h2": 1})
        site.service.executor(1, "--resource", "h1=9")
        assert last.result(180).stdout.split() == [str(2 * SIZE)]
        assert site.made() == 4
        assert other.attempts == 1
        (said,) = [line for line in second.explain().splitlines() if "made again" in line]
        assert "second.bin was lost with host" in said
    assert (site.here / "other.txt").read_text() == "done\n"


@linked
def test_a_cache_that_was_removed_is_noticed_when_something_is_wanted(site: Site) -> None:
    site.start(1, 2)
    with bough.Session(site.service.socket, name="removed") as s:
        made = s.command(MAKE, o="made.bin", count=str(site.count), keep=False, resources={"h1": 1})
        made.result(120)
        subprocess.run(["sh", "-c", f"rm -rf '{site.folder}'/host-1/bough-contents-*"], check=True)
        read = s.command("wc -c < {x:r}", x=made, resources={"h2": 1})
        assert read.result(180).stdout.split() == [str(SIZE)]
    assert site.made() == 2


@linked
def test_what_was_made_again_and_is_the_same_lets_its_readers_be_reused(site: Site) -> None:
    site.start(1, 2)
    for run in (1, 2):
        with bough.Session(site.service.socket, name="same", reuse="always") as s:
            made = s.command(MAKE, o="made.bin", count=str(site.count), keep=False, resources={"h1": 1})
            gate = s.command("true")  # so that the file has a reader that is still to come
            text = "wc -c < {x:r}; echo 2 >> {count}"
            early = s.command(text, x=made, count=str(site.count), resources={"h1": 1})
            early.result(120)
            if run == 1:
                site.lose_copies(1)
            late = s.command(text, x=made, count=str(site.count), after=[gate], resources={"h2": 1})
            assert late.result(180).stdout.split() == [str(SIZE)]
            assert site.made() == 4
            assert [task.reused for task in (made, early, late)] == [run == 2] * 3


def test_in_the_users_own_directory_it_is_deleted_and_made_again_by_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with bough.Session(cores=2) as s:
        first = s.command("echo one > {o:w}; echo 1 >> made", o="first.txt", keep=False)
        parts = s.sweep(
            "cat {x:r} {x:r} > {o:w}; echo {n} >> made", bough.product(n=range(5)), x=first, o="{n}.part", keep=False
        )
        total = s.command("cat {x:r} > {o:w}", x=list(parts), o="total.txt")
        total.result(60)
        until(lambda: not list(tmp_path.glob("*.part")) and not (tmp_path / "first.txt").exists(), "their end", 60)
        late = s.command("cat {x:r}", x=parts[3])
        assert late.result(60).stdout.split() == ["one", "one"]
        until(lambda: not list(tmp_path.glob("*.part")), "the end of what was made again", 60)
    assert (tmp_path / "total.txt").read_text().split() == ["one"] * 10
    assert sorted((tmp_path / "made").read_text().split()) == ["0", "1", "1", "1", "2", "3", "3", "4"]


def test_what_is_kept_or_was_changed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with bough.Session(cores=1) as s:
        kept = s.command("echo one > {o:w}", o="kept.txt", keep=True)
        changed = s.command("echo one > {o:w}", o="changed.txt", keep=False)
        changed.result(60)
        (tmp_path / "changed.txt").write_text("another's\n")
        other = s.command("echo one > {o:w}", o="other.txt", keep=False)
        s.command("cat {x:r}", x=[kept, changed, other]).result(60)
        until(lambda: not (tmp_path / "other.txt").exists(), "the end of the temporary one", 60)
    assert (tmp_path / "kept.txt").exists()
    assert (tmp_path / "changed.txt").read_text() == "another's\n"


def test_a_run_that_is_resumed_makes_a_temporary_file_again_only_if_somebody_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for until_there in (False, True):
        with bough.Session(name="resumed", cores=1, on_failure="ignore") as s:
            first = s.command("echo one > {o:w}; echo 1 >> made", o="first.txt", keep=False)
            second = s.command("cat {x:r} > {o:w}; echo 2 >> made", x=first, o="second.txt")
            second.result(60)
            third = s.command("cat {x:r}; test -e there", x=second)
            assert (third.exception(60) is None) is until_there
        (tmp_path / "there").touch()
    assert (tmp_path / "made").read_text().split() == ["1", "2"]


# --- disks that are too small --------------------------------------------------------------------------

MB = 1 << 20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 20 MB."""
    yield from small_disk(tmp_path / "small", 20)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MB."""
    yield from small_disk(tmp_path / "tiny", 8)


def small_disk(place: Path, size: int) -> Iterator[Path]:
    """A disk of so many MB."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}m", "none", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk is a mounted tmpfs, which takes root")
    try:
        yield place
    finally:
        os.chdir("/")
        subprocess.run(["umount", "-l", str(place)], check=False)


def test_a_workflow_five_times_as_big_as_the_disk_of_its_directory_runs(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small)
    with bough.Session(cores=1) as s:
        last = s.command(f"head -c {4 * MB} /dev/zero > {{o:w}}", o="0.bin", keep=False)
        for number in range(1, 25):
            last = s.command("cat {x:r} > {o:w}", x=last, o=f"{number}.bin", keep=number == 24)
        last.result(120)
    assert [path.name for path in small.glob("*.bin")] == ["24.bin"]
    assert (small / "24.bin").stat().st_size == 4 * MB


def test_temporary_files_wait_for_each_other_on_a_full_disk_of_the_directory(tiny: Path, tmp_path: Path) -> None:
    """Many may be written at once, and a reader is behind each: what finds the disk full is tried again."""
    with bough.Session(cores=3, store=tmp_path / "store", on_failure="ignore") as s:
        text = f"head -c {3 * MB} /dev/zero > {{o:w}}"
        made = [s.command(f"{text}; sleep 0.1", o=tiny / f"{number}.bin", keep=False) for number in range(8)]
        read = [s.command("wc -c < {x:r}", x=one) for one in made]
        assert [one.result(120).stdout.split() for one in read] == [[str(3 * MB)]] * 8
        assert not list(tiny.iterdir())
        kept = s.command(f"head -c {9 * MB} /dev/zero > {{o:w}}", o=tiny / "kept.bin")
        assert "was full" in str(kept.exception(60))  # nothing of ours will make space for it
        assert kept.attempts == 1


@linked
def test_a_workflow_five_times_as_big_as_the_disk_of_its_host_runs(site: Site, small: Path) -> None:
    site.service.executor(1, "--work", str(small), "--cache-size", "14MB")
    site.service.await_executors(1)
    with bough.Session(site.service.socket, name="bounded") as s:
        first = s.sweep(f"head -c {4 * MB} /dev/urandom > {{o:w}}", bough.product(n=range(13)), o="a{n}", keep=False)
        then = s.sweep("cat {x:r} > {o:w}", bough.tie(n=range(13), x=list(first)), o="b{n}", keep=False)
        last = s.sweep("wc -c < {x:r}", bough.tie(x=list(then)))
        assert [task.result(240).stdout.split() for task in last] == [[str(4 * MB)]] * 13
        until(lambda: not site.stored(), "the end of what the server had to keep", 60)


@linked
def test_a_full_disk_of_an_executor_is_waited_for_and_costs_no_retry(site: Site, small: Path) -> None:
    ballast = small / "ballast"
    site.service.executor(1, "--work", str(small), "--cache-size", "8MB")
    site.service.await_executors(1)
    ballast.write_bytes(b"x" * 19 * MB)
    (site.here / "in.bin").write_bytes(os.urandom(6 * MB))
    with bough.Session(site.service.socket, name="full") as s:
        staged = s.command("wc -c < {x:r}", x="in.bin")
        made = s.command(f"head -c {6 * MB} /dev/zero > {{o:w}}", o="out.bin")
        until(lambda: staged.attempts >= 2 or made.attempts >= 2, "a try that was in vain", 120)
        assert not staged.done()
        assert not made.done()
        ballast.unlink()
        assert staged.result(180).stdout.split() == [str(6 * MB)]
        made.result(180)
    assert (site.here / "out.bin").stat().st_size == 6 * MB


@linked
def test_a_task_too_big_for_the_disk_leaves_no_half_sandbox_and_others_run(site: Site, small: Path) -> None:
    ballast = small / "ballast"
    site.service.executor(1, "--work", str(small), "--cache-size", "8MB")
    site.service.await_executors(1)
    ballast.write_bytes(b"x" * 10 * MB)
    (site.here / "in.bin").write_bytes(os.urandom(6 * MB))  # there is space for it, and none for its copy
    with bough.Session(site.service.socket, name="half") as s:
        big = s.command("wc -c < {x:r}", x="in.bin")
        other = s.command("echo few")
        assert other.result(120).stdout.split() == ["few"]
        until(lambda: big.attempts >= 2, "a second try", 120)
        until(lambda: not list(small.glob("bough-executor-*/sandboxes/*/*")), "the end of what was begun", 60)
        assert not big.done()
        ballast.unlink()
        assert big.result(180).stdout.split() == [str(6 * MB)]


@linked
def test_a_task_whose_inputs_no_disk_could_ever_hold_fails_and_says_so(site: Site, small: Path) -> None:
    for number, size in ((1, "8MB"), (2, "9MB")):
        site.service.executor(number, "--cache-dir", str(small / str(number)), "--cache-size", size)
    site.service.await_executors(2)
    for name in ("a", "b"):
        (site.here / f"{name}.bin").write_bytes(os.urandom(14 * MB))  # each of them fits
    with bough.Session(site.service.socket, name="never") as s:
        big = s.command("cat {x:r} {y:r} | wc -c", x="a.bin", y="b.bin")
        error = big.exception(timeout=120)
        assert "its inputs have 29.4 MB or more, and the whole disk of" in str(error)
        assert s.command("wc -c < {x:r}", x="a.bin").result(120).stdout.split() == [str(14 * MB)]


# what is read, its copy, and what is written: 9 MB together, each of which fits by itself
TWICE = "cp {x:r} copy.bin && cat copy.bin > {o:w}"


@linked
def test_a_task_that_needs_more_disk_than_its_only_host_has_fails_and_says_what_to_do(site: Site, tiny: Path) -> None:
    site.service.executor(1, "--work", str(tiny))
    site.service.await_executors(1)
    (site.here / "in.bin").write_bytes(os.urandom(3 * MB))
    with bough.Session(site.service.socket, name="tiny") as s:
        big = s.command(TWICE, x="in.bin", o="out.bin", retries=3)
        until(lambda: big.attempts >= 2 or big.done(), "a first try", 120)
        assert big.done() or "want of space" in big.explain()
        error = str(big.exception(timeout=120))
        assert "its inputs have 3.1 MB, and with what it writes it needs more than the" in error
        assert f"({8 * MB / 1e6:.1f} MB): run it where --work lies on a bigger disk" in error
        assert big.attempts == 2
        last = s.command("wc -c < {x:r}", x="in.bin")
        assert last.result(120).stdout.split() == [str(3 * MB)]


@linked
def test_a_task_too_big_for_one_host_waits_for_the_one_that_has_more_disk(site: Site, tiny: Path) -> None:
    site.service.executor(1, "--work", str(tiny), "--resource", "h1=9")
    site.start(2)
    site.service.await_executors(2)
    (site.here / "in.bin").write_bytes(os.urandom(3 * MB))
    gate, begun = site.folder / "gate", site.folder / "begun"
    with bough.Session(site.service.socket, name="other") as s:
        text = "touch {begun:raw}; until [ -e {gate:raw} ]; do sleep 0.05; done"
        keeps = s.command(text, begun=str(begun), gate=str(gate), resources={"h2": 1})
        until(begun.exists, "what keeps the other host busy")
        many = s.sweep(TWICE, bough.product(n=range(3)), x="in.bin", o="out{n}.bin")
        until(lambda: all("it needs more than the" in task.explain() for task in many), "the end of their tries", 120)
        assert not any(task.done() for task in many)
        assert "the executor is busy" in many[0].explain()
        gate.touch()
        assert [task.result(120).exit_code for task in many] == [0, 0, 0]
        keeps.result(60)
        # two in vain each, or three: what is on its way for the next one takes space, too
        assert sum(task.attempts for task in many) <= 12
    assert (site.here / "out2.bin").stat().st_size == 3 * MB
