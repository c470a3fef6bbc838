"""What is done behind the turns: fsync in batches, folding the journal, snapshots.

Rule: none of it is waited for by a turn. What takes longer than a slice is done in slices between turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from bough import logs
from bough.errors import StoreFailed
from bough.stores.store import Store

_SYNC_AFTER = 0.05
_SYNC_AGAIN = 1.0  # seconds until a disk that failed is tried again
_QUIET = 0.1  # seconds without a turn that count as idle
_SLICE = 0.02  # seconds of folding at a time
_FIRST_STEP = 1  # turns folded per call, as long as it is not known how long they take
_BURST = 1_000  # new records since the last look at it: a client submits as fast as it can, and it is not quiet
_MOST_STEP = 128
_BEHIND = 2_000  # turns after which folding does not wait for a quiet moment
_SNAPSHOT_TURNS = 20_000
_SNAPSHOT_BYTES = 64 << 20
_EACH = 1e-5  # seconds that a record takes in a snapshot
_SHARE = 0.05  # of the time that may go into snapshots


class Background:
    """See the module. `snapshot` gives the machine's state, of so many `records`; `run` is the run it belongs to."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        run: int,
        snapshot: Callable[[], bytes],
        records: Callable[[], int] = lambda: 0,
    ) -> None:
        self._loop = loop
        self._store = store
        self._run = run
        self._snapshot = snapshot
        self._records = records
        self._saved_at = monotonic()
        self._sync_timer: asyncio.TimerHandle | None = None
        self._syncing: asyncio.Future[None] | None = None
        self._unsynced = False
        self._fold_timer: asyncio.TimerHandle | None = None
        self._behind = 0
        self._step = _FIRST_STEP
        self._known = 0  # records when it was last looked whether it is quiet
        self._pace = 0.0  # seconds that the last call took: a turn of thousands of tasks is folded as a whole
        self._last_turn = 0.0
        self._since_snapshot = 0
        self._snapshot_size = 0
        self._bytes_since = 0
        self._stopped = False
        self._wanting: list[Callable[[], None]] = []  # what waits for the jobs database
        self._unsafe: list[Callable[[], None]] = []  # what waits for the disk

    def when_folded(self, then: Callable[[], None]) -> None:
        """Call back once the jobs database has caught up with the journal."""
        self._wanting.append(then)
        if self._fold_timer is not None:
            self._fold_timer.cancel()
        self._fold()

    def when_synced(self, then: Callable[[], None]) -> None:
        """Call back once all that is appended by now is on the disk; those that ask meanwhile share the next sync."""
        self._unsafe.append(then)
        if self._syncing is None:
            if self._sync_timer is not None:
                self._sync_timer.cancel()
            self._sync()

    def save_snapshot(self, number: int) -> None:
        """Keep the state as it is after a turn, so that going on with it is quick."""
        self._save_snapshot(number)

    def appended(self, number: int, size: int) -> None:
        """A turn was written, with about so many bytes of results."""
        self._unsynced = True
        if self._sync_timer is None and self._syncing is None:
            self._sync_timer = self._loop.call_later(_SYNC_AFTER, self._sync)
        self._behind += 1
        self._last_turn = monotonic()
        if self._fold_timer is None:
            self._fold_timer = self._loop.call_later(2 * _QUIET, self._fold)
        self._since_snapshot += 1
        self._bytes_since += size
        due = self._since_snapshot >= _SNAPSHOT_TURNS or self._bytes_since >= _SNAPSHOT_BYTES
        if due and self._bytes_since >= self._snapshot_size and self._can_pause():
            self._save_snapshot(number)  # all of them together cost what the journal does

    def _can_pause(self) -> bool:
        """Whether a snapshot, for which everything waits, would take little of the time since the last one."""
        return _EACH * self._records() <= _SHARE * (self._last_turn - self._saved_at)

    async def stop(self) -> None:
        """Start nothing more, and wait for what is under way."""
        self._stopped = True
        for timer in (self._sync_timer, self._fold_timer):
            if timer is not None:
                timer.cancel()
        if self._syncing is not None:
            await asyncio.wait([self._syncing])

    def _sync(self) -> None:
        self._sync_timer = None
        self._unsynced = False
        waiting, self._unsafe = self._unsafe, []
        self._syncing = self._loop.run_in_executor(None, self._store.sync)
        self._syncing.add_done_callback(lambda done: self._synced(done, waiting))

    def _synced(self, done: asyncio.Future[None], waiting: list[Callable[[], None]]) -> None:
        self._syncing = None
        error = done.exception()
        if error is not None:
            logs.error("journal-not-synced", f"the journal could not be brought to the disk: {error}")
            self._unsafe = waiting + self._unsafe
            self._unsynced = True
        else:
            for then in waiting:
                then()
        if self._stopped:
            return
        if self._unsafe and error is None:
            self._sync()
        elif self._unsynced and self._sync_timer is None:
            self._sync_timer = self._loop.call_later(_SYNC_AFTER if error is None else _SYNC_AGAIN, self._sync)

    def _fold(self) -> None:
        """Fold a slice when it is quiet, or when too much has gathered."""
        self._fold_timer = None
        if self._stopped:
            return
        quiet = bool(self._wanting) or (not self._is_bursting() and monotonic() - self._last_turn >= _QUIET)
        wait = 2 * _QUIET
        if quiet or self._behind > _BEHIND:
            try:
                if self._fold_slice():
                    self._behind = 0
                    wanting, self._wanting = self._wanting, []
                    for then in wanting:
                        then()
                    return
                wait = max(0.001, self._pace) if quiet else 1.0  # others get as much time in between
            except StoreFailed as error:
                logs.warning("jobs-database-behind", f"the jobs database could not be brought up to date: {error}")
                wait = 10.0
        self._fold_timer = self._loop.call_later(wait, self._fold)

    def _is_bursting(self) -> bool:
        """Whether many tasks came since this was asked last; between their turns may be pauses, made by them."""
        before, self._known = self._known, self._records()
        return self._known - before >= _BURST

    def _fold_slice(self) -> bool:
        begun = monotonic()
        until = begun + _SLICE
        while not self._store.project(at_most=self._step):
            now = monotonic()
            self._pace = now - begun
            if now - begun > _SLICE / 2:  # a turn may hold one task or thousands
                self._step = max(1, self._step // 2)
            elif now - begun < _SLICE / 8:
                self._step = min(_MOST_STEP, 2 * self._step)
            if now >= until:
                return False
            begun = now
        return True

    def _save_snapshot(self, number: int) -> None:
        self._since_snapshot = self._bytes_since = 0
        self._saved_at = monotonic()
        data = self._snapshot()
        self._snapshot_size = len(data)
        try:
            self._store.save_snapshot(number, self._run, data)
        except StoreFailed as error:  # only a later recovery is slower for it
            logs.warning("snapshot-failed", f"no snapshot was saved: {error}")
        else:
            logs.debug("snapshot-saved", f"the state after turn {number} was saved: {len(data)} bytes")
