"""Commands of the command line, alone or one for each line or number: the words after `--`, and where values go.

`{}` is the line, or without lines the number; `{line}`, `{index}`, `{cores}` and `{attempt}` have names, and a path has
parts: `{line.stem}`. `{{x}}` stands for `{x}`. Other braces, such as `${HOME}` and awk's `{print $1}`, are the shell's.
Rule: a slot that nothing fills is an error, never a text that is passed on; a value is data, braces and all.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bough.describe.source_files import read_file
from bough.describe.workflow_files import cannot_read
from bough.errors import UserError, did_you_mean
from bough.model.arrays.array_indices import read_indices, show_indices
from bough.model.spaces import Ranges

if TYPE_CHECKING:
    from bough.api.futures.array import Array

_TOKEN = re.compile(
    r"\$\{[^{}]*\}"  # a variable of the shell's
    r"|\{\{(?P<text>[^{}]*)\}\}"
    r"|\{(?P<name>[^\W\d]\w*)?(?P<rest>(?:\.[^\W\d]\w*)*(?::[^{}\s]*)?)\}"
)
_BUILT_IN = ("cores", "attempt")


class ManyCommands(msgspec.Struct, frozen=True):
    """A command for each value of some columns, which advance together."""

    text: str  # a template over the columns
    columns: Mapping[str, Sequence[Any]]  # those that it uses
    is_numbered: bool  # the numbers were asked for: $BOUGH_INDEX is one
    indices: str = ""  # as they were written; of lines their numbers, from 1
    files: Mapping[str, Sequence[str]] = {}  # that each declares, by option, as templates over the columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def template(self) -> str:
        """As a sweep takes it."""
        return f"export BOUGH_INDEX={{index}}; {self.text}" if self.is_numbered else self.text


def one_command(words: Sequence[str]) -> str | list[str]:
    """A command as a session takes it: a single word is a text, perhaps for a shell."""
    if not words or not words[0].strip():
        raise UserError("there is no command after --")
    return words[0] if len(words) == 1 else list(words)


def many_commands(
    words: Sequence[str],
    array: str | None,
    each_line: str | None,
    files: Mapping[str, Sequence[str]] | None = None,
) -> ManyCommands | None:
    """What `--array` and `--each-line` make of a command, and of files that it declares; None: it is a single one."""
    if array and each_line:
        raise UserError("--array and --each-line exclude each other; give one")
    if not array and not each_line:
        return None
    one_command(words)
    lines = read_lines(each_line) if each_line else []
    parts = read_indices(array) if array else (range(1, len(lines) + 1),)
    columns: dict[str, Sequence[Any]] = {"index": Ranges(*parts)} | ({"line": lines} if lines else {})
    text, used = template(words, tuple(columns))
    declared = {
        option: [_path_template(path, tuple(columns), used) for path in paths]
        for option, paths in (files or {}).items()
    }
    taken = {name: columns[name] for name in columns if name in used or not lines}
    return ManyCommands(text, taken, not lines, show_indices(parts), declared)


def template(words: Sequence[str], names: Sequence[str]) -> tuple[str, set[str]]:
    """The words with slots for the values, and the slots; several words are quoted, but not their slots."""
    used: set[str] = set()
    found = " ".join(_word(word, names, used, is_text=len(words) == 1) for word in words)
    if "line" in names and "line" not in used:
        raise UserError("--each-line: the command has no {}, so that every task would be the same; as in: gzip {}")
    return found, used


def _word(word: str, names: Sequence[str], used: set[str], *, is_text: bool) -> str:
    parts: list[str] = []

    def literal(text: str) -> None:
        if text:
            parts.append((text if is_text else shlex.quote(text)).replace("{", "{{").replace("}", "}}"))

    kept, end = "", 0
    for token in _TOKEN.finditer(word):
        kept += word[end : token.start()]
        end = token.end()
        if token[0].startswith("$"):
            kept += token[0]
        elif token["text"] is not None:
            kept += f"{{{token['text']}}}"
        else:
            literal(kept)
            kept = ""
            parts.append(_slot(token, names, used))
    literal(kept + word[end:])
    return "".join(parts) or ("" if is_text else "''")


def _path_template(path: str, names: Sequence[str], used: set[str]) -> str:
    """A declared file with slots as the command has them; other braces are part of its name."""

    def slot(token: re.Match[str]) -> str:
        name = token["name"] or names[-1]
        if token[0].startswith(("$", "{{")) or name not in names:
            return token[0]
        used.add(name)
        return f"{{{name}{token['rest']}}}"

    return _TOKEN.sub(slot, path)


def _slot(token: re.Match[str], names: Sequence[str], used: set[str]) -> str:
    name = token["name"] or names[-1]
    if name not in names and name not in _BUILT_IN:
        known = (*names, *_BUILT_IN)
        raise UserError(
            f"nothing fills the slot {token[0]}; slots are {{}}, {', '.join(f'{{{one}}}' for one in known)},"
            f" and braces that the command needs are written {{{token[0]}}}{did_you_mean(name, known)}"
        )
    used.add(name)
    return f"{{{name}{token['rest']}}}"


def own_code(exit_code: int | None, signal: int | None, *, is_started: bool = True) -> int:
    """The exit code by which we say how a command failed: its own, or as shells say it for a signal.

    As there it is 127 when the program is not there. It is 1 when Bough ended it: its time was over, a monitor fired.
    """
    own = (exit_code or 0) & 0xFF or (_OF_SIGNAL + signal if signal else 0)
    return own or (1 if is_started else _CANNOT_START)


_CANNOT_START = 127
_OF_SIGNAL = 128


def read_lines(path: str) -> list[str]:
    """The lines of a file, or of standard input, that are not blank."""
    try:
        text = read_file(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise cannot_read(path, error) from error
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        raise UserError(f"{path} holds no lines; there is nothing to run")
    return [line.removesuffix("\r") for line in lines]


def compare(array: Array, rule: str) -> None:
    """Have a rule compare the tasks of an array, if one is said; see `model.monitoring.rule_text`."""
    if rule:
        from bough.model.monitoring.rule_text import read_rule
        from bough.monitors.comparison import Rule

        array.rule(Rule(read_rule(rule)))
