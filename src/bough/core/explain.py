"""Answers to "why?": why a task is not running yet, or how it ended.

Rule: read from the state as it is, most specific reason first, in words a user can act on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from bough.core.data.data_index import ORIGIN, Rate
from bough.core.data.estimates import Basis
from bough.core.graph import dependencies
from bough.core.pilots.pilots import why_none
from bough.core.records.array_record import (
    CANCELLED,
    DONE,
    FAILED,
    HELD,
    OCCUPYING_STATES,
    READY,
    RUNNING,
    SKIPPED,
    UNSUCCESSFUL_STATES,
    WAITING,
    ArrayRecord,
    Record,
)
from bough.core.records.attempts import Span
from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.group_record import GroupRecord
from bough.core.records.indexes.affinity_index import AffinityIndex
from bough.core.records.indexes.waiting_units import Unit, files_read
from bough.core.records.task_record import TaskRecord
from bough.core.state import State, TimerKind
from bough.model.arrays.ranges import Ranges
from bough.model.ids import ExecutorId, RecordId, number_of
from bough.model.outcomes import Cause
from bough.model.sites.requirements import read_requirement
from bough.model.sites.resources import Needs, show_bytes
from bough.model.states import TaskState, says
from bough.model.tasks import Dep, On
from bough.model.texts.plurals import counted

_MANY = 5  # reasons of one kind shown before "and n more"
_MOST_COMPARED = 100  # executors of which is said what they lack
_FAILED = 10  # tasks that failed, each with its cause
_FAILED_STATE = bytes([FAILED])


def explain(state: State, record_id: int, index: int = 0) -> list[str]:
    """All that can be said of one task."""
    record = state.records.get(record_id)
    if record is None:
        return [f"there is no task {number_of(record_id)} in this run"]
    if not 0 <= index < record.length:
        return [
            f"{number_of(record_id)} has {counted(record.length, 'task')}, there is no {number_of(record_id)}.{index}"
        ]
    return [*_reasons(state, record, index), *_made_again(state, record, index)]


def _reasons(state: State, record: Record, index: int) -> list[str]:
    """Why a task is in the state that it is in."""
    reached = record.state_of(index)
    name = dependencies.name_of(record, index)
    if reached == DONE:
        lines = [_success(record, index, name), *_data_at_placing(state, record, index)]
        return [*lines, *_given_back(record, index, "an earlier attempt")]
    if reached in UNSUCCESSFUL_STATES:
        return _ending(state, record, index, name, reached)
    if reached in OCCUPYING_STATES:
        lines = [*_whereabouts(state, record, index, name, reached), *_data_at_placing(state, record, index)]
        lines += _estimate(state, record, index)
        return [*lines, *_given_back(record, index), *_asks_for_more(record, index, "this one has")]
    if reached == HELD:
        return [f"{name} is held: {_holder(record, index)}"]
    if reached == READY:
        lines = _no_room(state, record, index, name)
        lines += [*_data_elsewhere(state, record, index), *_estimate(state, record, index)]
    else:
        lines = _waiting(state, record, index, name)
    return [*lines, *_given_back(record, index), *_asks_for_more(record, index)]


def _made_again(state: State, record: Record, index: int) -> list[str]:
    """Why a task that had succeeded ran again, for which such task it waits, and where its outputs are."""
    lines: list[str] = []
    holder = state.unsaved.by_record.get(record.id, {}).get(index)
    if holder is not None:
        host = state.executors[ExecutorId(holder.executor)].host
        lines.append(f"its outputs are on their way: {host} holds them and writes them back with others")
    remake = state.remakes.find(record.id, index)
    if remake is not None:
        is_over = "" if remake.under_way else "was "
        times = f" ({counted(remake.count, 'time')} so far)" if remake.count > 1 else ""
        lines.append(f"it {is_over or 'is '}made again: {remake.reason}{times}")
    if record.state_of(index) == WAITING and state.remakes.is_waited_for(record.id, index):
        again = state.remakes.awaited(dependencies.direct(record, index))
        if again is not None:
            other = dependencies.name_of(state.records[again[0]], again[1])
            lines.append(f"it waits for {other}, which is made again because something that it had made was lost")
    return lines


def _data_at_placing(state: State, record: Record, index: int) -> list[str]:
    """How much of a task's input was where its last attempt went, what is elsewhere now, and what moving it costs."""
    affinity, unit = state.affinity, Unit(record, index, 0.0)
    placed = affinity.placed.of(unit.run, unit.key) if affinity is not None else None
    if affinity is None or placed is None:
        return []
    site, host, contents, there = placed
    place = f"site {site}" if affinity.by_site else host
    if not contents:
        return [f"what its input holds was not known when it went to {host}"]
    if not set(contents) <= set(affinity.contents_of(unit)):
        return []  # a file of it holds something else by now
    sizes = state.data.contents.sizes
    here, total = sum(sizes[content] for content in there), sum(sizes[content] for content in contents)
    whole = f"{counted(len(contents), 'file')}, {show_bytes(total)}" if affinity.by_files else show_bytes(total)
    if there:
        part = str(len(there)) if affinity.by_files else show_bytes(here)
        line = f"{part} of {whole} of its input were at {place} when it was placed"
    else:
        line = f"nothing of its input ({whole}) was at {place} when it was placed"
    unknown = len(files_read(record, index)) - len(contents)
    if unknown:
        line += f"; what {counted(unknown, 'other file holds', 'other files hold')} was not known"
    line += _now_elsewhere(affinity, unit, site, host)
    source, link = _fastest_link(state, affinity, unit, site, host)
    if link is None:
        return [line]
    seconds = link.latency + (here or total) / link.rate
    what = "that saved" if here else "moving it takes"
    return [f"{line}; {what} about {seconds:.2g} s, at {show_bytes(int(link.rate))}/s from {source}"]


def _now_elsewhere(affinity: AffinityIndex, unit: Unit, site: str, host: str) -> str:
    """Where else the most of a task's input is, as it is now: what was where at its placing is not kept."""
    own = site if affinity.by_site else f"{site}/{host}"
    others = {name: amount for name, amount in affinity.holders(unit).items() if name != own}
    if not others:
        return "; none of it is elsewhere now"
    most = max(others, key=lambda name: others[name])
    return f"; the most elsewhere is {_data_amount(affinity, others[most])} now, at {most}"


def _fastest_link(state: State, affinity: AffinityIndex, unit: Unit, site: str, host: str) -> tuple[str, Rate | None]:
    """The fastest way by which a task's input could have come to a host, as far as it was measured, and from where.

    A peer counts if it holds some of it now: by what came from it, or at the same site by what came from peers there.
    """
    data, place = state.data, (site, host)
    there = data.hosts.get(place)
    own = there.rates if there is not None else data.former_rates.get(place, {})
    links = {"the origin": own.get(ORIGIN) or data.rates.get(ORIGIN)}
    for number in affinity.held_by_hosts(unit):
        peer = data.by_number[number]
        if peer is None or (peer.site, peer.host) == place or (affinity.by_site and peer.site == site):
            continue
        links[peer.host] = own.get(peer.host) or (data.rates.get("") if peer.site == site else None)
    known = {source: link for source, link in links.items() if link is not None and link.rate}
    source = max(known, key=lambda one: known[one].rate, default="")
    return source, known.get(source)


def _estimate(state: State, record: Record, index: int) -> list[str]:
    """For how long a task is expected to run, and where that is from, if the policy goes by it."""
    if not getattr(state.policies.placement, "uses_estimates", False):
        return []
    span, affinity = state.attempts.at(record, index), state.affinity
    host = span.executor.host if span is not None else ""
    if affinity is not None:
        seconds, basis = affinity.expected_on(record, index, host)
    else:
        basis = Basis.TEMPLATE if record.runtime.mean else Basis.USER if record.expected else Basis.NOTHING
        seconds = record.expected
    if basis is Basis.NOTHING:
        unknown = "nobody knows how long it runs: no task like it has ended, and it has no estimate (walltime)"
        return [f"the policy goes by run times, and {unknown}; such tasks are placed in order"]
    return [f"it is expected to run for {seconds:.2g} s: {basis.value.format(host=host)}"]


def _data_elsewhere(state: State, record: Record, index: int) -> list[str]:
    """Where the input of a task is that waits."""
    affinity = state.affinity
    if affinity is None or not record.has_inputs:
        return []
    unit = Unit(record, index, 0.0)
    held = affinity.holders(unit)
    if not held:
        return []
    name = max(held, key=lambda one: held[one])
    total = affinity.measure(unit, None)[1]
    return [f"most of its input is at {name}: {_data_amount(affinity, held[name])} of {_data_amount(affinity, total)}"]


def _data_amount(affinity: AffinityIndex, amount: int) -> str:
    return counted(amount, "file") if affinity.by_files else show_bytes(amount)


def _given_back(record: Record, index: int, which: str = "its last attempt") -> list[str]:
    """Why the attempt before was ended, if that was for a reason that is not its own."""
    failure = record.failure_of(index)
    if failure is not None and failure.cause is Cause.NO_SPACE:
        return [f"{which} ended for want of space: {failure.message}"]
    if failure is None or failure.cause is not Cause.GIVEN_BACK:
        return []
    return [f"{which} was {failure.message}"]


def _asks_for_more(record: Record, index: int, other: str = "the next one has") -> list[str]:
    """What another attempt has that the last one had not, if a limit ended that one."""
    failure, limits = record.failure_of(index), record.spec.limits
    if failure is not None and failure.cause is Cause.MEMORY and limits.memory_growth:
        return [f"its memory limit ended the last attempt; {other} {show_bytes(limits.memory)}"]
    if failure is not None and failure.cause is Cause.TIMEOUT and limits.timeout_growth:
        return [f"its time limit ended the last attempt; {other} {limits.timeout:g} s"]
    return []


def _success(record: Record, index: int, name: str) -> str:
    success = record.success_of(index)
    if success is not None and success.source != record.id:
        return f"{name} is done: reused from an earlier run, where it was task {number_of(success.source)}"
    return f"{name} is done"


def _ending(state: State, record: Record, index: int, name: str, reached: int) -> list[str]:
    failure = record.failure_of(index)
    if reached == CANCELLED:
        return [f"{name} was cancelled"]
    if failure is None:
        return [f"{name} {says(TaskState(reached).label)}"]
    if reached == SKIPPED:
        return _not_run(state, record, index, name)
    failures, losses = record.failures_of(index)
    lines = [f"{name} failed: {failure.message or failure.cause.value}"]
    if failure.parameters:
        lines.append(f"its parameters: {failure.parameters}")
    queue = record.queue.named
    if failure.cause is Cause.TIMEOUT and queue.spec.max_time:
        lines.append(f"its queue {queue.name} lets no task run for more than {queue.spec.max_time:g} s")
    if failures + losses > 1:
        allowed = counted(record.spec.limits.retries, "retry was", "retries were")
        lines.append(f"it was tried {failures + losses} times, {allowed} allowed")
    if failure.stderr:
        lines += ["the last lines of its stderr:", *("  " + line for line in failure.stderr.splitlines()[-10:])]
    if failure.traceback:
        lines += ["its traceback:", *("  " + line for line in failure.traceback.splitlines())]
    return lines


def _not_run(state: State, record: Record, index: int, name: str) -> list[str]:
    """Why it was skipped: the one task that failed, or all that it comes after and that failed, each with its cause."""
    failure = record.failure_of(index)
    assert failure is not None
    first = f"{name} was skipped: {failure.message or failure.cause.value}"
    if failure.cause is not Cause.DEPENDENCY:
        return [first]
    failed = list(islice(_failed(state, record, index), _FAILED + 1))
    if len(failed) < 2:
        return [first]
    total = sum(1 for _ in _failed(state, record, index))
    lines = [f"{name} was skipped: {total} tasks that it comes after did not succeed:"]
    for other, at in failed[:_FAILED]:
        cause = other.failure_of(at)
        said = cause.message or cause.cause.value if cause is not None else TaskState(other.state_of(at)).label
        called = f" with {cause.parameters}" if cause is not None and cause.parameters else ""
        lines.append(f"  {dependencies.name_of(other, at)}{called}: {said}")
    if total > _FAILED:
        lines.append(f"  and {total - _FAILED} more; see bough status --failed")
    return lines


def _failed(state: State, record: Record, index: int) -> Iterator[tuple[Record, int]]:
    """Elements that failed and that a task comes after, directly or through others that were not run for it."""
    seen: set[tuple[int, int]] = set()
    for dep in _unmet(state, _all_deps(record, index)):
        for other, at in _unsuccessful(state, dep):
            cause = other.failure_of(at)
            if other.state_of(at) == SKIPPED and cause is not None and cause.source in state.records:
                root = state.records[RecordId(cause.source)]
                runs = root.runs(_FAILED_STATE, 0, root.length)
                found = [(root, number) for start, stop in runs for number in range(start, stop)]
            else:
                found = [(other, at)]
            for one in found:
                if (one[0].id, one[1]) not in seen:
                    seen.add((one[0].id, one[1]))
                    yield one


def _unsuccessful(state: State, dep: Dep) -> Iterator[tuple[Record, int]]:
    """What of a dependency did not succeed; of an array, and of a group's, those that failed come first."""
    if dep.is_group:
        number = state.groups[dep.id].failed_by
    elif dep.on is On.TASK:
        record = state.records[dep.id]
        if record.state_of(dep.index) in UNSUCCESSFUL_STATES:
            yield record, dep.index
        return
    else:
        number = dep.id
    if number not in state.records:
        return
    record = state.records[RecordId(number)]
    runs = record.runs(_FAILED_STATE, 0, record.length) or record.runs(UNSUCCESSFUL_STATES, 0, record.length)[:1]
    for start, stop in runs:
        for index in range(start, stop):
            yield record, index


def _all_deps(record: Record, index: int) -> Iterator[Dep]:
    """What a task waits for, by itself and with its groups."""
    yield from _own_deps(record, index)
    for group in record.group.chain():
        yield from group.after


def _whereabouts(state: State, record: Record, index: int, name: str, reached: int) -> list[str]:
    span = state.attempts.at(record, index)
    if span is None:
        return [f"{name} {says(TaskState(reached).label)}"]
    host = span.executor.host
    if reached == RUNNING and state.attempts.replicas:
        together = state.attempts.of(record, index, index + 1)
        if len(together) > 1:
            return _replicas(state, together, name)
    if reached == RUNNING:
        return [f"{name} is running on {host}, attempt {span.attempt}"]
    if span not in span.executor.front():
        return [f"{name} waits on {host} behind {counted(len(span.executor.spans) - 1, 'other')}"]
    return [f"{name} was given to {host}, attempt {span.attempt}, and is starting, or too short to be reported"]


def _replicas(state: State, together: list[Span], name: str) -> list[str]:
    """Where the attempts of a task run that run at the same time, and why there are several."""
    lines = [f"{name} is running on {counted(len(together), 'executor')} at once; the first success counts"]
    for span in together:
        start = state.replicas.started.get(span.id)
        why = "" if start is None else f": a replica, because {start.reason or 'an executor would have idled'}"
        lines.append(f"  attempt {span.attempt} on {span.executor.host}{why}")
    return lines


def _holder(record: Record, index: int) -> str:
    for group in record.group.chain():
        if group.disabled or group.held:
            return _group_holds(group)
    return _user_holds(record, index)


def _user_holds(record: Record, index: int) -> str:
    if record.held:
        who = "its array" if record.is_array else "it"
        return f"a user held {who}; release it with: bough release {number_of(record.id)}"
    label = dependencies.label_of(record, index)
    return f"a user held {label}; release it with: bough release {label}"


def _group_holds(group: GroupRecord) -> str:
    """How a group keeps its tasks from starting, and what lets them."""
    which = f"its group {group.path}" if group.path else "the whole workflow"
    if group.disabled:
        return f"{which} is disabled; let it start with: bough enable {group.path or 'all'}"
    return f"{which} is held; release it with: bough release {f'{group.path}/*' if group.path else 'all'}"


def _no_room(state: State, record: Record, index: int, name: str) -> list[str]:
    needs = record.spec.needs
    if state.stopping:
        return [f"{name} is ready, but the session is closing and starts nothing new"]
    there = [executor for executor in state.executors.values() if executor.pid or not executor.draining]  # no people
    if not there:
        bound = f" at {' or '.join(needs.sites)}" if needs.sites else ""
        lines = [f"{name} is ready, but there is no executor{bound}", *_pilots_to_come(state, record)]
        return [*lines, *_sites_of_other_pythons(state, needs.python)]
    able = [executor for executor in there if executor.could_fit(needs)]
    if not able:
        lines = [_never_fits(there, needs, name), *_pilots_to_come(state, record)]
        return [*lines, *_sites_of_other_pythons(state, needs.python)]
    if all(executor.draining or executor.away for executor in able):
        return [_none_stays(state, able, name), *_pilots_to_come(state, record)]
    avoided = state.avoidable(record, record.avoid if isinstance(record, TaskRecord) else record.avoided.get(index, ()))
    able = [executor for executor in able if not executor.away and executor.id not in avoided]
    admitted = [executor for executor in able if record.queue.named.admits(executor.site)]
    if reason := _held_by_queue(state, record, admitted) or _held_by_group(record):
        return [f"{name} is ready, but {reason}", *([] if admitted else _pilots_to_come(state, record))]
    bounds = [executor.bound.reached() if executor.bound is not None else None for executor in admitted]
    if all(bound is not None for bound in bounds):
        return [f"{name} is ready, but {bounds[0]}"]
    return _busy(state, record, name, there, admitted)


def _busy(
    state: State, record: Record, name: str, there: list[ExecutorRecord], able: list[ExecutorRecord]
) -> list[str]:
    """Those that could run a task have other things to do, or do not stay for long enough."""
    needs = record.spec.needs
    if record.place in state.hosts:
        able = [executor for executor in able if executor.host == record.place]
        if not any(executor.fits(record) for executor in able):
            return [f"{name} is ready and waits for room on {record.place}, where it must run"]
    staying = [executor for executor in able if executor.ends_before(record, state.now)]
    if able and not staying:
        return [_too_long(state, record, able, name), *_pilots_to_come(state, record)]
    able = staying
    if any(executor.fits(record) for executor in able):
        return [f"{name} is ready and about to start"]
    busy = "the executor is busy" if len(able) == 1 else f"all {len(able)} executors that could run it are busy"
    return [
        f"{name} is ready and waits for {needs} to become free; {busy}",
        *_other_pythons(there, needs.python),
        *_pilots_to_come(state, record),
    ]


def _held_by_group(record: Record) -> str:
    """Which group keeps a task from starting because enough of it runs; empty: none does."""
    for group in record.queue.limits:
        if group.busy >= group.limit:
            return f"its group {group.path} is at its limit of {counted(group.limit, 'task')} at once"
    return ""


def _held_by_queue(state: State, record: Record, admitted: list[ExecutorRecord]) -> str:
    """Which limit of which queue keeps a task from starting; empty: none does."""
    own, cores = record.queue.named, record.queue.cores
    spec = own.spec
    if not admitted:
        return f"its queue {own.name} runs tasks only at {' or '.join(spec.sites)}, and no executor there could run it"
    if spec.max_cores and cores > spec.max_cores:
        return f"it needs {cores:g} cores, and its queue {own.name} has at most {spec.max_cores:g}"
    if not own.room(cores):
        return f"its queue {own.name} holds {own.cores:g} of the {spec.max_cores:g} cores that it may have at once"
    if own.bounded and not own.spare(cores):
        lacking = {one.name: lacks for one in state.named_queues.defined() if one is not own and (lacks := one.lacks())}
        kept = ", ".join(f"queue {queue} ({amount:g})" for queue, amount in lacking.items())
        return f"the cores that are free are reserved for {kept}"
    return ""


def _too_long(state: State, record: Record, able: list[ExecutorRecord], name: str) -> str:
    """No executor stays for as long as the task is expected to run."""
    last = max(executor.until for executor in able) - state.now
    return (
        f"{name} is ready, but expected to run for {record.expected:.0f} s,"
        f" and every executor that could take it leaves before, the last one in {max(last, 0.0):.0f} s"
    )


def _pilots_to_come(state: State, record: Record) -> list[str]:
    """What is done about it: pilots that are to bring executors, and why no others are asked for."""
    sites = record.needs.sites
    lines = [f"there is no site {name}: add it with bough site add {name}" for name in sites if name not in state.sites]
    for site in state.defined_sites.values():
        if (sites and site.name not in sites) or not record.queue.named.admits(site.name):
            continue
        lifetime = site.spec.lifetime if site.spec is not None else 0.0
        if lifetime and record.expected > lifetime:
            lines.append(
                f"site {site.name} gets no pilot for it: its pilots end after {lifetime:g} s,"
                f" and it is expected to run for {record.expected:.0f} s; give the site a longer --walltime"
            )
        elif site.starting:
            oldest = next(iter(site.starting.values()))
            so_far = f"the first {max(0.0, state.now - oldest.asked):.0f} s ago"
            lines.append(f"site {site.name} was asked for {counted(len(site.starting), 'pilot')}, {so_far}")
        elif why := why_none(state, site, [record.spec.needs]):
            lines.append(f"site {site.name} is asked for no pilot: {why}")
    return lines


def _none_stays(state: State, able: list[ExecutorRecord], name: str) -> str:
    """Why none of the executors that could run a task is given it: they leave, or their sites are away."""
    away = sorted({_absence(state, executor) for executor in able if executor.away and not executor.draining})
    if not away:
        return f"{name} is ready, but every executor that could take it is leaving"
    return f"{name} is ready, but where it could run is away: {', '.join(away)}; see bough site list"


def _absence(state: State, executor: ExecutorRecord) -> str:
    site = state.sites[executor.site]
    return f"site {site.name} ({site.reason})" if site.reason else f"site {site.name}"


def _never_fits(there: list[ExecutorRecord], needs: Needs, name: str) -> str:
    """Why no executor could ever run a task: none is at its sites, meets what it requires, or has enough."""
    if needs.sites:
        there = [executor for executor in there if executor.site in needs.sites]
        if not there:
            return f"{name} is ready, but there is no executor at {' or '.join(needs.sites)}, where it must run"
    if needs.requires:
        meeting = [executor for executor in there if executor.meets(needs.requires)]
        if not meeting:
            return f"{name} requires {_lacking(there, needs.requires)}"
        there = meeting
    runs = [executor for executor in there if executor.runs(needs.python)]
    if not runs:
        python = needs.python
        return (
            f"{name} is a function submitted from Python {python}, and no executor with Python {python} is there"
            f" (those that are there have {_versions(there)}); start one with that Python: bough executor start"
        )
    most = {n: max(x.capacity.amounts().get(n, 0) for x in runs) for n in needs.amounts()}
    lacking = [f"{n} {_amount(n, needs.amounts()[n])} (the most there is: {_amount(n, most[n])})" for n in most]
    wrong = [text for text, n in zip(lacking, most, strict=True) if needs.amounts()[n] > most[n]]
    return f"{name} needs {needs}, and no executor has that much: {', '.join(wrong) or 'not all of it in one place'}"


def _lacking(there: list[ExecutorRecord], requires: str) -> str:
    """What executors do not meet of a requirement: "memory_gb >= 64: alpha has 32"."""
    lacking: dict[str, dict[str, None]] = {}
    for executor in islice(there, _MOST_COMPARED):
        for part, has in read_requirement(requires).unmet(executor.known()):
            lacking.setdefault(part, {})[f"{executor.site} has {has}"] = None
    shown = []
    for part, ways in lacking.items():
        more = f" and {len(ways) - _MANY} more" if len(ways) > _MANY else ""
        shown.append(f"{part}: {', '.join(islice(ways, _MANY))}{more}")
    return "; ".join(shown) or f"{requires}: no executor has all of it"


def _other_pythons(there: list[ExecutorRecord], python: str) -> list[str]:
    """The executors that a function must leave out, whatever is free there."""
    others = [executor for executor in there if not executor.runs(python)]
    if not others:
        return []
    has = counted(len(others), "other executor has", "other executors have")
    return [f"{has} Python {_versions(others)}, where a function submitted from Python {python} cannot run"]


def _sites_of_other_pythons(state: State, python: str) -> list[str]:
    """The sites that no pilot is asked for at, because executors there have another Python."""
    return [
        f"site {site.name} has Python {site.offers.python}, where a function submitted from Python {python} cannot run:"
        " no pilot is asked for there"
        for site in state.defined_sites.values()
        if python and site.offers is not None and site.offers.python not in {"", python}
    ]


def _versions(executors: list[ExecutorRecord]) -> str:
    return ", ".join(sorted({executor.python for executor in executors}))


def _amount(resource: str, amount: float) -> str:
    if resource == "memory":
        return show_bytes(int(amount))
    return f"{amount:g}"


def _waiting(state: State, record: Record, index: int, name: str) -> list[str]:
    if record.awaits_memo:
        return [f"{name} is being looked up among finished tasks of earlier runs"]
    for when, kind, id_, element in state.timers:
        if kind == TimerKind.RETRY and id_ == record.id and element == index:
            if lines := _given_back(record, index):
                return [f"{name} is tried again in {max(when - state.now, 0):.1f} s", *lines]
            return [f"{name} failed and will be retried in {max(when - state.now, 0):.1f} s"]
    lines = []
    open_deps = list(_unmet(state, _own_deps(record, index)))
    if open_deps:
        shown = ", ".join(_describe(state, dep) for dep in open_deps[:_MANY])
        more = f" and {len(open_deps) - _MANY} more" if len(open_deps) > _MANY else ""
        lines.append(f"{name} waits for {shown}{more}")
    if record.held or any(low <= index < high for low, high in _held_ranges(record)):
        lines.append(f"after that it stays held: {_user_holds(record, index)}")
    for group in record.group.chain():
        if group.disabled or group.held:
            lines.append(_group_holds(group))
        waiting = list(_unmet(state, group.after))
        if waiting:
            shown = ", ".join(_describe(state, dep) for dep in waiting[:_MANY])
            lines.append(f"its group {group.path} waits for {shown}")
    return lines or [f"{name} is waiting"]


def _held_ranges(record: Record) -> Ranges:
    return record.held_ranges if isinstance(record, ArrayRecord) else []


def _own_deps(record: Record, index: int) -> Iterator[Dep]:
    """What a task waits for by itself, as an array or as an element."""
    yield from record.after
    if isinstance(record, ArrayRecord):
        yield from (dep for element, own in record.spec.element_after if element == index for dep in own)


def _unmet(state: State, deps: Iterable[Dep]) -> Iterator[Dep]:
    """The dependencies that are not met; a hidden group stands for those that it waits for itself."""
    for dep in deps:
        if _met(state, dep):
            continue
        group = state.groups[dep.id] if dep.is_group else None
        if group is not None and group.name.startswith("."):
            yield from _unmet(state, group.after)
        else:
            yield dep


def _met(state: State, dep: Dep) -> bool:
    if dep.is_group:
        group = state.groups[dep.id]
        return (group.released and dep.on is On.GROUP) or (group.finished and not group.failed_by)
    record = state.records[dep.id]
    return record.state_of(dep.index) == DONE if dep.on is On.TASK else dependencies.is_done(record)


def _describe(state: State, dep: Dep) -> str:
    if dep.is_group:
        group = state.groups[dep.id]
        return f"group {group.path} ({group.unfinished} unfinished)"
    record = state.records[dep.id]
    if dep.on is On.ARRAY and isinstance(record, ArrayRecord):
        failed = record.runs(_FAILED_STATE, 0, record.length)
        numbers = (at for start, stop in failed for at in range(start, min(stop, start + _MANY)))
        some = [dependencies.label_of(record, at) for at in islice(numbers, _MANY)]
        count = record.counts[FAILED]
        more = f", {count} failed: {', '.join(some)}{', ...' if count > len(some) else ''}" if count else ""
        left = f"{record.length - record.counts[DONE]} of {record.length} not done{more}"
        return f"array {number_of(record.id)} ({left})"
    return f"{dependencies.name_of(record, dep.index)} ({TaskState(record.state_of(dep.index)).label})"
