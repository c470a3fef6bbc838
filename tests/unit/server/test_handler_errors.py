"""What goes wrong while a message is handled concerns its sender: the server goes on for everybody else."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from test_service_life import Harness, Peer

from bough.errors import ProtocolError
from bough.model.events.facts import ElementFailed, SpanEnded
from bough.model.events.news import CallsEnded, WorkFailed, WorkSucceeded
from bough.model.outcomes import Cause, Failure
from bough.model.sites.availability import SiteRule
from bough.model.sites.queue_specs import QueueSpec
from bough.model.sites.site_specs import SiteSpec
from bough.model.tasks import Kind, TaskSpec
from bough.testing.builders import question
from bough.wire import here_questions, questions
from bough.wire.client_messages import Answer, Ask, Refused, Submit
from bough.wire.executor_messages import Report, RunSpan
from bough.wire.framing import frame_list, server_frames
from bough.wire.probes import FileSize


@pytest.fixture
def house(tmp_path: Path) -> Harness:
    made = Harness(tmp_path)
    yield made
    made.numbers.close()


def broken(*_: object) -> object:
    raise RuntimeError("a bug of ours")


def test_a_bug_in_a_handler_costs_the_asker_its_connection_and_nobody_else_anything(
    house: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    house.reception.answers.add({questions.Status: broken})
    asker, other = house.client("one"), house.client("two")

    asker.say(Ask(1, question("status")))
    (refused,) = asker.said(Refused)
    assert (refused.kind, "RuntimeError: a bug of ours" in refused.message) == ("InternalError", True)
    assert asker.transport.closed
    assert house.shell.handler_errors.count == 1
    assert "in broken" in capsys.readouterr().err  # its story is in the log

    other.say(Ask(1, question("processors")))
    assert other.said(Answer)


def test_a_bug_that_shows_after_the_turn_does_not_end_the_server(house: Harness) -> None:
    house.reception.answers.add({questions.Status: broken})
    client, fatal = house.client("one"), []
    house.shell.on_fatal = fatal.append
    task = TaskSpec(client.welcome.first_id, Kind.COMMAND, b"", b"call", group=client.welcome.group)
    client.say(Submit([task], 1), Ask(2, question("status")))  # answered once the turn is written

    assert fatal == []
    assert client.said(Refused)
    other = house.client("two")
    other.say(Ask(1, question("processors")))
    assert other.said(Answer)


def test_a_span_that_cannot_be_made_into_a_message_fails_alone(house: Harness) -> None:
    client = house.client("one")
    house.shell._sender.send = broken
    house.executor()
    [number] = client.submit()
    house.loop.run()

    [failed] = house.facts(ElementFailed)
    assert (failed.record, failed.failure.cause) == (number, Cause.NOT_STARTED)
    assert "a bug of ours" in failed.failure.message


def test_an_executor_is_not_believed_what_it_says_of_the_tasks_of_another(house: Harness) -> None:
    client, owner, liar = house.client("one"), house.executor(), house.executor()
    client.submit(count=2)
    [[first], [second]] = ([run.span for run in peer.said(RunSpan)] for peer in (owner, liar))

    liar.say(Report(1, [WorkSucceeded(first, 0, 1, 0.1), WorkFailed(first, 0, Failure(Cause.EXIT, "no"))]))
    liar.say(Report(2, [CallsEnded(first, 0, [0.1, 0.1], [b"", b""])]))
    assert house.facts(SpanEnded) == house.facts(ElementFailed) == []

    liar.say(Report(3, [WorkSucceeded(second, 0, 1, 0.1)]))
    owner.say(Report(1, [WorkSucceeded(first, 0, 1, 0.1)]))
    assert {fact.span for fact in house.facts(SpanEnded)} == {first, second}


def test_who_comes_from_afar_cannot_make_the_server_read_another_file(house: Harness, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"x")
    far = house.client("far", role="submit")
    task = TaskSpec(far.welcome.first_id, Kind.FUNCTION, b"f" * 16, b"", far.welcome.group, payload_path=str(secret))

    far.say(Submit([task], 1))

    [refused] = far.said(Refused)
    assert "is not below the workflow's directory" in refused.message


@pytest.mark.parametrize(("name", "template"), [("a\0b", ""), ("", "\0")])
def test_a_name_with_nul_is_refused_before_anything_is_stored(house: Harness, name: str, template: str) -> None:
    client = house.client("one")
    first, group = client.welcome.first_id, client.welcome.group
    client.say(Submit([TaskSpec(first, Kind.COMMAND, b"", b"call", group, name, template)], 1))
    [refused] = client.said(Refused)
    assert "NUL" in refused.message


@pytest.mark.parametrize("role", ["read"])
@pytest.mark.parametrize("kind", msgspec.inspect.type_info(questions.AnyQuestion).types)
def test_who_may_only_read_is_refused_what_changes_something(
    house: Harness, role: str, kind: msgspec.inspect.StructType
) -> None:
    if not kind.cls.changes:
        return
    reader = Peer(house, role)
    from bough.wire.client_messages import VERSION, ClientHello

    reader.say(ClientHello(VERSION, 1, "here"))
    given = {
        "count": 5, "digests": [], "run": 1, "record": 1, "name": "me", "workflows": ["one"], "seconds": 0.0,
        "question": here_questions.Alive(), "site": "b", "rule": SiteRule(), "away": True,
        "spec": SiteSpec(ssh="host"), "queue": "night",
    }  # fmt: skip
    if kind.cls is questions.Probe:
        given["question"] = FileSize("file")
    if kind.cls is questions.DefineQueue:
        given["spec"] = QueueSpec()
    fields = {field.name: given[field.name] for field in kind.fields if field.name in given}
    house.reception.answers.add({kind.cls: broken})
    reader.say(Ask(1, kind.cls(**fields)))
    [refused] = reader.said(Refused)
    assert "for reading only" in refused.message


_BIG = 2**63


@pytest.mark.parametrize(
    "message",
    [
        ["sub", [["t", 1, 1, b"", b"", 0, "", "", [1.0], [], _BIG]], 1],
        ["sub", [["t", 1, 1, b"", b"", 0, "", "", [1.0, _BIG]]], 1],
        ["sub", [["t", 1, 1, b"", b"", 0, "", "", [float("nan")]]], 1],
        ["sub", [["t", 1, 1, b"", b"", 0, "", "", [-1.0]]], 1],
        ["sub", [["a", 1, 0, b"", 10**10]], 1],
        ["act", 1, ["can", [0, _BIG, 0]]],
        ["act", 1, ["pri", [0, 1, 0], _BIG]],
        ["ask", 1, ["output", 1, 0, "stdout", 0, 10, "\0"]],
        ["ask", 1, ["output", 1, 0, "stdin"]],
        ["ask", 1, ["fed", 2**64 - 1]],
        ["ask", 1, ["piece", b"", "\0"]],
        ["ask", 1, ["weather"]],
        ["xh", 2, "s", "h", _BIG, [1.0], "3.11"],
        ["xh", 2, "s", "h", 1, [float("inf")], "3.11"],
        ["rep", 1, [["e", 1, 0, 1, float("nan")]]],
        ["rep", 1, [["f", 1, 0, ["exit", "", _BIG]]]],
        ["rep", 1, [["e", 1, 0, 1, 1.0, None, [[0, _BIG]]]]],
        ["bye", "for ever"],
        ["mng", 1, "explode", []],
    ],
)
def test_a_value_out_of_bounds_never_gets_past_the_wire(message: object) -> None:
    with pytest.raises(ProtocolError, match="a frame could not be read"):
        server_frames().feed(bytes(frame_list([message])))
