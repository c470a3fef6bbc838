"""The drop-in for local process calls: `subprocess`' names, with the processes in the pool, and Trellis Driver's.

`from bough import driver as subprocess` is all that an existing program changes. The functions that issue and collect
jobs are those of the one `Driver` of this process.
"""

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

from bough.driver.codes import CANCELLED, LOST, NO_OUTPUT, NOT_RUN
from bough.driver.jobs import Driver
from bough.driver.place import close, use
from bough.driver.process import Popen
from bough.driver.results import JobResult
from bough.driver.running import call, check_call, check_output, getoutput, getstatusoutput, run
from bough.driver.single import (
    create_pipeline,
    exec_async,
    exec_sync,
    get_driver,
    result,
    set_group,
    start,
    stop,
    wait_all,
    wait_one,
)

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
