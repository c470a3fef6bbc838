"""Waiting for space where the store lies: a full store delays every writer and fails none.

A disk that is the executor's own is another matter: what cannot be written there is a failure of the site, and its
task goes elsewhere. A worker's writers mark that they wait in the shared memory: so the executor tells the server, and
the server the user. Rule: a writer that waits says so once, tries again every half second, and stops waiting when its
outcome is not wanted any more.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable
from typing import Final, TypeVar

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
TRY_AGAIN: Final = 0.5  # seconds
_LITTLE: Final = 1 << 16  # bytes free, under which a disk counts as full where the error itself was not seen
_SAY_AGAIN: Final = 60.0  # seconds between two words about it

T = TypeVar("T")


class GivenUp(Exception):
    """What was to be written is not wanted any more."""


def tell_user(text: str) -> None:
    """Say something where the user sees it."""
    sys.stderr.write(f"bough: {text}\n")
    sys.stderr.flush()


class SpaceWait:
    """Called each time that something cannot be written; returns when it is to be tried again."""

    def __init__(
        self,
        say: Callable[[str], None] = tell_user,
        given_up: Callable[[], bool] = lambda: False,
        mark: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """`mark` is told when waiting begins, and when it is over."""
        self._say = say
        self._given_up = given_up
        self._mark = mark
        self._said = 0.0
        self._waits = False  # as was marked
        self.waited = 0.0  # seconds, all together

    def __call__(self, what: str) -> None:
        """Wait a moment; `GivenUp` when it is not wanted any more."""
        now = time.monotonic()
        self._waits = True
        self._mark(True)
        if not self._said or now - self._said > _SAY_AGAIN:
            self._said = now
            self._say(f"{what} cannot be written, the disk is full: free some space; it is tried every {TRY_AGAIN:g} s")
        while not self._given_up():
            time.sleep(TRY_AGAIN / 10)
            if time.monotonic() - now >= TRY_AGAIN:
                self.waited += time.monotonic() - now
                return
        raise GivenUp

    def over(self) -> None:
        """It was written: the next time is another one."""
        self._said = 0.0
        self.resumed()

    def resumed(self) -> None:
        """It was written, and the next may have to wait again soon: that need not be said anew."""
        if self._waits:
            self._waits = False
            self._mark(False)


def is_full(error: BaseException) -> bool:
    """Whether an exception says that a disk, or a user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in FULL


def patiently(what: str, write: Callable[[], T], pause: SpaceWait) -> T:
    """Write something whole that may be begun anew, as soon as there is space for it."""
    while True:
        try:
            done = write()
        except OSError as error:
            if not is_full(error):
                raise
            pause(what)
        else:
            pause.over()
            return done


def lacks_space(folder: str) -> bool:
    """Whether the disk of a folder is as good as full."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LITTLE
