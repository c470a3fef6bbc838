"""What the death of a worker means: for each element that it had, and for the processes that it leaves.

When a worker dies by itself, the function that ran has failed; a command that ran is lost, and so are elements before
it whose results died with it. When the executor ended the worker for one element, only that one pays: the others are
given back.

Rule: each element of a dead worker is accounted for once: by news of its end, by a return, or by being handed out
again because the worker never began its span.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection

from msgspec.structs import replace

from bough.executor.host.processes import children, kill_group
from bough.executor.slots.backlog import QueuedSpan
from bough.executor.slots.slot import WorkerSlot
from bough.executor.worker_protocol import GROUP
from bough.model.events.news import WorkFailed, WorkReturned, WorkStopped, WorkSucceeded
from bough.model.ids import BlobId, SpanId
from bough.model.outcomes import Cause, Detail, EndedEarly, Failure
from bough.model.tasks import Kind
from bough.wire.executor_messages import RunSpan
from bough.wire.framing import News

Say = Callable[[RunSpan, News], None]

_BIRTHS = 3  # workers that may die with a span before they begin it


def account_for(
    slot: WorkerSlot, status: int, output_dir: str, say: Say, blobs: dict[BlobId, bytes]
) -> list[QueuedSpan]:
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
            _account_for_running(held, reached, slot, say, (status, output_dir, blobs))
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


def _account_for_running(
    held: QueuedSpan, index: int, slot: WorkerSlot, say: Say, end: tuple[int, str, dict[BlobId, bytes]]
) -> None:
    """The element that was running."""
    status, output_dir, blobs = end
    if held.is_stopped(index):
        tell_output(held, index, slot, output_dir, say)
        return
    ending = slot.ending
    detail = slot.last_output(output_dir, index)
    if ending is None and held.run.kind == Kind.FUNCTION:
        say(held.run, WorkFailed(held.run.span, index, _with_parameters(_died(status), held, index, blobs), detail))
    elif ending is None:
        _lose(held, index, f"the worker process died ({_how(status)}) while running it", say, detail)
    elif ending.element != (held.number, index) or ending.verdict is None:
        _give_back(held, index, index + 1, say)
    elif isinstance(ending.verdict, EndedEarly):
        _tell_early(held, index, ending.verdict, detail, time.monotonic() - slot.seen_at, say)
    else:
        failure = _with_parameters(ending.verdict, held, index, blobs)
        say(held.run, WorkFailed(held.run.span, index, failure, detail))


def _tell_early(  # noqa: PLR0917
    held: QueuedSpan, index: int, early: EndedEarly, detail: Detail | None, seconds: float, say: Say
) -> None:
    """A function that was ended early as a success: its value says so."""
    from bough.executor.worker.serialisation import pack

    span, at = (SpanId(held.run.span + index), 0) if held.run.batch else (held.run.span, index)
    detail = replace(detail or Detail(at), index=at, ended_by=early.ended_by)
    say(held.run, WorkSucceeded(span, at, at + 1, max(0.0, seconds), pack([early]), (detail,)))


def _with_parameters(failure: Failure, held: QueuedSpan, index: int, blobs: dict[BlobId, bytes]) -> Failure:
    """The failure of a function with what it was called with, which its worker cannot say any more."""
    if held.run.kind != Kind.FUNCTION:
        return failure
    from bough.executor.worker.dead_calls import parameters_of  # late: most workers live

    return replace(failure, parameters=parameters_of(held.run, index, blobs))


def tell_output(held: QueuedSpan, index: int, slot: WorkerSlot, output_dir: str, say: Say) -> None:
    """What an element had written that was ended and has not failed."""
    detail = slot.last_output(output_dir, index)
    if detail is not None:
        say(held.run, WorkStopped(held.run.span, held.run.record, index, held.run.attempt, detail))


def _died(status: int) -> Failure:
    """A function ended the process that ran it."""
    code = os.waitstatus_to_exitcode(status)
    message = f"the worker process died ({_how(status)}) while running it"
    if code == -signal.SIGKILL:
        message += "; the system does so when memory runs out"
    return Failure(Cause.DIED, message, exit_code=code if code >= 0 else None, signal=-code if code < 0 else None)


def _lose(held: QueuedSpan, index: int, message: str, say: Say, detail: Detail | None = None) -> None:
    say(held.run, WorkFailed(held.run.span, index, Failure(Cause.LOST, message), detail))


def _give_back(held: QueuedSpan, start: int, stop: int, say: Say) -> None:
    for low, high in held.kept(start, stop):
        say(held.run, WorkReturned(held.run.span, low, high))


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


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
