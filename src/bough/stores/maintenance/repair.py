"""Repairs a store that no process uses: does at once, for all of it, what a server does when it meets something wrong.

Facts that cannot be read are set aside, the jobs database is made again from the journal if it lacks something, and an
open run is replayed, from the journal if its snapshot is of no use. Rule: nothing is taken out of the journal, and
a second repair changes nothing.
"""

from __future__ import annotations

from contextlib import ExitStack, closing

import msgspec

from bough.errors import BoughError
from bough.policies.policy_registry import load_policies
from bough.stores.maintenance.copies import check, open_reader
from bough.stores.maintenance.replay import replay_run
from bough.stores.open import lock_store, open_store
from bough.stores.quarantine import NOT_IN_TABLES, SetAside
from bough.stores.sql.sql_store import SqlStore


class Repaired(msgspec.Struct):
    """What was done."""

    store: str
    set_aside: list[SetAside] = []  # by this repair; without what they were
    rebuilt: bool = False  # the jobs database was made again from the journal
    resnapshot: bool = False  # the open run has another snapshot than before
    said: list[str] = []  # lines for the operator
    problems: list[str] = []  # what is still wrong


def repair(where: str, *, rebuild: bool = False) -> Repaired:
    """Repair a store; `rebuild`: make the jobs database again, also when nothing seems to be missing."""
    with open_reader(where) as reader:  # it must be there
        done = Repaired(reader.where)
    with ExitStack() as stack:
        stack.callback(lock_store(where).release)
        store = stack.enter_context(closing(open_store(where)))
        store.tell = done.said.append
        before = {(one.turn, one.position, one.scope) for one in store.quarantined()}
        _read_all(store)
        if rebuild or _lacks_something(store):
            store.rebuild()
            done.rebuilt = True
        store.project()
        _replay(store, done)
        found = [one for one in store.quarantined() if (one.turn, one.position, one.scope) not in before]
        done.set_aside = [msgspec.structs.replace(one, data=b"") for one in found]
    done.problems += check(where).problems
    return done


def _read_all(store: SqlStore) -> None:
    """Find all facts that cannot be read, also in old turns that no replay reads."""
    for _ in store.journal():
        pass


def _lacks_something(store: SqlStore) -> bool:
    """Whether the tables lack facts that the journal has, or know turns that it does not have."""
    if any(one.scope == NOT_IN_TABLES for one in store.quarantined()):
        return True
    return store.folded > store.last_turn


def _replay(store: SqlStore, done: Repaired) -> None:
    """Check that a server can continue the last run, if that was not closed."""
    last = store.last_run()
    if not last.run or last.clean:
        return
    before = store.snapshot(last.run)
    try:
        replay_run(store, last.run, 0, load_policies("fifo"))
    except (BoughError, KeyError) as error:
        done.problems.append(f"run {last.run} cannot be continued: {error}")
    done.resnapshot = store.snapshot(last.run) != before
