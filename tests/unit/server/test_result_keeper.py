from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bough import private
from bough.movers.result_memory import FREE, IN_MEMORY, LINK, MADE, put_in_memory
from bough.movers.value_places import MEMORY, VARIABLE
from bough.server.embedded import result_keeper
from bough.server.embedded.result_keeper import ResultKeeper

pytestmark = pytest.mark.skipif(not os.path.isdir(MEMORY), reason="this machine has no /dev/shm")
DATA = os.urandom(IN_MEMORY)


@pytest.fixture
def memory() -> Iterator[Path]:
    made = Path(MEMORY) / f"bough-test-{os.getpid()}-{os.urandom(4).hex()}"
    made.mkdir(0o700)
    yield made
    private.remove_tree(str(made))


@pytest.fixture
def keeper(tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ResultKeeper]:
    monkeypatch.setenv(VARIABLE, "100MiB")
    monkeypatch.setattr(result_keeper, "_DELAY", 0.01)
    made = ResultKeeper(str(tmp_path), str(memory))
    yield made
    made.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def put(folder: Path, name: str) -> str:
    """As a worker does."""
    held = put_in_memory(str(folder), name, [DATA], len(DATA))
    (folder / name).symlink_to(held)
    return held


def names(keeper: ResultKeeper) -> list[str]:
    return os.listdir(keeper._path)


def test_a_result_is_readable_by_its_name_before_and_after_it_is_on_the_disk(
    keeper: ResultKeeper, tmp_path: Path
) -> None:
    held = put(tmp_path, "1.pickle")
    assert held.startswith(MEMORY)
    assert (tmp_path / "1.pickle").read_bytes() == DATA
    keeper.look()
    until(lambda: not (tmp_path / "1.pickle").is_symlink())
    assert (tmp_path / "1.pickle").read_bytes() == DATA
    until(lambda: [name.startswith(FREE) for name in names(keeper)] == [True])
    keeper.close()
    assert sorted(os.listdir(tmp_path)) == ["1.pickle"]


def test_memory_that_is_not_needed_is_given_back(
    keeper: ResultKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_keeper, "_QUIET", 0.05)
    put(tmp_path, "1.pickle")
    keeper.look()
    until(lambda: not names(keeper))
    assert (tmp_path / "1.pickle").read_bytes() == DATA


def test_what_is_left_at_the_end_is_copied_then(keeper: ResultKeeper, tmp_path: Path, memory: Path) -> None:
    put(tmp_path, "1.pickle")
    put(tmp_path, "2.pickle")
    keeper.close()
    assert [(tmp_path / f"{name}.pickle").read_bytes() == DATA for name in "12"] == [True, True]
    assert not any(path.is_symlink() for path in tmp_path.iterdir())
    assert not list(memory.iterdir())
    assert not put_in_memory(str(tmp_path), "3", [DATA], len(DATA))


def test_a_full_disk_is_waited_for(keeper: ResultKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = result_keeper.copy_to_disk

    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(result_keeper, "copy_to_disk", full)
    put(tmp_path, "1.pickle")
    assert keeper._keep_all() == 1
    assert (tmp_path / "1.pickle").read_bytes() == DATA
    monkeypatch.setattr(result_keeper, "copy_to_disk", real)
    assert keeper._keep_all() == 0
    assert not (tmp_path / "1.pickle").is_symlink()


def test_what_a_dead_worker_left_half_written_is_removed_later(
    keeper: ResultKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = put_in_memory(str(tmp_path), "1.pickle", [DATA], len(DATA))
    keeper._keep_all()
    assert names(keeper) == [f"{MADE}1.pickle"]  # it may be named soon
    os.utime(held, (1, 1))
    monkeypatch.setattr(result_keeper, "_POOL", 0)
    keeper._keep_all()
    assert names(keeper) == []


def test_what_a_dead_worker_left_is_removed_though_nothing_else_is_new(
    keeper: ResultKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_keeper, "_LEFT", 1.0)
    monkeypatch.setattr(result_keeper, "_AGAIN", 0.05)
    monkeypatch.setattr(result_keeper, "_QUIET", 0.5)
    put_in_memory(str(tmp_path), "1.pickle", [DATA], len(DATA))
    keeper.look()
    until(lambda: names(keeper) == [])


def test_without_memory_results_go_to_the_disk(tmp_path: Path) -> None:
    keeper = ResultKeeper(str(tmp_path), str(tmp_path / "gone"))
    keeper.look()
    assert not put_in_memory(str(tmp_path), "1", [DATA], len(DATA))
    keeper.close()
    assert not os.path.lexists(tmp_path / LINK)
