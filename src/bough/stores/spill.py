"""Reports that executors could not deliver: one file each in `spill/`, frames of `Report` one after the other.

The name is the executor's number, `3.spill`. Rule: a torn tail (the executor was killed while
writing) costs that report only.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from bough.errors import ProtocolError
from bough.model.facts import WorkNews
from bough.stores.faults import reported
from bough.wire.framing import Frames
from bough.wire.work import FromExecutor, Report

DIRECTORY: Final = "spill"
SUFFIX: Final = ".spill"
_HEAD: Final = 4  # bytes of a frame's length


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
    frames: Frames[FromExecutor] = Frames(FromExecutor)
    at = 0
    while at + _HEAD <= len(data):
        end = at + _HEAD + int.from_bytes(data[at : at + _HEAD], "big")
        if end > len(data):
            break
        try:
            reports += [message for message in frames.feed(data[at:end]) if isinstance(message, Report)]
        except ProtocolError:
            break
        at = end
    return reports
