"""Workflow files in and out: description scripts, Makefiles, flat lists, pictures of the graph.

Scripts of the short form import `level` and `arguments` from here. Rule: nothing is loaded before it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bough.describe.short_script import arguments, level

__all__ = ["arguments", "level"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from bough.describe import short_script

        return getattr(short_script, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
