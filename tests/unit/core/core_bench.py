"""A bench for the machine: say what happens, ask what came of it.

After every turn the conservation laws are checked, the facts are replayed into a twin, and a snapshot
is restored; all three must agree, so that every test of the core is also a test of those.
"""

from __future__ import annotations

from bough.core.invariants import check, picture
from bough.core.machine import Machine, Turn
from bough.core.records.array_record import ArrayRecord, Record
from bough.core.records.task_record import TaskRecord
from bough.core.state import TimerKind
from bough.model.events import facts, news
from bough.model.events.facts import Fact, decode_facts, encode_facts
from bough.model.events.orders import LookUpMemo, Order, Refuse, SendSpan, StopSpan, TellGroupFinished
from bough.model.outcomes import Failure
from bough.model.reuse_scope import ReuseScope
from bough.model.states import UNSUCCESSFUL, TaskState
from bough.model.tasks import ArraySpec, Dep, GroupSpec, On, TaskSpec
from bough.policies.placement.fifo import Fifo
from bough.policies.provisioning.all_at_once import AllAtOnce
from bough.policy.interface import PlacementPolicy, Policies, ReplicationPolicy
from bough.policy.shortage import Provisioner
from bough.testing.builders import BOOM, executor, submit


class Bench:
    """A machine with executors, its twin, and all the orders it gave."""

    def __init__(
        self,
        cores: float = 2,
        *,
        policy: PlacementPolicy | None = None,
        memos: bool = False,
        reuse: ReuseScope = ReuseScope.ALL,
        fail_fast: bool = False,
        replication: ReplicationPolicy | None = None,
        **amounts: object,
    ) -> None:
        self.policies = Policies(policy or Fifo(), provisioning=Provisioner(AllAtOnce()), replication=replication)
        self.machine = Machine(self.policies)
        self.twin = Machine(self.policies)
        self.now = 0.0
        self.orders: list[Order] = []
        self.tell(facts.RunOpened(1, "test", "h", 1, fail_fast=fail_fast, memos=memos, reuse=reuse))
        if cores:
            self.tell(executor(1, cores, **amounts))

    # --- what happens ----------------------------------------------------------------------------

    def tell(self, *news: Fact) -> Turn:
        """One turn, with everything checked afterwards."""
        turn = self.machine.turn(self.now, news)
        self.orders += turn.orders
        if turn.facts:
            self.twin.replay(turn.number, self.now, decode_facts(encode_facts(turn.facts)))
        self._compare()
        return turn

    def _compare(self) -> None:
        state = self.machine.state
        check(state)
        check_waits(self.machine)
        own = picture(state)
        self.twin.state.now = state.now
        assert picture(self.twin.state) == own
        restored = Machine.restore(self.machine.snapshot(), self.policies)
        check(restored.state)
        assert picture(restored.state) == own

    def submit(self, *items: TaskSpec | ArraySpec | GroupSpec) -> Turn:
        """A submission that must be accepted. One measurement will do: how trust grows is tested elsewhere."""
        before = len(self.refusals)
        turn = self.tell(submit(*items, request=1))
        assert len(self.refusals) == before, self.refusals[-1]
        for record in self.machine.state.records.values():
            record.runtime.seen = max(record.runtime.seen, 10**6)
        return turn

    def refuse(self, *items: TaskSpec | ArraySpec | GroupSpec) -> str:
        """A submission that must be refused and leave no trace; the message."""
        before = picture(self.machine.state)
        turn = self.tell(submit(*items, request=7))
        assert turn.facts == []
        assert picture(self.machine.state) == before
        (order,) = turn.orders
        assert isinstance(order, Refuse)
        assert order.request == 7
        assert not order.message.endswith(".")
        assert "\n" not in order.message
        return order.message

    def start(self, record: int, index: int = 0) -> Turn:
        """The executor says that an element is running."""
        return self.tell(news.WorkStarted(self.span(record, index), index, index + 1))

    def end(self, record: int, index: int = 0, stop: int | None = None, seconds: float = 1.0) -> Turn:
        """Elements succeed; they must be with one span."""
        stop = index + 1 if stop is None else stop
        return self.tell(news.WorkSucceeded(self.span(record, index), index, stop, seconds * (stop - index)))

    def fail(self, record: int, index: int = 0, failure: Failure = BOOM) -> Turn:
        """An element fails."""
        return self.tell(news.WorkFailed(self.span(record, index), index, failure))

    def end_all(self) -> None:
        """Let everything that is with an executor succeed, again and again until nothing is."""
        while spans := list(self.machine.state.spans.values()):
            for span in spans:
                for start, stop in [tuple(part) for part in span.left]:
                    self.tell(news.WorkSucceeded(span.id, start, stop, 1.0 * (stop - start)))

    def wait(self, seconds: float) -> Turn:
        """Time passes."""
        self.now += seconds
        return self.tell()

    def restart(self) -> None:
        """Go on with machines restored from snapshots."""
        self.machine = Machine.restore(self.machine.snapshot(), self.policies)
        self.twin = Machine.restore(self.twin.snapshot(), self.policies)

    # --- what came of it -------------------------------------------------------------------------

    def record(self, id_: int) -> Record:
        return self.machine.state.records[id_]

    def task(self, id_: int) -> TaskRecord:
        record = self.record(id_)
        assert isinstance(record, TaskRecord)
        return record

    def array(self, id_: int) -> ArrayRecord:
        record = self.record(id_)
        assert isinstance(record, ArrayRecord)
        return record

    def state(self, record: int, index: int = 0) -> str:
        """The word for the state of one task."""
        return TaskState(self.record(record).state_of(index)).name.lower()

    def states(self, *records: int) -> list[str]:
        """The words of loose tasks, or of all elements of one array."""
        if len(records) == 1:
            return [self.state(records[0], index) for index in range(self.record(records[0]).length)]
        return [self.state(record) for record in records]

    def span(self, record: int, index: int = 0) -> int:
        """The span that an element is with."""
        for span in self.machine.state.spans.values():
            if span.record.id == record and any(low <= index < high for low, high in span.left):
                return span.id
        raise AssertionError(f"{record}.{index} is {self.state(record, index)} and with nobody")

    def attempt(self, record: int, index: int = 0) -> int:
        """The attempt that an element is in."""
        return self.machine.state.spans[self.span(record, index)].attempt

    def failure(self, record: int, index: int = 0) -> Failure:
        found = self.record(record).failure_of(index)
        assert found is not None
        return found

    @property
    def sent(self) -> list[SendSpan]:
        return [order for order in self.orders if isinstance(order, SendSpan)]

    @property
    def stops(self) -> list[StopSpan]:
        return [order for order in self.orders if isinstance(order, StopSpan)]

    @property
    def recalls(self) -> list[LookUpMemo]:
        return [order for order in self.orders if isinstance(order, LookUpMemo)]

    @property
    def refusals(self) -> list[str]:
        return [order.message for order in self.orders if isinstance(order, Refuse)]

    @property
    def finished(self) -> list[tuple[int, bool]]:
        return [(order.group, order.failed) for order in self.orders if isinstance(order, TellGroupFinished)]


def check_waits(machine: Machine) -> None:
    """Nobody waits in vain, and nothing goes before what it depends on; found anew from the specs."""
    state = machine.state
    timers = {(id_, index) for _, kind, id_, index in state.timers if kind == TimerKind.RETRY}
    towed = {span.record.id for span in state.spans.values() if span.behind}
    for record in state.records.values():
        own = dict(record.spec.element_after) if isinstance(record.spec, ArraySpec) else {}
        common = [*record.spec.after, *(dep for group in record.group.chain() for dep in group.after)]
        whole = {dep: _outlook(machine, dep) for dep in common}
        looked_up = record.awaits_memo or bool(record.group.workflow.memos and getattr(record.spec, "reuse", ()))
        for index in range(record.length):
            reached = TaskState(record.state_of(index))
            outlooks = [*whole.values(), *(_outlook(machine, dep) for dep in own.get(index, ()))]
            if record.spec.extras.final:
                outlooks = ["met" if outlook == "lost" else outlook for outlook in outlooks]
            name = f"{record.id}.{index}"
            if record.id in towed:
                continue  # it is with an executor that knows for what it waits
            if reached in {TaskState.READY, TaskState.HELD, TaskState.PLACED, TaskState.RUNNING}:
                assert set(outlooks) <= {"met"}, f"{name} goes before what it depends on"
            elif state.remakes.is_waited_for(record.id, index):
                continue  # for a task that makes again what was lost
            elif reached is TaskState.WAITING and not looked_up and (record.id, index) not in timers:
                assert "open" in outlooks, f"{name} waits for nothing"
                assert "lost" not in outlooks, f"{name} waits in vain"


def _outlook(machine: Machine, dep: Dep) -> str:
    """Whether a dependency is met, may still be met (open), or will not be as things stand (lost)."""
    if dep.is_group:
        group = machine.state.groups[dep.id]
        if group.was_over or (group.released and dep.on is On.GROUP):
            return "met"
        return "open" if not group.finished else "lost" if group.failed_by else "met"
    record, remakes = machine.state.records[dep.id], machine.state.remakes
    wanted = [dep.index] if dep.on is On.TASK else range(record.length)
    reached = [
        TaskState.DONE if remakes.counts_as_done(record.id, i) else TaskState(record.state_of(i)) for i in wanted
    ]
    if any(one in UNSUCCESSFUL for one in reached):
        return "lost"
    is_open = dep.on is On.ARRAY and isinstance(record, ArrayRecord) and record.open
    return "met" if not is_open and all(one is TaskState.DONE for one in reached) else "open"


def on(record: int, index: int = 0) -> Dep:
    """A target: one task."""
    return Dep(On.TASK, record, index)


def kinds(turn: Turn) -> list[str]:
    """The names of a turn's facts."""
    return [type(fact).__name__ for fact in turn.facts]
