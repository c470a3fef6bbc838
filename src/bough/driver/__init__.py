"""The drop-in for local process calls: `subprocess`' names, with the processes in the pool, and Trellis Driver's.

`from bough import driver as subprocess` is all that an existing program changes. The functions that issue and collect
jobs are those of the one `Driver` of this process.
Rule: after `stop()` the next use makes a new driver. What was issued is sent off before the session is closed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from subprocess import (
    DEVNULL,
    PIPE,
    STDOUT,
    CalledProcessError,
    CompletedProcess,
    SubprocessError,
    TimeoutExpired,
    list2cmdline,
)
from typing import Any

from bough.driver import session_choice
from bough.driver.job_bundles import CANCELLED, LOST, NO_OUTPUT, NOT_RUN, Paths
from bough.driver.job_driver import Driver
from bough.driver.job_results import JobResult
from bough.driver.popen import Popen, call, check_call, check_output, getoutput, getstatusoutput, run
from bough.driver.session_choice import close, use
from bough.errors import BoughError

__all__ = [
    "CANCELLED",
    "DEVNULL",
    "LOST",
    "NO_OUTPUT",
    "NOT_RUN",
    "PIPE",
    "STDOUT",
    "call",
    "CalledProcessError",
    "check_call",
    "check_output",
    "close",
    "CompletedProcess",
    "create_pipeline",
    "Driver",
    "exec_async",
    "exec_sync",
    "get_driver",
    "getoutput",
    "getstatusoutput",
    "JobResult",
    "list2cmdline",
    "Popen",
    "result",
    "run",
    "set_group",
    "start",
    "stop",
    "SubprocessError",
    "TimeoutExpired",
    "use",
    "wait_all",
    "wait_one",
]

_lock = threading.Lock()
_driver: Driver | None = None
_owner = 0


def get_driver() -> Driver:
    """The one driver of this process, to be configured and used."""
    global _driver, _owner
    with _lock:
        if _driver is None or _owner != os.getpid():
            _driver, _owner = Driver(), os.getpid()
        return _driver


def set_group(label: str, batching_factor: int | None = None, *, timeout: float = 1.0) -> None:
    """See `Driver.set_group`."""
    get_driver().set_group(label, batching_factor, timeout=timeout)


def create_pipeline(label: str, length: int, *, group: str | None = None, keep_going: bool = False) -> None:
    """See `Driver.create_pipeline`."""
    get_driver().create_pipeline(label, length, group=group, keep_going=keep_going)


def start() -> None:
    """See `Driver.start`."""
    get_driver().start()


def stop(drain: bool = True) -> None:
    """See `Driver.stop`."""
    global _driver
    get_driver().stop(drain)
    with _lock:
        _driver = None


def exec_async(
    cmd: str | Sequence[Any],
    producer: object = None,
    group: str | None = None,
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    inputs: Paths = (),
    outputs: Paths = (),
) -> int:
    """See `Driver.exec_async`."""
    return get_driver().exec_async(cmd, producer, group, cwd=cwd, env=env, inputs=inputs, outputs=outputs)


def exec_sync(
    cmd: str | Sequence[Any],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    inputs: Paths = (),
    outputs: Paths = (),
    timeout: float | None = None,
) -> int:
    """See `Driver.exec_sync`."""
    return get_driver().exec_sync(cmd, cwd=cwd, env=env, inputs=inputs, outputs=outputs, timeout=timeout)


def wait_one(key: int, timeout: float | None = None) -> int:
    """See `Driver.wait_one`."""
    return get_driver().wait_one(key, timeout)


def wait_all(producer: object = None, timeout: float | None = None) -> list[int]:
    """See `Driver.wait_all`."""
    return get_driver().wait_all(producer, timeout)


def result(key: int, timeout: float | None = None) -> JobResult:
    """See `Driver.result`."""
    return get_driver().result(key, timeout)


def _at_exit() -> None:
    """What was issued and waits for more is sent off before the session is closed."""
    if _driver is not None and _owner == os.getpid():
        with contextlib.suppress(BoughError):
            _driver.stop()


session_choice.before_exit.append(_at_exit)
