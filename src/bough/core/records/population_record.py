"""Populations: tasks of an array or a group that a rule compares, and how far each of them has come.

The scores of members at checkpoints are kept sorted, so that a rank or a median is a lookup. Rule: all of it is a
function of the facts; of a member that began anew only its newest attempt counts; a member that has reached no
checkpoint costs nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

import msgspec

from bough.model.events.facts import RecalledMember
from bough.model.monitoring.observations import Observation, Points
from bough.model.monitoring.population_rules import PopulationRule, reached
from bough.policy.interface import Member

Score = tuple[float, Member]
Occasion = tuple["Population", Member, int]  # on which a policy is asked: who, and its checkpoint, or -1: it ended


class Marks(msgspec.Struct):
    """How far a member has come."""

    attempt: int
    scores: list[float] = []  # at the checkpoints that it has reached; lower is better
    has_ended: bool = False
    counts: bool = False  # it succeeded by itself: its averages are among those of the population


class KeptPopulation(msgspec.Struct, array_like=True):
    """A population as a snapshot keeps it."""

    is_group: bool
    id: int
    rule: PopulationRule
    answers: int
    members: list[tuple[int, int, Marks]]
    asked: list[tuple[int, int]]
    is_pending: bool = False


class Population:
    """See the module."""

    __slots__ = ("answers", "asked", "averages", "going", "id", "is_group", "is_pending", "marks", "rankings", "rule")

    def __init__(self, is_group: bool, id_: int, rule: PopulationRule, *, is_pending: bool = False) -> None:
        self.is_pending = is_pending  # its rule is about to be set
        self.is_group = is_group
        self.id = id_
        self.rule = rule
        self.answers = 0  # members that succeeded and were not ended by the rule
        self.marks: dict[int, dict[int, Marks]] = {}  # by record and element
        self.asked: set[Member] = set()  # that run and are to be ended by the rule
        count = len(rule.checkpoints)
        self.rankings: list[list[Score]] = [[] for _ in range(count)]  # by checkpoint
        self.averages: list[list[float]] = [[] for _ in range(count)]  # of those that succeeded by themselves
        self.going = [0] * count  # members that have reached a checkpoint and have not ended

    def find(self, member: Member) -> Marks | None:
        """How far a member has come; None: it has reached no checkpoint."""
        elements = self.marks.get(member.record)
        return elements.get(member.element) if elements is not None else None

    # --- what happens to members --------------------------------------------------------------------

    def observe(self, member: Member, attempt: int, observations: Iterable[Observation]) -> list[int]:
        """Something was seen of a member; the checkpoints that it has reached by that."""
        rule, came = self.rule, []
        for one in observations:
            if not isinstance(one, Points) or one.metric != rule.metric:
                continue
            for step, _, value in one.points:
                marks = self.find(member)
                if marks is not None and marks.attempt < attempt:
                    self._forget(member, marks)
                    marks = None
                before = len(marks.scores) if marks is not None else 0
                after = reached(rule, step, before)
                if after == before or (marks is not None and marks.attempt > attempt):
                    continue
                if marks is None:
                    marks = self.marks.setdefault(member.record, {})[member.element] = Marks(attempt)
                for checkpoint in range(before, after):
                    self._reach(member, marks, checkpoint, -value if rule.maximise else value)
                    came.append(checkpoint)
        return came

    def _reach(self, member: Member, marks: Marks, checkpoint: int, score: float) -> None:
        marks.scores.append(score)
        insort(self.rankings[checkpoint], (score, member))
        self.going[checkpoint] += not marks.has_ended

    def end(self, record: int, start: int, stop: int, *, good: bool) -> None:
        """Members have ended; `good`: as successes."""
        mine = self._asked_between(record, start, stop)
        if good:
            self.answers += stop - start - len(mine)
        for index, marks in self._between(record, start, stop):
            if not marks.has_ended:
                marks.has_ended = True
                for checkpoint in range(len(marks.scores)):
                    self.going[checkpoint] -= 1
            if good and not marks.counts and Member(record, index) not in mine:
                self._count(marks)
        self.asked -= mine

    def recall(self, members: Iterable[RecalledMember]) -> None:
        """Members that have succeeded in an earlier run are here."""
        for one in members:
            elements = self.marks.setdefault(one.record, {})
            scores = list(one.scores[: len(self.rankings)])
            if scores and one.index not in elements:
                elements[one.index] = marks = Marks(one.attempt, scores, has_ended=True, counts=not one.by_rule)
                self._add_unsorted(Member(one.record, one.index), marks)
            elif not elements:
                del self.marks[one.record]
        self._sort()

    def _add_unsorted(self, member: Member, marks: Marks) -> None:
        """Add what many members have reached: it is sorted once, at the end."""
        for checkpoint, score in enumerate(marks.scores):
            self.rankings[checkpoint].append((score, member))
            self.going[checkpoint] += not marks.has_ended
        for checkpoint, average in enumerate(_averages(marks)) if marks.counts else ():
            self.averages[checkpoint].append(average)

    def _sort(self) -> None:
        for ranking in self.rankings:
            ranking.sort()
        for averages in self.averages:
            averages.sort()

    def begin_anew(self, member: Member) -> None:
        """A member will have another attempt."""
        marks = self.find(member)
        if marks is not None:
            self._forget(member, marks)
        self.asked.discard(member)

    def _asked_between(self, record: int, start: int, stop: int) -> set[Member]:
        if stop - start < len(self.asked):
            return {member for index in range(start, stop) if (member := Member(record, index)) in self.asked}
        return {member for member in self.asked if member.record == record and start <= member.element < stop}

    def _count(self, marks: Marks) -> None:
        marks.counts = True
        for checkpoint, average in enumerate(_averages(marks)):
            insort(self.averages[checkpoint], average)

    def _forget(self, member: Member, marks: Marks) -> None:
        """It has begun anew."""
        for checkpoint, score in enumerate(marks.scores):
            ranking = self.rankings[checkpoint]
            del ranking[bisect_left(ranking, (score, member))]
            self.going[checkpoint] -= not marks.has_ended
        for checkpoint, average in enumerate(_averages(marks)) if marks.counts else ():
            averages = self.averages[checkpoint]
            del averages[bisect_left(averages, average)]
        del self.marks[member.record][member.element]
        if not self.marks[member.record]:
            del self.marks[member.record]

    def forget_record(self, record: int) -> None:
        """A record is gone."""
        for index, marks in self._between(record, 0, 1 << 62):
            self._forget(Member(record, index), marks)
        self.asked = {member for member in self.asked if member.record != record}

    def _between(self, record: int, start: int, stop: int) -> list[tuple[int, Marks]]:
        elements = self.marks.get(record)
        if not elements:
            return []
        if stop - start < len(elements):
            return [(index, elements[index]) for index in range(start, stop) if index in elements]
        return [(index, marks) for index, marks in elements.items() if start <= index < stop]

    # --- snapshots ----------------------------------------------------------------------------------

    def kept(self) -> KeptPopulation:
        """As a snapshot keeps it."""
        members = [(record, index, marks) for record, some in self.marks.items() for index, marks in some.items()]
        asked = sorted((one.record, one.element) for one in self.asked)
        members.sort(key=_place)
        return KeptPopulation(self.is_group, self.id, self.rule, self.answers, members, asked, self.is_pending)

    @classmethod
    def restored(cls, kept: KeptPopulation) -> Population:
        """As it was."""
        population = cls(kept.is_group, kept.id, kept.rule, is_pending=kept.is_pending)
        population.answers = kept.answers
        population.asked = {Member(*one) for one in kept.asked}
        for record, index, marks in kept.members:
            population.marks.setdefault(record, {})[index] = marks
            population._add_unsorted(Member(record, index), marks)
        population._sort()
        return population


def _place(member: tuple[int, int, Marks]) -> tuple[int, int]:
    return member[:2]


def _averages(marks: Marks) -> Iterator[float]:
    """The means of the scores up to each checkpoint."""
    total = 0.0
    for count, score in enumerate(marks.scores, 1):
        total += score
        yield total / count


class PopulationIndex:
    """The populations there are, by what they are of: whether that is a group, and its number."""

    __slots__ = ("by_target", "pending")

    def __init__(self) -> None:
        self.by_target: dict[tuple[bool, int], Population] = {}
        self.pending: dict[tuple[bool, int], Population] = {}  # whose rules are about to be set

    def all(self) -> list[Population]:
        """All of them."""
        return [*self.by_target.values(), *self.pending.values()]

    def put(self, population: Population) -> None:
        """Add one, in the place of the one with its target."""
        table = self.pending if population.is_pending else self.by_target
        table[population.is_group, population.id] = population

    def promote(self, is_group: bool, id_: int, rule: PopulationRule) -> Population:
        """The rule of a population is set: with what was recalled for it, if something was."""
        population = self.pending.pop((is_group, id_), None)
        if population is None or population.rule != rule:
            population = Population(is_group, id_, rule)
        population.is_pending = False
        self.put(population)
        return population

    def remove(self, is_group: bool, id_: int) -> None:
        """Forget one, if it is there."""
        self.by_target.pop((is_group, id_), None)
        self.pending.pop((is_group, id_), None)

    def of(self, record: int, groups: Iterable[int]) -> list[Population]:
        """Those that a record is in, by the groups around it."""
        if not self.by_target:
            return []
        targets = [(False, record), *((True, group) for group in groups)]
        return [self.by_target[target] for target in targets if target in self.by_target]

    def pending_of(self, record: int, groups: Iterable[int]) -> list[Population]:
        """Those that a record is in and whose rules are about to be set."""
        if not self.pending:
            return []
        targets = [(False, record), *((True, group) for group in groups)]
        return [self.pending[target] for target in targets if target in self.pending]
