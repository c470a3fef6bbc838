"""The files that a command of a description declares beside its text: where they stand in it, and what is around it.

A declared path that stands by itself in the text becomes a slot, so that an output gets its final name only when the
command has succeeded. An input need not stand there. An output that does not is removed before the command runs, and
moved to where a slot would have put it after: `out=result.txt :: ./simulate` is right, too.
Rule: the text itself is data: braces in it are not slots.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bough.api.submit.command_lines.command_plan import CommandPlan, PlannedCommand, plan_command
from bough.model.commands.template import BUILT_IN
from bough.model.files import absolute, is_pattern

_BESIDE = r"[\w./-]"  # what belongs to a longer path


class SlottedText(NamedTuple):
    """A command's text over slots, and the paths that fill them."""

    text: str
    paths: dict[str, str]  # by slot
    writes_by_itself: bool = False  # some output does not stand in it


def plan_with_files(
    command: str, reads: Sequence[str], writes: Sequence[str], *, cwd: str, env: Mapping[str, object] | None = None
) -> PlannedCommand:
    """A command that declares files beside its text; `cwd` is absolute."""
    patterns = [path for path in writes if is_pattern(path)]
    reads = [found for path in reads for found in _expanded(path, cwd)]
    named = [path for path in writes if not is_pattern(path)]
    slotted = with_slots(command, reads, named) if reads or named else SlottedText(command, {})
    text = slotted.text if slotted.paths else command
    planned = plan_command(text, slotted.paths, cwd=cwd, env=env, outputs=patterns or None)
    declared = tuple(dict.fromkeys((*planned.reads, *(absolute(path, cwd) for path in reads))))
    return planned._replace(text=command, reads=declared, writes_by_itself=slotted.writes_by_itself)


def _expanded(path: str, cwd: str) -> list[str]:
    """The files that a pattern means now, or the path itself."""
    plan = CommandPlan("true", cwd, verbatim=True)
    return plan.expanded(path) or [path]


def with_slots(command: str, reads: Sequence[str], writes: Sequence[str]) -> SlottedText:
    """The command with slots in the places of declared paths."""
    modes = {**dict.fromkeys(reads, "r"), **dict.fromkeys(writes, "w")}
    some = "|".join(re.escape(path) for path in sorted(modes, key=len, reverse=True))
    paths: dict[str, str] = {}
    slots: dict[str, str] = {}
    text = ""
    for at, piece in enumerate(re.split(f"(?<!{_BESIDE})({some})(?!{_BESIDE})", command)):
        if at % 2 == 0:
            text += _literal(piece)
            continue
        if piece not in slots:
            slots[piece] = _slot_name(piece, paths)
            paths[slots[piece]] = piece
        text += f"{{{slots[piece]}:{modes[piece]}}}"
    beside = [path for path in writes if path not in slots]
    if beside:
        before = "".join(f"rm -f -- {shlex.quote(path)}\n" for path in beside)
        after = ""
        for path in beside:
            name = _slot_name(path, paths)
            paths[name] = path
            after += f"\n[ ! -e {_literal(shlex.quote(path))} ] || mv -f -- {_literal(shlex.quote(path))} {{{name}:w}}"
        text = f"{_literal(before)}(\n{text}\n){after}"  # in a subshell, which may change its directory
    return SlottedText(text, paths, bool(beside))


def _slot_name(path: str, taken: Mapping[str, str]) -> str:
    """A name by which messages tell of a file: its path, as far as a slot can be called so."""
    name = re.sub(r"\W", "_", path)
    if name[0].isdigit() or name in BUILT_IN:
        name = f"_{name}"
    while name in taken:
        name += "_"
    return name


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
