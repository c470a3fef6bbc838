"""What clients are told of tasks whose outputs are safe later than they have succeeded."""

from __future__ import annotations

from bough.core.machine import Machine
from bough.core.queries.facade import Queries
from bough.model.events.facts import ExecutorLost, RunOpened
from bough.model.events.news import OutputsWritten, WorkSucceeded
from bough.model.ids import ExecutorId, RecordId, SpanId
from bough.model.outcomes import Detail, Output
from bough.policies.policy_registry import load_policies
from bough.server.turns.result_parts import ResultCache
from bough.server.turns.turn_messages import TurnMessages, WithheldFailures
from bough.testing.builders import array, executor, limits, submit
from bough.wire.client_messages import TasksSucceeded


def detail(index: int, *, later: bool) -> Detail:
    return Detail(index, outputs=(Output("o", f"/d/{index}", 1, 5, b"d" * 32, later=later),))


class World:
    """A machine with an array of four, and what its client is told."""

    def __init__(self) -> None:
        self.machine = Machine(load_policies("fifo"))
        queries = Queries(self.machine)
        self.teller = TurnMessages(ResultCache(lambda *_: None), queries, WithheldFailures(queries))
        self.tell(RunOpened(1, "w", "h", 1), executor(1, 1), submit(array(1, 4, limits=limits(keep="later"))))

    def tell(self, *news: object) -> list[tuple[int, int, str]]:
        """The successes that a client is told of, with the hosts."""
        turn = self.machine.turn(1.0, news)  # type: ignore[arg-type]
        said = self.teller.messages(turn.facts)
        for one in said:
            if isinstance(one, TasksSucceeded):
                assert [found.index for found in one.details] == list(range(one.start, one.stop))
        return [(one.start, one.stop, one.host) for one in said if isinstance(one, TasksSucceeded)]

    def end(self, *later: bool) -> list[tuple[int, int, str]]:
        span = next(iter(self.machine.state.spans.values()))
        start = span.left[0][0]
        details = tuple(detail(start + at, later=one) for at, one in enumerate(later))
        return self.tell(WorkSucceeded(SpanId(span.id), start, start + len(later), 1.0, None, details))

    def written(self, *indices: int) -> OutputsWritten:
        return OutputsWritten(ExecutorId(1), tuple((RecordId(1), index, 1) for index in indices))


def test_a_success_is_told_when_its_outputs_are_safe() -> None:
    world = World()
    told = []
    while world.machine.state.spans:
        told += world.end(True)
    assert told == []
    assert world.tell(world.written(1, 2)) == [(1, 2, "host1"), (2, 3, "host1")]
    assert world.tell(world.written(1, 2)) == []
    assert world.tell(world.written(0, 3)) == [(0, 1, "host1"), (3, 4, "host1")]


def test_of_one_report_those_are_told_at_once_whose_outputs_are_safe() -> None:
    world = World()
    span = next(iter(world.machine.state.spans.values()))
    assert world.end(False) == [(span.start, span.start + 1, "host1")]


def test_a_success_in_the_turn_in_which_its_outputs_are_safe_is_told_once() -> None:
    world = World()
    span = next(iter(world.machine.state.spans.values()))
    ended = WorkSucceeded(SpanId(span.id), 0, 1, 1.0, None, (detail(0, later=True),))
    assert world.tell(ended, world.written(0)) == [(0, 1, "host1")]


def test_what_is_lost_before_is_told_when_it_was_made_again() -> None:
    world = World()
    assert world.end(True) == []
    assert world.tell(ExecutorLost(ExecutorId(1), "gone"), executor(2, 1)) == []
    told = []
    while world.machine.state.spans:
        told += world.end(False)
    assert sorted(told) == [(index, index + 1, "host2") for index in range(4)]
