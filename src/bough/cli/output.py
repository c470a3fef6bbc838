"""How commands answer: as text, as JSON or not at all, behind one interface.

Rules: answers go to standard output, everything else to standard error. JSON is stable and tested, one
value per command; text is for people and may change. Names, hosts and messages come from others: what a terminal would
obey is shown instead, but for colours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TextIO

from bough.api.display.surroundings import has_colour
from bough.model.texts.terminal_text import harmless, harmless_name


class Output(Protocol):
    """What a command may do with its answer."""

    def answer(self, value: object, text: Callable[[], Iterable[str]]) -> None:
        """Give the answer: `value` for programs, the lines of `text()` for people."""

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Give a table: a list of objects for programs."""

    def note(self, text: str) -> None:
        """Say something that is not part of the answer."""


class Text:
    """For people."""

    def answer(self, value: object, text: Callable[[], Iterable[str]]) -> None:
        """Print the lines."""
        for line in text():
            print(harmless(line))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print aligned columns."""
        for line in table_lines(columns, rows):
            print(harmless(line))

    def note(self, text: str) -> None:
        """Print to standard error."""
        _note(text)


class Json:
    """For programs."""

    def answer(self, value: object, text: Callable[[], Iterable[str]]) -> None:
        """Print the value as JSON."""
        print_json(value)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a list of objects."""
        print_json([dict(zip(columns, row, strict=True)) for row in rows])

    def note(self, text: str) -> None:
        """Print to standard error, which no program reads."""
        _note(text)


class Quiet:
    """For scripts that look at the exit code alone."""

    def answer(self, value: object, text: Callable[[], Iterable[str]]) -> None:
        """Say nothing."""

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""


def _note(text: str) -> None:
    """One line, whatever it names."""
    print(f"bough: {harmless(text).replace(chr(10), chr(92) + 'n')}", file=sys.stderr)


def choose(*, json: bool, quiet: bool) -> Output:
    """The output that the options ask for; JSON was asked for by name and wins."""
    return Json() if json else Quiet() if quiet else Text()


def print_json(value: object, file: TextIO | None = None) -> None:
    """One JSON value and the end of the line. Bytes, which JSON has not, become hexadecimal digits."""
    import json

    print(json.dumps(value, default=_json_default, ensure_ascii=False), file=file or sys.stdout)


def _json_default(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Columns as wide as their widest cell; numbers to the right."""
    cells = [[cell(value) for value in row] for row in rows]
    right = [bool(rows) and all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(columns))]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    return [_line(line, widths, right) for line in ([str(name) for name in columns], *cells)]


def _line(words: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        word.rjust(width) if to_right else word.ljust(width)
        for word, width, to_right in zip(words, widths, right, strict=True)
    ]
    return "  ".join(padded).rstrip()


def cell(value: object) -> str:
    """One value on one line."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, bytes):
        return value.hex()
    return harmless_name(str(value))


_COLOURS = {"failed": "31", "skipped": "33", "cancelled": "33", "held": "35", "running": "36", "done": "32"}


def paint_state(word: str, stream: TextIO | None = None) -> str:
    """A state's word in its colour, where colours are wanted."""
    colour = _COLOURS.get(word)
    if colour is None or not has_colour(stream or sys.stdout):
        return word
    return f"\x1b[{colour}m{word}\x1b[0m"
