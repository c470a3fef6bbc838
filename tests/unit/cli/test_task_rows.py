"""What running tasks say, in tables and lines."""

from __future__ import annotations

from bough.cli.targets.task_rows import add_words, phrase, said_lines


def words(id_: str, text: str = "", progress: float | None = None, name: str = "") -> dict[str, object]:
    record, _, index = id_.partition(".")
    return {
        "id": id_,
        "record": int(record),
        "run": 1,
        "index": int(index or 0),
        "text": text,
        "progress": progress,
        "name": name,
    }


def test_words_and_shares_are_one_phrase() -> None:
    assert phrase(words("1", "reading\nlines", 0.25)) == "reading lines, 25%"
    assert phrase(words("1", progress=1)) == "100%"
    assert len(phrase(words("1", "x" * 500))) == 100


def test_a_line_names_the_task() -> None:
    assert said_lines([words("3.1", "busy", name="plot"), words("4", "idle")]) == [
        "task 3.1 (plot): busy",
        "task 4: idle",
    ]


def test_words_go_into_the_row_of_their_task_or_below_that_of_their_range() -> None:
    rows = [{"id": id_, "run": 1, "record": int(id_.partition(".")[0])} for id_ in ("1", "2.0-4", "2.5", "3", "4.7-9")]
    said = [
        words("1", "one"),
        words("2.3", "range"),
        words("2.5", "element"),
        words("3.8", "array"),
        words("4.6", "no"),
    ]
    more = add_words(rows, said)
    assert [one["id"] for one in more] == ["2.3", "3.8"]
    assert [row["said"] if isinstance(row["said"], str) else bool(row["said"]) for row in rows] == [
        "one",
        True,
        "element",
        True,
        False,
    ]
