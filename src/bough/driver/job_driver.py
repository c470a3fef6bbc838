"""Class `Driver` of Trellis Driver: jobs are issued at once and collected at barriers, alone, in groups, in pipelines.

A job is filled (it waits for its bundle), in progress (its bundle is submitted) or finished. The settings have the
bounds of the thesis and stay once the driver was started. Rules: what is bounded is what has not finished, never what
was not collected, so a producer that only issues waits for room but not for ever. No thread is held by a job. A
barrier sends off what is incomplete, because a producer that waits adds nothing. A setting that is out of bounds is
refused with its name, value and range.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from bough.driver import session_choice
from bough.driver.bundle_sender import BundleSender
from bough.driver.job_bundles import CANCELLED, Bundle, Job, JobGroup, Paths, Pipeline, Stage, read_command, read_files
from bough.driver.job_results import JobResult, code_of, result_of
from bough.errors import UserError

if TYPE_CHECKING:
    from bough.api.submit.submitter import Submitter

CONSUMERS = (2, 512)
BUFFER = (100, 10_000)


_UNGROUPED = JobGroup("", None, 0.0)
_PAUSE = 0.002  # seconds between looks at whether there is room again


class Driver:
    """See the module.

    Args:
        session: a session, a group or `session.options(...)`; by default what `driver.use` chose, or the driver's own.
        consumers: most bundles that are in progress at a time, 2 to 512; by default there is no limit.
        buffer_size: most jobs that have not finished, 100 to 10,000; a producer of more waits for room.
        queue_name: the group of the session that gets the jobs; by default its own. A named queue of a server, which
            is something else, is an option of what is given as the session: `session.options(queue="night")`.
    """

    def __init__(
        self,
        session: Submitter | None = None,
        *,
        consumers: int | None = None,
        buffer_size: int = 10_000,
        queue_name: str | None = None,
    ) -> None:
        self._is_frozen = False
        self.consumers = consumers
        self.buffer_size = buffer_size
        self.queue_name = queue_name
        self._given = session
        self._sender: BundleSender | None = None
        self._lock = threading.RLock()
        self._keys = itertools.count(1)
        self._jobs: dict[int, Job] = {}
        self._uncollected: dict[object, dict[int, Job]] = {}  # by producer, in the order of issuing
        self._groups: dict[str, JobGroup] = {}
        self._pipelines: dict[str, Pipeline] = {}  # not complete yet
        self._open: dict[tuple[object, ...], Bundle] = {}  # that take more
        self._written: dict[str, int] = {}  # declared outputs, and the jobs that write them
        self._blocked = 0  # producers that wait for room: they can add nothing
        self._is_stopped = False

    # --- configuring ------------------------------------------------------------------------------------

    @property
    def consumers(self) -> int | None:
        """Most bundles that are in progress at a time; None: any number."""
        return self._consumers

    @consumers.setter
    def consumers(self, value: int | None) -> None:
        self._check_open("consumers")
        self._consumers = None if value is None else _whole("consumers", value, *CONSUMERS)

    @property
    def buffer_size(self) -> int:
        """Most jobs that have not finished."""
        return self._buffer_size

    @buffer_size.setter
    def buffer_size(self, value: int) -> None:
        self._check_open("buffer_size")
        self._buffer_size = _whole("buffer_size", value, *BUFFER)

    @property
    def queue_name(self) -> str | None:
        """The group of the session that gets the jobs."""
        return self._queue_name

    @queue_name.setter
    def queue_name(self, value: str | None) -> None:
        self._check_open("queue_name")
        if value is not None:
            _check_label(value, "queue_name")
            if "/" in value:
                raise UserError(f"queue_name is {value!r}; give a name without /")
        self._queue_name = value

    def _check_open(self, name: str) -> None:
        if self._is_frozen:
            raise UserError(f"{name} cannot be changed: the driver was started")

    def set_group(self, label: str, batching_factor: int | None = None, *, timeout: float = 1.0) -> None:
        """Register a job group: so many of its jobs go in one submission; by default Bough chooses.

        `timeout`: seconds after its last job in which an incomplete bundle waits for more.
        """
        _check_label(label)
        group = JobGroup(
            label, _read_factor(batching_factor, self.buffer_size), _read_timeout(timeout) if batching_factor else 0.0
        )
        with self._lock:
            if label in self._pipelines:
                raise UserError(f"set_group: {label!r} is a pipeline that is not complete; choose another label")
            self._flush(lambda bundle: bundle.group.label == label)
            self._groups[label] = group

    def create_pipeline(self, label: str, length: int, *, group: str | None = None, keep_going: bool = False) -> None:
        """Register one pipeline: the next `length` jobs issued under this label run in order on one host.

        With `group` whole pipelines are bundled as that group says. After a stage that fails the others are not run,
        unless it is to keep going.
        """
        _check_label(label)
        _read_length(length, self.buffer_size)
        with self._lock:
            if label in self._groups or label in self._pipelines:
                raise UserError(f"create_pipeline: {label!r} is the label of a group, or of a pipeline in the making")
            if group is not None and group not in self._groups:
                raise UserError(f"create_pipeline: group {group!r} is not known; register it with set_group")
            self._pipelines[label] = Pipeline(label, length, group or "", keep_going, [])

    def start(self) -> None:
        """Begin to take jobs; the first job does it, too. From now on the settings stay."""
        with self._lock:
            if self._is_stopped:
                raise UserError("the driver was stopped; make another one")
            if self._sender is None:
                target = self._given if self._given is not None else session_choice.find().submitter
                self._sender = BundleSender(self._queue(target), self.consumers, self._lock, self._due)
                self._is_frozen = True

    def _queue(self, target: Submitter) -> Submitter:
        return target if self.queue_name is None else target.group(self.queue_name)

    # --- launching --------------------------------------------------------------------------------------

    def exec_async(
        self,
        cmd: str | Sequence[Any],
        producer: object = None,
        group: str | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        inputs: Paths = (),
        outputs: Paths = (),
    ) -> int:
        """Issue a job and return its key at once; `group` names a job group or a pipeline.

        `inputs` and `outputs`: files that the command reads and writes, as they are named in it. They travel to
        executors that do not see this directory, and a job waits for those that make its inputs.
        """
        stage = Stage(read_command(cmd), os.path.abspath(os.fspath(cwd or os.curdir)), dict(env or {}))
        files = read_files(stage.words, stage.cwd, inputs, outputs)
        if self._sender is None:
            self.start()
        self._wait_for_room()
        with self._lock:
            if self._is_stopped:
                raise UserError("the driver was stopped and takes no more jobs")
            job = Job(next(self._keys), cmd, stage, producer, group or "", files)
            pipeline = self._pipelines.get(group) if group else None
            if pipeline is not None and files is not None:
                raise UserError(f"pipeline {group!r}: its stages run where this directory is seen and declare no files")
            if group and pipeline is None and group not in self._groups:
                raise UserError(f"group {group!r} is not known; register it with set_group or create_pipeline")
            if files is not None:
                files.claim(self._written, job.key)
            self._jobs[job.key] = job
            self._uncollected.setdefault(producer, {})[job.key] = job
            if pipeline is None:
                self._join(job, self._groups[group] if group else _UNGROUPED)
            else:
                self._join_pipeline(job, pipeline)
            return job.key

    def exec_sync(
        self,
        cmd: str | Sequence[Any],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        inputs: Paths = (),
        outputs: Paths = (),
        timeout: float | None = None,
    ) -> int:
        """Run a job to its end and return its exit code."""
        return self.wait_one(self.exec_async(cmd, cwd=cwd, env=env, inputs=inputs, outputs=outputs), timeout)

    def _join(self, job: Job, group: JobGroup) -> None:
        files = job.files
        if files is not None:
            makers = {id(self._jobs[self._written[path]].bundle) for path in files.reads if path in self._written}
            self._flush(lambda bundle: id(bundle) in makers)  # they are submitted first
        key = (group.label, files.form if files else "", job.stage.cwd, *job.stage.env.items())
        self._add(key, group, [job], is_pipelines=False)

    def _join_pipeline(self, job: Job, pipeline: Pipeline) -> None:
        job.place = len(pipeline.stages)
        pipeline.stages.append(job)
        if len(pipeline.stages) == pipeline.length:
            del self._pipelines[pipeline.label]
            group = self._groups[pipeline.group] if pipeline.group else _UNGROUPED
            key = (pipeline.keep_going, pipeline.group)
            self._add(key, group, pipeline.stages, is_pipelines=True)

    def _add(self, key: tuple[object, ...], group: JobGroup, jobs: list[Job], *, is_pipelines: bool) -> None:
        assert self._sender is not None
        bundle = self._open.get(key)
        if bundle is None:
            bundle = self._open[key] = Bundle(group, is_pipelines, [], keep_going=is_pipelines and bool(key[0]))
        bundle.add(jobs)
        self._sender.pending += len(jobs)
        if bundle.is_full:
            del self._open[key]
            self._sender.send(bundle)
        elif len(bundle.rows) == 1:
            self._sender.wake()

    def _due(self, now: float) -> float | None:
        """Send off what waits for nothing more; when to look again. Called by the sender, which holds the lock.

        While producers wait for room, the time of a bundle with a factor stands still: they would fill it.
        """
        self._flush(lambda bundle: bundle.due <= now and not self._stands_still(bundle))
        return min((bundle.due for bundle in self._open.values() if not self._stands_still(bundle)), default=None)

    def _stands_still(self, bundle: Bundle) -> bool:
        return bool(self._blocked and bundle.group.factor)

    def _flush(self, wanted: Any) -> None:
        for key, bundle in list(self._open.items()):
            if wanted(bundle):
                del self._open[key]
                if self._sender is not None:
                    self._sender.send(bundle)

    def _wait_for_room(self) -> None:
        """Wait while too much has not finished. What is incomplete is sent off only if it is all there is."""
        sender = self._sender
        assert sender is not None
        if sender.pending < self.buffer_size:
            return
        with self._lock:
            self._blocked += 1
        try:
            while not self._finds_room(sender):
                time.sleep(_PAUSE)
        finally:
            with self._lock:
                self._blocked -= 1
                now = time.monotonic()
                for bundle in self._open.values():
                    if bundle.group.factor:
                        bundle.changed = now
                sender.wake()

    def _finds_room(self, sender: BundleSender) -> bool:
        with self._lock:
            under_way = sender.count()
            waiting = sum(bundle.jobs for bundle in self._open.values())
            sender.pending = under_way + waiting
            if self._is_stopped or sender.pending < self.buffer_size:
                return True
            if not under_way:
                fullest = max(self._open.values(), key=lambda bundle: bundle.jobs)
                self._flush(lambda bundle: bundle is fullest)
            return False

    # --- collecting -------------------------------------------------------------------------------------

    def wait_one(self, key: int, timeout: float | None = None) -> int:
        """Wait for a job and return its exit code; TimeoutError when it takes longer."""
        job = self._find(key)
        return self._collect([job], timeout)[0]

    def wait_all(self, producer: object = None, timeout: float | None = None) -> list[int]:
        """Wait for all jobs (of a producer) that were not collected; their exit codes in the order of issuing."""
        with self._lock:
            if producer is None:
                jobs = sorted((j for some in self._uncollected.values() for j in some.values()), key=lambda j: j.key)
            else:
                jobs = list(self._uncollected.get(producer, {}).values())
        return self._collect(jobs, timeout)

    def _collect(self, jobs: list[Job], timeout: float | None) -> list[int]:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            wanted = {id(job.bundle) for job in jobs}
            self._flush(lambda bundle: id(bundle) in wanted)
            for pipeline in self._pipelines.values():
                if any(job.bundle is None and job.code is None and job in pipeline.stages for job in jobs):
                    raise UserError(pipeline.missing())
        codes = [self._code(job, deadline) for job in jobs]
        with self._lock:
            for job in jobs:
                self._uncollected.get(job.producer, {}).pop(job.key, None)
        return codes

    def _code(self, job: Job, deadline: float | None) -> int:
        if job.code is None:
            assert self._sender is not None
            if job.bundle is not None:
                self._sender.wait_sent(job.bundle, deadline)
            try:
                return code_of(job, None if deadline is None else deadline - time.monotonic())
            except TimeoutError:
                raise TimeoutError(f"job {job.key} has not ended in time") from None
        return job.code

    def result(self, key: int, timeout: float | None = None) -> JobResult:
        """All that is known of a job, once it has ended: exit code, signal, host, output, times."""
        job = self._find(key)
        if job.code is None:
            self.wait_one(key, timeout)
        return result_of(job)

    def state(self, key: int) -> str:
        """One of "filled", "in progress" and "finished"."""
        job = self._find(key)
        if job.code is not None:
            return "finished"
        if job.bundle is None or job.bundle.array is None:
            return "filled"
        return "finished" if job.bundle.array[job.index].done() else "in progress"

    @property
    def submissions(self) -> int:
        """How many bundles were submitted."""
        return self._sender.submissions if self._sender is not None else 0

    def _find(self, key: int) -> Job:
        job = self._jobs.get(key)
        if job is None:
            raise UserError(f"there is no job {key!r}; give a key that exec_async returned")
        return job

    # --- ending -----------------------------------------------------------------------------------------

    def stop(self, drain: bool = True) -> None:
        """Take no more jobs; with `drain` wait for those there are, else cancel them."""
        with self._lock:
            if drain and self._pipelines:
                raise UserError(next(iter(self._pipelines.values())).missing() + ", or stop(drain=False)")
            self._is_stopped = self._is_frozen = True
            if drain:
                self._flush(lambda _: True)
            sender = self._sender
        if sender is not None:
            if drain:
                sender.drain()
            else:
                self._cancel(sender)
            sender.stop()

    def _cancel(self, sender: BundleSender) -> None:
        with self._lock:
            waiting = [*self._open.values(), *sender.cancel()]
            self._open.clear()
            never = [job for bundle in waiting for row in bundle.rows for job in row]
            never += [job for pipeline in self._pipelines.values() for job in pipeline.stages]
            self._pipelines.clear()
            for job in never:
                job.code = CANCELLED

    def flush(self) -> None:
        """Send off what waits for more."""
        with self._lock:
            self._flush(lambda _: True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_stopped:
            self.stop(drain=kind is None)


# --- bounds -------------------------------------------------------------------------------------------


def _check_label(value: object, name: str = "label") -> None:
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{name} is {value!r:.60}; give a text")


def _read_factor(value: object, most: int) -> int | None:
    return None if value is None else _whole("batching_factor", value, 1, most)


def _read_length(value: object, most: int) -> int:
    return _whole("length", value, 1, most)


def _read_timeout(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise UserError(f"timeout is {value!r:.60}; give seconds, 0 or more")
    return float(value)


def _whole(name: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UserError(f"{name} is {value!r:.60}; give a whole number from {least} to {most}")
    return value
