"""Files that a job declares: they travel to executors that do not see this directory, and order jobs by what they make.

A command line names its files as ever; wherever a declared path stands in it by itself, it becomes a slot that the
executor fills in. Rule: jobs whose command lines have the same form, whatever their words and paths, can be one array.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

import msgspec

from bough.errors import UserError
from bough.model.paths import absolute

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
_BESIDE = r"[\w./-]"  # what belongs to a longer path


class Declared(msgspec.Struct, frozen=True, eq=False):
    """A command line over slots."""

    form: str  # the kinds of its parts: v a text, r and w a file; words are parted by blanks
    values: list[str]
    reads: frozenset[str]  # absolute
    writes: frozenset[str]

    def claim(self, written: dict[str, int], key: int) -> None:
        """Enter what job `key` writes, if it can be: one file has one writer, and what is read is there or coming."""
        for path in self.writes:
            if path in written:
                raise UserError(f"{path} is written by job {written[path]} already; give it another name")
        for path in self.reads:
            if path not in written and not os.path.exists(path):
                raise UserError(f"the input {path} does not exist, and no job issued before makes it")
        written.update(dict.fromkeys(self.writes, key))

    def text(self, name: str) -> str:
        """The template that it fills in; all of the same form have the same."""
        made, number = "", 0
        for kind in self.form:
            if kind == " ":
                made += " "
                continue
            made += f"{{{name}_{number}}}" if kind == "v" else f"{{{name}_{number}:{kind}}}"
            number += 1
        return made


def read_files(words: list[str], cwd: str, inputs: Paths, outputs: Paths) -> Declared | None:
    """What a command declares; None: nothing."""
    reads, writes = _paths("inputs", inputs), _paths("outputs", outputs)
    if not reads and not writes:
        return None
    both = next((path for path in reads if path in writes), None)
    if both is not None:
        raise UserError(f"{both} is declared as an input and as an output; give what is written another name")
    kinds = {**dict.fromkeys(reads, "r"), **dict.fromkeys(writes, "w")}
    found = _split(words, kinds)
    named = {text for word in found for kind, text in word if kind != "v"}
    unnamed = next((path for path in writes if path not in named), None)
    if unnamed is not None:
        raise UserError(f"the output {unnamed} does not stand in the command; name it there as it is declared")
    beside = [path for path in reads if path not in named]
    if beside:  # a shell takes them off, and becomes the command
        shell = [[("v", word)] for word in ("/bin/sh", "-c", f'shift {len(beside)}; exec "$@"', "sh")]
        found = [*shell, *([("r", path)] for path in beside), *found]
    return Declared(
        " ".join("".join(kind for kind, _ in word) for word in found),
        [text for word in found for _, text in word],
        frozenset(absolute(path, cwd) for path in reads),
        frozenset(absolute(path, cwd) for path in writes),
    )


def _paths(name: str, given: Paths) -> list[str]:
    some = [given] if isinstance(given, str | os.PathLike) else list(given)
    try:
        paths = [os.fsdecode(path) for path in some]
    except TypeError:
        raise UserError(f"{name} are paths, not {given!r:.60}") from None
    if not all(paths):
        raise UserError(f"{name} are paths, and one of them is empty")
    return list(dict.fromkeys(paths))


def _split(words: Sequence[str], kinds: dict[str, str]) -> list[list[tuple[str, str]]]:
    """Words as texts and files, longer paths first; a word always has a part."""
    some = "|".join(re.escape(path) for path in sorted(kinds, key=len, reverse=True))
    pattern = re.compile(f"(?<!{_BESIDE})({some})(?!{_BESIDE})")
    found = []
    for word in words:
        parts = [(kinds.get(text, "v") if at % 2 else "v", text) for at, text in enumerate(pattern.split(word))]
        found.append([part for part in parts if part[1]] or [("v", "")])
    return found
