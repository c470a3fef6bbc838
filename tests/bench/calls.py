"""The functions that are timed. They stand in a module of their own so that any process can load them."""

from __future__ import annotations

import os
import time


def nothing() -> None:
    """As little as a task can do."""


def same(value: int) -> int:
    return value


def one_more(value: int) -> int:
    return value + 1


def how_many(values: list[int]) -> int:
    return len(values)


def spawn_loop(count: int) -> int:
    """Run /bin/true so many times, one after the other: what starting processes costs by itself."""
    for _ in range(count):
        os.waitpid(os.posix_spawn("/bin/true", ["/bin/true"], os.environ), 0)
    return count


def sleep_loop(count: int, seconds: float) -> int:
    for _ in range(count):
        time.sleep(seconds)
    return count
