"""The front door: help, versions, exit codes, and errors in one line."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import cast

import pytest
from cli_workshop import Workshop

from bough import __version__
from bough.api.display.surroundings import has_colour, show_seconds
from bough.api.session.session import Session, opened_sessions
from bough.cli import main as front
from bough.cli.output import Output, cell, table_lines
from bough.errors import BoughError, InternalError, NotRun, SiteError, StoreHeld, TaskFailed, UserError

Call = Callable[..., tuple[int, str, str]]


def test_every_command_has_help_with_examples(bough: Call) -> None:
    for name in front.COMMANDS:
        code, out, err = bough(name, "--help")
        assert (code, err) == (0, "")
        assert out.startswith(f"usage: bough {name}")
        assert 2 <= len(front.load_command(name).examples) <= 8
        assert "--json" in out
        assert f"  bough {name}" in out.partition("examples:")[2]


def test_every_verb_has_help_with_examples(bough: Call) -> None:
    for name, verb in [
        *(("server", verb) for verb in ("start", "stop", "status", "access", "rotate")),
        *(("executor", verb) for verb in ("start", "list", "drain", "stop", "resume")),
        *(("relay", verb) for verb in ("start", "status", "stop")),
        *(("store", verb) for verb in ("copy", "backup", "check", "repair")),
        *(("here", verb) for verb in ("attribute", "status", "alive", "lock", "unlock", "release")),
    ]:
        code, out, _ = bough(name, verb, "--help")
        assert code == 0
        assert f"  bough {name} {verb}" in out.partition("examples:")[2]


def test_the_filter_of_failed_tasks_is_told_by_the_help(bough: Call) -> None:
    for name in ("status", "log", "retry", "explain"):
        options = bough(name, "--help")[1].partition("examples:")[0]
        assert "--failed" in options
        assert "--running" in options


@pytest.mark.parametrize("words", [("--cores", "0"), ("--cores", "-2"), ("--cores", "nan"), ("--gpus", "-1")])
def test_an_executor_without_cores_is_refused(bough: Call, words: tuple[str, str]) -> None:
    code, _, err = bough("executor", "start", "--server", "unix:/nowhere.sock", *words)
    assert code == 2
    assert all(word in err for word in words)


def test_help_lists_every_command(bough: Call) -> None:
    for words in (["--help"], ["-h"], ["help"]):
        code, out, _ = bough(*words)
        assert code == 0
        assert all((f"  {name} " in out) is (name not in front.HIDDEN) for name in front.COMMANDS)
    for words in (["help", "all"], ["help", "--all"], ["--help", "--all"]):
        assert all(f"  {name} " in bough(*words)[1] for name in front.COMMANDS)


def test_help_begins_with_the_everyday_commands_and_ends_with_those_for_developers(bough: Call) -> None:
    out = bough("--help")[1]
    titles = [line for line in out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == [f"{title}:" for title in front.GROUPS.values()] + ["examples:"]
    everyday = out.partition("everyday:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in everyday.splitlines()][:5] == ["run", "status", "watch", "log", "explain"]
    assert all(len(line) <= 120 for line in out.splitlines())


def test_help_of_a_command_can_be_asked_both_ways(bough: Call) -> None:
    assert bough("help", "sql") == bough("sql", "--help")


def test_nothing_at_all_shows_the_help_and_is_wrong(bough: Call) -> None:
    assert bough()[0] == 2


def test_the_version_is_told(bough: Call) -> None:
    assert bough("--version") == (0, f"bough {__version__}\n", "")


def test_an_unknown_command_suggests_the_one_that_was_meant(bough: Call) -> None:
    assert bough("statuz") == (2, "", "bough: there is no command 'statuz'; did you mean status?\n")
    assert bough("--versoin") == (2, "", "bough: there is no command '--versoin'; did you mean --version?\n")


def test_a_number_below_the_bounds_is_told_plainly(bough: Call) -> None:
    code, _, err = bough("submit", "--cores", "-1", "--", "true")
    assert (code, "it must be a number >= 0;" in err) == (2, True), err


def test_a_file_in_place_of_a_command_suggests_run(bough: Call, workshop: Workshop) -> None:
    (workshop.home / "wf.py").write_text("")
    assert bough("wf.py") == (2, "", "bough: there is no command 'wf.py'; to run a workflow: bough run wf.py\n")


def test_a_wrong_option_is_one_line_and_exit_code_2(bough: Call) -> None:
    code, out, err = bough("status", "--colour")
    assert (code, out) == (2, "")
    assert err == "bough: there is no option --colour; see bough status --help\n"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("run", "--corse", "3", "wf.py"), "there is no option --corse; did you mean --cores? see bough run --help"),
        (("run", "--corse=3", "wf.py"), "there is no option --corse; did you mean --cores?"),
        (("server", "start", "--lsiten", "x"), "there is no option --lsiten; did you mean --listen?"),
        (("server", "strat"), "did you mean start?"),
        (("completion", "bsah"), "did you mean bash?"),
        (("stats", "a"), "'a' is one argument too many"),
        (("run", "wff.py"), "cannot read wff.py: No such file or directory; did you mean wf.py?"),
        (("run", "sub/wff.py"), "did you mean sub/wf.py?"),
        (("run", "cat"), "to run the command: bough run -- cat"),
        (("submit", "--each-line", "wf.py.", "--", "echo {}"), "did you mean wf.py?"),
        (("run", "--policy", "fifi", "wf.txt"), "did you mean fifo?"),
    ],
)
def test_what_was_nearly_right_is_suggested(
    bough: Call, workshop: Workshop, words: tuple[str, ...], meant: str
) -> None:
    (workshop.home / "sub").mkdir()
    for name in ("wf.py", "sub/wf.py"):
        (workshop.home / name).write_text("")
    (workshop.home / "wf.txt").write_text("true\n")
    code, out, err = bough(*words)
    assert (code, out) == (2, "")
    assert meant in err
    assert err.count("\n") == 1


def test_a_run_knows_nothing_of_sessions_that_are_not_its_own(bough: Call, workshop: Workshop) -> None:
    opened_sessions.append(cast(Session, object()))  # as a run that was broken off in this process leaves them
    (workshop.home / "wf.txt").write_text("true\n")
    try:
        code, _, err = bough("run", "--policy", "fifi", "wf.txt")
    finally:
        opened_sessions.clear()
    assert code == 2
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("a"), 2),
        (StoreHeld("a"), 2),
        (SiteError("a"), 3),
        (InternalError("a", "the story"), 70),
        (TaskFailed("a"), 1),
        (NotRun("a"), 1),
        (OSError("a"), 3),
        (RuntimeError("a"), 70),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 0),
    ],
)
def test_exit_codes_come_from_the_error(
    bough: Call, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def run(args: argparse.Namespace, output: Output) -> int:
        raise error

    fake = ModuleType("bough.cli.commands.sql")
    fake.__dict__.update(run=run, EXAMPLES=(), add_arguments=lambda parser: None)
    monkeypatch.setitem(sys.modules, "bough.cli.commands.sql", fake)
    monkeypatch.setattr("bough.cli.main.os.dup2", lambda *_: None)  # the test's own stdout stays
    found, _, err = bough("sql")
    assert found == code
    assert not isinstance(error, BoughError) or err.startswith("bough: a\n")
    assert bool(err) == (code not in {0, 130})
    assert ("the story" in err) == isinstance(error, InternalError)


def test_run_refuses_what_this_version_cannot(bough: Call, workshop: Workshop) -> None:
    (workshop.home / "list.txt").write_text("true\n")
    (workshop.home / "wf.py").write_text("")
    for file in ("list.txt", "wf.py"):
        code, _, err = bough("run", "--site", "local", "--site", "x,y", "--cores", "2", file)
        assert (code, err) == (2, "bough: --cores is for runs on this machine; with --site leave it out\n")
        code, _, err = bough("run", "--server", "unix:x", "--cores", "2", file)
        assert (code, err) == (2, "bough: --cores is for runs on this machine; with --server leave it out\n")
    assert bough("run", "--dry-run", "wf.py")[0] == 2
    for file in ("Makefile", "wf.json", "missing.txt", "missing.py"):
        code, out, err = bough("run", file)
        assert (code, out) == (2, "")
        assert err.startswith(f"bough: cannot read {file}")


def test_run_shows_what_a_list_would_do(bough: Call, workshop: Workshop) -> None:
    (workshop.home / "list.txt").write_text("b: after=a :: echo b\na: :: echo a\n")
    assert bough("run", "--dry-run", "list.txt") == (0, "a: :: echo a\nb: after=a :: echo b\n", "")
    assert bough("run", "list.txt", "--dry-run") == bough("run", "--dry-run", "list.txt")
    assert not (workshop.home / ".bough").exists()


def test_a_wrong_list_names_file_and_line_and_submits_nothing(bough: Call, workshop: Workshop) -> None:
    (workshop.home / "list.txt").write_text("true\nx: after=y :: true\n")
    assert bough("run", "list.txt") == (2, "", "bough: list.txt:2: after=y: no line has the name 'y'\n")
    assert not (workshop.home / ".bough").exists()


def test_a_list_in_another_encoding_names_the_line(bough: Call, workshop: Workshop) -> None:
    (workshop.home / "list.txt").write_bytes(b"true\necho \xff\n")
    code, _, err = bough("run", "list.txt")
    assert (code, err) == (2, "bough: list.txt:2: a flat list is UTF-8 text, and this line is not\n")


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_cores_must_be_a_number(bough: Call, text: str) -> None:
    code, _, err = bough("run", "--cores", text, "x.txt")
    assert code == 2
    assert "is not a number of cores" in err or "expected one argument" in err


def test_a_table_is_aligned_and_stays_on_its_lines() -> None:
    assert table_lines(["id", "name"], [[1, "a\nb"], [22, None], [3, "x"]]) == ["id  name", " 1  a\\nb", "22", " 3  x"]
    assert table_lines(["id"], []) == ["id"]


def test_cells_are_short() -> None:
    assert [cell(value) for value in (None, 1.5, 2.0, 0.12345, b"\x01\xff", 7)] == [
        "",
        "1.5",
        "2",
        "0.123",
        "01ff",
        "7",
    ]


def test_durations_read_as_people_say_them() -> None:
    assert [show_seconds(s) for s in (0.123, 3.21, 245, 11220)] == ["0.12 s", "3.2 s", "4 min 05 s", "3 h 07 min"]


def test_colours_are_for_terminals_and_for_those_who_want_them() -> None:
    class Terminal:
        def __init__(self, is_one: bool) -> None:
            self.isatty = lambda: is_one

    terminal, pipe = Terminal(True), Terminal(False)
    assert has_colour(terminal, {})  # type: ignore[arg-type]
    assert not has_colour(pipe, {})  # type: ignore[arg-type]
    assert not has_colour(terminal, {"NO_COLOR": "1"})  # type: ignore[arg-type]
    assert not has_colour(terminal, {"TERM": "dumb"})  # type: ignore[arg-type]


HEAVY = {"asyncio", "sqlite3", "ssl", "rich", "bough.api.session.session", "bough.core", "bough.stores.jobs"}


@pytest.mark.parametrize(
    ("name", "may"),
    [
        *((name, set[str]()) for name in ("here", "run", "submit", "describe", "completion")),
        *((name, {"ssl"}) for name in ("take", "done", "remove", "stats", "executor")),
        *((name, {"ssl", "sqlite3", "bough.stores.jobs"}) for name in ("kill", "status", "watch", "log")),
    ],
)
def test_a_command_loads_what_it_needs_and_no_more(name: str, may: set[str]) -> None:
    code = f"import sys; from bough.cli.main import load_command; load_command({name!r}); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not HEAVY.intersection(loaded) - may
