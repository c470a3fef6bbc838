"""The halt file of a workflow: while it is there, no task starts; those that run go on.

DAGMan's users write `touch my.dag.halt` to stop a DAG for a while. A thread looks for the file while the workflow runs,
holds the workflow when it appears, and releases it when it is gone.

Rule: the file is the user's: it is looked for, and never read, written or removed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bough.errors import BoughError
from bough.model.events.news import Hold, Release
from bough.model.tasks import Dep, On

if TYPE_CHECKING:
    from bough.api.session.session import Session

_LOOK = 0.5  # seconds between looks


class HaltFile:
    """See the module. A context that is entered before the session and left after it; without a path it is idle."""

    def __init__(self, path: str, note: Callable[[str], None]) -> None:
        self._path = path
        self._note = note
        self._session: Session | None = None
        self._is_halted = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="bough-halt-file", daemon=True)

    def begin(self, session: Session) -> None:
        """Look now, before anything is submitted, and then until the end."""
        if self._path:
            self._session = session
            self._look()
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()

    def _watch(self) -> None:
        with contextlib.suppress(BoughError):  # the session has ended
            while not self._is_over.wait(_LOOK):
                self._look()

    def _look(self) -> None:
        is_there = os.path.lexists(self._path)
        if is_there == self._is_halted or self._session is None:
            return
        workflow = Dep(On.GROUP, self._session.root)
        self._session.act(Hold(workflow) if is_there else Release(workflow))
        self._is_halted = is_there
        if is_there:
            self._note(f"halted: {self._path} is there; no other node starts until you remove it")
        else:
            self._note(f"{self._path} is gone; the workflow goes on")
