"""The workflow of the service's store: submitted and left by `make.py`, joined and collected by the test.

Do not change it: what it asks for must be what the store has. `served.py ADDRESS leave` submits all of it, waits for
its first part and leaves; `served.py ADDRESS` joins it, collects it and says what it got in `seen.json`. The
environment of executors names the file where each task that ends adds a line, and a file without which the second
part does not begin. No task needs the directory that all of it was submitted from: it is gone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import bough
from bough import driver

BIG = 400_000  # bytes of a result that gets a file of its own
RAN = "FORMER_RAN"  # names the file where tasks say that they ran
GO = "FORMER_GO"  # names the file that the second part waits for
LONGEST = 60.0  # seconds; an orphan ends


class Unlucky(Exception):
    """An exception of the script's own."""


def note(word: str) -> None:
    """Say that a task ran."""
    with open(os.environ[RAN], "a", encoding="utf-8") as file:
        file.write(f"{word}\n")


def small(x: int) -> int:
    note("small")
    return x * x


def big(size: int) -> bytes:
    note("big")
    return b"b" * size


def unlucky() -> None:
    note("unlucky")
    raise Unlucky(7)


def never() -> None:
    note("never")


def triple(x: int) -> int:
    note("triple")
    return 3 * x


def gate() -> str:
    deadline = time.monotonic() + LONGEST
    while not os.path.exists(os.environ[GO]):
        if time.monotonic() > deadline:
            raise TimeoutError("nobody opened the gate")
        time.sleep(0.05)
    note("gate")
    return "open"


def total(square: int, data: bytes, values: list[int]) -> int:
    note("total")
    return square + len(data) + sum(values)


def read(done: bough.Completed) -> list[Any]:
    note("read")
    return [done.args, done.returncode]


def negative(x: int) -> int:
    note("negative")
    return -x


def half(x: int) -> float:
    note("half")
    return x / 2


def numbers() -> Iterator[int]:
    yield from range(15)


def ran(word: str) -> str:
    """The text of a command that says that it ran."""
    return f'echo {word} >> "$FORMER_RAN"'


def main(address: str, leaves: bool) -> None:
    session = bough.Session(address, name="nightly")
    s = session.options()
    # --- done when the server is killed ---
    square = s.options(name="small").submit(small, 12)
    data = s.options(name="big").submit(big, BIG)
    told = session.command(f"{ran('told')}; echo the text", name="told")
    bad = s.options(name="unlucky").submit(unlucky)
    skipped = s.options(name="skipped", after=[bad]).submit(never)
    triples = s.options(name="triples").map(triple, range(10))
    # --- not begun, but for the first, which occupies the only core ---
    opened = s.options(name="gate").submit(gate)
    behind = {
        "total": s.options(name="total").submit(total, square, data, triples),
        "read": s.options(name="read").submit(read, told),
        "after": session.command(f"{ran('after')}; echo after", name="after", after=[opened]),
    }
    negatives = s.options(name="negatives", after=[opened]).map(negative, range(30))
    swept = session.sweep(
        f"{ran('swept')}; echo {{i}}{{j}}",
        bough.product(i=[1, 2, 3], j=["a", "b"]),
        where=lambda i, j: (i, j) != (2, "a"),
        name="swept",
        after=[opened],
    )
    with session.group("late", after=[opened]), session.group("inner", pipeline=True):
        first = session.command(f"{ran('first')}; echo 1", name="first")
        second = session.command(f"{ran('second')}; echo 2", name="second")
    if leaves:  # these are found, not joined: a feed and a driver's jobs are new at each call
        session.feed(half, numbers(), name="halves")
        jobs = driver.Driver(session)
        jobs.create_pipeline("chain", 3)
        for stage in (f"{ran('stage')}; echo one", f"{ran('stage')}; echo two; exit 9", ran("never")):
            jobs.exec_async(stage, group="chain", cwd="/")
        first_part = [square, data, told, bad, skipped, *triples.tasks()]
        while jobs.submissions == 0 or not all(task.done() for task in first_part):
            time.sleep(0.02)
        session.detach()
        return
    [chain] = session.find("pipeline").results()
    seen: dict[str, Any] = {
        "joined": session.is_joined,
        "small": square.result(),
        "big": [len(data.result()), data.result() == b"b" * BIG],
        "told": told.result().stdout,
        "triples": triples.results(),
        "gate": opened.result(),
        "total": behind["total"].result(),
        "read": behind["read"].result(),
        "after": behind["after"].result().stdout,
        "negatives": negatives.results(),
        "swept": [done.stdout for done in swept.results()],
        "halves": session.find("halves").results(),
        "late": [first.result().stdout, second.result().stdout],
        "chain": [[code, stdout.decode()] for code, stdout, *_ in chain],
        "unlucky": [type(bad.exception()).__name__, "Traceback" in str(bad.exception().__cause__)],
        "skipped": type(skipped.exception()).__name__,
    }
    with open("seen.json", "w", encoding="utf-8") as file:
        json.dump(seen, file, indent=1)
    session.unretrieved()
    session.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], leaves=sys.argv[2:] == ["leave"])
