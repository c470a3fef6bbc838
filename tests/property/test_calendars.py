"""Calendars against a model that looks at every minute: ranges over midnight, days, several entries, summer time."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.errors import BadValue
from bough.model.sites.availability import read_calendar

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
ZONES = [ZoneInfo(name) for name in ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")]
TIMES = st.integers(0, 24 * 4 - 1).map(lambda quarter: quarter * 15)
LONG = "x" * 5000
Entry = tuple[int, int, int, int]  # first and last day, begin and end in minutes; begin -1: all day

entries = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 6), st.sampled_from([-1, 0, 120, 150, 180]) | TIMES, TIMES).filter(
        lambda entry: entry[2] != entry[3]
    ),
    min_size=1,
    max_size=4,
)
# around both changes of the clocks in 2026, and anywhere
instants = st.sampled_from([1774746000, 1792890000, 1772953200, 1793512800, 1775312940]).flatmap(
    lambda around: st.integers(around - 9000, around + 9000)
) | st.integers(1_700_000_000, 1_900_000_000)


def written(found: list[Entry]) -> str:
    texts = []
    for first, last, begin, end in found:
        days = DAYS[first] if first == last else f"{DAYS[first]}-{DAYS[last]}"
        hours = "" if begin < 0 else f" {begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02}"
        texts.append(days + hours)
    return ", ".join(texts)


def is_open(found: list[Entry], when: dt.datetime) -> bool:
    """The model: an entry counts for the day on which it begins."""
    for ago in (0, 1):
        day = (when.weekday() - ago) % 7
        minute = when.hour * 60 + when.minute + 1440 * ago
        for first, last, begin, end in found:
            named = first <= day <= last if first <= last else day >= first or day <= last
            start, stop = (0, 1440) if begin < 0 else (begin, end if begin < end else end + 1440)
            if named and start <= minute < stop:
                return True
    return False


def shows(zone: ZoneInfo, at: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(at, zone)


def wall(zone: ZoneInfo, at: float) -> float:
    return shows(zone, at).replace(tzinfo=dt.UTC).timestamp()


@given(found=entries, zone=st.sampled_from(ZONES), at=instants)
def test_a_site_is_there_when_an_entry_says_so(found: list[Entry], zone: ZoneInfo, at: int) -> None:
    assert read_calendar(written(found)).is_open(wall(zone, at)) == is_open(found, shows(zone, at))


@settings(max_examples=60, deadline=None)
@given(found=entries, zone=st.sampled_from(ZONES), at=instants)
def test_the_next_change_is_the_first_minute_that_differs(found: list[Entry], zone: ZoneInfo, at: int) -> None:
    change = read_calendar(written(found)).next_change(at, lambda when: wall(zone, when))
    before = is_open(found, shows(zone, at))
    for minute in range(at - at % 60 + 60, at + 8 * 86400, 60):
        if is_open(found, shows(zone, minute)) != before:
            assert change == minute
            return
    assert change is None


@given(text=st.text(alphabet="MonTueSatFri:-, 0123456789é\0", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read_calendar(text).is_open(0)
    except BadValue as error:
        said = str(error)
    else:
        said = "a calendar"
    assert "calendar" in said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Mon,",
        "Mon-",
        "Foo",
        "Mon 25:00-26:00",
        "Mon 10:00",
        "Mon 10:00-10:00",
        "24:00-07:00",
        "Mon 7:5-8:00",
        "x" * 5000,
    ],
)
def test_what_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(BadValue, match="calendar"):
        read_calendar(text)


def test_nights_and_weekends() -> None:
    calendar = read_calendar("Mon-Fri 20:00-07:00, Sat, Sun")
    there = {text: calendar.is_open(dt.datetime.fromisoformat(f"{text}+00:00").timestamp()) for text in (
        "2026-11-16T06:59", "2026-11-16T19:59", "2026-11-16T20:00", "2026-11-17T06:59", "2026-11-17T07:00",
        "2026-11-21T12:00", "2026-11-22T23:59", "2026-11-23T00:00",
    )}  # fmt: skip
    assert list(there.values()) == [False, False, True, True, False, True, True, False]
