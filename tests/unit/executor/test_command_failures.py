"""What a failed command is said to have died of."""

from __future__ import annotations

import errno
import signal

import pytest

from bough.errors import SiteError, UserError
from bough.executor.host.processes import Unstartable
from bough.executor.worker.commands.command_failures import (
    exit_message,
    failure_of,
    not_started,
    unstartable,
    with_stderr,
)
from bough.model.outcomes import Cause, Failure


def test_a_signal_and_an_exit_code_are_told_apart() -> None:
    killed, left = failure_of(int(signal.SIGKILL), ""), failure_of(3 << 8, "")
    assert (killed.cause, killed.signal, killed.message) == (Cause.SIGNAL, 9, "killed by signal 9 (SIGKILL)")
    assert (left.cause, left.exit_code, left.message) == (Cause.EXIT, 3, "exit code 3")


def test_a_signal_without_a_name_has_its_number() -> None:
    assert failure_of(33, "").message == "killed by signal 33 (SIG33)"


def test_a_full_disk_is_named_with_the_exit_code() -> None:
    assert failure_of(1 << 8, "/data").message == "exit code 1; the disk of /data was full"


@pytest.mark.parametrize(
    ("code", "words"), [(137, "ended by SIGKILL"), (141, "set +o pipefail"), (255, "exit code 255")]
)
def test_an_exit_code_that_a_shell_made_of_a_signal_is_explained(code: int, words: str) -> None:
    assert words in exit_message(code)


def test_what_the_site_lacks_is_told_by_stderr() -> None:
    failure = Failure(Cause.EXIT, "exit code 127", exit_code=127)
    assert with_stderr(failure, "sh: 1: blastp: not found").site
    assert not with_stderr(failure, "").site


def test_what_keeps_a_command_from_starting_is_the_sites_unless_its_user_can_mend_it() -> None:
    assert unstartable(SiteError("it is away", transient=True)).of_site
    assert not unstartable(SiteError("there is no such file", transient=False)).of_site
    assert not unstartable(UserError("no such scheme")).of_site
    assert unstartable(OSError(errno.ENOSPC, "full")).full


def test_a_command_that_could_not_start_says_why() -> None:
    assert not_started(Unstartable("no room", full=True)).cause is Cause.NO_SPACE
    assert not_started(Unstartable("it is gone", lost="x.txt")).cause is Cause.INPUT_LOST
    assert not_started(Unstartable("no shell", of_site=True)) == Failure(Cause.NOT_STARTED, "no shell", site=True)
