"""The tree of groups level by level, as `bough browse` walks through it, and what can be done to its rows.

Rule: a level is a snapshot; it is taken anew when the user asks or has changed something. What an action does not
change, and why, is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from bough.cli.targets.jobs_database import OpenDatabase
from bough.cli.targets.live_server import MakeAction
from bough.cli.targets.task_rows import group_counts, released, show_counts, why
from bough.errors import UserError
from bough.model.events.news import DeclareDone, Hold, Kill, Release, Reset, Retry
from bough.model.tasks import Dep, On
from bough.stores.jobs.jobs_reader import is_hidden

Row = dict[str, Any]

ACTIONS: dict[str, tuple[MakeAction, ...]] = {
    "enable": (partial(Release, enabled=True),),
    "disable": (partial(Hold, disabled=True),),
    "reset": (Reset,),
    "reset with all that depends on it": (partial(Reset, cascade=True),),
    "declare done": (DeclareDone,),
    "stop": (Hold, Kill),
    "stop and disable": (partial(Hold, disabled=True), Kill),
    "retry": (Retry,),
    "kill": (Kill,),
}


class Entry(msgspec.Struct, frozen=True):
    """One row: a subgroup, or a task or array of the group itself."""

    id: int
    name: str
    is_group: bool
    status: str
    note: str = ""
    is_array: bool = False

    @property
    def target(self) -> Dep:
        """What the server is told."""
        return Dep(On.GROUP if self.is_group else On.ARRAY if self.is_array else On.TASK, self.id)


class Levels:
    """The groups of one run, and the level that is shown."""

    def __init__(self, database: OpenDatabase, run: int) -> None:
        self._database = database
        self.run = run
        self.path = ""
        self.entries: list[Entry] = []
        self.refresh()

    @property
    def can_act(self) -> bool:
        """Whether there is a server to tell."""
        return self._database.server is not None

    def refresh(self) -> None:
        """Look again at the level where one is."""
        self._database.refresh()
        groups: list[Row] = self._database.rows(
            "select id, parent, name, path, disabled from groups where run = ? order by id", [self.run]
        )
        counts = group_counts(self._database, self.run)
        released_groups = released(self._database, self.run, counts)
        here = next(row["id"] for row in groups if row["path"] == self.path)
        self.entries = [
            Entry(
                row["id"],
                row["name"],
                is_group=True,
                status=show_counts(counts[row["path"]]),
                note="disabled" if row["disabled"] else "released" if row["path"] in released_groups else "",
            )
            for row in groups
            if row["parent"] == here and row["id"] != here and not is_hidden(row["path"])
        ]
        columns = "id, name, state, is_array, length, done, cause, message, exit_code, signal, command"
        tasks: list[Row] = self._database.rows(
            f"select {columns} from tasks where run = ? and grp = ? order by id", [self.run, here]
        )
        self.entries += [
            Entry(
                row["id"],
                row["name"] or str(row["command"] or "")[:40],
                is_group=False,
                status=row["state"] + (f", {row['done']} of {row['length']} done" if row["is_array"] else ""),
                note=why(row),
                is_array=bool(row["is_array"]),
            )
            for row in tasks
        ]

    def dive(self, entry: Entry) -> bool:
        """Go into a subgroup; False if it is none."""
        if entry.is_group:
            self.path = f"{self.path}/{entry.name}" if self.path else entry.name
            self.refresh()
        return entry.is_group

    def up(self) -> None:
        """Go to the group around this one."""
        self.path = self.path.rpartition("/")[0]
        self.refresh()

    def prerequisites(self, entry: Entry) -> list[Entry]:
        """What of this level an entry depends on, directly or through groups that are not shown."""
        groups, tasks = self._waits_for(entry.id, is_group=entry.is_group)
        return [one for one in self.entries if one.id in (groups if one.is_group else tasks)]

    def _waits_for(self, number: int, *, is_group: bool) -> tuple[set[int], set[int]]:
        groups: set[int] = set()
        tasks: set[int] = set()
        if is_group:
            rows = self._database.rows(
                "select on_kind, on_id from group_after where run = ? and id = ?", [self.run, number]
            )
        else:
            rows = self._database.rows("select on_kind, on_id from after where id = ?", [number])
        for row in rows:
            other = int(str(row["on_id"]))
            if row["on_kind"] not in {"group", "end"}:
                tasks.add(other)
            elif other not in groups:
                groups.add(other)
                path = self._database.rows("select path from groups where run = ? and id = ?", [self.run, other])
                if path and is_hidden(str(path[0]["path"])):
                    beyond = self._waits_for(other, is_group=True)
                    groups |= beyond[0]
                    tasks |= beyond[1]
        return groups, tasks

    def act(self, action: str, entries: Sequence[Entry]) -> str:
        """Do one of `ACTIONS` to rows, and say what came of it."""
        server = self._database.server
        if server is None:
            raise UserError("no session is running: there is no server to tell")
        left_out: list[str] = []
        touched = sum(server.act(make(one.target, 0), left_out) for make in ACTIONS[action] for one in entries)
        self.refresh()
        said = f"{action}: {touched} {'task' if touched == 1 else 'tasks'}"
        return "; not changed: ".join([said, *left_out])
