"""What monitors saw, in `bough explain`, `bough log --monitors` and the lines of running tasks."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from cli_workshop import Workshop

from bough.cli.targets.task_rows import phrase

Call = Callable[..., tuple[int, str, str]]
FIRED = {"id": 1, "idx": 0, "attempt": 1, "turn": 5, "at": 111.0, "monitor": "plateau", "step": 0, "kind": "plateau"}


@pytest.fixture
def watched(filled: Workshop) -> Workshop:
    """Task 1 was ended by a monitor in its second attempt, element 4.6 runs with a metric."""
    insert = filled.insert
    reason = {"reason": "std 0.00007 < 0.0001", "value": 0.00007, "seen": 143, "total": 300}
    insert("firings", **FIRED | {"n": 2, "action": "restart", "reason": "silent for 60 s"})
    insert("firings", **FIRED | reason | {"n": 3, "attempt": 2, "action": "finish"})
    insert("firings", **FIRED | {"n": 4, "attempt": 2, "action": "tag", "name": "warm", "monitor": "hot"})
    insert("firings", **FIRED | {"n": 5, "attempt": 2, "action": "emit", "name": "best", "text": "-33.1"})
    insert("firings", **FIRED | {"n": 6, "attempt": 2, "action": "trouble", "monitor": "mine", "reason": "it raised"})
    for step, value in ((1, -3.5), (2, -4.0), (3, -3.75)):
        series = {"metric": "score", "turn": 5, "n": step, "attempt": 1, "step": step, "at": 110.0, "value": value}
        insert("series", id=4, idx=6, total=300, **series)
    return filled


def test_explain_says_what_ended_a_task_and_what_else_was_seen(watched: Workshop, bough: Call) -> None:
    code, out, _ = bough("explain", "1")
    assert code == 0
    assert out.splitlines()[-5:] == [
        "attempt 1: ended by plateau: silent for 60 s, to be started again",
        "attempt 2: ended by plateau after 143 of 300 values: std 0.00007 < 0.0001",
        "attempt 2: tags: warm",
        "attempt 2: emitted best: -33.1",
        "attempt 2: the monitor mine has trouble: it raised",
    ]
    _, out, _ = bough("explain", "4.6")
    assert "score: -3.75 at step 3 of 300, lowest -4, highest -3.5" in out.splitlines()
    _, out, _ = bough("explain", "2")
    assert "ended by" not in out


def test_explain_has_it_all_for_programs(watched: Workshop, bough: Call) -> None:
    _, out, _ = bough("explain", "1", "--json")
    ((first, second),) = [one["seen"] for one in json.loads(out)]
    assert (first["attempt"], first["fired"][0]["action"], second["tags"]) == (1, "restart", ["warm"])
    assert second["troubles"] == [{"at": 111.0, "monitor": "mine", "message": "it raised"}]
    assert second["fired"][0]["count"] == 143


def test_log_tells_what_was_seen_in_order(watched: Workshop, bough: Call) -> None:
    _, out, _ = bough("log", "1", "--monitors")
    assert [line.split(" ", 2)[2] for line in out.splitlines()] == [
        "1 attempt 1 plateau: restart: silent for 60 s",
        "1 attempt 2 plateau: finish: std 0.00007 < 0.0001",
        "1 attempt 2 hot: tag warm",
        "1 attempt 2 plateau: emit best",
        "1 attempt 2 mine: trouble: it raised",
    ]
    _, out, _ = bough("log", "4", "--monitors", "--tail", "1")
    assert [line.split(" ", 2)[2] for line in out.splitlines()] == ["4.6 attempt 1 score -3.75 at step 3"]
    _, out, _ = bough("log", "4", "--monitors", "--json")
    (found,) = json.loads(out)
    assert found["id"] == "4.6"
    assert found["seen"][0]["metrics"]["score"]["total"] == 300
    _, out, _ = bough("log", "2", "--monitors")
    assert "nothing was seen" in out


def test_a_store_of_an_earlier_version_has_seen_nothing(filled: Workshop, bough: Call) -> None:
    filled.change("DROP TABLE firings")
    code, out, _ = bough("explain", "1")
    assert (code, "first" in out) == (0, True)


def test_metrics_and_tags_are_in_the_phrase_of_a_running_task() -> None:
    metric = {"step": 3, "value": -3.75, "total": 300, "recent": [-3.5, -4.0, -3.75]}
    one = {"id": "4.6", "text": "", "progress": 0.01, "metrics": {"score": metric}, "tags": ["warm"]}
    assert phrase(one) == "1%, score -3.75, #warm"
    assert phrase(one, 16) == "1%, score -3.75 █▁▅, #warm"
