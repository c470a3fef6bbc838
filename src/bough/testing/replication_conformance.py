"""What every replication policy must do: subclass `ReplicationSuite` and say which policy.

    class TestMine(ReplicationSuite):
        def policy(self) -> ReplicationPolicy:
            return Mine(cap=2, age=5.0)

All tasks of its histories are called idempotent, are expected to run for a second, and read files that hosts of two
sites hold. Rule: each promise is tried through the real machine, whose laws are checked after every turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite
from random import Random

from bough.core.invariants import check
from bough.core.machine import Machine, Turn
from bough.model.events import arriving, news
from bough.model.events.facts import ExecutorJoined, ExecutorLost, Replicated, RunOpened
from bough.model.events.orders import SendSpan, StopSpan
from bough.model.ids import ExecutorId, FileId, RecordId, SpanId
from bough.model.sites.resources import Needs
from bough.model.tasks import TaskSpec
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import (
    AskAgain,
    ExecutorView,
    Policies,
    Replicate,
    ReplicationPolicy,
    ReplicationView,
    RunningWork,
)
from bough.testing.builders import BOOM, executor, limits, needs, submit, task

_TASKS = 12
_MOST_STEPS = 2000
_LONG = 1e5  # seconds after which any policy calls a task old
_SIZE = 1_000_000
_TWICE = limits(idempotent=True)


class WatchedReplication:
    """A policy as the machine sees it, with all it wished for and how many running tasks it looked at.

    `make` gives the policy, anew for each time it is asked if `anew`.
    """

    def __init__(self, make: Callable[[], ReplicationPolicy], *, anew: bool = False) -> None:
        self._make = make
        self._anew = anew
        self._inner = make()
        self.cap = self._inner.cap
        self.age = self._inner.age
        self.wishes: list[Replicate] = []
        self.alarms: list[float] = []  # how far ahead it wants to be asked again
        self.looks = 0

    def replicate(self, view: ReplicationView, /) -> Iterable[Replicate | AskAgain]:
        """As the policy decides."""
        if self._anew:
            self._inner = self._make()
        for wish in self._inner.replicate(_WatchedView(view, self)):
            if isinstance(wish, AskAgain):
                self.alarms.append(wish.when - view.now)
            else:
                self.wishes.append(wish)
            yield wish


class _WatchedView:
    def __init__(self, view: ReplicationView, watched: WatchedReplication) -> None:
        self._view = view
        self._watched = watched
        self.now = view.now
        self.random = view.random

    def running(self) -> Iterator[RunningWork]:
        for work in self._view.running():
            self._watched.looks += 1
            yield work

    def executors(self) -> Sequence[ExecutorView]:
        return self._view.executors()

    def may_run(self, work: RunningWork, executor: ExecutorView) -> bool:
        return self._view.may_run(work, executor)

    def executor_for(self, work: RunningWork) -> ExecutorView | None:
        return self._view.executor_for(work)

    def affinity(self, work: RunningWork, executor: ExecutorView) -> int:
        return self._view.affinity(work, executor)


class ReplicationHistory:
    """A machine with executors at two sites, tasks that read files, and what happened."""

    def __init__(self, watched: WatchedReplication, seed: int = 0) -> None:
        self.watched = watched
        self.machine = Machine(Policies(Fifo(), replication=watched), seed=seed)
        self.now = 0.0
        self.replicated: list[tuple[float, Replicated]] = []
        self.stopped: set[tuple[int, int]] = set()  # executor and span
        self.began: dict[int, float] = {}  # when the first attempt of a task was said to run
        self._last_executor = 0
        self.turn(RunOpened(1, "replicated", "here", 1))

    def turn(self, *said: arriving.News) -> Turn:
        """One turn, after which the laws hold and the policy has not raised."""
        turn = self.machine.turn(self.now, said)
        check(self.machine.state)
        assert turn.complaints == []
        self.replicated += [(self.now, fact) for fact in turn.facts if isinstance(fact, Replicated)]
        self.stopped |= {(order.executor, order.span) for order in turn.orders if isinstance(order, StopSpan)}
        return turn

    def join(self, *held: int, cores: float = 1) -> int:
        """One more executor, on a host of its own at one of the sites in turn, whose cache has some files."""
        self._last_executor += 1
        number = ExecutorId(self._last_executor)
        site = f"site{number % 2}"
        self.turn(ExecutorJoined(number, site, f"host{number}", 1, Needs(cores=cores)))
        added = tuple(news.HeldContent(_digest(file), _SIZE) for file in held)
        self.turn(news.CacheChanged(number, added))
        return number

    def submit(self, *specs: TaskSpec) -> None:
        """Tasks that read files whose contents are known: task n reads file n."""
        self.turn(submit(*specs, request=1))
        state = self.machine.state
        files = state.workflows[state.run].files
        named = ((files.find(_path(spec.id)), spec.id) for spec in specs)
        known = [news.IdentifiedFile(FileId(file.id), _digest(at), _SIZE) for file, at in named if file is not None]
        self.turn(news.FilesIdentified(state.run, tuple(known)))
        for record in state.records.values():
            record.runtime.note(10, 10.0)  # as many tasks like it have run as any policy wants to have seen

    def begin_all(self) -> None:
        """All that was placed runs."""
        for span in list(self.machine.state.spans.values()):
            self.began.setdefault(span.record.id, self.now)
            self.turn(news.WorkStarted(span.id, 0, 1))

    def step(self, dice: Random, trouble: float) -> None:
        """Something happens to some attempt, or to an executor."""
        self.now += dice.choice((0.1, 1.0, 10.0, 100.0))
        state = self.machine.state
        spans = list(state.spans.values())
        if dice.random() < trouble and len(state.executors) > 2:
            self.turn(ExecutorLost(ExecutorId(dice.choice(sorted(state.executors))), "its host is down"))
        elif not spans or len(state.executors) < 3 or dice.random() < 0.1:
            self.join(*dice.sample(range(1, _TASKS + 1), 4))
        else:
            span = dice.choice(spans)
            if span.record.id not in self.began or dice.random() < 0.5:
                self.began.setdefault(span.record.id, self.now)
                self.turn(news.WorkStarted(span.id, 0, 1))
            elif dice.random() < trouble:
                self.turn(news.WorkFailed(span.id, 0, BOOM))
            elif dice.random() < 0.2:
                self.turn(news.WorkSucceeded(span.id, 0, 1, 1.0))


class ReplicationSuite:
    """The promises; a subclass names the policy, with a cap and an age of its own."""

    bounded_looks = 1000  # running tasks that a policy may look at in one turn

    def policy(self) -> ReplicationPolicy:
        """The policy under test, fresh."""
        raise NotImplementedError

    def run(self, seed: int, trouble: float = 0.0, *, anew: bool = False) -> ReplicationHistory:
        """Let tasks run in any order until all have ended."""
        dice = Random(seed)
        history = ReplicationHistory(WatchedReplication(self.policy, anew=anew), seed)
        for _ in range(4):
            history.join(*dice.sample(range(1, _TASKS + 1), 4))
        own = limits(retries=50, idempotent=True)
        history.submit(*[_reading(number, limits=own) for number in range(1, _TASKS + 1)])
        for _ in range(_MOST_STEPS):
            history.step(dice, trouble)
            if history.machine.is_idle:
                return history
        raise AssertionError(f"seed {seed}: tasks did not end")

    def idle_beside_running(self, *specs: TaskSpec, age: float = _LONG) -> ReplicationHistory:
        """Tasks that run for a while on executors of one site, whose data is on idle executors of both."""
        history = ReplicationHistory(WatchedReplication(self.policy))
        files = [spec.id for spec in specs]
        for _ in specs:
            history.join(*files)
        history.submit(*specs)
        history.begin_all()
        history.now += age
        for _ in range(2):
            history.join(*files)
        history.turn()
        return history

    # --- the promises ----------------------------------------------------------------------------

    def test_a_task_that_runs_for_very_long_is_replicated_where_its_data_is(self) -> None:
        history = self.idle_beside_running(_reading(1))
        assert [fact.record for _, fact in history.replicated][:1] == [1]

    def test_all_tasks_end_however_they_run(self) -> None:
        for seed in range(4):
            trouble = 0.1 if seed % 2 else 0.0
            counts = self.run(seed, trouble).machine.counts()
            lost = counts["failed"] if trouble else 0  # some lose too many executors
            assert counts["done"] + lost == _TASKS, f"seed {seed}"

    def test_no_task_has_more_replicas_than_the_cap_says_nor_before_its_age(self) -> None:
        for seed in range(4):
            history = self.run(seed)
            cap, age = history.watched.cap, history.watched.age
            made = Counter(fact.record for _, fact in history.replicated)
            assert all(count <= cap for count in made.values()), f"seed {seed}"
            assert all(when >= history.began[fact.record] + age for when, fact in history.replicated), f"seed {seed}"

    def test_every_wish_is_one_that_can_be_carried_out(self) -> None:
        for seed in range(4):
            history = self.run(seed, trouble=0.1 if seed % 2 else 0.0)
            wishes, made = len(history.watched.wishes), len(history.replicated)
            assert wishes == made, f"seed {seed}: {wishes - made} wishes were in vain"

    def test_every_wish_says_why_in_a_line(self) -> None:
        history = self.idle_beside_running(_reading(1), _reading(2))
        assert history.watched.wishes
        assert all(wish.reason and "\n" not in wish.reason for wish in history.watched.wishes)

    def test_a_task_that_is_not_idempotent_is_left_alone(self) -> None:
        history = self.idle_beside_running(_reading(1, limits=limits(idempotent=False)))
        assert history.watched.wishes == []

    def test_a_task_that_fits_nowhere_else_is_left_alone(self) -> None:
        history = ReplicationHistory(WatchedReplication(self.policy))
        history.join(1, cores=4)
        history.submit(_reading(1, needs=needs(4)))
        history.begin_all()
        history.now += _LONG
        history.join(1)
        history.join(1)
        assert history.watched.wishes == []

    def test_it_wants_to_be_asked_again_only_in_the_future(self) -> None:
        history = self.idle_beside_running(_reading(1), age=0.01)
        for _ in range(20):
            history.now += 1.0
            history.turn()
        assert all(isfinite(ahead) and ahead > 0 for ahead in history.watched.alarms)

    def test_the_same_happenings_give_the_same_wishes(self) -> None:
        for seed in range(2):
            assert self.run(seed, 0.1).watched.wishes == self.run(seed, 0.1).watched.wishes

    def test_it_keeps_no_books(self) -> None:
        """One that is made anew for each question decides the same."""
        for seed in range(2):
            assert self.run(seed, 0.1, anew=True).watched.wishes == self.run(seed, 0.1).watched.wishes

    def test_the_losers_are_stopped_and_no_attempt_is_left(self) -> None:
        history = self.idle_beside_running(_reading(1))
        spans = {span.id: span.executor.id for span in history.machine.state.spans.values()}
        assert len(spans) > 1
        history.turn(news.WorkSucceeded(max(spans), 0, 1, 1.0))
        assert history.stopped == {(where, span) for span, where in spans.items() if span != max(spans)}
        assert history.machine.is_idle
        assert not history.machine.state.spans

    def test_what_it_looks_at_is_bounded_however_much_runs(self) -> None:
        watched = WatchedReplication(self.policy)
        machine = Machine(Policies(Fifo(), replication=watched))
        many = self.bounded_looks + 500
        tasks = [task(n, needs=needs(2), limits=_TWICE) for n in range(1, many + 1)]
        turn = machine.turn(0, [executor(1, 2 * many), submit(*tasks)])
        sent = [order.span for order in turn.orders if isinstance(order, SendSpan)]
        for start in range(0, many, 500):
            machine.turn(
                0, [news.WorkStarted(SpanId(span), 0, 1) for span in sorted(machine.state.spans)[start : start + 500]]
            )
        assert sent
        machine.turn(_LONG, [])
        watched.looks = 0
        machine.turn(_LONG + 1, [executor(2, 1)])  # on which none of them fits
        assert 0 < watched.looks <= self.bounded_looks
        assert watched.wishes == []


def _path(number: int) -> str:
    return f"/data/{number}"


def _digest(number: int) -> bytes:
    return number.to_bytes(32, "big")


def _reading(number: int, **fields: object) -> TaskSpec:
    return task(RecordId(number), reads=(_path(number),), **{"limits": _TWICE, **fields})
