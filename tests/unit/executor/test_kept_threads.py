"""Threads of the transfer process: a few, however much there is to do, and enough where the host takes no more."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import pytest

from bough.executor.files.caches.host_cache import HostCache
from bough.executor.files.transfers import transfer_process
from bough.executor.files.transfers.kept_threads import KeptThreads, Revocable
from bough.executor.files.transfers.transfer_process import TransferProcess
from bough.executor.files.transfers.transfer_protocol import BringContent, KeepOutput, OutputSeen, from_transfers_frames
from bough.wire.framing import frame

DEADLINE = 60.0
MANY = 200


def test_many_files_of_one_task_take_a_few_threads(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    cache, before = HostCache(str(tmp_path / "cache"), 1 << 20), threading.active_count()
    process = TransferProcess(theirs, cache, "", 2)
    hearing = threading.Thread(target=process.run)
    hearing.start()
    ours.settimeout(DEADLINE)
    frames, seen, most = from_transfers_frames(), set[int](), 0
    said: list[BringContent | KeepOutput] = []
    said += [BringContent(one, blake2b(b"%d" % one, digest_size=32).digest(), 100, []) for one in range(MANY)]
    said += [KeepOutput(one, str(tmp_path / str(one)), b"", len(str(one))) for one in range(MANY, 2 * MANY)]
    for one in range(MANY, 2 * MANY):
        (tmp_path / str(one)).write_text(str(one))
    speaking = threading.Thread(target=lambda: [ours.sendall(frame(one)) for one in said])
    speaking.start()
    while len(seen) < MANY:  # nobody answers the others
        seen.update(one.number for one in frames.feed(ours.recv(1 << 16)) if isinstance(one, OutputSeen))
        most = max(most, threading.active_count() - before)
    speaking.join(DEADLINE)
    assert len(process._transfers) == MANY
    assert most <= transfer_process._AT_ONCE + transfer_process._KEPT_AT_ONCE + 6
    ours.close()
    hearing.join(DEADLINE)
    theirs.close()
    cache.close()


def test_what_is_to_be_done_waits_for_the_threads_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, done, goes_on = KeptThreads(4, "few"), list[int](), threading.Event()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def wait() -> None:
        assert goes_on.wait(DEADLINE)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    threads.do(wait)
    for number in range(10):
        threads.do(lambda number=number: done.append(number))  # type: ignore[misc]
    assert not done
    goes_on.set()
    await_that(lambda: done == list(range(10)))


def test_what_fails_is_told_and_the_next_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    threads, done = KeptThreads(1, "one"), threading.Event()
    threads.do(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    threads.do(done.set)
    assert done.wait(DEADLINE)
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_what_was_called_off_is_not_done_and_what_has_begun_cannot_be_called_off() -> None:
    done: list[int] = []
    first, second = Revocable(lambda: done.append(1)), Revocable(lambda: done.append(2))
    assert first.call_off()
    for one in (first, second, second):
        one()
    assert done == [2]
    assert second.is_over
    assert not second.call_off()


def await_that(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)
