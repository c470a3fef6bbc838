"""Named queues: what a user says of one.

Rule: bounds are in the types, so that a definition from a command, a message or a journal is held against the same.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bough.errors import BadValue
from bough.model.bounds import Duration, SiteName

QueueCores = Annotated[float, Meta(ge=0, le=1e9)]
QueueShare = Annotated[float, Meta(ge=0.001, le=1000)]
MOST_QUEUES: Final = 1000  # of a server: every choice may look at each of them


class QueueSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The limits of a queue, and its share."""

    max_time: Duration = 0.0  # seconds after which each of its tasks is ended; 0: never
    min_cores: QueueCores = 0.0  # that others leave to it while it has something ready
    max_cores: QueueCores = 0.0  # that its tasks hold at once at the most; 0: any number
    sites: Annotated[tuple[SiteName, ...], Meta(max_length=100)] = ()  # where its tasks run; empty: anywhere
    share: QueueShare = 1.0  # of the cores, beside those of other queues


NO_QUEUE_LIMITS: Final = QueueSpec()


def check_queue(spec: QueueSpec) -> QueueSpec:
    """Refuse limits that contradict each other."""
    if spec.max_cores and spec.min_cores > spec.max_cores:
        raise BadValue(f"min-cores is {spec.min_cores:g}; it must not be above max-cores, which is {spec.max_cores:g}")
    return spec


def describe_queue(spec: QueueSpec) -> str:
    """A queue's limits as people read them: up to 8 cores, at most 7200 s each, at alpha, share 2."""
    words = []
    if spec.min_cores:
        words.append(f"at least {spec.min_cores:g} cores")
    if spec.max_cores:
        words.append(f"up to {spec.max_cores:g} cores")
    if spec.max_time:
        words.append(f"at most {spec.max_time:g} s a task")
    if spec.sites:
        words.append(f"at {', '.join(spec.sites)}")
    return ", ".join([*words, f"share {spec.share:g}"])
