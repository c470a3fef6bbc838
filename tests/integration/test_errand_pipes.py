"""An errand whose process ends before it has read what it is told: what it said counts, and nothing is raised."""

from __future__ import annotations

import uvloop

from bough.sites.head.errands import Said, run

MUCH = bytes(8_000_000)  # more than a pipe takes


def test_a_process_that_reads_nothing_has_said_why() -> None:
    async def several() -> list[Said]:
        words = ["sh", "-c", "exec 0<&-; echo no >&2; echo answer; exit 3"]
        return [await run(words, data, 60.0, "lab") for data in (b"x", MUCH) for _ in range(20)]

    assert set(uvloop.run(several())) == {Said(3, b"answer\n", b"no\n")}


def test_a_process_that_reads_all_of_it_answers() -> None:
    assert uvloop.run(run(["wc", "-c"], MUCH, 60.0, "lab")) == Said(0, b"8000000\n", b"")
