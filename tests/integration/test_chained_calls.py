"""Chains of like calls that come to a real executor as one hand-out: each takes the value of the one before."""

from __future__ import annotations

import os
import pickle
import signal
import time
from pathlib import Path
from typing import Any

from executor_server import PATIENCE, Server

from bough.model.outcomes import Cause
from bough.model.refs import Ref
from bough.wire.executor_messages import StopElements, Value

LINK = pickle.dumps(((Ref(0),), {}))
BEFORE = Value(0, 1, [])


def chain(server: Server, fn: Any, first: Any, *links: bytes, **settings: Any) -> list[Any]:
    """A chain: the first has an argument, the others take what the one before made."""
    return list(server.together(fn, pickle.dumps(((first,), {})), *links, chained=True, **settings))


def kinds(server: Server, spans: list[Any]) -> list[str]:
    """What became of each: the name of its only news."""
    server.until(lambda: all(server.count(span) for span in spans))
    return ["+".join(type(news).__name__ for news in server.ended(span)) for span in spans]


def occupied(server: Server) -> tuple[Path, list[Any]]:
    """Both cores busy until a file is there: the file, and what runs."""
    go = server.folder / "go"

    def wait() -> None:
        end = time.monotonic() + PATIENCE
        while not go.exists() and time.monotonic() < end:
            time.sleep(0.005)

    return go, [server.call(wait) for _ in range(2)]


def test_each_takes_the_value_of_the_one_before(server: Server) -> None:
    spans = chain(server, lambda x: x + 1, 1, *[LINK] * 9)
    assert [server.values(span) for span in spans] == [[number] for number in range(2, 12)]


def test_what_one_does_to_its_value_the_one_before_does_not_see(server: Server) -> None:
    def grow(values: list[int]) -> list[int]:
        values.append(len(values))
        return values

    spans = chain(server, grow, [], LINK, LINK)
    assert [server.values(span) for span in spans] == [[[0]], [[0, 1]], [[0, 1, 2]]]


def test_behind_one_that_fails_all_come_back(server: Server) -> None:
    def up_to_three(x: int) -> int:
        if x == 3:
            raise ValueError(x)
        return x + 1

    spans = chain(server, up_to_three, 1, *[LINK] * 5)
    assert kinds(server, spans) == ["WorkSucceeded", "WorkSucceeded", "WorkFailed", *["WorkReturned"] * 3]
    assert server.values(server.call(lambda: 1)) == [1]


def test_arguments_that_cannot_be_read_fail_alone(server: Server) -> None:
    spans = chain(server, lambda x: x, 1, LINK, b"not a pickle", LINK)
    assert kinds(server, spans) == ["WorkSucceeded", "WorkSucceeded", "WorkFailed", "WorkReturned"]
    assert server.failure(spans[2]).failure.cause is Cause.UNSENDABLE


def test_a_killed_worker_costs_the_one_that_ran(server: Server) -> None:
    def fn(x: int) -> int:
        if x == 2:
            time.sleep(0.2)  # so that those before it are told
            os.kill(os.getpid(), signal.SIGKILL)
        return x + 1

    spans = chain(server, fn, 0, *[LINK] * 4)
    assert kinds(server, spans) == ["WorkSucceeded", "WorkSucceeded", "WorkFailed", "WorkReturned", "WorkReturned"]
    assert server.failure(spans[2]).failure.cause is Cause.DIED


def test_one_that_is_stopped_while_it_waits_sends_the_others_back(server: Server) -> None:
    go, busy = occupied(server)
    spans = chain(server, lambda x: x + 1, 0, *[LINK] * 4)
    server.send(StopElements(spans[2], 0, 1))
    server.until(lambda: all(server.count(span) for span in spans[3:]))
    go.touch()
    assert kinds(server, [*busy, *spans[:2], *spans[3:]]) == [*["WorkSucceeded"] * 4, *["WorkReturned"] * 2]
    assert server.ended(spans[2]) == []


def test_one_of_like_tasks_that_is_stopped_while_they_wait_behind_another_sends_all_of_them_back(
    server: Server,
) -> None:
    go, busy = occupied(server)
    first = server.call(lambda: 5)
    fan = server.together(lambda x: x, LINK, LINK, LINK, after_span=first, inputs=[BEFORE])
    server.send(StopElements(fan[1], 0, 1))
    server.until(lambda: all(server.count(span) for span in (fan[0], fan[2])))
    go.touch()
    assert kinds(server, [*busy, first, fan[0], fan[2]]) == [*["WorkSucceeded"] * 3, *["WorkReturned"] * 2]
    assert server.ended(fan[1]) == []


def test_a_chain_follows_a_chain(server: Server) -> None:
    first = chain(server, lambda x: x + 1, 0, LINK, LINK)
    second = chain(server, lambda x: 10 * x, Ref(0), LINK, after_span=first[-1], inputs=[BEFORE])
    last = server.call(lambda x: -x, Ref(0), after_span=second[-1], inputs=[BEFORE])
    assert [server.values(span) for span in (*first, *second, last)] == [[1], [2], [3], [30], [300], [-300]]


def test_what_they_print_is_their_own(server: Server) -> None:
    def loud(x: int) -> int:
        print("number", x)
        return x + 1

    spans = chain(server, loud, 0, LINK, LINK)
    said = []
    for span in spans:
        (news,) = server.wait(span)
        stream = news.details[0].stdout
        said.append(Path(stream.path).read_bytes()[stream.offset : stream.offset + stream.length])
    assert said == [b"number 0\n", b"number 1\n", b"number 2\n"]
