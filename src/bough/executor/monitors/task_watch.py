"""One watched task: its engines, and the files, functions and programs from which they get their facts.

Rule: an engine that has ended the task ends the watching; what the others know by then is told, and nothing after it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bough.executor.monitors.custom_runner import CustomRunner, RunnerAnswer, RunnerCall
from bough.executor.monitors.evaluation.conditions import NEVER
from bough.executor.monitors.evaluation.engine import Ask, Engine, Firing
from bough.executor.monitors.executables import Executables
from bough.executor.monitors.followed_files import AwaitedName, FileFollower, FollowedFile
from bough.executor.worker_protocol import TaskPlace
from bough.model.files import absolute, hidden_path, place_inside
from bough.model.monitoring.monitors import (
    REPORTED,
    STREAMS,
    Custom,
    Executable,
    FileCreated,
    WatchPlan,
    all_conditions,
    places_followed,
)
from bough.model.monitoring.observations import Observation

_RAISES = 10  # times in a row that a function may raise before it is called no more


class Surroundings(NamedTuple):
    """What all watched tasks share."""

    files: FileFollower
    functions: CustomRunner
    programs: Executables
    clock: Callable[[], float]


class Found(NamedTuple):
    """What one of the engines has found."""

    plan: int
    observations: list[Observation]
    firings: list[Firing]
    aside: list[int]


class _Watch:
    """One engine, and what it gets its facts from."""

    def __init__(self, number: int, plan: WatchPlan, engine: Engine) -> None:
        self.number = number
        self.plan = plan
        self.engine = engine
        self.files: list[FollowedFile] = []
        self.awaited: list[AwaitedName] = []
        self.next_ask: dict[Ask, float] = {}  # when each is to be asked again; NEVER: it is being asked
        self.raised: dict[Ask, int] = {}  # times in a row
        self.unseen: set[str] = set()  # files that were not there yet, and `reported`
        kinds = {type(condition) for condition in all_conditions(plan)}
        self.asks_or_awaits = not kinds.isdisjoint((Custom, Executable, FileCreated))
        self.waits: set[str] = set()  # files whose appearing is looked for


class TaskWatch:
    """See the module. `found` is called when something may be there to be told."""

    def __init__(
        self,
        task: int,
        place: TaskPlace,
        started: float,
        around: Surroundings,
        found: Callable[[TaskWatch], None],
    ) -> None:
        self.task = task
        self.place = place
        self._started = started
        self._around = around
        self._found = found
        self._watches: list[_Watch] = []
        self.is_over = False  # a monitor has ended it
        self.is_draining = False
        self.is_late = False  # it was said that it writes faster than is read

    # --- plans ---

    def add(self, plan: WatchPlan, make: Callable[[int], Engine], *, streams: bool = True) -> None:
        """Watch by one more plan; `make` makes its engine, by the plan's number. `streams`: they are files."""
        number = len(self._watches)
        watch = _Watch(number, plan, make(number))
        self._watches.append(watch)
        now = self._around.clock()
        for where in places_followed(plan):
            if where == REPORTED:
                watch.unseen.add(where)
            elif where not in STREAMS:
                self._follow_file(watch, where)
            elif streams:
                path, begin = self.place.stdout if where == "stdout" else self.place.stderr
                file = FollowedFile(path, begin, partial(self._take_data, watch, where))
                watch.files.append(file)
                self._around.files.follow(file)
        self._await_files(watch)
        self._plan_asks(watch, now)
        self._found(self)

    def _follow_file(self, watch: _Watch, where: str) -> None:
        """Follow a file that the task may write, as soon as it is there, and what replaces it."""
        files = self._around.files
        paths = self.paths_of(where)
        watch.unseen.add(where)
        file = FollowedFile(
            "", 0, partial(self._take_data, watch, where), lambda: watch.engine.end_of(where, self._around.clock())
        )
        watch.files.append(file)

        def look(path: str) -> bool:
            if file.path and file.path != path:
                return False
            file.renew()
            if not file.path and os.path.exists(path):
                file.path = path
                if file.open():
                    file.at = self._size_before(where, file)
                    watch.unseen.discard(where)
            if file.path:
                files.wake(file)
            return False  # as long as the task runs: another file may take its name

        for path in paths:
            awaited = AwaitedName(path, partial(look, path))
            watch.awaited.append(awaited)
            files.await_name(awaited)

    def _size_before(self, where: str, file: FollowedFile) -> int:
        """The size of a file before the task began: what was in it then is not the task's."""
        known = self.place.sizes
        return known.get(where, 0) if known is not None else file.size_before(self._started)

    def paths_of(self, where: str) -> list[str]:
        """Where a file of the task lies: an output that it declared has a hidden name until it has succeeded."""
        place = self.place
        path = absolute(where, place.directory)
        if place.sandbox and os.path.isabs(where):
            path = os.path.normpath(f"{place.sandbox}/{place_inside(where, place.submitted_from)}")
        hidden = hidden_path(path, place.record, place.index, place.attempt)
        if place.outputs is None:
            return [path, hidden]
        return [hidden] if path in place.outputs else [path]

    def _await_files(self, watch: _Watch) -> None:
        """Wait for files that are to appear."""
        if not watch.asks_or_awaits:
            return
        for where in [where for where in watch.engine.awaited_files() if where not in watch.waits]:
            watch.waits.add(where)
            for path in self.paths_of(where):
                awaited = AwaitedName(path, partial(self._look_for, watch, where, path))
                watch.awaited.append(awaited)
                self._around.files.await_name(awaited)

    def _look_for(self, watch: _Watch, where: str, path: str) -> bool:
        if not os.path.lexists(path) or self.is_over:
            return self.is_over
        watch.engine.appeared(where, self._around.clock())
        self._after(watch)
        if where in watch.engine.awaited_files():  # a later step waits for it, too, or it fires again and again
            return False
        watch.waits.discard(where)
        return True

    @property
    def plans(self) -> int:
        """How many there are."""
        return len(self._watches)

    # --- facts ---

    def _take_data(self, watch: _Watch, where: str, data: bytes) -> None:
        if not self.is_over:
            watch.engine.feed(where, data, self._around.clock())
            self._after(watch)

    def feed(self, where: str, data: bytes) -> None:
        """Something was written to a stream that is no file."""
        for watch in self._watches:
            self._take_data(watch, where, data)

    def hear_reported(self, lines: bytes, skipped: int, plan: int | None) -> None:
        """It reported numbers; `skipped`: lines that came before them and are not known any more. None: all plans."""
        for watch in self._watches if plan is None else self._watches[plan : plan + 1]:
            if skipped:
                watch.engine.pass_over(REPORTED, skipped)
            watch.unseen.discard(REPORTED)
            self._take_data(watch, REPORTED, lines)

    def tick(self, now: float) -> None:
        """Time has passed."""
        for watch in self._watches:
            if not self.is_over:
                watch.engine.tick(now)
                self._after(watch)
        for watch in self._watches:
            if not self.is_over:
                self._ask(watch, now)

    @property
    def due(self) -> float:
        """When `tick` has something to do."""
        if self.is_over:
            return NEVER
        return min(
            [watch.engine.due for watch in self._watches]
            + [min(watch.next_ask.values()) for watch in self._watches if watch.next_ask],
            default=NEVER,
        )

    @property
    def wants_memory(self) -> bool:
        """Whether somebody wants to know how much memory it uses."""
        return not self.is_over and any(watch.engine.wants_memory() for watch in self._watches)

    def memory_is(self, size: int) -> None:
        """Its processes use so much memory."""
        for watch in self._watches:
            if not self.is_over:
                watch.engine.memory_is(size, self._around.clock())
                self._after(watch)

    def _after(self, watch: _Watch) -> None:
        """An engine has taken in a fact."""
        if watch.engine.is_over:
            self._close()
        elif watch.asks_or_awaits:  # another step may want something else
            self._await_files(watch)
            self._plan_asks(watch, self._around.clock())
        self._found(self)

    # --- functions and programs ---

    def _plan_asks(self, watch: _Watch, now: float) -> None:
        """Ask what the step that watches now wants to be asked, and nothing else."""
        asks = watch.engine.asks()
        for ask in [ask for ask in watch.next_ask if ask not in asks]:
            del watch.next_ask[ask]
            self._unask(watch, ask)
        for ask in asks:
            watch.next_ask.setdefault(ask, now + ask.condition.every)

    def _unask(self, watch: _Watch, ask: Ask) -> None:
        key = (self.task, watch.number, ask)
        self._around.functions.forget(key)
        self._around.programs.forget(key)

    def _ask(self, watch: _Watch, now: float) -> None:
        around = self._around
        for ask, at in list(watch.next_ask.items()):
            if at > now:
                continue
            key = (self.task, watch.number, ask)
            if isinstance(ask.condition, Custom):
                watch.next_ask[ask] = NEVER
                call = RunnerCall(ask.condition.function, self.place, self._started)
                around.functions.ask(key, call, partial(self._answered, watch, ask), now)
            elif around.programs.is_full:
                watch.next_ask[ask] = now + 0.1
            else:
                watch.next_ask[ask] = NEVER
                self._run(watch, ask, ask.condition, now)

    def _run(self, watch: _Watch, ask: Ask, condition: Executable, now: float) -> None:
        def exited(code: int | None, wrong: str, at: float) -> None:
            self._answered(watch, ask, RunnerAnswer(code == 0, error=wrong), at)

        self._around.programs.start((self.task, watch.number, ask), condition, self.place, exited, now)

    def _answered(self, watch: _Watch, ask: Ask, answer: RunnerAnswer, now: float) -> None:
        if self.is_over or ask not in watch.next_ask:
            return
        watch.next_ask[ask] = now + ask.condition.every
        watch.raised[ask] = watch.raised.get(ask, 0) + 1 if answer.error else 0
        if answer.error:
            watch.engine.complain(ask.monitor, answer.error)
        if answer.is_lost or watch.raised[ask] >= _RAISES:
            if not answer.is_lost:
                watch.engine.complain(ask.monitor, f"it failed {_RAISES} times in a row; it is not asked again")
            watch.engine.set_aside(ask.monitor)
        if answer.yes:
            watch.engine.said_yes(ask, answer.value, answer.text, now)
        self._after(watch)

    # --- the end ---

    def drain(self, stdout: int | None, stderr: int | None) -> None:
        """It has ended, and its streams are known to end here (None: where they end now)."""
        self.is_draining = True
        for watch in self._watches:
            for file in watch.files:
                end = {self.place.stdout[0]: stdout, self.place.stderr[0]: stderr}.get(file.path)
                if end is not None:
                    file.end = end
                self._around.files.wake(file)
            for awaited in list(watch.awaited):
                awaited.look()

    def is_drained(self) -> bool:
        """Whether all that it wrote was judged."""
        return self.is_over or not any(file.is_waiting for watch in self._watches for file in watch.files)

    def finish(self) -> None:
        """All was judged: say what is left to say."""
        now = self._around.clock()
        for watch in self._watches if not self.is_over else ():
            unseen = watch.unseen | set(watch.engine.awaited_files())
            watch.engine.finish(now, unseen)
        self._close()

    def _close(self) -> None:
        """Watch no more."""
        if self.is_over:
            return
        self.is_over = True
        now = self._around.clock()
        for watch in self._watches:
            watch.engine.close(now)
            for file in watch.files:
                self._around.files.forget(file)
            for awaited in watch.awaited:
                self._around.files.unawait(awaited)
            for ask in watch.next_ask:
                self._unask(watch, ask)
            watch.next_ask.clear()

    def forget(self) -> None:
        """Nobody wants to know any more."""
        self._close()

    def take(self) -> list[Found]:
        """What was found since the last time."""
        found = []
        for watch in self._watches:
            observations, firings = watch.engine.take()
            if observations:  # what is set aside is among them
                found.append(Found(watch.number, observations, firings, watch.engine.aside))
                watch.engine.aside = []
        return found

    def told(self, plan: int) -> dict[int, int]:
        """By its number, how many values of a series of a plan have been told."""
        return self._watches[plan].engine.told()
