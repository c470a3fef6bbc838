"""What the index of wanted data keeps is bounded by what waits, however many tasks came through while others waited.

Some tasks are always ready, so that nothing is forgotten because a queue is empty for once.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bough.core.machine import Machine
from bough.core.records.indexes.affinity_index import AffinityIndex
from bough.model.events import facts, news
from bough.model.ids import ExecutorId, RecordId, SpanId
from bough.model.tasks import Dep, On
from bough.policies.policy_registry import load_policies
from bough.testing.builders import executor, submit, task

TASKS = 400
WAITING = 8
FILES = 20
SLACK = 200  # stale ones that do no harm
POLICIES = [
    "max-compute-util",
    "max-cache-hit",
    "good-cache-compute",
    "data-conscious",
    "storage-affinity",
    "bough",
    "data-only",
    "xsufferage",
]


def digest(file: int) -> bytes:
    return bytes([file]) * 32


class Stream:
    """A machine through which tasks pass; all read one file, and each one of a few others."""

    def __init__(self, policy: str) -> None:
        self.machine = Machine(load_policies(policy), seed=1)
        self.now = 0.0
        self.tell(facts.RunOpened(1, "test", "h", 1), *(executor(one, 1) for one in (1, 2, 3)))

    @property
    def affinity(self) -> AffinityIndex:
        affinity = self.machine.state.affinity
        assert affinity is not None
        return affinity

    def tell(self, *said: object) -> None:
        self.now += 1.0
        assert self.machine.turn(self.now, said).complaints == []  # type: ignore[arg-type]

    def end_all_but(self, ready: int) -> None:
        while self.machine.counts()["ready"] > ready:
            self.tell(*(news.WorkSucceeded(SpanId(span), 0, 1, 1.0) for span in list(self.machine.state.spans)))

    def files(self, numbers: Iterable[int]) -> news.FilesIdentified:
        named = [news.NamedContent(f"/{number}", digest(number), 10) for number in numbers]
        return news.FilesIdentified(1, (), tuple(named))

    def kept(self) -> dict[str, int]:
        """How many entries its tables have, the longest list of readers for all."""
        affinity = self.affinity
        return {
            "units": len(affinity.units),
            "in order": len(affinity._in_order),
            "readers": max((len(readers) for readers in affinity._readers if readers), default=0),
            "unknown": sum(len(units) for files in affinity._unknown.values() for units in files.values()),
            "unheld": len(affinity._unheld),
            "lost": len(affinity._lost),
        }


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("cancels", [True, False])
def test_tasks_that_have_gone_are_forgotten_while_others_wait(policy: str, *, known: bool, cancels: bool) -> None:
    stream = Stream(policy)
    for number in range(1, TASKS + 1):
        own = 1 + number % FILES
        stream.tell(submit(task(number, reads=("/0", f"/{own}"))))
        if known:
            gone = digest(1 + (number + 7) % FILES)
            stream.tell(stream.files((0, own)))
            stream.tell(news.CacheChanged(ExecutorId(1 + number % 3), (news.HeldContent(digest(own), 10),), (gone,)))
        if cancels and number % 2:
            stream.tell(news.Cancel(Dep(On.TASK, RecordId(number))))
        stream.end_all_but(WAITING)
    assert WAITING - 3 <= stream.machine.counts()["ready"] <= WAITING
    assert max(stream.kept().values()) < SLACK, stream.kept()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("known", [True, False])
def test_a_workflow_that_leaves_takes_along_what_was_cancelled(policy: str, *, known: bool) -> None:
    stream = Stream(policy)
    stream.tell(submit(task(1), task(2), task(3)))  # all executors are busy
    many = range(4, TASKS + 4)
    stream.tell(submit(*(task(number, reads=("/0", f"/{1 + number % FILES}")) for number in many)))
    if known:
        stream.tell(stream.files(range(FILES + 1)))
    stream.tell(news.Cancel(Dep(On.GROUP, 0)))
    stream.affinity.forget_run(1, range(FILES + 1) if known else ())
    kept = stream.kept()
    assert kept.pop("in order") <= TASKS
    assert kept.pop("unheld") <= TASKS
    assert not any(kept.values()), kept
