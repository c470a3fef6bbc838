"""What is known of a job: its code, its output, where and when it ran. Rule: it is read when it is asked for."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import Any

import msgspec

from bough.driver.job_bundles import CANCELLED, LOST, NO_OUTPUT, NOT_RUN, Ended, Job
from bough.driver.process_link import cause_of, return_code, wait_for
from bough.errors import BoughError, NotRun
from bough.model.outcomes import Cause


class JobResult(msgspec.Struct, frozen=True):
    """How a job ended."""

    key: int
    command: Any
    producer: Any
    group: str
    exit_code: int  # negative: the signal that ended it; those from 1000 on are no program's
    host: str
    stdout_bytes: bytes
    stderr_bytes: bytes
    started: float  # seconds since the epoch; 0: it did not start
    ended: float

    @property
    def signal(self) -> int | None:
        """The signal that ended it."""
        return -self.exit_code if self.exit_code < 0 else None

    @property
    def stdout(self) -> str:
        """What it wrote to standard output."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """What it wrote to standard error."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return max(0.0, self.ended - self.started)


def code_of(job: Job, timeout: float | None) -> int:
    """Wait for a job that was submitted and return its code; TimeoutError when it takes longer."""
    if job.code is None:
        job.code = _code(job, timeout)
    return job.code


def _code(job: Job, timeout: float | None) -> int:
    bundle = job.bundle
    if bundle is None:
        return CANCELLED
    if bundle.error is not None:
        raise bundle.error
    if bundle.array is None:
        return CANCELLED
    task = bundle.array[job.index]
    wait_for(task, timeout)
    try:
        if job.place < 0:
            if task.cancelled():
                return CANCELLED
            return return_code(task) or (NO_OUTPUT if job.files and cause_of(task) is Cause.MISSING_OUTPUT else 0)
        return _ended(job).code
    except CancelledError:
        return CANCELLED
    except NotRun:
        return NOT_RUN
    except BoughError:
        return LOST


def _ended(job: Job) -> Ended:
    """What the worker that ran a pipeline said of a stage."""
    assert job.bundle is not None
    assert job.bundle.array is not None
    said: list[Ended] = job.bundle.array[job.index].result()
    return said[job.place]


def result_of(job: Job) -> JobResult:
    """Everything that is known of a job whose code is."""
    assert job.code is not None
    about = (job.key, job.command, job.producer, job.label, job.code)
    if job.bundle is None or job.bundle.array is None:
        return JobResult(*about, "", b"", b"", 0.0, 0.0)
    task = job.bundle.array[job.index]
    if job.place >= 0:
        if job.code in {CANCELLED, LOST} or (job.code == NOT_RUN and task.exception() is not None):
            return JobResult(*about, task.host, b"", b"", 0.0, 0.0)
        said = _ended(job)
        return JobResult(*about, task.host, said.stdout, said.stderr, said.started, said.ended)
    detail = task._detail()
    if detail is None:
        return JobResult(*about, task.host, b"", b"", 0.0, 0.0)
    out, err = task._output("stdout", detail.stdout), task._output("stderr", detail.stderr)
    return JobResult(*about, task.host, out, err, detail.started, detail.ended)
