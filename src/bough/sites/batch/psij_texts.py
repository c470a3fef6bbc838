"""Batch systems that PSI/J knows: Slurm, PBS and LSF. Its templates make the scripts, it reads the answers.

PSI/J is used for its texts alone: no polling thread of it runs, it starts no process, and it handles no signal. Rule:
what it cannot do is met here and named in decision 33: names of jobs, unknown reasons, several jobs in one command,
forgotten jobs.
"""

from __future__ import annotations

import datetime as dt
import importlib
import io
import json
import logging
import math
import re
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from bough.errors import SiteError, UserError
from bough.sites.batch.batch_system import BatchSystem, JobRequest, JobStatus

if TYPE_CHECKING:
    from psij.executors.batch.batch_scheduler_executor import BatchSchedulerExecutor

_FORGOTTEN: Final = re.compile(
    r"unknown job id|job has finished|is not found|no (matching|unfinished) job", re.IGNORECASE
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_@%+=:,./-]+\Z")  # what the templates can quote

_USABLE: Final = re.compile(r"(idle|mix)[~#-]?\Z")  # states of Slurm's nodes that take jobs: also asleep, or promised
_NEXT: Final = ("None", "(None)", "Resources", "Priority")  # why jobs wait that will get what is free


def make_psij_system(name: str) -> BatchSystem:
    """Slurm, PBS or LSF."""
    try:
        _import_psij()
    except ImportError as error:
        raise UserError(f"{name} needs PSI/J, which is not installed: pip install 'bough[batch]'") from error
    if name == "slurm":
        return _Slurm()
    return _Pbs() if name == "pbs" else _Lsf()


def _import_psij() -> None:
    """Import PSI/J in a thread of its own.

    In the main thread it would put a handler of its own in the place of the event loop's, which is told by SIGCHLD that
    a process has ended: from then on nobody would hear of that any more.
    """
    if sys.modules.get("psij") is not None:
        return
    logging.getLogger("psij.executors.local").setLevel(logging.ERROR)  # it warns that it has no such handler
    problems: list[ImportError] = []

    def load() -> None:
        try:
            importlib.import_module("psij")
        except ImportError as error:
            problems.append(error)

    thread = threading.Thread(target=load, name="psij")
    thread.start()
    thread.join()
    if problems:
        raise problems[0]


class _Launch:
    """What stands in a script in the place of a launcher of PSI/J."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words

    def get_launch_command(self, job: Any, log_file: str | None = None) -> list[str]:
        return list(self._words)


class _PsijSystem:
    """What the three share."""

    commands: Sequence[str]
    by_stdin = False
    all_cores = "$(nproc)"
    prefix: str  # of attributes of its own
    name_option: str

    def __init__(self) -> None:
        self._texts: Any = _without_thread(self.executor_class())(**self.arguments)

    arguments: Mapping[str, Any] = {}

    def executor_class(self) -> type[BatchSchedulerExecutor]:
        raise NotImplementedError

    def resources(self, job: JobRequest) -> Any:
        """A job on one node with so many cores."""
        from psij import ResourceSpecV1

        if not job.cores:
            return ResourceSpecV1(node_count=1, processes_per_node=1, exclusive_node_use=True)
        return ResourceSpecV1(node_count=1, processes_per_node=1, cpu_cores_per_process=job.cores)

    def script(self, job: JobRequest) -> str:
        from psij import Job, JobAttributes, JobSpec

        if not _PLAIN.match(job.folder):
            raise SiteError(f"{job.folder} there has letters that a batch script cannot have: set XDG_CACHE_HOME there")
        attributes = JobAttributes(
            duration=dt.timedelta(minutes=max(1, math.ceil(job.seconds / 60))),
            queue_name=job.partition or None,
            account=job.account or None,
            custom_attributes={
                f"{self.prefix}.{name}": value for name, value in {self.name_option: job.name, **job.options}.items()
            },
        )
        psij_job = Job(JobSpec(executable="/bin/bash", resources=self.resources(job), attributes=attributes))
        texts = self._texts
        texts.work_directory = PurePosixPath(job.folder)
        texts._get_launcher_from_job = lambda _: _Launch(job.launch)
        text = io.StringIO()
        texts.generate_submit_script(psij_job, texts._create_script_context(psij_job), text)
        return text.getvalue()

    def submit(self, path: str) -> list[str]:
        return list(self._texts.get_submit_command(None, Path(path)))

    def job_id(self, out: str) -> str:
        from psij import SubmitException

        try:
            return str(self._texts.job_id_from_submit_output(out))
        except (IndexError, SubmitException) as error:
            raise ValueError(f"no job number in {out[:200]!r}") from error

    def ask_statuses(self, jobs: Iterable[str]) -> list[str]:
        return list(self._texts.get_status_command(list(jobs)))

    def read_statuses(self, code: int, out: str, said: str) -> Mapping[str, JobStatus]:
        if code and _FORGOTTEN.search(said + out):  # of jobs that are over; it says the others all the same
            code = 0
        try:
            found = self._texts.parse_status_output(code, self.mended(out))
        except (RuntimeError, AssertionError, LookupError, StopIteration, TypeError) as error:
            raise ValueError(str(error) or said[:200] or "the answer cannot be read") from error
        return {
            str(job): JobStatus(
                not status.final, _words(status.message) or ("it was cancelled" if _is_cancelled(status) else "")
            )
            for job, status in found.items()
        }

    def mended(self, out: str) -> str:
        """An answer as PSI/J can read it."""
        return out

    def cancel(self, jobs: Iterable[str]) -> list[str]:
        """PSI/J ends one job at a time; all of these commands take several."""
        return [*self._texts.get_cancel_command("")[:-1], *jobs]

    def ask_room(self, job: JobRequest) -> list[list[str]]:
        return []

    def read_room(self, outs: Sequence[str], job: JobRequest) -> int:
        raise ValueError("it does not tell what is free")


class _Slurm(_PsijSystem):
    commands = ("sbatch", "squeue", "scancel")
    prefix, name_option = "slurm", "job-name"
    all_cores = '"${SLURM_CPUS_ON_NODE:-$(nproc)}"'

    def executor_class(self) -> type[BatchSchedulerExecutor]:
        from psij.executors.batch.slurm import SlurmJobExecutor

        class Texts(SlurmJobExecutor):
            """Reasons that PSI/J has no sentence for are reasons, too; a new state is one of a job that is there."""

            def _get_message(self, reason: str) -> str:
                return str(self._REASONS_MAP.get(reason, reason))

            def _get_state(self, state: str) -> Any:
                return self._STATE_MAP.get(state, self._STATE_MAP["R"])

        return Texts

    def mended(self, out: str) -> str:
        """Three columns, whatever a reason has in it."""
        lines = [line.strip().split(None, 2) for line in out.splitlines() if line.strip()]
        return "\n".join(" ".join([*line[:2], (line[2:] or ["None"])[0].replace(" ", "_")]) for line in lines) or "-"

    def ask_room(self, job: JobRequest) -> list[list[str]]:
        """Nodes with their idle processors, and what waits for some."""
        return [["sinfo", "-h", "-N", "-o", "%P %t %C"], ["squeue", "-h", "-r", "-t", "PD", "-o", "%P %C %D %r"]]

    def read_room(self, outs: Sequence[str], job: JobRequest) -> int:
        nodes, waiting = ([line.split() for line in out.splitlines() if line.strip()] for out in outs)
        own = job.partition or next((row[0][:-1] for row in nodes if row[0].endswith("*")), "")
        room = sum(
            _room_on(row[1], row[2], job.cores)
            for row in nodes
            if len(row) == 3 and row[0].rstrip("*") == own and _USABLE.match(row[1])
        )
        for partitions, cores, hosts, *reason in waiting:
            if own in partitions.split(",") and (reason or ["None"])[0] in _NEXT:
                room -= math.ceil(int(cores) / job.cores) if job.cores else int(hosts)
        return max(0, room)

    def ask_names(self) -> list[str]:
        return ["squeue", "--me", "-h", "-o", "%i %j"]

    def read_names(self, out: str) -> Sequence[tuple[str, str]]:
        return _pairs(out)


class _Pbs(_PsijSystem):
    commands = ("qsub", "qstat", "qdel")
    prefix, name_option = "pbs", "N"

    def executor_class(self) -> type[BatchSchedulerExecutor]:
        from psij.executors.batch.pbs import PBSJobExecutor

        return PBSJobExecutor

    def resources(self, job: JobRequest) -> Any:
        """Its template counts processes, not cores."""
        from psij import ResourceSpecV1

        return ResourceSpecV1(node_count=1, processes_per_node=job.cores or 1, exclusive_node_use=not job.cores)

    def mended(self, out: str) -> str:
        return out if out.strip() else '{"Jobs": {}}'

    def read_statuses(self, code: int, out: str, said: str) -> Mapping[str, JobStatus]:
        if '"Jobs"' not in out and not code:
            return {}
        return super().read_statuses(code, out, said)

    def ask_names(self) -> list[str]:
        return ["qstat", "-f", "-F", "json"]

    def read_names(self, out: str) -> Sequence[tuple[str, str]]:
        jobs = json.loads(out).get("Jobs", {}) if out.strip() else {}
        return [(number, str(job.get("Job_Name", ""))) for number, job in jobs.items()]


class _Lsf(_PsijSystem):
    commands = ("bsub", "bjobs", "bkill")
    prefix, name_option = "lsf", "J"
    arguments: Mapping[str, Any] = {"url": None}
    by_stdin = True  # it reads directives from there only

    def executor_class(self) -> type[BatchSchedulerExecutor]:
        from psij.executors.batch.lsf import LsfJobExecutor

        return LsfJobExecutor

    def resources(self, job: JobRequest) -> Any:
        """Its template counts processes, not cores."""
        from psij import ResourceSpecV1

        return ResourceSpecV1(node_count=1, processes_per_node=job.cores or 1, exclusive_node_use=not job.cores)

    def script(self, job: JobRequest) -> str:
        """All cores on one host; `-nnodes` is known on few machines."""
        where = '#BSUB -R "span[hosts=1]"' + ("" if job.cores else "\n#BSUB -x")
        return super().script(job).replace("#BSUB -nnodes 1", where)

    def submit(self, path: str) -> list[str]:
        return ["bsub"]

    def mended(self, out: str) -> str:
        """PSI/J stumbles over a reason."""
        found = json.loads(out) if out.strip() else {"RECORDS": []}
        for record in found["RECORDS"]:
            record.update(EXIT_REASON="", KILL_REASON="", SUSPEND_REASON="")
        return json.dumps(found)

    def ask_names(self) -> list[str]:
        return ["bjobs", "-noheader", "-o", "jobid job_name"]

    def read_names(self, out: str) -> Sequence[tuple[str, str]]:
        return [] if _FORGOTTEN.search(out) else _pairs(out)


def _room_on(state: str, processors: str, cores: int) -> int:
    """How many jobs a node takes whose processors are `allocated/idle/other/total`."""
    if not cores:
        return int(state.startswith("idle"))
    return int(processors.split("/")[1]) // cores


def _without_thread(texts: Any) -> Any:
    class Texts(texts):  # type: ignore[misc]
        name = "bough"

        def _start_queue_poll_thread(self) -> Any:
            return None

    return Texts


def _pairs(out: str) -> list[tuple[str, str]]:
    found = [line.split(None, 1) for line in out.splitlines()]
    return [(pair[0], pair[1].strip()) for pair in found if len(pair) == 2]


def _words(message: str | None) -> str:
    return (message or "").strip().rstrip(".")


def _is_cancelled(status: Any) -> bool:
    return bool(status.state.name == "CANCELED")
