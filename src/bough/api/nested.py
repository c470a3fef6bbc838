"""Sessions within a task: nested work on the cores that the task has.

The task waits for it and uses nothing meanwhile, so that its cores are lent to what it started, and no more than those
are ever used. Rule: a nested session ends with the process of its task, however that ends; its folder goes with it, or
with the executor if the process was killed.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bough.api.session import Session
from bough.errors import UserError
from bough.private import TemporaryFolder

if TYPE_CHECKING:
    from bough.api.here import Here

_OUTER = ("BOUGH_TASK", "BOUGH_ATTEMPT", "BOUGH_RUN", "BOUGH_SERVER")  # what belongs to the task, not to its session


def nested_session(here: Here, options: dict[str, Any]) -> Session:
    """A session on the cores of a task; without a `store` of its own, one that is forgotten with it."""
    for given in ("address", "cores"):
        if given in options:
            raise UserError(f"a session within a task has the task's own cores: leave out {given}")
    attributes = here.attributes
    cores = attributes["cores"]
    assert isinstance(cores, int | float)
    options.setdefault("name", f"task-{attributes['id']}")
    folder: TemporaryFolder | None = None
    if options.get("store") is None:
        folder = TemporaryFolder("nested")
        options["store"] = folder.make()
    try:
        with _outside():
            session = Session(cores=max(1, cores), **options)
    except BaseException:
        if folder is not None:
            folder.remove()
        raise
    if folder is not None:
        weakref.finalize(session, folder.remove)
    return session


@contextlib.contextmanager
def _outside() -> Iterator[None]:
    """Hide the task from a session that is being opened: it would refuse, or go to the task's server."""
    hidden = {name: os.environ.pop(name) for name in _OUTER if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)
