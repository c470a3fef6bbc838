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

from bough.driver.driver_functions import (
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
from bough.driver.job_bundles import CANCELLED, LOST, NO_OUTPUT, NOT_RUN
from bough.driver.job_driver import Driver
from bough.driver.job_results import JobResult
from bough.driver.popen import Popen, call, check_call, check_output, getoutput, getstatusoutput, run
from bough.driver.session_choice import close, use

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
