"""Groups: named nodes of the workflow tree, which hold tasks and other groups.

Inside `with session.group(...)` everything the session submits joins the group. What happens in a group happens in
this order: what it waits for, its prologue, its subgroups, its own tasks, its epilogue. Rule: the innermost
open group of the running thread or coroutine counts; siblings have different names.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from bough.api.context import inside
from bough.api.options import Settings, read_after, read_attributes, read_options, read_time, read_whole
from bough.api.ordering import PROLOGUE, Order
from bough.api.submitter import Submitter
from bough.api.texts import check_sendable
from bough.api.waits import after_deps
from bough.errors import UserError
from bough.model.bounds import Name, within
from bough.model.facts import GroupClosed
from bough.model.ids import GroupId
from bough.model.tasks import Dep, GroupSpec, On

if TYPE_CHECKING:
    from bough.api.ledger import Ledger
    from bough.api.session import Session
    from bough.api.task import Task


class Group(Submitter):
    """A group of tasks: `submit`, `map`, `command` and the others as a session has them, for this group."""

    def __init__(self, session: Session, group: int, name: str, settings: Settings) -> None:
        super().__init__(session, settings)
        self.id = GroupId(group)
        self.name = name
        self._entered: Token[tuple[Group, ...]] | None = None
        self._is_closed = False
        self._epilogue: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []  # what, arguments, options

    @property
    def path(self) -> str:
        """Its name with those of the groups it is in, as in "align/sub"."""
        return self._session.ledger.progress.path(self.id)

    @property
    def _order(self) -> Order:
        return self._session.orders[self.id]

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
        ledger = self._session.ledger
        ledger.may_wait()
        if not ledger.progress.wait(self.id, timeout):
            raise TimeoutError(f"{self!r} has not ended within {timeout} s")

    def status(self) -> dict[str, int]:
        """How many tasks in it and below it are in which state."""
        return self._session.ledger.progress.counts(self.id)

    def cancel(self) -> int:
        """Cancel everything in it that has not ended; returns how many tasks that was."""
        return self._session.cancel(self)

    def kill(self) -> int:
        """End everything in it that is running; returns how many tasks that was."""
        return self._session.kill(self)

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
            self._session.orders.pop(self.id, None)
            self._session.post(GroupClosed(GroupId(self.id)))

    def __enter__(self) -> Self:
        self._entered = inside.set((*inside.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._entered is not None:
            inside.reset(self._entered)
            self._entered = None
        self.close()

    def __bough_deps__(self) -> tuple[Ledger, tuple[Dep, ...]]:
        """This group as a dependency."""
        return self._session.ledger, (Dep(On.GROUP, self.id),)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {word}" for word, count in self.status().items() if count)
        return f"<group {self.path}: {counts or 'empty'}>"

    def __reduce__(self) -> Any:
        from bough.errors import NotPicklable

        raise NotPicklable(f"group {self.name!r} cannot travel to a worker; give it in after=[...]")


def make_group(
    session: Session,
    name: Any,
    parent: int,
    after: Any,
    settings: Settings,
    *,
    pipeline: bool = False,
    match: bool = False,
    barrier: bool = True,
    limit: object = None,
    retries: object = None,
    timeout: object = None,
    priority: object = None,
    attributes: object = None,
) -> Group:
    """Make a group in another one; one that is there already is joined by a session that came back to it."""
    if not isinstance(name, str) or not name or "/" in name or name[0] == ".":
        raise UserError(f"a group's name is a text without / that does not begin with a dot, not {name!r}")
    check_sendable("a group's name", name)
    within("a group's name", name, Name)
    if match and not barrier:
        raise UserError(f"group {name}: match=True means nothing with barrier=False; give one of them")
    deps = after_deps(read_after(after), session.ledger)
    spec = GroupSpec(
        GroupId(0),
        name,
        GroupId(parent),
        limit=0 if limit is None else read_whole("limit", limit),
        retries=0 if retries is None else read_whole("retries", retries),
        timeout=0 if timeout is None else read_time("timeout", timeout),
        attributes=() if attributes is None else read_attributes(attributes),
    )
    first = read_options(settings, {"priority": priority}).priority
    with session.ordered(parent) as outer:
        gate = () if outer is None else outer.subgroup_waits(name)
        is_there = session.group_there(parent, name) is not None
        group = session.new_group(parent, name)
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
            session.ledger.progress.group_added(group, parent, name)
            session.connection.submit(replace(spec, id=group, after=() if match else deps), 100 + 8 * len(deps))
        session.orders[group] = inner
        if outer is not None:
            outer.subgroup_joined(group)
    inner.owner = Group(session, group, name, settings)
    return inner.owner
