"""A bench for policies that look at data: files with contents, caches, and where tasks went."""

from __future__ import annotations

from collections.abc import Sequence

from bough.model.events import news
from bough.model.events.facts import ExecutorJoined, ExecutorResumed, ExecutorSuspended, Placed
from bough.model.ids import ExecutorId, FileId
from bough.model.sites.resources import Needs
from bough.model.tasks import Dep, On
from bough.policies.policy_registry import load_placement
from bough.testing.builders import submit, task
from tests.unit.core.core_bench import Bench


def digest(name: str) -> bytes:
    return name.encode().ljust(32, b"\0")


class DataBench:
    """A machine whose executors have caches; a file is as big as it is said to be when it is first named."""

    def __init__(self, policy: str) -> None:
        self.bench = Bench(0, policy=load_placement(policy))
        self.sizes: dict[str, int] = {}
        self.went: dict[tuple[int, int], int] = {}  # where each task went last

    @property
    def machine(self):
        return self.bench.machine

    def tell(self, *said: object) -> None:
        turn = self.bench.tell(*said)
        assert turn.complaints == []
        for fact in turn.facts:
            if isinstance(fact, Placed):
                self.went.update({(fact.record, index): fact.executor for index in range(fact.start, fact.stop)})

    def wait(self, seconds: float) -> None:
        self.bench.now += seconds
        self.tell()

    def executor(self, number: int, *held: str, cores: float = 1, host: str = "", site: str = "local", **more: float):
        self.tell(ExecutorJoined(ExecutorId(number), site, host or f"host{number}", 1, Needs(cores=cores), **more))
        if held:
            self.cache(number, *held)

    def cache(self, number: int, *held: str, lost: Sequence[str] = (), shared: bool = False) -> None:
        added = tuple(news.HeldContent(digest(name), self.sizes.setdefault(name, 100)) for name in held)
        self.tell(news.CacheChanged(ExecutorId(number), added, tuple(map(digest, lost)), shared=shared))

    def submit(self, number: int, *reads: str, **fields: object) -> None:
        """A task that reads files whose contents are known at once."""
        after = fields.pop("after", ())
        spec = task(number, *after, reads=tuple(f"/{name}" for name in reads), template=f"t{number}", **fields)
        self.tell(*self._known_first(reads), submit(spec, request=1))
        self.tell(*self._known_first(reads))

    def _known_first(self, reads: Sequence[str]) -> list[object]:
        run = self.machine.state.run
        files = self.machine.state.workflows[run].files
        known = [(files.find(f"/{name}"), name) for name in reads]
        found = tuple(
            news.IdentifiedFile(FileId(file.id), digest(name), self.sizes.setdefault(name, 100))
            for name, file in ((name, file) for file, name in known)
            if file is not None
        )
        return [news.FilesIdentified(run, found)] if found else []

    def after(self, number: int) -> Dep:
        return Dep(On.TASK, number)

    def drained(self, number: int) -> list[object]:
        """An executor gets nothing for now."""
        return [ExecutorSuspended(ExecutorId(number), 1e9)]

    def resumed(self, number: int) -> list[object]:
        """It gets work again."""
        return [ExecutorResumed(ExecutorId(number))]

    def end(self, number: int, *made: str, seconds: float = 1.0) -> None:
        """A task succeeds; its host's cache has what it read, and what it made."""
        where = self.went[number, 0]
        span = self.bench.span(number)
        if made:
            self.cache(where, *made)
        self.tell(news.WorkSucceeded(span, 0, 1, seconds))
