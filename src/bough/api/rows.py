"""The rows of a command array, for whoever wants to know an element's text, outputs or inputs.

Rule: nothing is rendered before somebody asks.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from bough.model.commands import CommandCall, CommandTemplate, Part
from bough.model.rendering import render_row, row_files


class CommandRows:
    """A template and the rows it is filled with."""

    __slots__ = ("_first", "_rows", "_template")

    def __init__(self, template: CommandTemplate, rows: Sequence[Any]) -> None:
        self._template = template
        self._rows = rows
        self._first = 0  # the element of the first row

    def text(self, index: int) -> str:
        """The command of an element; empty if its row was forgotten."""
        at = index - self._first
        return shown_text(render_row(self._template, self._rows[at])) if at >= 0 else ""

    def writes(self, index: int) -> dict[str, str]:
        """The output slots of an element and their absolute paths."""
        at = index - self._first
        return render_row(self._template, self._rows[at]).writes if at >= 0 else {}

    def forget(self, before: int) -> None:
        """Let go of the rows before an element; only for rows that are held in a list."""
        assert isinstance(self._rows, list)
        del self._rows[: max(0, before - self._first)]
        self._first = max(self._first, before)

    def reads(self, row: Any) -> list[str]:
        """The absolute paths of the files that a row reads."""
        return row_files(self._template, row)[0]

    def add(self, rows: Sequence[Any]) -> None:
        """More rows came; only for rows that are held in a list."""
        assert isinstance(self._rows, list)
        self._rows += rows


def shown_text(call: CommandCall) -> str:
    """A command as a person would type it."""

    def fill(part: Part) -> str:
        if isinstance(part, str):
            return part
        if part.name in call.writes:
            path = part.format or call.writes[part.name]
            return shlex.quote(path) if call.parts else path
        if part.mode == "r":
            return shlex.quote(part.format) if call.parts else part.format
        return f"{{{part.name}}}"

    if call.parts:
        return "".join(map(fill, call.parts))
    return shlex.join("".join(map(fill, word)) for word in call.argv)
