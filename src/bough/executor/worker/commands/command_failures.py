"""Why a command failed, as its user reads it: exit codes, signals, a full disk, and what kept it from starting.

Rule: what may be the site's doing, and not the command's, says so: it is tried elsewhere.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import Final

import msgspec

from bough.errors import SiteError, UserError
from bough.executor.host.disk_space_wait import is_full, lacks_space
from bough.executor.host.processes import Unstartable
from bough.executor.worker.serialisation import speaks_of_site
from bough.model.outcomes import Cause, Failure

OF_DISK: Final = frozenset({Cause.EXIT, Cause.MISSING_OUTPUT})  # failures that a full disk may be the reason of
_OF_SIGNAL: Final = 128  # a shell adds it to the number of the signal that ended a program
_BROKEN_PIPE: Final = _OF_SIGNAL + signal.SIGPIPE
_SIGNALS: Final = frozenset(map(int, signal.Signals))


def failure_of(status: int, full_folder: str) -> Failure:
    """That of a command which ended with a status that is not 0; `full_folder`: whose disk is full, if one is."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return Failure(Cause.SIGNAL, f"killed by signal {number} ({_signal_name(number)})", signal=number)
    code = os.WEXITSTATUS(status)
    reason = f"; the disk of {full_folder} was full" if full_folder else ""
    return Failure(Cause.EXIT, exit_message(code) + reason, exit_code=code)


def exit_message(code: int) -> str:
    """An exit code in a line; those that a shell makes of signals are explained, for nobody knows them by heart."""
    if code == _BROKEN_PIPE:
        return (
            f"exit code {code} (SIGPIPE: a program wrote into a pipe whose reader had ended, as in yes | head -1;"
            " if that is right, put 'set +o pipefail;' before the command)"
        )
    number = code - _OF_SIGNAL
    if number in _SIGNALS:
        return f"exit code {code} (a program that the shell started was ended by {_signal_name(number)})"
    return f"exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def for_want_of_space(failure: Failure, folder: str) -> Failure:
    """A failure in a folder as it is meant: where the disk is full, the command may run well when that is not."""
    if failure.cause not in OF_DISK or not lacks_space(folder):
        return failure
    return Failure(Cause.NO_SPACE, f"the disk of {folder} was full: {failure.message}")


def of_full_folder(failure: Failure, folder: str, tail: str) -> Failure:
    """A failure in the submitter's directory as it is meant; `folder`: whose disk is full; `tail`: of standard error.

    The disk may have space again by now, because another command has ended: what it said then counts as well.
    """
    if failure.cause not in OF_DISK or not (folder or os.strerror(errno.ENOSPC) in tail):
        return failure
    return Failure(Cause.NO_SPACE, failure.message if folder else f"{failure.message}; a disk was full")


def with_stderr(failure: Failure, tail: str) -> Failure:
    """A failure with what the command wrote last, which may say that it is the site's."""
    site = failure.cause is Cause.EXIT and speaks_of_site(tail, failure.exit_code)
    return msgspec.structs.replace(failure, stderr=tail, site=site)


def unstartable(error: Exception) -> Unstartable:
    """What a command's inputs at URLs ran into, as a reason not to start it."""
    if isinstance(error, Unstartable):
        return error
    of_site = not isinstance(error, UserError) and not (isinstance(error, SiteError) and not error.transient)
    full = isinstance(error, OSError) and is_full(error)
    return Unstartable(f"its input cannot be brought: {error}", of_site=of_site, full=full)


def not_started(error: Unstartable) -> Failure:
    """That of a command which could not be started."""
    if error.full:
        return Failure(Cause.NO_SPACE, str(error))
    cause = Cause.INPUT_LOST if error.lost else Cause.NOT_STARTED
    return Failure(cause, str(error), site=error.of_site, lost=error.lost)
