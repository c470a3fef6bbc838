"""Selectors: how people name tasks, arrays and groups on a command line.

    last          the record submitted last            all, *        everything of the run
    12            record 12                            5-9           records 5 to 9
    12.3          element 3 of array 12                12.3-40       elements 3 to 40 of array 12
    align/*       everything in the group "align"      plot, a/plot  by name, or by group and name; * and ? match
    2,align/*     any of these

Rule: a text is read without looking at any store; ranges include both ends; what reads as an id is an id, and one that
no store can hold is refused here.
"""

from __future__ import annotations

import re

import msgspec

from bough.errors import BadValue
from bough.model.bounds import Count, Name, read_number, within


class Last(msgspec.Struct, frozen=True, tag="last"):
    """The record that was submitted last."""


class All(msgspec.Struct, frozen=True, tag="all"):
    """Everything of a run."""


class Records(msgspec.Struct, frozen=True, tag="records"):
    """The records from `first` to `last`, both included."""

    first: int
    last: int


class Elements(msgspec.Struct, frozen=True, tag="elements"):
    """The elements from `first` to `last` of one array, both included."""

    record: int
    first: int
    last: int


class Within(msgspec.Struct, frozen=True, tag="within"):
    """Everything in a group and in the groups below it."""

    path: str


class Named(msgspec.Struct, frozen=True, tag="named"):
    """A task, array or group by its name, or by its whole path; `*` and `?` match any text and any letter."""

    name: str

    @property
    def is_pattern(self) -> bool:
        """Whether it may match several names."""
        return any(letter in self.name for letter in "*?")


Selector = Last | All | Records | Elements | Within | Named

_NUMBERS = re.compile(r"(?P<first>\d+)(?:\.(?P<from>\d+))?(?:-(?P<to>\d+))?\Z", re.ASCII)


def read_selectors(text: str) -> tuple[Selector, ...]:
    """Read a comma list of selectors; UserError says which part is wrong."""
    within("the selector", text, Name)
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise BadValue(f"selector {text!r} has an empty part; give ids, names or group/*, separated by commas")
    return tuple(read_selector(part) for part in parts)


def read_selector(text: str) -> Selector:
    """Read one selector."""
    if text == "last":
        return Last()
    if text in {"all", "*"}:
        return All()
    if match := _NUMBERS.match(text):
        return _numbers(text, match)
    path = text.strip("/")
    if path.endswith("/*"):
        return Within(path[:-2].rstrip("/"))
    if not path or "//" in path:
        raise BadValue(f"selector {text!r} is not an id, a name or a path such as group/sub/*")
    return Named(path)


def _numbers(text: str, match: re.Match[str]) -> Selector:
    first, inner, upto = match["first"], match["from"], match["to"]
    what = f"in the selector {text!r:.60} a number"
    record = read_number(what, first, Count)
    begin = record if inner is None else read_number(what, inner, Count)
    end = begin if upto is None else read_number(what, upto, Count)
    if end < begin:
        raise BadValue(f"selector {text!r} ends before it begins; write the smaller number first")
    return Records(begin, end) if inner is None else Elements(record, begin, end)


def show_selector(selector: Selector) -> str:
    """Write a selector as people do."""
    match selector:
        case Last():
            return "last"
        case All():
            return "all"
        case Records(first, last):
            return _range(first, last)
        case Elements(record, first, last):
            return f"{record}.{_range(first, last)}"
        case Within(path):
            return f"{path}/*"
        case Named(name):
            return name


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
