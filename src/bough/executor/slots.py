"""All slots of an executor: which worker gets which span, limits, and what the death of a worker means.

Spans come from the server into a backlog and go to workers that are free, short ones in advance. What workers report
goes to the server. News that were reported stand. The element that ran when a worker died by itself is lost, and so are
those before it whose results died with it. When the executor ended the worker for one element, only that one pays: the
others are given back.

Rule: every element handed to this executor ends in exactly one of: news of its end, a return, or silence because it was
stopped; whatever happens to the worker that had it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from functools import partial

from bough.executor.backlog import (
    Backlog,
    Capacity,
    QueuedSpan,
    advance,
    as_span,
    in_batch,
    is_asked_for,
    locate,
    records_of,
    spans_of,
    split_batch,
)
from bough.executor.descriptors import Descriptors
from bough.executor.files.staging import Staging
from bough.executor.processes import adopt_orphans, children, group_memory, kill, kill_group
from bough.executor.reports import MOST_INLINE, Reports, inlined
from bough.executor.slot import Ending, WorkerSlot
from bough.executor.worker.output_streams import read_output
from bough.executor.worker.worker import WorkerSetting
from bough.executor.worker_protocol import (
    GENERATION,
    GROUP,
    SINCE,
    StageInputs,
    StoreOutputs,
    WorkerDone,
    WorkerQuit,
    WorkerStop,
)
from bough.model.events.news import WorkFailed, WorkReturned, WorkStarted, WorkSucceeded
from bough.model.ids import BlobId, RecordId, Seconds, SpanId
from bough.model.outcomes import Cause, Detail, Failure, ResultFile
from bough.model.resources import Needs, show_bytes
from bough.model.tasks import Kind
from bough.wire.executor_messages import ExecutorWelcome, OutputRead, ReadOutput, RunSpan, StopElements
from bough.wire.framing import News

Say = Callable[[RunSpan, News], None]

_BIRTHS = 3  # workers that may die with a span before they begin it
_LONG = 0.045  # seconds after which the server is told that an element runs
_BATCH = 0.01  # seconds of short tasks handed over together
_SHORT = 0.15  # seconds of run time up to which a worker gets its next work in advance
_OVERDUE = 1.5  # of the expected run time: from then on it may be a long one
_WORKER_GRACE = 1.0  # seconds between TERM and KILL for a worker, which a function ends with
_COMMAND_GRACE = 2.0  # seconds between TERM and KILL for a command over its limit
_MEMORY_LOOK = 0.1  # seconds between looks at the memory of an element


class Slots:
    """All slots of the executor."""

    def __init__(
        self,
        total: Needs,
        welcome: ExecutorWelcome,
        reports: Reports,
        descriptors: Descriptors,
        staging: Staging,
        *,
        inline: bool = False,
    ) -> None:
        self._staging = staging
        self._welcome = welcome
        self._inline = inline  # the server cannot read files here
        self._reports = reports
        reports.is_far = inline
        self._descriptors = descriptors
        self._capacity = Capacity(total)
        self._most = max(1, int(4 * total.cores))
        self._width = max(1, int(total.cores))
        self._backlog = Backlog()
        self._slots: dict[int, WorkerSlot] = {}
        self._generations: dict[int, int] = {}
        self._reaper = Reaper()
        self._hands = 0
        self._leaving = False
        self.blobs: dict[BlobId, bytes] = {}
        adopt_orphans()

    # --- from the server ---

    def add(self, run: RunSpan) -> None:
        """Queue a span."""
        run = as_span(run)
        if not self._leaving and not self._backlog.add(run):
            self._say(run, WorkReturned(run.span, run.start, run.stop))

    def stop(self, order: StopElements) -> None:
        """End elements of a span, wherever it is."""
        found = (in_batch(order, held.run) for held in self._all_held())
        order = next((own for own in found if own is not None), order)
        for slot in self._slots.values():
            if any(held.run.span == order.span for held in slot.held):
                self._take_back(slot)
        what = (order.span, order.start, order.stop)
        for held in [*self._backlog.unlink(*what), *self._backlog.drop(*what)]:
            self._return(held)
        for slot in self._slots.values():
            for held in slot.held:
                if held.run.span == order.span:
                    held.stopped.append((order.start, order.stop))
                    if held.run.kind == Kind.COMMAND:
                        slot.send([WorkerStop(held.number, order.start, order.stop, order.grace)])
                    else:
                        self._end_stopped(slot, order.grace)

    def spans(self) -> list[SpanId]:
        """All that is here, running or queued, and not yet told of to its end."""
        here = [span for held in self._all_held() if held.next < held.run.stop for span in spans_of(held)]
        return list(dict.fromkeys([*here, *self._staging.spans()]))

    def _all_held(self) -> list[QueuedSpan]:
        return [*self._backlog.all(), *(held for slot in self._slots.values() for held in slot.held)]

    def give_back(self) -> None:
        """Return what has not begun."""
        for slot in self._slots.values():
            self._take_back(slot)
        for held in self._backlog.all():
            self._return(held)
        self._backlog.clear()

    def _return(self, held: QueuedSpan) -> None:
        for low, high in held.kept(max(held.next, held.run.start), held.run.stop):
            self._say(held.run, WorkReturned(held.run.span, low, high))

    def _say(self, run: RunSpan, news: News) -> None:
        """Report something of a span."""
        if run.batch:
            for one in split_batch(news, run):
                self._reports.add(one)
        else:
            self._reports.add(news)

    def read_output(self, asked: ReadOutput) -> OutputRead:
        """A part of what a task wrote."""
        running = None
        for slot in self._slots.values():
            number, index = slot.current()
            if any(held.number == number and is_asked_for(held.run, index, asked) for held in slot.held):
                running = slot.stream(self._welcome.output_dir, asked.stream)
        if (
            running is None
            and not asked.path
            and any(asked.record in records_of(held.run) for held in self._all_held())
        ):
            return OutputRead(asked.request, b"", more=True)  # it has not begun, or has just ended
        return read_output(asked, self._welcome.output_dir, running)

    def find_task(self, task: tuple[int, int, int] | None, group: int) -> tuple[SpanId, RecordId, int, int] | None:
        """A task that runs here, by its record, index and attempt, or by a process group: with its span."""
        for slot in self._slots.values():
            if task is not None or group in {slot.pid, slot.cells[GROUP]}:
                hand, at = slot.current()
                for held in slot.held:
                    if found := locate(held, task, at if held.number == hand else -1):
                        return found
        return None

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._backlog.length and not self.busy and not self._staging.spans()

    @property
    def busy(self) -> bool:
        """Whether anything runs."""
        for slot in self._slots.values():  # noqa: SIM110 -- asked in every round, and a generator costs more
            if slot.held or slot.ending:
                return True
        return False

    @property
    def empty(self) -> bool:
        """Whether no worker is left."""
        return not self._slots

    # --- handing out ---

    def schedule(self) -> None:
        """Start what fits, then hand out in advance what is short."""
        if self._leaving:
            return
        backlog = self._backlog
        while backlog.length:
            needs = backlog.first(self._capacity)
            slot = self._idle_slot(needs) if needs is not None else None
            if needs is None or slot is None:
                break
            self._capacity.take(needs)
            slot.needs = needs
            self._hand(slot, needs)
        if backlog.length:
            for slot in self._slots.values():
                needs = slot.needs
                if needs is None or slot.batches != 1 or slot.ending or slot.told:
                    continue
                if backlog.is_earliest(needs) and 0 < backlog.peek(needs).run.expected <= _SHORT:
                    self._hand(slot, needs)

    def _hand(self, slot: WorkerSlot, needs: Needs) -> None:
        """Hand over the earliest span with these needs, short loose tasks several together."""
        backlog = self._backlog
        most = -(-backlog.waiting(needs) // self._width)
        held = backlog.take(needs)
        batch, expected = held.chain(), held.expected
        while 0 < expected <= _BATCH and not held.run.is_array and len(batch) < most:
            held = backlog.peek(needs)
            expected += held.expected
            if held.run.is_array or not held.run.expected or expected > _BATCH:
                break
            batch += backlog.take(needs).chain()
        first = self._hands + 1
        self._hands += len(batch)
        slot.hand_over(batch, range(first, first + len(batch)), self.blobs, self._staging.directories)

    def _idle_slot(self, needs: Needs) -> WorkerSlot | None:
        for slot in self._slots.values():
            if not slot.held and not slot.ending and not slot.gone:
                return slot
        if len(self._slots) >= self._most:
            return None
        self._preload(self._backlog.peek(needs).run)
        return self._fork()

    def _preload(self, run: RunSpan) -> None:
        """Import once, before the fork, what every worker would import for this."""
        if run.kind == Kind.COMMAND:
            import bough.executor.worker.command_runner  # noqa: F401
        elif b"cloudpickle" in self.blobs.get(run.body, b""):
            import cloudpickle  # noqa: F401

    def _fork(self) -> WorkerSlot:
        number = next(n for n in range(len(self._slots) + 1) if n not in self._slots)
        name = f"x{self._welcome.executor}-{number}"
        slot = WorkerSlot(number, name, self._generations.get(number, 0), self._descriptors)
        folders = (self._welcome.output_dir, self._welcome.result_dir, self._staging.sandbox_of(name))
        slot.fork(self.blobs, WorkerSetting(os.getpid(), name, *folders, is_far=self._inline))
        self._slots[number] = slot
        slot.watch(partial(self.on_worker_ready, slot), partial(self.on_worker_dead, slot))
        return slot

    def _take_back(self, slot: WorkerSlot) -> None:
        """Queue again what a worker has not begun."""
        self._requeue(slot.take_back())

    def _requeue(self, taken: list[QueuedSpan]) -> None:
        """Queue again what was not begun; what was to follow something that was begun goes back to the server."""
        for held in self._backlog.put_back(taken):
            self._return(held)

    # --- from workers ---

    def on_worker_ready(self, slot: WorkerSlot) -> None:
        """A worker's socket can be read or written."""
        slot.write()
        self._read(slot)

    def _read(self, slot: WorkerSlot, to_the_end: bool = False) -> None:
        """Take in what a worker says."""
        for news in slot.read(to_the_end):
            if isinstance(news, WorkerDone):
                slot.told = False  # if it goes on, then with something that has just begun
                if slot.done(news.number):
                    self._release(slot)
                continue
            if isinstance(news, StageInputs):
                self._staging.bring_inputs(slot, news)
                continue
            if isinstance(news, StoreOutputs):
                self._staging.store_outputs(slot, news)
                continue
            run = next((held.run for held in slot.held if advance(held, news)), None)
            if run is not None and run.batch:
                self._say(run, news)
            else:
                self._add_news(news)

    def _add_news(self, news: News) -> None:
        if self._inline and isinstance(news, WorkSucceeded) and isinstance(news.results, ResultFile):
            if news.results.size > MOST_INLINE:
                self._staging.keep_result(news, news.results)
                return
            news = inlined(news, news.results)
        self._reports.add(news)

    def _release(self, slot: WorkerSlot) -> None:
        if slot.needs is not None:
            self._capacity.give(slot.needs)
            slot.needs = None
        slot.told = False

    def on_worker_dead(self, slot: WorkerSlot) -> None:
        """A worker is dead: say what that means for what it had."""
        self._read(slot, to_the_end=True)
        status = self._reaper.status(slot.pid)
        slot.kill_command()
        self._staging.forget(slot)
        del self._slots[slot.number]
        self._generations[slot.number] = slot.cells[GENERATION] + 1
        self._release(slot)
        self._reaper.end_orphans(self._slots.values())
        if self._leaving and not self._welcome.embedded:
            for held in slot.held:  # what was ended because we leave has not failed
                self._return(held)
        elif not self._leaving:
            self._requeue(account_for(slot, status, self._welcome.output_dir, self._say))
        slot.close()

    # --- by the clock ---

    def tick(self, now: float) -> None:
        """Look at what runs: tell of long ones, keep limits, end what must end."""
        for slot in list(self._slots.values()):
            if slot.ending:
                if now >= slot.ending.kill_at:
                    slot.kill()
            elif slot.held:
                self._look(slot, now)
        self._reaper.reap_adopted(self._slots.values())

    def _look(self, slot: WorkerSlot, now: float) -> None:
        number, index = current = slot.current()
        held = next((held for held in slot.held if held.number == number), None)
        if held is None or index >= held.run.stop:
            return
        if current != slot.seen:
            slot.seen, slot.seen_at, slot.told = current, now, False
        elif now - slot.seen_at >= _LONG:
            if not slot.told:
                slot.told = True
                self._say(held.run, WorkStarted(held.run.span, index, index + 1))
            if now - slot.seen_at >= _OVERDUE * held.run.expected:  # what it got in advance may go to others
                self._take_back(slot)
        if held.run.kind == Kind.FUNCTION:
            self._end_stopped(slot, _WORKER_GRACE)
        if held.run.limits.timeout or held.run.limits.memory:
            self._keep_limits(slot, held, index, now)

    def _end_stopped(self, slot: WorkerSlot, grace: Seconds) -> None:
        """End a worker that runs a function which was stopped."""
        number, index = slot.current()
        for held in slot.held:
            if held.number == number and index < held.run.stop and held.is_stopped(index):
                self.end_with(slot, held, index, None, min(grace, _WORKER_GRACE))
                return

    def _keep_limits(self, slot: WorkerSlot, held: QueuedSpan, index: int, now: float) -> None:
        """End the element that runs if it is over a limit. `index` was read first: `SINCE` is of it, or of a later."""
        since, limits = slot.cells[SINCE], held.run.limits
        if not since or slot.ending:
            return
        is_command = held.run.kind == Kind.COMMAND
        failure: Failure | None = None
        if limits.timeout and time.monotonic_ns() - since > limits.timeout * 1e9:
            failure = Failure(Cause.TIMEOUT, f"ran longer than {limits.timeout:g} s")
        elif limits.memory and now - slot.looked >= _MEMORY_LOOK:
            slot.looked = now
            used = group_memory(slot.cells[GROUP] if is_command else slot.pid)
            if used > limits.memory:
                failure = Failure(Cause.MEMORY, f"used {show_bytes(used)}, the limit is {show_bytes(limits.memory)}")
        if failure:
            self.end_with(slot, held, index, failure, _COMMAND_GRACE if is_command else _WORKER_GRACE)

    def end_with(self, slot: WorkerSlot, held: QueuedSpan, index: int, failure: Failure | None, grace: Seconds) -> None:
        """End a running element with a verdict: the one way for limits and stops, and for monitors to come."""
        if held.run.kind == Kind.FUNCTION:  # its worker ends with it: the rest is for others
            self._take_back(slot)
        slot.end_with(held, index, failure, grace)

    # --- leaving ---

    def leave(self, grace: Seconds) -> None:
        """End everything: no news of what did not finish."""
        if not self._leaving and not self._welcome.embedded:
            self.give_back()
        self._leaving = True
        self._backlog.clear()
        kill_at = time.monotonic() + grace + 0.2
        for slot in self._slots.values():
            slot.take_back()
            number, index = slot.current()
            runs = next((held.run for held in slot.held if held.number == number and index < held.run.stop), None)
            if slot.ending is None and runs is not None and runs.kind == Kind.FUNCTION:
                slot.end(Ending(kill_at))
            elif slot.ending is None or slot.ending.kill_at > kill_at:
                slot.ending = Ending(kill_at)
            slot.send([WorkerQuit(grace)])

    def end_rest(self) -> None:
        """End what is left of the workers' processes, after all workers have ended."""
        for _ in range(100):
            self._reaper.reap_adopted(self._slots.values())
            left = children()
            if not left:
                return
            for pid in left:  # also those that made sessions of their own: they end with the executor
                kill(pid)
            time.sleep(0.005)


def account_for(slot: WorkerSlot, status: int, output_dir: str, say: Say) -> list[QueuedSpan]:
    """Report what became of the spans of a dead worker; return those it never began."""
    hand, index = slot.current()
    unbegun: list[QueuedSpan] = []
    for held in slot.held:
        if held.number > hand:
            unbegun.append(held)
            continue
        reached = min(index, held.run.stop) if held.number == hand else held.run.stop
        _account_for_finished(held, reached, slot, say)
        if reached < held.run.stop and held.next <= reached:
            _account_for_running(held, reached, slot, say, (status, output_dir))
            held.next = reached + 1
        _give_back(held, max(held.next, reached), held.run.stop, say)
    if unbegun and unbegun[0] is slot.held[0] and not slot.ending:
        unbegun[0].deaths += 1
        if unbegun[0].deaths >= _BIRTHS:
            held = unbegun.pop(0)
            for at in range(held.run.start, held.run.stop):
                _lose(held, at, f"workers die at their start ({_how(status)})", say)
    return unbegun


def _account_for_finished(held: QueuedSpan, reached: int, slot: WorkerSlot, say: Say) -> None:
    """Elements that were run and not told of: their results died with the worker."""
    if slot.ending:
        _give_back(held, held.next, reached, say)
    else:
        for low, high in held.kept(held.next, reached):
            for at in range(low, high):
                _lose(held, at, "the worker process died before its result was told", say)
    held.next = max(held.next, reached)


def _account_for_running(held: QueuedSpan, index: int, slot: WorkerSlot, say: Say, end: tuple[int, str]) -> None:
    """The element that was running."""
    if held.is_stopped(index):
        return
    status, output_dir = end
    ending = slot.ending
    detail = slot.last_output(output_dir, index)
    if ending is None:
        _lose(held, index, f"the worker process died ({_how(status)}) while running it", say, detail)
    elif ending.failure and ending.element == (held.number, index):
        say(held.run, WorkFailed(held.run.span, index, ending.failure, detail))
    else:
        _give_back(held, index, index + 1, say)


def _lose(held: QueuedSpan, index: int, message: str, say: Say, detail: Detail | None = None) -> None:
    say(held.run, WorkFailed(held.run.span, index, Failure(Cause.LOST, message), detail))


def _give_back(held: QueuedSpan, start: int, stop: int, say: Say) -> None:
    for low, high in held.kept(start, stop):
        say(held.run, WorkReturned(held.run.span, low, high))


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit code {code}"


class Reaper:
    """Keeps how workers ended that were reaped before they were missed."""

    def __init__(self) -> None:
        self._statuses: dict[int, int] = {}

    def status(self, pid: int) -> int:
        """How a worker ended."""
        status = self._statuses.pop(pid, None)
        if status is None:
            try:
                status = os.waitpid(pid, 0)[1]
            except ChildProcessError:
                status = 0
        return status

    def end_orphans(self, slots: Collection[WorkerSlot]) -> None:
        """End what a dead worker had just started and not yet shown in its shared memory: it is our child now."""
        workers = {slot.pid for slot in slots}
        groups = workers | {slot.cells[GROUP] for slot in slots}
        own = os.getsid(0)
        for pid in children():
            try:
                group = os.getpgid(pid)
                if pid not in workers and group not in groups and os.getsid(pid) == own and group != os.getpgrp():
                    kill_group(group)
            except ProcessLookupError:
                continue

    def reap_adopted(self, slots: Collection[WorkerSlot]) -> None:
        """Reap orphans that became ours; they are children of commands whose own parent has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if any(slot.pid == pid for slot in slots):
                self._statuses[pid] = status
