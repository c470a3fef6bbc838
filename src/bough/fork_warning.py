"""Keeps Python's warning of a fork in a threaded process from users whose only threads are Bough's.

Python 3.12 and later warn after `os.fork()`, and so after the start of a `multiprocessing` pool, if the process has
more than one thread: a child may wait for ever for a lock that another thread held. A session reads in a thread of its
own, and so does a worker that runs functions: users who fork there would be warned of threads that they know nothing
of. Those threads are safe: a forked child makes their locks anew (`api/client/connection`), may not use the session,
and the child of a function never uses its worker's channel.

Rule: a thread whose name does not begin with `bough-` is the user's own, and Python's warning stays.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import cast

OURS = "bough-"  # the names of our threads begin so

_ignored: object = None  # our entry of `warnings.filters`
_registered = False


def keep_quiet() -> None:
    """From now on look before each fork whose threads there are."""
    global _registered
    if not _registered and sys.version_info >= (3, 12):
        _registered = True
        os.register_at_fork(before=_before_fork)


def _before_fork() -> None:
    """Python warns when all hooks have run, so what is set here counts, and stays until the next fork."""
    import warnings

    global _ignored
    current = threading.current_thread()
    others = [thread for thread in threading.enumerate() if thread is not current]
    filters = cast("list[object]", warnings.filters)
    if _ignored in filters:
        filters.remove(_ignored)
    if all(thread.name.startswith(OURS) for thread in others):
        warnings.filterwarnings("ignore", r"This process \(pid=\d+\) is multi-threaded", DeprecationWarning)
        _ignored = filters[0]
