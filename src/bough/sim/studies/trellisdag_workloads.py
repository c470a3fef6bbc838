"""The workloads of the study `trellisdag`: checkers databases, with the published times.

Databases of kings are computed (with release) and then verified. A database of b black and w white kings needs those
with one king less. Groups are one a database, or, in supergroups, under one a number of pieces, where a number waits
for the one before. Source of the times: Goldenberg, TrellisDAG, M.Sc. thesis, University of Alberta 2003, tables of the
medium experiment.
The large workload of the study is `sim.checkers_workload`. Rule: nothing is scheduled here.
"""

from __future__ import annotations

from typing import NamedTuple

from bough.model.ids import ROOT, BlobId, GroupId, RecordId, Seconds
from bough.model.tasks import NO_EXTRAS, Dep, GroupSpec, Item, Kind, On, TaskExtras, TaskSpec

Kings = tuple[int, int]  # black and white ones


class Times(NamedTuple):
    """What one database took: the computation, the verification, and what came on top of each at its host."""

    run: Seconds
    ver: Seconds
    run_extra: Seconds
    ver_extra: Seconds


PLAIN_TIMES = {
    (1, 1): Times(1.35, 2.71, 2.81, 2.35),
    (2, 1): Times(2.85, 3.00, 2.78, 2.32),
    (3, 1): Times(3.82, 2.92, 2.67, 2.91),
    (2, 2): Times(2.76, 4.10, 2.64, 2.31),
    (4, 1): Times(10.36, 4.57, 2.92, 2.43),
    (3, 2): Times(45.19, 15.56, 2.86, 2.32),
    (5, 1): Times(44.12, 13.14, 2.59, 2.33),
    (4, 2): Times(124.05, 86.47, 2.63, 2.29),
    (3, 3): Times(154.77, 103.11, 2.44, 2.31),
    (6, 1): Times(188.72, 47.80, 2.37, 2.26),
    (5, 2): Times(688.47, 328.72, 2.31, 2.27),
    (4, 3): Times(2952.50, 828.36, 2.36, 2.34),
}

SUPER_TIMES = {
    (1, 1): Times(1.33, 2.69, 2.82, 2.36),
    (2, 1): Times(2.85, 3.13, 2.91, 2.35),
    (3, 1): Times(3.90, 2.91, 2.70, 2.87),
    (2, 2): Times(2.68, 4.21, 2.66, 2.31),
    (4, 1): Times(10.33, 4.58, 2.94, 2.34),
    (3, 2): Times(45.13, 15.40, 2.86, 2.38),
    (5, 1): Times(44.52, 13.20, 2.40, 2.32),
    (4, 2): Times(124.30, 85.70, 2.53, 2.38),
    (3, 3): Times(156.20, 103.25, 3.11, 2.38),
    (6, 1): Times(190.46, 48.04, 2.69, 2.29),
    (5, 2): Times(682.09, 328.91, 2.62, 2.32),
    (4, 3): Times(2963.39, 829.55, 2.37, 2.35),
}

DATABASES = tuple(PLAIN_TIMES)  # in the order of submission


class Shape(NamedTuple):
    """How the workflow is put together."""

    groups_of: str = ""  # "": databases alone; "order": supergroups that wait for each other; "view": that do not
    release: bool = True  # what waits for a database starts when that is computed; otherwise when it is verified
    whole: bool = False  # supergroups wait until all of the one before has finished, whatever was released


def name_of(database: Kings) -> str:
    """As the thesis writes it: black and white kings, no checkers."""
    return f"{database[0]}{database[1]}00"


def run_id(database: Kings) -> int:
    """The record of its computation; that of its verification is the next one."""
    return 2 * DATABASES.index(database) + 1


def needed_by(database: Kings) -> list[Kings]:
    """The databases that one needs, of those there are: a king is captured; 2 against 3 is 3 against 2."""
    black, white = database
    fewer = {(max(b, w), min(b, w)) for b, w in ((black - 1, white), (black, white - 1))}
    return [one for one in DATABASES if one in fewer]


def items(shape: Shape) -> list[Item]:
    """The workflow as it is submitted: a supergroup, its groups, their two tasks."""
    pieces = sorted({sum(database) for database in DATABASES})
    group_id = {database: GroupId(number) for number, database in enumerate(DATABASES, 1)}
    super_id = {count: GroupId(len(DATABASES) + number) for number, count in enumerate(pieces, 1)}
    made: list[Item] = []
    for count in pieces if shape.groups_of else []:
        before = shape.groups_of == "order" and super_id.get(count - 1)
        after = (Dep(On.END if shape.whole else On.GROUP, before),) if before else ()
        made.append(GroupSpec(super_id[count], f"Piece_{count}", after=after))
    for database in DATABASES:
        needs = needed_by(database) if shape.groups_of != "order" else []
        parent = super_id[sum(database)] if shape.groups_of else ROOT
        group = group_id[database]
        name = name_of(database)
        made.append(GroupSpec(group, f"Rank_{name}", parent, tuple(Dep(On.GROUP, group_id[one]) for one in needs)))
        record = RecordId(run_id(database))
        terms = TaskExtras(release=True) if shape.release else NO_EXTRAS
        made.append(TaskSpec(record, Kind.COMMAND, BlobId(b""), b"", group, f"run {name}", extras=terms))
        after = (Dep(On.TASK, record),)
        made.append(TaskSpec(RecordId(record + 1), Kind.COMMAND, BlobId(b""), b"", group, f"ver {name}", after=after))
    return made


def minimal(times: dict[Kings, Times], shape: Shape) -> dict[Kings, tuple[Seconds, Seconds]]:
    """When each database is computed and verified at the earliest: longest paths, found without any scheduler."""
    ends: dict[Kings, tuple[Seconds, Seconds]] = {}
    for database in DATABASES:
        fewer = [one for one in DATABASES if sum(one) < sum(database)]
        before = fewer if shape.groups_of == "order" else needed_by(database)
        which = 1 if shape.whole or not shape.release else 0
        start = max((ends[one][which] for one in before), default=0.0)
        own = times[database]
        ends[database] = start + own.run, start + own.run + own.ver
    return ends
