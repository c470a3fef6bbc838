"""Files that commands declare beside their text, folders and patterns, where the directory is seen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import bough
from bough.errors import Clash, InvalidWorkload, TaskFailed


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    return tmp_path


@pytest.fixture
def s(here: Path) -> Iterator[bough.Session]:
    with bough.Session(name="files", cores=2, on_failure="ignore") as session:
        yield session


def test_a_folder_is_read_and_written_in_place(s: bough.Session, here: Path) -> None:
    (here / "in").mkdir()
    (here / "in/a").write_text("a\n")
    made = s.command("mkdir {o:w} && cp {x:r}/a {o:w}/b", x="in", o="out/made")
    failed = s.command("mkdir {o:w} && touch {o:w}/half && false {n}", o="out/failed", n=1)
    count = s.command("cat {x:r}/b", x=made)
    assert count.result(60).stdout == "a\n"
    assert failed.exception(60) is not None
    assert sorted(os.listdir(here / "out")) == ["made"]


def test_tasks_that_read_and_write_in_a_folder_wait_for_the_task_that_makes_it(s: bough.Session, here: Path) -> None:
    s.command("sleep 0.3; mkdir {o:w}; echo a > {o:w}/a", o="made/")
    inner = s.command("cat {x:r} > {o:w}", x="made/a", o="made/deep/b")
    assert s.command("cat {x:r} {y:r}", x="made/a", y=inner).result(60).stdout == "a\na\n"
    with pytest.raises(Clash, match=r"deep would be written by task 4 \(mkdir\), and files in it by task 2 \(cat\)"):
        s.command("mkdir {o:w}", o="made/deep", clash="overwrite")


@pytest.mark.parametrize("name", [".", "..", "sub/..", "/"])
def test_the_folder_in_which_a_command_runs_is_no_output(s: bough.Session, here: Path, name: str) -> None:
    (here / "precious").touch()
    for task in (
        lambda: s.command("echo 1 > {o:w}", o=name, clash="overwrite"),
        lambda: s.sweep("echo {n} > {o:w}", bough.product(n=[1], o=[name]), clash="overwrite"),
        lambda: s.command("echo 1 > made", outputs=[name], clash="overwrite"),
        lambda: s.command("echo 1 > made", get={"made": name}, clash="overwrite"),
        lambda: list(s.feed("echo 1 > {o:w}", [{"o": name}], clash="overwrite")),
    ):
        with pytest.raises(InvalidWorkload, match="is the folder in which the command runs, or one above it"):
            task()
    assert (here / "precious").exists()


def test_a_declared_file_has_a_name(s: bough.Session, here: Path) -> None:
    for slot in ("{x:r}", "{x:w}"):
        for given in ("", ["a", ""]):
            with pytest.raises(InvalidWorkload, match="an empty name"):
                s.command(f"true {slot}", x=given, clash="overwrite")


def test_a_folder_counts_by_what_its_files_hold(here: Path) -> None:
    (here / "in/deep").mkdir(parents=True)
    (here / "in/deep/a").write_text("a\n")

    def reused() -> bool:
        with bough.Session(name="folders", cores=1) as s:
            task = s.command("mkdir {o:w} && cat {x:r}/deep/* > {o:w}/all", x="in", o="out")
            task.result(60)
            return task.reused

    assert [reused(), reused()] == [False, True]
    os.utime(here / "in/deep/a", (1, 1))
    assert reused()
    (here / "in/deep/a").write_text("b\n")
    assert not reused()
    assert (here / "out/all").read_text() == "b\n"
    assert reused()
    (here / "out/all").write_text("somebody else's\n")
    assert not reused()
    (here / "in/deep/link").symlink_to("a")
    assert not reused()


def test_inputs_that_are_patterns_are_expanded_when_the_command_is_submitted(s: bough.Session, here: Path) -> None:
    (here / "data").mkdir()
    for name in ("b.csv", "a.csv", ".hidden.csv", "c.txt"):
        (here / "data" / name).write_text(f"{name}\n")
    assert s.command("cat {x:r}", x="data/*.csv").result(60).stdout == "a.csv\nb.csv\n"
    assert s.command("cat data/a.csv", inputs=["data/*.csv"]).result(60).stdout == "a.csv\n"
    assert s.command("cat data/a.csv; echo '{x}'", inputs="data/a.csv").result(60).stdout == "a.csv\n{x}\n"
    with pytest.raises(InvalidWorkload, match=r"no file matches 'data/\*\.tab' now"):
        s.command("true", inputs=["data/*.tab"])
    with pytest.raises(InvalidWorkload, match="inputs is 7; give a list of paths"):
        s.command("true", inputs=7)
    with pytest.raises(InvalidWorkload, match="with a NUL"):
        s.command("true", inputs=["a\0b"])
    with pytest.raises(InvalidWorkload, match="over a space a file is named"):
        s.sweep("true {n}", bough.tie(n=[1]), inputs=["data/{n}/*.csv"])


def test_outputs_that_stand_nowhere_in_the_text_are_waited_for_and_named(s: bough.Session, here: Path) -> None:
    made = s.command("echo r > result.txt; echo {n} > log", n=1, outputs=["result.txt", Path("log")])
    assert list(made.outputs) == ["result.txt", "log"]
    assert s.command("cat result.txt", inputs=[made]).result(60).stdout == "r\n"
    assert s.command("cat {x:r}", x=made.outputs["log"]).result(60).stdout == "1\n"
    missing = s.command("true", outputs=["never.txt"])
    with pytest.raises(TaskFailed, match=r"did not write its output .*never\.txt"):
        missing.result(60)
    failed = s.command("echo half > half.txt; exit 3", outputs=["half.txt"])
    assert failed.exception(60) is not None
    assert not (here / "half.txt").exists()
    (here / "mine.txt").write_text("mine\n")
    with pytest.raises(Clash, match=r"mine\.txt, which .* would write, is there already"):
        s.command("true", outputs=["mine.txt"])
    with pytest.raises(Clash, match="cannot be renamed"):
        s.command("true", outputs=["mine.txt"], clash="rename")
    with pytest.raises(Clash, match="would be written by both"):
        s.command("true", outputs=["log"])


def test_outputs_that_are_patterns_are_what_the_command_made(s: bough.Session, here: Path) -> None:
    (here / "out").mkdir()
    (here / "out/old.txt").write_text("old\n")
    made = s.command("for n in 1 2; do echo $n > out/$n.txt; done; echo > out/no.log", outputs=["out/*.txt"])
    read = s.command("cat {x:r}", x="out/2.txt")  # waits for what may make it
    assert read.result(60).stdout == "2\n"
    assert made.done()
    for declared in ({"x": "later/*.txt"}, {"inputs": ["later/*.txt"]}):
        with pytest.raises(bough.UserError, match=r"no file matches 'later/\*\.txt' now: .*submit their reader when"):
            s.command("cat {x:r}" if "x" in declared else "true", **declared)
    with pytest.raises(InvalidWorkload, match=r"'alpha:/out/\*': nobody looks for patterns at a site"):
        s.command("cat {x:r}", x="alpha:/out/*")
    nothing = s.command("true", outputs=["out/*.dat"])
    with pytest.raises(TaskFailed, match=r"no new file matches .*/out/\*\.dat"):
        nothing.result(60)
    failed = s.command("echo > out/bad.tab; echo > out/old.txt; exit 1", outputs=["out/*.tab"])
    assert failed.exception(60) is not None
    assert sorted(os.listdir(here / "out")) == ["1.txt", "2.txt", "no.log", "old.txt"]


def test_who_reads_a_renamed_file_by_its_old_name_gets_the_new_one(s: bough.Session, here: Path) -> None:
    (here / "in.txt").write_text("yours\n")
    s.command("echo new > {o:w}", o="in.txt", clash="rename")
    assert s.command("cat", stdin=Path("in.txt")).result(60).stdout == "new\n"
    swept = s.sweep("cat; echo {n}", bough.tie(n=[1]), stdin=Path("in.txt"))
    assert swept[0].result(60).stdout == "new\n1\n"
    with pytest.raises(Clash, match=r"in\.txt was renamed to .*in-1\.txt: .*; use a slot"):
        s.command("cat in.txt", inputs=["in.txt"])
    (here / "env/bin").mkdir(parents=True)
    (here / "env/bin/tool").write_text("#!/bin/sh\necho made\n")
    (here / "env/bin/tool").chmod(0o755)
    (here / "env.tar.gz").touch()
    s.command("tar czf {o:w} -C env .", o="env.tar.gz", clash="rename")
    assert s.command("tool", environment="env.tar.gz").result(60).stdout == "made\n"


def test_a_task_does_not_read_the_name_under_which_its_output_is_renamed(s: bough.Session, here: Path) -> None:
    for name in "ab":
        (here / name).touch()
    for submit in (
        lambda: s.command("cat {x:r} > {o:w}", x="a", o="a", clash="rename"),
        lambda: s.command("cat > {o:w}", stdin=Path("a"), o="a", clash="rename"),
        lambda: s.sweep("cat {x:r} > {o:w}", bough.tie(x=["b", "a"], o=["b", "a"]), clash="rename"),
    ):
        with pytest.raises(Clash, match="whose output of that name would be renamed"):
            submit()
    assert s.command("cat {x:r}", x="a").result(60).exit_code == 0


def test_sweeps_and_feeds_declare_files_beside_their_text(s: bough.Session, here: Path) -> None:
    for name in "ab":
        (here / f"{name}.idx").write_text(f"{name}\n")
    swept = s.sweep("cat {q}.idx > {q}.out", bough.tie(q=["a", "b"]), inputs=["{q}.idx"], outputs=["{q}.out"])
    both = s.command("cat {x:r}", x=swept)
    assert both.result(60).stdout == "a\nb\n"
    with pytest.raises(InvalidWorkload, match=r"c\.idx, which .* reads, does not exist"):
        s.sweep("cat {q}.idx", bough.tie(q=["c"]), inputs=["{q}.idx"])
    fed = s.feed("cat {q}.idx > {q}.fed", ["a", "b"], inputs=["{q}.idx"], outputs=["{q}.fed"])
    fed.wait_all()
    assert (here / "b.fed").read_text() == "b\n"


@pytest.mark.parametrize("group", ["", "group=all "])
def test_lines_that_read_in_a_folder_wait_for_the_line_that_makes_it(here: Path, group: str) -> None:
    from bough.cli.main import main

    lines = [
        f"last: {group}in=made/a,made/deep/b out=c :: cat made/a made/deep/b > c",
        f"first: {group}out=made/ :: sleep 0.3; mkdir -p made/deep; echo a > made/a; echo b > made/deep/b",
    ]
    (here / "list").write_text("\n".join([f"{group}pipeline=no ::" if group else "", *lines]))
    assert main(["run", "list"]) == 0
    assert (here / "c").read_text() == "a\nb\n"


def test_a_flat_list_declares_patterns(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bough.cli.main import main

    (here / "data").mkdir()
    (here / "data/a.csv").write_text("a\n")
    (here / "list").write_text("in=data/*.csv out=parts/*.txt :: mkdir -p parts; cat data/a.csv > parts/a.txt\n")
    assert main(["run", "list"]) == 0
    assert (here / "parts/a.txt").read_text() == "a\n"
