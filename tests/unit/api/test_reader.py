"""Who listens: the reader, or the caller who waits; one at a time, and never nobody for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from bough.api.client.reader import ReaderThread

DEADLINE = 60.0


class Ear:
    """Stands for the connection: notes who listens, and hears what it is given."""

    def __init__(self) -> None:
        self.turns = ReaderThread(self.listen)
        self.heard = threading.Event()
        self.listeners: list[int] = []
        self.fails = False

    def listen(self, is_done: Callable[[], bool], until: float | None) -> bool:
        self.listeners.append(threading.get_ident())
        if self.fails:
            return False
        while not is_done():
            if until is not None and time.monotonic() >= until:
                return False
            self.heard.wait(0.001)
        return True

    def put_reader_aside(self) -> threading.Thread:
        """A reader that has stepped aside, in a thread of its own."""
        reader = threading.Thread(target=self.turns.yield_to_callers)
        reader.start()
        wait_for(lambda: self.turns.has_yielded)
        return reader


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def never(_: float | None) -> bool:
    raise AssertionError("it was to listen, not to sleep")


def test_while_the_reader_listens_a_caller_sleeps() -> None:
    ear = Ear()

    assert ear.turns.wait(lambda: True, lambda _: True)

    assert ear.listeners == []


def test_the_reader_steps_aside_only_for_one_who_waits_alone_and_was_served() -> None:
    ear = Ear()
    first, second = threading.Event(), threading.Event()
    assert not ear.turns.may_yield()  # nobody waits

    one = threading.Thread(target=ear.turns.wait, args=(first.is_set, lambda _: second.wait(DEADLINE)))
    one.start()
    wait_for(lambda: len(ear.turns._waits) == 1)
    assert not ear.turns.may_yield()  # it waits for something that has not come
    first.set()
    assert ear.turns.may_yield()

    other = threading.Thread(target=ear.turns.wait, args=(first.is_set, lambda _: second.wait(DEADLINE)))
    other.start()
    wait_for(lambda: len(ear.turns._waits) == 2)
    assert not ear.turns.may_yield()  # there are two
    second.set()
    one.join(DEADLINE)
    other.join(DEADLINE)


def test_a_caller_listens_for_itself_when_the_reader_has_stepped_aside() -> None:
    ear = Ear()
    reader = ear.put_reader_aside()
    done = threading.Event()
    threading.Timer(0.01, done.set).start()

    assert ear.turns.wait(done.is_set, never)

    assert ear.listeners == [threading.get_ident()]
    reader.join(DEADLINE)  # nobody listens any more: it comes back by itself
    assert not reader.is_alive()
    assert not ear.turns.has_yielded


def test_the_second_who_waits_sleeps_and_the_reader_comes_back_when_the_first_is_served() -> None:
    ear = Ear()
    reader = ear.put_reader_aside()
    first, second = threading.Event(), threading.Event()
    one = threading.Thread(target=ear.turns.wait, args=(first.is_set, never))
    one.start()
    wait_for(lambda: bool(ear.listeners))
    other = threading.Thread(target=ear.turns.wait, args=(second.is_set, second.wait))
    other.start()
    wait_for(lambda: len(ear.turns._waits) == 2)

    first.set()
    one.join(DEADLINE)
    reader.join(DEADLINE)

    assert not reader.is_alive()
    assert ear.listeners == [one.ident]
    second.set()
    other.join(DEADLINE)


def test_a_reader_that_is_wanted_comes_back_as_soon_as_nobody_else_listens() -> None:
    ear = Ear()
    reader = ear.put_reader_aside()
    done = threading.Event()
    caller = threading.Thread(target=ear.turns.wait, args=(done.is_set, never))
    caller.start()
    wait_for(lambda: bool(ear.listeners))

    ear.turns.take_back()
    assert reader.is_alive()
    done.set()
    caller.join(DEADLINE)
    reader.join(DEADLINE)

    assert not reader.is_alive()


def test_a_caller_that_cannot_listen_any_more_leaves_it_to_the_reader_and_sleeps() -> None:
    ear = Ear()
    reader = ear.put_reader_aside()
    ear.fails = True

    def sleep(_: float | None) -> bool:
        reader.join(DEADLINE)
        return not reader.is_alive()

    assert ear.turns.wait(lambda: False, sleep)


def test_a_wait_has_an_end_also_for_one_who_listens() -> None:
    ear = Ear()
    reader = ear.put_reader_aside()

    assert not ear.turns.wait(lambda: False, lambda left: left is None or left > 1, 0.01)
    reader.join(DEADLINE)


def test_an_interruption_does_not_leave_a_listener_behind() -> None:
    ear = Ear()
    reader = ear.put_reader_aside()

    def interrupt() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ear.turns.wait(interrupt, never)
    reader.join(DEADLINE)

    assert not reader.is_alive()
    assert ear.turns._waits == {}
