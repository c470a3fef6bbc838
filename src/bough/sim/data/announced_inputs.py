"""What was announced to simulated executors: inputs of tasks that may come, to be brought while others run.

It does what a live executor does with an announcement: of each executor some tasks are known, the oldest are forgotten
first, and what they read is at most a part of the cache. What was brought for a task counts, when that task begins
there, as what it was when it came.
Rule: it knows, and moves nothing; who brings files asks it for what is left to bring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_MOST = 64  # tasks of one executor
_SHARE = 4  # the part of the cache that these may have
Key = tuple[int, int]  # record and element


class AnnouncedTask:
    """A task that may come."""

    __slots__ = ("came", "left", "size")

    def __init__(self, files: Mapping[int, int]) -> None:
        self.left = dict.fromkeys(files)  # what nobody has begun to bring
        self.came: dict[int, bool] = {}  # what was brought for it, and whether from home
        self.size = sum(files.values())


class AnnouncedInputs:
    """See the module. It is false while nothing is announced to anybody."""

    __slots__ = ("by_executor",)

    def __init__(self) -> None:
        self.by_executor: dict[int, dict[Key, AnnouncedTask]] = {}

    def announce(self, executor: int, key: Key, files: Mapping[int, int], limit: float) -> None:
        """A task that reads these files (with their sizes) may come to an executor with a cache of so many bytes."""
        task, known = AnnouncedTask(files), self.by_executor.get(executor, {})
        most = limit // _SHARE
        if task.size > most:
            return
        known.pop(key, None)
        while known and (len(known) >= _MOST or task.size + sum([one.size for one in known.values()]) > most):
            del known[next(iter(known))]
        known[key] = task
        self.by_executor[executor] = known

    def to_bring(self, executor: int) -> Iterator[tuple[AnnouncedTask, int]]:
        """What nobody has begun to bring, the oldest first; it counts as begun from now on."""
        for task in list(self.by_executor.get(executor, {}).values()):
            while task.left:
                file = next(iter(task.left))
                del task.left[file]
                yield task, file

    def begins(self, executor: int, key: Key) -> AnnouncedTask | None:
        """A task begins at an executor: what was announced of it there."""
        known = self.by_executor.get(executor)
        task = known.pop(key, None) if known is not None else None
        if known is not None and not known:
            del self.by_executor[executor]
        return task

    def lost(self, executor: int) -> None:
        """An executor is gone."""
        self.by_executor.pop(executor, None)
