"""`Remote`: a function of the user's that runs beside the script, with a communicator to a running task.

    def watch(talk):
        for line in talk.lines("stdout", pattern="energy="):
            if float(line.partition("=")[2]) > 0:
                talk.fail("the energy is positive")

    task.monitor(Remote(watch))

Unlike other monitors it never leaves the script's process. Rule: it is a value; `api.remote_monitors` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

from msgspec import Meta

from bough.errors import WrongType
from bough.model.bounds import shown, within

Threads = Annotated[int, Meta(ge=1, le=1000)]


class Remote:
    """A function that is called with a `Communicator` for each task that it monitors.

    Args:
        function: `function(communicator)`; it returns when it has seen enough.
        name: of the monitor, in messages; by default that of the function.
        threads: how many tasks it monitors at a time.
    """

    def __init__(self, function: Callable[[Any], object], name: str | None = None, *, threads: int = 32) -> None:
        if not callable(function):
            raise WrongType(f"Remote: {shown(function)} is no function of a communicator")
        self.function = function
        self.name: str = name or getattr(function, "__name__", "") or type(function).__name__
        self.threads = within("threads", threads, Threads)

    def __repr__(self) -> str:
        return f"Remote({self.name})"


def read_remotes(given: Iterable[object] | object) -> list[Remote]:
    """What is given as `remote_monitors`: functions, or `Remote`s, or one of them."""
    if given is None:
        return []
    things = list(given) if isinstance(given, Iterable) else [given]
    return [thing if isinstance(thing, Remote) else Remote(thing) for thing in things]  # type: ignore[arg-type]
