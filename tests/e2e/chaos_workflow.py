"""The workflow that the chaos test kills: rounds of commands, functions and arrays that write files.

Every task appends one line to `effects.txt`, in one write: its name and what tells this attempt from all
others. It goes on with another round until there is a file `enough`, and does every round that was begun.
"""

from __future__ import annotations

import os
import random
import sys
import time
import uuid
from pathlib import Path

import bough

TOO_OFTEN = 75  # exit code: a task lost more workers than one forgives; run again
_EFFECT = "printf '%s %s %s\\n' {label} $BOUGH_TASK {attempt} >> effects.txt; sleep {pause}; "
_FIRST = _EFFECT + "printf '%s\\n' {label} > {dst:w}"
_NEXT = _EFFECT + "cat {src:r} > {dst:w}; printf '%s\\n' {label} >> {dst:w}"


def note(label: str, attempt: str) -> None:
    number = os.open("effects.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(number, f"{label} function {attempt}\n".encode())
    os.close(number)


def function(label: str, pause: float, *before: str) -> str:
    """Write a file, and return what tells this attempt from all others."""
    attempt = uuid.uuid4().hex
    note(label, attempt)
    time.sleep(pause)
    part = Path(f"out/{label}.{attempt}.part")
    part.write_text(f"{label} {attempt}\n")
    part.replace(f"out/{label}.txt")
    return attempt


def element(item: tuple[str, float]) -> str:
    return function(*item)


def one_round(session: bough.Session, number: int) -> None:
    """Chains of commands, functions that wait for one another, a map and a sweep."""
    dice = random.Random(number)
    tough = session.options(retries=1000)
    last: list[bough.Task] = []
    for chain in range(3):
        previous = None
        for link in range(4):
            label = f"c{number}-{chain}-{link}"
            pause, dst = f"{dice.uniform(0.01, 0.06):.3f}", f"out/{label}.txt"
            text = _NEXT if previous else _FIRST
            given = {"src": previous} if previous else {}
            previous = session.command(text, retries=1000, name=label, label=label, pause=pause, dst=dst, **given)
        assert previous is not None
        last.append(previous)
    first = tough.options(name=f"f{number}-0").submit(function, f"f{number}-0", dice.uniform(0.01, 0.08))
    second = tough.options(name=f"f{number}-1").submit(function, f"f{number}-1", dice.uniform(0.01, 0.08), first)
    items = [(f"m{number}-{index}", dice.uniform(0.002, 0.02)) for index in range(24)]
    mapped = tough.options(name=f"m{number}", after=[second]).map(element, items)
    swept = session.sweep(
        _FIRST,
        bough.tie(label=[f"s{number}-{index}" for index in range(8)]),
        pause="0.02",
        dst="out/{label}.txt",
        retries=1000,
        name=f"s{number}",
    )
    tasks = [*last, second, *(mapped[index] for index in range(len(mapped))), *swept]
    errors = [error for task in tasks if (error := task.exception()) is not None]
    for error in errors:
        print(f"round {number}: {error}", file=sys.stderr)
    if errors:
        lost = all("died" in str(error) or "lost" in str(error) for error in errors)
        raise SystemExit(TOO_OFTEN if lost else 1)


def main() -> None:
    # A run that was killed is resumed; what one that ended well has done is found only by who asks for it.
    with bough.Session(cores=2, reuse="always" if os.path.exists("finished") else "resume") as session:
        number = 0
        while os.path.exists(f"rounds/{number}") or not os.path.exists("enough"):
            Path(f"rounds/{number}").touch()
            one_round(session, number)
            number += 1
    Path("finished").touch()


main()
