"""Whatever happens behind a relay that shares out work, every element the server gave is told of exactly once."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bough.model.arrays import ranges
from bough.model.events.news import WorkFailed, WorkObserved, WorkReturned, WorkStarted, WorkSucceeded
from bough.model.monitoring.monitors import Finish
from bough.model.monitoring.observations import Fired
from bough.model.outcomes import Cause, Failure
from bough.model.sites.resources import Needs
from bough.model.tasks import Kind
from bough.relay.distributor import Distributor
from bough.relay.members import Member
from bough.relay.relay_executor import merge_news
from bough.wire.executor_messages import EndElements, Report, RunSpan, StopElements, WatchElements

SIZES = st.integers(1, 12)
SECONDS = st.sampled_from([0.0001, 0.01, 1.0])


class Executor:
    """What an executor would do, as far as the deck can see it."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.held: dict[int, RunSpan] = {}
        self.plans: dict[tuple[int, int], set[bytes]] = {}  # that watch an element, by span and index
        self.left: dict[int, list[list[int]]] = {}
        self.reports = 0
        self.is_connected = True

    def hear(self, message: object) -> None:
        if isinstance(message, RunSpan):
            self.held[message.span] = message
            self.left[message.span] = [[message.start, message.stop]]
            for index in range(message.start, message.stop):
                self.plans[message.span, index] = set(message.watch)
        elif isinstance(message, WatchElements):
            for index in range(message.start, message.stop):
                self.plans[message.span, index].add(message.plan)  # it has these elements
        elif isinstance(message, StopElements) and message.span in self.left:
            self.take(message.span, message.start, message.stop)

    def take(self, span: int, start: int, stop: int) -> list[list[int]]:
        taken = ranges.take(self.left[span], start, stop)
        if not self.left[span]:
            del self.left[span], self.held[span]
        return taken

    def report(self, *news: object) -> Report:
        self.reports += 1
        return Report(self.reports, list(news))


class Sharing(RuleBasedStateMachine):
    """A server, a deck, and executors that come, work, fail, go and come back."""

    @initialize(cores=st.sampled_from([1, 2, 4]), troubled=st.sampled_from([1, 2, 5]))
    def begin(self, cores: int, troubled: int) -> None:
        self.distributor = Distributor(Needs(cores, memory=1000))
        self.distributor.troubled = troubled
        self.executors: dict[int, Executor] = {}
        self.plans: dict[tuple[int, int], set[bytes]] = {}  # by which elements are to be watched
        self.given: dict[tuple[int, int], int] = {}  # how often each element was told of to its end
        self.stopped: set[tuple[int, int]] = set()
        self.last = self.numbers = 0
        self.now = 1000.0

    def settle(self) -> None:
        """Hand out, send, and hear what is told to the server."""
        self.distributor.distribute(self.now)
        speaking, self.distributor.speaking = self.distributor.speaking, {}
        for member in speaking:
            messages, member.outbox = member.outbox, []
            executor = self.executors.get(member.number)
            for message in messages if executor is not None and executor.is_connected else ():
                executor.hear(message)
        news, self.distributor.news = self.distributor.news, []
        for one in merge_news(news):
            if isinstance(one, WorkStarted):
                continue
            if isinstance(one, WorkObserved):
                assert self.given[one.span, one.index] == 0, "it was told of before its end"
                continue
            start, stop = (one.index, one.index + 1) if isinstance(one, WorkFailed) else (one.start, one.stop)
            assert start < stop
            for index in range(start, stop):
                self.given[one.span, index] += 1

    def busy(self) -> list[Executor]:
        return [executor for executor in self.executors.values() if executor.is_connected and executor.left]

    # --- the server ---

    @rule(
        size=SIZES,
        is_array=st.booleans(),
        expected=st.sampled_from([0.0, 0.001, 1.0]),
        needs=st.sampled_from([Needs(), Needs(), Needs(2), Needs(1, memory=600), Needs(64)]),
        chain=st.lists(st.integers(1, 3), max_size=3),
        watch=st.sampled_from([(), (), (b"own",)]),
    )
    def give(
        self, size: int, is_array: bool, expected: float, needs: Needs, chain: list[int], watch: tuple[bytes, ...]
    ) -> None:
        first = self.last + 1
        for back in [0] if is_array else [0, *chain]:  # how far back what it is to follow was given
            self.last += 1
            stop = size if is_array else 1
            after_span = max(first, self.last - back) if back else 0
            self.distributor.run(
                RunSpan(
                    self.last,
                    self.last,
                    0,
                    stop,
                    1,
                    Kind.FUNCTION,
                    b"",
                    is_array,
                    needs=needs,
                    expected=expected,
                    after_span=after_span,
                    watch=watch,
                )
            )
            self.plans.update({(self.last, index): set(watch) for index in range(stop)})
            self.given.update({(self.last, index): 0 for index in range(stop)})
        self.settle()

    @precondition(lambda self: self.last)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        span = data.draw(st.integers(1, self.last))
        start, length = data.draw(st.integers(0, 12)), data.draw(st.integers(1, 12))
        for index in range(start, start + length):
            if self.given.get((span, index)) == 0:
                self.stopped.add((span, index))
        self.distributor.stop(StopElements(span, start, start + length))
        self.settle()

    @precondition(lambda self: self.last)
    @rule(data=st.data(), plan=st.sampled_from([b"one", b"two"]))
    def watch(self, data: st.DataObject, plan: bytes) -> None:
        span = data.draw(st.integers(1, self.last))
        start, length = data.draw(st.integers(0, 12)), data.draw(st.integers(1, 12))
        if span in self.distributor.server_spans:
            for index in range(start, start + length):
                if (span, index) in self.plans:
                    self.plans[span, index].add(plan)
        self.distributor.watch(WatchElements(span, start, start + length, plan))
        self.distributor.end(EndElements(span, start, start + length, Finish(), "m"))
        self.settle()

    # --- executors ---

    @rule(until=st.sampled_from([0.0, 0.0, 1000.5]))
    def join(self, until: float) -> None:
        self.numbers += 1
        member = Member(self.numbers, f"host{self.numbers % 2}", self.distributor.capacity, until)
        self.executors[self.numbers] = Executor(member)
        self.distributor.join(member)
        self.settle()

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), seconds=SECONDS)
    def work(self, data: st.DataObject, seconds: float) -> None:
        executor = data.draw(st.sampled_from(self.busy()))
        span = data.draw(st.sampled_from(list(executor.left)))
        low, high = executor.left[span][0]
        stop = data.draw(st.integers(low + 1, high))
        executor.take(span, low, stop)
        started = WorkStarted(span, low, low + 1)
        seen = WorkObserved(span, stop - 1, [Fired(1.0, "m")])
        self.distributor.report(
            executor.member, executor.report(started, seen, WorkSucceeded(span, low, stop, seconds * (stop - low)))
        )
        self.settle()

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), site=st.booleans())
    def fail(self, data: st.DataObject, site: bool) -> None:
        executor = data.draw(st.sampled_from(self.busy()))
        span = data.draw(st.sampled_from(list(executor.left)))
        index = executor.left[span][0][0]
        executor.take(span, index, index + 1)
        report = executor.report(WorkFailed(span, index, Failure(Cause.NOT_STARTED, site=site)))
        self.distributor.report(executor.member, report)
        self.distributor.report(executor.member, report)  # said again, it counts once
        self.settle()

    @precondition(lambda self: self.busy())
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        executor = data.draw(st.sampled_from(self.busy()))
        span = data.draw(st.sampled_from(list(executor.left)))
        low, high = executor.left[span][-1]
        executor.take(span, low, high)
        self.distributor.report(executor.member, executor.report(WorkReturned(span, low, high)))
        self.settle()

    @precondition(lambda self: self.executors)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        executor = self.executors.pop(data.draw(st.sampled_from(list(self.executors))))
        self.distributor.lose(executor.member, "it was lost")
        self.settle()

    @precondition(lambda self: self.executors)
    @rule(data=st.data())
    def cut_off(self, data: st.DataObject) -> None:
        executor = self.executors[data.draw(st.sampled_from(list(self.executors)))]
        executor.is_connected = False
        self.distributor.shut(executor.member)
        self.settle()

    @precondition(lambda self: any(not executor.is_connected for executor in self.executors.values()))
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        away = [executor for executor in self.executors.values() if not executor.is_connected]
        executor = data.draw(st.sampled_from(away))
        executor.is_connected = True
        for span in list(executor.left):
            if data.draw(st.booleans()):  # it never arrived, or was stopped meanwhile
                del executor.left[span], executor.held[span]
        self.distributor.back(executor.member, set(executor.left))
        self.settle()

    @rule(seconds=st.sampled_from([0.1, 1.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.distributor.give_back_late(self.now)
        self.settle()

    # --- what always holds ---

    @invariant()
    def nothing_is_told_twice_or_after_it_was_stopped(self) -> None:
        for element, count in self.given.items():
            assert count <= (element not in self.stopped), element

    @invariant()
    def every_element_is_watched_where_it_is(self) -> None:
        for executor in self.executors.values() if hasattr(self, "executors") else ():
            for span, left in executor.left.items() if executor.is_connected else ():
                for index in (index for low, high in left for index in range(low, high)):
                    own = executor.held[span].record  # the number of the server's span
                    if (own, index) not in self.stopped:
                        assert executor.plans[span, index] >= self.plans[own, index], (own, index)

    @invariant()
    def nobody_has_more_long_tasks_than_fit(self) -> None:
        for member in self.distributor.members.values():
            long = sum(part.server_span.run.needs.cores for part in member.parts.values() if not part.load)
            assert long <= self.distributor.capacity.cores or any(
                part.server_span.is_chained for part in member.parts.values()
            )

    @invariant()
    def those_are_open_that_are_there_and_not_suspended(self) -> None:
        members = self.distributor.members.values()
        assert all(member.is_open is (member.is_present and not member.suspended) for member in members)
        assert self.distributor.open == sum(member.is_open for member in members)
        assert sum(self.distributor._untils.values()) == self.distributor.open
        assert all((member in self.distributor._resting) is bool(member.suspended) for member in members)
        assert all(member.suspended > self.now for member in members if member.suspended)

    @invariant()
    def every_element_waits_or_is_with_somebody(self) -> None:
        for span, server_span in self.distributor.server_spans.items():
            held = ranges.size(server_span.queue) + sum(ranges.size(part.left) for part in server_span.parts.values())
            held += sum(
                retry.server_span is server_span for pool in self.distributor._pools.values() for retry in pool.retries
            )
            assert held == server_span.left > 0, span

    def teardown(self) -> None:
        """In the end everything is told of, once."""
        if not hasattr(self, "distributor"):
            return
        self.join(0.0)
        for executor in self.executors.values():
            if not executor.is_connected:
                executor.is_connected = True
                self.distributor.back(executor.member, set(executor.left))
        self.settle()
        while self.busy():
            for executor in self.busy():
                for span, left in list(executor.left.items()):
                    for low, high in [tuple(part) for part in left]:
                        executor.take(span, low, high)
                        self.distributor.report(executor.member, executor.report(WorkSucceeded(span, low, high, 0.01)))
            self.settle()
        for element, count in self.given.items():
            assert count == (element not in self.stopped), element
        assert not self.distributor.server_spans
        assert all(
            not member.parts and member.cores_free == self.distributor.capacity.cores
            for member in self.distributor.members.values()
        )


TestSharing = Sharing.TestCase
TestSharing.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
