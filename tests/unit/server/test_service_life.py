from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from server_fakes import FakeLoop, FakeStore, FakeTransport

from bough.core.machine import Machine
from bough.core.queries.facade import Queries
from bough.model.blobs import blob_id
from bough.model.events.facts import (
    ExecutorJoined,
    ExecutorLost,
    ExecutorResized,
    RunClosed,
    RunOpened,
    SpanReturned,
    Submitted,
)
from bough.model.events.news import GroupClosed, WorkFailed, WorkSucceeded
from bough.model.ids import NUMBERS
from bough.model.outcomes import Cause, Failure
from bough.model.sites.resources import OWN_PYTHON, Needs
from bough.model.tasks import LATER, NO_LIMITS, GroupSpec, Kind, Limits, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.server.peer_connection import PeerConnection
from bough.server.service.id_ranges import IdRanges
from bough.server.service.returning_executors import ReturningExecutors
from bough.server.service.service_handlers import ServiceHandlers
from bough.server.service.workflows import Workflows
from bough.server.turns.run_info import RunInfo
from bough.server.turns.shell import Shell
from bough.testing.builders import question
from bough.wire.client_messages import (
    VERSION,
    Accepted,
    Answer,
    Ask,
    Blob,
    ClientHello,
    Closed,
    CloseSession,
    ManageService,
    Refused,
    Submit,
    TasksFailed,
    TasksSucceeded,
    Welcome,
)
from bough.wire.executor_messages import (
    Acknowledged,
    Drain,
    ExecutorHello,
    ExecutorWelcome,
    Heartbeat,
    Leave,
    Leaving,
    Report,
    Resized,
    RunSpan,
    SpansHeld,
    StopElements,
)
from bough.wire.framing import frame

PATIENCE = 60.0
A_MOMENT = 0.01  # seconds, in which outcomes have left that waited for others to go with


class SlowDisk(FakeLoop):
    """A sync is done when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs: list[Callable[[], None]] = []
        self.slow = False

    def run_in_executor(self, _, function):
        if not self.slow:
            return super().run_in_executor(_, function)
        done = _Later()
        self.syncs.append(done.finish)
        return done


class _Later:
    def add_done_callback(self, callback) -> None:
        self.callback = callback

    def exception(self) -> None:
        return None

    def finish(self) -> None:
        self.callback(self)


class Harness:
    """A service with a fake loop, store and transports around the real core."""

    def __init__(self, folder: Path, machine: Machine | None = None) -> None:
        self.loop = SlowDisk()
        self.store = FakeStore()
        self.machine = machine or Machine(load_policies("fifo"))
        if machine is None:
            turn = self.machine.turn(0, [RunOpened(1, "server", "here", 1, token="t")])
            self.store.append(turn.number, 0, turn.facts)
        else:
            self.store.rows = [(number + 1, 0.0, []) for number in range(Queries(machine).turn)]
        info = RunInfo(1, str(folder), "t:1", memos=True, embedded=False, token="t")
        self.numbers = IdRanges(str(folder))
        self.numbers.beyond(group=0, run=1, executor=0)
        self.shell = Shell(self.loop, self.machine, self.store, info)
        workflows = Workflows(self.shell, self.numbers)
        returning = self.returning = ReturningExecutors(self.shell, self.numbers, PATIENCE)
        self.ends: list[bool] = []
        self.reception = ServiceHandlers(
            self.shell, workflows, returning, store=str(folder), heartbeat=30, shutdown=self.ends.append
        )
        self.loop.run()

    def facts(self, kind: type) -> list[object]:
        return [fact for _, _, facts in self.store.rows for fact in facts if isinstance(fact, kind)]

    def client(self, name: str = "one", pid: int = 1, role: str = "owner") -> Peer:
        peer = Peer(self, role)
        peer.say(ClientHello(VERSION, pid, "here", workflow=name, ids=100))
        (peer.welcome,) = peer.said()
        return peer

    def executor(
        self,
        number: int = 0,
        spans: list[int] | None = None,
        reports: tuple[object, ...] = (),
        python: str = OWN_PYTHON,
    ) -> Peer:
        peer = Peer(self, to_executor=True)
        peer.say(ExecutorHello(VERSION, "local", "node", 7, Needs(1), python, number, marker="t:1" if number else ""))
        appointed, *_ = peer.said()
        assert isinstance(appointed, ExecutorWelcome), appointed
        peer.number = appointed.executor
        peer.say(*reports, SpansHeld(spans or []))
        return peer

    def relay(self, number: int = 0, marker: str = "", *behind: object) -> Peer:
        """One that shares out work, and has no members in its hello; what is said in one go with what it holds."""
        peer = Peer(self, to_executor=True)
        hello = ExecutorHello(VERSION, "local", "node", 7, Needs(0), OWN_PYTHON, number, marker=marker)
        peer.say(replace(hello, members=0, each=Needs(1)))
        appointed, *_ = peer.said()
        assert isinstance(appointed, ExecutorWelcome), appointed
        peer.number = appointed.executor
        peer.say(SpansHeld([]), *behind)
        return peer


class Peer:
    def __init__(self, harness: Harness, role: str = "owner", *, to_executor: bool = False) -> None:
        self.harness = harness
        self.transport = FakeTransport()
        self.transport.to_executor = to_executor
        self.connection = PeerConnection(harness.reception, harness.shell.dirty)
        self.connection.role = role
        self.connection.connection_made(self.transport)

    def say(self, *messages: object) -> None:
        self.connection.data_received(bytes(frame(*messages)))
        self.harness.loop.run()

    def said(self, kind: type = object) -> list[object]:
        return [message for message in self.transport.said() if isinstance(message, kind)]

    def hang_up(self) -> None:
        self.connection.connection_lost(None)
        self.harness.loop.run()

    def submit(self, count: int = 1, request: int = 1, limits: Limits = NO_LIMITS) -> list[int]:
        first = self.welcome.first_id
        ids = list(range(first + 10 * request, first + 10 * request + count))
        items = [TaskSpec(i, Kind.COMMAND, b"", b"call", group=self.welcome.group, limits=limits) for i in ids]
        self.say(Submit(items, request))
        return ids


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path)
    yield harness
    harness.numbers.close()


def test_a_submission_is_acknowledged_only_when_it_is_on_the_disk(service: Harness) -> None:
    client = service.client()
    service.loop.slow = True

    client.submit(1, request=1)
    client.submit(1, request=2)
    assert service.facts(Submitted)
    assert client.said(Accepted) == []

    service.loop.syncs.pop(0)()
    assert client.said(Accepted) == [Accepted(1)]
    service.loop.syncs.pop(0)()
    assert client.said(Accepted) == [Accepted(2)]


def test_outcomes_go_to_the_clients_of_their_workflow_alone(service: Harness) -> None:
    one, two = service.client("one"), service.client("two", pid=2)
    executor = service.executor()
    (task,) = one.submit()
    (run,) = executor.said(RunSpan)

    executor.say(Report(1, [WorkSucceeded(run.span, 0, 1, 0.1)]))

    assert [outcome.record for outcome in one.said(TasksSucceeded)] == [task]
    assert two.said(TasksSucceeded) == []


def test_a_missing_executor_that_comes_back_keeps_what_it_holds_and_loses_nothing_else(service: Harness) -> None:
    client, executor = service.client(), service.executor()
    first, second = client.submit(2)
    (run,) = executor.said(RunSpan)
    executor.hang_up()
    assert service.facts(ExecutorLost) == []

    service.loop.advance(PATIENCE / 2)
    back = service.executor(executor.number, [run.span])
    service.loop.advance(PATIENCE)

    assert service.facts(ExecutorLost) == []
    assert back.said(RunSpan | StopElements) == []
    back.say(Report(1, [WorkSucceeded(run.span, 0, 1, 0.1)]))
    service.loop.advance(A_MOMENT)
    assert [outcome.record for outcome in client.said(TasksSucceeded)] == [first]
    assert [sent.record for sent in back.said(RunSpan)] == [second]


def test_what_a_returning_executor_does_not_hold_is_given_out_again_and_what_it_should_not_hold_is_stopped(
    service: Harness,
) -> None:
    client, executor = service.client(), service.executor()
    client.submit(1)
    (run,) = executor.said(RunSpan)
    executor.hang_up()

    back = service.executor(executor.number, [999])

    assert [fact.span for fact in service.facts(SpanReturned)] == [run.span]
    said = back.said(RunSpan | StopElements)
    assert [message.span for message in said if isinstance(message, StopElements)] == [999]
    assert [message.record for message in said if isinstance(message, RunSpan)] == [run.record]


def test_members_that_a_relay_has_at_once_count_though_it_joins_a_turn_later(service: Harness) -> None:
    peer = Peer(service, to_executor=True)
    peer.say(ExecutorHello(VERSION, "local", "head", 7, Needs(0), OWN_PYTHON, members=0, each=Needs(1)))
    peer.say(SpansHeld([]), Resized(Needs(0), 0, Needs(1)), Resized(Needs(2), 2, Needs(1)))
    (known,) = service.shell.queries.executors()
    assert (known.members, known.capacity.cores) == (2, 2)


def test_what_was_sent_just_before_a_connection_broke_is_sent_again(service: Harness) -> None:
    client, executor = service.client(), service.executor()
    blob = Blob(blob_id(b"a function"), b"a function")
    first = client.welcome.first_id
    tasks = [TaskSpec(first + n, Kind.FUNCTION, blob.id, b"()", group=client.welcome.group) for n in range(2)]
    client.say(blob, Submit(tasks, 1))
    assert executor.said(Blob) == [blob]

    executor.hang_up()  # and neither the function nor the span has arrived
    back = service.executor(executor.number)

    assert back.said(Blob) == [blob]


def test_a_report_that_was_not_heard_counts_before_what_is_held_is_compared(service: Harness) -> None:
    client, executor = service.client(), service.executor()
    (task,) = client.submit(1)
    (run,) = executor.said(RunSpan)
    executor.hang_up()

    back = service.executor(executor.number, [], reports=(Report(1, [WorkSucceeded(run.span, 0, 1, 0.1)]),))

    assert [outcome.record for outcome in client.said(TasksSucceeded)] == [task]
    assert service.facts(SpanReturned) == []
    service.loop.advance(0.25)
    assert back.said(Acknowledged) == [Acknowledged(1)]


def test_an_executor_that_does_not_come_back_is_lost_and_may_join_again_late(service: Harness) -> None:
    client, executor = service.client(), service.executor()
    client.submit(1)
    (run,) = executor.said(RunSpan)
    executor.hang_up()
    service.loop.advance(PATIENCE + 1)
    assert [fact.executor for fact in service.facts(ExecutorLost)] == [executor.number]
    other = service.executor()
    (again,) = other.said(RunSpan)

    late = service.executor(executor.number, [], reports=(Report(1, [WorkSucceeded(run.span, 0, 1, 0.1)]),))
    service.loop.advance(A_MOMENT)

    assert [outcome.attempt for outcome in client.said(TasksSucceeded)] == [1]
    assert [stop.span for stop in other.said(StopElements)] == [again.span]
    assert late.number == executor.number


def test_an_executor_of_a_site_that_is_cut_off_is_waited_for_until_the_site_is_back(service: Harness) -> None:
    cut = {"local"}
    service.returning.is_cut_off = cut.__contains__
    client, executor = service.client(), service.executor()
    client.submit(1)
    (run,) = executor.said(RunSpan)
    executor.hang_up()
    service.loop.advance(3.5 * PATIENCE)
    cut.clear()
    service.loop.advance(PATIENCE)  # all of its time, counted from when the site was reached
    assert service.facts(ExecutorLost) == []
    back = service.executor(executor.number, [run.span])
    service.loop.advance(5 * PATIENCE)
    assert service.facts(ExecutorLost) == []
    back.hang_up()
    service.loop.advance(PATIENCE + 1)
    assert len(service.facts(ExecutorLost)) == 1


def test_an_executor_of_a_site_that_stays_away_is_lost_all_the_same(service: Harness) -> None:
    service.returning.is_cut_off = lambda _: True
    executor = service.executor()
    executor.hang_up()
    service.loop.advance(900 - PATIENCE)
    assert service.facts(ExecutorLost) == []
    service.loop.advance(2 * PATIENCE)
    assert len(service.facts(ExecutorLost)) == 1


def test_executors_that_a_restored_machine_knows_have_a_time_to_come_back(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    before = Harness(tmp_path / "before")
    executor = before.executor()
    before.client().submit(1)
    (run,) = executor.said(RunSpan)
    machine = Machine.restore(before.machine.snapshot(), load_policies("fifo"))

    after = Harness(tmp_path, machine)
    client = Peer(after)
    client.say(ClientHello(VERSION, 1, "here", workflow="one"))
    assert client.said(Welcome)[0].joined
    executor = after.executor(executor.number, [run.span])
    executor.say(Report(7, [WorkSucceeded(run.span, 0, 1, 0.1)]))

    assert len(client.said(TasksSucceeded)) == 1
    after.loop.advance(0.25)
    assert executor.said(Acknowledged) == [Acknowledged(7)]
    after.loop.advance(2 * PATIENCE)
    assert after.facts(ExecutorLost) == []


def test_an_executor_that_said_that_it_leaves_is_lost_at_once(service: Harness) -> None:
    executor = service.executor()
    executor.say(Leaving("it was idle"))
    assert executor.said(Drain) == [Drain()]

    executor.hang_up()

    assert [fact.reason for fact in service.facts(ExecutorLost)] == ["it was idle"]


def test_an_executor_that_leaves_before_it_has_joined_gets_nothing(service: Harness) -> None:
    client = service.client()
    client.submit()
    peer = Peer(service, to_executor=True)
    peer.say(ExecutorHello(VERSION, "local", "node", 7, Needs(1), OWN_PYTHON))
    peer.say(SpansHeld([]), Leaving("it had nothing to do"))

    assert peer.said(RunSpan) == []
    peer.hang_up()
    assert service.facts(ExecutorJoined)
    other = service.executor()
    assert [run.attempt for run in other.said(RunSpan)] == [1]


@pytest.mark.parametrize("before", [False, True])
def test_what_a_relay_says_of_its_members_before_it_has_joined_counts(service: Harness, *, before: bool) -> None:
    number, marker = 0, ""
    if before:
        number, marker = service.relay().number, "t:1"
        assert [fact.members for fact in service.facts(ExecutorJoined)] == [0]
    client = service.client()
    peer = service.relay(number, marker, Resized(Needs(3), 3, Needs(1)), Resized(Needs(2), 2, Needs(1), 9e9))

    client.say(Ask(5, question("executors")))
    (entry,) = client.said(Answer)[0].value
    assert (entry["executor"], entry["members"], entry["cores"], entry["until"]) == (peer.number, 2, 2, 9e9)
    client.submit()
    assert len(peer.said(RunSpan)) == 1


def test_outputs_are_written_back_later_by_executors_only_and_not_behind_a_relay(service: Harness) -> None:
    client = service.client()
    behind = service.relay(0, "", Resized(Needs(1), 1, Needs(1)))
    client.submit(1, 1, limits=Limits(keep=LATER))
    executor = service.executor()
    client.submit(1, 2, limits=Limits(keep=LATER))

    assert [one.said(RunSpan)[0].limits.keep for one in (behind, executor)] == [True, LATER]


def test_an_executor_that_is_no_relay_is_not_made_one_by_what_it_says(service: Harness) -> None:
    executor = service.executor()
    executor.say(Resized(Needs(9), 9, Needs(1)))

    assert service.facts(ExecutorResized) == []
    executor.hang_up()
    service.executor(executor.number)
    assert [fact.each for fact in service.facts(ExecutorJoined)] == [None]


def test_an_executor_of_another_store_is_refused(service: Harness) -> None:
    peer = Peer(service, to_executor=True)
    peer.say(ExecutorHello(VERSION, "local", "node", 7, Needs(1), OWN_PYTHON, 3, marker="another:1"))

    assert "another" in peer.said(Refused)[0].message


def test_an_executor_of_another_python_gets_commands_and_no_functions(service: Harness) -> None:
    client = service.client()
    executor = service.executor(python="3.99")
    blob = Blob(blob_id(b"a function"), b"a function")
    function = client.welcome.first_id
    where = {"group": client.welcome.group, "needs": Needs(python=OWN_PYTHON)}
    client.say(blob, Submit([TaskSpec(function, Kind.FUNCTION, blob.id, b"()", **where)], 9))
    (command,) = client.submit(1)

    assert [span.record for span in executor.said(RunSpan)] == [command]
    assert f"no executor with Python {OWN_PYTHON} is there" in service.machine.explain(function)[0]
    client.said()
    client.say(Ask(5, question("executors")))
    assert [entry["python"] for entry in client.said(Answer)[0].value] == ["3.99"]

    own = service.executor()
    assert [span.record for span in own.said(RunSpan)] == [function]


def test_a_sign_of_life_is_answered(service: Harness) -> None:
    executor = service.executor()
    executor.said()
    executor.say(Heartbeat())

    assert executor.said() == [Acknowledged(0)]


def test_executors_are_drained_and_stopped_by_hand(service: Harness) -> None:
    client, executor = service.client(), service.executor()
    executor.said()

    client.say(ManageService(1, "drain", [executor.number]))
    client.say(ManageService(2, "stop", [executor.number]))
    client.say(ManageService(3, "stop", [77]))

    assert executor.said(Drain | Leave) == [Drain(), Leave()]
    assert [answer.request for answer in client.said(Answer)] == [1, 2]
    client.say(ManageService(5, "shutdown"))
    assert service.ends == [False]


def test_roles_may_do_what_is_theirs(service: Harness) -> None:
    reader = Peer(service, "read")
    reader.say(ClientHello(VERSION, 1, "here"), Ask(1, question("workflows")))
    assert reader.said(Answer)[0].value[0]["name"] == "server"
    reader.say(ManageService(2, "shutdown"))
    assert reader.transport.closed
    assert service.ends == []

    for role, hello in (
        ("read", ClientHello(VERSION, 1, "here", workflow="one")),
        ("execute", ClientHello(VERSION, 1, "here")),
        ("submit", ExecutorHello(VERSION, "local", "node", 7, Needs(1), OWN_PYTHON)),
    ):
        peer = Peer(service, role)
        peer.say(hello)
        assert len(peer.said(Refused)) == 1
        assert peer.transport.closed

    submitter = Peer(service, "submit")
    submitter.say(ClientHello(VERSION, 1, "here"), ManageService(1, "shutdown"))
    assert "Unix socket" in submitter.said(Refused)[0].message


def test_a_workflow_is_closed_when_its_client_drains_it_and_all_has_ended(service: Harness) -> None:
    client, executor = service.client(), service.executor()
    client.submit(1)
    (run,) = executor.said(RunSpan)
    client.say(CloseSession("drain"))
    assert client.said(Closed) == []

    executor.say(Report(1, [WorkSucceeded(run.span, 0, 1, 0.1)]))

    assert client.said(Closed) == [Closed("done")]
    assert [fact.run for fact in service.facts(RunClosed)] == [client.welcome.run]
    assert not service.client().welcome.joined


def test_a_client_that_comes_back_is_not_told_of_a_failure_that_a_retry_of_the_group_may_undo(
    service: Harness,
) -> None:
    client, executor = service.client(), service.executor()
    first, group, root = client.welcome.first_id, client.welcome.first_group, client.welcome.group
    records = [TaskSpec(first + n, Kind.COMMAND, b"", b"", group=group) for n in range(2)]
    client.say(Submit([GroupSpec(group, "g", root, retries=1), *records], 1), GroupClosed(group))
    (run,) = executor.said(RunSpan)
    failure = Failure(Cause.EXIT, "exit code 1", exit_code=1)
    executor.say(Report(1, [WorkFailed(run.span, 0, failure)]))
    client.say(Ask(2, question("outcomes", records=[first])))
    assert not [message for message in client.said() if isinstance(message, TasksFailed)]

    for number in (2, 3, 4):  # the other task; then the first one again, in vain
        (run,) = executor.said(RunSpan) or [None]
        if run is not None:
            good = run.record != first
            news = WorkSucceeded(run.span, 0, 1, 0.1) if good else WorkFailed(run.span, 0, failure)
            executor.say(Report(number, [news]))
    service.loop.advance(A_MOMENT)
    told = client.said()
    assert {message.record for message in told if isinstance(message, TasksFailed)} == {first}


def test_an_inventory_names_what_there_is_and_outcomes_are_told_again(service: Harness) -> None:
    client, executor = service.client(), service.executor()
    done, waiting = client.submit(2)
    (run,) = executor.said(RunSpan)
    executor.say(Report(1, [WorkSucceeded(run.span, 0, 1, 0.1)]))
    service.loop.advance(A_MOMENT)
    client.said()

    client.say(
        Ask(1, question("inventory")),
        Ask(2, question("outcomes", records=[done, waiting])),
        Ask(3, question("ids", count=5)),
    )

    said = client.said()
    answers = {answer.request: answer.value for answer in said if isinstance(answer, Answer)}
    states = {record["id"]: record["state"] for record in answers[1]["records"]}
    assert states == {done: "done", waiting: "ready"}
    assert [message.record for message in said if isinstance(message, TasksSucceeded)] == [done]
    assert answers[3] == {"first_id": 2 * NUMBERS + 101, "first_group": 102, "ids": 5}
