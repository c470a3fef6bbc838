"""A bound on the tasks that executors have and have not ended: of one site, or of all.

Rule: what is counted is what is out, element by element, so that the bound is never exceeded; a bound that is lowered
ends nothing. An executor that finds its bound reached is parked: it is looked at again when a task has ended, one
executor for each, so that a bound costs what changed and not what exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bough.model.bounds import MOST_TASKS
from bough.model.texts.plurals import counted

if TYPE_CHECKING:
    from bough.core.records.executor_record import ExecutorRecord

ALL: Final = ""  # whose bound it is: all sites together


class TaskBound:
    """See the module. `above`: the bound of all sites, which holds as well."""

    __slots__ = ("above", "most", "out", "parked", "whose")

    def __init__(self, whose: str, most: int, above: TaskBound | None = None) -> None:
        self.whose = whose
        self.most = most
        self.above = above
        self.out = 0
        self.parked: dict[int, ExecutorRecord] = {}

    def room(self) -> int:
        """How many more tasks may go out."""
        room = self.most - self.out if self.most else MOST_TASKS
        return max(0, min(room, self.above.room()) if self.above is not None else room)

    def reached(self) -> TaskBound | None:
        """This bound or the one above, if it is reached."""
        if self.most and self.out >= self.most:
            return self
        return self.above.reached() if self.above is not None else None

    def count(self, tasks: int) -> None:
        """So many more are out, or fewer if it is below 0."""
        self.out += tasks
        if self.above is not None:
            self.above.out += tasks

    def __str__(self) -> str:
        """What keeps others from going out."""
        out = counted(self.most, "task")
        if self.whose == ALL:
            return f"all sites together have {out} out, as many as they may have at once"
        return f"site {self.whose} has {out} out, as many as it may have at once"
