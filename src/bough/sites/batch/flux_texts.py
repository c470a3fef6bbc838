"""Flux, by its commands: PSI/J knows it only through Flux's own Python, which an executor's Python rarely is.

Rule: its job numbers are used as it prints them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from bough.errors import UserError
from bough.sites.batch.batch_system import JobRequest, JobStatus


class Flux:
    """See `batch_system`."""

    commands = ("flux",)
    by_stdin = False
    all_cores = "$(nproc)"

    def script(self, job: JobRequest) -> str:
        """`flux batch` reads its options from the script."""
        options = {"job-name": job.name, "nodes": "1", "time-limit": f"{job.seconds}s"}
        options |= {"output": f"{job.folder}/{{{{id}}}}.out", "queue": job.partition, "bank": job.account}
        options |= {"nslots": "1", "cores-per-slot": str(job.cores)} if job.cores else {}
        lines = [f"# flux: --{name}={value}" for name, value in {**options, **job.options}.items() if value]
        lines += [] if job.cores else ["# flux: --exclusive"]
        if "\n" in job.folder or " " in job.folder:
            raise UserError(f"{job.folder} there has letters that a batch script cannot have: set XDG_CACHE_HOME there")
        return "\n".join(["#!/bin/bash", *lines, shlex.join(job.launch), ""])

    def submit(self, path: str) -> list[str]:
        """It answers with the number."""
        return ["flux", "batch", path]

    def job_id(self, out: str) -> str:
        """The last word."""
        words = out.split()
        if not words:
            raise ValueError("flux batch has said no number")
        return words[-1]

    def ask_statuses(self, jobs: Iterable[str]) -> list[str]:
        """Those that are over for a while, too."""
        return ["flux", "jobs", "--suppress-header", "--format={id} {state} {result}", *jobs]

    def read_statuses(self, code: int, out: str, said: str) -> Mapping[str, JobStatus]:
        """A job that it does not know is an error beside the others' lines."""
        lines = [line.split() for line in out.splitlines() if line.strip()]
        if code and not lines and "unknown" not in said.lower():
            raise ValueError(said[:200] or f"exit code {code}")
        found = {}
        for number, state, *result in lines:
            alive = state != "INACTIVE"
            found[number] = JobStatus(alive, "" if alive or not result else f"flux says {result[0].lower()}")
        return found

    def ask_names(self) -> list[str]:
        """Those that wait or run."""
        return ["flux", "jobs", "--suppress-header", "--format={id} {name}"]

    def read_names(self, out: str) -> Sequence[tuple[str, str]]:
        """Two words a line."""
        pairs = [line.split(None, 1) for line in out.splitlines()]
        return [(pair[0], pair[1].strip()) for pair in pairs if len(pair) == 2]

    def cancel(self, jobs: Iterable[str]) -> list[str]:
        """Several at once."""
        return ["flux", "cancel", *jobs]

    def ask_room(self, job: JobRequest) -> list[list[str]]:
        """It is not asked."""
        return []

    def read_room(self, outs: Sequence[str], job: JobRequest) -> int:
        """It was not asked."""
        raise ValueError("it does not tell what is free")
