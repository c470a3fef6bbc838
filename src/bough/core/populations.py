"""Populations while tasks run: members reach checkpoints and end; policies are asked, and their wishes carried out.

A member that runs is ended by the same verdict as by a monitor, or cancelled, as its rule says; one that waits is
cancelled. Rule: a policy is asked only when a member reaches a checkpoint or ends, in a turn and never in a replay; an
unlawful wish is passed over, and a policy that raises has no wishes; what is carried out is a fact of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import TypeVar, overload

from bough.core.effects import Effects
from bough.core.records.array_record import (
    DONE,
    ENDED_STATES,
    OCCUPYING_STATES,
    PENDING_STATES,
    RUNNING,
    ArrayRecord,
    Record,
)
from bough.core.records.group_record import GroupRecord
from bough.core.records.population_record import Occasion, Population
from bough.core.state import State
from bough.core.storable import shortened
from bough.errors import BoughError
from bough.model.events import facts, news
from bough.model.events.facts import Fact
from bough.model.ids import RecordId
from bough.model.monitoring.monitors import Finish
from bough.model.monitoring.observations import was_ended_by_rule
from bough.model.monitoring.population_rules import PopulationRule
from bough.model.tasks import Dep, On
from bough.policy.interface import EndMember, EndOthers, Member

T = TypeVar("T")
_MOST_WISHES = 1_000_000  # of one occasion; a policy that wishes for ever is cut off
_ENDED = -1


# --- how the facts change the state ------------------------------------------------------------------------


def members_recalled(state: State, effects: Effects | None, fact: facts.MembersRecalled) -> None:
    """Some tasks were reused before a rule that is about to be set: they are kept until then."""
    is_group, id_ = fact.target.is_group, fact.target.id
    population = state.populations.pending.get((is_group, id_))
    if population is None or fact.begins or population.rule != fact.rule:
        population = Population(is_group, id_, fact.rule, is_pending=True)
        state.populations.put(population)
    population.recall(_done_of(state, population, fact.members))
    population.answers += fact.answers


def reused(state: State, record: Record, start: int, stop: int) -> None:
    """Tasks were reused that may be in populations whose rules are about to be set."""
    for population in _pending_of(state, record):
        population.end(record.id, start, stop, good=True)


def _done_of(
    state: State, population: Population, members: Iterable[facts.RecalledMember]
) -> Iterator[facts.RecalledMember]:
    """Those that are there, have succeeded and belong to a population."""
    for one in members:
        record = state.records.get(one.record)
        if record is None or not one.index < record.length or record.state_of(one.index) != DONE:
            continue
        around = [int(group.id) for group in record.group.chain()] if population.is_group else [int(record.id)]
        if population.id in around:
            yield one


def rule_set(state: State, effects: Effects | None, fact: facts.RuleSet) -> None:
    """A population has a rule, another one, or none any more.

    What was reached before does not count, except by tasks that were reused: in the run that did them, the rule was
    there.
    """
    is_group = fact.target.is_group
    if fact.rule is None:
        state.populations.remove(is_group, fact.target.id)
        return
    population = state.populations.promote(is_group, fact.target.id, fact.rule)
    if fact.paged:
        if effects is not None and (population.answers or population.marks):
            effects.populations.append((population, _some_member(population), _ENDED))
        return
    population.recall(_done_of(state, population, fact.recalled))
    parts = reused_parts(state, fact.target)
    if parts:
        ended = {(one.record, one.index) for one in fact.recalled if one.by_rule}
        population.answers = max(0, sum(stop - start for _, start, stop in parts) - len(ended))
        if effects is not None:
            effects.populations.append((population, Member(*parts[-1][:2]), _ENDED))


def observed(state: State, effects: Effects | None, record: Record, fact: facts.Observed) -> None:
    """Something was seen of a task that may be in populations."""
    if not (state.ruled or state.populations.pending):
        return
    member = Member(record.id, fact.index)
    for population in _pending_of(state, record) if not fact.span else ():  # it is being reused
        if was_ended_by_rule(population.rule.policy, fact.observations):
            population.asked.add(member)
        population.observe(member, fact.attempt, fact.observations)
    for population in populations_of(state, record):
        if not fact.span and was_ended_by_rule(population.rule.policy, fact.observations):
            population.asked.add(member)  # so that it does not count as an answer when it ends now
        for checkpoint in population.observe(member, fact.attempt, fact.observations):
            if effects is not None:
                effects.populations.append((population, member, checkpoint))


def ended(state: State, effects: Effects | None, record: Record, start: int, stop: int, *, good: bool) -> None:
    """Tasks have ended that may be in populations."""
    if not state.ruled:
        return
    for population in populations_of(state, record):
        population.end(record.id, start, stop, good=good)
        if effects is not None:
            effects.populations.append((population, Member(record.id, start), _ENDED))


def populations_of(state: State, record: Record) -> list[Population]:
    """The populations that a record is in."""
    return state.populations.of(record.id, (group.id for group in record.group.chain()))


def _pending_of(state: State, record: Record) -> list[Population]:
    """Those of them whose rules are about to be set."""
    return state.populations.pending_of(record.id, (group.id for group in record.group.chain()))


def _some_member(population: Population) -> Member:
    """A member that has ended; if none has scores, it stands for those that were reused without them."""
    for record, elements in population.marks.items():
        return Member(record, next(iter(elements)))
    return Member(0 if population.is_group else population.id, 0)


def begins_anew(state: State, record: Record, index: int) -> None:
    """A task that may be in populations will have another attempt."""
    for population in populations_of(state, record) if state.ruled else ():
        population.begin_anew(Member(record.id, index))
    for population in _pending_of(state, record):
        population.begin_anew(Member(record.id, index))


def end_asked(state: State, record: Record, start: int, stop: int) -> None:
    """A rule has asked that running tasks are ended."""
    for population in populations_of(state, record):
        population.asked.update(Member(record.id, index) for index in range(start, stop))


def forget_record(state: State, record: Record) -> None:
    """A record leaves."""
    for population in populations_of(state, record) if state.ruled else ():
        population.forget_record(record.id)
    for population in _pending_of(state, record):
        population.forget_record(record.id)
    state.populations.remove(is_group=False, id_=record.id)


# --- asking -------------------------------------------------------------------------------------------------


def is_lawful(state: State, action: news.SetRule) -> bool:
    """Whether there is such an array or group, and such a policy."""
    target = action.target
    if target.is_group:
        known = target.id in state.groups
    else:
        known = isinstance(state.records.get(target.id), ArrayRecord) and target.on is On.ARRAY
    return known and (action.rule is None or state.policies.population(action.rule.policy) is not None)


def reused_parts(state: State, target: Dep) -> list[tuple[RecordId, int, int]]:
    """The tasks of an array or a group that were reused from earlier runs."""
    return [
        (RecordId(record.id), one.start, one.stop)
        for record in _records(state, target.is_group, target.id)
        for one in record.successes()
        if one.source != record.id
    ]


def count_members(state: State, action: news.SetRule) -> int:
    """How many tasks a population has now."""
    return sum(record.length for record in _records(state, action.target.is_group, action.target.id))


def ask(state: State, random: Random, occasion: Occasion, record_fact: Callable[[Fact], None]) -> None:
    """Ask the policy of a population, and make facts of its lawful wishes."""
    population, member, checkpoint = occasion
    rule = population.rule
    policy = state.policies.population(rule.policy)
    if policy is None:  # a package that offered it is not installed any more
        return
    view = _View(state, population, member, checkpoint, random)
    try:
        for count, wish in enumerate(policy.decide(view)):
            if count >= _MOST_WISHES:
                state.complaints.append(
                    f"the rule {rule.policy} of a population was not asked further: it had {_MOST_WISHES} wishes"
                )
                break
            for fact in _lawful(state, population, wish):
                record_fact(fact)
    except BoughError:
        raise  # our own bug, found while carrying out a wish
    except Exception as error:  # noqa: BLE001 a policy is anybody's code: it must not stop the machine
        state.complaints.append(f"the rule {rule.policy} of a population failed: {error!r}")


def _lawful(state: State, population: Population, wish: object) -> Iterator[Fact]:
    """The facts that carry out a wish; none if it is unlawful."""
    if isinstance(wish, EndMember):
        record = state.records.get(wish.record)
        if record is not None and population in populations_of(state, record) and 0 <= wish.index < record.length:
            yield from _end(population, record, (wish.index, wish.index + 1), wish.reason)
    elif isinstance(wish, EndOthers):
        for record in list(_records(state, population.is_group, population.id)):
            yield from _end(population, record, (0, record.length), wish.reason)


def _end(population: Population, record: Record, part: tuple[int, int], reason: str) -> Iterator[Fact]:
    rule, said = population.rule, shortened(str(reason))
    for low, high in record.runs(PENDING_STATES, *part):
        yield facts.Cancelled(Dep(On.TASK, record.id, low), high)
    for low, high in record.runs(OCCUPYING_STATES, *part):
        if rule.cancel:
            yield facts.Cancelled(Dep(On.TASK, record.id, low), high)
            continue
        for index in range(low, high):
            if Member(record.id, index) not in population.asked:
                target = Dep(On.TASK, record.id, index)
                yield facts.EndAsked(target, Finish(), rule.policy, said, index + 1, by_rule=True)


def _records(state: State, is_group: bool, id_: int) -> Iterable[Record]:
    if is_group:
        group = state.groups.get(id_)
        return group.records() if group is not None else ()
    record = state.records.get(id_)
    return (record,) if record is not None else ()


class _ReadOnly(Sequence[T]):
    """A list that a policy may look at: nothing is copied."""

    def __init__(self, inner: list[T]) -> None:
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        return self._inner[at]


class _View:
    """A population as its policy sees it: see `PopulationView`."""

    def __init__(self, state: State, population: Population, member: Member, checkpoint: int, random: Random) -> None:
        self._state = state
        self._population = population
        self.member = member
        self.checkpoint = checkpoint
        self.random = random

    @property
    def rule(self) -> PopulationRule:
        return self._population.rule

    @property
    def answers(self) -> int:
        return self._population.answers

    def reached(self, checkpoint: int) -> int:
        return len(self._population.rankings[checkpoint])

    def awaited(self, checkpoint: int) -> int:
        population = self._population
        if population.is_group:
            running = sum(group.counts[RUNNING] for group in _below(self._state.groups.get(population.id)))
        else:
            record = self._state.records.get(population.id)
            running = record.counts[RUNNING] if isinstance(record, ArrayRecord) else 0
        return max(0, running - population.going[checkpoint])

    def ranking(self, checkpoint: int) -> Sequence[tuple[float, Member]]:
        return _ReadOnly(self._population.rankings[checkpoint])

    def scores(self, member: Member) -> Sequence[float]:
        marks = self._population.find(member)
        return tuple(marks.scores) if marks is not None else ()

    def averages(self, checkpoint: int) -> Sequence[float]:
        return _ReadOnly(self._population.averages[checkpoint])

    def has_ended(self, member: Member) -> bool:
        record = self._state.records.get(member.record)
        if record is None or not 0 <= member.element < record.length:
            return True
        return member in self._population.asked or record.state_of(member.element) in ENDED_STATES


def _below(group: GroupRecord | None) -> Iterator[GroupRecord]:
    stack = [group] if group is not None else []
    while stack:
        one = stack.pop()
        yield one
        stack += one.children
