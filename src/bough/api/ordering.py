"""The order inside one group: prologue, subgroups, own tasks, epilogue, made of nothing but dependencies.

The server knows no phases. A task that comes into a group is told here what it waits for: the prologue, the subgroups
that were made before it, in a pipeline the task before it. Where many wait for many, a hidden group stands between
them (`.own1`), empty and closed, so that N subgroups and M tasks cost N + M dependencies. Rule: what a task waits for
is decided when it is submitted, and never again.
"""

from __future__ import annotations

import threading
from array import array
from typing import TYPE_CHECKING

import msgspec

from bough.api.options import BESIDE
from bough.errors import UserError
from bough.model.tasks import Dep, On, TaskSpec, Terms

if TYPE_CHECKING:
    from bough.api.group import Group
    from bough.api.options import Settings
    from bough.api.session import Session
    from bough.api.task import Task
    from bough.model.ids import BlobId, GroupId

PROLOGUE = "prologue"  # what the subgroup is called that runs before the others
_TASK, _ARRAY, _END = On.TASK, On.ARRAY, On.END


class Order:
    """What orders the tasks of one group that this session fills."""

    def __init__(
        self,
        session: Session,
        group: GroupId,
        *,
        pipeline: bool = False,
        barrier: bool = True,
        priority: int = 0,
        matched: tuple[Dep, ...] | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.pipeline = pipeline
        self.barrier = barrier
        self.priority = priority
        self.is_used = False  # something besides a prologue is in it
        self.prologue: Group | None = None
        self.owner: Group | None = None
        self._matched = matched  # what the group waits for, if its subgroups wait for their namesakes only
        self._session = session
        self._group = group
        self._pending: list[Dep] = list(matched or ())  # what own tasks wait for from now on, besides the gate
        self._gate: Dep | None = None  # what stands for all that own tasks wait for
        self._is_told = True  # a task of the pipeline waits for the gate already
        self._last: Dep | None = None  # the task before, in a pipeline
        self._sure: Dep | None = None  # the one before whose success means that of all before it
        self._before: Task | None = None  # the task before, if it is a loose one
        self._tasks = array("q")  # own loose tasks; in a pipeline the last one tells of all
        self._arrays: list[Dep] = []
        self._hidden = 0  # how many were made

    # --- what is to be waited for -----------------------------------------------------------------------

    def begin(self) -> None:
        """Something comes into the group that is no prologue: there will be no more of that."""
        self.is_used = True
        if self.prologue is not None:
            self.prologue.close()

    def close(self) -> None:
        """Nothing more comes into the group."""
        if self.owner is not None:
            self.owner.close()
        self._session.orders.pop(self._group, None)

    def subgroup_waits(self, name: str) -> tuple[Dep, ...]:
        """What a subgroup that comes into the group waits for: the prologue, and namesakes of it elsewhere."""
        if name != PROLOGUE:
            self.begin()
        found = [] if self.prologue is None else [Dep(_END, self.prologue.id)]
        for dep in self._matched or ():
            namesake = self._session.group_in(dep.id, name) if dep.is_group else None
            found.append(dep if namesake is None else Dep(dep.on, namesake))
        return tuple(found)

    def subgroup_joined(self, group: GroupId) -> None:
        """Own tasks that come from now on wait for a subgroup."""
        if self.barrier:
            self._pending.append(Dep(_END, group))

    def _standing(self, name: str) -> Dep | None:
        """One dependency that stands for all that own tasks wait for."""
        if self._pending:
            deps = [*([self._gate] if self._gate else ()), *self._pending]
            self._pending = []
            self._is_told = False
            if len(deps) == 1:
                self._gate = deps[0]
            else:
                self._hidden += 1
                hidden = self._session.hide_group(self._group, f".{name}{self._hidden}", tuple(deps))
                self._gate = Dep(_END, hidden)
        return self._gate

    def begin_epilogue(self) -> None:
        """What comes from now on waits for everything that is there, one after the other."""
        mine = [self._last, self._sure] if self.pipeline else [*(Dep(_TASK, id_) for id_ in self._tasks), *self._arrays]
        self._pending += dict.fromkeys(dep for dep in mine if dep is not None)
        self._sure = self._last = self._standing("end")
        self._gate, self._before, self._is_told = None, None, True
        self.pipeline = True

    def _waits(self, *, final: bool) -> list[Dep]:
        self.begin()
        gate = self._standing("own")
        if not self.pipeline:
            return [gate] if gate is not None else []
        found = [] if gate is None or (self._is_told and not final and self._sure is not None) else [gate]
        found += [dep for dep in (self._last, None if final else self._sure) if dep is not None]
        self._is_told = self._is_told or not final
        return found

    # --- tasks ------------------------------------------------------------------------------------------

    def send(self, task: Task, spec: TaskSpec, size: int, blobs: tuple[tuple[BlobId, bytes], ...]) -> None:
        """Submit a loose task into the group."""
        with self.lock:
            self._session.put_task(task, self._placed(spec), size, blobs)
            if not self.pipeline:
                self._tasks.append(task.id)
                return
            self._join(Dep(_TASK, task.id), final=spec.terms.final)
            self._before = task

    def _placed(self, spec: TaskSpec) -> TaskSpec:
        terms, priority = spec.terms, spec.priority or self.priority
        waits = self._waits(final=terms.final)
        if not waits and terms.near != BESIDE and priority == spec.priority:
            return spec
        after = tuple(dict.fromkeys((*spec.after, *waits)))
        if terms.near == BESIDE:
            terms = beside(self._session, self._before, spec, needed=not self.pipeline)
        return msgspec.structs.replace(spec, after=after, terms=terms, priority=priority)

    def _join(self, dep: Dep, *, final: bool) -> None:
        self._last = dep
        if not final:
            self._sure = dep

    # --- arrays -----------------------------------------------------------------------------------------

    def settled(self, settings: Settings) -> Settings:
        """The settings of an array, with the group's priority."""
        if not self.priority or settings.priority:
            return settings
        return msgspec.structs.replace(settings, priority=self.priority)

    def array_waits(self, after: tuple[Dep, ...]) -> tuple[Dep, ...]:
        """What an array that comes into the group waits for."""
        return tuple(dict.fromkeys((*after, *self._waits(final=False))))

    def array_joined(self, record: int) -> None:
        """An array has come into the group."""
        self._before = None
        if self.pipeline:
            self._join(Dep(_ARRAY, record), final=False)
        else:
            self._arrays.append(Dep(_ARRAY, record))


def beside(session: Session, before: Task | None, spec: TaskSpec, *, needed: bool) -> Terms:
    """The terms of a task that is to run where the one before it ran: in a pipeline, or the one it waits for."""
    terms = spec.terms
    if before is None and needed:
        tasks = [dep.id for dep in spec.after if dep.on is _TASK and not dep.index]
        if len(spec.after) != 1 or not tasks:
            raise UserError("affinity=True needs a task before it: one in a pipeline, or a single one in after=")
        before = session.ledger.tasks.get(tasks[0])
        if before is None:
            return msgspec.structs.replace(terms, near=tasks[0])
    if before is None:
        return msgspec.structs.replace(terms, near=0)  # the first of a pipeline runs anywhere
    if before.done():
        return msgspec.structs.replace(terms, near=0, place=before.host)
    return msgspec.structs.replace(terms, near=before.id)
