"""What GNU make prints with `-n --trace --print-data-base`, read back: what it would make, how, and after what.

The trace has a line for each recipe that would run, then the expanded recipe without its prefixes; the data base has
the unexpanded recipe, from which the prefixes are taken again, and the prerequisites. Nothing here runs make.
Rule: what make decided is taken as it stands; nothing of a Makefile is interpreted a second time.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

DATABASE = "# Make data base, printed on "
_PLACE = re.compile(r"(?P<file>.+):(?P<line>\d{1,9})|<builtin>", re.DOTALL)
_MISSING = "' does not exist"
_CHATTER = re.compile(
    r"\S*make(?:\[\d+\])?: (?:Nothing to be done for |'.*' is up to date\.|(?:Entering|Leaving) direc)"
)
_RECIPE = re.compile(r"#  recipe to execute \(from '(?P<file>.*)', line (?P<line>\d{1,9})\):\Z")
_VARIABLE = re.compile(r"\S.*?: (\S+) (?:[:+?!]|::)?= ?")
_TELLING = frozenset({"#  r", "#  P", "#  F", "#  A"})  # how remarks begin that `_remark` reads: few of a great many
_PREFIX = re.compile(r"[@+\-\s]*")
_CANNED = re.compile(
    r"([@+\-\s]*)\$(?:\((?:call\s+)?([^\s,(){}$]+)(?:,.*)?\)|\{(?:call\s+)?([^\s,(){}$]+)(?:,.*)?\})\s*\Z"
)
_LEADING = re.compile(r"\$(?:\(([^\s(){}$]+)\)|\{([^\s(){}$]+)\}|([^(){}$\s]))")
_REFERENCE = re.compile(r"\$(?:\((?:[^()]|\([^()]*\))*\)|\{(?:[^{}]|\{[^{}]*\})*\}|.)", re.DOTALL)
_DEPTH = 10  # canned recipes inside canned recipes

_Choice: TypeAlias = "tuple[int, tuple[int, int, _Choice] | None]"  # letters, and the last pair with the choice before


@dataclass(slots=True)
class MakeTarget:
    """One run of a recipe, as the trace tells it."""

    target: str
    file: str = ""  # where its recipe stands; empty: built in
    line: int = 0
    newer: tuple[str, ...] = ()  # the prerequisites that are newer, or would be
    lines: list[str] = field(default_factory=list)  # expanded, without prefixes; continued ones joined by newlines


@dataclass(slots=True)
class MakeRule:
    """What the data base says of one target."""

    target: str
    prerequisites: tuple[str, ...] = ()
    order_only: tuple[str, ...] = ()
    phony: bool = False
    intermediate: bool = False
    also: tuple[str, ...] = ()  # targets that the same run of the recipe makes
    recipe: list[str] = field(default_factory=list)  # unexpanded logical lines
    file: str = ""
    line: int = 0
    variables: set[str] = field(default_factory=set)  # that have values of their own for it


@dataclass(slots=True)
class Told:
    """All that one run of make told us."""

    made: list[MakeTarget]
    rules: dict[str, list[MakeRule]]  # double-colon targets have several
    variables: dict[str, str]

    def rule(self, target: str) -> MakeRule | None:
        """The first rule of a target."""
        found = self.rules.get(target)
        return found[0] if found else None

    def listed(self, special: str) -> tuple[str, ...] | None:
        """The prerequisites of a special target such as .IGNORE; None: it is not there."""
        found = self.rules.get(special)
        return None if found is None else tuple(name for rule in found for name in rule.prerequisites)


def read_output(text: str) -> Told:
    """Read what make printed."""
    trace, mark, base = text.partition("\n" + DATABASE) if not text.startswith(DATABASE) else ("", "\n", text)
    lines = trace.split("\n")
    if mark:
        while lines and (lines[-1].startswith("# ") or not lines[-1]):  # make's name and licence
            lines.pop()
    rules = _rules(base.partition("\n# Files\n")[2])
    told = Told(_trace(lines), rules, _variables(base.partition("\n# Files\n")[0]))
    _drop_removal(told.made, rules)
    if "info " in base:
        _drop_remarks(told)
    return told


# --- the trace ------------------------------------------------------------------------------------------


def _trace(lines: Sequence[str]) -> list[MakeTarget]:
    made: list[MakeTarget] = []
    continued = False
    for line in lines:
        if not continued:
            begun = _begun(line)
            if begun is not None:
                made.append(begun)
                continue
            if not made or _CHATTER.match(line):
                continue  # what the Makefile says while it is read, and what make says at its end
        if continued:
            made[-1].lines[-1] += "\n" + line
        else:
            made[-1].lines.append(line)
        continued = is_continued(line)
    return made


def _begun(line: str) -> MakeTarget | None:
    """What make is about to make, as in `Makefile:7: update target 'all' due to: a.o`; in time linear in the line."""
    before, due, cause = line.rpartition("' due to: ")
    place, said, target = before.rpartition(": update target '") if due else ("", "", "")
    if not said and line.endswith(_MISSING):
        cause = ""
        place, said, target = line.removesuffix(_MISSING).rpartition(": target '")
    found = _PLACE.fullmatch(place) if said else None
    return MakeTarget(target, found["file"] or "", int(found["line"] or 0), tuple(cause.split())) if found else None


def is_continued(line: str) -> bool:
    """Whether a line ends with a backslash that is not escaped."""
    return line.endswith("\\") and (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _drop_removal(made: list[MakeTarget], rules: dict[str, list[MakeRule]]) -> None:
    """Take away the line at the end by which make removes intermediate files, which belongs to no recipe."""
    if not made or not made[-1].lines:
        return
    words = made[-1].lines[-1].split(" ")
    if words[0] != "rm" or len(words) < 2:
        return
    if all(name in rules and rules[name][0].intermediate for name in words[1:]):
        made[-1].lines.pop()


def _drop_remarks(told: Told) -> None:
    """Take away what `$(info ...)` said while the next recipe was expanded, which stands before its trace."""
    for made, following in itertools.pairwise(told.made):
        rule, later = told.rule(made.target), told.rule(following.target)
        if rule is None or later is None or not any("info " in line for line in later.recipe):
            continue
        known = [_Skeleton(part) for line in rule.recipe for part in _uncanned(line, told.variables, 0)]
        while made.lines and not any(one.fits(made.lines[-1].strip()) for one in known):
            made.lines.pop()


# --- the data base --------------------------------------------------------------------------------------


def _variables(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    lines = iter(text.split("\n"))
    for line in lines:
        if line.startswith("define "):
            name = line[7:].partition(" ")[0]
            found[name] = "\n".join(_until(lines, "endef"))
        elif line and line[0] not in "#\t ":
            name, equals, value = line.partition("=")
            if equals:
                found[name.rstrip(" :?+")] = value.removeprefix(" ")
    return found


def _until(lines: Iterator[str], end: str) -> Iterator[str]:
    for line in lines:
        if line == end:
            return
        yield line


def _rules(text: str) -> dict[str, list[MakeRule]]:
    rules: dict[str, list[MakeRule]] = {}
    rule: MakeRule | None = None
    own: set[str] = set()
    recipe = False
    begins = True  # a target stands only after an empty line, or after its variables
    for line in text.split("\n"):
        if not line:
            begins, recipe = True, False
        elif recipe and rule is not None and line[0] == "\t":
            _add_line(rule.recipe, line[1:])
        elif recipe and rule is not None and rule.recipe and is_continued(rule.recipe[-1]):
            rule.recipe[-1] += "\n" + line
        elif line[0] == "#":
            recipe = line[:4] in _TELLING and rule is not None and not begins and _remark(rule, line)
        elif begins:
            variable = _VARIABLE.match(line)
            if variable is not None:
                own.add(variable[1])
                continue
            rule = _head(line)
            begins = False
            if rule is not None:
                rule.variables, own = own, set()
                rules.setdefault(rule.target, []).append(rule)
    return rules


def _add_line(recipe: list[str], line: str) -> None:
    if recipe and is_continued(recipe[-1]):
        recipe[-1] += "\n" + line
    else:
        recipe.append(line)


def _head(line: str) -> MakeRule | None:
    target, colon, rest = line.partition(":: ")
    if not colon:
        target, colon, rest = line.partition(": ")
    if not colon:
        target, rest = line.rstrip(":"), ""
        if target == line:
            return None
    normal, _, ordered = f" {rest} ".partition(" | ")
    return MakeRule(target, tuple(normal.split()), tuple(ordered.split()))


def _remark(rule: MakeRule, line: str) -> bool:
    """One remark of make's about a target; whether a recipe follows."""
    if line.startswith("#  recipe to execute"):
        match = _RECIPE.match(line)
        if match is not None:
            rule.file, rule.line = match["file"], int(match["line"])
        return True
    if line.startswith("#  Phony target"):
        rule.phony = True
    elif line.startswith("#  File is an intermediate"):
        rule.intermediate = True
    elif line.startswith("#  Also makes: "):
        rule.also = tuple(line[15:].split())
    return False


# --- prefixes -------------------------------------------------------------------------------------------


def ignored_lines(made: MakeTarget, recipe: Sequence[str], variables: dict[str, str]) -> list[bool]:
    """For each expanded line of a recipe whether its failure is ignored (`-`)."""
    if not any("-" in line or "$" in line for line in recipe):
        return [False] * len(made.lines)
    wanted = [part for line in recipe for part in _uncanned(line, variables, 0)]
    flags = ["-" in _prefix(line, variables) for line in wanted]
    if len(set(flags)) <= 1:
        return [flags[0] if flags else False] * len(made.lines)
    if len(wanted) == len(made.lines):
        return flags
    found = [False] * len(made.lines)  # some lines expanded to nothing, or to several
    for at, fits in _aligned([line.strip() for line in made.lines], wanted):
        found[at] = flags[fits]
    return found


def _aligned(lines: Sequence[str], wanted: Sequence[str]) -> list[tuple[int, int]]:
    """Which expanded line is which unexpanded one, in order: the choice that has most letters in common."""
    skeletons = [_Skeleton(one) for one in wanted]
    letters = [1 + len("".join(_REFERENCE.split(one))) for one in wanted]
    best: list[_Choice] = [(0, None)] * (len(wanted) + 1)
    for at, line in enumerate(lines):
        row = [best[0]]
        for to, skeleton in enumerate(skeletons):
            choices = [best[to + 1], row[to]]
            if skeleton.fits(line):
                choices.append((best[to][0] + letters[to], (at, to, best[to])))
            row.append(max(choices, key=lambda choice: choice[0]))
        best = row
    found: list[tuple[int, int]] = []
    last = best[-1][1]
    while last is not None:
        found.append(last[:2])
        last = last[2][1]
    return found


def _prefix(line: str, variables: dict[str, str]) -> str:
    prefix = _PREFIX.match(line)
    text = prefix[0] if prefix else ""
    leading = _LEADING.match(line, len(text))
    if leading is not None:  # as in $(Q)cc, with Q = @
        value = variables.get(leading[1] or leading[2] or leading[3], "")
        more = _PREFIX.match(value)
        text += more[0] if more else ""
    return text


def _uncanned(line: str, variables: dict[str, str], depth: int) -> Iterator[str]:
    """A line, or those of the canned recipe it stands for; its own prefix holds for all of them."""
    match = _CANNED.match(line)
    value = variables.get(match[2] or match[3], "") if match is not None else ""
    if match is None or "\n" not in value or depth > _DEPTH:
        yield line
        return
    lines: list[str] = []
    for part in value.split("\n"):
        _add_line(lines, part)
    for part in lines:
        if part.strip():
            yield from _uncanned(match[1] + part, variables, depth + 1)


class _Skeleton:
    """What of a line stands for itself: its words between references, each of which may be anything.

    The words are looked for one after the other. One expression for all of them would try all ways to divide a line
    among the references, which for twenty of them takes for ever.
    """

    def __init__(self, line: str) -> None:
        first, *others = _REFERENCE.split(line[len(_prefix_text(line)) :])
        self._first = re.compile(_words(first) if others else _words(first) + r"\Z")
        self._between = [re.compile(_words(part)) for part in others[:-1] if part.split()]
        self._last = re.compile(_words(others[-1]) + r"\Z") if others and others[-1].split() else None

    def fits(self, line: str) -> bool:
        """Whether a line can be what it is expanded to."""
        found = self._first.match(line)
        for pattern in (*self._between, *filter(None, [self._last])):
            if found is None:
                return False
            found = pattern.search(line, found.end())
        return found is not None


def _words(text: str) -> str:
    return r"\s*".join(map(re.escape, text.split())) or r"\s*"


def _prefix_text(line: str) -> str:
    match = _PREFIX.match(line)
    return match[0] if match else ""
