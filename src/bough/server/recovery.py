"""After a crash of an embedded server: end what its run left, take in what executors could not report, close the run.

Executors spill reports that they cannot deliver to files in `spill/`, named by their numbers, frames of `Report` one
after the other. The crashed run is replayed into a machine of its own, so that late reports are judged as they would
have been. Rule: one turn holds all of a recovery, so that one that is cut short leaves nothing or everything; spill
files are deleted only after it is written, and one that was torn by a kill costs its last report only.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Final

import msgspec

from bough import logs
from bough.errors import ProtocolError, StoreFailed
from bough.model.events import facts
from bough.model.events.arriving import News
from bough.model.events.facts import RunClosed
from bough.model.events.news import (
    CallsEnded,
    WorkFailed,
    WorkNews,
    WorkReturned,
    WorkStarted,
    WorkSucceeded,
    with_executor,
)
from bough.model.ids import Seconds
from bough.policy.interface import Policies
from bough.server import cleanup
from bough.stores.maintenance.replay import replay_run
from bough.stores.store import LastRun, Store
from bough.stores.store_errors import reported
from bough.wire.executor_messages import FromExecutor, Report
from bough.wire.framing import Frames

DIRECTORY: Final = "spill"
SUFFIX: Final = ".spill"
_HEAD: Final = 4  # bytes of a frame's length
PATIENCE = 3.0  # seconds an executor of the dead run gets to end its tasks and spill


def read_spills(directory: Path | str) -> list[tuple[int, list[WorkNews]]]:
    """The news of every executor that spilled, each in the order of its reports, without repetitions."""
    found: dict[int, dict[int, list[WorkNews]]] = {}
    with reported(str(directory)):
        for path in _files(directory):
            number = re.search(r"\d+", path.stem)
            reports = found.setdefault(int(number[0]) if number else 0, {})
            for report in _reports(path.read_bytes()):
                reports.setdefault(report.number, report.news)
    return [
        (executor, [news for number in sorted(reports) for news in reports[number]])
        for executor, reports in sorted(found.items())
    ]


def clear_spills(directory: Path | str) -> None:
    """Forget what was spilled, once it is in the journal."""
    with reported(str(directory)):
        for path in _files(directory):
            path.unlink(missing_ok=True)


def _files(directory: Path | str) -> list[Path]:
    """Spill files in a store's directory, or in its `spill` directory itself."""
    folder = Path(directory)
    inner = folder / DIRECTORY
    return sorted((inner if inner.is_dir() else folder).glob(f"*{SUFFIX}"))


def _reports(data: bytes) -> list[Report]:
    reports: list[Report] = []
    at = 0
    while at + _HEAD <= len(data):
        end = at + _HEAD + int.from_bytes(data[at : at + _HEAD], "big")
        if end > len(data):
            break
        try:
            reports += _read(data[at:end])
        except ProtocolError:
            break
        at = end
    return reports


def _read(frame: bytes) -> list[Report]:
    """The reports of a frame, also of one that an executor of the version before left."""
    try:
        frames: Frames[FromExecutor] = Frames(FromExecutor)
        return [message for message in frames.feed(frame) if isinstance(message, Report)]
    except ProtocolError:
        former: Frames[_FormerReport] = Frames(_FormerReport)
        return [Report(report.number, [_as_news(fact) for fact in report.news]) for report in former.feed(frame)]


_FormerNews = facts.SpanStarted | facts.SpanEnded | CallsEnded | facts.ElementFailed | facts.SpanReturned


class _FormerReport(msgspec.Struct, frozen=True, array_like=True, tag="rep"):
    """A report until version 2 of the wire: its news had the fields that the core fills in."""

    number: int
    news: list[_FormerNews]


def _as_news(fact: _FormerNews) -> WorkNews:
    match fact:
        case facts.SpanStarted():
            return WorkStarted(fact.span, fact.start, fact.stop, fact.host)
        case facts.SpanEnded():
            ended = (fact.span, fact.start, fact.stop, fact.seconds)
            return WorkSucceeded(*ended, fact.results, fact.details, fact.host)
        case facts.ElementFailed():
            return WorkFailed(fact.span, fact.index, fact.failure, fact.detail, fact.host)
        case facts.SpanReturned():
            return WorkReturned(fact.span, fact.start, fact.stop)
    return fact


def recover(store: Store, last: LastRun, policies: Policies, *, spill_dir: str, mark: str, now: Seconds) -> None:
    """Close a run that did not close itself. Call it with the store's lock held."""
    ended = cleanup.end(mark, patience=PATIENCE)
    closed = RunClosed(last.run, "crashed")
    news: list[News] = []
    for executor, spilled in read_spills(spill_dir):
        news += [with_executor(one, executor) for one in spilled]
    try:
        turn = replay_run(store, last.run, 0, policies).turn(now, [*news, closed])
    except StoreFailed:
        raise
    except Exception:  # noqa: BLE001 -- our bug, but it must not lock people out of their store for ever
        said = f"run {last.run} had crashed and cannot be replayed; {len(news)} late reports stay in {spill_dir}"
        logs.error("run-not-replayed", f"{said}\n{traceback.format_exc()}")
        store.append(last.last_turn + 1, now, [closed])
        return
    store.append(turn.number, now, turn.facts)
    store.sync()
    clear_spills(spill_dir)
    logs.warning(
        "run-recovered",
        f"run {last.run} had crashed: {len(ended)} processes of it ended, {len(news)} late reports taken in",
    )
