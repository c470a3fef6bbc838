"""Lines of tasks: whole, named, bounded."""

from __future__ import annotations

from bough.api.display.output_lines import LONGEST, TaskLines, label_of_output


def test_lines_are_whole_and_those_of_different_tasks_are_apart() -> None:
    lines = TaskLines()
    assert list(lines.add(1, "a", b"one\ntw")) == ["a | one"]
    assert list(lines.add(2, "b", b"other")) == []
    assert list(lines.add(1, "a", b"o\n\n")) == ["a | two", "a | "]
    assert list(lines.end(1, "a")) == []
    assert list(lines.end(2, "b")) == ["b | other"]
    assert list(lines.end(2, "b")) == []


def test_what_has_no_end_is_cut_and_what_is_no_text_is_shown_all_the_same() -> None:
    lines = TaskLines()
    assert list(lines.add(1, "a", b"x" * (2 * LONGEST + 1))) == [f"a | {'x' * LONGEST}"] * 2
    assert list(lines.end(1, "a")) == ["a | x"]
    assert list(lines.add(1, "a", b"\xff\n10%\r20%\r\n")) == ["a | \ufffd", "a | 20%"]


def test_a_label_has_the_attempt_of_a_retry() -> None:
    assert label_of_output("plot", "12.3", 1) == "plot 12.3"
    assert label_of_output("", "12", 1) == "12"
    assert label_of_output("plot", "12", 2) == "plot 12 (attempt 2)"
