"""Big values in memory that all processes of a host map: what calls and scripts see, and what is left of them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bough
from bough.api.values import value_identities
from bough.movers.result_memory import LINK, MADE
from bough.movers.value_places import MEMORY, VARIABLE

np = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(not os.path.isdir(MEMORY), reason="this machine has no /dev/shm")
SIZE = 6 << 20


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def before() -> set[str]:
    return set(os.listdir(MEMORY))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that waits to be used again is given back soon."""
    monkeypatch.setattr(value_identities, "_QUIET", 0.5)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[bough.Session]:
    with bough.Session(cores=2, store=tmp_path / "store", preload=False) as opened:
        yield opened


def array(seed: int, size: int = SIZE) -> Any:
    return np.random.default_rng(seed).integers(0, 255, size, dtype=np.uint8)


def total(x: Any, *_: Any) -> int:
    return int(x.sum())


def made(seed: int, size: int = SIZE) -> Any:
    return np.random.default_rng(seed).integers(0, 255, size, dtype=np.uint8)


def is_writable(x: Any) -> bool:
    return bool(x.flags.writeable)


def test_arguments_and_results_are_what_they_were(session: bough.Session) -> None:
    one = array(1)
    calls = [session.submit(total, one, number) for number in range(8)]
    shared = session.share({"x": one, "name": "one"})
    more = [session.submit(lambda both: (both["name"], int(both["x"].sum())), shared) for _ in range(8)]
    several = session.map(total, [array(seed) for seed in range(6)])
    results = session.map(made, range(6))
    one_result = session.submit(made, 9)
    then = session.submit(total, one_result)
    right = int(one.sum())
    assert [call.result() for call in calls] == [right] * 8
    assert [call.result() for call in more] == [("one", right)] * 8
    assert list(several) == [int(array(seed).sum()) for seed in range(6)]
    for seed, found in enumerate(results):
        assert (found == array(seed)).all()
    assert (one_result.result() == array(9)).all()
    assert then.result() == int(array(9).sum())


def test_a_call_gets_what_the_array_held_when_it_was_submitted(session: bough.Session) -> None:
    one = array(1)
    expected = []
    calls = []
    for number in range(6):
        one[SIZE // 2] = number
        expected.append(int(one.sum()))
        calls.append(session.submit(total, one))
    one[:] = 0
    assert [call.result() for call in calls] == expected


def test_big_arrays_are_read_only_everywhere_and_small_ones_are_not(session: bough.Session) -> None:
    assert session.submit(is_writable, array(1)).result() is False
    assert session.submit(is_writable, array(1, 1000)).result() is True
    assert list(session.map(is_writable, [array(1), array(1, 1000)])) == [False, True]
    found = session.submit(made, 1)
    assert session.submit(is_writable, found).result() is False
    assert found.result().flags.writeable is False
    with pytest.raises(ValueError, match="read-only"):
        found.result()[0] = 1
    assert found.result().copy().flags.writeable
    assert session.submit(made, 1, 1000).result().flags.writeable


class Reused:
    """One array that every call in a worker fills and returns, and a list that grows."""

    array: Any = None
    seen: list[int]


def refilled(number: Any, size: int) -> Any:
    if not isinstance(number, int):  # what the call before returned
        number = int(number[0][0]) + 1
    if Reused.array is None or len(Reused.array) != size:
        Reused.array, Reused.seen = np.zeros(size, dtype=np.uint8), []
    Reused.array[:] = number
    Reused.seen.append(number)
    return Reused.array, Reused.seen


@pytest.mark.parametrize("size", [4, SIZE])
def test_a_result_is_what_its_call_returned_though_later_calls_change_the_same_objects(
    tmp_path: Path, size: int
) -> None:
    with bough.Session(cores=1, store=tmp_path / "store", preload=False) as session:
        loose = [session.submit(refilled, number, size) for number in range(12)]
        chained = [session.submit(refilled, 20, size)]
        for _ in range(5):
            chained.append(session.submit(refilled, chained[-1], size))
        mapped = session.map(refilled, range(30, 42), [size] * 12)
        swept = session.sweep(refilled, bough.product(number=range(50, 62)), size=size)
        found = [*(task.result() for task in loose), *(task.result() for task in chained), *mapped, *swept.results()]
    right = [*range(12), *range(20, 26), *range(30, 42), *range(50, 62)]
    assert [(int(array.min()), int(array.max())) for array, _ in found] == [(number, number) for number in right]
    assert [seen[-1] for _, seen in found] == right


def chain(x: Any) -> Any:
    return x + np.uint8(1)


def test_a_chain_of_big_values_is_right(session: bough.Session) -> None:
    task = session.submit(made, 1)
    for _ in range(6):
        task = session.submit(chain, task)
    assert (task.result() == (array(1) + np.uint8(6)).astype(np.uint8)).all()


def test_arrays_of_times_are_views(session: bough.Session) -> None:
    times = np.arange(SIZE // 8).astype("datetime64[s]")

    def later(times: Any) -> Any:
        assert not times.flags.writeable
        return times + np.timedelta64(1, "s")

    found = session.submit(later, times).result()
    assert (found == times + np.timedelta64(1, "s")).all()
    assert not found.flags.writeable


def test_frames_of_pandas_are_views(session: bough.Session) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"a": np.arange(SIZE // 8), "b": np.arange(SIZE // 8) * 2.0})
    frame["t"] = pandas.date_range("2000", periods=len(frame), freq="s")

    def look(frame: Any) -> tuple[float, bool, bool]:
        return float(frame["b"].sum()), *(bool(frame[name].to_numpy().flags.writeable) for name in "bt")

    assert session.submit(look, frame).result() == (float(frame["b"].sum()), False, False)
    found = session.submit(lambda x: x[["a", "b"]] * 2, frame).result()
    assert (found["b"] == frame["b"] * 2).all()
    assert not found["b"].to_numpy().flags.writeable


def test_tables_of_arrow_are_views(session: bough.Session) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = arrow.table({"a": np.arange(SIZE // 8)})

    def look(table: Any) -> tuple[int, bool]:
        return table["a"].to_pandas().sum().item(), table["a"].chunk(0).buffers()[1].is_mutable

    assert session.submit(look, table).result() == (int(np.arange(SIZE // 8).sum()), False)
    assert session.submit(lambda x: x, table).result() == table


def test_values_larger_than_the_memory_go_through_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "7MiB")
    with bough.Session(cores=2, store=tmp_path / "store", preload=False) as session:
        arrays = [array(seed) for seed in range(5)]
        calls = [session.submit(total, one) for one in arrays]
        big = session.submit(total, array(9, 3 * SIZE))
        results = session.map(made, range(5), [3 * SIZE] * 5)
        assert session.registry.values is not None
        assert session.registry.values.in_memory <= 7 << 20
        folders = [(tmp_path / "store" / "results" / LINK).readlink(), Path(session.registry.values._folder.path)]
        assert all(folder.is_dir() for folder in folders)
        assert [call.result() for call in calls] == [int(one.sum()) for one in arrays]
        assert big.result() == int(array(9, 3 * SIZE).sum())
        assert all((found == array(seed, 3 * SIZE)).all() for seed, found in enumerate(results))
        del arrays
        gc.collect()
        until(lambda: not [path for path in (tmp_path / "store" / "args").iterdir() if path.stat().st_size > 1000])
    assert not any(folder.exists() for folder in folders)


def test_what_was_shared_or_given_is_freed(session: bough.Session, before: set[str]) -> None:
    shared = session.share(array(1))
    one = array(2)
    assert session.submit(total, shared).result() + session.submit(total, one).result() > 0
    values = session.registry.values
    assert values is not None
    assert values.in_memory == 2 * SIZE
    del shared, one
    gc.collect()
    until(lambda: values.in_memory == 0)


CLASSES = """
import sys
import bough

class Named:
    count = 1

class Grown:
    only = None
    def __init__(self):
        self.numbers = []

def grown(number):
    Grown.only = Grown.only or Grown()
    Grown.only.numbers.append(number)
    return Grown.only

with bough.Session(cores=1, store=sys.argv[1], preload=False) as s:
    shared = s.share(Named())
    Named.count = 2
    assert type(shared.value) is Named
    assert Named.count == 2
    found = [*s.map(grown, range(20)), *[task.result() for task in [s.submit(grown, number) for number in range(20)]]]
    assert {type(one) for one in found} == {Grown}
    assert [one.numbers[-1] for one in found] == [*range(20), *range(20)]
"""


def test_objects_of_the_script_s_own_classes_are_what_they_were(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(CLASSES)
    subprocess.run([sys.executable, "script.py", str(tmp_path / "store")], cwd=tmp_path, check=True)


def chosen(x: Any, at: int) -> tuple[int, bool]:
    return int(x[at]), bool(x.flags.writeable)


def test_a_space_of_big_values_is_written_once_for_all_its_combinations(session: bough.Session) -> None:
    one, other = array(1), array(2)
    space = bough.tie(x=[one, other], name=["one", "other"])
    right = [(int(x[at]), False) for x in (one, other) for at in range(20)]
    found = session.sweep(lambda name, **of: chosen(**of), space * bough.product(at=range(20)), where=lambda at: True)
    assert found.results() == right
    values = session.registry.values
    assert values is not None
    assert values.in_memory == 2 * SIZE
    shared = session.share(one)
    assert session.sweep(chosen, bough.product(at=range(20)), x=shared).results() == right[:20]
    assert list(session.map(lambda row: chosen(*row), bough.product(x=[shared, other], at=range(20)))) == right
    assert values.in_memory == 2 * SIZE
    del one, other, shared, space
    gc.collect()
    until(lambda: values.in_memory == 0)


@pytest.mark.parametrize("keep", [True, False])
def test_big_values_that_are_fed_are_written_apart_and_freed(session: bough.Session, *, keep: bool) -> None:
    shared = session.share(array(0))
    items = ((number, shared, array(number)) for number in range(12))
    fed = session.feed(lambda item: (item[0], is_writable(item[2]), total(item[1]) + total(item[2])), items, keep=keep)
    right = [(number, False, total(array(0)) + total(array(number))) for number in range(12)]
    assert sorted(task.result() for task in fed.as_completed()) == right
    values = session.registry.values
    assert values is not None
    del shared
    gc.collect()
    until(lambda: values.in_memory == 0)


def dies_once(x: Any, mark: str) -> int:
    if not os.path.exists(mark):
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return int(x.sum())


def test_a_worker_that_is_killed_while_it_maps_a_value_harms_nothing(session: bough.Session, tmp_path: Path) -> None:
    one = array(1)
    task = session.options(retries=1).submit(dies_once, one, str(tmp_path / "mark"))
    assert task.result() == int(one.sum())
    values = session.registry.values
    assert values is not None
    del one
    gc.collect()
    until(lambda: values.in_memory == 0)


def dies_while_it_is_written(seed: int, size: int, results: str, mark: str) -> Any:
    """The first attempt kills its worker once a part of the result lies in memory."""
    import threading

    def watch() -> None:
        folder = os.path.realpath(os.path.join(results, LINK))
        while not any(name.startswith(MADE) for name in os.listdir(folder)):
            time.sleep(0)
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)

    if not os.path.exists(mark):
        threading.Thread(target=watch, daemon=True).start()
    return np.random.default_rng(seed).integers(0, 255, size, dtype=np.uint8)


def test_a_worker_that_is_killed_while_it_writes_a_result_leaves_nothing(tmp_path: Path) -> None:
    store, mark, size = tmp_path / "store", tmp_path / "mark", 96 << 20
    with bough.Session(cores=1, store=store, preload=False) as session:
        call = session.options(retries=1).submit(dies_while_it_is_written, 1, size, str(store / "results"), str(mark))
        assert (call.result() == array(1, size)).all()
        assert mark.exists()
        assert call.attempts == 2
        folder = (store / "results" / LINK).readlink()
        assert folder.is_dir()
    assert not folder.exists()
    assert [path.stat().st_size > size for path in (store / "results").iterdir()] == [True]


SCRIPT = """
import os, sys, time
import numpy as np
import bough

def made(seed):
    return np.full(6 << 20, seed, dtype=np.uint8)

def stays(x, path):
    open(path, "w").close()
    time.sleep(1000)

with bough.Session(cores=2, store=sys.argv[1], preload=False) as s:
    done = [s.submit(made, seed) for seed in range(3)]
    assert [int(one.result()[0]) for one in done] == [0, 1, 2]
    big = np.ones(6 << 20, dtype=np.uint8)
    shared = s.share(big)
    s.submit(stays, shared, sys.argv[2])
    print(s.host.pid, flush=True)
    time.sleep(1000)
"""


def folders_of(process: int) -> set[str]:
    """What a process has open in memory: others use it, too."""
    begin = f"{MEMORY}/"
    links = [os.readlink(entry) for entry in os.scandir(f"/proc/{process}/fd") if entry.is_symlink()]
    return {link.removeprefix(begin).split("/")[0] for link in links if link.startswith(begin)}


@pytest.mark.parametrize("killed", ["script", "both"])
def test_nothing_is_left_in_memory_by_a_session_that_was_killed(tmp_path: Path, killed: str) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    store, mark = tmp_path / "store", tmp_path / "mark"
    script = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(store), str(mark)], stdout=subprocess.PIPE, cwd=tmp_path
    )
    assert script.stdout is not None
    server = int(script.stdout.readline())
    until(mark.exists)
    mine = folders_of(script.pid) | folders_of(server)
    assert len(mine) == 2
    if killed == "both":
        os.kill(server, signal.SIGSTOP)  # it does not see its script end
    script.kill()
    script.communicate()
    if killed == "both":
        os.kill(server, signal.SIGKILL)
    until(lambda: not mine & set(os.listdir(MEMORY)))
    with bough.Session(cores=2, store=store, preload=False) as session:  # what is there is whole
        assert (session.submit(made, 4).result() == array(4)).all()
    for path in (store / "results").iterdir():
        assert path.is_symlink() or path.stat().st_size >= SIZE


RESUMED = """
import os, sys
import numpy as np
import bough

def used(x, log, number):
    with open(log, "a") as file:
        file.write(f"{number} ")
    return x * np.uint8(2)

with bough.Session(cores=2, store=sys.argv[1], preload=False, on_failure="ignore") as s:
    x = np.arange(6 << 20, dtype=np.uint8)
    log = sys.argv[2]
    tasks = [s.submit(used, x, log, number) for number in range(3)]
    tasks += [s.submit(used, s.share(x), log, 3)]
    tasks += [s.submit(used, tasks[0], log, 4)]
    found = list(s.map(used, [x, x + np.uint8(1)], [log] * 2, [5, 6]))
    for task in tasks[:4]:
        assert (task.result() == x * np.uint8(2)).all()
    assert (tasks[4].result() == x * np.uint8(4)).all()
    assert (found[1] == (x + np.uint8(1)) * np.uint8(2)).all()
    swept = s.sweep(used, bough.product(x=[x], number=range(7, int(sys.argv[3]))), log=log)
    assert all((task.result() == x * np.uint8(2)).all() for task in swept)
    feed = s.feed(lambda item: used(item[0], log, item[1]), ((x + np.uint8(a), "ab"[a]) for a in range(2)))
    assert all((task.result() == (x + np.uint8(a)) * np.uint8(2)).all() for a, task in enumerate(feed))
    failing = s.submit(int, "no number")
    failing.exception()
"""


def test_calls_with_big_values_are_reused_after_an_unfinished_run(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(RESUMED)
    words = [sys.executable, "script.py", str(tmp_path / "store"), str(tmp_path / "log")]
    subprocess.run([*words, "9"], cwd=tmp_path, check=True)
    assert sorted((tmp_path / "log").read_text().split()) == list("012345678ab")
    subprocess.run([*words, "9"], cwd=tmp_path, check=True)
    assert sorted((tmp_path / "log").read_text().split()) == list("012345678ab")
    subprocess.run([*words, "10"], cwd=tmp_path, check=True)  # a space that was extended
    assert sorted((tmp_path / "log").read_text().split()) == list("0123456789ab")


def test_a_big_result_is_in_memory_once(tmp_path: Path) -> None:
    """Its writer lets go of it, and its readers map one file."""

    def own(_: object = None) -> int:
        with open("/proc/self/status", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file if ":" in line)
        return int(lines["RssAnon"].split()[0]) * 1024

    size = 96 << 20
    with bough.Session(cores=1, store=tmp_path / "store", preload=False) as session:
        empty = session.submit(own).result()
        found = session.submit(made, 1, size)
        mine = own()
        assert found.result()[::4096].sum() > 0
        assert own() - mine < size / 4  # mapped, not copied
        assert session.submit(own, 1).result() - empty < size / 2  # the worker has let go


def mapped() -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssShmem"))


def test_what_calls_before_it_had_mapped_does_not_count_for_a_call_with_a_limit(tmp_path: Path) -> None:
    size = 48 << 20
    with bough.Session(cores=1, store=tmp_path / "store") as session:
        session.submit(total, session.submit(made, 1, size)).result()
        assert session.submit(mapped).result() >= size
        assert session.options(memory="1GB").submit(mapped).result() < size / 4
