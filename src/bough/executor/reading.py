"""What a task wrote, read for somebody far away: of a running one from its slot's files, of an ended one by path.

Rule: nothing outside of this executor's output folder is ever read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bough.executor.board import ERR, GENERATION, OUT
from bough.executor.streams import stream_path
from bough.wire.work import Fetch, Fetched

if TYPE_CHECKING:
    from bough.executor.slots import Slot

_MOST = 16 << 20  # bytes of one answer


def answer(fetch: Fetch, folder: str, slot: Slot | None) -> Fetched:
    """What was asked for; `slot` is the one that runs the task, if one does."""
    length = max(0, min(fetch.length, _MOST))
    offset = max(0, fetch.offset)
    if fetch.path:
        path = os.path.realpath(fetch.path)
        if not path.startswith(os.path.realpath(folder) + os.sep):
            return Fetched(fetch.request, b"", error="the file is not an output of this executor")
    elif slot is None:
        return Fetched(fetch.request, b"", error="the task does not run here any more")
    else:
        cell, suffix = (ERR, "err") if fetch.stream == "stderr" else (OUT, "out")
        path = stream_path(folder, slot.name, slot.board[GENERATION], suffix)
        offset += slot.board[cell]
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return Fetched(fetch.request, b"", error=f"the output cannot be read: {error.strerror}")
    try:
        return Fetched(fetch.request, os.pread(descriptor, length, offset), more=not fetch.path)
    except OSError as error:
        return Fetched(fetch.request, b"", error=f"the output cannot be read: {error.strerror}")
    finally:
        os.close(descriptor)
