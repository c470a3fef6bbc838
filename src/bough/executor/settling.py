"""What the death of a worker means for what it had been handed.

News that were told stand. The element that ran when the worker died by itself is lost, and so are those
before it whose results died with it. When we ended the worker for one element, only that one pays: the others
are given back. Rule: every element of every span is settled once, stopped ones by silence.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from bough.executor.backlog import Held
from bough.executor.slots import Slot
from bough.model.facts import ElementFailed, SpanReturned
from bough.model.outcomes import Cause, Detail, Failure
from bough.wire.reports import News
from bough.wire.work import Run

Say = Callable[[Run, News], None]
_BIRTHS = 3  # workers that may die with a span before they begin it


def settle(slot: Slot, status: int, output_dir: str, say: Say) -> list[Held]:
    """Report what became of the spans of a dead worker; return those it never began."""
    hand, index = slot.current()
    unbegun: list[Held] = []
    for held in slot.held:
        if held.number > hand:
            unbegun.append(held)
            continue
        reached = min(index, held.run.stop) if held.number == hand else held.run.stop
        _settle_finished(held, reached, slot, say)
        if reached < held.run.stop and held.next <= reached:
            _settle_running(held, reached, slot, say, (status, output_dir))
            held.next = reached + 1
        _give_back(held, max(held.next, reached), held.run.stop, say)
    if unbegun and unbegun[0] is slot.held[0] and not slot.ending:
        unbegun[0].deaths += 1
        if unbegun[0].deaths >= _BIRTHS:
            held = unbegun.pop(0)
            for at in range(held.run.start, held.run.stop):
                _lose(held, at, f"workers die at their start ({_how(status)})", say)
    return unbegun


def _settle_finished(held: Held, reached: int, slot: Slot, say: Say) -> None:
    """Elements that were run and not told of: their results died with the worker."""
    if slot.ending:
        _give_back(held, held.next, reached, say)
    else:
        for low, high in held.kept(held.next, reached):
            for at in range(low, high):
                _lose(held, at, "the worker process died before its result was told", say)
    held.next = max(held.next, reached)


def _settle_running(held: Held, index: int, slot: Slot, say: Say, end: tuple[int, str]) -> None:
    """The element that was running."""
    if held.is_stopped(index):
        return
    status, output_dir = end
    ending = slot.ending
    detail = slot.last_output(output_dir, index)
    if ending is None:
        _lose(held, index, f"the worker process died ({_how(status)}) while running it", say, detail)
    elif ending.failure and (ending.hand, ending.element) == (held.number, index):
        say(held.run, ElementFailed(held.run.span, index, ending.failure, detail))
    else:
        _give_back(held, index, index + 1, say)


def _lose(held: Held, index: int, message: str, say: Say, detail: Detail | None = None) -> None:
    say(held.run, ElementFailed(held.run.span, index, Failure(Cause.LOST, message), detail))


def _give_back(held: Held, start: int, stop: int, say: Say) -> None:
    for low, high in held.kept(start, stop):
        say(held.run, SpanReturned(held.run.span, low, high))


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit code {code}"
