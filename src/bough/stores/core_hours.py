"""The core-hours of sites over time: a row a minute, later a row an hour, later a row a day.

The core knows what each site has used in all. What has come since it was last noted is added to the row of the minute
that goes on. Rule: a core-second is counted once, also when a server is killed, because what was noted is kept with
what it was noted of; rows are thinned without changing a sum, and there is a bound on all of them. The journal is not
needed for them, so they outlive the workflows that they come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from bough.model.ids import Seconds
from bough.stores.database import Database

MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86400
THINNED: Final = ((MINUTE, HOUR, 2 * DAY), (HOUR, DAY, 90 * DAY))  # rows of what become rows of what, after how long
OLDEST: Final = 3650 * DAY  # seconds after which rows are dropped
MOST_ROWS: Final = 500_000
MOST_TOLD: Final = 20_000  # rows in one answer, the last ones
_NAMES: Final = ("core_seconds", "startup", "used", "wasted")
_SUMS: Final = ", ".join(f"{name} = site_usage.{name} + excluded.{name}" for name in _NAMES)
_ADD: Final = f"""
INSERT INTO site_usage (site, period, start, core_seconds, startup, used, wasted) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (site, period, start) DO UPDATE SET {_SUMS}"""
_COUNT: Final = f"""
INSERT INTO usage_counted (site, core_seconds, startup, used, wasted) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (site) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _NAMES)}"""
_THIN: Final = f"""
INSERT INTO site_usage (site, period, start, core_seconds, startup, used, wasted)
SELECT site, ?, start - start % ?, {", ".join(f"sum({name})" for name in _NAMES)} FROM site_usage
WHERE period = ? AND start < ? GROUP BY 1, 3
ON CONFLICT (site, period, start) DO UPDATE SET {_SUMS}"""
_HISTORY: Final = """
SELECT site, period, start, core_seconds, startup, used, wasted FROM site_usage
WHERE start + period > ? ORDER BY start DESC, site LIMIT ?"""
_BEYOND: Final = "SELECT start FROM site_usage ORDER BY start DESC LIMIT 1 OFFSET ?"

Amounts = tuple[float, float, float, float]  # core-seconds in all, until the first task, used, wasted


class SitePeriod(msgspec.Struct, frozen=True):
    """What the executors of a site did in a minute, an hour or a day, in core-seconds."""

    site: str
    period: int  # seconds: `MINUTE`, `HOUR` or `DAY`
    start: int  # since the epoch
    core_seconds: float
    startup: float
    used: float
    wasted: float


class CoreHours:
    """See the module. Every method is to be called in a transaction, or outside of one if it only reads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._thinned: Seconds = 0.0

    def note(self, now: Seconds, totals: Mapping[str, Amounts]) -> None:
        """What each site has used in all by now; a site that is not named is not known any more."""
        execute = self._database.execute
        counted = {row[0]: row[1:] for row in execute("SELECT * FROM usage_counted").fetchall()}
        minute = int(now) - int(now) % MINUTE
        for site in counted.keys() - totals.keys():
            execute("DELETE FROM usage_counted WHERE site = ?", (site,))
        for site, amounts in totals.items():
            before = counted.get(site, (0.0,) * 4)
            if amounts[0] < before[0] - 1.0:  # it was removed and is there anew
                before = (0.0,) * 4
            more = [max(0.0, new - old) for new, old in zip(amounts, before, strict=True)]
            if any(more):
                execute(_ADD, (site, MINUTE, minute, *more))
                execute(_COUNT, (site, *(old + new for old, new in zip(before, more, strict=True))))
        if now - self._thinned >= HOUR:
            self._thin(now)
            self._thinned = now

    def _thin(self, now: Seconds) -> None:
        execute = self._database.execute
        for fine, coarse, age in THINNED:
            limit = int(now - age) // coarse * coarse
            execute(_THIN, (coarse, coarse, fine, limit))
            execute("DELETE FROM site_usage WHERE period = ? AND start < ?", (fine, limit))
        execute("DELETE FROM site_usage WHERE start < ?", (int(now - OLDEST),))
        beyond = execute(_BEYOND, (MOST_ROWS,)).fetchone()
        if beyond is not None:
            execute("DELETE FROM site_usage WHERE start <= ?", (beyond[0],))

    def history(self, since: Seconds) -> list[SitePeriod]:
        """The rows of what ended after an instant, oldest first."""
        rows = self._database.execute(_HISTORY, (int(since), MOST_TOLD)).fetchall()
        return [SitePeriod(*row) for row in reversed(rows)]
