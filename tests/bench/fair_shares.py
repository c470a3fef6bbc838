"""What choosing between many open workflows costs: tasks a second through the core, by workflows that wait.

Run: python tests/bench/fair_shares.py [workflows ...]

Every workflow has tasks ready, one executor with few cores serves them, one task ends a turn. Twice the workflows
should cost the same for each decision.
"""

from __future__ import annotations

import gc
import sys
import time

from bough.core.machine import Machine
from bough.model.events.facts import ExecutorJoined, RunOpened, Submitted
from bough.model.events.news import WorkSucceeded
from bough.model.ids import BlobId, ExecutorId, GroupId, RecordId
from bough.model.sites.resources import Needs
from bough.model.tasks import Kind, TaskSpec
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Policies

_DECISIONS = 2000
_LONG = 10.0  # seconds that a task takes by the clock of the core: nothing waits behind others


def seconds_each(workflows: int, decisions: int = _DECISIONS) -> float:
    """Seconds of one turn in which a task ends and another one is chosen, with so many workflows that wait."""
    machine = Machine(Policies(Fifo()))
    machine.turn(0.0, [RunOpened(1, "server", "h", 1)])
    machine.turn(0.0, [RunOpened(run, f"w{run}", "h", 1, group=GroupId(run)) for run in range(2, workflows + 2)])
    each = 2 + decisions // workflows
    number = 0
    for run in range(2, workflows + 2):
        items = []
        for _ in range(each):
            number += 1
            items.append(
                TaskSpec(RecordId(number), Kind.FUNCTION, BlobId(b"f%d" % run), b"", GroupId(run), template=f"t{run}")
            )
        machine.turn(0.0, [Submitted(items)])
    machine.turn(0.0, [ExecutorJoined(ExecutorId(1), "local", "here", 1, Needs(cores=8))])
    gc.collect()
    gc.freeze()
    began = time.perf_counter()
    for turn in range(decisions):
        span = next(iter(machine.state.spans.values()))
        machine.turn(float(turn), [WorkSucceeded(span.id, 0, 1, _LONG)])
    return (time.perf_counter() - began) / decisions


def main() -> None:
    """Print a line a size."""
    for workflows in [int(word) for word in sys.argv[1:]] or [10, 1000, 10_000]:
        decisions = _DECISIONS if workflows <= 1000 else 300
        seconds = seconds_each(workflows, decisions)
        print(f"{workflows:>7,} workflows: {seconds * 1e6:10.1f} us a decision")


if __name__ == "__main__":
    main()
