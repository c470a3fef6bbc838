"""Which of a task's inputs were where it went, for `explain`.

It is noted when a task with declared inputs is placed, of its newest attempt, and kept until its workflow leaves the
core; of a workflow with very many such tasks the newest are kept. How many bytes that were is added up when somebody
asks: to look up sizes costs more than all the rest. Rule: a task without declared inputs costs nothing here; one with
them costs one look at each of its contents.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from bough.core.records.indexes.waiting_units import UnitKey, files_read

if TYPE_CHECKING:
    from bough.core.records.executor_record import ExecutorRecord
    from bough.core.records.indexes.affinity_index import AffinityIndex
    from bough.core.records.indexes.data_places import Place
    from bough.core.records.indexes.waiting_units import Unit

_MOST: Final = 100_000  # tasks of a workflow

# site and host where it went, the contents of its inputs as far as they were known, and those of them that were there
PlacedInput = tuple[str, str, "array[int]", Sequence[int]]


class PlacedInputs:
    """See the module."""

    def __init__(self) -> None:
        self._by_run: dict[int, dict[UnitKey, PlacedInput]] = {}

    def note(self, affinity: AffinityIndex, unit: Unit, key: UnitKey, place: Place, executor: ExecutorRecord) -> None:
        """A task goes to an executor."""
        contents, run = unit.contents, unit.work.group.workflow.run
        if contents is None:
            contents = affinity.contents_of(unit)
        if not contents and not files_read(unit.work, unit.element):
            return
        there: Sequence[int]
        if affinity.frozen or affinity.data.common:
            there = [content for content in contents if affinity.is_at(content, place)]
        else:
            there = tuple(filter(place.listed.__contains__, contents))
        tasks = self._by_run.get(run)
        if tasks is None:
            tasks = self._by_run[run] = {}
        elif len(tasks) >= _MOST:
            for oldest in list(islice(tasks, _MOST // 16)):  # each look for the oldest passes over those that went
                del tasks[oldest]
        tasks[key] = executor.site, executor.host, contents, there

    def of(self, run: int, key: UnitKey) -> PlacedInput | None:
        """What is known of a task; None: nothing."""
        tasks = self._by_run.get(run)
        return tasks.get(key) if tasks is not None else None

    def forget_run(self, run: int) -> None:
        """A workflow leaves."""
        self._by_run.pop(run, None)
