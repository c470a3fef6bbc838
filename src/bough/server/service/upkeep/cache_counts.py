"""How often inputs were where tasks ran: files from the host's cache, from peers, and misses, by executor and workflow.

A file that a peer or the shared store of the site gave is a peer hit; one of which the server sent anything is a miss.
Rule: what is kept is bounded: of executors and of workflows the last so many that read something.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from bough.model.outcomes import Staged

K = TypeVar("K")

MOST: Final = 1000  # executors, and workflows
NOTHING: Final = (0, 0, 0)


class CacheCounts:
    """See the module. Counts are hits, peer hits and misses, since the server began."""

    def __init__(self) -> None:
        self.total = NOTHING
        self._executors: dict[int, tuple[int, int, int]] = {}
        self._workflows: dict[str, tuple[int, int, int]] = {}

    def note(self, staged: Staged, executor: int, workflow: str) -> None:
        """The files of an attempt were brought."""
        if not (staged.hits or staged.peer_hits or staged.misses):
            return
        self.total = _sum(self.total, staged)
        _add(self._executors, executor, staged)
        if workflow:
            _add(self._workflows, workflow, staged)

    def by_executor(self) -> Mapping[str, tuple[int, int, int]]:
        """By the number of the executor."""
        return {str(number): counts for number, counts in self._executors.items()}

    def by_workflow(self) -> Mapping[str, tuple[int, int, int]]:
        """By the name of the workflow."""
        return dict(self._workflows)


def _sum(counts: tuple[int, int, int], staged: Staged) -> tuple[int, int, int]:
    return counts[0] + staged.hits, counts[1] + staged.peer_hits, counts[2] + staged.misses


def _add(table: dict[K, tuple[int, int, int]], key: K, staged: Staged) -> None:
    table[key] = _sum(table.pop(key, NOTHING), staged)
    if len(table) > MOST:
        del table[next(iter(table))]
