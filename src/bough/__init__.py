"""Bough runs many-task workloads with dependencies on whatever machines you can reach.

The public names are imported when they are first used, so that `import bough` costs next to nothing;
`__init__.pyi` tells type checkers of them.
"""

from __future__ import annotations

import os

try:
    _BEGUN = os.getcwd()  # a script that goes elsewhere before it opens a session still has the modules of where it was
except OSError:
    _BEGUN = ""

__version__ = "0.1.0"

_HOMES = {
    "Session": "bough.api.session.session",
    "Task": "bough.api.futures.task",
    "Checkpoint": "bough.api.submit.task_options.checkpoint_options",
    "Array": "bough.api.futures.array",
    "Group": "bough.api.submit.groups",
    "Completed": "bough.api.futures.completed",
    "EndedEarly": "bough.model.outcomes",
    "here": "bough.api.task_context",
    "memo": "bough.api.memo.decorator",
    "product": "bough.model.spaces",
    "tie": "bough.model.spaces",
    "BoughError": "bough.errors",
    "UserError": "bough.errors",
    "SiteError": "bough.errors",
    "InternalError": "bough.errors",
    "TaskFailed": "bough.errors",
    "WorkflowFailed": "bough.errors",
    "NotRun": "bough.errors",
}

_MODULES = ("analysis", "driver", "monitors", "sim")


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None and name not in _MODULES:
        raise AttributeError(f"module 'bough' has no attribute {name!r}")
    import importlib

    found: object = getattr(importlib.import_module(home), name) if home else importlib.import_module(f"bough.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
