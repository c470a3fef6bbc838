"""Named queues: what their tasks hold, what they may hold, and what others must leave to them.

The default queue, whose name is empty, is one of them; it has no definition. A queue that was removed has none either,
and stays as long as tasks name it. Rule: a queue costs a look only where queues are defined; limits are read when
something is placed, so that a change counts from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from bough.model.bounds import MOST_TASKS
from bough.model.ids import Seconds
from bough.model.sites.queue_specs import NO_QUEUE_LIMITS, QueueSpec
from bough.model.sites.resources import Needs

if TYPE_CHECKING:
    from bough.core.records.executor_record import ExecutorRecord
    from bough.core.records.indexes.ready_queue import Shape

_ROUND: Final = 1e-9  # fractions of cores add up inexactly


class QueueRecord:
    """One queue; see the module."""

    __slots__ = ("_table", "bounded", "cores", "finish", "is_defined", "name", "shapes", "spec")

    def __init__(self, name: str, table: QueueTable) -> None:
        self.name = name
        self.spec: QueueSpec = NO_QUEUE_LIMITS
        self.is_defined = False
        self.cores = 0.0  # that its spans hold or wait for
        self.bounded = False  # its own ceiling, or a reservation of another queue, may keep it from placing something
        self.finish = 0.0  # the virtual time at which what was placed of it ends, see `fair_index`
        self.shapes: dict[Shape, None] = {}  # of the tasks that name it
        self._table = table

    @property
    def ready(self) -> int:
        """How many of its tasks are ready."""
        return sum(shape.ready for shape in self.shapes)

    def admits(self, site: str) -> bool:
        """Whether its tasks may run at a site."""
        sites = self.spec.sites
        return not sites or site in sites

    def room(self, cores: float, taken: float | None = None) -> int:
        """How many more tasks of so many cores its own ceiling lets out, when so many are taken; None: as now."""
        most = self.spec.max_cores
        if not most:
            return MOST_TASKS
        taken = self.cores if taken is None else taken
        if not cores:
            return MOST_TASKS if taken <= most + _ROUND else 0
        return max(0, int((most - taken + _ROUND) // cores))

    def at_most(self, expected: Seconds) -> Seconds:
        """How long a task of it runs that is expected to run so long: each is ended at the ceiling."""
        most = self.spec.max_time
        return min(expected, most) if most else expected

    def spare(self, cores: float) -> int:
        """As `room`, also for what others have reserved."""
        room = self.room(cores)
        kept = self._table.reserved_by_others(self)
        if not kept or not cores or not room:
            return room
        return min(room, max(0, int((self._table.free - kept + _ROUND) // cores)))

    def lacks(self) -> float:
        """Cores of its reservation that it does not hold, as long as it could use them."""
        lacking = self.spec.min_cores - self.cores
        if lacking <= _ROUND or not any(self._could_start(shape) for shape in self.shapes):
            return 0.0
        return lacking

    def _could_start(self, shape: Shape) -> bool:
        return bool(shape.ready and self.room(shape.needs.cores) and self._table.fits_somewhere(shape))


class QueueTable:
    """All queues, and what is asked of them together."""

    __slots__ = ("_reserving", "executors", "makeup", "records", "several", "usable", "virtual")

    def __init__(self, executors: Mapping[int, ExecutorRecord]) -> None:
        self.executors = executors
        self.records: dict[str, QueueRecord] = {}
        self.records[""] = QueueRecord("", self)
        self.several = False  # there are others than the default queue
        self.virtual = 0.0  # the virtual time, see `fair_index`
        self.usable = 0.0  # cores of executors that may get work
        self.makeup = 0  # goes up when an executor comes, leaves or changes, or a queue does
        self._reserving: list[QueueRecord] = []

    def __getitem__(self, name: str) -> QueueRecord:
        """The queue of a name; it may have no definition."""
        record = self.records.get(name)
        if record is None:
            record = self.records[name] = QueueRecord(name, self)
        return record

    def defined(self) -> list[QueueRecord]:
        """The queues that have a definition, by name."""
        return [record for _, record in sorted(self.records.items()) if record.is_defined]

    def define(self, name: str, spec: QueueSpec | None) -> None:
        """Give a queue limits, or take its definition away."""
        record = self[name]
        record.spec, record.is_defined = spec or NO_QUEUE_LIMITS, spec is not None
        for other in [one for one in self.records.values() if one.name and not one.is_defined]:
            if not (other.shapes or other.cores):
                del self.records[other.name]
        self._reserving = [one for one in self.records.values() if one.spec.min_cores]
        for one in self.records.values():
            one.bounded = bool(one.spec.max_cores) or any(other is not one for other in self._reserving)
        self.several = len(self.records) > 1
        self.makeup += 1

    # --- reservations ------------------------------------------------------------------------------

    @property
    def free(self) -> float:
        """Cores that nothing holds or waits for; below 0 when something waits behind others."""
        return self.usable - sum(record.cores for record in self.records.values())

    def reserved_by_others(self, record: QueueRecord) -> float:
        """Cores that a queue must leave."""
        return sum([other.lacks() for other in self._reserving if other is not record])

    def fits_somewhere(self, shape: Shape) -> bool:
        """Whether an executor that gets work could ever run tasks of a shape; found once for each set of them."""
        if shape.fits_at != self.makeup:
            shape.fits_at = self.makeup
            shape.fits = any(
                executor.counted and shape.named.admits(executor.site) and executor.could_fit(shape.needs)
                for executor in self.executors.values()
            )
        return shape.fits

    def recount(self, executor: ExecutorRecord) -> None:
        """An executor came, left, or gets work as it did not before."""
        gets_work = executor.id in self.executors and not (executor.draining or executor.away or executor.suspended)
        cores = executor.capacity.cores if gets_work else 0.0
        self.usable += cores - executor.counted
        executor.counted = cores
        self.makeup += 1

    # --- turns ---------------------------------------------------------------------------------------

    def charge(self, record: QueueRecord, cores: float) -> None:
        """Something of a queue was placed."""
        start = max(self.virtual, record.finish)
        self.virtual = start
        record.finish = start + cores / record.spec.share

    def standing(self, record: QueueRecord) -> tuple[float, float]:
        """By what queues go: the cores that one holds for its share, and its virtual time."""
        return max(0.0, record.cores) / record.spec.share, max(self.virtual, record.finish)

    def could_fit(self, executor: ExecutorRecord, needs: Needs) -> bool:
        """Whether an executor could ever run tasks with these needs, where their queue lets them run."""
        return executor.could_fit(needs) and (not needs.queue or self[needs.queue].admits(executor.site))
