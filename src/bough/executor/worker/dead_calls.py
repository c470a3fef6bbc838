"""What a function was called with whose worker is gone: it died under the call, or was ended for a limit.

The executor itself loads nothing of the user's. A child process, which lives for a moment only, makes the arguments
again and says them as a line. Rule: whatever that child does, the executor goes on after a second at most; where
children were too slow twice, none is started again. Big arguments are not loaded for it.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Final

from bough import fork_warning
from bough.executor.host.processes import die_with_parent
from bough.executor.worker.call_text import MOST, show_call
from bough.executor.worker.serialisation import Blobs, arguments, paths_of
from bough.model.ids import BlobId
from bough.wire.executor_messages import RunSpan

_PATIENCE: Final = 1.0  # seconds for a child
_MOST_BYTES: Final = 1 << 20  # of arguments
_PREPARED: Final = b"prepared_function"  # in a body that runs an initializer when it is loaded
_slow = [0]  # children that took too long


def parameters_of(run: RunSpan, index: int, blobs: dict[BlobId, bytes]) -> str:
    """The parameters of one element of a function's span, as a line; empty when they cannot be told."""
    size = len(run.payload) + sum(len(page.data) for page in run.pages) + len(blobs.get(run.table, b""))
    if _slow[0] > 1 or size > _MOST_BYTES or paths_of(run) or run.after_span:
        return ""
    fork_warning.keep_quiet()
    try:
        reading, writing = os.pipe2(os.O_CLOEXEC)
    except OSError:  # descriptors are used up
        return ""
    try:
        pid = os.fork()
    except OSError:  # so are processes
        os.close(reading)
        os.close(writing)
        return ""
    if pid == 0:
        _tell(writing, run, index, blobs)
    os.close(writing)
    try:
        return _read(reading)
    finally:
        os.close(reading)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _tell(writing: int, run: RunSpan, index: int, blobs: dict[BlobId, bytes]) -> None:
    """In the child: write the line, and end."""
    try:
        die_with_parent(signal.SIGKILL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        os.write(writing, _text(run, index, blobs).encode())
    finally:
        os._exit(0)


def _text(run: RunSpan, index: int, blobs: dict[BlobId, bytes]) -> str:
    made = Blobs(blobs)
    function = None if _PREPARED in blobs.get(run.body, _PREPARED) else made.function(run.body)
    if not run.is_array:
        return show_call(function, *arguments(run)[index - run.start])
    item = made.items(run)[index - run.start]
    return show_call(function, item if run.star else (item,), {})


def _read(reading: int) -> str:
    until = time.monotonic() + _PATIENCE
    poll = select.poll()  # `select` knows no descriptor above 1,023, and an executor of many cores has more
    poll.register(reading, select.POLLIN)
    data = b""
    while True:
        left = until - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            _slow[0] += 1
            return ""
        piece = os.read(reading, 1 << 16)
        data += piece
        if not piece or len(data) > 8 * MOST:
            return data.decode(errors="replace")[: 2 * MOST]
