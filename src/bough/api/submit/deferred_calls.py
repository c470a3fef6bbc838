"""Calls whose arguments hold futures of others: of another executor, or of another session.

Such a call is submitted once these futures are done, with their values in their places. Until then its task is there,
and waits. A call that takes the value of such a task is submitted once that one is.

Rule: a future that failed or was cancelled fails the call by `NotRun`, as a task of this session would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from bough.api.futures.task import Task
from bough.errors import BoughError, NotRun, SiteError

if TYPE_CHECKING:
    from bough.api.submit.context import SessionLike


def value_of_other(future: Future[Any]) -> Any:
    """The value of a future that is done; NotRun when it has none."""
    try:
        return future.result(0)
    except BaseException as error:  # whatever it failed of, also CancelledError
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise NotRun(f"it waits for {future!r:.80}, which did not succeed: {why}") from error


class DeferredCall:
    """A call that waits for futures of others; its session waits for it."""

    def __init__(self, session: SessionLike, task: Task, send: Callable[[], object]) -> None:
        self._session = session
        self._task = task
        self._send = send
        self._left = 0
        self._is_over = False
        self._is_sent = False
        self._lock = threading.Lock()
        self.sent: Future[None] = Future()  # done once the server has the call, or never will

    def start(self, futures: Sequence[Future[Any]]) -> None:
        """Show the task, and submit the call when these futures are done."""
        registry, task = self._session.registry, self._task
        registry.deferred[task.record] = self.sent
        registry.tasks[task.record] = task
        registry.progress.added(task.group, 1)
        self._session.add_feed(self)
        task.add_done_callback(lambda _: self._over())  # it may be cancelled, or the server may be lost
        self._left = len(futures)
        for future in futures:
            future.add_done_callback(self._on_done)

    def _on_done(self, _: Future[Any]) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        self._finish()

    def _finish(self) -> None:
        registry, task = self._session.registry, self._task
        try:
            if registry.tasks.pop(task.record, None) is not None:  # else it was cancelled, or the session is over
                registry.progress.added(task.group, -1)
                self._is_sent = True  # or the registry is told that it could not be
                try:
                    self._send()
                except BoughError as error:
                    registry.not_sent(task, error)
                except Exception as error:  # noqa: BLE001 - nobody else would see it
                    registry.not_sent(task, SiteError(f"it could not be submitted: {type(error).__name__}: {error}"))
        finally:
            self._over()

    def _over(self) -> None:
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        if not self._is_sent:
            self._session.registry.unsent.add(self._task.record)  # the server will never know it
        self._session.registry.deferred.pop(self._task.record, None)
        self.sent.set_result(None)  # calls that take its value are submitted now
        self._session.deferral_ended(self)

    # --- what a session asks of what must end before it can ---------------------------------------------

    def stop(self) -> None:
        """Do not submit it any more."""
        self._task.cancel()
        self._over()

    def abandon(self) -> None:
        """It has no results that could be taken."""

    def join(self) -> None:
        """Wait until it was submitted, or was stopped."""
        self.sent.result()
