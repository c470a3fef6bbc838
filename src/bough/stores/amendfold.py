"""Fold a changed description: rows that are gone leave their run, rows that are changed say what they are now.

What a workflow no longer has stays for who asks for it by its number: its rows have the run's number negated, so that
no name finds them and nothing counts them. Rule: they go with their run when that is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bough.core.states import PENDING
from bough.model.facts import Amended
from bough.model.outcomes import Cause, Failure
from bough.model.tasks import GroupSpec, TaskSpec
from bough.stores.commandtext import task_text
from bough.stores.ledger import ENDED_LABELS, Ledger
from bough.stores.loosefold import LooseFold, enter
from bough.stores.rows import TaskRow, shown
from bough.stores.runfold import ON, RunFold

_PENDING: Final = frozenset(state.label for state in PENDING)
_WITHDRAWN: Final = Failure(Cause.CANCELLED, "the workflow's description no longer has it")


class AmendFold:
    """See the module."""

    def __init__(self, ledger: Ledger, loose: LooseFold, runs: RunFold) -> None:
        self._ledger = ledger
        self._loose = loose
        self._runs = runs

    def remove(self, now: float, fact: Amended) -> None:
        """What is gone is ended, and leaves its run."""
        self._ledger.write()  # so that there are rows to change
        for record in fact.removed:
            row = self._ledger.task(record)
            if row is not None:
                if row.state not in ENDED_LABELS:
                    self._loose.stop(row, now, "cancelled", _WITHDRAWN)
                row.run = -fact.run
                self._move("tasks", fact.run, record)
                self._move("attributes", fact.run, record, "kind = 'task' AND ")
        for group in fact.removed_groups:
            self._move("groups", fact.run, group)
            self._move("group_after", fact.run, group)
            self._move("attributes", fact.run, group, "kind = 'group' AND ")

    def _move(self, table: str, run: int, number: int, which: str = "") -> None:
        self._ledger.execute(f"UPDATE {table} SET run = ? WHERE {which}run = ? AND id = ?", (-run, run, number))

    def change(self, fact: Amended) -> None:
        """What is changed is what it is now; whether it runs again is said elsewhere."""
        for item in fact.changed:
            if isinstance(item, GroupSpec):
                self._ledger.execute("DELETE FROM group_after WHERE run = ? AND id = ?", (fact.run, item.id))
                on = [(item.id, fact.run, ON[dep.on], dep.id, dep.index) for dep in item.after]
                self._ledger.gathered["group_after"] += on
                self._put_attributes(fact.run, "group", item.id, item.attributes)
            elif isinstance(item, TaskSpec) and (row := self._ledger.task(item.id)) is not None:
                self._change_task(row, item)
                self._put_attributes(fact.run, "task", item.id, item.terms.attributes)

    def _put_attributes(self, run: int, kind: str, number: int, own: Sequence[tuple[str, str]]) -> None:
        self._ledger.execute("DELETE FROM attributes WHERE run = ? AND kind = ? AND id = ?", (run, kind, number))
        self._ledger.gathered["attributes"] += [(kind, number, *map(shown, pair), run) for pair in own]

    def _change_task(self, row: TaskRow, spec: TaskSpec) -> None:
        ledger = self._ledger
        row.command, row.cores, row.priority = shown(task_text(spec)), spec.needs.cores, spec.priority
        row.waits, row.releases = int(bool(spec.after)), int(spec.terms.release)
        own = (row.command, row.cores, row.waits, row.releases, row.id)
        ledger.execute("UPDATE tasks SET command = ?, cores = ?, waits = ?, releases = ? WHERE id = ?", own)
        ledger.execute("DELETE FROM after WHERE id = ?", (row.id,))
        ledger.gathered["after"] += [(row.id, ON[dep.on], dep.id, dep.index, -1) for dep in spec.after]
        if row.state in _PENDING and row.state != "held":
            enter(row, "waiting" if row.waits else "ready")

    def close(self, fact: Amended) -> None:
        """New groups are closed."""
        for item in fact.added:
            if isinstance(item, GroupSpec):
                self._runs.close_group(item.id)
