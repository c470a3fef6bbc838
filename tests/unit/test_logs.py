"""The log: what a line looks like, which lines are written, and that the page about them names every event."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bough import logs

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "bough"
PAGE = ROOT / "docs" / "reference" / "log.md"
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (\w+) ([\w-]+): (.*)")


class Log:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._text = ""

    def getvalue(self) -> str:
        self._text += self._capsys.readouterr().err
        return self._text


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Log]:
    monkeypatch.setattr(logs, "_level", logs.INFO)
    logs._known.clear()
    yield Log(capsys)
    logs._known.clear()


def _lines(log: Log) -> list[tuple[str, ...]]:
    found = [LINE.fullmatch(line) for line in log.getvalue().splitlines()]
    return [match.groups() for match in found if match is not None]


def test_a_line_has_time_level_event_and_sentence(log: Log) -> None:
    logs.info("executor-joined", "executor 3 joined: local")
    logs.warning("executor-lost", "executor 3 disconnected")
    assert _lines(log) == [
        ("info", "executor-joined", "executor 3 joined: local"),
        ("warning", "executor-lost", "executor 3 disconnected"),
    ]


@pytest.mark.parametrize(("level", "shown"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_lines_below_the_level_are_not_written(log: Log, level: str, shown: int) -> None:
    logs.set_level(level)
    for say in (logs.debug, logs.info, logs.warning, logs.error):
        say("event", f"a {say.__name__}")
    assert len(_lines(log)) == shown
    assert [logs.is_on(number) for number in logs.LEVELS.values()].count(True) == shown


def test_a_level_that_is_not_there_is_refused(log: Log) -> None:
    with pytest.raises(ValueError, match="there are: debug, info, warning, error"):
        logs.set_level("loud")


def test_a_line_that_comes_again_is_counted(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(logs.time, "monotonic", lambda: now)
    for _ in range(1000):
        logs.error("disk-full", "the disk is full")
    logs.info("other", "something else")
    assert _lines(log) == [("error", "disk-full", "the disk is full"), ("info", "other", "something else")]
    now += 61
    logs.info("third", "later")
    assert _lines(log)[2:] == [
        ("error", "disk-full", "the disk is full (999 more of these)"),
        ("info", "third", "later"),
    ]
    logs.error("disk-full", "the disk is full")
    assert _lines(log)[-1] == ("error", "disk-full", "the disk is full")


def test_what_was_counted_is_said_before_a_process_ends(log: Log) -> None:
    logs.info("event", "text")
    logs.info("event", "text")
    logs.flush()
    logs.flush()
    assert [sentence for _, _, sentence in _lines(log)] == ["text", "text (1 more of these)"]


def test_what_is_known_of_lines_stays_small(log: Log) -> None:
    for number in range(2000):
        logs.info("event", str(number))
    assert len(logs._known) <= logs._MOST_KNOWN
    assert len(_lines(log)) == 2000


def test_a_text_of_several_lines_is_one_event(log: Log) -> None:
    logs.error("handler-failed", "a message\nTraceback\n2026-01-01 00:00:00 info forged: line\r\x1b[2Jx\n")
    assert len(_lines(log)) == 1
    assert log.getvalue().splitlines()[1:] == [
        "    Traceback",
        "    2026-01-01 00:00:00 info forged: line",
        "    \\x1b[2Jx",
    ]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("closed file")])
def test_a_log_that_cannot_be_written_ends_nothing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise error

    monkeypatch.setattr(sys, "stderr", Full())
    logs.error("event", "not written")
    monkeypatch.setattr(sys, "stderr", None)
    logs.error("event", "not written either")
    logs._known.clear()


def test_a_reporter_logs_texts_as_one_event(log: Log) -> None:
    logs.reporter("peer-refused", logs.WARNING)("a connection was refused")
    logs.reporter("unseen", logs.DEBUG)("not written")
    assert _lines(log) == [("warning", "peer-refused", "a connection was refused")]


def test_the_sentence_of_a_line_is_found_again() -> None:
    line = logs.line(logs.ERROR, "executor-refused", "refused by the server: the token is wrong")
    assert logs.message_of(line.rstrip()) == "refused by the server: the token is wrong"
    for text in ("bough: no such file", "ModuleNotFoundError: x", "", "one: two: three"):
        assert logs.message_of(text) == text


@pytest.mark.parametrize(("variable", "level"), [("", logs.INFO), ("debug", logs.DEBUG), ("loud", logs.INFO)])
def test_the_level_comes_from_the_environment(variable: str, level: int) -> None:
    code = "from bough import logs; print(logs._level)"
    run = subprocess.run(
        [sys.executable, "-c", code], env={"BOUGH_LOG": variable}, capture_output=True, text=True, check=True
    )
    assert int(run.stdout) == level


def test_the_log_loads_next_to_nothing() -> None:
    code = "import sys, typing, bough; b = set(sys.modules); import bough.logs; print(*sorted(set(sys.modules) - b))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["bough.logs"]


def _calls() -> Iterator[tuple[str, str, str]]:
    """Level, event and module of every call that logs something."""
    levels = {"DEBUG": "debug", "INFO": "info", "WARNING": "warning", "ERROR": "error"}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "logs"):
                continue
            name, words = node.func.attr, list(node.args)
            if name in logs.LEVELS:
                level = name
            elif name == "reporter":
                level = levels[words[1].attr] if len(words) > 1 and isinstance(words[1], ast.Attribute) else "info"
            elif name == "line":
                first = words.pop(0)
                assert isinstance(first, ast.Attribute)
                level = levels[first.attr]
            else:
                continue
            assert isinstance(words[0], ast.Constant), f"{path}:{node.lineno}: the event is not a plain text"
            yield level, str(words[0].value), path.relative_to(SOURCE).parts[0]


def test_the_page_names_every_event_with_its_level_and_process() -> None:
    said = set(re.findall(r"^\| `([\w-]+)` \| (\w+) \| ([\w, ]+) \| \S.* \|$", PAGE.read_text(), re.MULTILINE))
    made: dict[tuple[str, str], set[str]] = {}
    for level, event, package in _calls():
        made.setdefault((event, level), set()).add("executor" if package == "testing" else package)
    assert said == {(event, level, ", ".join(sorted(where))) for (event, level), where in made.items()}


def test_the_events_of_the_page_are_in_order_and_once() -> None:
    events = re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text().split("## Events")[1], re.MULTILINE)
    assert events == sorted(set(events))


def test_nothing_else_writes_the_log_of_a_process() -> None:
    texts = {path: path.read_text() for name in ("server", "relay") for path in (SOURCE / name).rglob("*.py")}
    assert [path for path, text in texts.items() if "sys.stderr.write" in text or "import logging" in text] == []


def _run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bough.cli.main", *words]
    variables = {"BOUGH_HOME": "", "PATH": "", **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("command", ["server", "relay", "executor"])
def test_a_wrong_level_is_refused_before_anything_starts(command: str, tmp_path: Path) -> None:
    run = _run(command, "start", BOUGH_LOG="loud", BOUGH_HOME=str(tmp_path), BOUGH_SERVER="unix:/nowhere")
    assert run.returncode == 2
    assert "$BOUGH_LOG is 'loud'; there are: debug, info, warning, error" in run.stderr
    run = _run(command, "start", "--log-level", "loud", BOUGH_HOME=str(tmp_path))
    assert run.returncode == 2
    assert "--log-level" in run.stderr
