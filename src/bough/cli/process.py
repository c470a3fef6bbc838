"""Other processes of ours on this machine: whether one is still there, and waiting until it is gone.

Rule: a process is watched by a descriptor where the system has them, so that another one that gets its number is
never taken for it.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from typing import Self

_LOOK = 0.02  # seconds between looks, where there are no descriptors of processes


class Process:
    """A process by its number, from now on; one that is gone already counts as ended."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._descriptor = -1
        self._gone = False
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._gone = True
        except (AttributeError, OSError):  # an old kernel, or another system
            self._gone = not _is_there(pid)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, within so many seconds."""
        until = time.monotonic() + seconds
        while not self._gone and (left := until - time.monotonic()) > 0:
            if self._descriptor >= 0:
                self._gone = bool(select.select([self._descriptor], [], [], left)[0])
            else:
                time.sleep(min(_LOOK, left))
                self._gone = not _is_there(self._pid)
        return self._gone

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def is_bough(pid: int) -> bool:
    """Whether a process with this number runs, and is one of Bough's as far as can be seen."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return b"bough" in file.read()
    return False


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
