"""The command line as a boundary: what no store can hold is refused in one line, and nothing makes it stumble."""

from __future__ import annotations

import argparse
import io
import os
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_workshop import Workshop

from bough.cli import main as front
from bough.cli.commands.browse import run as browse
from bough.cli.commands.manual import read_id
from bough.cli.output import Text, choose
from bough.cli.targets.locate import ServerLocation, server_of
from bough.errors import UserError
from bough.model.arrays.array_indices import read_indices
from bough.model.bounds import MOST_TASKS
from bough.model.spaces import Ranges
from bough.stores.open import open_jobs

Call = Callable[..., tuple[int, str, str]]
HUGE = ("9223372036854775808", "99999999999999999999", "9" * 5000)


def refused(said: tuple[int, str, str]) -> str:
    code, _, err = said
    assert code == 2, err
    assert err.startswith("bough: ")
    assert err.count("\n") == 1
    return err


# --- numbers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", HUGE)
def test_ids_that_no_store_can_hold_are_refused_by_every_command(bough: Call, filled: Workshop, number: str) -> None:
    for name in ("status", "log", "explain", "kill", "cancel", "hold", "release", "retry", "disable", "reset", "stop"):
        for selector in (number, f"1-{number}", f"4.{number}", f"4.1-{number}", f"{number}.1", f"plot,{number}"):
            assert number[:20] in refused(bough(name, selector))
            assert number[:20] in refused(bough("monitor", selector, "after:1h"))
        assert "--run" in refused(bough(name, "all", "--run", number))
    for name in ("command", "attribute", "done"):
        assert number[:20] in refused(bough(name, number))
        assert number[:20] in refused(bough(name, f"1.{number}"))
    assert number[:20] in refused(bough("here", "alive", "--task", number))
    for verb in ("drain", "stop", "resume"):
        assert "ID" in refused(bough("executor", verb, number))


@pytest.mark.parametrize("text", ["²", "1.²", "٣", "-1", "1.", ".1", "1.2.3", "", "1 "])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is not the id"):
        read_id(text)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--priority", value) for value in (*HUGE, "-9223372036854775809", "1.5", "nan")),
        *(("--retries", value) for value in (*HUGE, "-1", "inf")),
        *(("--cores", value) for value in ("nan", "inf", "-1", "1e400", "x")),
        *(("--gpus", value) for value in ("nan", "-inf")),
    ],
)
def test_options_of_a_submission_are_bounded_before_a_server_is_asked(bough: Call, option: str, value: str) -> None:
    assert option in refused(bough("submit", f"{option}={value}", "--", "true"))


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("server", "start", "--heartbeat", "1e300"), "--heartbeat"),
        (("server", "start", "--overlong", "nan"), "--overlong"),
        (("server", "start", "--pickup", HUGE[0]), "--pickup"),
        (("server", "start", "--metrics", "²"), "²"),
        (("server", "start", "--metrics", "9" * 5000), "HOST:PORT"),
        (("prune", "--older-than", "inf"), "--older-than"),
        (("stats", "--since", "nan"), "--since"),
        (("here", "status", "x", "--progress", "nan"), "--progress"),
        (("run", "--cores", HUGE[2], "x"), "--cores"),
        (("log", "--tail", HUGE[0], "1"), "--tail"),
        (("executor", "start", "--seconds", "inf", "--emulate", "1"), "--seconds"),
        (("submit", "--into", "", "--", "true"), "--into"),
        (("submit", "--name", "", "--", "true"), "--name"),
        (("run", "--name", "", "--", "true"), "--name"),
        (("status", "--name", ""), "--name"),
    ],
)
def test_other_options_are_bounded_too(bough: Call, words: tuple[str, ...], option: str) -> None:
    assert option in refused(bough(*words))


# --- ranges ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["1-9999999999", f"0-{MOST_TASKS}", "1-600000000,700000000-1400000000", "1-4611686018427387904"]
)
def test_a_range_of_too_many_is_refused_at_once(text: str) -> None:
    with pytest.raises(UserError, match=f"at most {MOST_TASKS} tasks"):
        read_indices(text)


@pytest.mark.parametrize("text", [f"1-{HUGE[0]}", f"{HUGE[2]}", f"1-9:{HUGE[1]}"])
def test_a_range_beyond_all_numbers_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--array"):
        read_indices(text)


def test_a_range_of_a_hundred_million_costs_no_list() -> None:
    tracemalloc.start()
    try:
        whole, parts = (Ranges(*read_indices(text)) for text in ("1-100000000", "1-50000000,60000000-109999999:1"))
        assert len(whole) == len(parts) == 100_000_000
        assert (whole[-1], parts[50_000_000], parts[-1]) == (100_000_000, 60_000_000, 109_999_999)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


# --- files ----------------------------------------------------------------------------------------------


def test_what_has_no_end_or_nobody_writes_to_is_not_waited_for(
    bough: Call, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bough.describe.source_files._WRITER", 0.05)
    os.mkfifo("pipe")
    Path("endless.py").symlink_to("/dev/zero")
    for path in ("/dev/zero", "/dev/urandom", "endless.py"):
        assert "a device" in refused(bough("describe", path))
        assert "a device" in refused(bough("submit", "--each-line", path, "--", "echo {line}"))
    assert "no process writes to it" in refused(bough("run", "--dry-run", "pipe"))
    assert refused(bough("status", "--server", "pipe"))
    assert refused(bough("describe", "."))


def test_a_pipe_somebody_writes_to_is_read(bough: Call, workshop: Workshop) -> None:
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: Path("pipe").write_text("echo one\necho two\n"))
    writer.start()
    assert bough("run", "--dry-run", "pipe")[:2] == (0, "echo one\necho two\n")
    writer.join()


@pytest.mark.parametrize("target", ["p/" * 1500, "n" * 5000])
def test_a_path_that_no_file_system_has_is_refused(bough: Call, workshop: Workshop, target: str) -> None:
    assert "TO" in refused(bough("store", "copy", "x", target))
    assert "--store" in refused(bough("status", "--store", target))
    assert "--work" in refused(bough("executor", "start", "--work", target))


@pytest.mark.parametrize(
    "said", ['{"pid": 99999999999999999999}', '{"pid": "x"}', "[" * 5000, "5", '{"pid": -1}', "\xff", '{"pid": 1.5}']
)
def test_a_store_whose_server_file_makes_no_sense_has_no_live_server(workshop: Workshop, said: str) -> None:
    Path("server.json").write_text(said, encoding="latin-1")
    assert server_of(ServerLocation(".", "x")) is None


# --- everything else ------------------------------------------------------------------------------------


def test_an_option_without_a_value_is_no_list(bough: Call, filled: Workshop) -> None:
    assert "--group: -- is no value" in refused(bough("explain", "--group=--"))


def test_words_that_are_not_utf8_are_refused_and_not_ours(bough: Call, filled: Workshop) -> None:
    for words in (
        ("status", "\udcff"),
        ("sql", "select '\udcff'"),
        ("history", "\udcff"),
        ("log", "--name", "a\udc80"),
    ):
        assert refused(bough(*words))


def test_an_error_is_one_line_that_no_terminal_obeys(bough: Call, filled: Workshop) -> None:
    err = refused(bough("status", "a\x1b[31m\r\nb\x9b"))
    assert "\x1b" not in err
    assert "\r" not in err
    assert "\x9b" not in err


def test_the_number_of_a_run_is_bounded(bough: Call, filled: Workshop) -> None:
    assert "the number of the run is 99999999999999999999" in refused(bough("describe", "--run=x:99999999999999999999"))
    with open_jobs(str(filled.home / ".bough" / "wf")) as jobs, pytest.raises(UserError, match="cannot be run"):
        jobs.query("select ?", [2**63])


def test_an_answer_holds_nothing_that_a_terminal_obeys_but_colours(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b]0;title\x07b\x1b[2Jc\x9b31m\r\x7f"
    text = Text()
    text.table(["name"], [[hostile]])
    text.answer({}, lambda: [hostile, "\x1b[31mfailed\x1b[0m\tä\nnext"])
    text.note(f"{hostile}\nfake")
    out, err = capsys.readouterr()
    shown = r"a\x1b]0;title\x07b\x1b[2Jc\x9b31m"
    assert out.startswith(f"name\n{shown}")
    assert shown in err
    assert err.count("\n") == 1
    assert out.endswith("\x1b[31mfailed\x1b[0m\tä\nnext\n")
    assert not set(out.replace("\x1b[31m", "").replace("\x1b[0m", "") + err) & set("\x1b\x07\x9b\r\x7f")


def test_no_memory_is_the_worlds_fault(bough: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> int:
        raise MemoryError

    monkeypatch.setattr("bough.cli.commands.completion.run", run)
    code, _, err = bough("completion", "bash")
    assert code == 3
    assert "Traceback" not in err


def test_a_folder_that_was_removed_is_told(bough: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code, _, err = bough("run", "--", "true")
    monkeypatch.chdir(tmp_path)
    assert (code, err) == (3, "bough: the folder in which you are was removed; go to another one\n")


@pytest.mark.parametrize("said", ["9" * 5000, "99999999999999999999", "0", "-5", "²", "x", "1"])
def test_the_width_of_a_terminal_is_believed_within_reason(
    bough: Call, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv("COLUMNS", said)
    assert bough("status", "--help")[0] == 0


def test_answers_may_hold_what_the_terminal_has_no_letter_for(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    assert front.main(["--version"]) == 0
    print("n\xe4h \udcff")
    sys.stdout.flush()
    assert out.getvalue().endswith(b"n\\xe4h \\udcff\n")


def test_browsing_needs_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(UserError, match="needs a terminal"):
        browse(argparse.Namespace(), choose(json=False, quiet=False))


def test_a_run_of_a_hundred_million_tasks_is_not_unfolded_for_a_file(bough: Call, filled: Workshop) -> None:
    filled.task(5, "ready", name="huge", length=100_000_000, is_array=1)
    assert "at most" in refused(bough("describe", "--run", "wf"))


def test_a_statement_from_stdin_that_is_no_text_is_refused(
    bough: Call, filled: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\x00"), encoding="utf-8"))
    assert "stdin" in refused(bough("sql", "-"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"select 7 as n"), encoding="utf-8"))
    assert "7" in bough("sql", "-")[1]
