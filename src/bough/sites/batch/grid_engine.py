"""Grid Engine, which PSI/J does not know: qsub, qstat and qdel.

`--partition` is its queue, `--account` its project. A job of several cores needs a parallel environment that keeps them
on one host: `pe` of the batch options, or `smp`. Rule: states are read from XML, where names are whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from xml.etree import ElementTree as ET

from bough.errors import UserError
from bough.sites.batch.batch_system import JobRequest, JobStatus

_NUMBER: Final = re.compile(r"[Yy]our job (\d+)")
_OPTION: Final = "pe"


class GridEngine:
    """See `batch_system`."""

    commands = ("qsub", "qstat", "qdel")
    by_stdin = False
    all_cores = "$(nproc)"

    def script(self, job: JobRequest) -> str:
        """Signals reach the executor: `-notify` has the job told before it is killed."""
        if not job.cores:
            raise UserError("Grid Engine gives slots, not whole nodes: say --cores-per-pilot N")
        options = dict(job.options)
        environment = options.pop(_OPTION, "smp")
        lines = [
            *("#!/bin/bash", "#$ -S /bin/bash", f"#$ -N {job.name}", "#$ -V", "#$ -r n", "#$ -j y"),
            *(f"#$ -o {job.folder}/$JOB_ID.out", f"#$ -l h_rt={job.seconds}", "#$ -notify"),
            *([f"#$ -pe {environment} {job.cores}"] if job.cores > 1 else []),
            *([f"#$ -q {job.partition}"] if job.partition else []),
            *([f"#$ -P {job.account}"] if job.account else []),
            *(f"#$ -{name} {value}".rstrip() for name, value in options.items()),
            "trap '' USR1 USR2",  # also for the executor: qdel sends it first, and SIGKILL later
            f"setsid /bin/bash {job.start} &",
            "trap 'kill -TERM $!' USR1 USR2 TERM",
            "wait $! || wait $!",
            "",
        ]
        return "\n".join(lines)

    def submit(self, path: str) -> list[str]:
        """It answers with a sentence."""
        return ["qsub", path]

    def job_id(self, out: str) -> str:
        """Your job 12 ("name") has been submitted."""
        found = _NUMBER.search(out)
        if found is None:
            raise ValueError(f"no job number in {out[:200]!r}")
        return found.group(1)

    def ask_statuses(self, jobs: Iterable[str]) -> list[str]:
        """All jobs of the user."""
        return ["qstat", "-xml"]

    def read_statuses(self, code: int, out: str, said: str) -> Mapping[str, JobStatus]:
        """Those in an error state are as good as gone: nothing runs them without an administrator."""
        if code:
            raise ValueError(said[:200] or f"exit code {code}")
        return {
            number: JobStatus("E" not in state, f"Grid Engine says {state}" if "E" in state else "")
            for number, _, state in _jobs(out)
        }

    def ask_names(self) -> list[str]:
        """All jobs of the user."""
        return ["qstat", "-xml"]

    def read_names(self, out: str) -> Sequence[tuple[str, str]]:
        """Whole names."""
        return [(number, name) for number, name, _ in _jobs(out)]

    def cancel(self, jobs: Iterable[str]) -> list[str]:
        """Several at once."""
        return ["qdel", *jobs]

    def ask_room(self, job: JobRequest) -> list[list[str]]:
        """Queues on each host with their slots, and the jobs of all users."""
        return [["qstat", "-f", "-u", "*", "-xml"]]

    def read_room(self, outs: Sequence[str], job: JobRequest) -> int:
        """Slots on hosts whose queue has no state: others are in alarm, suspended, disabled or gone."""
        tree = _read(outs[0])
        room = 0
        for queue in tree.iter("Queue-List"):
            if _is_of(queue.findtext("name", ""), job.partition) and not (queue.findtext("state") or "").strip():
                used = _count(queue, "slots_used") + _count(queue, "slots_resv")
                room += max(0, _count(queue, "slots_total") - used) // job.cores
        for waiting in tree.iterfind("./job_info/job_list"):
            if waiting.findtext("state", "") == "qw":  # for which queue is not said
                room -= -(-_count(waiting, "slots") // job.cores)
        return max(0, room)


def _jobs(out: str) -> list[tuple[str, str, str]]:
    """Number, name and state of each job of `qstat -xml`."""
    return [
        (job.findtext("JB_job_number", ""), job.findtext("JB_name", ""), job.findtext("state", ""))
        for job in _read(out).iter("job_list")
    ]


def _read(out: str) -> ET.Element:
    try:
        return ET.fromstring(out)
    except ET.ParseError as error:
        raise ValueError(f"the answer of qstat cannot be read: {error}") from error


def _count(entry: ET.Element, name: str) -> int:
    return int(entry.findtext(name) or 0)


def _is_of(queue: str, wanted: str) -> bool:
    """Whether a queue, or its part on one host, is the one that is wanted; if none is: any."""
    return not wanted or queue.partition("@")[0] == wanted
