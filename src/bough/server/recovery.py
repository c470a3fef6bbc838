"""After a crash: end what the dead run left behind, take in what it could not report, and close it.

The crashed run is replayed into a machine of its own, so that late reports are judged as they would
have been. Rule: one turn holds all of it, so that a recovery that is itself cut short leaves either
nothing or everything, and spilled reports are deleted only after it is written.
"""

from __future__ import annotations

import traceback

from bough.errors import StoreFailed
from bough.model.facts import News, RunClosed
from bough.model.ids import Seconds
from bough.policy.api import PlacementPolicy
from bough.server import leftovers
from bough.server.log import log
from bough.stores.api import LastRun, Store
from bough.stores.replaying import replay_run
from bough.stores.spill import clear_spills, read_spills

PATIENCE = 3.0  # seconds an executor of the dead run gets to end its tasks and spill


def recover(store: Store, last: LastRun, policy: PlacementPolicy, *, spill_dir: str, mark: str, now: Seconds) -> None:
    """Close a run that did not close itself. Call it with the store's lock held."""
    ended = leftovers.end(mark, patience=PATIENCE)
    closed = RunClosed(last.run, "crashed")
    news: list[News] = []
    for _, spilled in read_spills(spill_dir):
        news += spilled
    try:
        turn = replay_run(store, last.run, 0, policy).turn(now, [*news, closed])
    except StoreFailed:
        raise
    except Exception:  # noqa: BLE001 -- our bug, but it must not lock people out of their store for ever
        log(f"run {last.run} had crashed and cannot be replayed; {len(news)} late reports stay in {spill_dir}")
        log(traceback.format_exc())
        store.append(last.last_turn + 1, now, [closed])
        return
    store.append(turn.number, now, turn.facts)
    store.sync()
    clear_spills(spill_dir)
    log(f"run {last.run} had crashed: {len(ended)} processes of it ended, {len(news)} late reports taken in")
