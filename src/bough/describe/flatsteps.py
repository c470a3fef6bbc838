"""The steps of a plain flat list, which needs no plan: it has no groups, and was put in order when it was read.

Rule: tasks have the numbers of their places in the list, which come after those they wait for.
"""

from __future__ import annotations

from collections.abc import Sequence

from bough.describe.flat import FlatTask
from bough.describe.lowering import ROOT, For, Step, What
from bough.describe.plan import PlanTask, Where, check_task
from bough.describe.uncollected import uncollected


def flat_steps(tasks: Sequence[FlatTask], file: str) -> list[Step]:
    """What submits the tasks of a flat list, as `flat.read` gives them."""
    steps: list[Step] = []
    numbers: dict[str, int] = {}
    with uncollected():
        for number, task in enumerate(tasks, 1):
            if task.name:
                numbers[task.name] = number
            said = PlanTask(
                task.command,
                task.name,
                list(task.after),
                cores=task.cores,
                memory=task.memory,
                timeout=task.timeout,
                retries=task.retries,
                where=Where(file, task.line),
            )
            check_task(said)
            waits = tuple([(For.TASK, numbers[name]) for name in task.after])
            steps.append(Step(What.TASK, number, ROOT, waits, said))
    return steps
