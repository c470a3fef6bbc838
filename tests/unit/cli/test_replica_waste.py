"""What replicas cost: the formulas of `spec/storage-affinity.md` 4.8 over the tables of the jobs database."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from bough.cli.replica_waste import replica_waste
from bough.stores import schema


class Tables:
    """Two tasks of one core that ran for 10 s each; one had a second attempt, which was ended after 5 s."""

    def __init__(self, *staging: tuple[int, int, int, int, int, int]) -> None:
        """Rows of staging: task, attempt, and bytes that were cached, from peers, from the server and from a store."""
        self._made = sqlite3.connect(":memory:")
        self._made.row_factory = sqlite3.Row
        self._made.executescript(schema.TABLES)
        for task in (1, 2):
            self._made.execute(
                "insert into tasks(id, run, cores, seconds, done, reused) values (?, 7, 1, 10, 1, 0)", [task]
            )
        rows = [(1, 1, 1, "done", 0, 10), (2, 1, 1, "superseded", 0, 5), (2, 2, 2, "done", 2, 12)]
        self._made.executemany(
            "insert into attempts(id, idx, attempt, span, state, started, ended) values (?, 0, ?, ?, ?, ?, ?)", rows
        )
        self._made.executemany(
            "insert into staging(id, attempt, cached, from_peers, from_origin, from_shared, idx)"
            " values (?, ?, ?, ?, ?, ?, 0)",
            staging,
        )

    def rows(self, text: str, values: list[Any]) -> list[dict[str, Any]]:
        return [dict(row) for row in self._made.execute(text, values)]

    def close(self) -> None:
        self._made.close()


def waste(*staging: tuple[int, int, int, int, int, int]) -> dict[str, Any]:
    tables = Tables(*staging)
    found = replica_waste(tables, 7)  # type: ignore[arg-type]
    tables.close()
    assert found is not None
    return dict(found)


def test_cpu_waste_is_the_time_of_ended_attempts_for_that_of_winning_ones() -> None:
    said = waste()
    assert (said["superseded"], said["core_seconds"], said["useful_core_seconds"]) == (1, 5.0, 20.0)
    assert said["cpu_waste"] == pytest.approx(100 * 5 / 20)


@pytest.mark.parametrize(("stage_in", "started", "seconds"), [(3.0, 0, 2.0), (5.5, 0, 0.0), (None, None, 0.0)])
def test_an_attempt_that_waits_for_its_inputs_or_has_not_begun_takes_no_cpu(
    stage_in: float | None, started: float | None, seconds: float
) -> None:
    tables = Tables((2, 1, 0, 7, 8, 0))
    tables._made.execute("update staging set stage_in = ?", [stage_in])
    tables._made.execute("update attempts set started = ? where state = 'superseded'", [started])
    said = replica_waste(tables, 7)  # type: ignore[arg-type]
    tables.close()
    assert said is not None
    assert (said["superseded"], said["core_seconds"], said["bytes"]) == (1, seconds, 15)


def test_network_waste_is_what_moved_for_ended_attempts_for_all_input_wherever_that_came_from() -> None:
    said = waste((1, 1, 10, 20, 30, 40), (2, 1, 500, 7, 8, 500), (2, 2, 0, 0, 0, 100))
    assert (said["bytes"], said["input_bytes"]) == (7 + 8, 10 + 20 + 30 + 40 + 100)
    assert said["network_waste"] == pytest.approx(100 * 15 / 200)


def test_a_store_that_knows_nothing_of_shared_stores_counts_what_it_knows() -> None:
    tables = Tables((1, 1, 10, 0, 0, 0), (2, 1, 0, 0, 5, 0))
    tables._made.execute("update staging set from_shared = null")
    said = replica_waste(tables, 7)  # type: ignore[arg-type]
    tables.close()
    assert said is not None
    assert (said["bytes"], said["input_bytes"]) == (5, 10)
