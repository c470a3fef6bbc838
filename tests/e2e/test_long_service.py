"""A service that lives long, in short; `long_service.py` is the whole of it."""

from __future__ import annotations

import os

from long_service import MOST, drive, site

WORKFLOWS, TASKS = 200, 500
ROOMY = 2.0  # times the memory of the first tenth: caches fill in so short a time
FOOTPRINT = 3 << 20  # bytes of a store that has nothing in it


def test_memory_and_disk_follow_what_is_unfinished() -> None:
    with site(2, "--keep", "1s") as made:
        seen = drive(made, WORKFLOWS, TASKS)

        def sample() -> dict[str, int]:
            return made.ask("statistics", seconds=1)[-1]

        assert seen[-1].resident < ROOMY * seen[0].resident
        made.until(lambda: sample()["workflows"] == sample()["records"] == 0)
        made.until(lambda: made.disk < FOOTPRINT)
        made.restart()
        assert made.resident < MOST * seen[0].resident
        assert os.path.getsize(made.store / "numbers") < 100 * WORKFLOWS


def test_memory_follows_what_is_unfinished_also_if_nothing_is_removed() -> None:
    with site(2) as made:
        seen = drive(made, WORKFLOWS, TASKS)
        made.until(lambda: made.ask("statistics", seconds=1)[-1]["workflows"] <= 20)
        made.ask("project")
        assert made.ask("sql", statement="select count(*) from runs where closed is not null")["rows"] == [[WORKFLOWS]]
        assert seen[-1].resident < ROOMY * seen[0].resident
        made.restart()
        assert made.resident < MOST * seen[0].resident
