"""Groups as users hold them, and the order inside a group, made of nothing but dependencies.

Inside `with session.group(...)` everything the session submits joins the group. A group waits for what `after` names;
then come its prologue, its subgroups, its own tasks, its epilogue. The server knows no phases: a task that comes into
a group is told here what it waits for. Where many wait for many, a hidden group stands between them (`.own1`), empty
and closed, so that N subgroups and M tasks cost N + M dependencies.

Rules: the innermost open group of the running thread or coroutine counts. Siblings have different names. What a task
waits for is decided when it is submitted, and never again.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec.structs import replace

from bough.api.pickling import check_sendable
from bough.api.submit.context import open_groups
from bough.api.submit.submitter import Submitter
from bough.api.submit.task_options.options import (
    BESIDE,
    DEFAULTS,
    NO_PLAN,
    TaskOptions,
    after_deps,
    read_after,
    read_attributes,
    read_options,
    read_time,
    read_whole,
)
from bough.errors import BadValue, NotPicklable, UserError
from bough.model.bounds import Name, within
from bough.model.events.news import GroupClosed
from bough.model.ids import GroupId
from bough.model.tasks import Dep, GroupSpec, On, TaskExtras, TaskSpec

if TYPE_CHECKING:
    from bough.api.futures.task import Home, Task
    from bough.api.futures.task_registry import TaskRegistry
    from bough.api.submit.context import OpenGroup, SessionLike
    from bough.api.submit.task_options.options import TaskOptions
    from bough.model.ids import BlobId, GroupId
    from bough.monitors import Metric, Monitor, Remote
    from bough.monitors.comparison import Rule

PROLOGUE = "prologue"  # what the subgroup is called that runs before the others
_TASK, _ARRAY, _END = On.TASK, On.ARRAY, On.END


class Group(Submitter):
    """A group of tasks: `submit`, `map`, `command` and the others as a session has them, for this group."""

    def __init__(self, session: SessionLike, group: int, name: str, settings: TaskOptions) -> None:
        super().__init__(session, settings)
        self.id = GroupId(group)
        self.name = name
        self._entered: Token[tuple[OpenGroup, ...]] | None = None
        self._is_closed = False
        self._epilogue: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []  # what, arguments, options

    @property
    def path(self) -> str:
        """Its name with those of the groups it is in, as in "align/sub"."""
        return self._session.registry.progress.path(self.id)

    @property
    def _order(self) -> Order:
        order = self._session.groups.orders[self.id]
        assert isinstance(order, Order)
        return order

    def _group_id(self) -> GroupId:
        if self._is_closed:
            raise UserError(f"group {self.path} is closed; submit inside its with block")
        return self.id

    # --- before and after the rest ----------------------------------------------------------------------

    def prologue(self, what: str | Callable[..., Any], /, *args: Any, **options: Any) -> Task:
        """A command or a function that runs before everything else in the group, and after what the group waits for.

        Several of them run one after the other. A function takes the arguments; options are those of `command`.
        """
        self._group_id()
        order = self._order
        if not order.barrier:
            raise UserError(f"group {self.path} has barrier=False, so that nothing can come before its tasks")
        if order.is_used:
            raise UserError(f"group {self.path} has tasks or subgroups already; give its prologue before them")
        if order.prologue is None:
            order.prologue = make_group(self._session, PROLOGUE, self.id, (), self._settings, pipeline=True)
        return order.prologue._run(what, args, options)

    def epilogue(self, what: str | Callable[..., Any], /, *args: Any, **options: Any) -> None:
        """A command or a function that runs after everything else in the group; with final=True whatever happened.

        Several of them run one after the other. They are submitted when the group closes.
        """
        self._group_id()
        if not self._order.barrier:
            raise UserError(f"group {self.path} has barrier=False, so that nothing can come after its tasks")
        if not callable(what):
            if args:
                raise UserError(f"epilogue: {args[0]!r:.60} follows a command; parameters of it are given by name")
        else:
            read_options(self._settings, options)
        self._epilogue.append((what, args, options))

    def _run(self, what: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Task:
        if callable(what):
            return self.options(**options).submit(what, *args)
        if args:
            raise UserError(f"{args[0]!r:.60} follows a command; parameters of it are given by name")
        return self.command(what, **options)

    # --- looking and steering ---------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> None:
        """Wait until everything in it and below it has ended; TimeoutError when it takes longer."""
        registry = self._session.registry
        registry.may_wait()
        if not registry.progress.wait(self.id, timeout):
            raise TimeoutError(f"{self!r} has not ended within {timeout} s")

    def status(self) -> dict[str, int]:
        """How many tasks in it and below it are in which state."""
        return self._session.registry.progress.counts(self.id)

    def cancel(self) -> int:
        """Cancel everything in it that has not ended; returns how many tasks that was."""
        return self._session.cancel(self)

    def kill(self) -> int:
        """End everything in it that is running; returns how many tasks that was."""
        return self._session.kill(self)

    def monitor(self, *monitors: Monitor | Metric | Remote | str) -> None:
        """Have its tasks, and those below it, watched from now on, also those that are still to come.

        A `Remote` watches those that this script has submitted, or submits.
        """
        self._session.registry.monitor([(Dep(On.GROUP, self.id), 0)], monitors)

    def rule(self, rule: Rule | None) -> None:
        """Let a rule compare its tasks, and those below it, and end those that need not go on; None: no rule."""
        self._session.registry.rule(Dep(On.GROUP, self.id), rule)

    def close(self) -> None:
        """Say that nothing more comes, and submit the epilogue; leaving the `with` block does it."""
        if self._is_closed:
            return
        try:
            with self._order.lock:
                self._order.begin()
                if self._epilogue:
                    self._order.begin_epilogue()
                    for what, args, options in self._epilogue:
                        self._run(what, args, options)
        finally:
            self._is_closed = True
            self._session.groups.orders.pop(self.id, None)
            self._session.post(GroupClosed(GroupId(self.id)))

    def __enter__(self) -> Self:
        self._entered = open_groups.set((*open_groups.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._entered is not None:
            open_groups.reset(self._entered)
            self._entered = None
        self.close()

    def __bough_deps__(self) -> tuple[Home, tuple[Dep, ...]]:
        """This group as a dependency."""
        return self._session.registry, (Dep(On.GROUP, self.id),)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {word}" for word, count in self.status().items() if count)
        return f"<group {self.path}: {counts or 'empty'}>"

    def __reduce__(self) -> Any:
        raise NotPicklable(f"group {self.name!r} cannot travel to a worker; give it in after=[...]")


def make_group(
    session: SessionLike,
    name: Any,
    parent: int,
    after: Any,
    settings: TaskOptions,
    *,
    pipeline: bool = False,
    match: bool = False,
    barrier: bool = True,
    limit: object = None,
    retries: object = None,
    timeout: object = None,
    priority: object = None,
    attributes: object = None,
    monitors: object = None,
) -> Group:
    """Make a group in another one; one that is there already is joined by a session that came back to it."""
    if not isinstance(name, str) or not name or "/" in name or name[0] == ".":
        raise BadValue(f"a group's name is a text without / that does not begin with a dot, not {name!r}")
    check_sendable("a group's name", name)
    within("a group's name", name, Name)
    if match and not barrier:
        raise BadValue(f"group {name}: match=True means nothing with barrier=False; give one of them")
    deps = after_deps(read_after(after), session.registry)
    watching = read_options(DEFAULTS, {"monitors": monitors}).watching
    spec = GroupSpec(
        GroupId(0),
        name,
        GroupId(parent),
        limit=0 if limit is None else read_whole("limit", limit),
        retries=0 if retries is None else read_whole("retries", retries),
        timeout=0 if timeout is None else read_time("timeout", timeout),
        attributes=() if attributes is None else read_attributes(attributes),
        watch=NO_PLAN if watching is None else watching.id,
    )
    first = read_options(settings, {"priority": priority}).priority
    with session.groups.ordered(parent) as outer:
        gate = () if outer is None else outer.subgroup_waits(name)
        is_there = session.groups.existing(parent, name) is not None
        group = session.groups.new(parent, name)
        deps = tuple(dict.fromkeys((*gate, *deps))) if barrier else ()
        inner = Order(
            session,
            group,
            pipeline=pipeline,
            barrier=barrier,
            priority=first or (0 if outer is None else outer.priority),
            matched=deps if match else None,
        )
        if not is_there:
            session.registry.progress.group_added(group, parent, name)
            session.connection.submit(
                replace(spec, id=group, after=() if match else deps),
                100 + 8 * len(deps),
                () if watching is None else (watching.blob,),
            )
        session.groups.watch(group, parent, watching)
        session.groups.orders[group] = inner
        if outer is not None:
            outer.subgroup_joined(group)
    inner.owner = Group(session, group, name, settings)
    return inner.owner


class Order:
    """What orders the tasks of one group that this session fills."""

    def __init__(
        self,
        session: SessionLike,
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
        self._session.groups.orders.pop(self._group, None)

    def subgroup_waits(self, name: str) -> tuple[Dep, ...]:
        """What a subgroup that comes into the group waits for: the prologue, and namesakes of it elsewhere."""
        if name != PROLOGUE:
            self.begin()
        found = [] if self.prologue is None else [Dep(_END, self.prologue.id)]
        for dep in self._matched or ():
            namesake = self._session.groups.find(dep.id, name) if dep.is_group else None
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
                hidden = self._session.groups.hide(self._group, f".{name}{self._hidden}", tuple(deps))
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
                self._tasks.append(task.record)
                return
            self._join(Dep(_TASK, task.record), final=spec.extras.final)
            self._before = task

    def _placed(self, spec: TaskSpec) -> TaskSpec:
        extras, priority = spec.extras, spec.priority or self.priority
        waits = self._waits(final=extras.final)
        if not waits and extras.same_host_as != BESIDE and priority == spec.priority:
            return spec
        after = tuple(dict.fromkeys((*spec.after, *waits)))
        if extras.same_host_as == BESIDE:
            extras = beside(self._session.registry, self._before, spec, needed=not self.pipeline)
        return msgspec.structs.replace(spec, after=after, extras=extras, priority=priority)

    def _join(self, dep: Dep, *, final: bool) -> None:
        self._last = dep
        if not final:
            self._sure = dep

    # --- arrays -----------------------------------------------------------------------------------------

    def settled(self, settings: TaskOptions) -> TaskOptions:
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


def beside(registry: TaskRegistry, before: Task | None, spec: TaskSpec, *, needed: bool) -> TaskExtras:
    """The extras of a task that is to run where the one before it ran: in a pipeline, or the one it waits for."""
    extras = spec.extras
    if before is None and needed:
        tasks = [dep.id for dep in spec.after if dep.on is _TASK and not dep.index]
        if len(spec.after) != 1 or not tasks:
            raise UserError("affinity=True needs a task before it: one in a pipeline, or a single one in after=")
        before = registry.tasks.get(tasks[0])
        if before is None:
            return msgspec.structs.replace(extras, same_host_as=tasks[0])
    if before is None:
        return msgspec.structs.replace(extras, same_host_as=0)  # the first of a pipeline runs anywhere
    if before.done():
        return msgspec.structs.replace(extras, same_host_as=0, host=before.host)
    return msgspec.structs.replace(extras, same_host_as=before.record)


def placed_alone(registry: TaskRegistry, spec: TaskSpec) -> TaskSpec:
    """A task that is in no group of this session and is to run where the one it waits for ran."""
    return msgspec.structs.replace(spec, extras=beside(registry, None, spec, needed=True))
