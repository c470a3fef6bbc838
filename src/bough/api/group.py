"""Groups: named nodes of the workflow tree, which hold tasks and other groups.

Inside `with session.group(...)` everything the session submits joins the group. Rule: the innermost
open group of the running thread or coroutine counts; siblings have different names.
"""

from __future__ import annotations

from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from bough.api.context import inside
from bough.api.options import Settings
from bough.api.submitter import Submitter
from bough.api.texts import check_sendable
from bough.api.waits import after_deps, is_waitable
from bough.errors import UserError
from bough.model.facts import GroupClosed
from bough.model.ids import GroupId
from bough.model.tasks import Dep, GroupSpec, On

if TYPE_CHECKING:
    from bough.api.ledger import Ledger
    from bough.api.session import Session


class Group(Submitter):
    """A group of tasks: `submit`, `map`, `command` and the others as a session has them, for this group."""

    def __init__(self, session: Session, group: int, name: str, settings: Settings) -> None:
        super().__init__(session, settings)
        self.id = group
        self.name = name
        self._entered: Token[tuple[Group, ...]] | None = None
        self._is_closed = False

    @property
    def path(self) -> str:
        """Its name with those of the groups it is in, as in "align/sub"."""
        return self._session.ledger.progress.path(self.id)

    def _group_id(self) -> int:
        if self._is_closed:
            raise UserError(f"group {self.path} is closed; submit inside its with block")
        return self.id

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
        """Say that nothing more comes; leaving the `with` block does it."""
        if not self._is_closed:
            self._is_closed = True
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


def make_group(session: Session, name: Any, parent: int, after: Any, settings: Settings) -> Group:
    """Make a group in another one; one that is there already is joined by a session that came back to it."""
    if not isinstance(name, str) or not name or "/" in name:
        raise UserError(f"a group's name is a text without /, not {name!r}")
    check_sendable("a group's name", name)
    deps = after_deps((after,) if is_waitable(after) else after, session.ledger)
    group = session.new_group(parent, name)
    there = session.group_there(parent, name)
    if there is not None:
        return Group(session, there, name, settings)
    session.ledger.progress.group_added(group, parent, name)
    session.connection.submit(GroupSpec(group, name, GroupId(parent), deps), 100)
    return Group(session, group, name, settings)
