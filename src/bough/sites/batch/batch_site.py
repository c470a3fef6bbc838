"""Sites with a batch system, here or behind SSH: a pilot is a batch job that starts an executor.

The job is found by its name, which has the key of the site and the number of the pilot in it, when nobody can say
whether a submission was taken: then it is looked for before it is submitted again. If two jobs of a pilot should run
all the same, the second one ends at once (see `far_side.start_text`). Compute nodes need to reach the head node only:
a relay runs there, see `head_relay`. Rules: all pilots of a site are asked for in one
command, and ended in one; what a batch system refuses is told in its own last line; a command that fails otherwise, or
takes too long, is no answer.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

from bough.errors import SiteError, UserError
from bough.model.plurals import counted
from bough.model.site_specs import PilotId, SiteSpec
from bough.sites.batch.batch_system import BatchSystem, JobRequest, JobStatus, find_batch_system, is_passing, last_line
from bough.sites.head.errands import PATIENCE
from bough.sites.head.head_relay import HeadRelay
from bough.sites.head.head_site import HeadSite
from bough.sites.site_kind import Checked, PilotStatus, Surroundings

_SETTLING: Final = 10.0  # seconds after which a submission without an answer has been heard, or never will be


class BatchSite(HeadSite):
    """See `site_kind`."""

    steps = (*HeadSite.steps[:-1], "batch", "tunnel", "relay")

    def __init__(self, name: str, spec: SiteSpec, around: Surroundings) -> None:
        if spec.batch == "none":
            raise UserError(f"site {name} has no batch system: say --batch slurm, or another one")
        self._system: BatchSystem = find_batch_system(spec.batch)
        self._system.script(_request(spec, "check", "/", "/"))  # what it cannot do is refused now
        self._prefix = f"bough-{around.key[:12]}-"
        super().__init__(name, spec, around)
        self._relay = HeadRelay(name, spec.relay_address, self._errand, self._digest)
        self._relay_said: dict[str, Any] = {}  # what the last errand said of it

    def _digest(self) -> str:
        assert self._archive is not None
        return self._archive.digest

    async def _make_way(self) -> None:
        await super()._make_way()
        await self._relay.ensure()

    async def open(self) -> None:
        """Be connected, with the relay in place."""
        await super().open()
        await self._relay.wake()

    async def rest(self) -> None:
        """End the relay, as there is no pilot."""
        async with self._opening:
            if self._is_ready:
                await self._relay.rest()

    def _executor(self, pilot: PilotId) -> dict[str, Any]:
        return {**super()._executor(pilot), "access": self._relay.access}

    async def _check_relay(self) -> Checked:
        await self.open()
        relay = self._relay
        found = "" if relay.is_linked else ", which has not found this server yet"
        return Checked(True, f"compute nodes reach this server by the relay on {relay.address}{found}")

    async def _check_batch(self) -> Checked:
        await self._look()
        missing = (await self._errand("missing", commands=self._system.commands))["missing"]
        if missing:
            return Checked(False, self._no_command(missing[0]))
        [did] = await self._ask([self._system.ask_names()])
        jobs = len(self._names(did))
        return Checked(True, f"{self._spec.batch} answers; you have {counted(jobs, 'job')} there")

    def _no_command(self, name: str) -> str:
        return f"there is no {name} on {self._connection.host}: is its batch system {self._spec.batch}?"

    # --- pilots ------------------------------------------------------------------------------------

    async def submit(self, pilot: PilotId) -> str:
        """Submit a job, unless it was before."""
        await self.open()
        found = await self._submit(pilot, again=False)
        if "tried" in found:
            jobs = await self._jobs_of({pilot})
            if jobs:
                return await self._only(jobs[pilot])
            if found["tried"] < min(_SETTLING, self._spec.patience):
                raise SiteError(f"nobody knows whether {self._spec.batch} has taken pilot {pilot}", transient=True)
            found = await self._submit(pilot, again=True)
        return await self._taken(pilot, found["did"])

    async def _submit(self, pilot: PilotId, *, again: bool) -> dict[str, Any]:
        folder = os.path.join(self._there["folder"], "pilots", str(pilot))
        job = _request(self._spec, self._prefix + str(pilot), folder, os.path.join(folder, "start"))
        return await self._errand(
            "submit",
            patience=self._spec.patience + PATIENCE,
            again=again,
            script=self._system.script(job),
            submit=self._system.submit(os.path.join(folder, "job")),
            by_stdin=self._system.by_stdin,
            walltime=self._spec.lifetime,
            more="" if self._spec.cores_per_pilot else f"--cores {self._system.all_cores}",
            limit=self._spec.patience,
            **self._executor(pilot),
        )

    async def _taken(self, pilot: PilotId, did: dict[str, Any]) -> str:
        """The number of a job that was submitted; if the command does not say it, the job may be there all the same."""
        problem = f"{self._spec.batch} has not answered within {self._spec.patience:g} s"
        passing = True
        if "missing" in did:
            raise SiteError(self._no_command(did["missing"]))
        if "code" in did:
            try:
                if not did["code"]:
                    return self._system.job_id(did["out"])
                problem = last_line(did["said"]) or last_line(did["out"]) or f"it ended with exit code {did['code']}"
                passing = is_passing(did["said"] + did["out"])
            except ValueError as error:
                problem = str(error)
        jobs = await self._jobs_of({pilot})
        if jobs:
            return await self._only(jobs[pilot])
        if not passing:
            await self._errand("ended", pilots=[pilot])
        raise SiteError(f"{self._spec.batch}: {problem}", transient=passing)

    async def statuses(self, pilots: Mapping[PilotId, str]) -> Mapping[PilotId, PilotStatus]:
        """Ask for all of them at once; the last words of those that are gone are fetched."""
        await self.open()
        handles = {pilot: handle for pilot, handle in pilots.items() if handle}
        nameless = {pilot for pilot in pilots if pilot not in handles}
        if nameless:
            handles |= {pilot: jobs[0] for pilot, jobs in (await self._jobs_of(nameless)).items()}
        found: Mapping[str, JobStatus] = {}
        if handles:
            [did] = await self._ask([self._system.ask_statuses(handles.values())])
            await self._relay.mend(self._relay_said)
            found = self._read(did)
        gone = {
            pilot: found.get(handles.get(pilot, ""), JobStatus(False))
            for pilot in pilots
            if not (pilot in handles and handles[pilot] in found and found[handles[pilot]].alive)
        }
        words = (await self._errand("ended", pilots=list(gone)))["words"] if gone else {}
        return {
            pilot: PilotStatus(False, gone[pilot].reason or words[str(pilot)]) if pilot in gone else PilotStatus(True)
            for pilot in pilots
        }

    async def cancel(self, pilots: Mapping[PilotId, str]) -> None:
        """End their jobs, also those that nobody knows the number of."""
        await self.open()
        await self._cancel(job for jobs in (await self._jobs_of(pilots)).values() for job in jobs)

    async def forget(self) -> None:
        """End what may be left there, and remove the access file."""
        async with self._opening:  # nothing is to be made there meanwhile
            await self._reach()
            try:
                [did] = await self._ask([self._system.ask_names()])
                await self._cancel(job for job, name in self._names(did) if name.startswith(self._prefix))
            finally:
                await super().forget()

    # --- jobs --------------------------------------------------------------------------------------

    async def _jobs_of(self, pilots: Iterable[PilotId]) -> dict[PilotId, list[str]]:
        """The jobs that have the name of one of these pilots."""
        names = {self._prefix + str(pilot): pilot for pilot in pilots}
        [did] = await self._ask([self._system.ask_names()])
        found: dict[PilotId, list[str]] = {}
        for job, name in self._names(did):
            if name in names:
                found.setdefault(names[name], []).append(job)
        return found

    async def _only(self, jobs: list[str]) -> str:
        """One of a pilot's jobs; others are ended."""
        await self._cancel(jobs[1:])
        return jobs[0]

    async def _cancel(self, jobs: Iterable[str]) -> None:
        numbers = list(jobs)
        if numbers:
            [did] = await self._ask([self._system.cancel(numbers)])
            if "missing" in did:
                raise SiteError(self._no_command(did["missing"]))

    async def _ask(self, commands: list[list[str]]) -> list[dict[str, Any]]:
        patience = len(commands) * self._spec.patience + PATIENCE
        found = await self._errand("ask", patience=patience, commands=commands, limit=self._spec.patience)
        self._relay_said = found
        return list(found["did"])

    def _names(self, did: dict[str, Any]) -> list[tuple[str, str]]:
        try:
            return list(self._system.read_names(self._out(did)))
        except ValueError as error:
            raise SiteError(f"{self._spec.batch}: {error}", transient=True) from error

    def _read(self, did: dict[str, Any]) -> Mapping[str, JobStatus]:
        if "code" not in did:
            self._out(did)
        try:
            return self._system.read_statuses(did["code"], did["out"], did["said"])
        except ValueError as error:
            raise SiteError(f"{self._spec.batch}: {last_line(did['said']) or error}", transient=True) from error

    def _out(self, did: dict[str, Any]) -> str:
        """What a command that lists jobs has said; a problem is no list."""
        if "missing" in did:
            raise SiteError(self._no_command(did["missing"]))
        if "slow" in did:
            raise SiteError(f"{self._spec.batch} has not answered within {self._spec.patience:g} s", transient=True)
        if did["code"]:
            said = last_line(did["said"]) or last_line(did["out"]) or f"exit code {did['code']}"
            raise SiteError(f"{self._spec.batch} does not list jobs: {said}", transient=True)
        return str(did["out"])


def _request(spec: SiteSpec, name: str, folder: str, start: str) -> JobRequest:
    cores = math.ceil(spec.cores_per_pilot)
    return JobRequest(
        name, folder, start, cores, math.ceil(spec.lifetime), spec.partition, spec.account, spec.batch_options
    )
