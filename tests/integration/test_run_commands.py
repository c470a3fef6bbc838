"""`bough run -- COMMAND` with real processes: exit codes, output, one command for each line, names that are taken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BOUGH = (sys.executable, "-P", "-m", "bough.cli.main")


class Caller:
    """Calls `bough` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*BOUGH, *words], cwd=self.folder, input=stdin, text=True, capture_output=True, check=False, timeout=120
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*BOUGH, *words], cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )


@pytest.fixture
def bough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    monkeypatch.setenv("BOUGH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    return Caller(tmp_path)


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        (("echo", "a  b", "{x}"), 0, "a  b {x}\n", ""),
        (("echo out; echo err >&2; exit 7",), 7, "out\n", "err\n"),
        (("sh", "-c", "kill -15 $$"), 143, "", "SIGTERM"),
        (("no-such-program",), 127, "", "not found"),
        (("yes | head -1",), 141, "y\n", "SIGPIPE"),
    ],
)
def test_a_command_leaves_with_its_own_code_and_shows_its_output(
    bough: Caller, words: tuple[str, ...], code: int, out: str, err: str
) -> None:
    ended = bough("run", "--", *words)
    assert (ended.returncode, ended.stdout) == (code, out)
    assert err in ended.stderr
    assert bool(ended.stderr) is bool(code)


def test_output_is_shown_while_the_command_runs(bough: Caller) -> None:
    running = bough.start("run", "--", "echo first; until test -e go; do sleep 0.01; done; echo last")
    assert running.stdout is not None
    assert running.stdout.readline() == "first\n"
    (bough.folder / "go").touch()
    assert running.communicate(timeout=120)[0] == "last\n"


def test_a_command_always_runs_and_json_tells_how_it_ended(bough: Caller) -> None:
    for _ in range(2):
        assert bough("run", "--", "echo x >> seen").returncode == 0
    assert (bough.folder / "seen").read_text() == "x\nx\n"
    ended = bough("run", "--json", "--", "echo shown; exit 4")
    assert ended.returncode == json.loads(ended.stdout)["exit_code"] == 4
    assert "shown" in ended.stderr


@pytest.mark.parametrize("words", [("list.txt",), ("--array", "1-2", "--", "echo shown {}")])
def test_echoes_leave_standard_output_to_json(bough: Caller, words: tuple[str, ...]) -> None:
    (bough.folder / "list.txt").write_text("echo shown 1\necho shown 2\n")
    ended = bough("run", "--json", "--echo", *words)
    assert json.loads(ended.stdout)["done"] == 2
    assert "shown 2" in ended.stderr


def test_each_line_fills_its_slot_as_data_and_is_reused(bough: Caller) -> None:
    (bough.folder / "lines").write_text("a b\n\n{x} $HOME\n'q'\r\n")
    for _ in range(2):
        ended = bough("run", "-k", "-j", "2", "--each-line", "lines", "--", "echo '<{}>' {index}; echo x >> seen")
        assert (ended.returncode, ended.stdout) == (0, "<a b> 1\n<{x} $HOME> 2\n<'q'> 3\n")
    assert "3 reused" in ended.stderr
    assert (bough.folder / "seen").read_text() == "x\n" * 3
    words = bough("run", "-k", "--each-line", "-", "--", "echo", "<{}>", stdin="1\n2\n")
    assert words.stdout == "<1>\n<2>\n"


def test_commands_that_fail_are_told_and_the_others_go_on(bough: Caller) -> None:
    for order in ((), ("-k",)):
        ended = bough("run", *order, "--array", "1-3", "--", "echo $BOUGH_INDEX; test {} != 2")
        assert ended.returncode == 1
        assert sorted(ended.stdout.split()) == ["1", "2", "3"]
        assert "2 done, 1 failed" in ended.stderr
        assert "tasks failed" not in ended.stderr  # each was told once, as it happened


def test_a_failure_is_told_with_its_command_or_its_line_of_code(bough: Caller) -> None:
    (bough.folder / "flow.py").write_text(
        "import bough\n\ndef half(n):\n    return 1 // (n - n)\n\nwith bough.Session() as s:\n"
        "    s.command('exit  {code}', code=4)\n    s.submit(half, 2)\n"
    )
    told = bough("run", "flow.py").stderr
    assert "    command: exit 4\n" in told
    assert f"    parameters: n=2\n    code: {bough.folder / 'flow.py'}:4, in half: return 1 // (n - n)\n" in told
    told = bough("run", "--each-line", "-", "--", "false {}", stdin="x\n").stderr
    assert "    parameters: line='x'\n    command: false x\n" in told


def test_commands_that_are_refused_are_told_in_one_line(bough: Caller) -> None:
    ended = bough("run", "--memory", "900TB", "--each-line", "-", "--", "echo {}", stdin="x\n")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("bough: this can never run")
    assert ended.stderr.count("\n") == 1


def test_two_commands_of_one_name_run_side_by_side(bough: Caller) -> None:
    """Each waits for the other: neither could end if the second were refused."""
    texts = ("mkfifo one 2> /dev/null; cat one", "until test -p one; do sleep 0.01; done; echo met > one")
    both = [bough.start("run", "--", f"true; {text}") for text in texts]
    assert [one.communicate(timeout=120)[0] for one in both] == ["met\n", ""]
    assert [one.returncode for one in both] == [0, 0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run",), "give a FILE, - for stdin, or -- and a COMMAND"),
        (("run", "--"), "give a FILE, - for stdin, or -- and a COMMAND"),
        (("run", "--array", "1-3", "--", "echo {indx}"), "did you mean index?"),
        (("run", "--each-line", "lines", "--", "echo"), "the command has no {}"),
        (("run", "--each-line", "lines", "lines"), "--each-line is for commands"),
        (("run", "--keep-order", "--", "true"), "--keep-order goes with"),
        (("run", "--emulate=sleep", "--", "true"), "--emulate is for a recorded workflow"),
        (("run", "--each-line", "linse", "--", "echo {}"), "did you mean lines?"),
    ],
)
def test_mistakes_are_one_line_and_start_nothing(bough: Caller, words: tuple[str, ...], said: str) -> None:
    (bough.folder / "lines").write_text("x\n")
    ended = bough(*words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not (bough.folder / ".bough").exists()


def test_a_dry_run_shows_the_commands_and_a_list_comes_from_stdin(bough: Caller) -> None:
    shown = bough("run", "--dry-run", "--each-line", "-", "--", "gzip {} {line.stem}", stdin="a b.txt\nc.txt\n")
    assert shown.stdout == "gzip 'a b.txt' 'a b'\ngzip c.txt c\n"
    assert not (bough.folder / ".bough").exists()
    ended = bough("run", "-", stdin="echo one > one\necho two > two\n")
    assert ended.returncode == 0
    assert (bough.folder / "two").read_text() == "two\n"


def test_files_that_a_list_declares_are_noticed_when_they_change_or_vanish(bough: Caller) -> None:
    (bough.folder / "list.txt").write_text(
        "in=mid.txt out=end.txt :: sort mid.txt > end.txt; echo end >> seen\n"
        "in=raw.txt out=mid.txt :: cp raw.txt mid.txt; echo mid >> seen\n"
        "out=free.txt :: f=free; cd /; cd - > /dev/null; echo '{x}' > $f.txt; echo free >> seen\n"
    )

    def runs() -> list[str]:
        seen = bough.folder / "seen"
        seen.unlink(missing_ok=True)
        ended = bough("run", "list.txt")
        assert ended.returncode == 0, ended.stderr
        return sorted(seen.read_text().split()) if seen.exists() else []

    (bough.folder / "raw.txt").write_text("b\na\n")
    assert runs() == ["end", "free", "mid"]
    assert (bough.folder / "end.txt").read_text() == "a\nb\n"
    assert (bough.folder / "free.txt").read_text() == "{x}\n"
    assert runs() == []
    (bough.folder / "end.txt").unlink()
    assert runs() == ["end"]
    (bough.folder / "raw.txt").write_text("d\nc\n")
    assert runs() == ["end", "mid"]
    (bough.folder / "free.txt").write_text("mine")
    assert runs() == ["free"]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("true\nin=nowhere :: cat nowhere\n", 2, "list.txt:2: the input nowhere does not exist, and no task makes it"),
        ("out=nothing :: true\n", 1, "/nothing on "),
    ],
)
def test_files_that_are_not_there_are_named(bough: Caller, text: str, code: int, said: str) -> None:
    (bough.folder / "list.txt").write_text(text)
    ended = bough("run", "list.txt")
    assert ended.returncode == code
    assert said in ended.stderr
