"""What a flat list would run, seen from what earlier runs have done; for `bough run --dry-run`.

A command of a flat list is reused when the n-th of its text succeeded before, and all it comes after is
reused. Rule: it looks at the jobs database and changes nothing.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from bough.cli.database import Database
from bough.describe.flat import FlatTask

Twin = tuple[str, int]  # the text of a command, and which one of this text in its run


def plain(command: str) -> str:
    """A text as the jobs database may hold it: a command that needs no shell is kept as words."""
    try:
        return shlex.join(shlex.split(command))
    except ValueError:
        return command


def finished(database: Database) -> set[Twin]:
    """The loose commands of all runs that were done."""
    rows = database.rows("select run, command, state from tasks where kind = 'command' and not is_array order by id")
    seen: Counter[tuple[object, str]] = Counter()
    done: set[Twin] = set()
    for row in rows:
        command = plain(str(row["command"]))
        number = seen[row["run"], command]
        seen[row["run"], command] += 1
        if row["state"] == "done":
            done.add((command, number))
    return done


def would_run(tasks: Sequence[FlatTask], done: Iterable[Twin]) -> list[FlatTask]:
    """The tasks, dependencies first, that are not expected to be reused."""
    known = set(done)
    seen: Counter[str] = Counter()
    run: list[FlatTask] = []
    names: set[str] = set()  # of tasks that run
    for task in tasks:
        command = plain(task.command)
        twin = (command, seen[command])
        seen[command] += 1
        if twin not in known or any(other in names for other in task.after):
            run.append(task)
            names.add(task.name)
    return run
