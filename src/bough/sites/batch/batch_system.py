"""What a batch system is to us: texts. A script, command lines, and what their answers mean.

The texts are made and read by the server; the commands run on the site's head node, by an errand. Rules: a batch system
does no I/O and keeps no state; an answer that cannot be read is a `ValueError`; a job that it does not name is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from bough.errors import UnknownName, did_you_mean

NAMES: Final = ("slurm", "pbs", "lsf", "sge", "flux")
# what commands say when nobody knows whether the batch system has heard them, or when it is only busy
_PASSING: Final = re.compile(
    r"timed? ?out|unable to contact|cannot connect|can't connect|could not connect|connection (refused|reset)"
    r"|communication (failure|error)|zero bytes|temporarily|try again|not responding|overloaded|end of file"
    r"|unable to send|failed receiving|no route to host|broken pipe|please wait|is down",
    re.IGNORECASE,
)

# what they say when the user has as many jobs there as he may have, or the batch system as many as it takes
_FULL: Final = re.compile(
    r"MaxSubmitJob|job queue full|unable to accept job|sleeping and retrying|maximum number of jobs"
    r"|would exceed .*limit|jobs are allowed per user|too many jobs|job (slot|threshold|pending) limit"
    r"|pending job threshold",
    re.IGNORECASE,
)
WAITS: Final = r"sleeping and retrying|[Rr]etrying in \d+ seconds"  # and when they wait for that to change
ENDS: Final = f"(?i){_PASSING.pattern}|{_FULL.pattern}"  # after which submitting others is of no use

_EMPTY_WORDS: Final = ("Exiting.",)


class JobRequest(NamedTuple):
    """The job that a pilot is."""

    name: str
    folder: str  # of the pilot, there: its output belongs here
    start: str  # the file that the job runs with a shell
    cores: int  # on one node; 0: the whole node
    seconds: int
    partition: str
    account: str
    options: Mapping[str, str]

    @property
    def launch(self) -> list[str]:
        """What the script ends with; the executor takes the place of the shell, so that it hears signals."""
        return ["exec", "/bin/bash", self.start]


class JobStatus(NamedTuple):
    """How a job is: waiting or running, or gone, with what the batch system says about it."""

    alive: bool
    reason: str = ""


class BatchSystem(Protocol):
    """See the module."""

    @property
    def commands(self) -> Sequence[str]:
        """The programs that must be on the head node."""

    @property
    def by_stdin(self) -> bool:
        """Whether the submit command reads the script from stdin."""

    @property
    def all_cores(self) -> str:
        """What a shell makes the number of cores of, if a job has the whole node."""

    def script(self, job: JobRequest) -> str:
        """The text of a job."""

    def submit(self, path: str) -> list[str]:
        """The command that submits a script."""

    def job_id(self, out: str) -> str:
        """The name that it has given the job."""

    def ask_statuses(self, jobs: Iterable[str]) -> list[str]:
        """The command that asks for these jobs, all at once."""

    def read_statuses(self, code: int, out: str, said: str) -> Mapping[str, JobStatus]:
        """The jobs of its answer."""

    def ask_names(self) -> list[str]:
        """The command that lists the user's jobs that wait or run."""

    def read_names(self, out: str) -> Sequence[tuple[str, str]]:
        """Number and name of each."""

    def cancel(self, jobs: Iterable[str]) -> list[str]:
        """The command that ends these jobs."""

    def ask_room(self, job: JobRequest) -> list[list[str]]:
        """The commands that tell what is free for jobs like this one; none: it cannot tell."""

    def read_room(self, outs: Sequence[str], job: JobRequest) -> int:
        """How many such jobs could start at once, once those that wait before them have started."""


def find_batch_system(name: str) -> BatchSystem:
    """A batch system by its name."""
    if name in {"slurm", "pbs", "lsf"}:
        from bough.sites.batch.psij_texts import make_psij_system

        return make_psij_system(name)
    if name == "sge":
        from bough.sites.batch.grid_engine import GridEngine

        return GridEngine()
    if name == "flux":
        from bough.sites.batch.flux_texts import Flux

        return Flux()
    raise UnknownName(
        f"there is no batch system {name!r}; known are: {', '.join(NAMES)}{did_you_mean(name, list(NAMES))}"
    )


def is_passing(text: str) -> bool:
    """Whether what a command says may be otherwise in a moment, or may be untrue."""
    return _PASSING.search(text) is not None


def is_full(text: str) -> bool:
    """Whether what a command says is that no more jobs are taken for now."""
    return _FULL.search(text) is not None


def last_line(text: str) -> str:
    """The batch system's own last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and line.strip() not in _EMPTY_WORDS]
    return lines[-1][:300] if lines else ""
