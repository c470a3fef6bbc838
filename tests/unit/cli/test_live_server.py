"""Talking to a live server: a fake one on a Unix socket answers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_workshop import Workshop

from bough.cli.targets.live_server import connect
from bough.cli.targets.locate import ServerLocation
from bough.errors import PeerLost, ProtocolError, UnknownName
from bough.model.blobs import blob_id
from bough.model.events.news import AddMonitors, Cancel, Kill, Retry
from bough.model.monitoring.monitor_text import read_plan
from bough.model.monitoring.monitors import encode_plan
from bough.model.tasks import Dep, On
from bough.testing.builders import question
from bough.wire.client_messages import VERSION, Accepted, Answer, Ask, Blob, ClientHello, DoAction, Refused, Welcome
from bough.wire.framing import frame, server_frames
from bough.wire.questions import Explain

Call = Callable[..., tuple[int, str, str]]
Reply = Callable[[object], "list[object] | None"]


class FakeServer:
    """Accepts one connection after the other; `reply` gives the messages to answer with, None hangs up."""

    def __init__(self, folder: Path, reply: Reply) -> None:
        self.heard: list[object] = []
        self._reply = reply
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(folder / "s"))
        self._listener.listen()
        (folder / "server.json").write_text(
            json.dumps({"pid": 1, "host": "here", "socket": str(folder / "s"), "run": 1})
        )
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        frames = server_frames()
        while data := connection.recv(65536):
            for message in frames.feed(data):
                self.heard.append(message)
                replies = self._reply(message)
                if replies is None:
                    return
                for one in replies:
                    connection.sendall(frame(one))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)


def friendly(message: object) -> list[object]:
    match message:
        case ClientHello():
            return [Welcome(VERSION, 1, 100, 10, "/store")]
        case Ask(request, Explain(record, index)):
            return [Accepted(9), Answer(request, [f"because of {record}.{index}"])]
        case Ask(request):
            return [Answer(request)]
        case DoAction(request):
            return [Answer(request - 1, 77), Answer(request, 3)]
    return []


@pytest.fixture
def serve(filled: Workshop) -> Iterator[Callable[[Reply], FakeServer]]:
    servers: list[FakeServer] = []

    def start(reply: Reply) -> FakeServer:
        servers.append(FakeServer(filled.home / ".bough" / "wf", reply))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def place(workshop: Workshop) -> ServerLocation:
    return ServerLocation(str(workshop.home / ".bough" / "wf"), "wf")


def test_a_visitor_says_that_it_owns_nothing(filled: Workshop, serve: Callable[[Reply], FakeServer]) -> None:
    server = serve(friendly)
    connection = connect(place(filled))
    assert connection is not None
    with connection:
        assert connection.run == 1
    [hello] = server.heard
    assert isinstance(hello, ClientHello)
    assert not hello.owner


def test_no_server_file_or_a_dead_socket_means_no_session(filled: Workshop) -> None:
    assert connect(place(filled)) is None
    for text in ("", "{}", "[]", '{"socket": "gone"}'):
        (filled.home / ".bough" / "wf" / "server.json").write_text(text)
        assert connect(place(filled)) is None


def test_acting_tells_the_server_of_the_targets(
    filled: Workshop, serve: Callable[[Reply], FakeServer], bough: Call
) -> None:
    server = serve(friendly)
    assert bough("kill", "4.6-7") == (0, "3 tasks killed\n", "")
    assert bough("cancel", "align/*")[1] == "3 tasks cancelled\n"
    code, out, _ = bough("retry", "--failed", "--json")
    assert (code, json.loads(out)) == (0, {"tasks": 6})
    deeds = [message.deed for message in server.heard if isinstance(message, DoAction)]
    assert deeds == [
        Kill(Dep(On.TASK, 4, 6), 8),
        Cancel(Dep(On.GROUP, 1)),
        Retry(Dep(On.TASK, 2)),
        Retry(Dep(On.TASK, 4, 4), 6),
    ]


def test_monitors_are_sent_before_they_are_named(
    filled: Workshop, serve: Callable[[Reply], FakeServer], bough: Call
) -> None:
    server = serve(friendly)
    assert bough("monitor", "4.6-7", "regex:ERROR -> fail", "after:1h") == (0, "3 tasks watched\n", "")
    code, out, _ = bough("monitor", "align/*", "after:1h", "--json")
    assert (code, json.loads(out)) == (0, {"tasks": 3})
    plans = {message.id: message.data for message in server.heard if isinstance(message, Blob)}
    deeds = [message.deed for message in server.heard if isinstance(message, DoAction)]
    both, one = (encode_plan(read_plan(texts)) for texts in (["regex:ERROR -> fail", "after:1h"], ["after:1h"]))
    assert deeds == [
        AddMonitors(Dep(On.TASK, 4, 6), blob_id(both), 8),
        AddMonitors(Dep(On.GROUP, 1), blob_id(one)),
    ]
    assert plans == {blob_id(both): both, blob_id(one): one}


def test_monitors_that_say_nothing_are_refused_before_a_server_is_asked(
    filled: Workshop, serve: Callable[[Reply], FakeServer], bough: Call
) -> None:
    server = serve(friendly)
    for words, problem in (
        (("4",), "TEXT"),
        (("4", "regex:("), "regular expression"),
        (("4", "after"), "begins with a kind"),
        (("4", "after:1h", "--group", "align"), "exclude each other"),
    ):
        code, out, err = bough("monitor", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert problem in err
    assert server.heard == []


def test_acting_on_a_run_that_is_over_is_refused(
    filled: Workshop, serve: Callable[[Reply], FakeServer], bough: Call
) -> None:
    filled.insert("runs", run=2, name="wf", opened=1.0)
    serve(friendly)
    code, _, err = bough("hold", "all", "--run", "1")
    assert (code, err) == (2, "bough: run 1 has finished; only tasks of the live run 2 can be acted on\n")


def test_explain_asks_the_server(filled: Workshop, serve: Callable[[Reply], FakeServer], bough: Call) -> None:
    serve(friendly)
    assert bough("explain", "3") == (0, "because of 3.0\n", "")
    assert bough("explain", "4.8")[1] == "because of 4.8\n"
    assert bough("explain", "2,3")[1] == "2:\n  because of 2.0\n3:\n  because of 3.0\n"


def test_a_refusal_is_raised_as_what_it_is(filled: Workshop, serve: Callable[[Reply], FakeServer]) -> None:
    def reply(message: object) -> list[object]:
        return (
            [Refused("no such task", message.request, "UnknownName")] if isinstance(message, Ask) else friendly(message)
        )

    serve(reply)
    connection = connect(place(filled))
    assert connection is not None
    with connection, pytest.raises(UnknownName, match="no such task"):
        connection.ask(question("explain", record=1, index=0))


def test_another_version_is_the_worlds_error(
    filled: Workshop, serve: Callable[[Reply], FakeServer], bough: Call
) -> None:
    serve(lambda message: [Refused("version 1 is spoken here", kind="ProtocolError")])
    with pytest.raises(ProtocolError):
        connect(place(filled))
    assert bough("kill", "all") == (3, "", "bough: version 1 is spoken here\n")


def test_a_server_that_hangs_up_is_lost(filled: Workshop, serve: Callable[[Reply], FakeServer]) -> None:
    serve(lambda message: None if isinstance(message, Ask) else friendly(message))
    connection = connect(place(filled))
    assert connection is not None
    with connection, pytest.raises(PeerLost):
        connection.ask(question("project"))
