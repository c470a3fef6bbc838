"""Hand-outs of like tasks: within an executor a span of n elements, to the server n spans of one task each.

Rule: only here is it known that an element of such a span has a span number of its own; what is said to the server is
translated on its way out, what the server says of one of them on its way in.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from bough.executor.backlog import Held
from bough.model.facts import CallsEnded, ElementFailed, SpanEnded, SpanReturned, SpanStarted
from bough.model.ids import RecordId, SpanId
from bough.wire.reports import News
from bough.wire.work import Fetch, Run, Stop


def as_span(run: Run) -> Run:
    """A hand-out of like tasks as one span."""
    return replace(run, stop=1 + len(run.along)) if run.along else run


def apart(news: News, run: Run) -> Iterator[News]:
    """News of a hand-out of like tasks, in the server's words."""
    match news:
        case SpanReturned() | SpanStarted():
            for index in range(news.start, min(news.stop, 1 + len(run.along))):
                yield replace(news, span=SpanId(run.span + index), start=0, stop=1)
        case ElementFailed():
            detail = replace(news.detail, index=0) if news.detail is not None else None
            yield replace(news, span=SpanId(run.span + news.index), index=0, detail=detail)
        case _:
            yield news


def advance(held: Held, news: SpanEnded | CallsEnded | ElementFailed | SpanReturned) -> bool:
    """Whether news are of a span; if so, note how far it has come."""
    at = news.span - held.run.span
    if not 0 <= at <= len(held.run.along) or held.next >= held.run.stop:
        return False
    if isinstance(news, ElementFailed):
        held.next = at + news.index + 1
    elif isinstance(news, CallsEnded):
        held.next = news.start + len(news.results)
    else:
        held.next = at + news.stop
    return True


def spans_of(held: Held) -> list[SpanId]:
    """The spans, as the server knows them, of what is left of one."""
    if not held.run.along:
        return [held.run.span]
    left = range(held.next, held.run.stop)
    return [SpanId(held.run.span + index) for index in left if not held.is_stopped(index)]


def within(order: Stop, run: Run) -> Stop | None:
    """What an order to stop means for a span; None if it concerns another."""
    at = order.span - run.span
    if not 0 <= at <= len(run.along):
        return None
    return replace(order, span=run.span, start=at, stop=at + 1) if run.along else order


def is_asked_for(run: Run, index: int, fetch: Fetch) -> bool:
    """Whether an element is the task of which somebody wants to read the output."""
    if not run.along:
        return run.record == fetch.record and index == fetch.index
    record = run.record if index == 0 else run.along[index - 1][0] if index <= len(run.along) else None
    return record == fetch.record


def whereabouts(held: Held, task: tuple[int, int, int] | None, at: int) -> tuple[SpanId, RecordId, int, int] | None:
    """Span, record, index and attempt of a task by its name, or of the element that is run, `at`; None: not there."""
    run = held.run
    if task is not None:
        record, index, attempt = task
        if attempt != run.attempt or record not in records_of(run):
            return None
        at = records_of(run).index(record) if run.along else index
    if not run.start <= at < run.stop or held.is_stopped(at):
        return None
    if run.along:
        return SpanId(run.span + at), RecordId(records_of(run)[at]), 0, run.attempt
    return run.span, run.record, at, run.attempt


def records_of(run: Run) -> list[int]:
    """The records of a hand-out."""
    return [run.record, *(record for record, _ in run.along)]
