"""Big values: one argument, one result, one array to many calls, many arguments; beside Ray, if that is installed.

    python -m tests.bench.big_values [--ray PYTHON] [--rounds N] [--size MB]

Each side runs in processes of its own, by turns, so that both meet the same machine. `--ray` names a Python that has
Ray and NumPy. The figures are medians of all repetitions, and the best ones; Ray's first is that of a fresh store.
To make an array of 200 MB takes 25 to 450 ms, as the machine has memory at hand: so a result is also shown without it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

REPEATED = 4
RETURNED = "returned"  # not measured by itself
SHAPES = {
    "argument": "a call with one array",
    "result": "a call that returns one",
    RETURNED: "the same, without the time in which the function made it",
    "shared": "one array, written once, to 8 calls",
    "given": "the same, given to each of 8 calls",
    "many": "20 calls with a twentieth each",
}
MB = 1_000_000
Side = tuple[Callable[..., Any], Callable[[list[Any]], list[Any]], Callable[[Any], Any]]  # call, get and put


def total(x: Any) -> float:
    """Touches every page."""
    return float(x[::4096].sum())


def made(size: int) -> Any:
    """A new array, which begins with the seconds that it took to make it."""
    import numpy as np

    begun = time.perf_counter()
    found = np.ones(size, dtype=np.uint8)
    found[:8].view("f8")[0] = time.perf_counter() - begun
    return found


def run_once(shape: str, side: Side, big: Any, parts: list[Any]) -> float:
    """Run one of the shapes; the seconds that the function itself took, if it said so."""
    call, get, put = side
    if shape == "result":
        (result,) = get([call("made", big.nbytes)])
        total(result)
        return float(result[:8].view("f8")[0])
    if shape == "argument":
        get([call("total", big)])
    elif shape == "shared":
        handle = put(big)
        get([call("total", handle) for _ in range(8)])
    elif shape == "given":
        get([call("total", big) for _ in range(8)])
    else:
        get([call("total", part) for part in parts])
    return 0.0


def measure(
    call: Callable[..., Any], get: Callable[[list[Any]], list[Any]], put: Callable[[Any], Any], size: int
) -> Any:
    """Seconds of each repetition of each shape; `call(name, value)` submits, `get` waits."""
    import numpy as np

    big = np.random.default_rng(1).integers(0, 255, size, dtype=np.uint8)
    get([call("total", np.zeros(9)) for _ in range(8)])
    get([call("made", 1000) for _ in range(8)])

    def change() -> None:
        big[:8].view("u8")[0] += np.uint64(1)  # another content each time

    def twentieths() -> list[Any]:
        return [np.random.default_rng().integers(0, 255, size // 20, dtype=np.uint8) for _ in range(20)]

    found: dict[str, list[float]] = {shape: [] for shape in SHAPES}
    for _ in range(REPEATED):
        for shape in [shape for shape in SHAPES if shape != RETURNED]:
            change()
            parts = twentieths() if shape == "many" else []
            begun = time.perf_counter()
            own = run_once(shape, (call, get, put), big, parts)
            found[shape].append(time.perf_counter() - begun)
            if own:
                found[RETURNED].append(found[shape][-1] - own)
            time.sleep(0.3)
    return found


def bough_side(size: int) -> dict[str, list[float]]:
    """Our figures."""
    import bough

    functions = {"total": total, "made": made}
    with tempfile.TemporaryDirectory() as folder, bough.Session(cores=2, store=folder) as session:
        return measure(
            lambda name, value: session.submit(functions[name], value),
            lambda tasks: [task.result() for task in tasks],
            session.share,
            size,
        )


def ray_side(size: int) -> dict[str, list[float]]:
    """Ray's."""
    import logging

    import ray  # type: ignore[import-not-found]

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
        object_store_memory=max(20 * size, 1 << 30),
    )
    functions = {"total": ray.remote(total), "made": ray.remote(made)}
    try:
        return measure(lambda name, value: functions[name].remote(value), ray.get, ray.put, size)
    finally:
        ray.shutdown()


def run(side: str, python: str, size: int) -> dict[str, list[float]]:
    """One round of one side, in a process of its own."""
    words = [python, os.path.abspath(__file__), "--side", side, "--size", str(size // MB)]
    with tempfile.TemporaryDirectory() as folder:
        surroundings = {**os.environ, "HOME": folder, "RAY_AUTH_MODE": "disabled"}
        done = subprocess.run(words, stdout=subprocess.PIPE, check=True, cwd=folder, env=surroundings)
    said: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return said


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ray", default="", help="a Python that has Ray and NumPy")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=200, help="MB")
    parser.add_argument("--side", choices=("bough", "ray"))
    given = parser.parse_args()
    size = given.size * MB
    if given.side:
        print(json.dumps(bough_side(size) if given.side == "bough" else ray_side(size)))
        return
    peers = {"bough": sys.executable}
    if given.ray or importlib.util.find_spec("ray"):
        peers["ray"] = given.ray or sys.executable
    found: dict[str, dict[str, list[float]]] = {side: {shape: [] for shape in SHAPES} for side in peers}
    for _ in range(given.rounds):
        for side, python in peers.items():
            for shape, times in run(side, python, size).items():
                found[side][shape] += times
    print(f"{given.size} MB, {given.rounds} rounds by turns, {REPEATED} repetitions each; seconds: median (best)\n")
    print("| shape | " + " | ".join(peers) + " | ratio of medians |")
    print("|---|" + "---|" * (len(peers) + 1))
    for shape, text in SHAPES.items():
        middle = {side: statistics.median(found[side][shape]) for side in peers}
        cells = [f"{middle[side]:.3f} ({min(found[side][shape]):.3f})" for side in peers]
        ratio = f"{middle['bough'] / middle['ray']:.2f}" if "ray" in middle else ""
        print(f"| {text} | " + " | ".join(cells) + f" | {ratio} |")


if __name__ == "__main__":
    main()
