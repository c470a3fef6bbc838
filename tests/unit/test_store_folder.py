"""The folder of a store: private whatever the umask, closed when an old one is opened, never one of other things."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from bough.errors import SiteError, UserError
from bough.model.events.facts import RunOpened
from bough.stores.folder.store_folder import make_store_folder, why_unreadable
from bough.stores.folder.store_lock import StoreLock
from bough.stores.maintenance.copies import backup, copy
from bough.stores.sql.sqlite import SqliteStore
from tests.second_user import NOBODY, needs_root, reached, street, umask

MASKS = pytest.mark.parametrize("mask", [0o000, 0o022, 0o077], ids=oct)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write(folder: Path) -> SqliteStore:
    store = SqliteStore(folder)
    store.append(1, 0.0, [RunOpened(1, "test", "host", 1)])
    store.sync()
    return store


@MASKS
@pytest.mark.parametrize("wal", [True, False], ids=["log", "no log"])
def test_the_files_of_a_store_are_its_owners_alone(tmp_path: Path, mask: int, wal: bool) -> None:
    folder = tmp_path / "store"
    with umask(mask), StoreLock(folder):
        store = SqliteStore(folder, wal=wal)
        store.append(1, 0.0, [RunOpened(1, "test", "host", 1)])
        store.sync()
        assert mode(folder) == 0o700
        files = {path.name: mode(path) for path in folder.iterdir()}
        store.close()
    assert {"journal.db", "lock"} | ({"journal.db-wal", "journal.db-shm"} if wal else set()) <= {*files}
    assert {*files.values()} == {0o600}


@MASKS
def test_copies_and_backups_are_private(tmp_path: Path, mask: int) -> None:
    write(tmp_path / "store").close()
    with umask(mask):
        backup(str(tmp_path / "store"), str(tmp_path / "saved" / "monday"))
        copy(str(tmp_path / "store"), str(tmp_path / "copied"))
    for folder in (tmp_path / "saved" / "monday", tmp_path / "copied"):
        assert mode(folder) == 0o700
        assert {mode(path) for path in folder.iterdir()} == {0o600}


@needs_root
@MASKS
def test_another_user_gets_nothing_of_a_store_and_its_backup(mask: int) -> None:
    with street() as place:
        with umask(mask):
            store = write(place / "store")
            backup(str(place / "store"), str(place / "backup"))
        assert reached(place / "store", place / "backup") == []
        store.close()


def test_an_old_store_that_others_can_reach_is_closed_when_it_is_opened(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with umask(0):
        folder.mkdir()
        for name in ("out", "results", "args", "files"):
            (folder / name).mkdir()
        for name in ("journal.db", "lock", "server.log", "token", "results/1.pickle"):
            (folder / name).touch()
    assert make_store_folder(str(folder))
    assert mode(folder) == 0o700
    assert {mode(folder / name) for name in ("out", "results", "args", "files")} == {0o700}
    assert {mode(folder / name) for name in ("journal.db", "lock", "server.log", "token")} == {0o600}
    assert not make_store_folder(str(folder))
    write(folder).close()


def test_a_folder_of_other_things_is_not_closed_behind_the_backs_of_others(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir(mode=0o755)
    (folder / "data.csv").touch()
    for use in (make_store_folder, StoreLock, SqliteStore):
        with pytest.raises(UserError, match="give the store a folder of its own, or close this one with chmod 700"):
            use(str(folder))
    assert (mode(folder), os.listdir(folder)) == (0o755, ["data.csv"])
    folder.chmod(0o700)
    write(folder).close()


@needs_root
def test_the_folder_of_somebody_else_is_no_store_of_ours(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    write(folder).close()
    os.chown(folder, NOBODY, NOBODY)
    for use in (StoreLock, SqliteStore):
        with pytest.raises(SiteError, match=f"belongs to uid {NOBODY}"):
            use(str(folder))


def test_a_file_that_is_gone_says_why() -> None:
    assert why_unreadable(FileNotFoundError(2, "No such file")).startswith("it was deleted when a later run began; ")
    assert why_unreadable(PermissionError(13, "Permission denied")) == "Permission denied"
    assert why_unreadable(ValueError("cannot mmap an empty file")) == "cannot mmap an empty file"
