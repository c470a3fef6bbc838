"""How soon a server that was killed serves again, with many tasks in its store and two running."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING

import bough
from bough.bench import calls
from bough.bench.services import home, until
from bough.bench.setting import ROUNDS, WORKERS, Setting
from bough.bench.timing import Row, limit_row
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.session import Session

_LIMIT = 3.0


def measure(setting: Setting, count: int = 100_000) -> Iterator[Row]:
    """Half of the tasks are done; as an array and one by one."""
    for kind in ("array", "loose"):
        took = median(_serves_again(setting.folder, kind, count) for _ in range(setting.size(1, ROUNDS)))
        subject = f"killed with {count:,} tasks ({kind}) in the store and {WORKERS} running, until it serves again"
        yield limit_row(subject, took, _LIMIT)


def _serves_again(folder: str, kind: str, count: int) -> float:
    with home(folder) as there:
        there.serve()
        there.execute(WORKERS)
        gate = os.path.join(there.folder, "gate")
        wait = f"until [ -e {gate} ]; do sleep 0.1; done"
        with bough.Session(there.access("submit"), name="far") as far:
            assert list(_submit(far, kind, count // 2)) == list(range(count // 2))
            running = [far.command(wait, name=f"running{number}") for number in range(WORKERS)]
            until(lambda: all(task.running() for task in running))
            rest = _submit(far, kind, count // 2)
            far.ask(questions.Status())  # all of it has arrived
            there.kill()
            begun = time.perf_counter()
            there.serve()
            seconds = time.perf_counter() - begun
            with open(gate, "w"):
                pass
            assert list(rest) == list(range(count // 2))
    return seconds


def _submit(session: Session, kind: str, count: int) -> Iterator[object]:
    fresh = session.options(memo=False)
    if kind == "array":
        return iter(fresh.map(calls.same, range(count)))
    tasks = [fresh.submit(calls.same, number) for number in range(count)]
    return (task.result() for task in tasks)
