from __future__ import annotations

import errno

import pytest

from bough.executor.worker.serialisation import is_site_failure, speaks_of_site


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ESTALE, errno.EIO, errno.EMFILE])
def test_what_the_system_says_of_the_place_is_blamed_on_it(number: int) -> None:
    assert is_site_failure(OSError(number, "said"))


def test_what_a_function_does_wrong_is_its_own_fault() -> None:
    assert not is_site_failure(OSError(errno.ENOENT, "said"))
    assert not is_site_failure(ValueError(errno.ENOSPC))


@pytest.mark.parametrize(
    ("stderr", "code", "expected"),
    [
        ("head: error writing 'standard output': No space left on device\n", 1, True),
        ("cat: x: Stale file handle\n", 1, True),
        ("bash: line 1: blastp: command not found\n", 127, True),
        ("sh: 1: blastp: not found\n", 127, True),
        ("sequence not found\n", 1, False),
        ("", 127, False),
    ],
)
def test_must_leave_of_a_command_tell_whose_fault_it_is(stderr: str, code: int, expected: bool) -> None:
    assert speaks_of_site(stderr, code) is expected
