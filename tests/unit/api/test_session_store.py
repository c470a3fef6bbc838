"""Which store a session without a given name gets, and which stores go."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from bough.api.session import session_store
from bough.api.session.session_store import StoreLocation, choose_store, remove_old_extras, remove_store, script_raised
from bough.errors import StoreHeld
from bough.stores.folder.store_lock import StoreLock
from bough.stores.folder.unfinished_note import UnfinishedNote, read_note, remove_note, write_note


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreLocation:
    monkeypatch.setattr(sys, "argv", ["w.py", "mine"])
    return StoreLocation("w", str(tmp_path / ".bough" / "w"))


def make(place: StoreLocation, number: int, *, arguments: str | None = None) -> str:
    """An extra store that no process has."""
    store = f"{place.store}+{number}"
    StoreLock(store).release()
    if arguments is not None:
        write_note(store, UnfinishedNote("1.2", arguments))
    return store


def test_the_own_store_is_taken_while_it_is_free_and_the_next_number_when_not(place: StoreLocation) -> None:
    assert choose_store(place) == place
    with StoreLock(place.store):
        assert choose_store(place) == ("w+2", f"{place.store}+2")
        make(place, 2)
        assert choose_store(place).name == "w+2"  # it is there, and no process has it
        assert choose_store(place, frozenset({f"{place.store}+2"})).name == "w+3"
    assert choose_store(place) == place


def test_unfinished_work_is_found_by_its_arguments_and_others_leave_it_alone(place: StoreLocation) -> None:
    make(place, 2, arguments="others")
    mine = make(place, 3, arguments="mine")
    assert choose_store(place).name == "w+3"
    with StoreLock(mine):
        assert choose_store(place) == place
        with StoreLock(place.store):
            assert choose_store(place).name == "w+4"
    write_note(place.store, UnfinishedNote("1.2", "mine"))
    assert choose_store(place) == place


def test_a_store_whose_script_lives_is_not_taken_although_its_session_has_ended(place: StoreLocation) -> None:
    store = make(place, 2)
    Path(store, "owner").write_text(f"{os.getppid()} {socket.gethostname()}\n")
    with StoreLock(place.store):
        assert choose_store(place).name == "w+3"
        Path(store, "owner").write_text(f"{os.getpid()} {socket.gethostname()}\n")
        assert choose_store(place).name == "w+2"


def test_extra_stores_go_when_they_are_finished_or_old(place: StoreLocation) -> None:
    finished, fresh, kept, old = (
        make(place, 2),
        make(place, 3),
        make(place, 4, arguments="x"),
        make(place, 5, arguments="x"),
    )
    other = f"{place.store}+1"
    StoreLock(other).release()
    an_hour, a_month = time.time() - 3600, time.time() - 30 * 86_400
    for store, then in ((finished, an_hour), (kept, an_hour), (old, a_month), (other, a_month)):
        os.utime(Path(store, "lock"), (then, then))
    remove_old_extras(place)
    assert [os.path.exists(store) for store in (finished, fresh, kept, old, other)] == [False, True, True, False, True]
    with StoreLock(kept):
        assert not remove_store(kept)
    assert remove_store(kept)
    assert sorted(os.listdir(os.path.dirname(place.store))) == ["w+1", "w+3"]


def test_a_lock_of_a_store_that_was_removed_meanwhile_is_not_taken(
    place: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = StoreLock._take

    def removed_first(lock: StoreLock, number: int) -> None:
        os.unlink(os.path.join(lock.directory, "lock"))
        take(lock, number)

    monkeypatch.setattr(StoreLock, "_take", removed_first)
    with pytest.raises(StoreHeld, match="is being removed"):
        StoreLock(place.store)


def test_a_note_survives_strange_arguments(tmp_path: Path) -> None:
    store = str(tmp_path)
    assert read_note(store) is None
    note = UnfinishedNote("12.34", "\udcff\0two words")
    write_note(store, note)
    assert read_note(store) == note
    remove_note(store)
    remove_note(store)
    assert read_note(store) is None


def test_only_an_error_that_ends_the_script_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.delattr(sys, "ps1", raising=False)
    monkeypatch.setattr(sys, "last_traceback", None, raising=False)
    assert not script_raised()
    try:
        raise ValueError  # as a test runner notes it
    except ValueError as error:
        monkeypatch.setattr(sys, "last_traceback", error.__traceback__)
    assert not script_raised()
    try:
        exec(compile("1 / 0", "script.py", "exec"), vars(main))
    except ZeroDivisionError as error:
        monkeypatch.setattr(sys, "last_traceback", error.__traceback__)
    assert script_raised()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert not script_raised()
    assert session_store.script_run().startswith(f"{os.getpid()}.")
