"""The conservation laws of the core, checked by tests after every turn.

Rule: each law is recomputed from scratch here, never read from the index it checks.
"""

from __future__ import annotations

from collections import Counter

from bough.core.records.array_record import DONE, ENDED_STATES, OCCUPYING_STATES, READY, RUNNING, ArrayRecord, Record
from bough.core.records.attempts import Span
from bough.core.records.executor_record import is_manual
from bough.core.records.group_record import STATES, GroupRecord
from bough.core.records.indexes.ready_queue import HAD_RUN, is_valid
from bough.core.records.indexes.replicas import may_be_replicated
from bough.core.records.indexes.waiting_units import key_of
from bough.core.records.population_record import Population
from bough.core.records.site_record import SiteRecord
from bough.core.records.task_record import TaskRecord
from bough.core.records.task_series import MOST_FIRED, MOST_KEPT, MOST_METRICS, MOST_TAGS
from bough.core.state import State
from bough.errors import InvariantBroken
from bough.model.arrays import ranges
from bough.model.sites.resources import Needs

_ROUNDING = 1e-6  # sums of floats are made in another order here


def check(state: State) -> None:
    """Raise `InvariantBroken` naming the first law that does not hold."""
    for group in state.groups.values():
        _counts(group)
        _unfinished(state, group)
    for record in state.records.values():
        _ready(state, record)
    _spans(state)
    _resources(state)
    _limits(state)
    _totals(state)
    _shapes(state)
    _turns(state)
    _watched(state)
    _sites(state)
    _populations(state)
    _replicas(state)
    _unsaved(state)
    _wanted(state)


def _demand(holds: bool, law: str) -> None:
    if not holds:
        raise InvariantBroken(law)


def _states(record: Record) -> bytes:
    return bytes(record.state_of(index) for index in range(record.length))


def _counts(group: GroupRecord) -> None:
    counted = [0] * STATES
    for record in group.members:
        own = _states(record)
        for state in own:
            counted[state] += 1
        if isinstance(record, ArrayRecord):
            _demand(record.counts == [own.count(s) for s in range(STATES)], f"counts of array {record.id} are wrong")
    _demand(counted == group.counts, f"counts of group {group.id} are {group.counts}, should be {counted}")


def _unfinished(state: State, group: GroupRecord) -> None:
    own = sum(1 for record in group.members for state in _states(record) if state not in ENDED_STATES)
    own += sum(1 for record in group.members if isinstance(record, ArrayRecord) and record.open)
    own += sum(len(state.unsaved.by_record.get(record.id, ())) for record in group.members)
    below = sum(1 for child in group.children if not child.finished)
    _demand(group.unfinished == own + below, f"group {group.id} has {own + below} unfinished, not {group.unfinished}")
    released = sum(1 for child in group.children if child.released and not child.finished)
    _demand(
        group.released_children == released,
        f"group {group.id} has {released} released subgroups, not {group.released_children}",
    )
    _demand(not group.finished or (group.closed and not group.unfinished), f"group {group.id} is settled too early")


def _unsaved(state: State) -> None:
    """Outputs on their way are of elements that succeeded, and with executors that are there."""
    seen: dict[int, set[tuple[int, int]]] = {}
    for number, index, executor, *_ in state.unsaved.all():
        record = state.records.get(number)
        done = record is not None and index < record.length and record.state_of(index) == DONE
        _demand(done, f"outputs of {number}.{index} are on their way, and it has not succeeded")
        _demand(executor in state.executors, f"outputs of {number}.{index} are with {executor}, which is not there")
        seen.setdefault(executor, set()).add((number, index))
    known = {executor: set(elements) for executor, elements in state.unsaved.by_executor.items()}
    _demand(seen == known, "outputs on their way are not those that executors have")


def _wanted(state: State) -> None:
    """What is ready and of a record that declares inputs is listed, or will be; who reads a content is counted."""
    affinity = state.affinity
    if affinity is None or not state.asks_policy:
        return
    units = affinity.units
    for key, unit in units.items():
        _demand(
            unit.key == key and not unit.gone, f"{key} is listed as waiting for its data, and was told to have left"
        )
    if not affinity.window:
        coming = {key_of(record, index) for record, start, stop in affinity.unlisted() for index in range(start, stop)}
        listed = units.keys() | coming
        for record in state.records.values():
            if record.ready and record.has_inputs:
                runs = record.runs(bytes((READY,)), 0, record.length)
                ready = (index for start, stop in runs for index in range(start, stop))
                missing = [index for index in ready if key_of(record, index) not in listed]
                _demand(not missing, f"{record.id}.{missing} is ready, and not listed by what it reads")
    readers = Counter(content for unit in units.values() for content in affinity.contents_of(unit))
    for content in range(len(state.data.holders_by_content)):
        told, counted = affinity.count_readers(content), readers[content]
        _demand(told == counted, f"content {content} has {counted} readers, not {told}")


def _ready(state: State, record: Record) -> None:
    runs = record.runs(bytes((READY,)), 0, record.length)
    _demand(record.ready == ranges.size(runs), f"record {record.id} says {record.ready} ready, has {runs}")
    if isinstance(record, ArrayRecord):
        offered = sorted([start, stop] for start, stop, _ in [*record.given_back, *record.ready_ranges])
        indexes = [index for start, stop in offered for index in range(start, stop)]
        if record.has_gaps:
            waiting = (*record.given_back, *record.ready_ranges)
            live = {i for low, high, n in waiting for i in range(low, high) if record.attempt_of(i) == n}
            indexes = sorted(index for index in live if record.state_of(index) == READY)
        truth = [index for start, stop in runs for index in range(start, stop)]
        _demand(indexes == truth, f"array {record.id} offers {offered}, ready are {runs}")
    if record.ready:
        queued = any(entry[4] is record and is_valid(entry) for entry in record.queue.entries())
        _demand(queued and record.queue.root in state.waiting, f"record {record.id} is ready but not in the queue")


def _turns(state: State) -> None:
    """What has something ready is offered with its bid, with a better one, or will be offered anew."""
    fair = state.fair
    _demand(fair.touched.keys() <= fair.waiting.keys(), "something is to be offered anew that does not wait")
    for root in fair.waiting:
        head, share = root.head(), root.share
        if head is None or root in fair.touched or share in fair.marked:
            continue
        bid = (share.cores, *head[:3], share.served, head[3])
        offered = root.bid is not None and any(one[0] is root.bid for one in root.shape.offers)
        _demand(offered and root.bid is not None and root.bid <= bid, f"a queue with the bid {bid} has {root.bid}")
        _demand(share.offered, "a share whose queues are offered is not told of it")


def _shapes(state: State) -> None:
    counted: dict[Needs, int] = {}
    for record in state.records.values():
        if record.ready:
            _demand(record.queue.root in record.queue.shape.queues, f"the queue of record {record.id} is not indexed")
            counted[record.needs] = counted.get(record.needs, 0) + record.ready
    indexed = {shape.needs: shape.ready for shape in state.demand}
    _demand(indexed == counted, f"the demand is {counted}, not {indexed}")


def _spans(state: State) -> None:
    held: dict[tuple[int, int], list[Span]] = {}
    for span in state.spans.values():
        _demand(bool(span.left), f"span {span.id} holds nothing")
        _demand(span.executor.spans.get(span.id) is span, f"span {span.id} is not with its executor")
        for start, stop in span.left:
            for index in range(start, stop):
                _demand(
                    span.record.state_of(index) in OCCUPYING_STATES,
                    f"{span.record.id}.{index} is with a span, not busy",
                )
                held.setdefault((span.record.id, index), []).append(span)
    busy = {
        (r.id, i)
        for r in state.records.values()
        for lo, hi in r.runs(OCCUPYING_STATES, 0, r.length)
        for i in range(lo, hi)
    }
    _demand(busy == set(held), f"busy without a span: {sorted(busy - set(held))[:5]}")
    for (id_, index), spans in held.items():
        first, *others = spans
        known = state.attempts.of(first.record, index, index + 1)
        _demand(known == spans, f"{id_}.{index} is with {len(spans)} spans, the index has {len(known)}")
        several = not others or sum(span.id in state.attempts.replicas for span in spans) >= len(others)
        _demand(several, f"{id_}.{index} is with several spans that are no replicas")


def _resources(state: State) -> None:
    for executor in state.executors.values():
        used: dict[str, float] = {}
        has = executor.capacity.amounts()
        for span in executor.spans.values():
            wants = span.queue.needs.amounts()
            for name, amount in wants.items():
                used[name] = used.get(name, 0) + amount * span.width
            law = f"span {span.id} was to start at once on executor {executor.id}, which has {has}, with {used} taken"
            _demand(span.queued or executor.wide or all(used[name] <= has.get(name, 0) + 1e-9 for name in wants), law)
            needs = span.queue.needs
            law = f"span {span.id} needs {needs}, executor {executor.id} at {executor.site} is not such a one"
            _demand(not executor.pid or executor.admits(needs), law)  # a person goes where they like
        for name, amount in has.items():
            free = executor.free(name)
            law = f"executor {executor.id}: {name} free {free} + used {used.get(name, 0)} is not {amount}"
            _demand(abs(free + used.get(name, 0) - amount) < 1e-6, law)
        load = sum(span.load for span in executor.spans.values())
        _demand(abs(load - executor.load) < 1e-6, f"executor {executor.id}: load {executor.load}, should be {load}")
        cores = sum(span.queue.cores * span.width for span in executor.spans.values() if not span.load)
        _demand(abs(cores - executor.long_cores) < 1e-6, f"executor {executor.id}: {cores} cores of long tasks")


def _limits(state: State) -> None:
    for group in state.groups.values():
        if group.limit:
            inside = [span for span in state.spans.values() if group in span.record.group.chain()]
            busy = sum(span.width for span in inside)
            _demand(busy == group.busy, f"group {group.id} has {busy} tasks out, not {group.busy}")
            _demand(busy <= group.limit, f"group {group.id} has {busy} tasks out, over its limit of {group.limit}")


def _sites(state: State) -> None:
    members = {site.name: set(site.executors) for site in state.sites.values()}
    for executor in state.executors.values():
        _demand(executor.id in members.get(executor.site, ()), f"the site of executor {executor.id} does not know it")
        away = state.sites[executor.site].away
        _demand(executor.away == away, f"executor {executor.id} does not know whether its site is away")
        shut = not away or executor.id not in state.open_executors
        _demand(shut, f"executor {executor.id} of a site that left may take something")
    _demand(sum(map(len, members.values())) == len(state.executors), "a site has executors that are not there")
    defined = {site.name for site in state.sites.values() if site.spec is not None}
    _demand(defined == set(state.defined_sites), "the index of sites with a definition is wrong")
    flying = {number for site in state.defined_sites.values() for number in site.pilots}
    _demand(flying == set(state.pilots), "a site and the core know different pilots")
    for site in state.defined_sites.values():
        _pilots_of(state, site)
    for site in state.sites.values():
        _usage_of(site)
        _bound_of(state, site)
    if state.task_bound is not None:
        out = sum(span.counted for span in state.spans.values())
        _demand(out == state.task_bound.out, f"{out} tasks are out, the bound of all counts {state.task_bound.out}")
    hosts = [x.host for x in state.executors.values() if not (x.draining or x.away)]
    counted = {host: hosts.count(host) for host in hosts}
    _demand(state.hosts == counted, f"hosts are {counted}, the core says {state.hosts}")
    for record in state.records.values():
        if isinstance(record, ArrayRecord) and record.given_back:
            _demand(record.urgent == HAD_RUN, f"array {record.id} has what was given back, and does not go first")


def _pilots_of(state: State, site: SiteRecord) -> None:
    """The indexes of a site's pilots, and what is added up as executors come and go."""
    starting = {pilot.id for pilot in site.pilots.values() if pilot.starting and not pilot.released}
    _demand(set(site.starting) == starting, f"site {site.name} does not know which pilots start")
    sizes = Counter(pilot.allocation for pilot in site.pilots.values())
    _demand(site.allocations == sizes, f"site {site.name} has counted its allocations wrongly")
    leaving = {pilot.id for pilot in site.pilots.values() if pilot.released}
    _demand(set(site.leaving) == leaving, f"site {site.name} does not know which pilots leave")
    idle = {pilot.id for pilot in site.pilots.values() if pilot.is_idle and not pilot.released}
    _demand(idle <= set(site.idle), f"site {site.name} does not know which pilots are idle")
    _demand(set(site.idle) <= set(site.pilots), f"site {site.name} thinks that pilots are idle which are gone")
    followed = {pilot.succeeds: pilot.id for pilot in site.pilots.values() if pilot.succeeds in site.pilots}
    _demand(site.succeeded == followed, f"site {site.name} does not know which pilots have a successor")
    if site.spec is not None and site.spec.resubmit:
        to_end = {
            pilot.id
            for pilot in site.pilots.values()
            if pilot.ends is not None and not pilot.released and pilot.id not in followed
        }
        _demand(to_end <= {number for _, number in site.ends}, f"site {site.name} does not know which pilots will end")
    there = [executor for pilot in site.pilots.values() for executor in pilot.executors.values()]
    for executor in there:
        _demand(state.executors.get(executor.id) is executor, f"pilot {executor.pilot} has an executor that is gone")


def _bound_of(state: State, site: SiteRecord) -> None:
    """What counts for the bound on a site's tasks."""
    most = site.spec.max_tasks if site.spec is not None else 0
    _demand((site.bound.most if site.bound is not None else 0) == most, f"site {site.name} has another bound on tasks")
    for executor in site.executors.values():
        own = None if is_manual(executor) else site.bound or state.task_bound
        _demand(executor.bound is own, f"executor {executor.id} does not know the bound on its tasks")
        for span in executor.spans.values():
            wanted = ranges.size(span.left) if own is not None else 0
            _demand(span.counted == wanted, f"span {span.id} counts for {span.counted} tasks, not {wanted}")
    if site.bound is not None:
        out = sum(span.counted for executor in site.executors.values() for span in executor.spans.values())
        _demand(out == site.bound.out, f"site {site.name} has {out} tasks out, its bound counts {site.bound.out}")


def _usage_of(site: SiteRecord) -> None:
    """What is added up of the executors of a site that are there."""
    there = [executor for executor in site.executors.values() if executor.accounted]
    cores = sum(executor.capacity.cores for executor in there)
    _demand(abs(site.usage.live_cores - cores) < _ROUNDING, f"site {site.name} has added up its cores wrongly")
    since = sum(executor.capacity.cores * executor.came for executor in there)
    near = abs(site.usage.live_since - since) <= _ROUNDING * max(1.0, abs(since))
    _demand(near, f"site {site.name} has added up the times of its cores wrongly")


def _totals(state: State) -> None:
    for workflow in {group.workflow for group in state.groups.values()}:
        held = sum(s.queue.cores * s.width for s in state.spans.values() if s.record.group.workflow is workflow)
        _demand(abs(held - workflow.cores) < 1e-6, f"workflow {workflow.run} holds {held} cores, not {workflow.cores}")
    queues = state.named_queues
    for queue in queues.records.values():
        held = sum(s.queue.cores * s.width for s in state.spans.values() if s.queue.named is queue)
        _demand(abs(held - queue.cores) < 1e-6, f"queue {queue.name!r} holds {held} cores, not {queue.cores}")
    working = [x for x in state.executors.values() if not (x.draining or x.away or x.suspended)]
    usable = sum(x.capacity.cores for x in working)
    _demand(abs(usable - queues.usable) < 1e-6, f"{usable} cores may get work, queues count {queues.usable}")
    for name, lock in state.locks.items():
        owner = state.spans.get(lock.span)
        owned = owner is not None and owner.has(lock.index) and name in state.locks.by_span.get(lock.span, ())
        _demand(owned, f"lock {name} belongs to no element that is with an executor")
    _demand(
        sum(map(len, state.locks.by_span.values())) == len(state.locks), "the locks of spans are not those there are"
    )
    users = state.locks.users
    _demand(state.locks.by_span.keys() <= users <= state.spans.keys(), "spans that have had locks are not there")
    for late in state.attempts.late.values():
        known = late in state.attempts.late_of(late.record)
        _demand(bool(late.left) and known, f"the late attempt {late.id} holds nothing, or its record does not know it")
    unended = sum(1 for record in state.records.values() for s in _states(record) if s not in ENDED_STATES)
    _demand(unended == state.unfinished, f"{unended} tasks have not ended, the core says {state.unfinished}")
    cores = sum(executor.capacity.cores for executor in state.executors.values())
    _demand(abs(cores - state.cores) < 1e-6, f"{cores} cores, the core says {state.cores}")


def _replicas(state: State) -> None:
    """What may be replicated runs; replicas are attempts of their own, on executors of their own."""
    index = state.replicas
    _demand(set(index.started) == set(state.attempts.replicas), "the replicas are not those whose start is known")
    if index.is_on and state.asks_policy:
        wanted = {
            (r.id, i)
            for r in state.records.values()
            if index.allows(r)
            for lo, hi in r.runs(bytes((RUNNING,)), 0, r.length)
            for i in range(lo, hi)
        }
        known = {(one.id, one.index) for one in index.running(state.records)}
        _demand(known == wanted, f"tasks run that the index of replicas does not have: {sorted(wanted - known)[:5]}")
    for span in state.attempts.replicas.values():
        at = span.start
        _demand(span.stop == at + 1, f"replica {span.id} is of more than one task")
        _demand(may_be_replicated(span.record), f"{span.record.id} may not be replicated, and is")
        together = state.attempts.of(span.record, at, at + 1)
        executors = {other.executor.id for other in together}
        _demand(len(executors) == len(together), f"{span.record.id}.{at} is twice with one executor")
        numbers = {other.attempt for other in together}
        _demand(len(numbers) == len(together), f"two attempts of {span.record.id}.{at} have one number")
        last = span.record.attempt if isinstance(span.record, TaskRecord) else span.record.attempts.get(at, 0)
        _demand(max(numbers) <= last, f"{span.record.id}.{at} has an attempt {max(numbers)} after its last, {last}")


def _watched(state: State) -> None:
    """What is kept of watched tasks is bounded, and of what has not ended."""
    for id_, elements in state.watch.seen.by_record.items():
        record = state.records.get(id_)
        for index, seen in elements.items():
            is_open = record is not None and index < record.length and record.state_of(index) not in ENDED_STATES
            _demand(is_open, f"something is kept of what was seen of {id_}.{index}, which has ended")
            kept = [len(series.points) for series in seen.metrics.values()]
            _demand(len(kept) <= MOST_METRICS and max(kept, default=0) <= MOST_KEPT, f"{id_}.{index}: too many points")
            _demand(len(seen.fired) <= MOST_FIRED and len(seen.tags) <= MOST_TAGS, f"{id_}.{index}: too much fired")
        _demand(bool(elements), f"an empty table of record {id_} is kept")
    _demand(state.watch.endings.keys() <= state.spans.keys(), "a span that is gone is to be ended")
    _demand(state.watch.added.keys() <= state.records.keys(), "a record that is gone is watched")
    for id_ in state.watch.added:
        _demand(state.records[id_].group.workflow.watched, f"record {id_} is watched, its workflow does not know")


def _populations(state: State) -> None:
    """What is kept sorted of populations is what their members say."""
    for population in state.populations.all():
        known = population.id in (state.groups if population.is_group else state.records)
        _demand(known, f"there is a population of {population.id}, which is not there")
        again = Population.restored(population.kept())
        same = (again.rankings, again.going) == (population.rankings, population.going)
        _demand(same, f"the ranking of population {population.id} is wrong")
        pairs = zip(again.averages, population.averages, strict=True)
        close = all(len(ours) == len(theirs) for ours, theirs in pairs)
        _demand(close, f"the averages of population {population.id} are wrong")
        for record, elements in population.marks.items():
            for index, marks in elements.items():
                ended = state.records[record].state_of(index) in ENDED_STATES
                _demand(marks.has_ended or not ended, f"population {population.id}: {record}.{index} has ended")


def _waits(record: Record) -> int:
    """What a record waits for; of no meaning once it has ended."""
    return record.waits if any(state not in ENDED_STATES for state in _states(record)) else 0


def picture(state: State) -> dict[str, object]:
    """What two states must agree on to be the same; for replay and snapshot tests."""
    return {
        "records": {
            r.id: (
                (_states(r), _waits(r), r.priority, r.held, [r.failures_of(i) for i in range(r.length)], r.ready),
                state.watch.added.get(r.id),
            )
            for r in state.records.values()
        },
        "groups": {
            g.id: (
                (g.counts, g.unfinished, g.closed, g.finished, g.waits, g.held, g.disabled, g.failed_by),
                (g.released, g.released_children, g.busy, g.tried, g.deadline, g.watch, g.was_over),
            )
            for g in state.groups.values()
        },
        "spans": {
            s.id: (s.record.id, s.left, s.attempt, s.executor.id, s.queued, s.width) for s in state.spans.values()
        },
        "late": {s.id: (s.record.id, s.left, s.attempt, s.executor.id) for s in state.attempts.late.values()},
        "executors": {
            x.id: (
                [x.free(n) for n in sorted(x.capacity.amounts())],
                round(x.load, 6),
                (x.draining, x.suspended, x.suspensions, x.trouble, x.joined),
            )
            for x in state.executors.values()
        },
        "workflows": {
            w.run: (
                w.name,
                w.group.id,
                w.closed,
                (w.memos, w.reuse),
                w.fail_fast,
                w.first_failure,
                w.occurrences,
                w.files.all(),
            )
            for w in state.workflows.values()
        },
        "sites": {
            s.name: (s.rule, s.away, s.reason, s.by_hand, s.deadline, sorted(s.executors), s.usage.totals())
            for s in state.sites.values()
        },
        "checkpoints": state.checkpoints,
        "remakes": state.remakes.by_record,
        "unsaved": state.unsaved.by_record,
        "unread": {w.run: w.lives.counts() for w in state.workflows.values()},
        "pilots": (
            {
                p.id: (
                    p.fact,
                    p.state,
                    p.handle,
                    (p.asked, p.queued, p.started),
                    (p.released, p.usage, p.has_left),
                    sorted(p.executors),
                )
                for p in state.pilots.values()
            },
            {
                s.name: (
                    (s.spec, s.offers, s.failures, s.rests_until, s.trouble),
                    (list(s.waits), s.room, s.usage.totals(), sorted(s.starting), sorted(s.succeeded.items())),
                )
                for s in state.defined_sites.values()
            },
            {x.id: (x.came, x.begun, x.idle_since, x.used, x.wasted) for x in state.executors.values() if x.accounted},
            state.last_pilot,
        ),
        "queues": {
            queue.name: (queue.spec, round(queue.cores, 6), queue.ready) for queue in state.named_queues.defined()
        },
        "first": {r.id: r.urgent for r in state.records.values() if r.ready},
        "locks": ({name: (lock.span, lock.index) for name, lock in state.locks.items()}, sorted(state.locks.users)),
        "watch": (state.watch.seen.by_record, state.watch.endings),
        "populations": sorted((one.kept() for one in state.populations.all()), key=lambda one: (one.is_group, one.id)),
        "places": ({r.id: r.place for r in state.records.values()}, state.hosts),
        "replicas": (
            {(one.id, one.index): (one.since, one.replicas) for one in state.replicas.running(state.records)},
            (state.replicas.started, state.replicas.waste, list(state.replicas.untold.items())),
        ),
        "totals": (state.unfinished, state.open_arrays, state.last_span, state.turn, state.stopping),
    }
