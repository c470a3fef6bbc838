"""What generators feed: results that are taken once, back-pressure, resuming, and memory that does not grow."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bough
from bough.api.futures.feed_elements import FeedElements
from bough.api.session.session import Session
from bough.api.submit import feeds
from bough.errors import InvalidWorkload, UserError
from bough.model.events.news import Retry
from bough.model.tasks import Dep, On

PATIENCE = 60.0  # seconds; a deadline, not a pause


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(name="feeds", store=tmp_path_factory.mktemp("store"), cores=2) as session:
        yield session


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of 50 tasks."""
    for name, value in (("WINDOW", 50), ("WIDEST", 50), ("PAGE", 10)):
        monkeypatch.setattr(feeds, name, value)


class Numbers:
    """An endless generator, and how far it was read."""

    def __init__(self, most: int = sys.maxsize) -> None:
        self.read = 0
        self.most = most

    def __iter__(self) -> Iterator[int]:
        for number in range(self.most):
            self.read += 1
            yield number


def elements_of(feed: bough.Array) -> FeedElements:
    found = feed._elements  # type: ignore[attr-defined]
    assert isinstance(found, FeedElements)
    return found


# --- taking -------------------------------------------------------------------------------------------


def test_values_come_in_order_and_are_let_go_of(shared: Session) -> None:
    feed = shared.feed(lambda x: x * 2, iter(range(30_000)), keep=False)
    assert list(feed) == [x * 2 for x in range(30_000)]
    assert len(feed) == feed.counts()["done"] == 30_000
    assert not elements_of(feed)._spans
    with pytest.raises(UserError, match="keep=True"):
        feed[7].result()
    with pytest.raises(UserError, match="keeps none"):
        feed.results()
    assert list(feed) == []


def test_tasks_come_as_they_end_each_once(shared: Session) -> None:
    feed = shared.feed(lambda x: x * 2, iter(range(5000)), keep=False)
    first = list(itertools.islice((task.result(PATIENCE) for task in feed.as_completed(PATIENCE)), 1234))
    rest = [task.result() for task in feed.as_completed(PATIENCE)]
    assert len(first) == 1234
    assert sorted(first + rest) == [x * 2 for x in range(5000)]
    with pytest.raises(UserError, match="as they end"):
        next(iter(feed))


def test_a_failure_is_raised_in_its_place_and_who_goes_on_sees_the_others(shared: Session) -> None:
    feed = shared.feed(lambda x: 10 // (x - 3), iter(range(8)), keep=False)
    values: list[object] = []
    while len(values) < 8:
        try:
            values.append(next(feed))  # type: ignore[call-overload]
        except ZeroDivisionError:
            values.append("failed")
    assert values == [10 // (x - 3) if x != 3 else "failed" for x in range(8)]
    assert [task.index for task in feed.failed()] == [3]
    with pytest.raises(ZeroDivisionError):
        feed.failed()[0].result()


def test_a_consumer_that_takes_nothing_holds_up_the_generator(shared: Session, small: None) -> None:
    numbers = Numbers()
    feed = shared.feed(lambda x: x, numbers, keep=False)
    try:
        until(lambda: feed.counts()["done"] >= 50, "a window to end")
        values = iter(feed)
        for taken in range(1, 62):
            assert next(values) == taken - 1
            assert numbers.read <= 60 + taken
        until(lambda: numbers.read >= 80, "the generator to be read on")
    finally:
        feed.cancel()
    feed.wait_all(PATIENCE)


def test_results_that_nobody_will_take_hold_up_nobody(shared: Session, small: None) -> None:
    numbers = Numbers(3000)
    feed = shared.feed(lambda x: x, numbers, keep=False)
    feed.wait_all(PATIENCE)
    assert numbers.read == feed.counts()["done"] == 3000
    assert not elements_of(feed)._spans
    with pytest.raises(UserError, match="wait_all"):
        next(iter(feed))


def test_a_session_ends_though_results_were_not_taken(tmp_path: Path, small: None) -> None:
    numbers = Numbers(1000)
    with Session(name="ends", store=tmp_path / "store", cores=1) as session:
        feed = session.feed(lambda x: x, numbers, keep=False)
    assert feed.counts()["done"] == 1000


def test_a_session_that_ends_leaves_results_to_the_thread_that_takes_them(tmp_path: Path, small: None) -> None:
    values: list[int] = []
    with Session(name="thread", store=tmp_path / "store", cores=1) as session:
        feed = session.feed(lambda x: x, Numbers(1000), keep=False)
        begun = threading.Event()

        def take() -> None:
            for value in feed:
                values.append(value)
                begun.set()

        thread = threading.Thread(target=take)
        thread.start()
        assert begun.wait(PATIENCE)
    thread.join(PATIENCE)
    assert values == list(range(1000))


def test_commands_are_taken_too(shared: Session) -> None:
    feed = shared.feed("echo {word}", ({"word": f"w{n}"} for n in range(20)), keep=False)
    done = list(feed)
    assert [one.stdout for one in done] == [f"w{n}\n" for n in range(20)]
    assert done[7].args == "echo w7"


def test_a_feed_that_is_kept_is_an_array_like_any_other(shared: Session) -> None:
    feed = shared.feed(lambda x: x * 2, iter(range(20_000)))
    feed.wait_all(PATIENCE)
    assert feed[12_345].result() == 24_690
    assert feed[5:8].results() == [10, 12, 14]
    assert feed.results() == [x * 2 for x in range(20_000)]


def test_who_iterates_over_a_feed_that_is_kept_gets_also_what_comes_later(shared: Session) -> None:
    go = threading.Event()

    def slowly() -> Iterator[int]:
        yield 1
        go.wait(PATIENCE)
        yield 2

    tasks = iter(shared.feed(lambda x: x, slowly()))
    assert next(tasks).result(PATIENCE) == 1
    assert not go.is_set()
    go.set()
    assert [task.result() for task in tasks] == [2]


def test_a_generator_may_wait_for_the_results_of_what_it_gave(shared: Session) -> None:
    results: list[int] = []
    told = threading.Condition()

    def from_those_before() -> Iterator[int]:
        yield 1
        for count in range(1, 6):
            with told:
                assert told.wait_for(lambda count=count: len(results) >= count, PATIENCE)  # type: ignore[misc]
            yield results[-1] * 2

    for value in shared.feed(lambda x: x + 1, from_those_before(), keep=False):
        with told:
            results.append(value)
            told.notify()
    assert results == [2, 5, 11, 23, 47, 95]


def broken() -> Iterator[int]:
    yield 1
    raise KeyError("mine")


def test_what_a_generator_raises_is_raised_by_who_iterates_over_its_feed(shared: Session) -> None:
    tasks = iter(shared.feed(lambda x: x, broken()))
    assert next(tasks).result() == 1
    with pytest.raises(KeyError, match="mine"):
        next(tasks)


def test_what_a_generator_raises_is_not_lost_if_nobody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyError, match="mine"), Session(name="raises", cores=1) as session:
        session.feed(lambda x: x, broken(), keep=False)
    with Session(name="reports", cores=1, on_failure="report") as session:
        session.feed(lambda x: x, broken(), name="numbers")
    assert "bough: no more items came for the feed 1 (numbers): KeyError: 'mine'" in capsys.readouterr().err
    with Session(name="sees", cores=1) as session, pytest.raises(KeyError):
        session.feed(lambda x: x, broken()).wait_all()


def test_what_tasks_make_is_refused_among_the_items_of_a_command(shared: Session, tmp_path: Path) -> None:
    made = shared.command("echo 1 > {o:w}", o=tmp_path / "made.txt")
    for text in ("cat {i:r}", "echo {i}"):
        with pytest.raises(InvalidWorkload, match="cannot read what tasks make"):
            shared.feed(text, [{"i": made}]).wait_all()


def test_what_depends_on_a_feed_finds_its_values_in_the_store(shared: Session) -> None:
    feed = shared.feed(lambda x: x, iter(range(25_000)), keep=False)
    feed.wait_all(PATIENCE)
    assert shared.submit(sum, feed).result(PATIENCE) == sum(range(25_000))


def test_failures_among_many_are_found_and_can_be_tried_again(shared: Session, tmp_path: Path) -> None:
    mended = tmp_path / "mended"

    def work(number: int) -> int:
        if number % 3000 == 17 and not mended.exists():
            raise ValueError(number)
        return number

    feed = shared.feed(work, iter(range(12_000)), keep=False)
    feed.wait_all(PATIENCE)
    assert [task.index for task in feed.failed()] == [17, 3017, 6017, 9017]
    mended.touch()
    assert shared.act(Retry(Dep(On.ARRAY, feed.id))) == 4
    until(lambda: _ended(shared, feed) == (12_000, 0), "the failed ones to be mended")


def _ended(session: Session, feed: bough.Array) -> tuple[int, int]:
    with session.jobs() as jobs:
        row = jobs.task(feed.id)
        return row["done"], row["failed"]


# --- resuming -----------------------------------------------------------------------------------------

SCRIPT = """
import os, sys, time, bough

def work(number):
    fd = os.open("ran", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, b".")
    os.close(fd)
    return number * 2

def numbers():
    for number in range(int(sys.argv[1])):
        if number == int(sys.argv[2]):
            open("far", "w").close()
            while os.path.exists("stop"):
                time.sleep(0.01)
        yield number

with bough.Session(name="again", cores=2, reuse=sys.argv[3]) as session:
    feed = session.feed(work, numbers(), keep=False)
    assert sum(feed) == sum(n * 2 for n in range(int(sys.argv[1])))
    assert feed.counts()["done"] == int(sys.argv[1])
"""


def test_a_script_that_was_killed_and_runs_again_reuses_what_its_feed_had_done(tmp_path: Path) -> None:
    script = tmp_path / "again.py"
    script.write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "stop").touch()
    ran = tmp_path / "ran"
    ran.touch()

    def start(count: int, far: int, reuse: str = "resume") -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, script, str(count), str(far), reuse], cwd=tmp_path)

    first = start(8000, 6000)
    try:
        until(lambda: (tmp_path / "far").exists() and ran.stat().st_size >= 6000, "most of it to run")
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait(PATIENCE)
    (tmp_path / "stop").unlink()
    assert start(8000, -1).wait(PATIENCE) == 0
    assert 8000 <= ran.stat().st_size <= 8000 + 1000  # what had run and was not recorded runs again
    again = ran.stat().st_size
    assert start(9000, -1, "always").wait(PATIENCE) == 0  # of both earlier runs, and some more
    assert ran.stat().st_size == again + 1000


# --- memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["wait", "values"])
def test_a_million_tasks_take_no_more_memory_than_a_quarter_of_them(tmp_path: Path, how: str) -> None:
    path = Path(__file__).parents[1] / "bench" / "feed_long.py"
    spec = importlib.util.spec_from_file_location("feed_long", path)
    assert spec is not None
    assert spec.loader is not None
    feed_long = importlib.util.module_from_spec(spec)
    with contextlib.ExitStack() as stack:
        sys.modules["feed_long"] = feed_long
        stack.callback(sys.modules.pop, "feed_long", None)
        spec.loader.exec_module(feed_long)
        seen = feed_long.run(1_000_000, os.fspath(tmp_path), how=how)
    quarter, end = seen[4], seen[-1]
    assert (quarter.fed, end.fed) == (250_000, 1_000_000)
    assert end.resident - quarter.resident < 20e6
    assert end.client - quarter.client < 5e6
    assert end.store / end.fed < 40  # bytes a task
