"""Plans as JSON, for other programs: everything that a plan holds, and nothing else.

Rule: what is written reads back as the same plan.
"""

from __future__ import annotations

import msgspec

from bough.describe.plan import Plan, PlanGroup, PlanTask, Where, tidy
from bough.errors import InvalidWorkload
from bough.model.bounds import in_plain_words

KEY = "bough_plan"
VERSION = 1


class _File(msgspec.Struct, omit_defaults=True):
    bough_plan: int
    levels: list[str] = []
    root: PlanGroup = msgspec.field(default_factory=lambda: PlanGroup("", pipeline=False))


def write(plan: Plan) -> str:
    """A plan as JSON, without the places it was read from."""
    bare = tidy(plan)
    return msgspec.json.format(msgspec.json.encode(_File(VERSION, bare.levels, bare.root))).decode() + "\n"


def is_plan(text: str) -> bool:
    """Whether a text is a plan as JSON."""
    return f'"{KEY}"' in text[:200]


def read(text: str, file: str) -> Plan:
    """A plan from JSON."""
    try:
        found = msgspec.json.decode(text, type=_File)
    except msgspec.DecodeError as error:
        raise InvalidWorkload(f"{file}: {in_plain_words(str(error))}") from error
    except RecursionError:
        raise InvalidWorkload(f"{file}: its groups lie too deep in each other") from None
    if found.bough_plan != VERSION:
        raise InvalidWorkload(f"{file}: it is of version {found.bough_plan}, and this Bough reads version {VERSION}")
    plan = Plan(found.levels, found.root, file)
    here = Where(file)
    for _, group in plan.walk():
        group.where = here
        for task in group.all_tasks():
            assert isinstance(task, PlanTask)
            task.where = here
    return plan
