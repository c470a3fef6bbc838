"""Looking at tasks and acting on them by hand, which a session does through its server.

Rule: nothing here knows what kind of server that is; what needs more modules imports them when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
        answer = self._connection.ask("processors")
        return answer if isinstance(answer, dict) else {}

    def explain(self, what: Task | int, index: int = 0) -> str:
        """Why a task is not running, or how it ended, in a few lines."""
        if isinstance(what, int):
            return "\n".join(self.ledger.explain(what, index))
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

    def act(self, deed: Deed) -> int:
        """Send a deed and return how many tasks the server says it is about."""
        answer = self._connection.act_and_wait(deed)
        count = answer.get("tasks", 0) if isinstance(answer, dict) else answer
        return count if isinstance(count, int) else 0
