"""When a site may be used: the rule that a server keeps of it, and calendars.

A calendar is a text such as "Mon-Fri 20:00-07:00, Sat, Sun": the times of a week at which a site is there, in local
time. A range that ends before it begins goes on into the next day, and belongs to the day on which it begins. Rule:
nothing here knows the time; who asks says what the clock on the wall shows at an instant, so that summer time is what
that clock makes of it.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bough.errors import BadValue
from bough.model.bounds import NO_NUL, Duration, shown
from bough.model.ids import Seconds

LONGEST_GRACE: Final = 86_400.0  # seconds
LONGEST_CALENDAR: Final = 4_000  # characters

RuleText = Annotated[str, Meta(max_length=65_536, pattern=NO_NUL)]
Grace = Annotated[float, Meta(ge=0, le=LONGEST_GRACE)]


class RuleKind(enum.StrEnum):
    """How it is learnt whether a site may be used."""

    ALWAYS = "always"
    FILE = "file"  # it is away while the file is there, unless that says otherwise
    COMMAND = "command"  # exit code 0: it may be used
    CALENDAR = "calendar"


class SiteRule(msgspec.Struct, frozen=True, array_like=True):
    """How a server learns whether a site may be used, and what its running tasks get when it may not."""

    kind: RuleKind = RuleKind.ALWAYS
    text: RuleText = ""  # the path, the command or the calendar
    grace: Grace = 0.0  # seconds between the news and the end of what runs
    every: Duration = 0.0  # seconds between two looks; 0: as is usual for its kind

    def __str__(self) -> str:
        """As people read it: file /shared/away, grace 60 s."""
        what = f"{self.kind.value} {self.text}".rstrip()
        return f"{what}, grace {self.grace:g} s" if self.grace else what


ALWAYS: Final = SiteRule()

# --- calendars --------------------------------------------------------------------------------------------

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = 24 * 60  # minutes
_WEEK: Final = 7 * _DAY
_ENTRY: Final = re.compile(r"(?:([a-z]{3,9})(?:-([a-z]{3,9}))?)?\s*(?:(\d{1,2}):(\d\d)\s*-\s*(\d{1,2}):(\d\d))?\Z")
_EXAMPLE: Final = "say, for example, 'Mon-Fri 20:00-07:00, Sat, Sun'"

Local = Seconds  # what a clock on the wall shows, as seconds since it showed 1970-01-01 0:00, a Thursday
WallClock = Callable[[Seconds], Local]  # what it shows at an instant


class Calendar:
    """The times of a week at which a site is there; made by `read_calendar`."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Minutes of the week, from Monday 0:00; a range may go on into the next week."""
        open_minutes: list[tuple[int, int]] = []
        for start, stop in ranges:
            open_minutes += [(start, min(stop, _WEEK))] + ([(0, stop - _WEEK)] if stop > _WEEK else [])
        edges: list[int] = []  # openings and closings by turns
        for start, stop in sorted(open_minutes):
            if edges and start <= edges[-1]:
                edges[-1] = max(edges[-1], stop)
            else:
                edges += [start, stop]
        self._edges = edges

    def is_open(self, when: Local) -> bool:
        """Whether the site is there at a local time."""
        return bisect_right(self._edges, _minute_of(when)) % 2 == 1

    def next_change(self, now: Seconds, clock: WallClock) -> Seconds | None:
        """The next instant at which it is there if it is not, or the reverse; None: that never changes."""
        before = self.is_open(clock(now))
        if not self._edges or self._edges == [0, _WEEK]:
            return None
        at = now - now % 60
        while True:
            later = at + 60 * self._minutes_left(clock(at))
            if _offset(later, clock) != _offset(at, clock):  # the clock is set meanwhile
                later = _when_set(at, later, clock)
            if self.is_open(clock(later)) != before:
                return later
            at = later

    def _minutes_left(self, when: Local) -> int:
        """Minutes that the clock goes on from here to the next edge."""
        minute = _minute_of(when)
        position = bisect_right(self._edges, minute)
        after = self._edges[position] if position < len(self._edges) else self._edges[0] + _WEEK
        return after - minute


def read_calendar(text: str) -> Calendar:
    """A calendar from its text; `BadValue` says which entry of it cannot be read."""
    if len(text) > LONGEST_CALENDAR:
        raise BadValue(f"the calendar has {len(text)} characters; at most {LONGEST_CALENDAR} are read")
    ranges: list[tuple[int, int]] = []
    for entry in text.split(","):
        ranges += _read_entry(entry.strip())
    return Calendar(ranges)


def _read_entry(entry: str) -> list[tuple[int, int]]:
    found = _ENTRY.match(entry.lower()) if entry.isascii() else None
    if found is None or not entry:
        raise BadValue(f"the calendar's entry {shown(entry)} cannot be read; {_EXAMPLE}")
    first, last, *times = found.groups()
    assert len(times) == 4  # as the pattern has them
    if first is None:
        days = list(range(7))
    else:
        begin, end = _day(first, entry), _day(last or first, entry)
        days = [day % 7 for day in range(begin, end + 1 if begin <= end else end + 8)]
    start, stop = (
        (0, _DAY) if times[0] is None else (_minutes(times[0], times[1], entry), _minutes(times[2], times[3], entry))
    )
    if start in {_DAY, stop}:
        raise BadValue(f"the calendar's entry {shown(entry)} has no time between its begin and its end; {_EXAMPLE}")
    if stop < start:
        stop += _DAY
    return [(day * _DAY + start, day * _DAY + stop) for day in days]


def _day(word: str, entry: str) -> int:
    names = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    for number, (short, name) in enumerate(zip(_DAYS, names, strict=True)):
        if word in {short, name}:
            return number
    raise BadValue(f"the calendar's entry {shown(entry)} names no day: {word}; {_EXAMPLE}")


def _minutes(hours: str, minutes: str, entry: str) -> int:
    total = 60 * int(hours) + int(minutes)
    if int(minutes) > 59 or total > _DAY:
        raise BadValue(f"the calendar's entry {shown(entry)} has no time of day: {hours}:{minutes}; {_EXAMPLE}")
    return total


def _minute_of(when: Local) -> int:
    """The minute of the week."""
    return (int(when // 60) + 3 * _DAY) % _WEEK


def _offset(at: Seconds, clock: WallClock) -> float:
    """How far the clock on the wall is ahead of the world's, in seconds."""
    return clock(at) - at


def _when_set(low: Seconds, high: Seconds, clock: WallClock) -> Seconds:
    """The minute between two instants at which the clock was set."""
    before = _offset(low, clock)
    while high - low > 60:
        middle = low + (high - low) // 120 * 60
        if _offset(middle, clock) == before:
            low = middle
        else:
            high = middle
    return high
