"""The live display: what it draws, what it prints, and that it prints a failure once."""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Callable

import pytest

from bough.api.display.progress_display import (
    Display,
    FailureNote,
    Picture,
    PlainDisplay,
    RichDisplay,
    choose_display,
    draw,
    summary,
    with_parents,
)


class FakeRun:
    """Something to look at, that a test moves on by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.counts: dict[str, dict[str, int]] = {"": {"waiting": 3}}
        self.failures: list[FailureNote] = []
        self.looks = 0

    def picture(self) -> Picture:
        self.looks += 1
        return Picture(with_parents(self.counts.items()), seconds=self.seconds, rate=2.0, title="wf")

    def new_failures(self) -> list[FailureNote]:
        found, self.failures = self.failures, []
        return found


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def a_failure(number: int = 1) -> FailureNote:
    return FailureNote(f"task {number} (plot)", f"task {number} (plot): exit code 3", host="here", stderr="a\nb\n")


def test_counts_of_groups_go_up_to_the_workflow() -> None:
    groups = with_parents([("", {"done": 1}), ("a", {"done": 2}), ("a/b", {"failed": 1})])
    assert groups == {"": Counter(done=3, failed=1), "a": Counter(done=2, failed=1), "a/b": Counter(failed=1)}


def test_a_picture_knows_how_long_it_will_take() -> None:
    picture = Picture({"": Counter(done=6, waiting=4)}, rate=2.0)
    assert (picture.total, picture.ended, picture.remaining) == (10, 6, 2.0)
    assert Picture({"": Counter(waiting=4)}).remaining is None
    assert Picture({"": Counter(done=4)}).remaining == 0.0


def test_the_last_line_says_all_that_counts() -> None:
    assert (
        summary({"done": 12, "failed": 1, "skipped": 3}, 5, "3.2 s")
        == "12 done, 1 failed, 3 skipped, 5 reused in 3.2 s"
    )
    assert summary({"done": 0}, 0, "0.10 s") == "nothing to do"
    assert summary({"done": 1, "waiting": 2, "cancelled": 1}, 0, "1 s") == "1 done, 1 cancelled, 2 left in 1 s"


def test_plain_lines_come_seldom_and_only_when_something_changed() -> None:
    run, stream = FakeRun(), io.StringIO()
    display = PlainDisplay(run, stream)
    for run.seconds in (1.0, 5.0, 6.0, 11.0):
        display.look(run.picture())
    run.counts = {"": {"waiting": 1, "done": 2}}
    for run.seconds in (12.0, 13.0):
        display.look(run.picture())
    assert stream.getvalue() == "5.0 s: 3 waiting, 2.0 tasks/s\n12.0 s: 1 waiting, 2 done, 2.0 tasks/s\n"


def test_a_failure_is_printed_at_once_with_its_last_lines_and_only_once() -> None:
    run, stream = FakeRun(), io.StringIO()
    with PlainDisplay(run, stream):
        run.failures = [a_failure()]
        until(lambda: "    b" in stream.getvalue())
        looks = run.looks
        until(lambda: run.looks > looks + 1)
    assert stream.getvalue() == "task 1 (plot): exit code 3 on here\n    a\n    b\n"


def test_failures_of_the_last_moment_are_told_too() -> None:
    run, stream = FakeRun(), io.StringIO()
    with PlainDisplay(run, stream):
        run.failures = [a_failure()]
    assert "exit code 3" in stream.getvalue()


def test_of_very_many_failures_the_first_are_told() -> None:
    run, stream = FakeRun(), io.StringIO()
    run.failures = [a_failure(number) for number in range(1000)]
    with PlainDisplay(run, stream):
        pass
    lines = stream.getvalue().splitlines()
    assert sum("exit code 3" in line for line in lines) == 50
    assert lines[-1] == "further failures are only counted; see bough status --failed"


def test_the_live_picture_shows_groups_counts_bar_and_rate() -> None:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=100, record=True)
    groups = with_parents([("", {"done": 1}), ("align", {"running": 2, "waiting": 5}), ("align/sub", {"failed": 1})])
    console.print(draw(Picture(groups, running=("a", "b"), seconds=3.2, rate=4.0, title="wf"), console))
    text = console.export_text()
    assert "wf" in text
    assert "  align" in text
    assert "    sub" in text
    assert "2 running" in text
    assert "2/9, 3.2 s, 4.0 tasks/s, about 1.8 s left" in text
    assert "running: a, b" in text


def test_the_live_display_prints_failures_above_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    run, stream = FakeRun(), Terminal()
    with RichDisplay(run, stream, colour=False):
        run.failures = [a_failure()]
        until(lambda: "exit code 3" in stream.getvalue())
        until(lambda: "0/3" in stream.getvalue())


def test_the_display_fits_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    run = FakeRun()
    assert type(choose_display(run, silent=True, stream=Terminal())) is Display
    assert type(choose_display(run, silent=False, stream=Terminal())) is RichDisplay
    assert type(choose_display(run, silent=False, stream=io.StringIO())) is PlainDisplay
    monkeypatch.setenv("TERM", "dumb")
    assert type(choose_display(run, silent=False, stream=Terminal())) is PlainDisplay
