"""The thread that submits bundles: those that are complete at once, those that wait for more when their time has come.

Rule: bundles leave in the order in which they became complete; what is issued while one is being submitted gathers
in the next, so that the faster jobs are issued, the bigger bundles without a factor become.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bough.driver.job_bundles import Bundle, run_stages
from bough.errors import BoughError

if TYPE_CHECKING:
    from bough.api.submit.submitter import Submitter

_LOOK = 0.005  # seconds between looks at whether a bundle in progress has ended, when there may be no more of them
_GATHER = 0.001  # seconds in which jobs of a group without a factor gather
_NO_NAME = re.compile(r"\W")


class BundleSender:
    """See the module. `due(now)` sends off what has waited long enough and says when to call it again."""

    def __init__(
        self, target: Submitter, most: int | None, lock: threading.RLock, due: Callable[[float], float | None]
    ) -> None:
        self._target = target
        self._most = most
        self._lock = lock
        self._due = due
        self._changed = threading.Condition(lock)
        self._ready: deque[Bundle] = deque()
        self._under_way: deque[Bundle] = deque()  # submitted; those at the front have perhaps ended
        self._is_stopped = False
        self.pending = 0  # jobs that had not finished when they were counted last
        self.submissions = 0
        self._thread = threading.Thread(target=self._work, name="bough-driver", daemon=True)
        self._thread.start()

    def send(self, bundle: Bundle) -> None:
        """Have a bundle submitted; the caller holds the lock."""
        self._ready.append(bundle)
        self._changed.notify_all()

    def wake(self) -> None:
        """A bundle has begun to wait; the caller holds the lock."""
        self._changed.notify_all()

    def wait_sent(self, bundle: Bundle, deadline: float | None) -> None:
        """Wait until a bundle was submitted, cancelled or refused; TimeoutError when it takes longer."""
        with self._changed:
            rest = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._changed.wait_for(lambda: bundle.array or bundle.error or bundle.is_cancelled, rest):
                raise TimeoutError

    def count(self) -> int:
        """How many jobs have not finished; the caller holds the lock."""
        self._forget_ended()
        self.pending = sum(bundle.left() * len(bundle.rows[0]) for bundle in (*self._under_way, *self._ready))
        return self.pending

    def drain(self) -> None:
        """Wait until everything has been submitted and has ended."""
        with self._changed:
            self._changed.wait_for(lambda: not self._ready)
            bundles = list(self._under_way)
        for bundle in bundles:
            if bundle.array is not None:
                bundle.array.wait_all()

    def cancel(self) -> list[Bundle]:
        """Cancel what is under way; returns what was not submitted, which never will be. The caller holds the lock."""
        left = list(self._ready)
        self._ready.clear()
        for bundle in left:
            bundle.is_cancelled = True
        self._changed.notify_all()
        for bundle in self._under_way:
            if bundle.array is not None:
                bundle.array.cancel()
        return left

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._thread.join()

    # --- the thread -------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                bundle = self._next()
                if bundle is None:
                    return
            array, error = self._submit(bundle)
            with self._changed:
                bundle.array, bundle.error = array, error
                self.submissions += array is not None
                self._ready.popleft() if self._ready and self._ready[0] is bundle else None
                if bundle.is_cancelled and array is not None:
                    array.cancel()
                self._under_way.append(bundle)
                self._forget_ended()
                self._changed.notify_all()

    def _next(self) -> Bundle | None:
        """The bundle to be submitted now; it stays first until it is."""
        while not self._is_stopped:
            if self._ready:
                if self._has_room():
                    return self._ready[0]
                self._changed.wait(_LOOK)
                continue
            now = time.monotonic()
            again = self._due(now - _GATHER)
            if not self._ready:
                self._changed.wait(None if again is None else max(0.0, again - now) + _GATHER)
        return None

    def _has_room(self) -> bool:
        if self._most is None:
            return True
        return sum(bundle.left() > 0 for bundle in self._under_way) < self._most

    def _forget_ended(self) -> None:
        while self._under_way and not self._under_way[0].left():
            self._under_way.popleft()

    def _submit(self, bundle: Bundle) -> tuple[Any, Exception | None]:
        from bough.model.spaces import tie

        label = bundle.group.label
        try:
            if bundle.is_pipelines:
                rows = [[job.stage for job in row] for row in bundle.rows]
                several = self._target.options(memo=False, name=label or "pipeline")
                return several.map(run_stages, rows, [bundle.keep_going] * len(rows)), None
            slot = "job_" + _NO_NAME.sub("_", label)  # jobs of one label are expected to run equally long
            jobs = [row[0] for row in bundle.rows]
            stage, files = jobs[0].stage, jobs[0].files
            about: dict[str, Any] = {"cwd": stage.cwd, "env": stage.env or None, "name": label or None, "memo": False}
            if files is None:
                words = [job.stage.words for job in jobs]
                return self._target.sweep(f"{{{slot}}}", tie(**{slot: words}), **about), None
            columns = zip(*[job.files.values for job in jobs if job.files], strict=True)
            space = tie(**{f"{slot}_{number}": list(values) for number, values in enumerate(columns)})
            return self._target.sweep(files.text(slot), space, clash="overwrite", **about), None
        except BoughError as error:
            return None, error
