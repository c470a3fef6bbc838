"""Who listens to the server: the session's reader thread, or a caller who waits for a task.

What the reader thread hears must wake whoever waits for it, and that takes as long as a hop between processes. So
once a caller was served who waited alone, the reader steps aside, and the next who waits listens for itself. The
reader is back when nobody has listened for `PATIENCE`, and at once when it is wanted (`recall`): by those who wait in
other ways, or wait together. Rule: one thread listens at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

PATIENCE = 0.02  # seconds without anybody who listens


class Attention:
    """See the module. `listen` hears until something is true or a time has come; whether it is true."""

    def __init__(self, listen: Callable[[Callable[[], bool], float | None], bool]) -> None:
        self._listen = listen
        self._changed = threading.Condition(threading.Lock())
        self.is_aside = False  # the reader does not listen, so that a caller may
        self._taker = 0  # the thread of the caller who listens now
        self._takes = 0  # how often callers have listened
        self._wishes: dict[int, Callable[[], bool]] = {}  # what threads wait for
        self._is_wanted = False  # the reader shall come back as soon as it can
        self._sleeps = False  # the reader does not look by itself whether it may come back

    # --- for callers --------------------------------------------------------------------------------

    def wait(
        self, is_done: Callable[[], bool], sleep: Callable[[float | None], bool], timeout: float | None = None
    ) -> bool:
        """Wait until something is done, by listening if nobody else does, else by `sleep`; whether it is done."""
        me = threading.get_ident()
        if self._taker == me:  # in a signal's handler, while this very thread listens
            return self._listen(is_done, None if timeout is None else monotonic() + timeout)
        until = None if timeout is None else monotonic() + timeout
        try:
            if self._begin(me, is_done) and self._listen(is_done, until):
                return True
            if self._taker == me:
                self._end(me, wanted=True)
            return sleep(None if until is None else max(0.0, until - monotonic()))
        finally:
            interruption: BaseException | None = None
            while me in self._wishes or self._taker == me:
                try:
                    self._end(me)
                except BaseException as found:  # noqa: BLE001 -- Ctrl-C: who listens must not stay in the way
                    interruption = found
            if interruption is not None:
                raise interruption

    def _begin(self, me: int, is_done: Callable[[], bool]) -> bool:
        """Whether this one is to listen."""
        with self._changed:
            self._wishes[me] = is_done
            if not self.is_aside or self._taker or self._is_wanted:
                return False
            self._takes += 1
            self._taker = me
            return True

    def _end(self, me: int, *, wanted: bool = False) -> None:
        with self._changed:
            if self._taker == me:
                self._taker = 0
                if wanted or self._sleeps or self._is_wanted or len(self._wishes) > 1:
                    self._is_wanted = True
                    self._changed.notify()
            self._wishes.pop(me, None)

    def recall(self) -> None:
        """The reader is wanted: somebody waits in a way in which nobody listens."""
        if self.is_aside:
            with self._changed:
                self._is_wanted = True
                self._changed.notify()

    # --- for the reader -----------------------------------------------------------------------------

    def may_step_aside(self) -> bool:
        """Whether there is one who waits for a task, and it has ended."""
        wishes = self._wishes
        return len(wishes) == 1 and all(is_done() for is_done in list(wishes.values()))

    def step_aside(self) -> None:
        """Let callers listen; returns when the reader is to listen again."""
        with self._changed:
            self.is_aside, self._is_wanted = True, False
            takes = -1
            while self._taker or not (self._is_wanted or takes == self._takes):
                self._sleeps = bool(self._taker) and (self._is_wanted or takes == self._takes)
                takes = self._takes
                self._changed.wait(None if self._sleeps else PATIENCE)
            self.is_aside = self._is_wanted = self._sleeps = False
