"""CPython's own tests of `subprocess`, from the installed `test` package, with the driver in `subprocess`' place."""

from __future__ import annotations

import os
import subprocess
import sys
import types
import unittest
from collections.abc import Iterator

import pytest

from bough import driver

theirs = pytest.importorskip(
    "test.test_subprocess", reason="CPython's test package is not installed: apt-get install libpython3.11-testsuite"
)

CASES = ("ProcessTestCase", "RunFuncTestCase", "POSIXProcessTestCase", "ContextManagerTests", "MiscTests")

# Those that cannot make sense for a process that is not a child of the caller; docs/howto/driver.md says why.
CHILD = "it calls or fakes what only the parent of a process can do: waitpid, getppid, fork, the module's own insides"
PREEXEC = "preexec_fn would run in a child of the caller"
DESCRIPTORS = "descriptors beyond the three standard streams do not travel"
USERS = "a task runs as the user of its executor"
OWN = "it closes the caller's own streams, whose numbers descriptors of the session may take"
LEFT_OUT = {
    "test_swap_std_fds_with_one_closed": OWN,
    "test__use_vfork": CHILD,
    "test__all__": CHILD,
    "test_call_keyboardinterrupt_no_kill": CHILD,
    "test_context_manager_keyboardinterrupt_no_kill": CHILD,
    "test_run_keyboardinterrupt_no_kill": CHILD,
    "test_communicate_eintr": CHILD,
    "test_leak_fast_process_del_killed": CHILD,
    "test_zombie_fast_process_del": CHILD,
    "test_send_signal_race": CHILD,
    "test_stopped": CHILD,
    "test_close_fds_after_preexec": PREEXEC,
    "test_preexec": PREEXEC,
    "test_preexec_errpipe_does_not_double_close_pipes": PREEXEC,
    "test_preexec_exception": PREEXEC,
    "test_preexec_fork_failure": PREEXEC,
    "test_preexec_gc_module_failure": PREEXEC,
    "test_surrogates_error_message": PREEXEC,
    "test_close_fds": DESCRIPTORS,
    "test_pass_fds": DESCRIPTORS,
    "test_pass_fds_inheritable": DESCRIPTORS,
    "test_pass_fds_redirected": DESCRIPTORS,
    "test_extra_groups": USERS,
    "test_extra_groups_empty_list": USERS,
    "test_group": USERS,
    "test_user": USERS,
    "test_undecodable_env": "what is not UTF-8 cannot be sent to a server",
}


class _InItsPlace(types.ModuleType):
    """What the tests find under the name of `subprocess`: the driver's names, and the rest of the module's."""

    def __getattr__(self, name: str) -> object:
        return getattr(driver if name in driver.__all__ else subprocess, name)


def _names() -> Iterator[tuple[str, str]]:
    for case in CASES:
        for name in unittest.defaultTestLoader.getTestCaseNames(getattr(theirs, case)):
            yield case, name


@pytest.fixture(scope="module", autouse=True)
def in_its_place() -> Iterator[None]:
    before, theirs.subprocess = theirs.subprocess, _InItsPlace("subprocess")
    yield
    theirs.subprocess = before
    driver.close()


@pytest.mark.parametrize(("case", "name"), list(_names()))
def test_what_cpython_asks_of_subprocess_holds_for_the_driver(
    case: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    if name in LEFT_OUT:
        pytest.skip(LEFT_OUT[name])
    result = unittest.TestResult()
    with capfd.disabled():  # some of them give their own streams away
        getattr(theirs, case)(name).run(result)
    if result.skipped:
        pytest.skip(result.skipped[0][1])
    problems = [text for _, text in (*result.errors, *result.failures)]
    assert not problems, problems[0]


def test_what_is_left_out_exists() -> None:
    there = {name for _, name in _names()}
    new = {"test_extra_groups_empty_list"} if sys.version_info < (3, 12) else set()
    assert set(LEFT_OUT) - new <= there
    assert os.name == "posix"
