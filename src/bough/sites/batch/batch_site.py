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
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from bough.errors import SiteError, SiteFull, UserError
from bough.model.sites.site_specs import PilotId, SiteSpec
from bough.model.texts.plurals import counted
from bough.sites.batch.batch_system import (
    ENDS,
    WAITS,
    BatchSystem,
    JobRequest,
    JobStatus,
    find_batch_system,
    is_full,
    is_passing,
    last_line,
)
from bough.sites.head.errands import PATIENCE
from bough.sites.head.head_relay import HeadRelay
from bough.sites.head.head_site import HeadSite
from bough.sites.site_kind import Checked, PilotStatus, Surroundings

_SETTLING: Final = 10.0  # seconds after which a submission without an answer has been heard, or never will be


_NUMBER: Final = "bough0pilot0number"  # stands for it in texts
_ROOM_POLL: Final = 10.0  # seconds between two questions of what is free


class BatchSite(HeadSite):
    """See `site_kind`."""

    steps = (*HeadSite.steps[:-1], "batch", "tunnel", "relay")

    def __init__(self, name: str, spec: SiteSpec, around: Surroundings) -> None:
        if spec.batch == "none":
            raise UserError(f"site {name} has no batch system: say --batch slurm, or another one")
        self._system: BatchSystem = find_batch_system(spec.batch)
        self._plain = _request(spec, "check", "/", "/")  # a job like those of its pilots
        self._system.script(self._plain)  # what it cannot do is refused now
        self.room: int | None = None  # see `TellsRoom`
        self._room_due = 0.0  # when that may be asked for again
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
        found = (await self.submit_many([pilot], 0.0))[pilot]
        if isinstance(found, SiteError):
            raise found
        return found

    async def submit_many(self, pilots: Sequence[PilotId], seconds: float) -> Mapping[PilotId, str | SiteError]:
        """Submit jobs in one errand, unless they were before; those without a clear answer are looked for by name."""
        await self.open()
        answers = await self._submit(pilots, seconds, again=False)
        found = await self._settle(answers)
        settled = min(_SETTLING, self._spec.patience)
        again = [pilot for pilot in _unheard(found) if answers[pilot].get("tried", 0.0) >= settled]
        if again:
            found |= await self._settle(await self._submit(again, seconds, again=True))
        return found

    async def _submit(self, pilots: Sequence[PilotId], seconds: float, *, again: bool) -> dict[PilotId, dict[str, Any]]:
        """What came of each; those that there was no time for are not in it."""
        spec, system = self._spec, self._system
        folder = os.path.join(self._there["folder"], "pilots", _NUMBER)
        job = _request(spec, self._prefix + _NUMBER, folder, os.path.join(folder, "start"))
        script, words = system.script(job), system.submit(os.path.join(folder, "job"))  # made once: it takes its time
        jobs = [
            {
                **self._executor(pilot),
                "script": script.replace(_NUMBER, str(pilot)),
                "submit": [word.replace(_NUMBER, str(pilot)) for word in words],
            }
            for pilot in pilots
        ]
        found = await self._errand(
            "submit",
            patience=seconds + spec.patience + PATIENCE,
            jobs=jobs,
            again=again,
            seconds=seconds,
            gap=1.0 / spec.submit_rate,
            by_stdin=system.by_stdin,
            walltime=spec.lifetime,
            more="" if spec.cores_per_pilot else f"--cores {system.all_cores}",
            limit=spec.patience,
            waits=WAITS,
            ends=ENDS,
        )
        return {pilot: found["pilots"][str(pilot)] for pilot in pilots if str(pilot) in found["pilots"]}

    async def _settle(self, answers: Mapping[PilotId, dict[str, Any]]) -> dict[PilotId, str | SiteError]:
        """The jobs of pilots that were submitted; if a command does not say it, the job may be there all the same."""
        found = {pilot: self._read_answer(pilot, answer) for pilot, answer in answers.items()}
        unclear = _unheard(found)
        nowhere = [pilot for pilot in unclear if "missing" in answers[pilot].get("did", {})]  # there is nobody to ask
        if not unclear:
            return found
        try:
            jobs = await self._jobs_of(unclear) if not nowhere else {}
            await self._cancel(job for those in jobs.values() for job in those[1:])  # one of a pilot is enough
        except SiteError as error:  # they are there or not: that is found out later
            return found | {pilot: SiteError(str(error), transient=True) for pilot in unclear}
        found |= {pilot: those[0] for pilot, those in jobs.items()}
        refused = [pilot for pilot in unclear if _is_sure(found[pilot], answers[pilot])]
        if refused:
            await self._errand("ended", pilots=refused)
        return found

    def _read_answer(self, pilot: PilotId, answer: dict[str, Any]) -> str | SiteError:
        """The number of a job, or what is known instead."""
        batch, did = self._spec.batch, answer.get("did")
        if did is None:
            return SiteError(f"nobody knows whether {batch} has taken pilot {pilot}", transient=True)
        if "missing" in did:
            return SiteError(self._no_command(did["missing"]))
        if "trouble" in did:
            return SiteError(f"{self._connection.host}: {did['trouble']}")
        said = did["said"] + did["out"]
        line = last_line(did["said"]) or last_line(did["out"])
        if (did.get("code") or "slow" in did) and is_full(said):
            return SiteFull(f"{batch} takes no more jobs for now: {line}")
        if "slow" in did:
            return SiteError(f"{batch} has not answered within {self._spec.patience:g} s", transient=True)
        if did["code"]:
            problem = line or f"it ended with exit code {did['code']}"
            return SiteError(f"{batch}: {problem}", transient=is_passing(said))
        try:
            return self._system.job_id(did["out"])
        except ValueError as error:
            return SiteError(f"{batch}: {error}", transient=True)

    async def statuses(self, pilots: Mapping[PilotId, str]) -> Mapping[PilotId, PilotStatus]:
        """Ask for all of them at once; the last words of those that are gone are fetched."""
        await self.open()
        handles = {pilot: handle for pilot, handle in pilots.items() if handle}
        nameless = {pilot for pilot in pilots if pilot not in handles}
        if nameless:
            handles |= {pilot: jobs[0] for pilot, jobs in (await self._jobs_of(nameless)).items()}
        found: Mapping[str, JobStatus] = {}
        self.room = None
        if handles:
            did, *told = await self._ask([self._system.ask_statuses(handles.values()), *self._questions_of_room()])
            await self._relay.mend(self._relay_said)
            found = self._read(did)
            self.room = self._read_room(told)
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

    def _questions_of_room(self) -> list[list[str]]:
        """Ask what is free along with the statuses, but not every time: the batch system serves others, too."""
        now = time.monotonic()
        if now < self._room_due:
            return []
        self._room_due = now + (self._spec.poll or _ROOM_POLL)
        return self._system.ask_room(self._plain)

    def _read_room(self, told: list[dict[str, Any]]) -> int | None:
        """What is free, if all of the answers are there and can be read."""
        if not told or any(did.get("code", 1) for did in told):
            return None
        try:
            return self._system.read_room([did["out"] for did in told], self._plain)
        except (ValueError, LookupError):
            return None

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


def _unheard(found: Mapping[PilotId, str | SiteError]) -> list[PilotId]:
    """Those that nobody knows to be there."""
    return [pilot for pilot, one in found.items() if isinstance(one, SiteError)]


def _is_sure(found: str | SiteError, answer: Mapping[str, Any]) -> bool:
    """Whether a submission was surely not taken, so that nothing need be remembered of it."""
    if isinstance(found, SiteFull):
        return "code" in answer["did"]
    return isinstance(found, SiteError) and not found.transient


def _request(spec: SiteSpec, name: str, folder: str, start: str) -> JobRequest:
    cores = math.ceil(spec.cores_per_pilot)
    return JobRequest(
        name, folder, start, cores, math.ceil(spec.lifetime), spec.partition, spec.account, spec.batch_options
    )
