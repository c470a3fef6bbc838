"""CPython's own tests of `concurrent.futures`, from the installed `test` package, with sessions in the pool's place."""

from __future__ import annotations

import importlib
import itertools
import multiprocessing
import pickle
import sys
import types
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bough import Session

DEBIAN = f"/usr/lib/python{sys.version_info[0]}.{sys.version_info[1]}/test"  # beside an interpreter that has no tests
PARTS = ("util", "executor", "test_process_pool", "test_init", "test_wait", "test_as_completed", "test_shutdown")
MISSING = f"CPython's test package is not installed: apt-get install libpython3.{sys.version_info[1]}-testsuite"


def _find_theirs() -> types.SimpleNamespace | None:
    """Everything that their tests define: one module up to Python 3.11, a package since."""
    found: dict[str, Any] = {}
    try:
        home = importlib.import_module("test.test_concurrent_futures")
    except ImportError:
        if not Path(DEBIAN, "test_concurrent_futures.py").exists():
            return None
        sys.path.append(DEBIAN)  # workers must find it too
        home = importlib.import_module("test_concurrent_futures")
    found |= vars(home)
    if hasattr(home, "__path__"):
        for part in (*PARTS, "test_deadlock", "test_future"):
            found |= vars(importlib.import_module(f"{home.__name__}.{part}"))
    return types.SimpleNamespace(**found)


theirs: Any = _find_theirs()
if theirs is None:
    pytest.skip(MISSING, allow_module_level=True)

_numbers = itertools.count(1)


class InItsPlace(Session):
    """A session that takes what the tests give to a pool, in a store of its own."""

    def __init__(self, max_workers: int | None = None, mp_context: object = None, **options: Any) -> None:
        super().__init__(max_workers=max_workers, name=f"pool-{next(_numbers)}", **options)


class SessionMixin(theirs.ExecutorMixin):  # type: ignore[misc,name-defined]
    executor_type = InItsPlace

    def get_context(self) -> Any:
        return multiprocessing.get_context("spawn")


CASES = {
    name: type(name, (getattr(theirs, name), SessionMixin, theirs.BaseTestCase), {"__module__": __name__})
    for name in (
        *("InitializerMixin", "FailingInitializerMixin", "ProcessPoolShutdownTest", "WaitTests", "AsCompletedTests"),
        *("ProcessPoolExecutorTest", "ExecutorDeadlockTest"),
    )
}

INSIDES = "it looks into the pool's own attributes: its processes, its queues, its manager thread"
SCRIPT = "it runs a script that imports the pool by its class name from concurrent.futures; we have tests of our own"
ONE = "a worker that dies, or cannot start, costs the tasks it had; the session goes on and takes more"
UNREAD = "what cannot be unpickled fails its own task, by NotPicklable: no worker dies of it"
LEFT_OUT = {
    "test_traceback": INSIDES,
    "test_error_at_task_unpickle": UNREAD,
    "test_exit_at_task_unpickle": UNREAD,
    "test_error_during_result_unpickle_in_result_handler": UNREAD,
    "test_exit_during_result_unpickle_in_result_handler": UNREAD,
    "test_exit_during_result_pickle_on_worker": "a result that ends the process while it is pickled is a NotPicklable",
    "test_shutdown_deadlock_pickle": INSIDES,
    "test_python_finalization_error": INSIDES,  # since 3.13
    "FailingInitializerMixin.test_initializer": ONE,
    "test_killed_child": INSIDES,
    "test_cancel_futures": "all 50 are cancelled: none has started within a millisecond",
    "test_context_manager_shutdown": INSIDES,
    "test_del_shutdown": INSIDES,
    "test_shutdown_no_wait": INSIDES,
    "test_processes_terminate": INSIDES,
    "test_idle_process_reuse_one": INSIDES,
    "test_idle_process_reuse_multiple": INSIDES,
    "test_max_tasks_early_shutdown": "there is no max_tasks_per_child",
    "test_max_tasks_per_child": "there is no max_tasks_per_child",
    "test_max_tasks_per_child_defaults_to_spawn_context": "there is no max_tasks_per_child",
    "test_saturation": INSIDES,
    "test_hang_gh83386": SCRIPT,
    "test_interpreter_shutdown": SCRIPT,
    "test_submit_after_interpreter_shutdown": SCRIPT,
}


def _names() -> Iterator[tuple[str, str]]:
    for case, kind in CASES.items():
        for name in unittest.defaultTestLoader.getTestCaseNames(kind):
            yield case, name


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("case", "name"), list(_names()))
def test_what_cpython_asks_of_a_process_pool_holds_for_a_session(case: str, name: str) -> None:
    reason = LEFT_OUT.get(name) or LEFT_OUT.get(f"{case}.{name}")
    if reason:
        pytest.skip(reason)
    result = unittest.TestResult()
    CASES[case](name).run(result)
    if result.skipped:
        pytest.skip(result.skipped[0][1])
    problems = [text for _, text in (*result.errors, *result.failures)]
    assert not problems, problems[0]


def test_what_is_left_out_exists() -> None:
    there = {name for case, name in _names()} | {f"{case}.{name}" for case, name in _names()}
    assert set(LEFT_OUT) - there <= {"test_python_finalization_error"}


@pytest.mark.parametrize("kind", ["ErrorAtPickle", "ExitAtPickle", "ErrorAtUnpickle", "ExitAtUnpickle"])
def test_a_result_that_cannot_travel_is_told_and_the_session_goes_on(kind: str) -> None:
    with Session(1, name="results") as session:
        with pytest.raises(pickle.PicklingError):
            session.submit(theirs._return_instance, getattr(theirs, kind)).result(60)
        assert session.submit(abs, -1).result(60) == 1


@pytest.mark.parametrize("kind", ["ErrorAtUnpickle", "ExitAtUnpickle"])
def test_an_argument_that_cannot_be_read_is_told_and_the_session_goes_on(kind: str) -> None:
    with Session(1, name="arguments") as session:
        with pytest.raises(pickle.PicklingError):
            session.submit(id, getattr(theirs, kind)()).result(60)
        assert session.submit(abs, -1).result(60) == 1
