from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from bough import private
from bough.api.futures.task import Task
from bough.api.futures.task_registry import TaskRegistry
from bough.api.memo.digests import argument_digest
from bough.api.pickling import make_pages, pack_arguments
from bough.api.values import argument_values, value_identities
from bough.api.values.argument_values import ArgumentValues
from bough.api.values.packing import Packing, Shared
from bough.api.values.remote_values import RemoteValues
from bough.errors import BadValue, SessionClosed
from bough.model.files import value_digest, value_path
from bough.model.ids import RecordId
from bough.model.outcomes import Cause, Failure
from bough.model.packed_values import APART
from bough.model.refs import load_pickle, unpack_call
from bough.movers.value_files import forget_recent
from bough.movers.value_places import MEMORY, VALUES, VARIABLE, value_memory
from bough.wire.client_messages import TasksFailed

pytestmark = pytest.mark.skipif(not os.path.isdir(MEMORY), reason="this machine has no /dev/shm")
np = pytest.importorskip("numpy")
SIZE = APART * 2


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(argument_values, "_SPARE", 0)
    monkeypatch.setattr(value_identities, "_QUIET", 1.0)
    (tmp_path / "args").mkdir()
    memory = Path(MEMORY) / f"bough-test-{os.getpid()}-{os.urandom(4).hex()}"
    memory.mkdir(0o700)
    yield memory
    forget_recent()
    private.remove_tree(str(memory))


@pytest.fixture
def values(tmp_path: Path, place: Path) -> Iterator[ArgumentValues]:
    made = ArgumentValues(str(tmp_path), 7, 10 * SIZE, str(place))
    yield made
    made.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def array(seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 255, SIZE, dtype=np.uint8)


def test_the_same_array_is_written_once_and_a_changed_one_again(values: ArgumentValues, place: Path) -> None:
    one = array(1)
    first, second = values.keep(one.data, one), values.keep(one.data, one)
    assert first is second
    assert values.keep(one.copy().data) is first  # another array of the same content
    one[SIZE // 2] += 1
    third = values.keep(one.data, one)
    assert third is not first
    assert Path(third.path).read_bytes() == one.tobytes() != Path(first.path).read_bytes()
    assert len(files(place)) == 2


def test_what_nothing_needs_is_freed_once_its_array_is_gone(values: ArgumentValues, place: Path) -> None:
    one = array(1)
    kept = values.keep(one.data, one)
    values.hold(3, 0, 1, [kept])
    values.let_go([kept])
    values.succeeded(3)
    until(lambda: kept.holders == 0)  # its content is noted
    assert values.keep(one.data, one) is kept  # the array may be given to another call
    values.let_go([kept])
    del one
    gc.collect()
    until(lambda: not files(place))
    assert values.in_memory == 0


def test_an_array_of_which_elements_have_not_succeeded_holds_its_buffers(values: ArgumentValues) -> None:
    kept = values.keep(array(1).data)
    values.hold(3, 0, 10, [kept])
    values.let_go([kept])
    values.succeeded(3, 0, 4)
    values.succeeded(3, 5, 10)
    values.succeeded(4, 0, 10)  # of which nothing is known
    until(lambda: kept.holders == 1)
    assert os.path.exists(kept.path)
    values.succeeded(3, 4, 5)
    assert kept.is_gone


def test_an_array_of_any_length_holds_what_all_its_elements_need_until_they_have_succeeded(
    values: ArgumentValues,
) -> None:
    kept = values.keep(array(1).data)
    values.hold_array(3, 10**6, [kept])
    values.let_go([kept])
    values.succeeded(3, 0, 10)
    values.succeeded(3, 5, 10**6 - 1)
    values.succeeded(3, 5, 10**6 - 1)  # said twice
    until(lambda: kept.holders == 1)
    assert os.path.exists(kept.path)
    values.succeeded(3, 10**6 - 1, 10**6)
    assert kept.is_gone


def test_what_is_more_than_the_memory_may_hold_goes_to_the_store(
    values: ArgumentValues, place: Path, tmp_path: Path
) -> None:
    kept = [values.keep(array(seed).data) for seed in range(14)]
    assert sum(one.in_memory for one in kept) == 10
    assert values.in_memory == 10 * SIZE == sum(path.stat().st_size for path in files(place))
    assert len(files(tmp_path / "args")) == 4
    for seed, one in enumerate(kept):
        assert Path(one.path).read_bytes() == array(seed).tobytes()
    values.let_go(kept)
    until(lambda: not files(tmp_path / "args") and not files(place))


def test_idle_buffers_make_room(values: ArgumentValues, tmp_path: Path) -> None:
    arrays = [array(seed) for seed in range(10)]
    idle = [values.keep(one.data, one) for one in arrays]
    values.let_go(idle)
    until(lambda: all(one.holders == 0 for one in idle))
    new = values.keep(array(11).data)
    assert new.in_memory
    assert [one.is_gone for one in idle] == [True] + [False] * 9
    assert not files(tmp_path / "args")


def test_memory_that_is_full_of_others_is_no_failure(
    values: ArgumentValues, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = argument_values.write_file

    def write(path: str, parts: Any) -> int:
        if path.startswith(MEMORY):
            raise OSError(28, "No space left on device")
        return real(path, parts)

    monkeypatch.setattr(argument_values, "write_file", write)
    kept = values.keep(array(1).data)
    assert not kept.in_memory
    assert values.in_memory == 0
    assert Path(kept.path).read_bytes() == array(1).tobytes()


def test_a_freed_file_is_used_again(values: ArgumentValues) -> None:
    first = values.keep(array(1).data)
    inode = os.stat(first.path).st_ino
    values.let_go([first])
    until(lambda: first.is_gone)
    second = values.keep(array(2).data[: SIZE - 100])
    assert os.stat(second.path).st_ino == inode
    assert Path(second.path).read_bytes() == array(2).tobytes()[: SIZE - 100]
    assert not os.path.exists(first.path)
    assert values.in_memory == SIZE - 100


def test_a_buffer_is_noted_when_its_tasks_are_done_and_its_memory_used_again(
    values: ArgumentValues, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_identities, "_DELAY", 3600.0)
    busy, done = values.keep(array(1).data), values.keep(array(2).data)
    values.hold(8, 0, 2, [busy, done])
    values.let_go([busy, done])
    values.hold(9, 0, 1, [busy])
    values.succeeded(8, 0, 2)
    until(lambda: done.is_gone)
    notes = tmp_path / value_identities.FILE
    one = notes.stat().st_size
    assert values.identities.find(array(2).data, done.mark) == done.identity
    assert not busy.is_gone
    values.succeeded(9)
    until(lambda: busy.is_gone)
    assert notes.stat().st_size == 2 * one
    values.keep(array(3).data)
    assert values.in_memory == 2 * SIZE


def test_calls_get_what_arrays_held_when_they_were_packed(values: ArgumentValues) -> None:
    one = array(1)
    with Packing(lambda: values) as packing:
        payload = pack_arguments((5, one), {"x": [one]}, "f", packing)
        packing.hold(1)
    before = one.copy()
    one[:] = 0
    assert len(payload) < 2000
    args, kwargs = unpack_call(payload, ())
    assert args[0] == 5
    assert (args[1] == before).all()
    assert kwargs["x"][0] is args[1]
    assert not args[1].flags.writeable


def test_a_view_of_a_whole_array_stands_for_the_array(values: ArgumentValues, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written is kept as long as the array is there, and a view goes at once."""
    numbers = np.arange(SIZE)
    times = numbers.astype("datetime64[s]")
    sources = []
    keep = values.keep
    monkeypatch.setattr(values, "keep", lambda view, source: sources.append(source) or keep(view, source))
    with Packing(lambda: values) as packing:
        pack_arguments((numbers.reshape(2, -1).T, times, numbers[: SIZE // 2]), {}, "f", packing)
    assert sources[0] is numbers
    assert sources[1] is times
    assert sources[2] is not numbers


def test_a_shared_value_lives_as_long_as_its_handle_and_its_tasks(values: ArgumentValues, place: Path) -> None:
    shared = Shared({"a": array(1), "b": [1, 2]}, lambda: values)
    with Packing(lambda: values) as packing:
        payload = pack_arguments((shared, 1), {}, "f", packing)
        packing.hold(1)
    assert len(payload) < 2000
    assert (shared.value["a"] == array(1)).all()
    assert shared.nbytes > SIZE
    del shared
    gc.collect()
    args, _ = unpack_call(payload, ())
    assert (args[0]["a"] == array(1)).all()
    assert args[0]["b"] == [1, 2]
    del args
    values.succeeded(1)
    until(lambda: not files(place))


def test_a_shared_value_without_arrays_lies_in_memory_too(values: ArgumentValues) -> None:
    shared = Shared([b"x" * SIZE, "y"], lambda: values)
    with Packing(lambda: values) as packing:
        payload = pack_arguments((shared,), {}, "f", packing)
        packing.hold(1)
    assert len(payload) < 2000
    assert unpack_call(payload, ())[0] == ([b"x" * SIZE, "y"],)


def test_a_shared_value_of_another_session_or_process_travels_as_it_is(values: ArgumentValues) -> None:
    import pickle

    shared = Shared(array(1), lambda: values)
    assert (pickle.loads(pickle.dumps(shared)) == array(1)).all()
    remote = RemoteValues(lambda view: blake2b(view, digest_size=32).digest())
    one = array(2)
    elsewhere = Shared({"x": one, "names": ["a"]}, lambda: remote)
    one[:] = 0  # what was shared stays as it was
    assert not elsewhere.value["x"].flags.writeable
    for value in (elsewhere.value, pickle.loads(pickle.dumps(elsewhere))):
        assert (value["x"] == array(2)).all()


def test_a_value_whose_session_has_ended_says_so(values: ArgumentValues) -> None:
    shared = Shared(array(1), lambda: values)
    forget_recent()
    values.close()
    with pytest.raises(SessionClosed, match="share it in another one"):
        _ = shared.value


def test_keys_are_of_the_content_and_the_same_in_the_next_run(tmp_path: Path, place: Path) -> None:
    def key(values: ArgumentValues, value: Any) -> bytes | None:
        with Packing(lambda: values) as packing:
            pack_arguments((value,), {}, "f", packing)
            return argument_digest((value,))

    keys = []

    def run() -> None:
        values = ArgumentValues(str(tmp_path), 7, 10 * SIZE, str(place))
        one = array(1)
        keys.append(key(values, one))
        assert key(values, one.copy()) == keys[-1]
        assert key(values, one.reshape(2, -1)) != keys[-1]
        one[0] += 1
        assert key(values, one) != keys[-1]
        assert key(values, Shared(array(1), lambda: values)) not in {None, keys[-1]}
        values.close()

    run()
    run()
    assert keys[0] == keys[1]
    assert keys[0] is not None


def test_nothing_is_left_by_a_closed_one_and_a_fork_removes_nothing(values: ArgumentValues, place: Path) -> None:
    kept = values.keep(array(1).data)
    child = os.fork()
    if not child:
        values.let_go([kept, kept])
        values.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert os.path.exists(kept.path)
    values.close()
    assert not list(place.iterdir())


def test_what_a_killed_script_left_is_swept(tmp_path: Path, place: Path) -> None:
    code = f"""
import sys
from bough.api.values.argument_values import ArgumentValues
values = ArgumentValues({str(tmp_path)!r}, 7, 1 << 30, {str(place)!r})
kept = values.keep(memoryview(bytes({SIZE})))
print(kept.path, flush=True)
sys.stdin.read()
"""
    script = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert script.stdout is not None
    path = script.stdout.readline().decode().strip()
    private.sweep(VALUES, str(place))
    assert os.path.exists(path)  # it lives
    script.send_signal(signal.SIGKILL)
    script.communicate()
    assert os.path.exists(path)
    private.sweep(VALUES, str(place))
    assert not list(place.iterdir())


def test_many_threads_share_one_buffer(values: ArgumentValues, place: Path) -> None:
    one = array(1)
    values.let_go([values.keep(one.data, one)])
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.extend(values.keep(one.data, one) for _ in range(20))) for _ in "abcd"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(files(place)) == 1
    until(lambda: found[0].holders == 80)


def test_the_memory_that_values_may_take_is_the_users_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "2GB")
    assert value_memory() == 2_000_000_000
    monkeypatch.setenv(VARIABLE, "much")
    with pytest.raises(BadValue, match="such as 4GB"):
        value_memory()
    monkeypatch.delenv(VARIABLE)
    assert 0 < value_memory() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_buffer_at_a_service_is_named_by_its_content_and_declared() -> None:
    sent: dict[bytes, int] = {}

    def send(view: memoryview) -> bytes:
        digest = blake2b(view, digest_size=32).digest()
        sent[digest] = view.nbytes
        return digest

    remote = RemoteValues(send)
    shared = Shared(array(3), lambda: remote)
    for value in (array(3), shared):
        with Packing(lambda: remote) as packing:
            payload = pack_arguments((value, 1), {}, "f", packing)
            packing.hold(1)
            (path,) = packing.contents()
        assert value_digest(path) in sent
        assert path.encode() in payload
        assert len(payload) < 2000
    assert (shared.value == array(3)).all()
    assert len(sent) == 1


def test_an_array_given_to_many_elements_is_sent_once_and_each_page_names_its_own() -> None:
    sent: list[bytes] = []

    def send(view: memoryview) -> bytes:
        sent.append(blake2b(view, digest_size=32).digest())
        return sent[-1]

    remote = RemoteValues(send)
    one, other = array(1), array(2)
    with Packing(lambda: remote) as packing:
        pages = list(make_pages([one, other, one, 7, 8, one], apart=packing))
        named = [packing.contents(number) for number, page in enumerate(pages) for _ in range(page.start, page.stop)]
        assert set(packing.contents()) == set(map(value_path, sent))
    first, second = map(value_path, sent)  # neither was read a second time
    assert named == [(first,), (second,), (first,), (), (), (first,)]


class Fresh:
    """Pickled by an array that is made for it, and that is gone afterwards: the next one may lie in its place."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __reduce__(self) -> Any:
        return bytes, (array(self.seed),)


def test_arrays_that_lay_in_the_same_place_one_after_the_other_are_not_taken_for_each_other(
    values: ArgumentValues,
) -> None:
    with Packing(lambda: values) as packing:
        pages = list(make_pages([Fresh(seed) for seed in range(8)], apart=packing))
        assert [load_pickle(page.data)[0] for page in pages] == [bytes(array(seed)) for seed in range(8)]


class MadeAnew:
    """Its state is an array that exists only while it is pickled."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __getstate__(self) -> dict[str, Any]:
        return {"seed": 0, "made": array(self.seed)}


def test_an_array_that_exists_only_while_it_is_pickled_counts_by_its_content(values: ArgumentValues) -> None:
    def key(*seeds: int) -> bytes | None:
        args = (*map(MadeAnew, seeds), array(9))
        with Packing(lambda: values) as packing:
            pack_arguments(args, {}, apart=packing)
            return argument_digest(args)

    digests = [key(1, 2), key(1, 3), key(2, 1), key(2, 2)]
    assert len(set(digests)) == 4
    assert None not in digests
    assert key(1, 2) == digests[0]


def test_a_call_that_is_cancelled_elsewhere_needs_its_buffers_no_more(values: ArgumentValues) -> None:
    registry = TaskRegistry()
    registry.values = values
    registry.progress.set_root(1)
    registry.progress.added(1, 1)
    registry.tasks[3] = task = Task(registry, 3, "f", 1)
    kept = values.keep(array(1).data)
    values.hold(3, 0, 1, [kept])
    values.let_go([kept])
    registry.on_messages([TasksFailed(RecordId(3), 0, 1, 1, Failure(Cause.CANCELLED, "cancelled"))])
    assert task.cancelled()
    until(lambda: kept.is_gone)
