"""What the live display shows at one instant, and the line that sums a run up.

Rule: pure values; nothing here looks at a clock or prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

ENDED = ("done", "failed", "notrun", "cancelled")


class FailureNote(NamedTuple):
    """A task that failed, as a person wants to hear of it."""

    task: str  # as in "task 12 (plot)"
    message: str  # one line: which task, and what happened
    host: str = ""
    stderr: str = ""  # the last lines

    def lines(self, most: int = 5) -> list[str]:
        """The message with its place, and the last lines of stderr, set in."""
        tail = [line for line in self.stderr.splitlines() if line.strip()][-most:]
        return [self.message + (f" on {self.host}" if self.host else ""), *(f"    {line}" for line in tail)]


class Picture(NamedTuple):
    """The state of everything that is being run, at one instant."""

    groups: Mapping[str, Counter[str]]  # by path, each with those below it; "" is the whole
    running: tuple[str, ...] = ()  # names of some tasks that run now
    reused: int = 0
    seconds: float = 0
    rate: float = 0  # tasks that ended per second, lately; reused ones do not count
    title: str = ""

    @property
    def counts(self) -> Counter[str]:
        """Of everything."""
        return self.groups.get("", Counter())

    @property
    def total(self) -> int:
        """How many tasks there are so far."""
        return self.counts.total()

    @property
    def ended(self) -> int:
        """How many tasks have ended, well or not."""
        return sum(self.counts[state] for state in ENDED)

    @property
    def remaining(self) -> float | None:
        """The estimated seconds until all that is known of is done."""
        left = self.total - self.ended
        if not left:
            return 0.0
        return left / self.rate if self.rate > 0 else None


def with_parents(own: Iterable[tuple[str, Mapping[str, int]]]) -> dict[str, Counter[str]]:
    """Counts of groups by path, each with those of the groups below it added; "" is always there."""
    summed: dict[str, Counter[str]] = {"": Counter()}
    for path, counts in own:
        summed.setdefault(path, Counter()).update(counts)
        above = path
        while above:
            above = above.rpartition("/")[0]
            summed.setdefault(above, Counter()).update(counts)
    return summed


def summary(counts: Mapping[str, int], reused: int, seconds: str) -> str:
    """The last line: "12 done, 1 failed, 3 not run, 5 reused in 3.2 s". Reused tasks are done, too."""
    words = {"done": "done", "failed": "failed", "notrun": "not run", "cancelled": "cancelled"}
    said = [f"{counts.get('done', 0)} done"]
    said += [f"{counts[state]} {word}" for state, word in words.items() if state != "done" and counts.get(state)]
    left = sum(number for state, number in counts.items() if state not in words)
    if left:
        said.append(f"{left} left")
    if reused:
        said.append(f"{reused} reused")
    return ", ".join(said) + f" in {seconds}"
