"""Arrays that a generator feeds: what is let go of them is missed by nobody."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from bough.core.invariants import check
from bough.core.machine import Machine
from bough.core.records.array_record import DONE, ArrayRecord
from bough.model import states
from bough.model.arrays import ranges
from bough.model.events import facts, news
from bough.model.events.facts import decode_facts, encode_facts
from bough.model.ids import ExecutorId, RecordId, SpanId
from bough.model.outcomes import Cause, Detail, Failure, Output
from bough.model.states import StateWindow
from bough.model.tasks import Dep, On, Page
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies
from bough.testing.builders import array, executor, limits, submit

STATES = range(9)


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    """The base moves by four elements, past one that goes on."""
    sizes = states.BLOCK, states.FEW
    states.BLOCK, states.FEW = 4, 1
    yield
    states.BLOCK, states.FEW = sizes


class Twins:
    """A machine with a fed array, one with the same array that lets go of nothing, and a replay of the first."""

    def __init__(self, retries: int) -> None:
        self.fed, self.plain, self.replayed = (Machine(Policies(Fifo())) for _ in range(3))
        self.executor = 0
        for machine in (self.fed, self.plain):
            spec = array(1, 0, limits=limits(retries=retries, keep="later"), open=True, fed=machine is self.fed)
            self.make(machine, submit(structs.replace(spec, table=b"")))
        self.join()

    def make(self, machine: Machine, *news: facts.Fact) -> None:
        turn = machine.turn(0.0, news)
        if machine is self.fed and turn.facts:
            self.replayed.replay(turn.number, 0.0, decode_facts(encode_facts(turn.facts)))

    def turn(self, *news: facts.Fact) -> None:
        for machine in (self.fed, self.plain):
            self.make(machine, *news)

    def join(self) -> None:
        self.executor += 1
        self.turn(executor(self.executor, 4))

    def array(self, machine: Machine) -> ArrayRecord:
        found = machine.state.records[1]
        assert isinstance(found, ArrayRecord)
        return found

    def step(self, what: str, number: int) -> None:
        record, spans = self.array(self.fed), list(self.fed.state.spans.values())
        if what == "grow":
            page = Page(record.length, record.length + number + 1, b"page")
            self.turn(news.PagesAdded(1, [page]))
        elif what == "succeed":
            later = number % 4 == 3
            self.turn(*(_ended(s.id, a, b, later=later) for s in spans[number % 3 :] for a, b in s.left))
        elif what == "write":
            for _, index, holder, attempt, _ in self.fed.state.unsaved.all()[number % 3 :]:
                self.turn(news.OutputsWritten(ExecutorId(holder), ((RecordId(1), index, attempt),)))
        elif what == "fail" and spans:
            span = spans[number % len(spans)]
            self.turn(news.WorkFailed(span.id, span.left[0][0], Failure(Cause.EXIT, "it broke")))
        elif what == "lose":
            self.turn(facts.ExecutorLost(ExecutorId(self.executor), "gone"))
            self.join()
        elif what == "retry":
            self.turn(news.Retry(Dep(On.ARRAY, 1)))
        elif what == "cancel" and record.length:
            index = number % record.length
            self.turn(news.Cancel(Dep(On.TASK, 1, index), index + 2))
        elif what == "restart":
            self.fed = Machine.restore(self.fed.snapshot(), Policies(Fifo()))

    def compare(self) -> None:
        check(self.fed.state)
        fed, plain = self.array(self.fed), self.array(self.plain)
        for other in (
            plain,
            self.array(self.replayed),
            self.array(Machine.restore(self.fed.snapshot(), Policies(Fifo()))),
        ):
            assert (fed.length, fed.counts, fed.ready) == (other.length, other.counts, other.ready)
            assert list(fed.ready_ranges) == list(other.ready_ranges)
            for index in range(fed.length):
                assert fed.state_of(index) == other.state_of(index)
                if fed.state_of(index) == DONE:
                    assert _identity(fed, index) == _identity(other, index)
                else:
                    assert fed.failures_of(index) == other.failures_of(index)
                    assert fed.failure_of(index) == other.failure_of(index)
                    assert fed.attempts.get(index) == other.attempts.get(index)
                    assert fed.pages(index, index + 1) == other.pages(index, index + 1) != ()


def _ended(span: int, start: int, stop: int, *, later: bool) -> news.WorkSucceeded:
    made = (Output("o", "/d/o", 1, 1, b"d" * 32, later=True),) if later else ()
    details = tuple(Detail(index, outputs=made) for index in range(start, stop))
    return news.WorkSucceeded(SpanId(span), start, stop, 0.001, None, details)


def _identity(record: ArrayRecord, index: int) -> tuple[int, int, int]:
    success = record.success_of(index)
    assert success is not None
    return success.source, success.source_start + index - success.start, success.attempt


STEPS = ["grow", "grow", "grow", "succeed", "succeed", "succeed", "fail", "lose", "retry", "cancel", "restart", "write"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 1),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 20)), min_size=8, max_size=50),
)
def test_an_array_that_lets_go_says_what_one_that_keeps_all_would(retries: int, steps: list[tuple[str, int]]) -> None:
    twins = Twins(retries)
    for what, number in steps:
        twins.step(what, number)
        twins.compare()


def test_what_succeeded_is_let_go_of() -> None:
    twins = Twins(0)
    for turn in range(50):
        twins.step("grow", 19)
        while twins.fed.state.spans:
            twins.step("succeed", 3 * (turn % 2))
        twins.step("write", 0)
    record = twins.array(twins.fed)
    assert isinstance(record.states, StateWindow)
    assert record.states.first_kept >= 960
    assert len(record.paged) <= 3
    assert len(record.found) <= 30
    assert record.length == record.counts[DONE] == 1000


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["grow", "move", "advance"]),
            st.integers(0, 60),
            st.integers(1, 20),
            st.sampled_from(STATES),
        ),
        max_size=40,
    )
)
def test_a_window_says_of_every_element_what_plain_bytes_would(steps: list[tuple[str, int, int, int]]) -> None:
    ours, plain = StateWindow(), bytearray()
    for what, start, count, state in steps:
        if what == "grow":
            ours.extend(bytes([state]) * count)
            plain.extend(bytes([state]) * count)
        elif what == "advance":
            ours.advance()
        else:
            low, high = min(start, len(plain)), min(start + count, len(plain))
            ours[low:high] = plain[low:high] = bytes([state]) * (high - low)
        assert ours[0 : len(plain)] == plain
        assert [ours[index] for index in range(len(plain))] == list(plain)
        assert len(ours) == len(plain)
        for low, high in ((0, len(plain)), (start, start + count)):
            assert ours[low:high] == plain[low:high]
            for wanted in (bytes([state]), bytes([DONE]), bytes([0, 1, 2]), bytes([5, 6, 7])):
                stop = min(high, len(plain))
                assert ours.runs(wanted, low, high) == ranges.runs_of(plain, wanted, low, stop)
            assert ours.count(state, low, high) == plain.count(state, low, high)
