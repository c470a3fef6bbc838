"""All slots of an executor: which worker gets which span, and the limits that are kept.

Spans come from the server into a backlog and go to workers that are free, short ones in advance. What workers report
goes to the server. News that were reported stand. What the death of a worker means is said in `dead_workers`.

Rule: every element handed to this executor ends in exactly one of: news of its end, a return, or none because it was
stopped; whatever happens to the worker that had it. Of one that is ended while it runs, what it wrote is told as well.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bough.executor.files.command_files.sandbox import aside_of, inside_sandbox, sandbox_name
from bough.executor.files.staging.staging import Staging
from bough.executor.host.descriptors import Descriptors
from bough.executor.host.devices import DevicePool, Gpus
from bough.executor.host.processes import adopt_orphans, children, group_memory, kill
from bough.executor.host.small_disks import SmallDisks
from bough.executor.reports import MOST_INLINE, Reports, inlined
from bough.executor.slots.backlog import (
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
from bough.executor.slots.clearance import GivingBack
from bough.executor.slots.dead_workers import Reaper, account_for, tell_output
from bough.executor.slots.preloader import Preloader
from bough.executor.slots.slot import Ending, WorkerSlot
from bough.executor.worker.output_streams import read_output
from bough.executor.worker.worker import WorkerSetting
from bough.executor.worker_protocol import (
    GENERATION,
    GROUP,
    HANDOVER,
    LATE,
    OUTPUT_WAITS,
    RESULT_WAITS,
    SINCE,
    ElementBegan,
    ElementEnded,
    InputsStaged,
    StageInputs,
    StoreOutputs,
    TaskPlace,
    Verdict,
    WorkerDone,
    WorkerNews,
    WorkerQuit,
    WorkerStop,
)
from bough.model.events.news import WorkFailed, WorkObserved, WorkReturned, WorkStarted, WorkStopped, WorkSucceeded
from bough.model.files import is_url
from bough.model.ids import BlobId, RecordId, Seconds, SpanId
from bough.model.monitoring.observations import Fired
from bough.model.outcomes import Cause, Failure, ResultFile
from bough.model.sites.resources import Needs, show_bytes
from bough.model.tasks import Kind
from bough.wire.executor_messages import (
    EndElements,
    ExecutorWelcome,
    OutputRead,
    ReadOutput,
    RunSpan,
    StopElements,
    WatchElements,
    spread,
)
from bough.wire.framing import News

if TYPE_CHECKING:
    from bough.executor.files.staging.declared_inputs import DeclaredInputs
    from bough.executor.slots.watcher_client import ReportedLines, Watching

_REQUESTS = (StageInputs, StoreOutputs, ElementBegan, ElementEnded)

_LONG = 0.045  # seconds after which the server is told that an element runs
_BATCH = 0.01  # seconds of short tasks handed over together
_SHORT = 0.15  # seconds of run time up to which a worker gets its next work in advance
_OVERDUE = 1.5  # of the expected run time: from then on it may be a long one
_WORKER_GRACE = 1.0  # seconds between TERM and KILL for a worker, which a function ends with
_COMMAND_GRACE = 2.0  # seconds between TERM and KILL for a command over its limit
_EARLY = 2  # waiting spans for each core whose inputs are brought
_FORGET = 1.0  # seconds between looks at which of them are still here
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
        task_reports: ReportedLines,
        inline: bool = False,
        devices: DevicePool | None = None,
        preloader: Preloader | None = None,
    ) -> None:
        self._preloader = preloader
        self.awaits_preloader = False  # what is queued waits for modules that are being imported
        self._staging = staging
        self._welcome = welcome
        self._inline = inline  # the server cannot read files here
        self._reports = reports
        self._task_reports = task_reports
        reports.is_far = inline
        self._descriptors = descriptors
        self._capacity = Capacity(total)
        self._devices = devices or DevicePool(Gpus())
        self._most = max(1, int(4 * total.cores))
        self._width = max(1, int(total.cores))
        self._backlog = Backlog()
        self._slots: dict[int, WorkerSlot] = {}
        self._generations: dict[int, int] = {}
        self._reaper = Reaper()
        self._small_disks = SmallDisks()
        self._hands = 0
        self._leaving = False
        self._watching: Watching | None = None  # made when the first watched task is there
        self._giving_back = GivingBack(self, staging, self._say, reports.add)
        self.blobs: dict[BlobId, bytes] = {}
        self._inputs: DeclaredInputs | None = None
        self._looked_at: set[tuple[int, int]] = set()  # elements whose inputs were looked for: span and index
        self._forgot = 0.0
        adopt_orphans()

    # --- from the server ---

    def add(self, run: RunSpan) -> None:
        """Queue a span."""
        if run.watch and run.batch:  # a watched task is watched alone
            for one in spread(run):
                self.add(one)
            return
        self._giving_back.stay()  # the site may be used again
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

    def watch(self, order: WatchElements) -> None:
        """Have elements of a span watched by one more plan: from their beginning, also those that run."""
        found = (in_batch(order, held.run) for held in self._all_held())
        order = next((own for own in found if own is not None), order)
        for slot in self._slots.values():
            if any(held.run.span == order.span for held in slot.held):
                self._take_back(slot)
        for held in self._all_held():
            if held.run.span == order.span and order.plan not in held.run.watch:
                held.watch(order.start, order.stop, order.plan)
        for slot in self._slots.values():
            for held in slot.held:
                if held.run.span == order.span:
                    slot.cells[LATE] = held.number
                    self._watch_late(slot, held)

    def _watch_late(self, slot: WorkerSlot, held: QueuedSpan) -> None:
        """Begin to watch the element that runs, if plans were added for it and its worker did not tell that it runs.

        A function of which others follow in the same loop ends without a word, and is not watched: it is short.
        """
        number, index = slot.current()
        is_command = held.run.kind == Kind.COMMAND
        group = slot.cells[GROUP] if is_command else slot.pid
        if held.number != number or not group or not (held.late and held.plans(index)):
            return
        if not is_command and index != held.run.stop - 1:
            return
        try:
            directory = os.readlink(f"/proc/{slot.pid}/cwd")
        except OSError:
            return
        stdout, stderr = (slot.stream(self._welcome.output_dir, name) for name in ("stdout", "stderr"))
        run, outputs = held.run, None if is_command else list[str]()
        place = TaskPlace(run.record, index, run.attempt, group, directory, stdout, stderr, outputs)
        if slot.current() == (number, index):
            self._watchers().begin(slot, held, place)

    def _watchers(self) -> Watching:
        if self._watching is None:
            from bough.executor.slots.watcher_client import Watching

            self._watching = Watching(self._descriptors, self.blobs, self._say, self.end_with, self._task_reports)
        return self._watching

    def end_early(self, order: EndElements) -> None:
        """End elements of a span that run with a verdict, as a monitor would, and say so as one does."""
        from bough.executor.slots.verdicts import verdict_of

        action = str(order.verdict.__struct_config__.tag)
        fired = Fired(time.time(), order.monitor, action=action, reason=order.reason[:2000])
        for slot in list(self._slots.values()):
            for held in list(slot.held):
                own = in_batch(order, held.run)
                number, index = slot.current()
                if own is not None and held.number == number and own.start <= index < min(own.stop, held.run.stop):
                    verdict = verdict_of(order.verdict, fired)
                    if self.end_with(slot, held, index, verdict, order.verdict.grace):
                        self._say(held.run, WorkObserved(held.run.span, index, [fired]))

    def spans(self) -> list[SpanId]:
        """All that is here, running or queued, and not yet told of to its end."""
        here = [span for held in self._all_held() if held.next < held.run.stop for span in spans_of(held)]
        return list(dict.fromkeys([*here, *self._staging.outputs.spans(), *self._giving_back.spans()]))

    def waiting_for_space(self) -> list[SpanId]:
        """Spans that were begun, and whose results or output wait for space on the disk of the store."""
        return [
            span
            for slot in self._slots.values()
            if slot.cells[RESULT_WAITS] or slot.cells[OUTPUT_WAITS]
            for held in slot.held
            if held.number <= slot.cells[HANDOVER]
            for span in spans_of(held)
        ]

    def _all_held(self) -> list[QueuedSpan]:
        return [*self._backlog.all(), *(held for slot in self._slots.values() for held in slot.held)]

    def give_back(self) -> None:
        """Return what has not begun."""
        for slot in self._slots.values():
            self._take_back(slot)
        for held in self._backlog.all():
            self._return(held)
        self._backlog.clear()

    def clear(self, reason: str, deadline: float) -> None:
        """Give back all: what has not begun now, what runs when it has ended or, at the deadline, been ended."""
        self._giving_back.clear(reason, deadline, time.monotonic())

    def stay(self) -> None:
        """What still runs goes on."""
        self._giving_back.stay()

    def has_checkpoints(self) -> bool:
        """Whether something that runs can save its state."""
        return any(held.run.checkpoint is not None for slot in self._slots.values() for held in slot.held)

    def checkpoint_path(self, slot: WorkerSlot, run: RunSpan, index: int) -> str:
        """Where the checkpoint of an element lies here; empty: it cannot have one."""
        assert run.checkpoint is not None
        path = run.checkpoint.path(run.record, index)
        directory = self._staging.directories.get(run.run, "")
        if directory:
            root = f"{self._staging.sandbox_of(slot.name)}/{sandbox_name(run.record, index, run.attempt)}"
            return inside_sandbox(root, directory, path)
        return "" if self._inline and run.kind == Kind.FUNCTION else path

    def checkpoint_aside(self, run: RunSpan, index: int) -> str:
        """Where that of an element that ran in a sandbox lies when it has ended; empty: it ran in none."""
        is_sandboxed = run.run in self._staging.directories
        return aside_of(self._staging.sandbox_of(""), run.record, index) if is_sandboxed else ""

    def busy_slots(self) -> list[WorkerSlot]:
        """Those that have something."""
        return [slot for slot in self._slots.values() if slot.held and not slot.ending]

    def _return(self, held: QueuedSpan) -> None:
        for low, high in held.kept(max(held.next, held.run.start), held.run.stop):
            self._say(held.run, WorkReturned(held.run.span, low, high))

    def _say(self, run: RunSpan, news: News) -> None:
        """Report something of a span."""
        if run.batch:
            for one in split_batch(news, run):
                self._reports.add(one)
        else:
            self._giving_back.tell(run, news)

    def read_output(self, asked: ReadOutput) -> OutputRead:
        """A part of what a task wrote."""
        running = None
        for slot in self._slots.values():
            number, index = slot.current()
            wanted = (asked.record, asked.index)
            if any(held.number == number and is_asked_for(held.run, index, *wanted) for held in slot.held):
                running = self.stream_of(slot, asked.stream)
        if running is None and not asked.path and self.has_queued(asked.record):
            return OutputRead(asked.request, b"", more=True)  # it has not begun, or has just ended
        return read_output(asked, self._welcome.output_dir, running)

    def stream_of(self, slot: WorkerSlot, name: str) -> tuple[str, int]:
        """The file of a stream, and where the element that runs there begins in it."""
        return slot.stream(self._welcome.output_dir, name)

    def sandbox_of(self, slot: WorkerSlot, held: QueuedSpan) -> tuple[str, str]:
        """Where the sandbox of a command lies that runs there, and the submitter's directory; nothing: it has none."""
        directory = self._staging.directories.get(held.run.run, "")
        if held.run.kind != Kind.COMMAND or not directory:
            return "", ""
        return self._staging.sandbox_of(slot.name), directory

    def has_queued(self, record: int) -> bool:
        """Whether something of a record is here."""
        return any(record in records_of(held.run) for held in self._all_held())

    def find_running(self, record: int, index: int, attempt: int) -> tuple[WorkerSlot, QueuedSpan] | None:
        """The slot in which an attempt runs now, and its span; of a command: whose processes are there."""
        for slot in self._slots.values():
            number, at = slot.current()
            for held in slot.held:
                run = held.run
                if held.number != number or run.attempt != attempt or not held.next <= at < run.stop:
                    continue
                if is_asked_for(run, at, record, index) and (run.kind != Kind.COMMAND or slot.cells[GROUP]):
                    return slot, held
        return None

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
        return self.rests and not self._staging.outputs.is_gathering

    @property
    def rests(self) -> bool:
        """Whether no task is here; outputs may have to be written back."""
        return not (self._backlog.length or self.busy or self._staging.outputs.spans() or self._giving_back.is_carrying)

    @property
    def busy(self) -> bool:
        """Whether anything runs."""
        for slot in self._slots.values():  # noqa: SIM110 -- asked in every round, and a generator costs more
            if slot.held or slot.ending:
                return True
        return False

    @property
    def is_restless(self) -> bool:
        """Whether it must be looked after in every round."""
        return self.busy or self.awaits_preloader or self._giving_back.is_carrying or self._staging.outputs.is_gathering

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
            if needs.gpus or self._devices.pins:
                self._give_devices(slot, needs)
            self._hand(slot, needs)
        if backlog.length:
            self._hand_in_advance()
        if self._preloader is not None and not self._preloader.has_finished:
            self._preloader.give_way(self._is_full())
        if self._staging.directories or self._staging.url_runs:
            self._bring_early()

    def _hand_in_advance(self) -> None:
        """Hand short work to workers that have nothing behind what they run."""
        backlog = self._backlog
        for slot in self._slots.values():
            needs = slot.needs
            if needs is None or slot.batches != 1 or slot.ending or slot.told:
                continue
            if backlog.is_earliest(needs) and 0 < backlog.peek(needs).run.expected <= _SHORT:
                self._hand(slot, needs)

    def _bring_early(self) -> None:
        """Have inputs brought of what begins next: of spans that wait, and of the next element of those that run.

        Where the directory is seen these are URLs, if the workflow has some.
        """
        if self._inputs is None:
            from bough.executor.files.staging.declared_inputs import DeclaredInputs

            self._inputs = DeclaredInputs(self.blobs)
        runs = [(held.run, held.run.start) for held in self._backlog.next(_EARLY * self._width)]
        for slot in self._slots.values():
            number, index = slot.current()
            runs += [(held.run, index + 1 if held.number == number else held.next) for held in slot.held]
        staging = self._staging
        for run, index in runs:
            element, is_far = (run.span, index), run.run in staging.directories
            if (is_far or run.run in staging.url_runs) and index < run.stop and element not in self._looked_at:
                self._looked_at.add(element)
                paths = self._inputs.of(run, index)
                staging.bring_early(run.span, index, paths if is_far else list(filter(is_url, paths)))

    def _forget_early(self, now: float) -> None:
        """What is not here any more needs no inputs."""
        if self._looked_at and now - self._forgot >= _FORGET:
            self._forgot = now
            spans = set(self.spans())
            self._looked_at = {element for element in self._looked_at if element[0] in spans}
            self._staging.keep_early(spans)

    def _is_full(self) -> bool:
        """Whether tasks have all cores."""
        free, total = self._capacity.free, self._capacity.total
        return free.get("cores", 0.0) < min(1.0, total.get("cores", 0.0))

    def _give_devices(self, slot: WorkerSlot, needs: Needs) -> None:
        """Give GPUs and cores to a slot. An idle worker in which a library may still use one of the GPUs is ended."""
        slot.devices = devices = self._devices.take(needs, slot.bound)
        if devices is None or not devices.gpus:
            return
        slot.bound = devices.gpus
        for other in self._slots.values():
            if other is not slot and not other.held and not {*other.bound}.isdisjoint(devices.gpus):
                other.end(Ending(time.monotonic() + _WORKER_GRACE))

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
        bound: WorkerSlot | None = None
        for slot in self._slots.values():
            if not slot.held and not slot.ending and not slot.gone:
                if not slot.bound:
                    return slot
                if needs.gpus == len(slot.bound) and self._devices.has(slot.bound):
                    return slot
                bound = slot
        self.awaits_preloader = False
        if len(self._slots) >= self._most:
            if bound is not None:  # a new one takes its place
                bound.end(Ending(time.monotonic() + _WORKER_GRACE))
            return None
        run = self._backlog.peek(needs).run
        preloader = self._preloader if run.kind == Kind.FUNCTION and run.needs.cores <= 1 else None
        if preloader is not None and preloader.is_worth_waiting(self.blobs.get(run.body, b"")):
            self.awaits_preloader = True
            return None
        self._preload(run)
        return self._fork(preloader)

    def _preload(self, run: RunSpan) -> None:
        """Import once, before the fork, what every worker would import for this."""
        if run.kind == Kind.COMMAND:
            import bough.executor.worker.commands.command_runner  # noqa: F401
        elif b"cloudpickle" in self.blobs.get(run.body, b""):
            import cloudpickle  # noqa: F401

    def _fork(self, preloader: Preloader | None) -> WorkerSlot:
        number = next(n for n in range(len(self._slots) + 1) if n not in self._slots)
        name = f"x{self._welcome.executor}-{number}"
        slot = WorkerSlot(number, name, self._generations.get(number, 0), self._descriptors)
        folders = (self._welcome.output_dir, self._welcome.result_dir, self._staging.sandbox_of(name))
        slot.fork(self.blobs, WorkerSetting(os.getpid(), name, *folders, is_far=self._inline), preloader)
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
        for said in slot.read(to_the_end):
            if isinstance(said, WorkerDone):
                slot.told = False  # if it goes on, then with something that has just begun
                if self._watching is not None:
                    self._watching.forget_hand(said.number)
                if self._staging.directories:
                    self._staging.rests(slot)
                if slot.done(said.number):
                    self._release(slot)
                continue
            if isinstance(said, _REQUESTS):
                self._on_request(slot, said)
                continue
            news = self._completed(slot, said)
            if news is None:
                continue
            found = next((held for held in slot.held if advance(held, news)), None)
            if self._watching is not None and found is not None:
                self._watching.forget_ended(found)
            if found is not None and found.run.batch:
                self._say(found.run, news)
            else:
                self._add_news(found.run if found is not None else None, news)

    def _on_request(self, slot: WorkerSlot, news: StageInputs | StoreOutputs | ElementBegan | ElementEnded) -> None:
        """A worker wants something of an element."""
        match news:
            case StageInputs():
                if news.in_place and self._welcome.embedded:  # a session of its own keeps no contents: they are lost
                    error = f"{news.paths[0]} is not there any more"
                    slot.send([InputsStaged(news.number, news.index, {}, error, lost=news.paths[0])])
                    return
                held = next((held for held in slot.held if held.run.span == news.span), None)
                names = (held.run.record, held.run.run) if held is not None else (0, 0)
                self._staging.bring_inputs(slot, news, *names)
            case StoreOutputs():
                self._staging.outputs.store(slot, news)
            case ElementBegan():
                held = next((held for held in slot.held if held.number == news.number), None)
                if held is not None and held.plans(news.index):
                    self._watchers().begin(slot, held, news.place)
            case ElementEnded():
                self._watchers().drain(slot, news)

    def _add_news(self, run: RunSpan | None, news: News) -> None:
        if self._inline and isinstance(news, WorkSucceeded) and isinstance(news.results, ResultFile):
            if news.results.size > MOST_INLINE:
                self._staging.outputs.keep_result(news, news.results)
                return
            news = inlined(news, news.results)
        self._giving_back.tell(run, news)

    def _completed(self, slot: WorkerSlot, said: WorkerNews) -> WorkerNews | None:
        """What a worker says, with what the executor knows of it; None: there is nothing to say."""
        if isinstance(said, WorkStopped):
            return self._staging.with_bytes(slot, said)
        if type(said) is WorkSucceeded and said.details:
            self._staging.outputs.reported(said)
        return self._of_disk(slot, said) if type(said) is WorkFailed else said

    def _of_disk(self, slot: WorkerSlot, news: WorkFailed) -> WorkFailed:
        """Make space if a task failed for want of it; if space was made while it ran, that was why it failed."""
        failure, detail = news.failure, news.detail
        if failure.cause is Cause.NO_SPACE:
            return replace(news, failure=self._for_want_of_space(slot, news))
        if (
            failure.cause in {Cause.EXIT, Cause.MISSING_OUTPUT}
            and detail is not None
            and detail.staged is not None
            and self._staging.was_full_since(detail.started)
        ):
            why = f"the disk was full while it ran: {failure.message}"
            return replace(news, failure=Failure(Cause.NO_SPACE, why))
        return news

    def _for_want_of_space(self, slot: WorkerSlot, news: WorkFailed) -> Failure:
        """Make space where a task had none; if that cannot help, this host is too small for it."""
        failure, detail = news.failure, news.detail
        if detail is not None and detail.staged is None:
            return failure  # in the submitter's directory, where others make space
        began = detail.started if detail is not None else 0.0
        alone = not any(other.held for other in self._slots.values() if other is not slot)
        shortage = self._staging.make_space(slot, (news.span, news.index), began, alone=alone)
        found = (locate(held, None, news.index) for held in slot.held if held.run.span == news.span)
        task = next((place[1:3] for place in found if place is not None), None)
        why = self._small_disks.why_too_small(task, shortage) if task is not None else ""
        if not why:
            return failure
        return replace(failure, message=f"{why}; {failure.message}", site=True)

    def _release(self, slot: WorkerSlot) -> None:
        if slot.needs is not None:
            self._capacity.give(slot.needs)
            slot.needs = None
            if slot.devices is not None:
                self._devices.give(slot.devices)
                slot.devices = None
        slot.told = False

    def on_worker_dead(self, slot: WorkerSlot) -> None:
        """A worker is dead: say what that means for what it had, once all was judged that it wrote."""
        if slot.sock.fileno() in self._descriptors:
            self._read(slot, to_the_end=True)
        slot.kill_command()
        if self._watching is not None and not self._leaving:
            ends = [_size(slot.stream(self._welcome.output_dir, name)[0]) for name in ("stdout", "stderr")]
            if self._watching.drain_dead(slot, ends, partial(self.on_worker_dead, slot)):
                self._descriptors.remove(slot.pidfd)
                return
        status = self._reaper.status(slot.pid)
        self._staging.forget(slot)
        del self._slots[slot.number]
        self._generations[slot.number] = slot.cells[GENERATION] + 1
        self._release(slot)
        self._reaper.end_orphans(self._slots.values())
        if self._leaving:
            hand, index = slot.current()
            for held in slot.held:
                if held.number == hand and index < held.run.stop and held.next <= index:
                    tell_output(held, index, slot, self._welcome.output_dir, self._say)
                if not self._welcome.embedded:  # what was ended because we leave has not failed
                    self._return(held)
        else:
            self._requeue(account_for(slot, status, self._welcome.output_dir, self._say, self.blobs))
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
        self._giving_back.tick(now)
        self._forget_early(now)
        self._reaper.reap_adopted(self._slots.values())
        if self._watching is not None:
            self._watching.tick(now)

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
        if held.late:
            self._watch_late(slot, held)
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

    def end_with(self, slot: WorkerSlot, held: QueuedSpan, index: int, verdict: Verdict, grace: Seconds) -> bool:
        """End a running element with a verdict: the one way for limits, stops and monitors; False: it ends already."""
        if held.run.kind == Kind.FUNCTION:  # its worker ends with it: the rest is for others
            self._take_back(slot)
        return slot.end_with(held, index, verdict, grace)

    # --- leaving ---

    def leave(self, grace: Seconds) -> None:
        """End everything: of what did not finish only what it wrote is told."""
        if not self._leaving and not self._welcome.embedded:
            self.give_back()
        self._leaving = True
        self._backlog.clear()
        if self._watching is not None:
            self._watching.close()
        if self._preloader is not None:
            self._preloader.close()
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


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
