"""The state of one step's condition: what it has seen so far, and where in the lines at hand it was met.

A condition is a tree. Its leaves take in facts: lines, times, files that are there, memory, answers of functions and
programs. Its branches (`any of`, `all of`) only combine. Rule: each leaf reads the lines by itself, once, up to the
line that meets it, and what it finds does not depend on how they were cut.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from bough.executor.monitors.evaluation.line_pattern import LinePattern
from bough.executor.monitors.evaluation.plateau_window import PlateauWindow
from bough.model.monitoring.monitors import (
    After,
    AllOf,
    AnyOf,
    Condition,
    Custom,
    Executable,
    FileCreated,
    Memory,
    Plateau,
    Regex,
    Silent,
)
from bough.model.sites.resources import show_bytes

MOST_TEXT = 500  # characters of a line that are told
_BIGGEST = 1e300  # a value beyond it is none
_AGAIN = 0.1  # seconds after which a condition of time is met again at the earliest
NEVER = math.inf

Complain = Callable[[str], None]  # says what is wrong with a monitor


class Hooks(NamedTuple):
    """What conditions tell their monitor."""

    complain: Complain
    record: Callable[[PlateauLeaf, int, list[float]], None]  # values, and where in the lines reading them began


class Evidence(NamedTuple):
    """On what a condition was met."""

    kind: str
    reason: str
    value: float | None = None
    text: str = ""
    seen: int = 0  # values, of a plateau
    total: int = 0


def numbers(rows: list[Any], complain: Complain) -> tuple[list[float], list[int] | None]:
    """The numbers in rows of one group, and of which rows they are; None: of all. What is empty is passed over."""
    try:
        values = list(map(float, rows))
        if not values or (math.isfinite(sum(values)) and max(values) <= _BIGGEST and min(values) >= -_BIGGEST):
            return values, None
    except ValueError:
        pass
    values, places = [], []
    for place, row in enumerate(rows):
        value = read_number(row, complain)
        if value is not None:
            values.append(value)
            places.append(place)
    return values, places


def read_number(text: bytes, complain: Complain) -> float | None:
    """A finite number, or None if it is none."""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        complain(f"{show_text(text)!r} is no number; it was passed over")
        return None
    if not abs(value) <= _BIGGEST:
        complain(f"{show_text(text)!r} is no finite number; it was passed over")
        return None
    return value


def show_text(data: bytes) -> str:
    """What a task wrote, for people, shortened."""
    return data[: 4 * MOST_TEXT].decode("utf-8", "replace")[:MOST_TEXT]


def show_number(value: float) -> str:
    """A number in three digits, without a power of ten where that is short: 0.00007."""
    text = f"{value:.3g}"
    return format(Decimal(text), "f") if 1e-9 < abs(value) < 1e9 else text


class Leaf:
    """One condition that is not made of others."""

    where = ""  # of one that reads lines
    due = NEVER  # of one that waits for a time

    def __init__(self) -> None:
        self.met: Evidence | None = None
        self.met_at = 0  # in the lines at hand
        self.at = 0  # so much of the lines at hand was read

    def scan(self, lines: bytes) -> None:
        """Read lines until it is met."""

    def tick(self, now: float) -> None:
        """Time has passed."""

    def begin_anew(self, at: int, now: float) -> None:
        """It was met, and watches again: from here on."""
        self.met = None
        self.at = at

    def _meet(self, evidence: Evidence, at: int = 0) -> None:
        self.met = evidence
        self.met_at = self.at = at


class RegexLeaf(Leaf):
    """See `Regex`."""

    def __init__(self, condition: Regex, complain: Complain) -> None:
        super().__init__()
        self.where = condition.where
        self._condition = condition
        self._pattern = LinePattern(condition.pattern)
        self._complain = complain
        self._when: Callable[[tuple[str, ...]], object] | None = None
        self._is_broken = False
        if condition.when:
            try:
                self._when = pickle.loads(condition.when)
            except (Exception, SystemExit) as error:  # noqa: BLE001 -- it runs code of the user's
                complain(f"its function cannot be loaded: {type(error).__name__}: {error}")
                self._is_broken = True

    def scan(self, lines: bytes) -> None:
        """Read lines until one matches, and its groups are as wanted."""
        if self._is_broken:
            return
        condition, pattern = self._condition, self._pattern
        if condition.below is not None or condition.above is not None:
            self._scan_numbers(lines)
            return
        while (found := pattern.first(lines, self.at)) is not None:
            match, after = found
            begin = lines.rfind(b"\n", 0, after - 1) + 1
            self.at = after
            if self._when is None or self._wanted(match.groups(b"")):
                text = show_text(match[1] or b"" if pattern.groups else lines[begin : after - 1])
                self._meet(Evidence("regex", f"matched {text!r}", _number_in(text), text), after)
                return
        self.at = len(lines)

    def _scan_numbers(self, lines: bytes) -> None:
        """The same where the first group is a number that is compared: all of them at once."""
        condition, pattern = self._condition, self._pattern
        below = condition.below if condition.below is not None else NEVER
        above = condition.above if condition.above is not None else -NEVER
        rows = pattern.rows(lines, self.at)
        values, places = numbers(rows if pattern.groups == 1 else [row[0] for row in rows], self._complain)
        for at, value in enumerate(values):
            if above < value < below:
                place = places[at] if places is not None else at
                row = rows[place] if pattern.groups > 1 else (rows[place],)
                if self._when is not None and not self._wanted(row):
                    continue
                compared = [f"< {below:g}"] * (below != NEVER) + [f"> {above:g}"] * (above != -NEVER)
                reason = f"{show_number(value)} {' and '.join(compared)}"
                end = pattern.after(lines, self.at, place + 1)
                self._meet(Evidence("regex", reason, value, show_text(row[0])), end)
                return
        self.at = len(lines)

    def _wanted(self, groups: tuple[bytes, ...]) -> bool:
        assert self._when is not None
        try:
            return bool(self._when(tuple([group.decode("utf-8", "replace") for group in groups])))
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- the user's function; what it raises is not ours
            self._complain(f"its function raised {type(error).__name__}: {error}")
            return False


def _number_in(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= _BIGGEST else None


class PlateauLeaf(Leaf):
    """See `Plateau`. What it reads is also a series, which is recorded."""

    def __init__(self, condition: Plateau, hooks: Hooks) -> None:
        super().__init__()
        self.where = condition.where
        self.condition = condition
        self._pattern = LinePattern(condition.pattern)
        self._window = PlateauWindow(condition.window, condition.below, slope=condition.slope)
        self._complain, self._record = hooks
        self.count = 0  # values seen

    def scan(self, lines: bytes) -> None:
        """Read values until they hardly change any more."""
        values, places = self.read(lines, self.at)
        if not values:
            self.at = len(lines)
            return
        taken = self._window.take(values)
        self._record(self, self.at, values[:taken] if taken else values)
        self.count += taken or len(values)
        if not taken:
            self.at = len(lines)
            return
        condition, measure = self.condition, self._window.measure
        what = "slope" if condition.slope else "std"
        reason = f"{what} {show_number(measure)} < {show_number(condition.below)}"
        end = self._pattern.after(lines, self.at, (places[taken - 1] if places is not None else taken - 1) + 1)
        value = values[taken - 1]
        self._meet(Evidence("plateau", reason, value, show_number(measure), self.count, condition.total), end)

    def read(self, lines: bytes, at: int) -> tuple[list[float], list[int] | None]:
        """The values in lines."""
        return numbers(self._pattern.rows(lines, at), self._complain)

    def begin_anew(self, at: int, now: float) -> None:
        """A new window."""
        super().begin_anew(at, now)
        self._window.begin_anew()


class AfterLeaf(Leaf):
    """See `After`."""

    def __init__(self, condition: After, since: float) -> None:
        super().__init__()
        self._seconds = condition.seconds
        self.due = since + condition.seconds

    def tick(self, now: float) -> None:
        """Look at the clock."""
        if now >= self.due:
            self._meet(Evidence("after", f"{show_number(self._seconds)} s have passed", self._seconds))

    def begin_anew(self, at: int, now: float) -> None:
        """Wait as long again."""
        super().begin_anew(at, now)
        self.due = now + max(_AGAIN, self._seconds)


class SilentLeaf(Leaf):
    """See `Silent`. `watched`: the places where nothing must be written."""

    def __init__(self, condition: Silent, since: float) -> None:
        super().__init__()
        self._seconds = condition.seconds
        self.watched = (condition.where,) if condition.where else ("stdout", "stderr")
        self.due = since + condition.seconds

    def wrote(self, now: float) -> None:
        """Something was written in one of the places."""
        self.due = now + self._seconds

    def tick(self, now: float) -> None:
        """Look at the clock."""
        if now >= self.due:
            self._meet(Evidence("silent", f"nothing was written for {show_number(self._seconds)} s", self._seconds))

    def begin_anew(self, at: int, now: float) -> None:
        """Wait as long again."""
        super().begin_anew(at, now)
        self.due = now + max(_AGAIN, self._seconds)


class MemoryLeaf(Leaf):
    """See `Memory`."""

    def __init__(self, condition: Memory) -> None:
        super().__init__()
        self._above = condition.above

    def used(self, size: int) -> None:
        """The task uses so much."""
        if size > self._above:
            reason = f"used {show_bytes(size)}, more than {show_bytes(self._above)}"
            self._meet(Evidence("memory", reason, float(size)))


class CreatedLeaf(Leaf):
    """See `FileCreated`."""

    def __init__(self, condition: FileCreated) -> None:
        super().__init__()
        self.path = condition.path

    def appeared(self) -> None:
        """The file is there."""
        self._meet(Evidence("created", f"{self.path[:MOST_TEXT]} is there", None, self.path[:MOST_TEXT]))


class AskedLeaf(Leaf):
    """See `Custom` and `Executable`: something else is asked again and again."""

    def __init__(self, condition: Custom | Executable) -> None:
        super().__init__()
        self.condition = condition

    def said_yes(self, value: float | None, text: str) -> None:
        """The answer was yes."""
        if isinstance(self.condition, Custom):
            reason = f"its function returned {text or show_number(value or 0.0)}"
            self._meet(Evidence("custom", reason[:MOST_TEXT], value, text[:MOST_TEXT]))
        else:
            self._meet(Evidence("executable", f"{self.condition.command[:MOST_TEXT]} exited with 0"))


class Branch:
    """Conditions that are combined."""

    def __init__(self, members: list[Tree], *, all_of: bool) -> None:
        self.members = members
        self.all_of = all_of


Tree = Leaf | Branch


def grow(condition: Condition, since: float, hooks: Hooks) -> Tree:
    """The state of a condition that begins to watch. `since`: when it does."""
    match condition:
        case AnyOf() | AllOf():
            members = [grow(member, since, hooks) for member in condition.members]
            return Branch(members, all_of=isinstance(condition, AllOf))
        case Regex():
            return RegexLeaf(condition, hooks.complain)
        case Plateau():
            return PlateauLeaf(condition, hooks)
        case After():
            return AfterLeaf(condition, since)
        case Silent():
            return SilentLeaf(condition, since)
        case Memory():
            return MemoryLeaf(condition)
        case FileCreated():
            return CreatedLeaf(condition)
        case Custom() | Executable():
            return AskedLeaf(condition)


def leaves(tree: Tree) -> Iterator[Leaf]:
    """All leaves of a tree."""
    if isinstance(tree, Leaf):
        yield tree
    else:
        for member in tree.members:
            yield from leaves(member)


def decide(tree: Tree) -> tuple[int, Evidence] | None:
    """Where in the lines at hand a condition was met, and on what; None: it is not met."""
    if isinstance(tree, Leaf):
        return (tree.met_at, tree.met) if tree.met is not None else None
    found = [decided for member in tree.members if (decided := decide(member)) is not None]
    if not tree.all_of:
        return min(found, key=_place) if found else None
    if len(found) < len(tree.members):
        return None
    at, last = max(found, key=_place)
    reason = " and ".join([evidence.reason for _, evidence in found])
    return at, last._replace(kind="all", reason=reason[:MOST_TEXT])


def _place(decided: tuple[int, Evidence]) -> int:
    return decided[0]


def begin_anew(tree: Tree, at: int, now: float) -> None:
    """A condition was met here, and watches on: what met it begins anew, other members of an `any of` go on."""
    if isinstance(tree, Leaf):
        tree.begin_anew(at, now)
    elif tree.all_of:
        for member in tree.members:
            begin_anew(member, at, now)
    else:
        met = [(decided[0], place) for place, member in enumerate(tree.members) if (decided := decide(member))]
        begin_anew(tree.members[min(met)[1]], at, now)
