"""Placeholders that call a server: how Trellis gave out work, with our core and policies as what the server asks.

A placeholder runs on a host of its own. It asks the server for a job, fetches the files of it that its host does not
have, runs it, reports, and asks again. The server serves one call at a time: a call takes `call` seconds when nobody
else calls, and `service` seconds of these are the server's own. A placeholder that gets nothing although jobs wait asks
again at once, or after the time that its host gives to others; one that finds no job at all rests until the next phase.
A phase begins when the one before has ended.

Our core gives work to whoever has room. So a placeholder has none (it is suspended) but for the moment in which its
call to ask is served. All else is as in the live system: files, caches and policies.
Source: M. Lamb's thesis, `spec/trellis-driver.md` 4.4 to 4.7; what the thesis leaves open is read as said there.
Rule: the same jobs give the same times, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec

from bough.core.machine import Machine
from bough.errors import InternalError
from bough.model.events.arriving import News
from bough.model.events.facts import ExecutorJoined, ExecutorResumed, ExecutorSuspended, Placed, RunOpened, Submitted
from bough.model.events.news import CacheChanged, FilesIdentified, HeldContent, NamedContent, WorkSucceeded
from bough.model.ids import BlobId, ExecutorId, RecordId, Seconds, SpanId
from bough.model.sites.resources import Needs
from bough.model.tasks import Dep, Item, Kind, Limits, On, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.sim.simulation import Agenda

_RUN = 1
_EVER: Seconds = 1e12  # until when a placeholder that does not ask is suspended


class JobFile(msgspec.Struct, frozen=True):
    """A file that a job reads or makes."""

    name: str
    size: int


class Job(msgspec.Struct, frozen=True):
    """What one call gets: a task, or a bundle of them that counts as `tasks`."""

    name: str
    seconds: Seconds
    reads: Sequence[JobFile] = ()
    makes: Sequence[JobFile] = ()
    tasks: int = 1
    expected: Seconds = 0.0  # what the policy is told of its run time; 0: the truth
    after: Sequence[int] = ()  # jobs of its phase that it waits for, by their places


class Network(msgspec.Struct, frozen=True):
    """Calls and copies: see the module. `startup` passes before a file's first byte."""

    call: Seconds
    service: Seconds
    startup: Seconds = 0.0
    rate: float = 1e12  # bytes a second
    startup_per_pair: bool = False  # it passes once for all the files that come from one host
    others: Seconds = 0.0  # what a host gives to somebody else after each turn of ours


class PlaceholderOutcome(msgspec.Struct, frozen=True):
    """How it went."""

    makespan: Seconds
    affinity: float  # the part of tasks that had all their files where they ran
    response: Seconds  # the mean from submission to report
    moved: int  # bytes
    ends: Sequence[Seconds]  # of the phases


class PlaceholderRun:
    """See the module. `place` of a file that no job made is outside: a copy of it is always fetched."""

    def __init__(self, policy: str, network: Network, hosts: int, phases: Sequence[Sequence[Job]]) -> None:
        self._machine = Machine(load_policies(policy))
        self._network = network
        self._phases = phases
        self._phase = -1
        self._now: Seconds = 0.0
        self._served: Seconds = 0.0  # until when the server is busy
        self._agenda: Agenda[Callable[[], None]] = Agenda()
        self._jobs: list[Job] = []
        self._spans: dict[int, SpanId] = {}  # by placeholder: what it has
        self._given: dict[int, int] = {}  # by placeholder: which job, of all
        self._where: dict[str, int] = {}  # files that jobs made: on whose host
        self._resting: list[int] = []
        self._submitted: Seconds = 0.0
        self._left = 0
        self._waiting = 0
        self._local = self._moved = 0
        self._responses: list[Seconds] = []
        self._ends: list[Seconds] = []
        self._hosts = range(1, hosts + 1)

    def run(self) -> PlaceholderOutcome:
        """All phases."""
        self._turn(RunOpened(_RUN, "placeholders", "sim", 1))
        for number in self._hosts:
            joined = ExecutorJoined(ExecutorId(number), "trellis", f"host{number}", 0, Needs(cores=1.0))
            self._turn(joined, ExecutorSuspended(ExecutorId(number), _EVER))
        self._begin_phase()
        for number in self._hosts:
            self._ask(number)
        while len(self._ends) < len(self._phases):
            if not self._agenda:
                raise InternalError("the placeholders rest although jobs are left")
            self._now, happen = self._agenda.pop()
            happen()
        tasks = sum(job.tasks for job in self._jobs)
        return PlaceholderOutcome(self._now, self._local / tasks, fmean(self._responses), self._moved, self._ends)

    # --- calls -----------------------------------------------------------------------------------

    def _call(self, serve: Callable[[], Callable[[], None]]) -> None:
        """Call the server: half of the way, its work when all before are served, half of the way back."""
        way = max(0.0, (self._network.call - self._network.service) / 2)

        def arrive() -> None:
            self._served = max(self._now, self._served) + self._network.service
            self._agenda.put(self._served, answer)

        def answer() -> None:
            self._agenda.put(self._now + way, serve())

        self._agenda.put(self._now + way, arrive)

    def _ask(self, number: int) -> None:
        self._call(lambda: self._give(number))

    def _ask_later(self, number: int) -> None:
        self._agenda.put(self._now + self._network.others, lambda: self._ask(number))

    def _give(self, number: int) -> Callable[[], None]:
        """The server answers a placeholder that asks: what happens when the answer is there."""
        if not self._waiting:
            self._resting.append(number)
            return lambda: None
        executor = ExecutorId(number)
        placed = [fact for fact in self._turn(ExecutorResumed(executor)) if isinstance(fact, Placed)]
        if not placed:
            self._turn(ExecutorSuspended(executor, _EVER))
            return lambda: self._ask_later(number)
        (fact,) = placed
        self._waiting -= 1
        self._spans[number], self._given[number] = fact.span, fact.record - 1
        self._turn(ExecutorSuspended(executor, _EVER))
        return lambda: self._fetch_and_run(number)

    def _fetch_and_run(self, number: int) -> None:
        job = self._jobs[self._given[number]]
        missing = [file for file in job.reads if self._where.get(file.name) != number]
        if not missing:
            self._local += job.tasks
        self._moved += sum(file.size for file in missing)
        starts = (
            len({self._where.get(file.name) for file in missing}) if self._network.startup_per_pair else len(missing)
        )
        seconds = starts * self._network.startup + sum(file.size for file in missing) / self._network.rate
        self._agenda.put(self._now + seconds + job.seconds, lambda: self._call(lambda: self._report(number)))

    def _report(self, number: int) -> Callable[[], None]:
        job = self._jobs[self._given[number]]
        held = tuple(HeldContent(_digest(file.name), file.size) for file in job.makes)
        self._where.update(dict.fromkeys((file.name for file in job.makes), number))
        changed = [CacheChanged(ExecutorId(number), held, ())] if held else []
        self._turn(*changed, WorkSucceeded(self._spans.pop(number), 0, 1, job.seconds))
        self._responses.append(self._now - self._submitted)
        self._left -= 1
        if not self._left:
            self._ends.append(self._now)
            self._begin_phase()
        return lambda: self._ask_later(number)

    # --- the core --------------------------------------------------------------------------------

    def _begin_phase(self) -> None:
        """Submit the next phase, if there is one; who rests asks again."""
        self._phase += 1
        if self._phase == len(self._phases):
            return
        jobs = self._phases[self._phase]
        items: list[Item] = []
        first = len(self._jobs) + 1
        for place, job in enumerate(jobs, first):
            items.append(
                TaskSpec(
                    RecordId(place), Kind.COMMAND, BlobId(b""), b"", name=job.name, template=job.name,
                    limits=Limits(walltime=job.expected or job.seconds),
                    reads=tuple(f"/{file.name}" for file in job.reads),
                    after=tuple(Dep(On.TASK, first + one) for one in job.after),
                )
            )  # fmt: skip
        self._jobs += jobs
        files = {file.name: file.size for job in jobs for file in job.reads}
        named = tuple(NamedContent(f"/{name}", _digest(name), size) for name, size in files.items())
        self._left = self._waiting = len(jobs)
        self._submitted = self._now
        self._turn(Submitted(items))  # no placeholder asks now: what is ready waits
        if named:
            self._turn(FilesIdentified(_RUN, (), named))
        resting, self._resting = self._resting, []
        for number in resting:
            self._agenda.put(self._now, lambda number=number: self._ask(number))  # type: ignore[misc]

    def _turn(self, *news: News) -> Sequence[object]:
        turn = self._machine.turn(self._now, list(news))
        if turn.complaints:
            raise InternalError(turn.complaints[0])
        return turn.facts


def _digest(name: str) -> bytes:
    return name.encode().ljust(32, b"\0")[:32]
