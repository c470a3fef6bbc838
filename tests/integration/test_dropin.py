"""A session in the place of a `ProcessPoolExecutor`: what programs written for one give it, and expect of it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any

import pytest

from bough import NotRun, Session, TaskFailed, UserError, product

PATIENCE = 60


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(2, store=tmp_path_factory.mktemp("store"), on_failure="ignore") as session:
        yield session


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


# --- what a session takes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"corse": 3}, TypeError, "Session has no option 'corse'; did you mean cores?"),
        ({"zzz": 3}, TypeError, "Session has no option 'zzz'; it has address, "),
        ({"mp_context": None}, TypeError, "leave it out"),
        ({"max_workers": 0}, ValueError, "max_workers must be greater than 0"),
        ({"max_workers": "2"}, TypeError, "max_workers is '2'"),
        ({"max_workers": True}, TypeError, "max_workers is True"),
        ({"address": True}, TypeError, "address is True"),
        ({"address": -1}, ValueError, "max_workers must be greater than 0"),
        ({"address": 2, "max_workers": 3}, ValueError, "give one"),
        ({"cores": 2, "max_workers": 3}, ValueError, "they mean the same"),
        ({"cores": -1}, ValueError, "cores is -1"),
        ({"name": ""}, ValueError, "name is ''"),
        ({"initializer": 3}, TypeError, "initializer must be a callable"),
        ({"initializer": print, "initargs": "ab"}, TypeError, "initargs is 'ab'"),
        ({"initializer": print, "initargs": [threading.Lock()]}, pickle.PicklingError, "cannot be sent"),
        ({"sites": ["local", "cluster"]}, ValueError, "there is no site 'cluster'"),
        ({"reuse": "sometimes"}, ValueError, "reuse is 'sometimes'"),
        ({"reuse": "always", "fresh": True}, ValueError, "contradict each other"),
        ({"fresh": "maybe"}, TypeError, "fresh is 'maybe'"),
        ({"echo": "loud"}, TypeError, "echo is 'loud'"),
        ({"fail_fast": 3}, TypeError, "fail_fast is 3"),
        ({"on_failure": "cry"}, ValueError, "on_failure is 'cry'"),
        ({"store": ""}, ValueError, "store is ''"),
        ({"address": "no:where:at:all"}, ValueError, "neither unix:PATH, nor HOST:PORT"),
        ({"sites": 3}, TypeError, "sites is 3"),
        ({"preload": 3}, TypeError, "preload is 3"),
        ({"policy": "nope"}, ValueError, "there is no placement policy 'nope'"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    given: dict[str, Any], kind: type[Exception], message: str, here: Path
) -> None:
    with pytest.raises(UserError) as raised:
        Session(**given)
    assert isinstance(raised.value, kind)
    assert message in str(raised.value)
    assert not list(here.iterdir())  # nothing was begun


REFUSED: list[tuple[Callable[[Session], object], type[Exception], str]] = [
    (lambda s: s.command(""), ValueError, "the command is empty"),
    (lambda s: s.command("true", retires=2), ValueError, "no slot uses parameter retires .*did you mean retries"),
    (lambda s: s.command("true", clash="x"), ValueError, "clash is 'x'"),
    (lambda s: s.command("true", cwd=3), TypeError, "cwd is 3"),
    (lambda s: s.command("true", after=["x"]), TypeError, "after holds 'x'"),
    (lambda s: s.command("true", memory="900TB"), ValueError, "this can never run"),
    (lambda s: s.command("echo {x}", y=3), ValueError, "needs a parameter x"),
    (lambda s: s.options(retires=2), TypeError, "did you mean retries"),
    (lambda s: s.map(abs), ValueError, "at least one iterable"),
    (lambda s: s.map(abs, [1]).results(errors="x"), ValueError, "errors is 'x'"),
    (lambda s: s.sweep("echo {i}", 3), ValueError, "a sweep runs over"),
    (lambda s: s.sweep("echo {i}", product(i=[1]), memroy="4GB"), ValueError, "did you mean memory"),
    (lambda s: s.group("a/b"), ValueError, "a group's name"),
    (lambda s: s.find("?????"), ValueError, "names no task"),
    (lambda _: Session(policy="nope"), ValueError, "there is no placement policy 'nope'"),
    (lambda s: s.find("5-3"), ValueError, "ends before it begins"),
]


def test_a_bad_value_is_also_a_value_error_wherever_it_is_given(here: Path) -> None:
    with Session(1) as session:
        for give, kind, message in REFUSED:
            with pytest.raises(kind, match=message) as raised:
                give(session)
            assert isinstance(raised.value, UserError), message


@pytest.mark.parametrize(
    "given",
    [
        lambda s: s.command("true", corse=2),
        lambda s: s.options(corse=2),
        lambda s: s.group("g", corse=2),
        lambda s: s.feed(abs, [1], corse=2),
    ],
    ids=["command", "options", "group", "feed"],
)
def test_a_misspelt_option_is_refused_everywhere(shared: Session, given: Callable[[Session], Any]) -> None:
    with pytest.raises(UserError, match="corse"):
        given(shared)


def test_options_in_the_place_of_arguments_are_refused_unless_the_function_takes_them(shared: Session) -> None:
    with pytest.raises(TypeError, match=r"abs takes no cores; .*: s\.options\(cores=\.\.\.\)\.submit"):
        shared.submit(abs, -1, cores=2)
    with pytest.raises(TypeError, match=r"map has no option 'retries'; .*: s\.options\(retries=\.\.\.\)\.map"):
        shared.map(abs, [-1], retries=2)  # type: ignore[arg-type]
    assert shared.submit(lambda cores: cores, cores=3).result(PATIENCE) == 3
    assert shared.submit(lambda **given: given, retries=3).result(PATIENCE) == {"retries": 3}
    assert shared.submit(dict, name="x").result(PATIENCE) == {"name": "x"}


def test_a_number_of_workers_is_taken_as_a_pool_takes_it(here: Path) -> None:
    with Session(3, max_workers=3, sites=["local"]) as session:
        assert (session.cores, session._max_workers) == (3, 3)
        assert session.submit(os.getpid).result(PATIENCE) != os.getpid()
    with pytest.raises(RuntimeError, match="shut down"):
        session.submit(abs, 1)


def test_what_cannot_travel_is_told_by_the_future(shared: Session) -> None:
    task = shared.submit(str, threading.Lock())
    error = task.exception(PATIENCE)
    assert isinstance(error, pickle.PicklingError)
    assert isinstance(error, UserError)
    assert "argument 1 of str" in str(error)
    assert (task.state, task.done()) == ("failed", True)
    assert "never sent" in task.explain()
    after = shared.submit(len, task)
    with pytest.raises(NotRun, match="could not be sent"):
        after.result(PATIENCE)
    assert after.state == "skipped"


# --- an initializer ---------------------------------------------------------------------------------------

SCRIPT = """
import os, bough
COLOUR, COUNT = "none", 0

def init(colour, log):
    global COLOUR
    COLOUR = colour
    helper()
    with open(log, "a") as file:
        file.write(f"{os.getpid()}\\n")

def helper():
    global COUNT
    COUNT += 1

def colour(): return COLOUR, COUNT
def other(x): return colour()[0] + str(x)

with bough.Session(2, name="init", initializer=init, initargs=("red", "log")) as session:
    tasks = [session.submit(colour) for _ in range(20)]
    assert {task.result() for task in tasks} == {("red", 1)}, [task.result() for task in tasks]
    assert list(session.map(other, range(3))) == ["red0", "red1", "red2"]
    assert list(session.feed(other, iter([5])).results()) == ["red5"]
pids = open("log").read().split()
assert len(pids) == len(set(pids)) <= 2, pids
print("as it should be")
"""


def test_an_initializer_of_a_script_runs_once_in_each_worker_and_sets_its_globals(here: Path) -> None:
    (here / "script.py").write_text(SCRIPT)
    for _ in range(2):  # and again, when there are results of an earlier run
        done = subprocess.run([sys.executable, "script.py"], cwd=here, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("as it should be\n", "")
        (here / "log").unlink()


def test_an_initializer_that_fails_breaks_the_calls_and_not_the_commands(here: Path) -> None:
    def init() -> None:
        raise KeyError("no such colour")

    with Session(1, initializer=init) as session:
        for _ in range(2):
            error = session.submit(abs, -1).exception(PATIENCE)
            assert isinstance(error, BrokenProcessPool)
            assert isinstance(error, TaskFailed)
            assert "the session's initializer failed in a worker: KeyError: 'no such colour'" in str(error)
            assert "in init" in str(error.__cause__)
        assert session.command("echo fine").result(PATIENCE).stdout == "fine\n"


def test_an_initializer_that_ends_its_worker_fails_the_call(here: Path) -> None:
    with Session(1, initializer=os._exit, initargs=(4,)) as session:
        error = session.submit(abs, -1).exception(PATIENCE)
    assert isinstance(error, BrokenExecutor)
    assert "exit code 4" in str(error)


# --- workers that die -------------------------------------------------------------------------------------


def test_a_function_that_kills_its_worker_is_not_tried_again(shared: Session, tmp_path: Path) -> None:
    def die(how: str) -> None:
        with open(tmp_path / how, "a") as log:
            log.write("x")
        os._exit(7) if how == "exits" else os.kill(os.getpid(), signal.SIGSEGV)

    exits, crashes = shared.submit(die, "exits"), shared.submit(die, "crashes")
    error = exits.exception(PATIENCE)
    assert isinstance(error, TaskFailed)
    assert isinstance(error, BrokenProcessPool)
    assert (error.returncode, error.signal) == (7, None)
    assert "exit code 7" in str(error)
    assert "retries" in str(error)
    error = crashes.exception(PATIENCE)
    assert isinstance(error, TaskFailed)
    assert (error.returncode, error.signal) == (None, signal.SIGSEGV)
    assert "SIGSEGV" in str(error)
    assert type(pickle.loads(pickle.dumps(error))) is type(error)
    assert (tmp_path / "exits").read_text() == (tmp_path / "crashes").read_text() == "x"


def test_with_retries_it_is_tried_again(shared: Session, tmp_path: Path) -> None:
    def die_twice() -> int:
        with open(tmp_path / "log", "a") as log:
            log.write("x")
        if (tmp_path / "log").stat().st_size < 3:
            os._exit(7)
        return 5

    task = shared.options(retries=2).submit(die_twice)
    assert task.result(PATIENCE) == 5
    assert task.attempts == 3


def test_the_others_of_a_map_are_not_harmed(shared: Session) -> None:
    found = shared.map(lambda x: os._exit(3) if x == 50 else x, range(100)).results("return")
    assert isinstance(found[50], BrokenExecutor)
    assert found[:50] + found[51:] == [*range(50), *range(51, 100)]


# --- what map returns -------------------------------------------------------------------------------------


def test_an_iteration_goes_on_where_it_was(shared: Session) -> None:
    values = shared.map(abs, range(-5, 0))
    assert next(values) == 5
    assert next(iter(values)) == 4
    for value in values:
        assert value == 3
        break
    assert list(values) == [2, 1]
    assert next(values, None) is None
    assert list(values) == [5, 4, 3, 2, 1]  # it is an array too: all was given, so a new one begins


def test_an_iteration_that_was_zipped_to_its_end_begins_anew(shared: Session) -> None:
    values = shared.map(abs, range(-3, 0))
    assert dict(zip("abc", values, strict=False)) == {"a": 3, "b": 2, "c": 1}
    assert list(values) == [3, 2, 1]


class Gate:
    """Holds the tasks of a map up, but for the first."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gate"
        self.log = folder / "log"

    def wait(self, x: int) -> int:
        while x and not self.path.exists():
            time.sleep(0.01)
        if x == -1:
            raise ValueError("stop here")
        with open(self.log, "a") as log:
            log.write(f"{x}\n")
        return x

    def open(self) -> None:
        self.path.touch()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path)
    yield made
    made.open()


COUNT = 200


def cancelled(session: Session, before: int) -> int:
    return session.progress.counts()["cancelled"] - before


@pytest.mark.parametrize("how", ["broken off", "deleted", "closed", "timed out", "failed"])
def test_an_iteration_nobody_goes_on_with_cancels_what_has_not_started(shared: Session, gate: Gate, how: str) -> None:
    before = shared.progress.counts()["cancelled"]
    wait = gate.wait
    if how == "broken off":
        for _ in shared.map(wait, range(COUNT)):
            break
    elif how == "deleted":
        values = shared.map(wait, range(COUNT))
        next(values)
        del values
    elif how == "closed":
        values = shared.map(wait, range(COUNT))
        values.close()
        assert list(values.queued()) == []
    elif how == "timed out":
        with pytest.raises(TimeoutError):
            list(shared.map(wait, range(COUNT), timeout=0.5))
    else:
        values = shared.map(wait, [0, -1, *range(2, COUNT)])
        assert next(values) == 0
        threading.Timer(0.2, gate.open).start()
        with pytest.raises(ValueError, match="stop here"):
            next(values)
        assert next(values, None) is None
        until(lambda: not values.queued(), "the end of all")
        return
    until(lambda: cancelled(shared, before) >= COUNT - 10, "the others to be cancelled")


def test_a_closed_iteration_gives_no_more_as_a_generator_would(shared: Session) -> None:
    fed = shared.feed(str.upper, iter("abcdef"), keep=False)
    tasks = shared.map(str.upper, [shared.submit(str.lower, letter) for letter in "ABC"])
    for values in (shared.map(str.upper, "abc"), tasks, fed):
        assert next(values) == "A"
        values.close()
        assert list(values) == []
        assert next(values, None) is None
        values.close()
    for values in (shared.map(str.upper, "abc"), shared.feed(str.upper, iter("abc"), keep=False)):
        seen = []
        for value in values:
            seen.append(value)
            values.close()
        assert seen == ["A"]
    whole = shared.map(str.upper, "abc")
    assert (list(whole), list(whole)) == (["A", "B", "C"], ["A", "B", "C"])
    whole.close()
    assert list(whole) == []
    assert whole[2].result() == "C"


def test_failures_behind_one_that_an_iteration_told_are_not_told_again(here: Path, gate: Gate) -> None:
    def fail(x: int) -> None:
        gate.wait(x)
        raise ValueError(x)

    with Session(2) as session:  # its end would raise what nobody looked at
        values = session.map(fail, range(2))
        until(lambda: values.running() and values.failed(), "one to fail while the other runs")
        with pytest.raises(ValueError, match="0"):
            next(values)
        gate.open()
    assert len(values.failed()) == 2


def test_a_map_that_is_used_otherwise_is_not_cancelled_with_its_iteration(shared: Session, gate: Gate) -> None:
    before = shared.progress.counts()["cancelled"]
    values = shared.map(gate.wait, range(20))
    total = shared.submit(sum, values)
    assert next(values) == 0
    del values
    gate.open()
    assert total.result(PATIENCE) == sum(range(20))
    assert cancelled(shared, before) == 0


def test_a_map_that_is_held_goes_on_when_a_loop_over_it_ends(shared: Session, gate: Gate) -> None:
    values = shared.map(gate.wait, range(20))
    for value in values:
        assert value == 0
        break
    gate.open()
    assert values.results(timeout=PATIENCE) == list(range(20))


def test_a_map_that_nobody_iterates_over_runs_to_its_end(here: Path, gate: Gate) -> None:
    gate.open()
    with Session(1) as session:
        session.map(gate.wait, range(20))
    assert sorted(map(int, gate.log.read_text().split())) == list(range(20))


def test_a_map_over_tasks_ends_in_the_same_ways(shared: Session, gate: Gate) -> None:
    first = shared.submit(int)
    assert first.result(PATIENCE) == 0  # else the gate may hold up both workers before the first element is ready
    values = shared.map(gate.wait, [first, *range(1, 20)])
    assert next(values) == 0
    assert len(values) == 20
    before = shared.progress.counts()["cancelled"]
    del values
    until(lambda: cancelled(shared, before) >= 15, "the others to be cancelled")


# --- arguments --------------------------------------------------------------------------------------------


def test_proxies_of_managers_travel_and_their_keys_stay_here(here: Path) -> None:
    class Own(BaseManager):
        pass

    Own.register("make_dict", dict)
    with multiprocessing.Manager() as manager, Own(authkey=b"a key of its own") as own, Session(2) as session:
        queue, lock, others = manager.Queue(), manager.Lock(), own.make_dict()  # type: ignore[attr-defined]

        def put(x: int, queue: Any, inside: dict[str, Any]) -> None:
            with inside["lock"]:
                queue.put(x)

        tasks = [session.submit(put, x, queue, {"lock": lock}) for x in range(4)]
        assert [task.result(PATIENCE) for task in tasks] == [None] * 4
        assert list(session.map(queue.put, range(4, 6))) == [None, None]
        assert sorted(queue.get(timeout=PATIENCE) for _ in range(6)) == list(range(6))
        session.submit(lambda d: d.update(x=1), others).result(PATIENCE)
        assert others.copy() == {"x": 1}
        keys = [bytes(multiprocessing.current_process().authkey), b"a key of its own"]
        for path in here.rglob("*"):
            assert not path.is_file() or not any(key in path.read_bytes() for key in keys)


def test_a_proxy_whose_manager_is_gone_is_told(shared: Session) -> None:
    from bough.executor.worker import manager_proxy

    def rebuild() -> object:
        return manager_proxy.rebuild_proxy(("elsewhere", "/nonexistent/socket"), 0, dict, ({},))

    with pytest.raises(Exception, match="its manager answers only on elsewhere"):
        shared.submit(rebuild).result(PATIENCE)


def test_futures_of_others_are_waited_for(shared: Session, here: Path) -> None:
    given: Future[int] = Future()
    with ThreadPoolExecutor(1) as threads, Session(1, name="second") as second:
        slow = shared.submit(lambda a, b: a + b[0], given, [threads.submit(lambda: 5)])
        behind = shared.submit(lambda x: -x, slow)
        abroad = second.submit(str, behind)
        many = shared.map(lambda x: 2 * x, [given, 7])
        assert (slow.state, behind.state, abroad.state) == ("waiting",) * 3
        assert "futures of another executor" in slow.explain()
        given.set_result(1)
        assert (slow.result(PATIENCE), behind.result(PATIENCE), abroad.result(PATIENCE)) == (6, -6, "-6")
        assert list(many) == [2, 14]
        with shared.group("with-futures"):
            assert shared.submit(str, threads.submit(lambda: 8)).result(PATIENCE) == "8"


def test_a_future_of_others_that_fails_or_is_cancelled_is_told(shared: Session) -> None:
    bad: Future[int] = Future()
    waits = shared.submit(str, bad)
    bad.set_exception(ValueError("no value"))
    with pytest.raises(NotRun, match="ValueError: no value"):
        waits.result(PATIENCE)
    gone: Future[int] = Future()
    gone.cancel()
    with pytest.raises(NotRun, match="CancelledError"):
        shared.submit(str, gone).result(PATIENCE)
    never = shared.submit(str, Future())
    depends = shared.submit(str, never)
    assert never.cancel()
    assert never.cancelled()
    with pytest.raises(NotRun, match="it waits for <task"):
        depends.result(PATIENCE)


def test_a_session_waits_for_futures_of_others_at_its_end(here: Path) -> None:
    given: Future[int] = Future()
    with Session(1) as session:
        task = session.submit(str, given)
        session.submit(str, Future()).cancel()  # nobody waits for this one
        threading.Timer(0.2, given.set_result, (3,)).start()
    assert task.result(PATIENCE) == "3"


# --- the end of a script, of which CPython's tests need the name of the class -------------------------------


@pytest.mark.parametrize("ending", ["", "session.shutdown(wait=False)"])
def test_a_script_that_just_ends_waits_for_what_it_submitted(here: Path, ending: str) -> None:
    source = f"""
import bough, time
def write(path):
    time.sleep(0.3)
    open(path, "w").close()
session = bough.Session(5)
session.submit(write, "apple")
{ending}
"""
    (here / "ends.py").write_text(source)
    done = subprocess.run([sys.executable, "ends.py"], cwd=here, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (here / "apple").exists()


def test_all_that_the_errors_promise_is_there() -> None:
    from bough import errors

    assert issubclass(errors.WorkerDied, (BrokenProcessPool, TaskFailed))
    assert isinstance(errors, types.ModuleType)
    with pytest.raises(AttributeError):
        errors.__getattr__("Nothing")
