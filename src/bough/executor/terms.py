"""How long an executor stays, and where it keeps its files: what it was told when it was started.

Rule: light to import; what it holds never changes.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import NamedTuple

from bough.model.ids import ExecutorId
from bough.model.resources import Needs
from bough.wire.messages import VERSION
from bough.wire.work import Appointed, ExecutorHello

_MARGIN = 60.0  # seconds before its end in which an executor begins nothing
_ENDING = 6.0  # seconds before its end in which it ends what still runs


class Terms(NamedTuple):
    """The terms of one executor."""

    until: float = 0.0  # when it must be gone, 0: never
    started: float = 0.0  # when the clock for `until` began
    idle: float = 0.0  # seconds without work after which it leaves, 0: never
    give_up: float = 86400.0  # seconds without a server after which it leaves
    work: str = ""  # its own folder, empty: a usual place

    @property
    def leaves_at(self) -> float:
        """From when on it takes nothing more."""
        return self.until - min(_MARGIN, 0.1 * (self.until - self.started))

    @property
    def ends_at(self) -> float:
        """From when on it ends what still runs."""
        return self.until - min(_ENDING, 0.05 * (self.until - self.started))


def make_hello(site: str, capacity: Needs, terms: Terms, appointed: Appointed | None) -> ExecutorHello:
    """What an executor says first; one that was appointed before says as what, and by whom."""
    return ExecutorHello(
        VERSION,
        site,
        socket.gethostname(),
        os.getpid(),
        capacity,
        f"{sys.version_info[0]}.{sys.version_info[1]}",
        appointed.executor if appointed else ExecutorId(0),
        terms.until,
        appointed.marker if appointed else "",
        together=True,
    )


def shares_store(appointed: Appointed) -> bool:
    """Whether the server's store is seen here: its token file is."""
    if appointed.embedded or not appointed.store_token:
        return appointed.embedded
    try:
        with open(os.path.join(appointed.output_dir, "..", "token"), encoding="ascii") as file:
            return file.read(200).strip() == appointed.store_token
    except (OSError, UnicodeDecodeError):
        return False
