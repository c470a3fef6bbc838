"""A session waits for a store whose server is about to leave, and for no other."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from bough.errors import StoreHeld
from bough.server import socket_path
from bough.server.embedded.embedded_server import take_lock
from bough.stores.folder.store_lock import StoreLock


def dead_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def publish(folder: Path, client: int) -> None:
    socket_path.publish(str(folder), {"pid": os.getpid(), "host": socket.gethostname(), "client": client})


def released_by(lock: StoreLock, folder: Path, when: threading.Event) -> threading.Thread:
    """Lets go of the store once the event is set; before, it says who is behind it."""

    def leave() -> None:
        when.wait(30)
        lock.release()

    thread = threading.Thread(target=leave)
    thread.start()
    return thread


def test_a_server_that_lost_its_script_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path, dead_process())
    leaving = threading.Event()
    thread = released_by(StoreLock(tmp_path), tmp_path, leaving)
    asked: list[object] = []

    def published(folder: str) -> dict[str, object]:
        asked.append(folder)
        leaving.set()  # it was found to be leaving: now it does
        return found(folder)

    found = socket_path.published
    monkeypatch.setattr(socket_path, "published", published)
    take_lock(str(tmp_path)).release()
    thread.join()
    assert asked


def test_a_store_in_use_is_refused_with_the_holder(tmp_path: Path) -> None:
    publish(tmp_path, os.getpid())
    with StoreLock(tmp_path), pytest.raises(StoreHeld, match=f"held by pid {os.getpid()}"):
        take_lock(str(tmp_path))


def test_a_server_that_has_said_its_last_word_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its last word and letting go of the store there is a moment in which nobody says anything."""
    publish(tmp_path, dead_process())
    leaving = threading.Event()
    thread = released_by(StoreLock(tmp_path), tmp_path, leaving)
    clock = iter([0.0, 1.0, 2.0, 2.1])  # it was known to be leaving for long
    monkeypatch.setattr("bough.server.embedded.embedded_server.time.monotonic", lambda: next(clock, 2.2))
    found, asked = socket_path.published, []

    def published(folder: str) -> dict[str, object]:
        asked.append(folder)
        if len(asked) == 3:
            socket_path.withdraw(folder)
            leaving.set()
        return found(folder)

    monkeypatch.setattr(socket_path, "published", published)
    take_lock(str(tmp_path)).release()
    thread.join()
