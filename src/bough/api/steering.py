"""Looking at tasks and acting on them by hand, which a session does through its server.

Rule: nothing here knows what kind of server that is; what needs more modules imports them when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bough.errors import UserError
from bough.model.bounds import Count, Index, shown, within
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.connection import Connection, Deed
    from bough.api.ledger import Ledger
    from bough.api.session import Session
    from bough.api.task import Task


class Steering:
    """What a session has besides the ways to submit."""

    _session: Session
    _connection: Connection
    ledger: Ledger

    def processors(self) -> dict[str, float]:
        """The processors that are there now, by site."""
        return self._connection.ask(questions.Processors())

    def explain(self, what: Task | int, index: int = 0) -> str:
        """Why a task is not running, or how it ended, in a few lines."""
        if isinstance(what, int):
            record, element = within("the task", what, Count), within("the index", index, Index)
            return "\n".join(self.ledger.explain(record, element))
        if not hasattr(type(what), "explain"):
            raise UserError(f"explain is about a task or its number, not {shown(what)}")
        return what.explain()

    def cancel(self, what: object) -> int:
        """Cancel a task, array or group, or what a selector names; returns how many tasks that was."""
        from bough.api.acting import cancel

        return cancel(self._session, what)

    def kill(self, what: object) -> int:
        """End what is running of a task, array, group or selector: those attempts fail. Returns how many tasks."""
        from bough.api.acting import kill

        return kill(self._session, what)

    def hold(self, what: object) -> int:
        """Keep a task, array, group or what a selector names from starting; returns how many tasks that was."""
        from bough.api.acting import hold

        return hold(self._session, what)

    def release(self, what: object) -> int:
        """Let start what was held; returns how many tasks that was."""
        from bough.api.acting import release

        return release(self._session, what)

    def disable(self, what: object) -> int:
        """As `hold`, for groups that are to be named so until `enable`; returns how many tasks that was."""
        from bough.api.acting import disable

        return disable(self._session, what)

    def enable(self, what: object) -> int:
        """Let groups start that were disabled; returns how many tasks that was."""
        from bough.api.acting import enable

        return enable(self._session, what)

    def reset(self, what: object, *, cascade: bool = False) -> int:
        """Make what has ended, also well, not started; `cascade`: also what has started and depends on it.

        Returns how many tasks that was. A future that is done stays done.
        """
        from bough.api.acting import reset

        return reset(self._session, what, cascade=cascade)

    def declare_done(self, what: object) -> int:
        """Declare done what has not started, or failed; returns how many tasks that was."""
        from bough.api.acting import declare_done

        return declare_done(self._session, what)

    def stop(self, what: object, *, disable: bool = False) -> int:
        """End what runs and hold, or disable, the rest; returns how many tasks that was."""
        from bough.api.acting import stop

        return stop(self._session, what, disable=disable)

    def act(self, deed: Deed, left_out: list[str] | None = None) -> int:
        """Send a deed and return how many tasks the server says it is about; what it left out is added to a list."""
        answer = self._connection.act_and_wait(deed)
        if left_out is not None and isinstance(answer, dict):
            left_out += answer.get("left_out", ())
        count = answer.get("tasks", 0) if isinstance(answer, dict) else answer
        return count if isinstance(count, int) else 0
