from __future__ import annotations

import errno
import pickle
import time

import pytest
from server_fakes import FakeLoop, FakeStore, FakeTransport

from bough.core.machine import Machine
from bough.errors import InternalError, InvariantBroken, StoreFailed
from bough.model.blobs import blob_id
from bough.model.events.facts import RunOpened
from bough.model.events.news import (
    AddMonitors,
    Cancel,
    EndEarly,
    GroupClosed,
    Kill,
    WorkFailed,
    WorkObserved,
    WorkStarted,
    WorkSucceeded,
)
from bough.model.monitoring.monitors import Finish, Metric, WatchPlan, encode_plan
from bough.model.monitoring.observations import Points
from bough.model.outcomes import Cause, Failure
from bough.model.sites.resources import OWN_PYTHON, Needs
from bough.model.tasks import ArraySpec, Dep, GroupSpec, Kind, Limits, On, TaskExtras, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.server.message_handlers import MessageHandlers
from bough.server.peer_connection import PeerConnection
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
    CloseSession,
    DoAction,
    GroupFinished,
    Refused,
    Submit,
    Subscribe,
    TasksFailed,
    TasksObserved,
    TasksRunning,
    TasksSucceeded,
    UserNotice,
    Welcome,
)
from bough.wire.executor_messages import (
    Acknowledged,
    EndElements,
    ExecutorHello,
    ExecutorWelcome,
    Heartbeat,
    Report,
    RunSpan,
    StopElements,
    WatchElements,
)
from bough.wire.framing import frame

BODY, TABLE = blob_id(b"body"), blob_id(b"table")


class Harness:
    """A shell with a fake loop, store and transports around the real core."""

    def __init__(self, *, memos: bool = False) -> None:
        self.loop = FakeLoop()
        self.store = FakeStore()
        machine = Machine(load_policies("fifo"))
        turn = machine.turn(0, [RunOpened(1, "test", "here", 1)])
        self.store.append(turn.number, 0, turn.facts)
        info = RunInfo(1, "/store", "id:1", 1, 1, 1, memos)
        self.shell = Shell(self.loop, machine, self.store, info)
        self.closes: list[str] = []
        self.reception = MessageHandlers(self.shell, self.closes.append, lambda: self.closes.append("lost"))

    def connect(self, *, trusted: bool = False) -> Peer:
        return Peer(self, trusted=trusted)

    def client(self, *, owner: bool = True) -> Peer:
        peer = self.connect(trusted=owner)
        peer.say(ClientHello(VERSION, 1, "here", owner))
        assert isinstance(peer.said()[0], Welcome)
        return peer

    def executor(self, cores: int = 1) -> Peer:
        peer = self.connect()
        peer.transport.to_executor = True
        peer.say(ExecutorHello(VERSION, "local", "node", 7, Needs(cores), OWN_PYTHON))
        appointed, *peer.kept = peer.said()
        assert isinstance(appointed, ExecutorWelcome)
        return peer


class Peer:
    def __init__(self, harness: Harness, *, trusted: bool) -> None:
        self.harness = harness
        self.transport = FakeTransport()
        self.connection = PeerConnection(harness.reception, harness.shell.dirty, trusted=trusted)
        self.connection.connection_made(self.transport)
        self.number = 0
        self.kept: list[object] = []

    def say(self, *messages: object) -> None:
        self.connection.data_received(bytes(frame(*messages)))
        self.harness.loop.run()

    def report(self, *news: object) -> None:
        self.number += 1
        self.say(Report(self.number, list(news)))

    def said(self) -> list[object]:
        kept, self.kept = self.kept, []
        return kept + self.transport.said()

    def lose(self) -> None:
        self.connection.connection_lost(None)
        self.harness.loop.run()


def a_task(number: int, **fields: object) -> TaskSpec:
    return TaskSpec(number, Kind.FUNCTION, BODY, pickle.dumps(((), {})), **fields)


def the(kind: type, messages: list[object]) -> object:
    (found,) = [message for message in messages if isinstance(message, kind)]
    return found


def test_a_submission_is_accepted_placed_and_its_outcome_told() -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor()

    client.say(Blob(BODY, b"body"), Submit([a_task(1)], 5))

    assert client.said() == [Accepted(5)]
    blob, run = executor.said()
    assert blob == Blob(BODY, b"body")
    assert (run.record, run.attempt, run.payload) == (1, 1, pickle.dumps(((), {})))

    executor.report(WorkSucceeded(run.span, 0, 1, 0.5, b"result"))

    assert client.said() == [TasksSucceeded(1, 0, 1, 1, "node", b"result")]
    assert executor.said() == [], "an acknowledgement waits a moment for company"
    harness.loop.advance(0.25)
    assert executor.said() == [Acknowledged(1)]


def test_the_acknowledgement_of_a_task_known_to_be_short_goes_with_its_outcome_or_after_a_moment() -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor()
    client.say(Blob(BODY, b"body"), Submit([a_task(1, template="short")], 5))
    executor.report(WorkSucceeded(the(RunSpan, executor.said()).span, 0, 1, 0.0001, b"result"))
    client.said()

    client.say(Submit([a_task(2, template="short")], 6))
    assert client.said() == []
    executor.report(WorkSucceeded(the(RunSpan, executor.said()).span, 0, 1, 0.0001, b"result"))
    assert client.said() == [Accepted(6), TasksSucceeded(2, 0, 1, 1, "node", b"result")]

    client.say(Submit([a_task(3, template="short")], 7))
    assert client.said() == []
    for _ in range(2):  # the timer of the one before it looks first whether this one has waited for long enough
        harness.loop.advance(0.01)
    assert client.said() == [Accepted(7)]


def test_outcomes_go_together_to_a_client_that_only_listens_while_work_goes_on() -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor()
    client.say(Blob(BODY, b"body"), Submit([a_task(number) for number in range(1, 6)], 5))
    assert client.said() == [Accepted(5)]
    told: list[list[int]] = []
    for _ in range(5):
        run = the(RunSpan, executor.said())
        executor.report(WorkSucceeded(run.span, 0, 1, 0.5, b"result"))
        told.append([message.record for message in client.said()])
        if run.record == 2:
            harness.loop.advance(0.01)
            told.append([message.record for message in client.said()])

    assert told == [[], [], [1, 2], [], [], [3, 4, 5]]


def test_a_blob_goes_to_an_executor_once_and_again_to_its_successor() -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor(cores=4)
    client.say(Blob(BODY, b"body"), Submit([a_task(1), a_task(2)], 1))
    assert [type(message) for message in executor.said()] == [Blob, RunSpan, RunSpan]

    executor.lose()
    successor = harness.executor(cores=4)

    assert [type(message) for message in successor.said()] == [Blob, RunSpan, RunSpan]


def test_everything_said_in_a_turn_is_one_write() -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor(cores=1)
    client.say(Blob(BODY, b"body"), Submit([a_task(1), a_task(2)], 1))
    run = executor.said()[-1]

    executor.report(WorkSucceeded(run.span, 0, 1, 0.5, b"result"))

    assert len(executor.transport.writes) == 1
    assert sorted(type(message).__name__ for message in executor.said()) == ["Acknowledged", "RunSpan"]


def test_requests_of_different_clients_are_answered_to_their_own() -> None:
    harness = Harness()
    first, second = harness.client(), harness.client(owner=False)
    wrong = a_task(99, after=(Dep(On.TASK, 12345),))

    first.connection.data_received(bytes(frame(Submit([a_task(1)], 7))))
    second.connection.data_received(bytes(frame(Submit([wrong], 7))))
    harness.loop.run()

    assert first.said() == [Accepted(7)]
    refused = second.said()[0]
    assert isinstance(refused, Refused)
    assert refused.request == 7


def test_a_value_is_sent_along_with_the_task_that_wants_it() -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor()
    needs = Dep(On.TASK, 1)
    client.say(Blob(BODY, b"body"), Submit([a_task(1), a_task(2, after=(needs,), inputs=(needs,))], 1))
    run = executor.said()[-1]

    executor.report(WorkSucceeded(run.span, 0, 1, 0.5, pickle.dumps([42])))

    run = the(RunSpan, executor.said())
    assert run.record == 2
    (value,) = run.inputs
    assert value.single
    assert value.pages == [(0, 1, pickle.dumps([42]))]
    assert harness.store.reads == 0


def test_the_values_of_an_array_come_as_pages_in_order() -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor()
    on = Dep(On.ARRAY, 1)
    array = ArraySpec(1, Kind.FUNCTION, BODY, 2, table=TABLE)
    client.say(Blob(BODY, b"body"), Blob(TABLE, b"table"), Submit([array, a_task(2, after=(on,), inputs=(on,))], 1))
    sent = executor.said()
    while True:
        runs = [message for message in sent if isinstance(message, RunSpan)]
        if not runs or runs[-1].record == 2:
            break
        for run in runs:
            values = list(range(run.start, run.stop))
            executor.report(WorkSucceeded(run.span, run.start, run.stop, 0.5, pickle.dumps(values)))
        sent = executor.said()

    (value,) = runs[-1].inputs
    assert not value.single
    assert [pickle.loads(page)[index] for start, stop, page in value.pages for index in range(stop - start)] == [0, 1]


def test_a_task_whose_function_was_never_sent_fails_and_says_so() -> None:
    harness = Harness()
    client = harness.client()
    harness.executor()

    client.say(Submit([a_task(1)], 1))

    bad = the(TasksFailed, client.said())
    assert bad.failure.cause is Cause.NOT_STARTED
    assert "was never sent" in bad.failure.message


def test_nothing_takes_effect_until_a_full_disk_has_room_again() -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor(cores=2)
    client.say(Blob(BODY, b"body"), Submit([a_task(1)], 1))
    client.said()
    run = executor.said()[-1]
    rows = len(harness.store.rows)
    harness.store.failing = StoreFailed("the disk is full", transient=True)

    executor.report(WorkSucceeded(run.span, 0, 1, 0.5, b"result"))
    client.say(Submit([a_task(2)], 2))
    harness.loop.advance(0.6)

    assert [type(message) for message in client.said()] == [UserNotice]
    assert executor.said() == [Acknowledged(0)]  # we live, and nothing is acknowledged
    assert executor.transport.paused

    harness.store.failing = None
    harness.loop.advance(0.6)

    assert [type(message) for message in client.said()] == [UserNotice, TasksSucceeded, Accepted]
    assert [type(message) for message in executor.said()] == [Acknowledged, Acknowledged, RunSpan]
    assert not executor.transport.paused
    assert len(harness.store.rows) == rows + 2


def test_a_store_that_will_not_recover_is_fatal() -> None:
    harness = Harness()
    client = harness.client()
    fatal: list[str] = []
    harness.shell.on_fatal = lambda error: fatal.append(str(error))
    harness.store.failing = StoreFailed("damaged")

    client.say(Submit([a_task(1)], 1))

    assert fatal == ["damaged"]
    assert client.said() == []


def test_a_lost_executor_gives_its_tasks_back_and_clients_hear_it() -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor()
    client.say(Blob(BODY, b"body"), Submit([a_task(1)], 1))
    run = executor.said()[-1]
    executor.report(WorkStarted(run.span, 0, 1))
    assert TasksRunning(1, 0, 1, 1, "node") in client.said()

    executor.lose()
    assert TasksRunning(1, 0, 1, 0, ended=1) in client.said()

    second = harness.executor()
    assert second.said()[-1].attempt == 2


def test_a_report_that_comes_twice_counts_once_and_is_acknowledged_again() -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor()
    client.say(Blob(BODY, b"body"), Submit([a_task(1)], 1))
    run = executor.said()[-1]
    report = Report(1, [WorkSucceeded(run.span, 0, 1, 0.5, b"result")])

    executor.say(report)
    executor.say(report)

    assert [type(message) for message in client.said()] == [Accepted, TasksSucceeded]
    harness.loop.advance(0.25)
    assert executor.said() == [Acknowledged(1), Acknowledged(1)]


def test_cancelling_stops_the_span_and_tells_every_subscriber() -> None:
    harness = Harness()
    owner, other, executor = harness.client(), harness.client(owner=False), harness.executor()
    other.say(Subscribe())
    owner.say(Blob(BODY, b"body"), Submit([a_task(1)], 1))
    owner.said()
    run = executor.said()[-1]

    other.say(DoAction(3, Cancel(Dep(On.TASK, 1))))

    assert executor.said() == [StopElements(run.span, 0, 1)]
    assert the(TasksFailed, owner.said()).failure.cause is Cause.CANCELLED
    heard = other.said()
    assert the(TasksFailed, heard).attempt == 1
    assert the(Answer, heard) == Answer(3, {"tasks": 1})


def test_killing_fails_the_attempt_and_tells_which_one() -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor()
    client.say(Blob(BODY, b"body"), Submit([a_task(1, limits=Limits(retries=3))], 1))
    run = executor.said()[-1]
    executor.report(WorkStarted(run.span, 0, 1))
    client.said()

    client.say(DoAction(2, Kill(Dep(On.TASK, 1))))

    bad = the(TasksFailed, client.said())
    assert (bad.failure.cause, bad.attempt, bad.host) == (Cause.KILLED, 1, "node")


def test_a_failure_that_is_retried_is_no_outcome() -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor()
    client.say(Blob(BODY, b"body"), Submit([a_task(1, limits=Limits(retries=1))], 1))
    client.said()
    run = executor.said()[-1]

    executor.report(WorkFailed(run.span, 0, Failure(Cause.EXCEPTION, "no")))
    assert client.said() == [TasksRunning(1, 0, 1, 0, ended=1)]
    run = the(RunSpan, executor.said())
    assert run.attempt == 2

    executor.report(WorkFailed(run.span, 0, Failure(Cause.EXCEPTION, "no")))
    assert the(TasksFailed, client.said()).attempt == 2


def test_a_closed_group_is_told_when_it_is_done() -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor()
    client.say(Blob(BODY, b"body"), Submit([GroupSpec(1, "g"), a_task(1, group=1)], 1), GroupClosed(1))
    run = executor.said()[-1]
    client.said()

    executor.report(WorkSucceeded(run.span, 0, 1, 0.5, b"result"))

    assert [type(message) for message in client.said()] == [TasksSucceeded, GroupFinished]


def test_questions_are_answered_after_what_was_said_before_them() -> None:
    harness = Harness()
    client = harness.client()

    client.say(
        Submit([a_task(1)], 1),
        Ask(2, question("status")),
        Ask(3, question("explain", record=1)),
        Ask(4, question("processors")),
    )

    answers = {answer.request: answer.value for answer in client.said() if isinstance(answer, Answer)}
    assert answers[2]["counts"]["ready"] == 1
    assert any("executor" in line for line in answers[3])
    assert answers[4] == {}


def test_a_question_for_services_is_refused_by_a_session() -> None:
    harness = Harness()
    client = harness.client()

    client.say(Ask(2, question("prune", seconds=1.0)))

    refused = the(Refused, client.said())
    assert (refused.request, refused.kind) == (2, "UnknownName")


def test_a_peer_that_does_not_say_hello_is_cut_off() -> None:
    harness = Harness()
    peer = harness.connect()

    peer.say(Submit([], 1))

    assert the(Refused, peer.said()).kind == "ProtocolError"
    assert peer.transport.closed


def test_bytes_that_are_no_frame_cut_the_peer_off() -> None:
    harness = Harness()
    peer = harness.connect()

    peer.connection.data_received(b"\x00\x00\x00\x01\xc1")

    assert the(Refused, peer.said()).kind == "ProtocolError"
    assert peer.transport.closed


def test_an_executor_of_another_python_is_refused() -> None:
    harness = Harness()
    peer = harness.connect()
    peer.transport.to_executor = True

    peer.say(ExecutorHello(VERSION, "local", "node", 7, Needs(1), "2.7"))

    assert "2.7" in the(Refused, peer.said()).message


def test_only_the_inherited_connection_may_own_and_close_the_session() -> None:
    harness = Harness()
    stranger = harness.connect()
    stranger.say(ClientHello(VERSION, 1, "here", True))
    stranger.said()

    stranger.say(CloseSession("now"))
    assert the(Refused, stranger.said()).kind == "UserError"
    stranger.lose()
    assert harness.closes == []

    owner = harness.client()
    owner.say(CloseSession("drain"))
    owner.lose()
    assert harness.closes == ["drain", "lost"]


def test_a_span_that_cannot_be_sent_for_a_moment_is_sent_later_at_no_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor()
    with monkeypatch.context() as used_up:

        def no_descriptors(_: bytes) -> bytes:
            raise OSError(errno.EMFILE, "Too many open files")

        used_up.setattr(harness.shell._sender, "_blob", no_descriptors)
        client.say(Blob(BODY, b"body"), Submit([a_task(1)], 1))
        assert not [message for message in executor.said() if isinstance(message, RunSpan)]

    harness.loop.advance(0.6)

    assert the(RunSpan, executor.said()).record == 1
    assert not [message for message in client.said() if isinstance(message, TasksFailed)]


def test_an_executor_that_says_nothing_for_long_is_lost() -> None:
    harness = Harness()
    executor = harness.executor()

    for _ in range(7):
        harness.loop.advance(5)

    assert executor.transport.closed
    assert harness.shell.peers.executors == {}


def test_a_server_that_was_stopped_itself_first_reads_what_executors_said_meanwhile() -> None:
    harness = Harness()
    executor = harness.executor()

    harness.loop.advance(600)
    assert not executor.transport.closed
    for _ in range(7):
        harness.loop.advance(5)
    assert executor.transport.closed


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_is_set_loses_no_executor_and_moves_no_wait(
    jump: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = Harness()
    shell = harness.shell
    executor = harness.executor()
    begun, real = shell.clock.now(), time.time
    monkeypatch.setattr(shell.clock, "_wall", lambda: real() + jump)
    monkeypatch.setattr(time, "time", lambda: real() + jump)

    for _ in range(7):
        harness.loop.advance(5)
        executor.say(Heartbeat())

    assert not executor.transport.closed
    assert abs(shell.clock.now() - begun) < 60
    assert [row[1] for row in harness.store.rows] == sorted(row[1] for row in harness.store.rows)
    said = capsys.readouterr().err
    assert said.count(f"the system's clock was set by {jump:+.0f} s") == 1


def test_clients_get_ids_that_do_not_meet() -> None:
    harness = Harness()
    peers = [harness.connect(trusted=True), harness.connect(), harness.connect()]
    for peer in peers:
        peer.say(ClientHello(VERSION, 1, "here", True))

    firsts = [the(Welcome, peer.said()).first_id for peer in peers]
    assert firsts[0] == 1
    assert len(set(firsts)) == 3


def test_a_broken_law_of_the_core_stops_the_server_and_says_what_to_do(monkeypatch) -> None:
    harness = Harness()
    fatal: list[BaseException] = []
    harness.shell.on_fatal = fatal.append

    def broken(now: float, events: object) -> None:
        raise InvariantBroken("two and two make five")

    monkeypatch.setattr(harness.shell.machine, "turn", broken)
    harness.shell.schedule()
    harness.loop.run()
    (error,) = fatal
    assert isinstance(error, InternalError)
    assert "two and two make five" in str(error)
    assert "bough store check and bough store repair" in str(error)
    assert "broken" in error.story


# --- monitors ------------------------------------------------------------------------------------------------

PLAN = encode_plan(WatchPlan(metrics=(Metric("score=(.*)"),)))
PLAN_ID = blob_id(PLAN)


def test_plans_go_to_an_executor_once_before_what_they_watch() -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor(cores=2)
    watched = TaskExtras(watch=PLAN_ID)
    client.say(Blob(BODY, b"body"), Blob(PLAN_ID, PLAN), Submit([a_task(n, extras=watched) for n in (1, 2)], 5))
    said = executor.said()
    assert [type(message) for message in said] == [Blob, Blob, RunSpan, RunSpan]
    assert [message.watch for message in said[2:]] == [(PLAN_ID,)] * 2


def test_monitors_are_added_to_what_runs_and_what_they_see_is_told_to_clients() -> None:
    harness = Harness()
    client, executor = harness.client(), harness.executor()
    client.say(Blob(BODY, b"body"), Submit([a_task(1)], 5))
    run = the(RunSpan, executor.said())
    client.said()
    client.say(Blob(PLAN_ID, PLAN), DoAction(6, AddMonitors(Dep(On.TASK, 1), PLAN_ID)))
    assert client.said() == [Answer(6, {"tasks": 1})]
    assert executor.said() == [Blob(PLAN_ID, PLAN), WatchElements(run.span, 0, 1, PLAN_ID)]
    seen = [Points("score", ((1.0, 2.0, 3.0),))]
    executor.report(WorkObserved(run.span, 0, seen))
    assert client.said() == [TasksRunning(1, 0, 1, 1, "node"), TasksObserved(1, 0, 1, seen)]
    client.say(DoAction(7, EndEarly(Dep(On.TASK, 1), Finish(), "remote monitor", "enough")))
    assert EndElements(run.span, 0, 1, Finish(), "remote monitor", "enough") in executor.said()


def test_monitors_that_cannot_be_read_are_refused() -> None:
    harness = Harness()
    client = harness.client()
    bad = encode_plan(WatchPlan(metrics=(Metric("no group"),)))
    client.say(Blob(blob_id(bad), bad), DoAction(1, AddMonitors(Dep(On.TASK, 1), blob_id(bad))))
    client.say(DoAction(2, AddMonitors(Dep(On.TASK, 1), PLAN_ID)))
    first, second = client.said()
    assert (first.request, first.kind) == (1, "BadValue")
    assert "needs one group" in first.message
    assert second == Refused("the monitors to be added were not sent to the server", 2, "BadValue")
