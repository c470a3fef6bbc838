"""Files with what tasks wrote to stdout and stderr, when the last task that wrote to one is removed.

Executors share a file between the tasks of a slot. Rule: a file is deleted only when the jobs database names it no
more, the executor that made it is gone, and nothing was written to it for longer than executors look for their server.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container

from bough.stores.opening import open_jobs

_MADE_BY = re.compile(r"x(\d+)-")  # how executors name their output files
AGE = 2 * 86400.0  # seconds
_NAMED = " UNION ".join(
    f"SELECT {stream}_path FROM {table} WHERE {stream}_path IS NOT NULL"
    for table in ("tasks", "elements")
    for stream in ("stdout", "stderr")
)
_LENT = "SELECT 1 FROM borrowed WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = borrowed.source) LIMIT 1"


def delete_unused(where: str, folder: str, working: Container[int], now: float) -> int:
    """Delete what nobody needs of a folder of outputs; how many files. `working`: executors that may still write."""
    old = [path for path in _files(folder, working) if now - os.stat(path).st_mtime > AGE]
    if not old:
        return 0
    with open_jobs(where) as jobs:
        if jobs.query(_LENT)[1]:  # a run uses results of one that is gone, and what they wrote
            return 0
        named = {os.path.realpath(str(row[0])) for row in jobs.query(_NAMED)[1]}
    gone = [path for path in old if os.path.realpath(path) not in named]
    for path in gone:
        os.unlink(path)
    return len(gone)


def _files(folder: str, working: Container[int]) -> list[str]:
    found = []
    for entry in os.scandir(folder):
        made = _MADE_BY.match(entry.name)
        if made and int(made[1]) not in working and entry.is_file(follow_symlinks=False):
            found.append(entry.path)
    return found
