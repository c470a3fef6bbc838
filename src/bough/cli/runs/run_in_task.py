"""The session of `bough run`: its own, or inside a task one on the cores of the task.

Rule: inside a task neither the server of the task nor `--cores` counts; its store is where the task runs.
"""

from __future__ import annotations

import os

from bough.api.session import launch
from bough.api.session.session import Session


def open_session(name: str, on_failure: str) -> Session:
    """A session for a workflow file, or commands; inside a task one on the cores of the task, with a store here."""
    if "BOUGH_TASK" not in os.environ:
        return Session(name=name, on_failure=on_failure)
    from bough.api.task_context import here  # late: few runs are within a task

    given = launch.setting("store", None)
    with launch.run_defaults({"server": None, "cores": None}):
        return here().session(name=name, on_failure=on_failure, store=given or os.path.join(launch.HOME, name))
