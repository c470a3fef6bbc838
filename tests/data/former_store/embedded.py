"""The workflow of the embedded store: run by `make.py` once, and by the test again on the store that it left.

Do not change it: what it asks for must be what the store has. It says what it got in `seen.json`, and each task
that runs adds a line to `ran.txt`. Without a file `go` its last task does not end, so that the run can be killed.
All paths begin with `/proc/self/cwd`: stores hold absolute paths, and this one is right wherever they are unpacked.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
from collections.abc import Iterator
from typing import Any

import bough
from bough import driver

HERE = "/proc/self/cwd"  # every process of an embedded session is in the directory of its script
BIG = 400_000  # bytes of a result that gets a file of its own


class Unlucky(Exception):
    """An exception of the script's own."""

    def __init__(self, number: int, colour: str) -> None:
        super().__init__(number, colour)
        self.number = number
        self.colour = colour


@dataclasses.dataclass(frozen=True)
class Point:
    """A class of the script's own."""

    x: int
    y: int


def note(word: str) -> None:
    """Say that a task ran."""
    with open("ran.txt", "a", encoding="utf-8") as file:
        file.write(f"{word}\n")


def small(x: int) -> int:
    note("small")
    print("squaring", x)
    return x * x


def big(size: int) -> bytes:
    note("big")
    return b"b" * size


def length(data: bytes) -> int:
    note("length")
    return len(data)


def mirror(point: Point) -> Point:
    note("mirror")
    return Point(point.y, point.x)


def unlucky(number: int) -> None:
    note("unlucky")
    raise Unlucky(number, "green")


def wrong(text: str) -> None:
    note("wrong")
    raise ValueError(f"no such colour: {text}")


def of_ours() -> None:
    note("of_ours")
    raise bough.UserError("raised in a task")


def never(value: object) -> object:
    note("never")
    return value


def read(done: bough.Completed, mark: str) -> list[Any]:
    note("read")
    return [mark, done.args, done.returncode, done.stdout, sorted(done.outputs)]


def same(done: bough.Completed) -> bough.Completed:
    note("same")
    return done


def read_all(done: list[bough.Completed]) -> list[str]:
    note("read_all")
    return [one.stdout for one in done]


def triple(x: int) -> int:
    note("triple")
    if x == 13:
        raise Unlucky(x, "red")
    return 3 * x


def half(x: int) -> float:
    note("half")
    return x / 2


def numbers() -> Iterator[int]:
    yield from range(25)


def shown(error: BaseException | None) -> list[Any]:
    """An exception, with whether it carries the traceback of its task."""
    return [type(error).__name__, [str(arg) for arg in getattr(error, "args", ())], "Traceback" in str(error.__cause__)]


def content(done: bough.Completed) -> str:
    """What a command wrote to its declared output."""
    with open(done.outputs["o"], encoding="utf-8") as file:
        return file.read()


def main() -> None:
    with bough.Session(name="former", store=f"{HERE}/.bough/former", cores=2) as s:
        values = {
            "small": s.options(name="small").submit(small, 12),
            "big": s.options(name="big").submit(big, BIG),
            "mirror": s.options(name="mirror").submit(mirror, Point(1, 2)),
            "argument": s.options(name="argument").submit(length, b"a" * BIG),
        }
        values["length"] = s.options(name="length").submit(length, values["big"])
        errors = {
            "unlucky": s.options(name="unlucky").submit(unlucky, 7),
            "wrong": s.options(name="wrong").submit(wrong, "loud"),
            "of_ours": s.options(name="of_ours").submit(of_ours),
        }
        bad_end = s.command("echo exit >> ran.txt; echo sorry >&2; exit 3", cwd=HERE, name="exit")
        mapped = s.options(name="triples").map(triple, range(40))
        fed = s.feed(half, numbers(), name="halves")
        # whole seconds: an archive keeps no others, and a file of another time is another file
        made = s.sweep(
            "echo made >> ran.txt; echo {i} and {j} > {o:w}; touch -d @1000000000 {o:w}; echo made {i}",
            bough.product(i=[1, 2, 3], j=["a", "b"]),
            where=lambda i, j: (i, j) != (2, "a"),
            o="out/{i}.{j}.txt",
            cwd=HERE,
            name="made",
        )
        told = s.command("echo told >> ran.txt; echo the text", cwd=HERE, name="told")
        joined = s.command(
            "echo joined >> ran.txt; cat {x:r} {y:r} > {o:w}; touch -d @1000000000 {o:w}",
            x=made[0].outputs["o"],
            y=made[4].outputs["o"],
            o="out/joined.txt",
            cwd=HERE,
            name="joined",
        )
        values["read"] = s.options(name="read").submit(read, told, mark="m")
        values["read_joined"] = s.options(name="read_joined").submit(read, joined, "j")
        values["read_all"] = s.options(name="read_all").submit(read_all, made)
        completed = s.options(name="same").submit(same, told)
        with s.group("outer", attributes={"colour": "blue"}) as outer:
            outer.prologue("echo prologue >> ran.txt", cwd=HERE)
            with s.group("broken"):
                bad = s.command("echo bad >> ran.txt; exit 4", cwd=HERE, name="bad")
                skipped = [s.options(name="skipped", after=[bad]).submit(never, 1)]
                skipped.append(s.options(name="skipped-too").submit(never, skipped[0]))
            with s.group("whole", pipeline=True):
                s.command("echo first >> ran.txt", cwd=HERE, name="first")
                s.command("echo second >> ran.txt", cwd=HERE, name="second")
            outer.epilogue("echo epilogue >> ran.txt", cwd=HERE, final=True)
        jobs = driver.Driver(s)
        jobs.create_pipeline("chain", 3)
        stages = ["echo data > chain.txt", "cat chain.txt; exit 9", "echo never"]
        keys = [jobs.exec_async(stage, group="chain", cwd=HERE) for stage in stages]

        seen: dict[str, Any] = {name: task.result() for name, task in values.items()}
        seen["big"] = [len(seen["big"]), seen["big"] == b"b" * BIG]
        seen["mirror"] = [type(seen["mirror"]) is Point, dataclasses.astuple(seen["mirror"])]
        seen["errors"] = {name: shown(task.exception()) for name, task in errors.items()}
        ended = bad_end.exception()
        assert isinstance(ended, bough.TaskFailed)
        seen["exit"] = [ended.returncode, ended.stderr.strip()]
        seen["unlucky"] = getattr(errors["unlucky"].exception(), "colour", None)
        results = mapped.results(errors="return")
        seen["triples"] = [one if isinstance(one, int) else shown(one) for one in results]
        seen["halves"] = fed.results()
        seen["made"] = [[one.stdout, content(one)] for one in made.results()]
        seen["joined"] = content(joined.result())
        seen["same"] = [completed.result().args, completed.result().stdout, type(completed.result()) is bough.Completed]
        seen["skipped"] = [type(task.exception()).__name__ for task in (*skipped, bad)]
        jobs.wait_all()
        ends = [jobs.result(key) for key in keys]
        seen["chain"] = [[end.exit_code, end.stdout] for end in ends]
        outer.wait()
        seen["reused"] = collections.Counter(task.name for task in s.tasks() if task.reused)
        cut = s.command("until [ -e go ]; do sleep 0.05; done; echo cut >> ran.txt", cwd=HERE, name="cut")
        with open("seen.part", "w", encoding="utf-8") as file:
            json.dump(seen, file, indent=1)
        os.replace("seen.part", "seen.json")
        cut.result()
        s.unretrieved()


if __name__ == "__main__":
    main()
