"""How long a task would take is read from its text, as seldom as possible."""

from __future__ import annotations

import pickle

import msgspec
import pytest

from bough.model.commands.command import CommandCall, CommandSettings, CommandTemplate, encode_call
from bough.model.commands.template import parse
from bough.model.ids import BlobId, RecordId, SpanId
from bough.model.tasks import Kind, Page
from bough.testing import emulated_work
from bough.testing.emulated_work import RunTimes, Times, read_sleep
from bough.wire.executor_messages import RunSpan

OTHER = 7.0
SHELL = CommandSettings("/", ("/bin/sh", "-c"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("sleep 0", 0.0),
        ("sleep 1.5", 1.5),
        ("  /bin/sleep .25s  ", 0.25),
        ("sleep 2m 1s", 121.0),
        ("sleep 3; echo done", 3.0),
        ("sleep 3 && false", 3.0),
        ("sleep 3 # and more", 3.0),
        ("export BOUGH_INDEX=7; sleep 3", 3.0),
        ("A=1 B=2 sleep 3", 3.0),
        ("A=$(sleep 9) sleep 3", None),
        ("sleep", None),
        ("sleep 1 2x", None),
        ("sleep infinity", None),
        ("sleepy 3", None),
        ("echo sleep 3", None),
        ("", None),
    ],
)
def test_a_sleep_is_read_as_the_shell_would(text: str, seconds: float | None) -> None:
    assert read_sleep(text) == seconds


def of_call(call: CommandCall) -> Times:
    run = RunSpan(SpanId(1), RecordId(1), 0, 1, 1, Kind.COMMAND, BlobId(b""), payload=encode_call(call))
    return RunTimes(OTHER).of(run)


def test_a_loose_command_takes_what_it_says() -> None:
    assert of_call(CommandCall(SHELL, ["sleep 4"])) == 4.0
    assert of_call(CommandCall(CommandSettings("/"), argv=[["sleep"], ["4"]])) == 4.0
    assert of_call(CommandCall(SHELL, ["echo sleep"])) == OTHER
    assert of_call(CommandCall(SHELL, ["hmmer"])) == OTHER


def test_a_function_takes_what_was_said_at_the_start() -> None:
    run = RunSpan(SpanId(1), RecordId(1), 0, 5, 1, Kind.FUNCTION, BlobId(b"f"), payload=b"sleep 4")
    assert RunTimes(OTHER).of(run) == OTHER


def of_array(text: str, rows: list[tuple[object, ...]], names: tuple[str, ...]) -> Times:
    times = RunTimes(OTHER)
    times.blobs[BlobId(b"t")] = msgspec.msgpack.encode(CommandTemplate(SHELL, parse(text), names))
    page = Page(0, len(rows), pickle.dumps(rows))
    run = RunSpan(SpanId(1), RecordId(1), 0, len(rows), 1, Kind.COMMAND, BlobId(b"t"), is_array=True, pages=(page,))
    return times.of(run)


def test_rows_may_take_different_times() -> None:
    assert of_array("sleep {x}", [(0,), (2,), (0.5,)], ("x",)) == [0.0, 2.0, 0.5]
    assert of_array("{what} 3", [("sleep",), ("echo",)], ("what",)) == [3.0, OTHER]
    assert of_array("export BOUGH_INDEX={x}; sleep {x}", [(1,), (2,)], ("x",)) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("sleep 2; : {x}", 2.0),
        ("echo {x}", OTHER),
        ("sleep 0", 0.0),
        ("cat {x} | sleep 3", OTHER),
        ("export BOUGH_INDEX={x}; sleep 2", 2.0),
        ("export BOUGH_INDEX={x}; ./simulate {x}", OTHER),
    ],
)
def test_a_template_that_says_it_at_once_is_never_filled_in(
    text: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> CommandCall:
        raise AssertionError("a row was filled in")

    monkeypatch.setattr(emulated_work, "render_row", refuse)
    assert of_array(text, [(1,), (2,)], ("x",)) == seconds


def test_rows_that_cannot_be_read_here_take_what_was_said_at_the_start() -> None:
    assert of_array("sleep {x.nothing}", [(1,)], ("x",)) == OTHER
