"""A site: the executors that have its name, its rule, whether it is away, and its definition and pilots if it has one.

Rule: a record changes only through `core.sites` and `core.pilots`.
"""

from __future__ import annotations

from bough.core.records.executor_record import ExecutorRecord
from bough.core.records.pilot_record import PilotRecord
from bough.model.availability import ALWAYS
from bough.model.events.facts import ExecutorJoined
from bough.model.ids import Seconds
from bough.model.site_specs import SiteSpec


class SiteRecord:
    """See the module."""

    __slots__ = (
        "away",
        "by_hand",
        "deadline",
        "executors",
        "failures",
        "name",
        "offers",
        "pilots",
        "reason",
        "rests_until",
        "rule",
        "since",
        "spec",
        "trouble",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.rule = ALWAYS
        self.away = False
        self.reason = ""  # why it is away
        self.by_hand = False  # a user said so
        self.since: Seconds = 0.0  # when it left, or came back; 0: it was always there
        self.deadline: Seconds = 0.0  # when what runs there must have ended
        self.executors: dict[int, ExecutorRecord] = {}
        self.spec: SiteSpec | None = None  # how pilots are started there
        self.pilots: dict[int, PilotRecord] = {}
        self.offers: ExecutorJoined | None = None  # the last executor that a pilot brought: others will be like it
        self.failures = 0  # pilots in a row that failed
        self.rests_until: Seconds = 0.0  # because of these
        self.trouble = ""  # what the last one said
