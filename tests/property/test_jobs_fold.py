"""Random histories: the tables say of every task what a plain list of states says, however folding is interrupted."""

from __future__ import annotations

import tempfile
from itertools import takewhile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bough.model.events.facts import (
    Cancelled,
    ElementFailed,
    ExecutorJoined,
    ExecutorLost,
    Fact,
    Held,
    Killed,
    MemoLookedUp,
    Placed,
    Released,
    Retried,
    RetryDue,
    RunOpened,
    Skipped,
    SpanEnded,
    SpanReturned,
    SpanStarted,
    Submitted,
    WasReset,
)
from bough.model.outcomes import Cause, Detail, Failure
from bough.model.resources import Needs
from bough.model.tasks import ArraySpec, Dep, Kind, On, TaskSpec
from bough.stores.sql.sqlite import SqliteStore

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # syncing is not what is tested here
ARRAY, LENGTH = 1, 12
LOOSE = (2, 3)
PENDING, OCCUPYING = {"ready", "waiting", "held"}, {"placed", "running"}
NEEDS_SPAN = {"start", "end", "fail", "retry later", "return"}
BAD = {"failed", "skipped", "cancelled"}


class World:
    """What the core would know, kept the simplest way: a state and a span per task."""

    def __init__(self) -> None:
        self.states = {(ARRAY, index): "ready" for index in range(LENGTH)} | {(record, 0): "ready" for record in LOOSE}
        self.span: dict[tuple[int, int], int] = {}
        self.executor = 1
        self.spans = 0

    def enter(self, who: tuple[int, int], state: str) -> None:
        self.states[who] = state
        if state not in OCCUPYING:
            self.span.pop(who, None)

    def act(self, deed: str, record: int, low: int, high: int) -> list[Fact]:  # noqa: C901
        """Do something lawful to a range of one record, and say it as facts."""
        if record == ARRAY and deed in NEEDS_SPAN:  # begin where something is placed, if anything is
            low = min((index for r, index in self.span if r == ARRAY and index >= low), default=low)
            high = max(high, low + 1)
        who = [(record, index) for index in range(low, high)] if record == ARRAY else [(record, 0)]
        start, stop = who[0][1], who[-1][1] + 1
        target = {"target": Dep(On.TASK, record, start), "stop": stop if record == ARRAY else 0}
        first = self.states[who[0]]
        span = self.span.get(who[0], 0)
        mine = list(takewhile(lambda one: self.span.get(one, 0) == span, who))
        until = mine[-1][1] + 1
        match deed:
            case "place":
                free = list(takewhile(lambda one: self.states[one] == "ready", who))
                if not free:
                    return []
                self.spans += 1
                for one in free:
                    self.enter(one, "placed")
                    self.span[one] = self.spans
                return [Placed(self.spans, record, start, start + len(free), 1, self.executor)]
            case "start" if span:
                for one in mine:
                    self.enter(one, "running")
                return [SpanStarted(span, start, until, record)]
            case "end" if span:
                for one in mine:
                    self.enter(one, "done")
                details = (Detail(start),) if low % 2 else ()
                about = {"details": details, "record": record, "attempt": 1, "executor": self.executor}
                return [SpanEnded(span, start, until, 0.5, **about)]
            case "fail" | "retry later" if span:
                later = 9.0 if deed == "retry later" else -1
                self.enter(who[0], "waiting" if later > 0 else "failed")
                failure = Failure(Cause.EXIT, "bad")
                return [ElementFailed(span, start, failure, None, later, record, 1, self.executor)]
            case "due" if first == "waiting":
                self.enter(who[0], "ready")
                return [RetryDue(record, start)]
            case "return" if span:
                for one in mine:
                    self.enter(one, "ready")
                return [SpanReturned(span, start, until, record)]
            case "lose":
                for one in list(self.span):
                    self.enter(one, "ready")
                self.executor += 1
                return [ExecutorLost(self.executor - 1), ExecutorJoined(self.executor, "s", "h", 1, Needs())]
            case "recall" if all(self.states[one] in {"ready", "waiting"} for one in who):
                for one in who:
                    self.enter(one, "done")
                return [MemoLookedUp(record, start, stop, True, 99, 0, 1, 1)]
            case "cancel" | "abandon":
                for one in who:
                    if self.states[one] in PENDING | OCCUPYING:
                        self.enter(one, "cancelled" if deed == "cancel" else "skipped")
                if deed == "cancel":
                    return [Cancelled(**target)]
                return [Skipped(record, start, stop, Failure(Cause.DEPENDENCY, f"because of {low}"))]
            case "reset" if all(self.states[one] in BAD | OCCUPYING | {"done"} for one in who):
                for one in who:
                    self.enter(one, "ready")
                return [WasReset(**target, parts=((record, start, stop),))]
            case "declare" if all(self.states[one] in PENDING for one in who):
                for one in who:
                    self.enter(one, "done")
                return [SpanEnded(0, start, stop, 0.0, record=record)]
            case "kill" | "hold" | "release" | "revive":
                return [self.command(deed, who)(**target)]
        return []

    def command(self, deed: str, who: list[tuple[int, int]]) -> type[Killed | Held | Released | Retried]:
        kind, since, to = {
            "kill": (Killed, OCCUPYING, "failed"),
            "hold": (Held, PENDING, "held"),
            "release": (Released, {"held"}, "ready"),
            "revive": (Retried, BAD, "ready"),
        }[deed]
        for one in who:
            if self.states[one] in since:
                self.enter(one, to)
        return kind


def told(store: SqliteStore) -> dict[tuple[int, int], str]:
    """The state of every task, as a reader of the tables finds it."""
    read = store._database.execute
    states = {(ARRAY, index): "" for index in range(LENGTH)}
    for start, stop, state in read("SELECT start, stop, state FROM spans WHERE id = ? AND state != 'lost'", (ARRAY,)):
        for index in range(start, stop):
            assert not states[ARRAY, index], "ranges overlap"
            states[ARRAY, index] = state
    for index, state in read("SELECT idx, state FROM elements WHERE id = ?", (ARRAY,)):
        assert states[ARRAY, index] in {state, ""}
        states[ARRAY, index] = state
    for record, state in read("SELECT id, state FROM tasks WHERE NOT is_array"):
        states[record, 0] = state
    return states


def tables(store: SqliteStore) -> dict[str, list[tuple[object, ...]]]:
    names = ["tasks", "elements", "spans", "attempts"]
    return {name: sorted(store._database.execute(f"SELECT * FROM {name}"), key=repr) for name in names}


DEEDS = ["place", "place", "place", "start", "end", "end", "fail", "retry later", "due", "return", "lose", "recall"]
DEEDS += ["cancel", "abandon", "kill", "hold", "release", "revive", "reset", "declare"]
steps = st.lists(
    st.tuples(
        st.sampled_from(DEEDS),
        st.sampled_from([ARRAY, ARRAY, *LOOSE]),
        st.integers(0, LENGTH - 1),
        st.integers(1, 6),
        st.sampled_from(["", "", "project", "restart"]),
    ),
    min_size=20,
    max_size=50,
)


@given(steps)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_tables_say_what_happened_however_folding_was_interrupted(history):
    world = World()
    loose = [TaskSpec(record, Kind.FUNCTION, b"", b"") for record in LOOSE]
    items = [ArraySpec(ARRAY, Kind.FUNCTION, b"", LENGTH), *loose]
    opening: list[Fact] = [RunOpened(1, "w", "h", 1), ExecutorJoined(1, "s", "h", 1, Needs()), Submitted(items)]
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        often, once = SqliteStore(Path(folder, "often")), SqliteStore(Path(folder, "once"))
        for turn, step in enumerate([None, *history], 1):
            facts = world.act(step[0], step[1], step[2], min(LENGTH, step[2] + step[3])) if step else opening
            often.append(turn, float(turn), facts)
            once.append(turn, float(turn), facts)
            if step and step[4]:
                often.project()
                if step[4] == "restart":
                    often._folding.forget()
        often.project()
        once.project()
        assert tables(often) == tables(once)
        found = told(once)
        pending = {"ready", "waiting", ""}
        for who, state in world.states.items():
            assert found[who] == state or (state in pending and found[who] in pending), who
        row = once._database.execute(
            "SELECT done, failed, skipped, cancelled FROM tasks WHERE id = ?", (ARRAY,)
        ).fetchone()
        mine = [state for (record, _), state in world.states.items() if record == ARRAY]
        assert row == tuple(mine.count(state) for state in ("done", "failed", "skipped", "cancelled"))
        often.close()
        once.close()
