"""The functions that are timed. They stand in a module of their own so that any process can load them."""

from __future__ import annotations

import os
import subprocess
import time


def nothing() -> None:
    """As little as a task can do."""


def same(value: int) -> int:
    """As little as a task with an argument and a value can do."""
    return value


def one_more(value: int) -> int:
    """A link of a chain."""
    return value + 1


def how_many(values: list[int]) -> int:
    """The end of a fan."""
    return len(values)


def spawn_loop(count: int) -> float:
    """Run /bin/true so many times, one after the other: what starting processes costs by itself."""
    begun = time.perf_counter()
    for _ in range(count):
        os.waitpid(os.posix_spawn("/bin/true", ["/bin/true"], os.environ), 0)
    return time.perf_counter() - begun


def run_loop(count: int) -> float:
    """The same with what scripts use."""
    begun = time.perf_counter()
    for _ in range(count):
        subprocess.run(["/bin/true"], check=True)
    return time.perf_counter() - begun


def sleep_loop(count: int, seconds: float) -> float:
    """Sleep so many times; how long that took, which is more than it should."""
    begun = time.perf_counter()
    for _ in range(count):
        time.sleep(seconds)
    return time.perf_counter() - begun


def wait_for(path: str) -> None:
    """Hold a worker until a file is there."""
    while not os.path.exists(path):
        time.sleep(0.002)
