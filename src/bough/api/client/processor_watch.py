"""Calls the functions of a script when processors come or go.

The server pushes what is new; the reader passes it on, and a thread of its own calls, so that a function may wait for
tasks and submit others. Rule: a function that raises is reported on standard error, and called the next time as well.
"""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress

ProcessorsCallback = Callable[[dict[str, float]], object]


class ProcessorWatch:
    """See the module. `now`: the processors that the script knows of."""

    def __init__(self) -> None:
        self._callbacks: list[ProcessorsCallback] = []
        self._news: queue.SimpleQueue[dict[str, float] | None] = queue.SimpleQueue()
        self._known: dict[str, float] | None = None
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    @property
    def is_on(self) -> bool:
        """Whether a function waits for changes."""
        return self._thread is not None

    def add(self, callback: ProcessorsCallback) -> None:
        """Call this, too."""
        self._callbacks.append(callback)
        if self._thread is None:
            self._thread = threading.Thread(target=self._call, name="bough-processors", daemon=True)
            self._thread.start()

    def tell(self, cores: dict[str, float]) -> None:
        """In the reader's thread: this is there now."""
        self._news.put(cores)

    def stop(self) -> None:
        """Nothing more will be told, and no function called."""
        self._is_stopped = True
        self._news.put(None)

    def _call(self) -> None:
        while (cores := self._news.get()) is not None:
            before, self._known = self._known, cores
            if before is None or before == cores or self._is_stopped:  # the first is what was there when it began
                continue
            for callback in list(self._callbacks):
                try:
                    callback(dict(cores))
                except Exception:  # noqa: BLE001 -- it is the user's: the next change concerns it all the same
                    self._report()

    def _report(self) -> None:
        """Say what a function raised, unless the session has ended under it."""
        if not self._is_stopped:
            with suppress(OSError, ValueError):  # standard error is closed
                sys.stderr.write(f"bough: a function of on_processors raised:\n{traceback.format_exc()}")
