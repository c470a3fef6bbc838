"""Bough runs many-task workloads with dependencies on whatever machines you can reach.

The public names are imported when they are first used, so that `import bough` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Session": "bough.api.session",
    "Task": "bough.api.task",
    "Array": "bough.api.array",
    "Group": "bough.api.group",
    "Completed": "bough.api.completed",
    "product": "bough.api.spaces",
    "tie": "bough.api.spaces",
    "BoughError": "bough.errors",
    "UserError": "bough.errors",
    "SiteError": "bough.errors",
    "InternalError": "bough.errors",
    "TaskFailed": "bough.errors",
    "NotRun": "bough.errors",
}

__all__ = [
    "Array",
    "BoughError",
    "Completed",
    "Group",
    "InternalError",
    "NotRun",
    "Session",
    "SiteError",
    "Task",
    "TaskFailed",
    "UserError",
    "__version__",
    "product",
    "tie",
]

if TYPE_CHECKING:
    from bough.api.array import Array as Array
    from bough.api.completed import Completed as Completed
    from bough.api.group import Group as Group
    from bough.api.session import Session as Session
    from bough.api.spaces import product as product
    from bough.api.spaces import tie as tie
    from bough.api.task import Task as Task
    from bough.errors import BoughError as BoughError
    from bough.errors import InternalError as InternalError
    from bough.errors import NotRun as NotRun
    from bough.errors import SiteError as SiteError
    from bough.errors import TaskFailed as TaskFailed
    from bough.errors import UserError as UserError


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'bough' has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
