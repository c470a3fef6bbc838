"""Random services: whatever is removed, in whatever slices, the rest is what it was, also when folded anew."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bough.model.events.facts import Fact, MemoLookedUp, Placed, RunClosed, RunOpened, RunRemoved, SpanEnded, Submitted
from bough.model.events.news import GroupClosed
from bough.model.tasks import ArraySpec, GroupSpec, Kind, TaskSpec
from bough.stores.sql.sqlite import SqliteStore
from bough.testing.store_conformance import StoreSuite

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # syncing is not what is tested here
RUNS = (2, 3, 4)
Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["task", "array", "place", "end", "recall", "group", "close", "remove", "turn", "turn"]),
        st.sampled_from(RUNS),
        st.integers(0, 50),
    ),
    min_size=10,
    max_size=60,
)


class Service:
    """Says lawful things about three workflows, of which two have one name."""

    def __init__(self) -> None:
        self.records: dict[int, list[int]] = {run: [] for run in RUNS}
        self.groups = {run: [run * 100] for run in RUNS}
        self.done: dict[int, tuple[int, int]] = {}  # record: its run and the turn of its success
        self.last = 0
        self.removed: set[int] = set()

    def opening(self) -> list[Fact]:
        own: list[Fact] = [RunOpened(1, "bough", "h", 1)]
        return own + [RunOpened(run, "odd" if run % 2 else "even", "h", 1, group=run * 100) for run in RUNS]

    def say(self, deed: str, run: int, choice: int, turn: int) -> list[Fact]:  # noqa: C901
        if run in self.removed:
            return []
        mine, groups = self.records[run], self.groups[run]
        group = groups[choice % len(groups)]
        record = mine[choice % len(mine)] if mine else 0
        self.last += 1
        match deed:
            case "task":
                mine.append(self.last)
                return [Submitted([TaskSpec(self.last, Kind.FUNCTION, b"%016d" % (choice % 4), b"", group=group)])]
            case "array":
                mine.append(self.last)
                blob = b"%016d" % (choice % 4)
                return [Submitted([ArraySpec(self.last, Kind.FUNCTION, blob, 3, group=group, key=blob)])]
            case "group":
                groups.append(run * 100 + len(groups))
                return [Submitted([GroupSpec(groups[-1], f"g{len(groups)}", group)])]
            case "place" if record and record not in self.done:
                return [Placed(self.last, record, 0, 1, 1, 1)]
            case "end" if record and record not in self.done:
                self.done[record] = (run, turn)
                key = b"%016d" % choice
                return [SpanEnded(self.last, 0, 1, 0.5, b"result %d" % record, record=record, attempt=1, key=key)]
            case "recall" if record and record not in self.done:
                lent = [
                    (one, at) for one, (other, at) in self.done.items() if other < run and other not in self.removed
                ]
                if lent:
                    source, at = lent[choice % len(lent)]
                    return [MemoLookedUp(record, 0, 1, True, source, 0, 1, at)]
            case "close":
                return [GroupClosed(group)]
            case "remove":
                self.removed.add(run)
                return [RunClosed(run), RunRemoved(run)]
        return []


@given(steps, st.integers(1, 5), st.booleans())
def test_what_is_left_is_what_it_was(history: list[Step], at_most: int, restart: bool):
    suite, service = StoreSuite(), Service()
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        store = SqliteStore(folder)
        store.claim("service")
        for number in range(4):
            store.put_blob(b"%016d" % number, b"content")
        turn, facts = 1, service.opening()
        for deed, run, choice in history:
            if deed == "turn":
                store.append(turn, float(turn), facts)
                turn, facts = turn + 1, []
            else:
                facts += service.say(deed, run, choice, turn)
        store.append(turn, float(turn), facts)
        store.project()
        before, last = suite.tables(store), store.last_run()
        del before["blob_uses"]
        borrowed = [(row[0], row[1]) for row in before["borrowed"]]
        successes = {place: store.success(*place, 0) for place in borrowed}
        store.save_snapshot(turn, 1, b"")
        while not store.remove_runs(sorted(service.removed), at_most):
            if restart:
                store.close()
                store = SqliteStore(folder)
        store._database.execute("PRAGMA user_version = 1")
        for _ in range(2):  # as it is, then folded anew
            store.project()
            after = suite.tables(store)
            used = {row[0] for row in after.pop("blob_uses")}
            assert after == before
            assert store.last_run() == last
            assert {place: store.success(*place, 0) for place in borrowed} == successes
            assert all(store.blob(blob) == b"content" for blob in used)
            store.close()
            store = SqliteStore(folder)
        alive = {row[0] for row in before["tasks"]}
        lent = {record for _, record in borrowed}
        for _, _, some in store.journal():
            for fact in some:
                records = (
                    [item.id for item in fact.items if not isinstance(item, GroupSpec)]
                    if isinstance(fact, Submitted)
                    else []
                )
                records += [fact.record] if hasattr(fact, "record") else []
                assert set(records) <= alive | (lent if isinstance(fact, SpanEnded) else set())
        store.close()
