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
    Freed,
    Held,
    Killed,
    MemoLookedUp,
    Observed,
    Placed,
    Released,
    Replicated,
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
from bough.model.monitoring.observations import Fired, Observation, Points, Trouble
from bough.model.outcomes import Cause, Detail, Failure
from bough.model.sites.resources import Needs
from bough.model.tasks import ArraySpec, Dep, Kind, On, TaskSpec
from bough.stores.sql.sqlite import SqliteStore

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # syncing is not what is tested here
ARRAY, LENGTH = 1, 12
LOOSE = (2, 3)
PENDING, OCCUPYING = {"ready", "waiting", "held"}, {"placed", "running"}
NEEDS_SPAN = {"start", "end", "fail", "retry later", "return"}
BAD = {"failed", "skipped", "cancelled"}


class World:
    """What the core would know, kept the simplest way: a state and a span per task.

    In a world with a gate every task depends on something, and waits until "free" says that it has succeeded.
    """

    def __init__(self, gated: bool) -> None:
        everything = [*((ARRAY, index) for index in range(LENGTH)), *((record, 0) for record in LOOSE)]
        self.gated = gated
        self.behind_gate = set(everything) if gated else set()
        self.states = dict.fromkeys(everything, "waiting" if gated else "ready")
        self.span: dict[tuple[int, int], int] = {}
        self.replica: dict[tuple[int, int], int] = {}  # the spans of replicas
        self.executor = 1
        self.spans = 0

    def enter(self, who: tuple[int, int], state: str) -> None:
        if state == "ready" and who in self.behind_gate:
            state = "waiting"
        self.states[who] = state
        if state == "done":
            self.behind_gate.discard(who)
        if state not in OCCUPYING:
            self.span.pop(who, None)
            self.replica.pop(who, None)

    def tell(self, deed: str, record: int, low: int, high: int) -> list[Fact]:
        """As `act`; what has become ready of what may have waited is told as the core tells it."""
        before = dict(self.states)
        facts = self.act(deed, record, low, high)
        ready = [who for who, state in self.states.items() if state == "ready" and before[who] != "ready"]
        if not ready or not self.gated or deed == "due":
            return facts
        loose = tuple((one, one) for one, _ in ready if one != ARRAY)
        return [*facts, Freed(loose, tuple((ARRAY, index, index + 1) for one, index in ready if one == ARRAY))]

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
            case "replicate" if span and first == "running" and who[0] not in self.replica:
                self.spans += 1
                self.replica[who[0]] = self.spans
                return [Replicated(self.spans, record, start, 2, self.executor)]
            case "start replica" if who[0] in self.replica:
                return [SpanStarted(self.replica[who[0]], start, start + 1, record)]
            case "replica wins" if who[0] in self.replica:
                faster = self.replica[who[0]]
                self.enter(who[0], "done")
                about = {"record": record, "attempt": 2, "executor": self.executor}
                return [SpanEnded(faster, start, start + 1, 0.5, **about)]
            case "replica fails" if who[0] in self.replica:
                gone = self.replica.pop(who[0])
                return [ElementFailed(gone, start, Failure(Cause.EXIT, "bad"), None, 9.0, record, 2, self.executor)]
            case "replica returns" if who[0] in self.replica:
                return [SpanReturned(self.replica.pop(who[0]), start, start + 1, record)]
            case "fail" | "retry later" if who[0] in self.replica:  # the replica goes on
                self.span[who[0]] = self.replica.pop(who[0])
                return [ElementFailed(span, start, Failure(Cause.EXIT, "bad"), None, 9.0, record, 1, self.executor)]
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
            case "free":
                for one in who:
                    if one in self.behind_gate:
                        self.behind_gate.discard(one)
                        if self.states[one] == "waiting":
                            self.enter(one, "ready")
                return []
            case "due" if first == "waiting" and who[0] not in self.behind_gate:
                self.enter(who[0], "ready")
                return [RetryDue(record, start)]
            case "return" if span:
                for one in mine:
                    if one in self.replica:
                        self.span[one] = self.replica.pop(one)
                    else:
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
    rest = "waiting" if read("SELECT waits FROM tasks WHERE id = ?", (ARRAY,)).fetchone()[0] else "ready"
    states = {(ARRAY, index): "" for index in range(LENGTH)}
    for start, stop, state in read("SELECT start, stop, state FROM spans WHERE id = ? AND state != 'lost'", (ARRAY,)):
        for index in range(start, stop):
            assert not states[ARRAY, index], "ranges overlap"
            states[ARRAY, index] = "ready" if state == "placed" else state
    states = {who: state or rest for who, state in states.items()}
    for index, state in read("SELECT idx, state FROM elements WHERE id = ?", (ARRAY,)):
        assert states[ARRAY, index] in {state, rest}
        states[ARRAY, index] = state
    for record, state in read("SELECT id, state FROM tasks WHERE NOT is_array"):
        states[record, 0] = state
    return states


def out(store: SqliteStore) -> set[int]:
    """The spans that executors have, as a reader of the tables finds them."""
    read = store._database.execute
    where = "FROM {} WHERE state IN ('placed', 'running')"
    return {span for name in ("spans", "attempts") for (span,) in read(f"SELECT span {where.format(name)}")}


def tables(store: SqliteStore) -> dict[str, list[tuple[object, ...]]]:
    names = ["tasks", "elements", "spans", "attempts"]
    return {name: sorted(store._database.execute(f"SELECT * FROM {name}"), key=repr) for name in names}


DEEDS = ["place", "place", "place", "start", "end", "end", "fail", "retry later", "due", "return", "lose", "recall"]
DEEDS += ["replicate", "replicate", "start replica", "replica wins", "replica fails", "replica returns", "start"]
DEEDS += ["free", "free", "cancel", "abandon", "kill", "hold", "release", "revive", "reset", "declare"]
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


@given(steps, st.booleans())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_tables_say_what_happened_however_folding_was_interrupted(history, gated):
    world = World(gated)
    after = (Dep(On.TASK, 9),) if gated else ()
    loose = [TaskSpec(record, Kind.FUNCTION, b"", b"", after=after) for record in LOOSE]
    items = [ArraySpec(ARRAY, Kind.FUNCTION, b"", LENGTH, after=after), *loose]
    opening: list[Fact] = [RunOpened(1, "w", "h", 1), ExecutorJoined(1, "s", "h", 1, Needs()), Submitted(items)]
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        often, once = SqliteStore(Path(folder, "often")), SqliteStore(Path(folder, "once"))
        for turn, step in enumerate([None, *history], 1):
            facts = world.tell(step[0], step[1], step[2], min(LENGTH, step[2] + step[3])) if step else opening
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
        assert out(once) == {*world.span.values(), *world.replica.values()}
        for who, state in world.states.items():
            assert found[who] == ("ready" if state == "placed" else state), who
        row = once._database.execute(
            "SELECT done, failed, skipped, cancelled FROM tasks WHERE id = ?", (ARRAY,)
        ).fetchone()
        mine = [state for (record, _), state in world.states.items() if record == ARRAY]
        assert row == tuple(mine.count(state) for state in ("done", "failed", "skipped", "cancelled"))
        often.close()
        once.close()


NUMBER = st.floats(-1e300, 1e300)
SEEN = st.lists(
    st.one_of(
        st.builds(
            Points,
            st.sampled_from(["score", "loss"]),
            st.lists(st.tuples(NUMBER, st.floats(0, 1e15), NUMBER), max_size=4).map(tuple),
            st.sampled_from([0, 300]),
        ),
        st.builds(
            Fired,
            st.floats(0, 1e15),
            st.sampled_from(["m", "n"]),
            st.integers(0, 3),
            action=st.sampled_from(["tag", "finish"]),
            name=st.sampled_from(["", "warm"]),
            value=st.none() | NUMBER,
        ),
        st.builds(Trouble, st.floats(0, 1e15), st.just("m"), st.sampled_from(["it raised", ""])),
    ),
    max_size=4,
)
WHO = st.sampled_from([(ARRAY, 0), (ARRAY, 5), (2, 0), (9, 0)])  # the last one is not there
TURNS = st.lists(st.lists(st.tuples(WHO, st.integers(1, 3), SEEN), max_size=3), max_size=8)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(turns=TURNS, interrupted=st.lists(st.sampled_from(["no", "fold", "reopen"]), min_size=8, max_size=8))
def test_the_tables_have_all_that_was_seen_in_order_however_folding_is_interrupted(
    turns: list[list[tuple[tuple[int, int], int, list[Observation]]]], interrupted: list[str]
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        store = SqliteStore(Path(folder))
        specs = [ArraySpec(ARRAY, Kind.FUNCTION, b"f", LENGTH), *(TaskSpec(n, Kind.FUNCTION, b"f", b"") for n in LOOSE)]
        store.append(1, 1.0, [RunOpened(1, "w", "h", 1), Submitted(specs)])
        expected: dict[tuple[int, int], dict[int, list[Observation]]] = {}
        for number, (turn, how) in enumerate(zip(turns, interrupted, strict=False), 2):
            store.append(number, float(number), [Observed(1, *who, attempt, seen) for who, attempt, seen in turn])
            for who, attempt, seen in turn:
                if who[0] != 9 and seen:
                    expected.setdefault(who, {}).setdefault(attempt, []).extend(seen)
            if how == "fold":
                store.project(at_most=1)
            elif how == "reopen":
                store.close()
                store = SqliteStore(Path(folder))
        for record, index in [(ARRAY, 0), (ARRAY, 5), (2, 0), (9, 0)]:
            found = {one.attempt: one for one in store.observations(record, index, index + 1)}
            wanted = expected.get((record, index), {})
            assert found.keys() == {attempt for attempt, seen in wanted.items() if any(map(_is_seen, seen))}
            for attempt, one in found.items():
                own = [o for o in wanted[attempt] if type(o) is Points]
                points = [(o.metric, point) for o in own for point in o.points]
                for metric in {metric for metric, _ in points}:
                    assert one.metrics[metric] == [point for name, point in points if name == metric]
                assert one.fired == [o for o in wanted[attempt] if type(o) is Fired]
                assert one.troubles == [o for o in wanted[attempt] if type(o) is Trouble]
        store.close()


def _is_seen(one: Observation) -> bool:
    return not isinstance(one, Points) or bool(one.points)
