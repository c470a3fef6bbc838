from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from bough import private
from bough.errors import SiteError
from bough.private import TemporaryFolder
from tests.second_user import NOBODY, as_another, needs_root, street, umask

MASKS = pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777], ids=oct)
HOLD = (
    "import sys; from bough.private import TemporaryFolder;"
    " print(TemporaryFolder(sys.argv[1], sys.argv[2]).make(), flush=True); sys.stdin.read()"
)


def mode(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


# --- folders -------------------------------------------------------------------------------------------


@MASKS
def test_a_folder_is_private_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        assert not private.make_folder(str(tmp_path / "a"))
    assert mode(tmp_path / "a") == 0o700


def test_folders_above_it_are_never_writable_by_others(tmp_path: Path) -> None:
    with umask(0):
        private.make_folder(str(tmp_path / "a/b/c"))
    assert (mode(tmp_path / "a"), mode(tmp_path / "a/b"), mode(tmp_path / "a/b/c")) == (0o755, 0o755, 0o700)


@pytest.mark.parametrize("before", [0o755, 0o750, 0o777, 0o2770, 0o701], ids=oct)
def test_a_folder_of_ours_that_others_can_reach_is_closed_and_that_is_told(tmp_path: Path, before: int) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(before)
    assert private.make_folder(str(tmp_path / "a"))
    assert mode(tmp_path / "a") & 0o777 == 0o700
    assert not private.make_folder(str(tmp_path / "a"))


@needs_root
def test_a_folder_of_somebody_else_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o700)
    os.chown(tmp_path / "a", NOBODY, NOBODY)
    for refuse in (private.make_folder, private.check_folder):
        with pytest.raises(SiteError, match=f"belongs to uid {NOBODY}, not to you: name another one") as told:
            refuse(str(tmp_path / "a"))
        assert "\n" not in str(told.value)
    assert (tmp_path / "a").stat().st_uid == NOBODY


@needs_root
def test_a_symbolic_link_of_somebody_else_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o755)
    (tmp_path / "a").symlink_to(tmp_path / "mine")
    os.chown(tmp_path / "a", NOBODY, NOBODY, follow_symlinks=False)
    for refuse in (private.make_folder, private.check_folder):
        with pytest.raises(SiteError, match=f"symbolic link of uid {NOBODY}"):
            refuse(str(tmp_path / "a"))
    assert mode(tmp_path / "mine") == 0o755


def test_a_link_of_ones_own_leads_to_another_disk(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir(mode=0o755)
    (tmp_path / "a").symlink_to(tmp_path / "big")
    assert private.make_folder(str(tmp_path / "a"))
    assert mode(tmp_path / "big") == 0o700


def test_a_folder_for_everybodys_files_is_not_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(SiteError, match="for the files of all users"):
        private.make_folder(str(tmp_path))
    assert mode(tmp_path) == 0o1777


def test_what_is_no_folder_is_said_by_the_system(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(NotADirectoryError):
        private.make_folder(str(tmp_path / "a"))


@pytest.mark.parametrize("bad", [0o770, 0o702, 0o777], ids=oct)
def test_a_folder_that_others_can_write_to_is_not_read_from(tmp_path: Path, bad: int) -> None:
    tmp_path.chmod(0o755)
    private.check_folder(str(tmp_path))
    tmp_path.chmod(bad)
    with pytest.raises(SiteError, match="chmod 700"):
        private.check_folder(str(tmp_path))


def test_the_runtime_folder_counts_only_if_it_is_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    assert private.runtime_folder() == str(tmp_path)
    tmp_path.chmod(0o750)
    assert private.runtime_folder() == ""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    assert private.runtime_folder() == ""
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert private.runtime_folder() == ""


# --- files ---------------------------------------------------------------------------------------------


@MASKS
def test_a_file_is_private_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        with open(tmp_path / "a", "wb", opener=private.opener) as file:
            file.write(b"secret")
        private.write_file(str(tmp_path / "b"), b"secret")
    assert (mode(tmp_path / "a"), mode(tmp_path / "b")) == (0o600, 0o600)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_file_that_was_open_to_others_is_closed_when_it_is_opened(tmp_path: Path) -> None:
    (tmp_path / "a").touch(mode=0o666)
    with open(tmp_path / "a", "ab", opener=private.opener):
        assert mode(tmp_path / "a") == 0o600


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "a").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic"):
        private.opener(str(tmp_path / "a"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    assert (tmp_path / "target").read_text() == "mine"


@needs_root
def test_a_file_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    os.chown(tmp_path / "a", NOBODY, NOBODY)
    with pytest.raises(PermissionError, match="not a file of yours"):
        private.opener(str(tmp_path / "a"), os.O_WRONLY | os.O_APPEND)


def test_the_umask_is_the_users_own_again_when_a_socket_is_bound(tmp_path: Path) -> None:
    with street() as short, umask(0o002):
        private.bind_socket(str(short / "s"), 1).close()
        assert mode(short / "s") == 0o600
        assert os.umask(0o002) == 0o002


# --- temporary folders ---------------------------------------------------------------------------------


@MASKS
def test_a_temporary_folder_is_private_and_its_name_cannot_be_guessed(tmp_path: Path, mask: int) -> None:
    one, other = TemporaryFolder("test", str(tmp_path)), TemporaryFolder("test", str(tmp_path))
    assert not os.path.exists(one.path)
    with umask(mask):
        assert one.make() == one.make() == one.path
        other.make()
    assert mode(one.path) == 0o700
    assert one.path != other.path
    (Path(one.path) / "file").touch()
    one.remove()
    other.remove()
    assert os.listdir(tmp_path) == []


def holder(kind: str, where: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, kind, str(where)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_is_removed_by_the_next_and_what_lives_is_not(tmp_path: Path) -> None:
    killed, left = holder("test", tmp_path)
    living, held = holder("test", tmp_path)
    another, other_kind = holder("other", tmp_path)
    (left / "deep").mkdir()
    (left / "deep" / "file").touch()
    (left / "deep").chmod(0o500)
    with living, another, killed:
        for process in (killed, another):
            process.kill()
            process.wait()
        assert left.is_dir()
        mine = TemporaryFolder("test", str(tmp_path))
        mine.make()
        assert {*tmp_path.iterdir()} == {Path(mine.path), held, other_kind}
        mine.remove()
        living.kill()
    private.sweep("test", str(tmp_path))
    assert [*tmp_path.iterdir()] == [other_kind]


def test_a_folder_whose_server_still_leaves_its_store_is_spared(tmp_path: Path) -> None:
    from bough.stores.folder.store_lock import StoreLock

    killed, left = holder("test", tmp_path)
    killed.kill()
    killed.communicate()
    lock = StoreLock(str(left))
    private.sweep("test", str(tmp_path))
    assert left.is_dir()
    lock.release()
    private.sweep("test", str(tmp_path))
    assert not left.exists()


@needs_root
def test_folders_of_other_users_are_never_swept(tmp_path: Path) -> None:
    folder = Path(TemporaryFolder("test", str(tmp_path)).path)
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    private.sweep("test", str(tmp_path))
    assert folder.is_dir()


def test_a_process_that_was_forked_leaves_the_folder_to_its_parent(tmp_path: Path) -> None:
    folder = TemporaryFolder("test", str(tmp_path))
    folder.make()
    pid = os.fork()
    if pid == 0:
        folder.remove()
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.path.isdir(folder.path)
    folder.remove()


def test_those_who_make_folders_and_those_who_sweep_them_do_not_meet(tmp_path: Path) -> None:
    """A sweeper may see a folder before it is locked: its owner then has another one, never none."""
    over = threading.Event()

    def sweep() -> None:
        while not over.is_set():
            private.sweep("test", str(tmp_path))

    sweepers = [threading.Thread(target=sweep) for _ in range(2)]
    for one in sweepers:
        one.start()
    try:
        for _ in range(300):
            folder = TemporaryFolder("test", str(tmp_path))
            (Path(folder.make()) / "file").touch()
            assert os.listdir(folder.path) == ["file"]
            folder.remove()
    finally:
        over.set()
        for one in sweepers:
            one.join()
    assert os.listdir(tmp_path) == []


def test_a_place_where_everybody_can_replace_folders_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(SiteError, match=r"chmod \+t"):
        TemporaryFolder("test", str(tmp_path)).make()
    tmp_path.chmod(0o1777)
    TemporaryFolder("test", str(tmp_path)).make()


def test_removing_a_tree_leaves_alone_what_links_in_it_lead_to() -> None:
    def remove() -> list[object]:
        precious, tree = place / "precious", place / "tree"
        precious.write_text("mine")
        precious.chmod(0o444)
        (tree / "closed").mkdir(parents=True)
        (tree / "closed" / "soft").symlink_to(precious)
        os.link(precious, tree / "closed" / "hard")
        (tree / "closed").chmod(0o500)
        private.remove_tree(str(tree))
        return [tree.exists(), precious.read_text(), mode(precious)]

    with street() as place:
        place.chmod(0o1777)
        said = as_another(remove) if os.geteuid() == 0 else remove()  # nothing is closed to root
    assert said == [False, "mine", 0o444]


def test_the_temporary_place_is_the_systems() -> None:
    assert private.temporary_place() == tempfile.gettempdir()
