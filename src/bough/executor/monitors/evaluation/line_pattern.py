"""A regular expression that is held against lines: many at once where that gives the same, else one by one.

What counts is the first match in each line, as `re.search` finds it in the line alone. Nearly every pattern in use can
neither match a newline nor see beyond one, so that one search over many lines finds the same, and the rest of a line
behind a match is skipped in the same go. A look at the text of the pattern tells; in doubt it is the slow way.

Rule: lines come as `LineReader` gives them, each ended by a newline, and both ways give the same for all of them.
"""

from __future__ import annotations

import re
from typing import Any

_PLAIN_ESCAPES = frozenset("dwSbt.()[]{}+*?^$|\\/-=:,;'\"@#%&!~<>_ `")
_GROUPS = ("(?:", "(?P<")


def is_within_lines(pattern: str) -> bool:
    """Whether a pattern surely sees no further than the line in which it matches, by its text."""
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char < " " or pattern.startswith("[^", at):
            return False
        if char == "(" and pattern.startswith("(?", at) and not pattern.startswith(_GROUPS, at):
            return False  # flags, looks ahead and behind, conditions, references
        if char == "\\":
            escaped = pattern[at + 1 : at + 2]
            if escaped not in _PLAIN_ESCAPES or (escaped in "bt" and pattern.startswith("-", at + 2)):
                return False  # \s and \D match a newline, as does a range that begins at a tab; \Z and \A are not ours
            at += 1
        at += 1
    return True


class LinePattern:
    """One pattern."""

    def __init__(self, pattern: str) -> None:
        data = pattern.encode()
        self._single = re.compile(data)
        self._many = re.compile(b"(?:" + data + b")[^\n]*\n", re.MULTILINE) if is_within_lines(pattern) else None
        self.groups = self._single.groups
        self.names: dict[str, int] = dict(self._single.groupindex)

    def first(self, lines: bytes, at: int) -> tuple[re.Match[bytes], int] | None:
        """The first match in the lines from `at` on, and where the line after it begins."""
        if self._many is not None:
            found = self._many.search(lines, at)
            return (found, found.end()) if found is not None else None
        search = self._single.search
        while (end := lines.find(b"\n", at)) >= 0:
            found = search(lines[at:end])
            at = end + 1
            if found is not None:
                return found, at
        return None

    def rows(self, lines: bytes, at: int) -> list[Any]:
        """What the groups hold in each line that matches, as `re.findall` gives them."""
        if self._many is not None:
            if self.groups:
                return self._many.findall(lines, at)
            return [b""] * len(self._many.findall(lines, at))
        search, one, rows = self._single.search, self.groups == 1, []
        for line in lines[at:].split(b"\n")[:-1]:
            found = search(line)
            if found is not None:
                rows.append(found[1] or b"" if one else found.groups(b"") if self.groups else b"")
        return rows

    def after(self, lines: bytes, at: int, count: int) -> int:
        """Where the line after the `count`-th match begins."""
        for _ in range(count):
            found = self.first(lines, at)
            assert found is not None
            at = found[1]
        return at
