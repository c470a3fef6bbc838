"""Experiments: a workload on a platform under several policies, each with the same seeds.

A seed fixes the speeds of hosts and how far the times of tasks are from what was expected; all policies meet the same
ones, so that two of them can be compared seed by seed. What policies know of run times is said in `information`. The
core and the policies are those of the live system.
Rules: the same seeds give the same figures, to the byte; a policy that fails is reported in its row and stops nothing;
a run in which a task did not succeed has no figures, only a complaint.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import index, itemgetter
from random import Random
from statistics import fmean
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec
from msgspec import Meta

from bough.core.machine import Machine
from bough.errors import InternalError, UserError
from bough.model.bounds import shown, within
from bough.model.events.facts import (
    ExecutorJoined,
    ExecutorLost,
    PilotAsked,
    QueueDefined,
    QueueRemoved,
    Submitted,
)
from bough.model.ids import ExecutorId, Seconds
from bough.model.sites.queue_specs import QueueSpec
from bough.model.sites.requirements import Attributes
from bough.model.sites.resources import Needs
from bough.model.sites.site_specs import SiteSpec
from bough.model.tasks import ArraySpec, TaskSpec
from bough.policies.policy_registry import PROVISIONING, load_provisioning
from bough.sim.data.measured_attempts import Measured
from bough.sim.data.simulated_data import SimulatedData
from bough.sim.departures import Departures
from bough.sim.dispatched_simulation import DispatchedSimulation
from bough.sim.experiment_report import DataMeasures, Outcome, Report, hours, percentile
from bough.sim.host_check import check_hosts
from bough.sim.information import Foresight, Information, estimates, read_information
from bough.sim.platforms.batch_waits import recorded, sampled
from bough.sim.platforms.platform import Platform
from bough.sim.platforms.simulated_executor import UNSAID_MEMORY, ExecutorTraits, Fate, SimulatedExecutor
from bough.sim.platforms.simulated_site import SimulatedSite, after, lifetimes
from bough.sim.policy_texts import compared, load_compared
from bough.sim.policy_watch import MOST_PATIENCE, PATIENCE
from bough.sim.schedule import Interval, concurrency, intervals
from bough.sim.shortfall import shortfall
from bough.sim.simulation import Simulation
from bough.sim.workload import Workload

# A policy is anybody's code: what it raises must not stop the others. A user who interrupts is no policy.
_OF_A_POLICY = (Exception, SystemExit)
_Seeds = Annotated[int, Meta(ge=1, le=100_000)]
_Share = Annotated[float, Meta(ge=0, le=10)]  # of a time, by which another one differs from it
_Patience = Annotated[float, Meta(ge=0, le=MOST_PATIENCE)]


class Mapper(Protocol):
    """What runs simulations beside each other: a `bough.Session`, or any `concurrent.futures.Executor`."""

    def map(self, fn: Callable[..., Any], /, *iterables: Iterable[Any]) -> Iterable[Any]:
        """The values of a function, in order."""


def simulate(
    workload: Workload,
    platform: Platform,
    policies: str | Iterable[str],
    *,
    seeds: int = 1,
    noise: float = 0.0,
    information: Information = "measured",
    replication: str | Iterable[str] | None = None,
    provisioning: str | None = None,
    patience: Seconds = PATIENCE,
    session: Mapper | None = None,
) -> Report:
    """Run a workload under each policy and seed; `noise` 0.1: real times are 10 % off what was expected, about.

    `policies` and `replication`: names, or a text as on the command line ("fifo,workqueue+wqr"); see
    `bough.sim.policy_texts`. Every policy that says nothing of replication runs with each of `replication`;
    None: with what it has live.
    `information` is what policies know of run times: "measured" of the template so far, "perfect", "snapshot" (of hosts
    as they were at the start), or how far estimates are off the truth (0.3: about 30 %); see `sim.information`.
    `provisioning`: how many pilots are asked for, of sites with a queue; None: as a server does by default.
    `patience`: real seconds that a policy may take for one answer before its run is ended; 0: as many as it takes.
    `session`: the runs are tasks of it; the report is the same, to the byte.
    """
    _check_kinds(workload, platform)
    names = compared(policies, replication)
    seeds = within("seeds", index(seeds) if hasattr(seeds, "__index__") else seeds, _Seeds)  # NumPy's too
    noise = within("noise", noise, _Share)
    patience = within("patience", patience, _Patience)
    information = read_information(information)
    if provisioning is not None:
        load_provisioning(provisioning)
        if all(site.queue is None for site in platform.site.values()):
            raise UserError(
                f"provisioning {provisioning}: no site of the platform has a queue, so that no pilot is asked for;"
                " give a site queue = {wait = 60}, or leave provisioning out"
            )
    check_hosts(workload, platform)
    wanted = [(name, seed) for seed in range(1, seeds + 1) for name in names]
    once = partial(
        run_once,
        workload,
        platform,
        noise=noise,
        information=information,
        provisioning=provisioning or PROVISIONING,
        patience=patience,
    )
    if session is None:
        runs = [once(name, seed) for name, seed in wanted]
    else:
        runs = list(session.map(once, [name for name, _ in wanted], [seed for _, seed in wanted]))
    tasks = sum(task.cores > 0 for task in workload.tasks)  # others are joints, which do nothing
    return Report(workload.name, tasks, platform.cores, runs, workload.shared_share)


def _check_kinds(workload: object, platform: object) -> None:
    """Whether these are what `simulate` takes: the name of a file is not, since reading one is no part of `sim`."""
    if not isinstance(workload, Workload):
        raise UserError(
            f"{shown(workload)} is no workload; of a workflow file or the store of a run it is made by"
            " bough.analysis.read_workload(PATH)"
        )
    if not isinstance(platform, Platform):
        raise UserError(
            f"{shown(platform)} is no platform; one is made by bough.sim.one_site(hosts, cores), and of a TOML text by"
            " bough.sim.read_platform(TEXT)"
        )


def run_once(
    workload: Workload,
    platform: Platform,
    policy: str,
    seed: int,
    noise: float = 0.0,
    *,
    information: Information = "measured",
    provisioning: str = PROVISIONING,
    patience: Seconds = PATIENCE,
) -> Outcome:
    """One policy, one seed."""
    one = _Run(workload, platform, policy, seed, noise, information, provisioning, patience)
    try:
        return _outcome(one)
    except _OF_A_POLICY as error:
        return _bad_end(policy, seed, f"the run did not end: {_what_was_raised(error)}")


def trace(
    workload: Workload,
    platform: Platform,
    policy: str,
    seed: int = 1,
    noise: float = 0.0,
    *,
    information: Information = "measured",
    provisioning: str = PROVISIONING,
    patience: Seconds = PATIENCE,
) -> list[tuple[Interval, str]]:
    """What ran when and on which host in the run of `run_once`; tasks with files from the first byte to the last."""
    one = _Run(workload, platform, policy, seed, noise, information, provisioning, patience)
    try:
        simulation, executors, _ = _simulated(one)
    except _OF_A_POLICY:  # the report says why
        return []
    hosts = {executor.id: executor.host for executor in executors}
    return [(ran, hosts.get(ExecutorId(ran.executor), "")) for ran in occupied(simulation).values()]


class _Run(NamedTuple):
    """What a run is made of."""

    workload: Workload
    platform: Platform
    policy: str
    seed: int
    noise: float
    information: Information
    provisioning: str
    patience: Seconds


def _outcome(run: _Run) -> Outcome:
    simulation, executors, seconds = _simulated(run)
    if said := shortfall(simulation.machine):
        return _bad_end(run.policy, run.seed, *simulation.complaints, said)
    found = measure(run.workload, seconds, simulation, executors)
    return msgspec.structs.replace(found, policy=run.policy, seed=run.seed)


def _bad_end(policy: str, seed: int, *complaints: str) -> Outcome:
    """A run that counts for no mean."""
    return Outcome(policy, seed, complaint=_line("; ".join(dict.fromkeys(complaints))), ended=False)


def _what_was_raised(error: BaseException) -> str:
    """In words."""
    if isinstance(error, SystemExit):
        return f"the policy ended the program (SystemExit{f': {error}' if str(error) else ''})"
    return str(error) or type(error).__name__


def _simulated(run: _Run) -> tuple[Simulation, list[SimulatedExecutor], list[Seconds]]:
    """A run that came to its end, good or bad, its hosts, and what each task took at speed 1."""
    workload, platform, seed = run.workload, run.platform, run.seed
    dice = Random(f"workload {seed}")
    tasks = workload.tasks
    seconds = [task.seconds * (dice.lognormvariate(0.0, run.noise) if run.noise else 1.0) for task in tasks]

    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        return Fate(seconds[spec.id - 1])

    executors = list(platform.executors(seed))
    data = SimulatedData(workload, platform, seed=seed) if workload.files else None
    sites = _sites(platform, seed)
    policies = load_compared(run.policy, run.provisioning)

    def hosts() -> list[SimulatedExecutor]:
        return [*executors, *(one for site in sites for one in site.executors)]

    expected = estimates(run.information, seconds, seed)
    foresight = Foresight(run.information, expected, hosts) if expected is not None else None
    policies = msgspec.structs.replace(policies, foresight=foresight)
    machine = Machine(policies, seed=seed)
    if platform.dispatcher is None:
        simulation = Simulation(machine, model, executors, sites, data=data)
    else:
        simulation = DispatchedSimulation(machine, model, executors, sites, data=data, dispatcher=platform.dispatcher)
    simulation.patience = run.patience
    if foresight is not None:
        foresight.now = lambda: simulation.now
    Departures(simulation, platform, executors, seed)
    simulation.at(0.0, *(QueueDefined(name, spec) for name, spec in platform.queue.items()))
    simulation.submit(0.0, workload, estimates=expected)
    _finish(simulation)
    return simulation, hosts(), seconds


def _sites(platform: Platform, seed: int) -> list[SimulatedSite]:
    """The sites whose hosts come by pilots."""
    found = []
    for name, site in platform.site.items():
        if (queue := site.queue) is not None:
            # the core knows how long a pilot has, as of a batch system: it asks for none that no task could end in
            batch = "slurm" if queue.walltime else "none"
            spec = SiteSpec("local", "", batch, site.cores, site.hosts, idle=queue.idle, walltime=queue.walltime)
            waits = after(queue.wait + queue.startup)
            if queue.waits:
                waits = recorded(queue.waits, seed, queue.startup)
            elif queue.wait and queue.deviation:
                waits = sampled(seed, queue.wait, queue.deviation, queue.startup)
            made = SimulatedSite(name, spec, waits, walltime=queue.walltime, nodes=platform.nodes(name, seed))
            made.lifetimes = lifetimes(site.lifetime, f"{name} {seed}") if site.lifetime else None
            found.append(made)
    return found


class SimulatedHost(NamedTuple):
    """A host that joins at a time, and may leave before the end."""

    site: str
    host: str
    has: Needs  # no memory: not said
    joins: Seconds = 0.0
    leaves: Seconds | None = None
    attributes: Attributes = ()  # for requirements of tasks


def run_on_hosts(
    workload: Workload,
    hosts: Sequence[SimulatedHost],
    policy: str,
    seed: int,
    arrivals: Sequence[Seconds],
    *,
    queues: Iterable[tuple[Seconds, str, QueueSpec | None]] = (),
    wanted: Container[int] | None = None,
    patience: Seconds = PATIENCE,
) -> tuple[Outcome, dict[int, Interval]]:
    """Run tasks that arrive when it is said, in ascending order, on hosts of speed 1 that come and go.

    `queues`: when which named queue gets which limits; None: it is removed.
    `wanted`: the records of tasks that have to succeed, numbered from 1; not said: all.
    """
    tasks = workload.tasks

    def model(spec: TaskSpec | ArraySpec, index: int, attempt: int, where: ExecutorTraits) -> Fate:
        return Fate(tasks[spec.id - 1].seconds)

    executors = []
    for number, one in enumerate(hosts, 1):
        capacity = one.has if one.has.memory else msgspec.structs.replace(one.has, memory=UNSAID_MEMORY)
        executors.append(SimulatedExecutor(number, capacity, 1.0, one.host, one.site))
        executors[-1].attributes = one.attributes
    simulation = Simulation(Machine(load_compared(policy), seed=seed), model, ())
    simulation.patience = patience
    for executor, host in zip(executors, hosts, strict=True):
        simulation.join(max(0.0, host.joins), executor)
        if host.leaves is not None:
            simulation.at(host.leaves, ExecutorLost(executor.id, "it left"))
    for when, queue, limits in queues:
        simulation.at(when, QueueRemoved(queue) if limits is None else QueueDefined(queue, limits))
    for when, some in groupby(zip(arrivals, workload.items(), strict=True), key=itemgetter(0)):
        simulation.at(when, Submitted([item for _, item in some]))
    try:
        _finish(simulation)
    except _OF_A_POLICY as error:
        return _bad_end(policy, seed, f"the run did not end: {_what_was_raised(error)}"), intervals(simulation)
    ran = intervals(simulation)
    if said := shortfall(simulation.machine, wanted):
        return _bad_end(policy, seed, *simulation.complaints, said), ran
    found = measure(workload, [task.seconds for task in tasks], simulation, executors)
    return msgspec.structs.replace(found, policy=policy, seed=seed), ran


def _finish(simulation: Simulation) -> None:
    try:
        simulation.run()
    except _OF_A_POLICY as error:
        raise InternalError("; ".join(dict.fromkeys([*simulation.complaints, _what_was_raised(error)]))) from error


def measure(
    workload: Workload,
    seconds: Sequence[Seconds],
    simulation: Simulation,
    executors: Sequence[SimulatedExecutor],
) -> Outcome:
    """The figures of a run that has ended; `seconds`: what each task took at speed 1."""
    tasks = workload.tasks
    ran = occupied(simulation)
    delivered, wasted, data = 0.0, 0.0, None
    if simulation.data is not None:
        attempts = simulation.data.measured()
        for attempt in attempts.attempts:
            if attempt.outcome == "done":
                delivered += attempt.stage_in + attempt.stage_out
            else:
                wasted += (attempt.ended - attempt.began) * tasks[attempt.task].cores
        data = _data_measures(attempts)
    makespan = max((one.end for one in ran.values()), default=0.0)
    seconds = [length if place in ran else 0.0 for place, length in enumerate(seconds, 1)]  # that count in a replay
    speeds: dict[int, float] = {one.id: one.traits.speed for one in executors}
    there = presence(simulation, makespan)
    power = _most_at_once((one.start, one.end, speeds.get(one.executor, 1.0) * one.cores) for one in there)
    fastest = max((speeds.get(one.executor, 1.0) for one in there), default=1.0)
    allocated = sum(one.cores * (one.end - one.start) for one in there)
    work = sum(length * task.cores for length, task in zip(seconds, tasks, strict=True))
    ideal = _critical_path(workload, seconds) / fastest
    useful = sum((one.end - one.start) * tasks[one.record - 1].cores for one in ran.values())
    spent = max(useful + wasted, sum(one.busy for one in executors))
    waits = _waits(workload, ran)
    used = _node_seconds(ran.values())
    nodes = sum(one.end - one.start for one in there)
    return Outcome(
        "",
        0,
        makespan,
        max(ideal, work / power) if power else ideal,
        ideal,
        response=_mean(one.end - tasks[one.record - 1].arrival for one in ran.values()),
        response_95=percentile((one.end - tasks[one.record - 1].arrival for one in ran.values()), 0.95),
        wait=_mean(start - ready for ready, start in waits),
        delivery=delivered / len(ran) if ran else 0.0,
        execution=(sum(one.end - one.start for one in ran.values()) - delivered) / len(ran) if ran else 0.0,
        utilisation=min(1.0, spent / allocated) if allocated else 1.0,
        speedup=work / makespan if makespan else 1.0,
        efficiency=work / allocated if allocated else 1.0,
        provisioning=_provisioning(simulation, there),
        core_hours=hours(allocated),
        node_hours_used=hours(used),
        node_hours_idle=round(hours(max(0.0, nodes - used)), 9),
        peak_queue=concurrency((ready, start, 1) for ready, start in waits if start > ready).highest,
        cpu_waste=round((spent - useful) / useful, 9) if useful else 0.0,
        data=data,
        complaint=_line("; ".join(dict.fromkeys(simulation.complaints))),
    )


class Presence(NamedTuple):
    """From when to when an executor was there."""

    executor: int
    cores: float
    start: Seconds
    end: Seconds


def presence(simulation: Simulation, until: Seconds) -> list[Presence]:
    """The executors of a run, those of pilots too, up to a time."""
    joined: dict[int, tuple[float, Seconds]] = {}
    found: list[Presence] = []
    for _, now, written in simulation.journal:
        for fact in written:
            if isinstance(fact, ExecutorJoined):
                joined[fact.executor] = fact.capacity.cores, now
            elif isinstance(fact, ExecutorLost) and fact.executor in joined:
                cores, since = joined.pop(fact.executor)
                found.append(Presence(fact.executor, cores, min(since, until), min(now, until)))
    found += [Presence(one, cores, min(since, until), until) for one, (cores, since) in joined.items()]
    return found


def _most_at_once(amounts: Iterable[tuple[Seconds, Seconds, float]]) -> float:
    """The most that was there at one time, of amounts from when to when; who leaves has left before others come."""
    some = [one for one in amounts if one[0] < one[1]]
    changes = [(end, 0, -amount) for _, end, amount in some] + [(start, 1, amount) for start, _, amount in some]
    most = amount = 0.0
    there = 0
    for _, comes, change in sorted(changes, key=itemgetter(0, 1)):
        there += 1 if comes else -1
        amount = amount + change if there else 0.0
        most = max(most, amount)
    return most


def _provisioning(simulation: Simulation, there: Sequence[Presence]) -> Seconds:
    """From the first request for pilots, or the beginning, to the last executor that joined."""
    asked = (now for _, now, written in simulation.journal for fact in written if isinstance(fact, PilotAsked))
    return max(0.0, max((one.start for one in there), default=0.0) - next(asked, 0.0))


def occupied(simulation: Simulation) -> dict[int, Interval]:
    """By record: from when to when its slot was taken, the moving of its files included; it ends with its report."""
    ran = intervals(simulation)
    if simulation.data is not None:
        for one in simulation.data.measured().attempts:
            if one.outcome == "done":
                end = ran[one.record].end if one.record in ran else one.ended
                ran[one.record] = Interval(one.record, one.began, end, one.executor)
    return ran


def _data_measures(measured: Measured) -> DataMeasures:
    asked = measured.total("asked")
    hit, peer, joined = (measured.total(field) for field in ("hit", "peer", "joined"))
    store, origin = measured.total("store"), measured.total("origin")
    return DataMeasures(
        local=hit,
        joined=joined,
        store=store,
        peer=peer,
        origin=origin,
        hits=measured.hit_rate,
        peer_hits=peer / asked if asked else 0.0,
        moved=measured.total("moved"),
        network_waste=measured.network_waste,
    )


def _critical_path(workload: Workload, seconds: Sequence[Seconds]) -> Seconds:
    ends: list[float] = []
    for task, length, before in zip(workload.tasks, seconds, workload.dependencies(), strict=True):
        ends.append(length + max((task.arrival, *(ends[one] for one in before))))
    return max(ends, default=0.0)


def _waits(workload: Workload, ran: dict[int, Interval]) -> list[tuple[Seconds, Seconds]]:
    """Of each task when it could start and when it did; rounded, since starts are known from ends and lengths."""
    found = []
    for place, before in enumerate(workload.dependencies(), 1):
        if place in ran:
            ready = max((ran[one + 1].end for one in before if one + 1 in ran), default=0.0)
            ready = max(ready, workload.tasks[place - 1].arrival)
            found.append((round(ready, 6), max(round(ready, 6), round(ran[place].start, 6))))
    return found


def _node_seconds(ran: Iterable[Interval]) -> Seconds:
    """For how long hosts ran something, all together."""
    until: dict[int, float] = {}
    used = 0.0
    for one in sorted(ran, key=lambda interval: interval.start):
        begin = max(one.start, until.get(one.executor, 0.0))
        if one.end > begin:
            used += one.end - begin
            until[one.executor] = one.end
    return used


def _mean(values: Iterable[float]) -> float:
    some = list(values)
    return fmean(some) if some else 0.0


def _line(text: str) -> str:
    """A complaint on one line, not too long."""
    return " ".join(text.split())[:400]
