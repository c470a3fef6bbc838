"""A signal that comes while something must not be interrupted is handled right afterwards."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from bough.api.client.reader import without_signals


def test_ctrl_c_waits_until_it_is_done() -> None:
    steps = []

    def action() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        steps.extend(range(1000))

    with pytest.raises(KeyboardInterrupt):
        without_signals(action)

    assert len(steps) == 1000
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_handlers_of_a_program_are_called_and_put_back() -> None:
    came: list[int] = []
    during: list[int] = []

    def handler(number: int, _: object) -> None:
        came.append(number)

    before = signal.signal(signal.SIGALRM, handler)
    try:

        def action() -> str:
            signal.raise_signal(signal.SIGALRM)
            during.extend(came)
            return "done"

        assert without_signals(action) == "done"
        assert (during, came) == ([], [signal.SIGALRM])
        assert signal.getsignal(signal.SIGALRM) is handler
    finally:
        signal.signal(signal.SIGALRM, before)


def test_what_it_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        without_signals(lambda: 1 // 0)

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_need_no_protection() -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(without_signals(lambda: 7)))
    thread.start()
    thread.join(60)

    assert found == [7]
