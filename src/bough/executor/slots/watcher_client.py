"""The executor's side of its watcher: which elements are watched, what the watcher saw of them, and its death.

The watcher is started with the first watched element. What it says is reported as news of the element, and its verdicts
are carried out. The executor remembers how far each plan is, so that a watcher that died, or hung in the code of a
monitor and was killed, is replaced by one that reads everything again and repeats nothing; that monitor is set aside.

Rules: nothing here blocks. The end of a watched element is told once all that it wrote was judged, or after a bounded
time, with a word about it. Nothing is reported of an element after its end.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from bough import logs
from bough.errors import ProtocolError
from bough.executor.host.descriptors import Descriptors
from bough.executor.host.helper_process import HelperProcess
from bough.executor.host.processes import cpu_seconds, kill_group
from bough.executor.monitors.watcher_protocol import (
    JUDGED,
    MONITOR,
    PLAN,
    SINCE,
    TASK,
    DrainTask,
    ForgetTask,
    FromWatcher,
    HearReported,
    PlanState,
    TaskDrained,
    TaskSeen,
    ToWatcher,
    WatchMore,
    WatchTask,
    from_watcher_frames,
    new_watcher_cells,
)
from bough.executor.slots.backlog import QueuedSpan, span_and_index
from bough.executor.slots.slot import Ending, WorkerSlot
from bough.executor.slots.verdicts import verdict_of
from bough.executor.worker_protocol import ElementEnded, ElementJudged, TaskPlace
from bough.model.events.news import WorkObserved
from bough.model.ids import BlobId, Seconds, SpanId
from bough.model.monitoring.monitors import Fail, Finish, Restart
from bough.model.monitoring.observations import Observation, Trouble
from bough.model.outcomes import EndedEarly, Failure
from bough.wire.client_messages import Blob
from bough.wire.executor_messages import RunSpan
from bough.wire.framing import News, frame_list

_HANGS = 5.0  # seconds in one monitor's code after which a watcher hangs
_BUSY = 1.0  # seconds of processor time that it must have used by then, or else
_STUCK = 30.0  # so many seconds must have passed
_DRAIN = 10.0  # seconds without progress that the end of an element waits for its watcher
_MOST_DRAIN = 60.0  # seconds that it waits at most
_DEATHS = 5  # of watchers that watched nothing to its end, after which no more are started

End = Callable[[WorkerSlot, QueuedSpan, int, Failure | EndedEarly | None, Seconds], bool]


class ReportedLines(Protocol):
    """What tasks report of themselves, as lines; see `executor.task_reports`."""

    hear: Callable[[SpanId, int, bytes], None] | None  # called with what a task has just reported

    def lines(self, span: SpanId, index: int) -> tuple[bytes, int]:
        """The last lines that a task reported, and how many came before them."""


class _Watched:
    """An element that is watched."""

    def __init__(self, task: int, slot: WorkerSlot, held: QueuedSpan, place: TaskPlace) -> None:
        self.task = task
        self.slot = slot
        self.held = held
        self.place = place
        self.started = time.time()
        self.states: list[PlanState] = []
        self.verdict: Failure | EndedEarly | None = None
        self.ends: tuple[int, int] | None = None  # where its output ends, once it has
        self.then: Callable[[], None] | None = None  # what its end waits to do
        self.give_up_at = self.waits_until = 0.0  # monotonic seconds: without progress, and at all
        self.is_drained = False


class Watching:
    """See the module. `say` reports news of a span, `end` ends an element that runs."""

    def __init__(
        self,
        descriptors: Descriptors,
        blobs: dict[BlobId, bytes],
        say: Callable[[RunSpan, News], None],
        end: End,
        reported: ReportedLines,
    ) -> None:
        self._process = HelperProcess(descriptors, self._run, from_watcher_frames, self._on_said, self._on_ended)
        self._blobs = blobs
        self._say = say
        self._end = end
        self._reported = reported
        reported.hear = self._hear_reported
        self._last = 0
        self._watched: dict[int, _Watched] = {}
        self._by_hand: dict[int, dict[int, _Watched]] = {}  # by hand-over and index
        self._by_element: dict[tuple[SpanId, int], _Watched] = {}  # by span and index, as news name it
        self._cells = new_watcher_cells()
        self._known: set[BlobId] = set()  # plans that the watcher has
        self._deaths = 0
        self._inside: tuple[int, float] = (0, 0.0)  # since when the watcher is where it is, its processor time then
        self._work = (0, 0.0)  # bytes that it had judged, and its processor time, when that was looked at

    # --- elements ---

    def begin(self, slot: WorkerSlot, held: QueuedSpan, place: TaskPlace) -> None:
        """An element runs that is to be watched; nothing happens to plans that watch it already."""
        watched = self._find(held.number, place.index)
        plans = held.plans(place.index)
        if watched is not None:
            for plan in plans:
                if all(state.plan != plan for state in watched.states):
                    number = len(watched.states)
                    watched.states.append(PlanState(plan))
                    order = WatchMore(watched.task, watched.states[-1])
                    self._send([*self._blobs_for([plan]), order, *self._reported_by(watched, number)])
            return
        self._last += 1
        watched = _Watched(self._last, slot, held, place)
        watched.states = [PlanState(plan) for plan in plans]
        self._watched[watched.task] = watched
        self._by_hand.setdefault(held.number, {})[place.index] = watched
        self._by_element[span_and_index(held.run, place.index)] = watched
        self._send([*self._blobs_for(plans), self._order(watched), *self._reported_by(watched)])

    def _find(self, number: int, index: int) -> _Watched | None:
        return self._by_hand.get(number, {}).get(index)

    def _order(self, watched: _Watched) -> WatchTask:
        return WatchTask(watched.task, watched.place, watched.started, watched.states)

    def _blobs_for(self, plans: list[BlobId]) -> list[ToWatcher]:
        new = [plan for plan in dict.fromkeys(plans) if plan not in self._known and plan in self._blobs]
        self._known.update(new)
        return [Blob(plan, self._blobs[plan]) for plan in new]

    def _hear_reported(self, span: SpanId, index: int, lines: bytes) -> None:
        """A task reported numbers: what watches it hears of it before it hears of the end."""
        watched = self._by_element.get((span, index))
        if watched is not None and watched.verdict is None and not watched.is_drained:
            self._send([HearReported(watched.task, lines)])

    def _reported_by(self, watched: _Watched, plan: int | None = None) -> list[ToWatcher]:
        """What a task reported until now, for a watcher or a plan that is new."""
        lines, skipped = self._reported.lines(*span_and_index(watched.held.run, watched.place.index))
        return [HearReported(watched.task, lines, skipped, plan)] if lines else []

    def drain(self, slot: WorkerSlot, ended: ElementEnded) -> None:
        """An element has ended: answer its worker once all is judged that it wrote."""
        watched = self._find(ended.number, ended.index)
        if watched is None:
            slot.send([ElementJudged(ended.number, ended.index)])
            return

        def answer() -> None:
            self._forget(watched)
            failure = watched.verdict if isinstance(watched.verdict, Failure) else None
            early = watched.verdict if isinstance(watched.verdict, EndedEarly) else None
            slot.send([ElementJudged(ended.number, ended.index, failure, early)])

        self._drain(watched, (ended.stdout, ended.stderr), answer)

    def drain_dead(self, slot: WorkerSlot, ends: list[int], then: Callable[[], None]) -> bool:
        """A worker is dead: whether something that it ran is still to be judged, after which `then` is called."""
        watched = self._find(*slot.current())
        if watched is None:
            return False
        if watched.verdict is not None or watched.held.is_stopped(watched.place.index):
            self._forget(watched)
            return False

        def go_on() -> None:
            self._forget(watched)
            if watched.verdict is not None and slot.ending is None:
                slot.ending = Ending(0.0, (watched.held.number, watched.place.index), watched.verdict)
            then()

        self._drain(watched, (ends[0], ends[1]), go_on)
        return True

    def _drain(self, watched: _Watched, ends: tuple[int, int], then: Callable[[], None]) -> None:
        now = time.monotonic()
        watched.ends, watched.then = ends, then
        watched.give_up_at, watched.waits_until = now + _DRAIN, now + _MOST_DRAIN
        if watched.verdict is not None or watched.is_drained:  # nothing more is watched
            then()
        else:
            self._send([DrainTask(watched.task, *ends)])

    def forget_ended(self, held: QueuedSpan) -> None:
        """Elements of which the end was told are watched no more."""
        for index, watched in list(self._by_hand.get(held.number, {}).items()):
            if index < held.next:
                self._forget(watched)

    def forget_hand(self, number: int) -> None:
        """A hand-over is over, and what was stopped of it is watched no more."""
        for watched in list(self._by_hand.get(number, {}).values()):
            self._forget(watched)

    def _forget(self, watched: _Watched) -> None:
        if self._watched.pop(watched.task, None) is not None:
            self._by_element.pop(span_and_index(watched.held.run, watched.place.index), None)
            of_hand = self._by_hand[watched.held.number]
            del of_hand[watched.place.index]
            if not of_hand:
                del self._by_hand[watched.held.number]
            if not watched.is_drained and self._process.lives:
                self._send([ForgetTask(watched.task)])

    # --- the watcher ---

    def _send(self, messages: list[ToWatcher]) -> None:
        if self._process.lives:
            self._process.send(frame_list(messages))
        elif self._deaths >= _DEATHS:
            self._give_up()
        else:
            self._start()  # which tells it everything

    def _start(self) -> None:
        """Start a watcher, and tell it all there is."""
        self._cells[SINCE] = 0
        self._process.start()
        self._known = set()
        messages: list[ToWatcher] = []
        for watched in self._watched.values():
            if watched.verdict is None and not watched.is_drained:
                messages += [*self._blobs_for([state.plan for state in watched.states]), self._order(watched)]
                messages += self._reported_by(watched)
                if watched.ends is not None:
                    messages.append(DrainTask(watched.task, *watched.ends))
        self._process.send(frame_list(messages))

    def _run(self, sock: socket.socket) -> None:
        """In the fork."""
        from bough.executor.monitors.watcher import be_watcher

        be_watcher(sock, self._cells)

    def _on_said(self, messages: list[FromWatcher]) -> None:
        for message in messages:
            watched = self._watched.get(message.task)
            if watched is not None and isinstance(message, TaskSeen):
                self._on_seen(watched, message)
            elif watched is not None and isinstance(message, TaskDrained):
                self._deaths = 0
                self._finish(watched)

    def _finish(self, watched: _Watched) -> None:
        watched.is_drained = True
        if watched.then is not None:
            watched.then()

    def _on_seen(self, watched: _Watched, seen: TaskSeen) -> None:
        self._observe(watched, seen.observations)
        if seen.plan < len(watched.states):
            state = watched.states[seen.plan]
            progress = {one.monitor: one for one in [*state.progress, *seen.progress]}
            told = {**state.told, **seen.told}
            aside = sorted({*state.aside, *seen.aside})
            watched.states[seen.plan] = PlanState(state.plan, list(progress.values()), told, aside)
        group = watched.place.group
        for number in seen.signals:
            if watched.slot.current() == (watched.held.number, watched.place.index) and watched.ends is None:
                kill_group(group, number)
        if seen.verdict is not None and seen.fired is not None and watched.verdict is None:
            watched.verdict = verdict_of(seen.verdict, seen.fired)
            if watched.ends is None:
                self._end(watched.slot, watched.held, watched.place.index, watched.verdict, _grace(seen.verdict))

    def _observe(self, watched: _Watched, observations: list[Observation]) -> None:
        held, index = watched.held, watched.place.index
        if observations and not held.is_stopped(index) and index >= held.next:
            self._say(held.run, WorkObserved(held.run.span, index, observations))

    def tick(self, now: float) -> None:
        """Look whether the watcher hangs, and who has waited for it for too long."""
        since = self._cells[SINCE]
        if since and self._process.lives:
            if self._inside[0] != since:
                self._inside = (since, cpu_seconds(self._process.pid))
            spent = now - since / 1e9
            used = cpu_seconds(self._process.pid) - self._inside[1] if spent > _HANGS else 0.0
            if spent > _HANGS and (used > _BUSY or spent > _STUCK):
                self._process.stop()
                self._on_dead(f"it hung for {spent:.0f} s")
        waiting = [one for one in self._watched.values() if one.then is not None]
        if not waiting:
            return
        # on a full machine it gets little time, and uses that
        work = (self._cells[JUDGED], cpu_seconds(self._process.pid))
        progressed, self._work = work != self._work, work
        for watched in waiting:
            if progressed:
                watched.give_up_at = now + _DRAIN
            if now > min(watched.give_up_at, watched.waits_until):
                message = "the watcher is too late: not all that the task wrote was judged"
                self._observe(watched, [Trouble(time.time(), "", message)])
                self._finish(watched)

    def _on_ended(self, unreadable: ProtocolError | None) -> None:
        if unreadable is not None:
            logs.error("watcher-killed", f"what the watcher sent cannot be read: {unreadable}")
        self._on_dead("it ended")

    def _on_dead(self, why: str) -> None:
        """The watcher has ended, or hung: begin again without the monitor whose code ran."""
        self._deaths += 1
        logs.warning("watcher-died", f"the watcher of tasks is started again: {why}")
        culprit = self._watched.get(self._cells[TASK])
        if self._cells[SINCE] and culprit is not None and self._cells[PLAN] < len(culprit.states):
            plan, monitor = self._cells[PLAN], self._cells[MONITOR]
            state = culprit.states[plan]
            self._set_aside(state.plan, monitor, why)
        if self._watched:
            self._send([])

    def _set_aside(self, plan: BlobId, monitor: int, why: str) -> None:
        """Leave a monitor out of all elements that the plan watches: it would hang again."""
        from bough.executor.monitors.evaluation.engine import name_of
        from bough.model.monitoring.monitors import decode_plan

        name = name_of(decode_plan(self._blobs[plan]), monitor)
        message = f"{why} in the code of this monitor, which is set aside"
        for watched in self._watched.values():
            for place, state in enumerate(watched.states):
                if state.plan == plan and monitor not in state.aside:
                    watched.states[place] = replace(state, aside=[*state.aside, monitor])
                    self._observe(watched, [Trouble(time.time(), name, message)])

    def _give_up(self) -> None:
        """No watcher lives: tasks run on unwatched, and are told so."""
        for watched in list(self._watched.values()):
            if not watched.is_drained:
                message = "watchers die again and again; the task is not watched any more"
                self._observe(watched, [Trouble(time.time(), "", message)])
                self._finish(watched)

    def close(self) -> None:
        """The executor leaves: watch no more, and hold nothing back."""
        self._process.stop()
        self._deaths = _DEATHS
        for watched in list(self._watched.values()):
            self._finish(watched)
        self._watched.clear()
        self._by_hand.clear()
        self._by_element.clear()


def _grace(verdict: Finish | Fail | Restart) -> float:
    return verdict.grace
