"""Something that takes long, done in a thread, while its worker hears whether it is still wanted.

Rule: what is not wanted any more is left alone: its thread ends by itself, and nothing waits for it.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

from bough.executor.worker.worker_channel import WorkerInbox


def do_beside(inbox: WorkerInbox, number: int, index: int, work: Callable[[], object]) -> bool:
    """Do it and raise what it raises; False when the element was stopped meanwhile."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    errors: list[BaseException] = []

    def do() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 -- raised again below
            errors.append(error)
        finally:
            os.close(writing)

    threading.Thread(target=do, name="beside", daemon=True).start()
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    poll.register(inbox.sock, select.POLLIN)
    try:
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if reading in ready:
                break
            inbox.read()
            if inbox.quit is not None or inbox.stopped_by(number, index):
                return False
    finally:
        os.close(reading)
    if errors:
        raise errors[0]
    return True
