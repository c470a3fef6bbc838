"""Declared files where nothing is shared: real servers and executors that do not see the client's directory.

A process is kept from seeing it by an empty file system over that directory in a mount namespace of its own, as on
another machine. That takes root; without, these tests are skipped.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import cloudpickle
import pytest
from service_client import Service, is_alive, until

import bough
from bough.api.session.session import opened_sessions
from bough.driver import Driver
from bough.errors import InvalidWorkload, TaskFailed
from bough.model.events.news import WorkFailed, WorkSucceeded
from bough.model.ids import RecordId, SpanId
from bough.model.outcomes import Cause, Detail, Failure, Output
from bough.model.sites.resources import Needs
from bough.monitors import FileCreated, Regex
from bough.wire.client_messages import VERSION
from bough.wire.executor_messages import ExecutorHello, ExecutorWelcome, Report, RunSpan, SpansHeld
from bough.wire.file_messages import (
    DIGEST,
    FileLocated,
    FilePiece,
    FilesKept,
    GetPiece,
    HeldOutputs,
    MadeFile,
    OfferFiles,
    UrlState,
    WantFile,
    WriteBack,
    WrittenBack,
)
from bough.wire.framing import frame, to_executor_frames

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module


def _can_hide() -> bool:
    words = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(
    not _can_hide(),
    reason="directories are hidden in mount namespaces, which needs root: run the tests as root to include it",
)


class FarService(Service):
    """Its processes see the folders in `hidden` as empty."""

    hidden: tuple[Path, ...] = ()

    def _spawn(self, words: list[str], log: Path, python: str = sys.executable) -> subprocess.Popen[bytes]:
        mounts = "".join(f"mount -t tmpfs none '{folder}' && " for folder in self.hidden)
        with open(log, "ab") as file:
            return subprocess.Popen(
                [
                    "unshare",
                    "-m",
                    "sh",
                    "-c",
                    mounts + 'exec "$0" "$@"',
                    python,
                    "-m",
                    "bough.cli.main",
                    *words,
                ],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def far_executor(self, name: str, *words: str, **more: object) -> subprocess.Popen[bytes]:
        """An executor that sees neither the client's files nor the server's store."""
        folders = (self.folder / "work", self.home / "server" / "store", self.folder / "else where")
        before, self.hidden = self.hidden, tuple(folder for folder in folders if folder.exists())
        try:
            return self.executor("--work", str(self.folder / name), *words, **more)
        finally:
            self.hidden = before


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    yield folder
    opened_sessions.clear()


@pytest.fixture(params=["server sees", "server blind"])
def service(
    request: pytest.FixtureRequest, tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FarService]:
    made = FarService(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(made.home))
    if request.param == "server blind":
        made.hidden = (here,)
    made.start()
    yield made
    made.clean_up()


def open_session(service: Service, name: str) -> bough.Session:
    session = bough.Session(f"unix:{service.address}", name=name)
    assert session.is_remote
    return session


def left_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if ".bough" not in path.parts)


def test_a_chain_over_two_executors_that_share_nothing_gives_its_files(service: FarService, here: Path) -> None:
    service.far_executor("one")
    service.far_executor("two")
    (here / "in.txt").write_text("b\na\nb\nc\na\n")
    with open_session(service, "chain") as s:
        a = s.command("sort {src:r} > {dst:w}", src="in.txt", dst="mid/sorted.txt")
        b = s.command("uniq {src:r} > {dst:w}", src=a, dst="mid/unique.txt")
        c = s.command("wc -l < {src:r} > {dst:w}; echo counted", src=b, dst="count.txt")
        done = c.result(60)
        assert (here / "count.txt").read_text().strip() == "3"
        assert done.stdout == "counted\n"
    assert (here / "mid/sorted.txt").read_text() == "a\na\nb\nb\nc\n"
    assert (here / "mid/unique.txt").read_text() == "a\nb\nc\n"
    assert left_in(here) == ["count.txt", "in.txt", "mid", "mid/sorted.txt", "mid/unique.txt"]
    assert not list((service.folder / "one").rglob("sandboxes/*/*"))


def test_who_waits_hears_of_a_task_whose_files_came_after_the_news(service: FarService, here: Path) -> None:
    service.far_executor("one")
    with open_session(service, "waits") as s:
        for number in range(5):
            s.command("true").result(60)  # whoever waits next reads what the server says, and the files come after it
            made = s.command("echo hi > {o:w}", o=f"{number}.txt")
            before = time.monotonic()
            made.result(20)
            assert time.monotonic() - before < 15  # and not when its time was over


def test_arrays_bring_and_leave_files_of_each_element(service: FarService, here: Path) -> None:
    service.far_executor("one", cores=2)
    for number in range(6):
        (here / f"q{number}.txt").write_text(f"{number}\n")
    with open_session(service, "sweep") as s:
        copies = s.sweep(
            "cat {q:r} {q:r} > {o:w}", bough.tie(q=[f"q{n}.txt" for n in range(6)]), o="out/{q.stem}.twice"
        )
        total = s.command("cat {files:r} > {all:w}", files=copies, all="all.txt")
        total.result(60)
        assert (here / "all.txt").read_text() == "".join(f"{n}\n{n}\n" for n in range(6))
    assert (here / "out/q3.twice").read_text() == "3\n3\n"


def test_declared_files_of_the_drivers_jobs_travel(service: FarService, here: Path, tmp_path: Path) -> None:
    service.far_executor("one", cores=2)
    outside = tmp_path / "else where"
    outside.mkdir()
    (outside / "table").write_text("t\n")
    (here / "tool").write_text("#!/bin/sh\ncat $1 settings\n")
    (here / "tool").chmod(0o755)
    (here / "settings").write_text("s\n")
    with open_session(service, "jobs") as s, Driver(s) as made:
        made.set_group("g", 3, timeout=600)
        for number in range(6):
            (here / f"q{number}").write_text(f"{number}\n")
            command = f"./tool q{number} > out/{number}"
            made.exec_async(command, group="g", inputs=["tool", "settings", f"q{number}"], outputs=f"out/{number}")
        made.exec_async(["cat", str(outside / "table"), "out/4"], inputs=[outside / "table", "out/4"])
        assert made.wait_all(timeout=60) == [0] * 7
        assert made.result(7).stdout == "t\n4\ns\n"
        assert made.submissions == 3
    assert (here / "out/5").read_text() == "5\ns\n"


def test_files_from_outside_of_the_directory_are_named_in_the_sandbox(
    service: FarService, here: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    service.far_executor("one")
    (elsewhere / "it's.txt").write_text("far\n")
    (here / "sub").mkdir()
    (here / "sub/near.txt").write_text("near\n")
    with open_session(service, "outside") as s:
        a = s.command("cat {x:r} > {o:w}; pwd; cat {x:r}", x=elsewhere / "it's.txt", o=elsewhere / "copy.txt")
        b = s.command(["cat", "{x:r}", "{y:r}"], x="../else where/it's.txt", y=here / "sub/near.txt")
        c = s.command("cat - {x:r}", x="../sub/near.txt", cwd="sub", stdin=Path("near.txt"))
        assert a.result(60).stdout.endswith("far\n")
        assert str(here) not in a.result().stdout
        assert b.result(60).stdout == "far\nnear\n"
        assert c.result(60).stdout == "near\nnear\n"
    assert (elsewhere / "copy.txt").read_text() == "far\n"


def test_a_big_file_arrives_whole(service: FarService, here: Path) -> None:
    service.far_executor("one")
    service.far_executor("two")
    block = os.urandom(1 << 20)
    with open(here / "big.bin", "wb") as file:
        file.writelines(block[number:] + block[:number] for number in range(100))
    with open_session(service, "big") as s:
        first = s.command("cat {x:r} > {o:w}", x="big.bin", o="copy.bin")
        second = s.command("cat {x:r} > {o:w}", x=first, o="copy2.bin")
        second.result(120)
        assert digest(here / "copy.bin") == digest(here / "big.bin") == digest(here / "copy2.bin")


def digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def test_an_output_that_is_missing_is_named_and_a_failed_attempt_leaves_nothing(
    service: FarService, here: Path
) -> None:
    service.far_executor("one")
    with open_session(service, "missing") as s:
        missing = s.command("echo x > {o:w}; true {p:w}", o="there.txt", p="sub/missing.txt")
        failed = s.command("echo x > {o:w}; exit 3", o="failed.txt", retries=1)
        with pytest.raises(TaskFailed, match=r"did not write its output p \(.*work/sub/missing.txt\)"):
            missing.result(60)
        with pytest.raises(TaskFailed, match="exit code 3"):
            failed.result(60)
    assert left_in(here) == []
    assert not list((service.folder / "one").rglob("sandboxes/*/*"))


def test_one_file_that_two_tasks_read_is_sent_once(service: FarService, here: Path) -> None:
    service.far_executor("one", cores=2)
    (here / "a.txt").write_text("same\n")
    (here / "b.txt").write_text("same\n")
    with open_session(service, "once") as s:
        tasks = [s.command("cat {x:r}; echo {n}", x=name, n=n) for n, name in enumerate(["a.txt", "a.txt", "b.txt"])]
        assert [task.result(60).stdout for task in tasks] == ["same\n0\n", "same\n1\n", "same\n2\n"]
        assert s.host.transfer.sent == (1 if s.host.transfer.is_far else 0)
    contents = list((service.home / "server/store/files").glob("??/*"))
    assert len(contents) == 1
    assert len(list((service.folder / "one").glob(f"bough-contents-*/{'[0-9a-f]' * 64}"))) == 1


def test_what_small_tasks_wrote_is_there_when_their_executor_has_left(service: FarService, here: Path) -> None:
    executor = service.far_executor("one")
    with open_session(service, "wrote") as s:
        good = s.command("echo out; echo err >&2")
        bad = s.command("echo before; exit 4")
        good.result(60)
        assert bad.exception(60) is not None
        executor.terminate()
        executor.wait(30)
        assert (good.stdout, good.stderr, bad.stdout) == ("out\n", "err\n", "before\n")
        assert good.result().stdout == "out\n"


def test_of_two_attempts_that_share_nothing_the_first_one_s_file_arrives(
    service: FarService, here: Path, tmp_path: Path
) -> None:
    service.kill()
    service.start("--replication", "wqr:age=0.2s")
    service.far_executor("a")
    (here / "in.txt").write_text("brought\n")
    seen = tmp_path / "seen"  # which both executors see
    text = (
        "if mkdir {seen:raw} 2>/dev/null; then echo $$ > {seen:raw}/pid; cat {i:r} > {o:w}; exec sleep 600; fi;"
        " (cat {i:r}; echo again) > {o:w}"
    )
    with bough.Session(f"unix:{service.address}", name="far", progress=False) as session:
        task = session.command(text, seen=str(seen), i="in.txt", o="out.txt")
        until(lambda: task.state == "running", "the first attempt to run")
        service.far_executor("b")
        assert task.result(timeout=120).exit_code == 0
        assert (here / "out.txt").read_text() == "brought\nagain\n"
        until(lambda: not is_alive(int((seen / "pid").read_text())), "the other attempt to be ended")
    until(lambda: not list((tmp_path / "a").glob("**/out.txt*")), "its sandbox to be removed")


def test_what_a_command_wrote_at_length_outlives_its_executor(service: FarService, here: Path) -> None:
    executor = service.far_executor("one")
    with open_session(service, "long") as s:
        task = s.command("seq 200000; seq 5 >&2; seq 30000 >&2")
        failed = s.command("seq 100000; exit 2")
        assert task.result(60) is not None
        assert failed.exception(60) is not None
        executor.terminate()
        executor.wait(30)
        assert not list((service.folder / "one").rglob("*long*"))
        shutil.rmtree(service.folder / "one")
        whole = "".join(f"{number}\n" for number in range(1, 200_001))
        assert task.stdout == whole
        assert task.stderr.startswith("1\n2\n3\n4\n5\n1\n")
        assert task.result().stdout == whole
        assert failed.stdout.endswith("\n100000\n")


def prints_much(number: int, fails: bool = False) -> int:
    for line in range(20_000):
        print(f"{number}-{line}")
    print("e" * 70_000, file=sys.stderr)
    if fails:
        raise ValueError("enough")
    return number


@pytest.mark.parametrize("keep", [True, "later"])
def test_a_program_that_was_made_can_be_run(service: FarService, here: Path, keep: bool | str) -> None:
    service.far_executor("one")
    (here / "kept").write_text("#!/bin/sh\n")
    with open_session(service, "programs") as s:
        text = "echo '#!/bin/sh' | tee {a:w} {b:w} > {c:w}; chmod 755 {a:w} {c:w}"
        s.command(text, a="tool", b="text", c="kept", clash="overwrite", keep=keep).result(60)
        far = s.host.transfer.is_far
    assert {name: os.access(here / name, os.X_OK) for name in ("tool", "text", "kept")} == {
        "tool": True,
        "text": False,
        "kept": True,
    }
    if far:
        (here / "tool").unlink()
        service.bough("fetch")
        assert os.access(here / "tool", os.X_OK)


def test_files_of_an_earlier_run_stay_where_they_are(service: FarService, here: Path) -> None:
    """What a found task had made is not brought: newer files may lie in its places."""
    service.far_executor("one")
    with open_session(service, "again") as s:
        s.command("echo old > {o:w}", o="a.txt").result(60)
    (here / "a.txt").write_text("mine\n")
    with open_session(service, "again") as s:
        [task] = s.find("1")
        assert task.result(60).outputs == {"o": str(here / "a.txt")}
    assert (here / "a.txt").read_text() == "mine\n"


def test_what_a_function_printed_at_length_outlives_its_executor(service: FarService, here: Path) -> None:
    executor = service.far_executor("one")
    with open_session(service, "long") as s:
        loose = [s.submit(prints_much, number) for number in range(3)]
        several = s.map(prints_much, range(3, 6))
        limited = s.options(timeout=100).submit(prints_much, 6)
        failed = s.submit(prints_much, 7, fails=True)
        assert [task.result(60) for task in loose] == [0, 1, 2]
        assert several.results(timeout=60) == [3, 4, 5]
        assert limited.result(60) == 6
        assert "enough" in str(failed.exception(60))
        executor.terminate()
        executor.wait(30)
        assert not list((service.folder / "one").rglob("*long*"))
        shutil.rmtree(service.folder / "one")
        for number, task in enumerate([*loose, *several.tasks(), limited, failed]):
            assert task.stdout == "".join(f"{number}-{line}\n" for line in range(20_000))
            assert task.stderr == "e" * 70_000 + "\n"


def test_a_command_that_is_submitted_by_hand_declares_files(service: FarService, here: Path) -> None:
    service.far_executor("one")
    (here / "data").mkdir()
    (here / "data/a.csv").write_text("a\n")
    words = ["--input", "data/*.csv", "--output", "made", "--wait", "--", "mkdir made; cp data/a.csv made/"]
    service.bough("submit", *words)
    assert (here / "made/a.csv").read_text() == "a\n"  # who waits has them
    assert service.bough("fetch").stdout == "0 files fetched, 1 file there already\n"
    each = ["--input", "data/a.csv", "--output", "{}.csv", "--array", "1-3", "--into", "many", "--wait"]
    failed = service.bough("submit", *each, "--", "cp data/a.csv {}.csv; [ {} != 2 ]", check=False)
    assert failed.returncode == 1
    assert sorted(path.name for path in here.glob("*.csv")) == ["1.csv", "3.csv"]


def test_what_one_submission_makes_the_next_one_reads(service: FarService, here: Path) -> None:
    """Each `bough submit` is a session of its own; the second one waits for the task of the first."""
    service.far_executor("one")
    service.bough("submit", "--into", "w", "--output", "x.txt", "--", "sleep 1; echo x > x.txt")
    service.bough("submit", "--into", "w", "--output", "made", "--", "sleep 1; mkdir made; echo y > made/y.txt")
    words = ["--input", "x.txt", "--input", "made", "--output", "all.txt"]
    service.bough("submit", "--into", "w", "--wait", *words, "--", "cat x.txt made/y.txt > all.txt")
    assert (here / "all.txt").read_text() == "x\ny\n"
    missing = service.bough("submit", "--into", "w", "--input", "z.txt", "--", "cat z.txt", check=False)
    assert "no task submitted before makes it" in missing.stderr
    with open_session(service, "w") as s:
        [task] = s.find("1")
        assert s.command("cat {x:r}", x=task).result(60).stdout == "x\n"


def test_files_of_a_feed_travel(service: FarService, here: Path) -> None:
    service.far_executor("one", cores=2)
    (here / "table").write_text("t\n")
    (here / "more").mkdir()
    (here / "more/x").write_text("x\n")
    for number in range(20):
        (here / f"q{number}").write_text(f"{number}\n")
    with open_session(service, "feed") as s:
        fed = s.feed(
            "cat {q:r} table more/x > {o:w}; cp {q:r} {n}.log",
            ({"q": f"q{n}", "n": n, "o": f"out/{n}"} for n in range(20)),
            inputs=["table", "more"],
            outputs=["{n}.log"],
        )
        fed.wait_all()
    assert (here / "out/7").read_text() == "7\nt\nx\n"
    assert (here / "19.log").read_text() == "19\n"


def test_folders_travel_there_on_and_back(service: FarService, here: Path, tmp_path: Path) -> None:
    service.far_executor("one")
    service.far_executor("two")
    (here / "data/deep").mkdir(parents=True)
    (here / "data/a.txt").write_text("a\n")
    (here / "data/deep/b.txt").write_text("b\n")
    (here / "data/deep/up").symlink_to("../a.txt")
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    (elsewhere / "c.txt").write_text("c\n")
    text = "mkdir -p {o:w}/more && cat {x:r}/a.txt {x:r}/deep/* {y:r}/c.txt > {o:w}/more/all && cp {x:r}/a.txt {o:w}/"
    with open_session(service, "folders") as s:
        first = s.command(text, x="data", y=elsewhere, o="made/first")
        second = s.command("cp -r {x:r} {o:w} && ls {x:r}; echo {n}", x=first, o="made/second", n=2)
        many = s.sweep("mkdir {o:w} && cat {x:r}/more/all > {o:w}/{n}", bough.tie(n=[1, 2]), x=second, o="out/{n}.d")
        many.wait_all()
        assert second.result(60).stdout == "a.txt\nmore\n2\n"
        assert s.command("echo > {o:w}", o="made/first.txt").result(60)
    assert (here / "made/first/more/all").read_text() == "a\nb\na\nc\n"
    assert (here / "made/second/a.txt").read_text() == "a\n"
    assert (here / "out/2.d/2").read_text() == "a\nb\na\nc\n"
    assert service.bough("fetch").stdout == "0 files fetched, 5 files there already\n"
    with open_session(service, "folders") as s:
        again = s.command(text, x="data", y=elsewhere, o="made/first")
        again.result(60)
        assert again.reused
        (here / "data/deep/b.txt").write_text("B\n")
    with open_session(service, "folders") as s:
        again = s.command(text, x="data", y=elsewhere, o="made/first")
        again.result(60)
        assert not again.reused
    assert (here / "made/first/more/all").read_text() == "a\nB\na\nc\n"
    assert not list((service.folder / "one").rglob("sandboxes/*/*"))


def test_patterns_and_files_beside_the_text_travel(service: FarService, here: Path, tmp_path: Path) -> None:
    service.far_executor("one")
    service.far_executor("two")
    (here / "data").mkdir()
    (tmp_path / "else where").mkdir()
    for name in ("a.csv", "b.csv", "c.txt"):
        (here / "data" / name).write_text(f"{name}\n")
    with open_session(service, "patterns") as s:
        split = "ls data; mkdir -p parts/x; for n in 1 2; do cat data/a.csv > parts/x/$n.txt; done; echo > parts/x/no"
        first = s.command(split, inputs=["data/*.csv"], outputs=["parts/**/*.txt", "parts/x"])
        assert first.result(60).stdout == "a.csv\nb.csv\n"
        second = s.command("cat {x:r} > one.txt", x="parts/x/2.txt", outputs=["one.txt"])
        many = s.sweep("cat one.txt > {n}.copy", bough.tie(n=[1, 2]), inputs=[second], outputs=["{n}.copy"])
        many.wait_all()
        assert second.result(60) is not None
        (here / "logs/deep").mkdir(parents=True)
        there = s.command(
            "echo 1 > logs/deep/1.log", outputs=["logs/**/*.log", "logs/deep/*.log"]
        )  # both folders are here
        each = s.sweep(
            "mkdir new{n}; echo {n} > new{n}/x; echo > logs/{n}", bough.tie(n=[1]), outputs=["new{n}/*", "logs/*"]
        )
        assert there.result(60)
        assert each[0].result(60)
        assert (here / "logs/deep/1.log").read_text() == (here / "new1/x").read_text() == "1\n"
        bad = s.command("true", outputs=["*.never"])
        with pytest.raises(TaskFailed, match=rf"no new file matches {here}/\*\.never\)"):
            bad.result(60)
    assert (here / "parts/x/1.txt").read_text() == (here / "2.copy").read_text() == "a.csv\n"
    assert (here / "parts/x/no").exists()


def test_a_file_in_a_folder_that_a_task_makes_is_read(service: FarService, here: Path) -> None:
    service.far_executor("one")
    service.far_executor("two")
    with open_session(service, "inside") as s:
        s.command("mkdir -p {o:w}/deep && echo a > {o:w}/deep/a", o="made/")
        read = s.command("cat {x:r} > {o:w}", x="made/deep/a", o="made/b")
        if service.hidden:  # it knows the folder as a whole only
            assert "does not see the submitter's directory; of a folder that a task makes" in str(read.exception(60))
            return
        read.result(60)
        assert (here / "made/b").read_text() == "a\n"
    assert left_in(here) == ["made", "made/b", "made/deep", "made/deep/a"]


def test_a_folder_that_cannot_travel_is_named(service: FarService, here: Path) -> None:
    service.far_executor("one")
    (here / "bad").mkdir()
    os.mkfifo(here / "bad/pipe")
    with open_session(service, "bad") as s:
        made = s.command("mkdir {o:w} && mkfifo {o:w}/pipe", o="folder")
        if s.welcome.shared:
            with pytest.raises(TaskFailed, match="bad/pipe is neither a file nor a folder and cannot travel"):
                s.command("ls {x:r}", x="bad").result(60)
        else:
            with pytest.raises(InvalidWorkload, match="bad/pipe is neither a file nor a folder and cannot travel"):
                s.command("ls {x:r}", x="bad")
        with pytest.raises(TaskFailed, match=r"its output o \(.*/folder\) cannot be sent: .* is neither a file nor"):
            made.result(60)
    assert left_in(here) == ["bad", "bad/pipe"]


def test_monitors_watch_what_is_written_in_a_sandbox(service: FarService, here: Path) -> None:
    service.far_executor("one")
    forever = "while true; do sleep 0.05; done"
    with open_session(service, "watched") as s:
        monitors = [Regex("out/result.txt", "^converged$")]
        a = s.command(f"echo converged > {{dst:w}}; {forever}", dst="out/result.txt", monitors=monitors)
        b = s.command(f"mkdir d; echo E=7 >> d/log; {forever}", monitors=[Regex(str(here / "d" / "log"), "E=([0-9]+)")])
        c = s.command(f"touch flag; {forever}", monitors=[FileCreated("flag")])
        assert [task.result(60).ended_by for task in (a, b, c)] == [
            "ended by regex: matched 'converged'",
            "ended by regex: matched '7'",
            "ended by created: flag is there",
        ]
    assert (here / "out/result.txt").read_text() == "converged\n"
    assert left_in(here) == ["out", "out/result.txt"]


def test_a_communicator_finds_the_files_of_a_sandbox(service: FarService, here: Path) -> None:
    service.far_executor("one", "--allow-commands")
    with open_session(service, "asked") as s:
        task = s.command("mkdir d; echo E=7 > d/log; echo half > {dst:w}; sleep 60", dst="out/result.txt")
        talk = task.communicator(60)
        until(lambda: talk.exists("out/result.txt") and talk.read("out/result.txt"), "the output")
        assert talk.read("out/result.txt") == "half\n"
        assert talk.read(str(here / "out" / "result.txt")) == "half\n"
        assert talk.tail(str(here / "d" / "log")) == talk.read("d/log") == "E=7\n"
        assert talk.list("d") == ["log"]
        assert talk.run("cat d/log").stdout == "E=7\n"
        talk.finish("enough")
        assert task.result(60).ended_by == "ended by remote monitor: enough"
    assert (here / "out/result.txt").read_text() == "half\n"
    assert left_in(here) == ["out", "out/result.txt"]


def test_an_executor_killed_while_it_sends_an_output_costs_only_time(service: FarService, here: Path) -> None:
    first = service.far_executor("one")
    with open_session(service, "killed") as s:
        task = s.command("head -c 150000000 /dev/zero > {o:w}", o="zeros.bin")
        part = service.home / "server/store/files"
        until(lambda: any(path.stat().st_size > 0 for path in part.glob(".part-*")), "the beginning of an upload")
        first.kill()
        first.wait()
        assert not (here / "zeros.bin").exists()
        service.far_executor("two")
        task.result(120)
        assert task.attempts == 2
        assert (here / "zeros.bin").stat().st_size == 150_000_000
    assert left_in(here) == ["zeros.bin"]
    assert not list(part.glob(".part-*"))


@pytest.mark.parametrize("service", ["server sees"], indirect=True)  # a blind one cannot bring what was made in place
def test_tasks_that_share_the_directory_and_tasks_that_do_not_work_together(service: FarService, here: Path) -> None:
    """An output made in its place is brought to one that does not see it, if the server sees it, and the reverse."""
    (here / "in.txt").write_text("x\n")
    with open_session(service, "mixed") as s:
        service.executor("--resource", "near=1")
        a = s.command("cat {x:r} > {o:w}; pwd", x="in.txt", o="a.txt", resources={"near": 1})
        assert a.result(60).stdout == f"{here}\n"
        service.far_executor("one", "--resource", "far=1")
        b = s.command("cat {x:r} {x:r} > {o:w}; pwd", x=a, o="b.txt", resources={"far": 1})
        assert b.result(60).stdout != f"{here}\n"
        c = s.command("cat {x:r} > {o:w}", x=b, o="c.txt", resources={"near": 1})
        c.result(60)
        assert (here / "c.txt").read_text() == "x\nx\n"


def test_who_left_fetches_the_outputs_later(service: FarService, here: Path, tmp_path: Path) -> None:
    service.far_executor("one")
    (here / "in.txt").write_text("x\n")
    session = open_session(service, "left")
    far = session.host.transfer.is_far
    session.command("cat {x:r} > {o:w}", x="in.txt", o="deep/a.txt")
    session.sweep("echo {n} > {o:w}", bough.tie(n=[1, 2, 3]), o="deep/{n}.txt")
    session.close_and_detach()
    client = service.client("")
    until(lambda: all(one["closed"] for one in client.ask("workflows") if one["group"]), "the end of the workflow")
    if far:
        assert not (here / "deep").exists()
        said = service.bough("fetch", "left").stdout
        assert said == "4 files fetched, 0 files there already\n"
    assert service.bough("fetch").stdout == "0 files fetched, 4 files there already\n"
    assert (here / "deep/a.txt").read_text() == "x\n"
    assert (here / "deep/2.txt").read_text() == "2\n"
    elsewhere = tmp_path / "elsewhere"
    service.bough("fetch", "left", "all", "--to", str(elsewhere))
    assert left_in(elsewhere) == ["deep", "deep/1.txt", "deep/2.txt", "deep/3.txt", "deep/a.txt"]


def test_what_is_done_is_reused_and_its_files_come_back(service: FarService, here: Path) -> None:
    service.far_executor("one")
    (here / "in.txt").write_text("x\n")

    def once() -> tuple[bool, bool]:
        with open_session(service, "again") as s:
            a = s.command("cat {x:r} > {o:w}", x="in.txt", o="a.txt")
            b = s.sweep("cat {x:r} > {o:w}", bough.tie(n=[1, 2]), x="a.txt", o="b{n}.txt")
            b.wait_all()
            a.result(60)
            return a.reused, b[1].reused

    assert once() == (False, False)
    assert once() == (True, True)
    if service.hidden:  # the server keeps what it cannot put into its place
        (here / "b2.txt").unlink()
        assert once() == (True, True)
    assert (here / "b2.txt").read_text() == "x\n"


def test_an_executor_that_is_cut_off_hands_its_outputs_over_when_the_server_is_back(
    service: FarService, here: Path
) -> None:
    service.far_executor("one")
    with open_session(service, "cut") as s:
        task = s.command("sleep 1; head -c 3000000 /dev/zero > {o:w}", o="zeros.bin")
        until(task.running, "the task to run")
        service.kill()
        until(lambda: list((service.folder / "one").rglob(".bough-*zeros.bin")), "the output in the sandbox")
        service.start()
        task.result(60)
        assert task.attempts == 1
        assert (here / "zeros.bin").stat().st_size == 3_000_000


def make(size: int) -> bytes:
    return b"x" * size


def test_values_too_big_for_a_message_travel_as_files(service: FarService, here: Path) -> None:
    service.far_executor("one")
    size = 70 << 20
    with open_session(service, "values") as s:
        made = s.submit(make, size)
        assert s.submit(len, made).result(120) == size
        assert s.submit(len, b"y" * size).result(120) == size
        assert len(made.result(120)) == size


def test_a_client_that_does_not_see_the_store_gets_big_results(service: FarService, here: Path) -> None:
    service.executor()  # sees the store, and leaves big results there
    script = here / "far.py"
    script.write_text(
        "import bough\n"
        "def big(n):\n    return bytes(n)\n"
        f"with bough.Session('unix:{service.address}', name='far') as s:\n"
        "    values = s.map(big, [1_000_000, 2_000_000]).results()\n"
        "    print([len(value) for value in values], len(s.submit(big, 3_000_000).result()))\n"
    )
    hide = f'mount -t tmpfs none \'{service.home}/server/store\' && exec "$0" "$@"'
    words = ["unshare", "-m", "sh", "-c", hide, sys.executable, str(script)]
    done = subprocess.run(words, env=service.environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "[1000000, 2000000] 3000000\n"), done.stderr


def test_contents_go_with_the_last_workflow_that_refers_to_them(service: FarService, here: Path) -> None:
    service.far_executor("one")
    (here / "in.txt").write_text("shared by both\n")
    for name in ("first", "second"):
        with open_session(service, name) as s:
            s.command("cat {x:r} > {o:w}; echo {n} >> {o:w}", x="in.txt", o=f"{name}.txt", n=name).result(60)
    files = service.home / "server/store/files"
    assert len(list(files.glob("??/*"))) == 3
    service.bough("remove", "first")
    service.kill()
    service.start()  # looks at once
    until(lambda: len(list(files.glob("??/*"))) == 2, "the content of the removed workflow to go")


@pytest.mark.parametrize("mode", [(), ("--dispatch",)], ids=["forwarding", "dispatching"])
def test_files_travel_by_tls_and_through_a_relay(
    tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch, mode: tuple[str, ...]
) -> None:
    service = FarService(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(service.home))
    service.hidden = (here,)
    try:
        service.start("--listen", "127.0.0.1:0")
        for role in ("submit", "execute"):
            service.bough("server", "access", "--role", role, "--output", str(tmp_path / f"{role}.json"))
        relay = service._spawn(
            ["relay", "start", "--server", str(tmp_path / "execute.json"), "--listen", "127.0.0.1:0", *mode],
            tmp_path / "relay.log",
        )
        service.executors.append(relay)
        behind = service.home / "relay" / "access.json"
        until(behind.exists, "the relay")
        service.far_executor("one", "--server", str(behind), joined=not mode)
        if not mode:
            service.far_executor("two", "--server", str(tmp_path / "execute.json"))
        (here / "in.bin").write_bytes(os.urandom(5_000_000))
        with bough.Session(str(tmp_path / "submit.json"), name="tls") as s:
            copies = s.sweep("cat {x:r} > {o:w}; sleep 0.3", bough.tie(n=[1, 2, 3, 4]), x="in.bin", o="copy{n}.bin")
            copies.wait_all()
            assert {digest(here / f"copy{n}.bin") for n in (1, 2, 3, 4)} == {digest(here / "in.bin")}
            made = s.submit(make, 3_000_000)  # values of functions go the same way
            assert s.submit(len, made).result(60) == 3_000_000
            shared = s.share(b"z" * 2_000_000)
            assert [s.submit(_length, shared, n).result(60) for n in (1, 2)] == [2_000_001, 2_000_002]
    finally:
        service.clean_up()


def _length(value: bytes, more: int) -> int:
    return len(value) + more


class HandExecutor:
    """An executor that says what it likes."""

    def __init__(self, service: Service) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(str(service.address))
        self._frames = to_executor_frames()
        self._heard: list[object] = []
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        self.say(ExecutorHello(VERSION, "local", "here", os.getpid(), Needs(1), version))
        self.hear(ExecutorWelcome)
        self.say(SpansHeld([]))

    def say(self, *messages: object) -> None:
        self.sock.sendall(frame(*messages))

    def hear(self, kind: type) -> object:
        while not any(isinstance(message, kind) for message in self._heard):
            self._heard += self._frames.feed(self.sock.recv(1 << 20))
        found = next(message for message in self._heard if isinstance(message, kind))
        self._heard.remove(found)
        return found


def hostile_archive() -> bytes:
    data = io.BytesIO()
    with tarfile.open(mode="w", fileobj=data) as tar:
        info = tarfile.TarInfo("../secret.txt")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"evil"))
    return data.getvalue()


def test_an_executor_gets_and_writes_only_what_its_task_declared(service: FarService, here: Path) -> None:
    (here / "in.txt").write_text("in\n")
    (here / "secret.txt").write_text("secret\n")
    executor = HandExecutor(service)
    data = b"evil"
    made = blake2b(data, digest_size=DIGEST).digest()
    try:
        for sweep in (False, True):
            session = open_session(service, f"hostile{sweep}")
            if sweep:
                session.sweep("cat {x:r} > {o:w}", bough.tie(n=[1]), x="in.txt", o="out{n}.txt")
            else:
                session.command("cat {x:r} > {o:w}", x="in.txt", o="out1.txt")
            run = executor.hear(RunSpan)
            for path in (
                here / "secret.txt",
                "/etc/passwd",
                f"{here}/../{here.name}/in.txt",
                here / ".bough/token",
                "in.txt",
            ):
                executor.say(WantFile(1, run.span, 0, str(path)))
                assert "is not a declared input" in executor.hear(FileLocated).error
            for seen in (None, UrlState(b"mark"), UrlState(b"mark", made, len(data))):
                executor.say(WantFile(1, run.span, 0, "http://elsewhere/in.txt", seen))
                assert "is not a declared input" in executor.hear(FileLocated).error
            for path, url in ((str(here / "in.txt"), None), ("http://elsewhere/in.txt", UrlState(b"mark"))):
                executor.say(WantFile(1, SpanId(0), 0, path, url, True, run.record))
                assert "was not announced to this executor" in executor.hear(FileLocated).error
            executor.say(WantFile(1, run.span, 1, str(here / "in.txt")), WantFile(2, 999, 0, str(here / "in.txt")))
            assert "not wanted from this executor" in executor.hear(FileLocated).error
            assert "not wanted from this executor" in executor.hear(FileLocated).error
            for path in (here / "secret.txt", f"{here}/sub/../out1.txt", here / ".bough/token", ""):
                executor.say(OfferFiles(3, run.span, 0, [MadeFile(str(path), made, len(data))] * 2))
                assert "is not a declared output" in executor.hear(FilesKept).error
            executor.say(OfferFiles(4, run.span, 0, [MadeFile(str(here / "out1.txt"), made, len(data))]))
            get = executor.hear(GetPiece)
            executor.say(FilePiece(4, get.offset, b"liar"))
            assert "not what was announced" in executor.hear(FilesKept).error
            evil = hostile_archive()
            offered = MadeFile(
                str(here / "out1.txt"), blake2b(evil, digest_size=DIGEST).digest(), len(evil), folder=True
            )
            executor.say(OfferFiles(6, run.span, 0, [offered]))
            get = executor.hear(GetPiece) if not sweep else None  # the second time the server has it
            if get is not None:
                executor.say(FilePiece(6, get.offset, evil))
            kept = executor.hear(FilesKept)
            if session.welcome.shared:
                assert "would leave the folder" in kept.error
            executor.say(WantFile(5, run.span, 0, str(here / "in.txt")))
            assert executor.hear(FileLocated).size == 3
            session.detach()
            executor.say(Report(1 + sweep, [WorkFailed(run.span, 0, Failure(Cause.EXIT, "over", exit_code=1))]))
    finally:
        executor.sock.close()
    assert left_in(here) == ["in.txt", "secret.txt"]
    assert (here / "secret.txt").read_text() == "secret\n"


def test_an_executor_writes_back_only_what_it_reported_and_its_task_declared(service: FarService, here: Path) -> None:
    (here / "secret.txt").write_text("secret\n")
    executor = HandExecutor(service)
    data = b"good"
    made = blake2b(data, digest_size=DIGEST).digest()
    session = open_session(service, "later")
    try:
        task = session.command("true > {o:w}", o="out.txt", keep="later", retries=0)
        run = executor.hear(RunSpan)
        assert run.limits.keep == "later"
        held = HeldOutputs(run.record, 0, run.attempt, [MadeFile(str(here / "out.txt"), made, len(data))], [data])
        executor.say(WriteBack(1, [held]))  # before its task has ended
        executor.hear(WrittenBack)
        assert not (here / "out.txt").exists()
        output = Output("o", str(here / "out.txt"), len(data), 7, made, later=True)
        executor.say(Report(1, [WorkSucceeded(run.span, 0, 1, 0.1, None, (Detail(0, outputs=(output,)),))]))
        strange = [
            HeldOutputs(run.record, 0, run.attempt + 1, held.files, [data]),
            HeldOutputs(run.record, 5, run.attempt, held.files, [data]),
            HeldOutputs(RecordId(10**9), 0, 1, held.files, [data]),
        ]
        executor.say(WriteBack(2, strange))
        executor.hear(WrittenBack)
        assert not (here / "out.txt").exists()
        assert not task.done()
        evil = MadeFile(str(here / "secret.txt"), made, len(data))
        executor.say(WriteBack(3, [HeldOutputs(run.record, 0, run.attempt, [evil], [data])]))
        executor.hear(WrittenBack)
        again = executor.hear(RunSpan)  # it is made again, and its outputs are to be safe before it is done
        assert (again.record, again.attempt, again.limits.keep) == (run.record, 2, True)
        executor.say(WriteBack(4, [held]))
        executor.hear(WrittenBack)
        executor.say(OfferFiles(5, again.span, 0, held.files, along=[data]))
        assert not executor.hear(FilesKept).error
        kept = Output("o", str(here / "out.txt"), len(data), 7, made)
        executor.say(Report(2, [WorkSucceeded(again.span, 0, 1, 0.1, None, (Detail(0, outputs=(kept,)),))]))
        task.result(60)
        assert "secret.txt is not a declared output" in task.explain()
        session.detach()
    finally:
        executor.sock.close()
    assert (here / "secret.txt").read_text() == "secret\n"
    assert (here / "out.txt").read_text() == "good"


def test_a_folder_that_would_leave_its_place_is_not_written_back(service: FarService, here: Path) -> None:
    executor, evil = HandExecutor(service), hostile_archive()
    digest = blake2b(evil, digest_size=DIGEST).digest()
    session = open_session(service, "evil")
    try:
        task = session.command("mkdir {o:w}", o="out", keep="later", retries=0)
        run = executor.hear(RunSpan)
        output = Output("o", str(here / "out"), len(evil), 7, digest, folder=True, later=True)
        executor.say(Report(1, [WorkSucceeded(run.span, 0, 1, 0.1, None, (Detail(0, outputs=(output,)),))]))
        made = MadeFile(str(here / "out"), digest, len(evil), folder=True, time=7)
        executor.say(WriteBack(1, [HeldOutputs(run.record, 0, run.attempt, [made], [evil])]))
        executor.hear(WrittenBack)
        if session.welcome.shared:  # else it is the client that unpacks it
            again = executor.hear(RunSpan)  # it is made again, and said to have failed if that is no better
            assert (again.attempt, again.limits.keep) == (2, True)
            assert "would leave the folder" in task.explain()
            executor.say(Report(2, [WorkFailed(again.span, 0, Failure(Cause.EXIT, "over", exit_code=1))]))
        session.detach()
    finally:
        executor.sock.close()
    until(lambda: left_in(here) == [], "what was left of the folder going away")  # a client unpacks when it hears


def test_hostile_names_never_leave_the_sandbox(service: FarService, here: Path, tmp_path: Path) -> None:
    (here / "in.txt").write_text("in\n")
    (tmp_path / "secret.txt").write_text("secret\n")
    (here / "link.txt").symlink_to(tmp_path / "secret.txt")
    service.far_executor("one")
    sandboxes = f"{tmp_path}/one/"
    with bough.Session(f"unix:{service.address}", name="hostile", on_failure="ignore") as s:
        outside = [
            s.command("echo {o:w}; echo x > {o:w}", o=name) for name in ("../up.txt", str(tmp_path / "absolute.txt"))
        ]
        odd = "a\nb 'c\" $(touch pwned).txt"
        fine = s.command("cat {x:r} > {o:w}", x="in.txt", o=odd)
        linked = s.command(f"ln -s {tmp_path}/secret.txt {{o:w}}; echo changed > {{x:r}}", x="link.txt", o="out.txt")
        for name in ("a\0b", "\0"):
            with pytest.raises(InvalidWorkload, match="NUL"):
                s.command("echo x > {o:w}", o=name)
            with pytest.raises(InvalidWorkload, match="NUL"):
                s.command("cat {x:r}", x=name)
        for name in ("y" * 10_000, "y/" * 5_000 + "z"):
            with pytest.raises(InvalidWorkload, match="bytes: give it another name"):
                s.command("cat {x:r}; echo x > {o:w}", x="in.txt", o=name)
        impossible = s.command("cat {x:r}; echo x > {o:w}", x="in.txt", o="in.txt/below")
        for task in outside:
            assert task.result(60).stdout.startswith(sandboxes)
        fine.result(60)
        linked.exception(60)
        error = impossible.exception(60)
        assert isinstance(error, TaskFailed)
        assert "died" not in str(error)
    assert (here / odd).read_text() == "in\n"
    assert not (here / "pwned").exists()
    assert not (here / "out.txt").is_symlink()
    assert (here / "link.txt").read_text() == (tmp_path / "secret.txt").read_text() == "secret\n"
    assert (tmp_path / "up.txt").read_text() == (tmp_path / "absolute.txt").read_text() == "x\n"
    known = {"in.txt", "link.txt", "out.txt", odd}
    assert {*left_in(here)} <= known
