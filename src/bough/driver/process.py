"""`Popen`: a process of the pool in the hands of a program that thinks it is a child of its own.

`subprocess.Popen` does everything on this side: pipes, text, `communicate`, time limits. Here is only what begins,
watches and signals the process. Rule: whatever `subprocess` promises about this side holds, because it is its code.
"""

from __future__ import annotations

import subprocess
import sys
import weakref
from typing import Any

from bough.driver import place
from bough.driver.link import Link, Streams
from bough.driver.near import NearLink
from bough.driver.request import Asked, check_startable, read_request

_links: weakref.WeakSet[Any] = weakref.WeakSet()  # a link lives as long as its process, also without a `Popen`


class Popen(subprocess.Popen[Any]):
    """A process that runs as a task; everything else is `subprocess.Popen`'s."""

    _link: Link
    _child_created = False  # until it is

    def _execute_child(self, *given: Any) -> None:
        asked = Asked(*given)
        try:
            request = read_request(asked)
            where = place.find()
            streams = Streams(asked.p2cread, asked.c2pwrite, asked.errwrite, _own_ends(asked))
            if where.is_near:
                check_startable(request)
                self._link = NearLink(where, request, streams)
            else:
                from bough.driver.far import FarLink

                self._link = FarLink(where, request, streams)
            self._child_created = True
            _links.add(self._link)
        finally:
            self._close_pipe_fds(*asked[10:16])  # type: ignore[attr-defined]

    @property  # type: ignore[override]
    def pid(self) -> int | None:
        """The number of the process on its machine; waits until it has begun. None: it did not, or runs elsewhere."""
        return self._link.pid() if self._child_created else None

    @pid.setter
    def pid(self, _: int | None) -> None:
        """`subprocess` clears it before there is a process."""

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        if self.returncode is None and self._link.ended():
            self._settle(None)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            try:
                self._settle(timeout)
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
        return self.returncode

    def _settle(self, timeout: float | None) -> None:
        """Learn the return code."""
        try:
            code = self._link.wait(timeout)
        except TimeoutError:
            raise
        except Exception:
            self.returncode = -9  # it is gone, and nobody knows how: said once
            raise
        self.returncode = code

    def send_signal(self, sig: int) -> None:
        """Send a signal to the process."""
        self.poll()
        if self.returncode is None:
            self._link.signal(sig)

    def terminate(self) -> None:
        """Send SIGTERM."""
        import signal

        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        import signal

        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        if self._child_created and self.returncode is None and not sys.is_finalizing():
            import warnings

            warnings.warn(f"process {self.args!r:.60} is still running", ResourceWarning, stacklevel=2, source=self)


def _own_ends(asked: Asked) -> frozenset[int]:
    """The children's ends of the pipes that this process made."""
    pairs = ((asked.p2cread, asked.p2cwrite), (asked.c2pwrite, asked.c2pread), (asked.errwrite, asked.errread))
    return frozenset(theirs for theirs, ours in pairs if ours != -1)


def _abandon() -> None:
    for link in list(_links):
        if not link.ended():
            link.abandon()


place.before_exit.append(_abandon)
