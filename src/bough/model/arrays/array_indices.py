"""The indexes of an array as its submitter wrote them: `--array 1-1000` makes the elements 1 to 1000, not 0 to 999.

Inside Bough the elements of an array are always counted from 0. The text that the submitter wrote stays with the array;
whatever a person reads or writes goes through it. An array of Python (a map, a sweep) has no text: there element 7 is
`array[7]`. Example: of `10-20:5,40` the elements are 10, 15, 20 and 40, inside 0 to 3.
Rule: indexes grow from element to element, so that a range of them is a range of elements.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate, pairwise

from bough.errors import BadValue
from bough.model.bounds import MOST_TASKS, Count, read_number
from bough.model.ids import number_of

_RANGE = re.compile(r"(?P<first>\d+)(?:-(?P<last>\d+))?(?::(?P<step>\d+))?\Z", re.ASCII)
_KEPT = 256  # texts that stay read
_LONGEST = 60_000  # letters of a text


def read_indices(text: str, what: str = "--array") -> tuple[range, ...]:
    """Numbers written as 1-1000, 1-9:2 (every second) or a comma list of these, the smaller first; not unfolded."""
    parts: list[range] = []
    if len(text) > _LONGEST:
        raise BadValue(f"{what} {text:.60}: more than {_LONGEST} letters; give ranges such as 1-1000")
    for part in text.split(","):
        found = _RANGE.match(part.strip())
        if found is None:
            raise BadValue(f"{what} {text:.60}: {part!r:.60} is not a number or a range such as 1-1000 or 1-99:2")
        first, last, step = (read_number(f"{what} {text:.60}: a number", said or "0", Count) for said in found.groups())
        if found["step"] and not step:
            raise BadValue(f"{what} {text:.60}: {part!r:.60} has steps of 0; give 1 or more")
        parts.append(range(first, (last if found["last"] else first) + 1, step or 1))
    total = sum(map(len, parts))
    if not all(parts):
        raise BadValue(f"{what} {text:.60} holds no number; write the smaller one first")
    if total > MOST_TASKS:
        raise BadValue(f"{what} {text:.60} holds {total} numbers; an array has at most {MOST_TASKS} tasks")
    parts.sort(key=lambda part: part[0])
    for one, other in pairwise(parts):
        if one[-1] >= other[0]:
            raise BadValue(
                f"{what} {text:.60}: {_shown(one)} and {_shown(other)} overlap; write each number once, as in 1-4,7-9"
            )
    return tuple(parts)


def _shown(part: range) -> str:
    if len(part) == 1:
        return str(part[0])
    return f"{part[0]}-{part[-1]}" + (f":{part.step}" if part.step > 1 else "")


def show_indices(parts: tuple[range, ...]) -> str:
    """The text that an array keeps."""
    return ",".join(map(_shown, parts))


class _Labels:
    def __init__(self, text: str) -> None:
        self.parts = read_indices(text)
        self.ends = tuple(accumulate(map(len, self.parts)))

    def label(self, position: int) -> int:
        part = bisect_right(self.ends, position)
        if part == len(self.parts):
            return self.parts[-1][-1] + 1 + position - self.ends[-1]
        return self.parts[part][position - (self.ends[part - 1] if part else 0)]

    def before(self, label: int) -> int:
        """How many elements have a smaller index."""
        part = bisect_right(self.parts, label, key=lambda one: one[0]) - 1
        if part < 0:
            return 0
        passed = self.ends[part - 1] if part else 0
        inside = self.parts[part]
        return passed + min(len(inside), -(-(label - inside[0]) // inside.step))


@lru_cache(_KEPT)
def _labels(text: str) -> _Labels:
    return _Labels(text)


def index_label(indices: str, position: int) -> int:
    """The index of an element as its submitter wrote it; `indices` is the text of its array."""
    return _labels(indices).label(position) if indices else position


def positions(indices: str, first: int, last: int) -> tuple[int, int]:
    """The elements [start, stop) whose indexes are from `first` to `last`, both included."""
    if not indices:
        return first, last + 1
    labels = _labels(indices)
    return labels.before(first), labels.before(last + 1)


def task_label(record: int, position: int, indices: str = "") -> str:
    """An element of an array as people name it: 12.7."""
    return f"{number_of(record)}.{index_label(indices, position)}"


def range_label(record: int, first: int, last: int, indices: str = "") -> str:
    """The elements from `first` to `last` of an array, both included, as people name them: 12.7 or 12.7-40."""
    label = task_label(record, first, indices)
    return label if first == last else f"{label}-{index_label(indices, last)}"
