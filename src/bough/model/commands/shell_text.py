"""What a shell would make of a text: whether it needs one, its words without one, the quotes around a slot.

A text without a special meaning to a shell is split into words here and runs without one. In a text for a shell a
value is quoted for its position: bare, inside single or inside double quotes. Rule: in doubt a text needs a shell, and
a quoted value is never shell syntax.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence

from bough.errors import InvalidWorkload
from bough.model.commands.command import Part, TemplateSlot
from bough.model.commands.template import shown, unparse

# --- does it need a shell? ----------------------------------------------------------------------------

_SPECIAL = frozenset(";|&<>()$`\n*?[]~#!{}")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[.*\])?\+?=")
_SHELL_WORDS = frozenset(
    re.findall(
        r"\S+",
        """. : alias bg bind break builtin caller case cd command compgen complete continue coproc declare dirs disown
        enable eval exec exit export fc fg for function getopts hash help history if jobs let local logout mapfile ml
        module popd pushd read readarray readonly return select set shift shopt source suspend time times trap type
        typeset ulimit umask unalias unset until wait while""",
    )
)
_HOLE = "\0"  # stands for a slot while the text is looked at
_SUSPECT = re.compile(r"[;|&<>()$`\n*?\[\]~#!{}'\"\\]")  # a text without any of these is words and nothing else
_RUNS = {
    "": re.compile(r"[^\s'\"\\]+"),
    "'": re.compile(r"[^']+"),
    '"': re.compile(r'[^"\\]+'),
}  # of literals, by quotes


def needs_shell(text: str | Sequence[Part]) -> bool:  # noqa: C901 - a small automaton reads best in one piece
    """Whether a text means something only to a shell; quotes and backslashes alone do not."""
    if not isinstance(text, str):
        if any(isinstance(part, TemplateSlot) and part.mode == "raw" for part in text):
            return True
        text = "".join(part if isinstance(part, str) else _HOLE for part in text)
    quote = ""
    skip = False
    for at, char in enumerate(text if _SUSPECT.search(text) else ""):
        if skip:
            skip = False
            if char == "\n" or (quote and char in "$`"):  # a shell drops the backslash, we would keep it
                return True
        elif quote == "'":
            if char == "'":
                quote = ""
        elif char == "\\":
            skip = True
        elif quote == '"':
            if char == '"':
                quote = ""
            elif char in "$`":
                return True
        elif char in "'\"":
            quote = char
        elif char in _SPECIAL and (char != "\n" or text[at:].strip()):
            return True
    if quote or skip:
        return True
    first = text.split(None, 1)[:1]
    return bool(first) and (first[0] in _SHELL_WORDS or _ASSIGNMENT.match(first[0]) is not None)


def plain_words(text: str) -> list[str] | None:
    """The words of a text that is words and nothing else; None: it takes a closer look, or a shell."""
    if _SUSPECT.search(text) is not None:
        return None
    words = text.split()
    if not words or words[0] in _SHELL_WORDS or _ASSIGNMENT.match(words[0]) is not None:
        return None
    return words


def split_words(parts: Sequence[Part]) -> list[list[tuple[Part, bool]]]:  # noqa: C901 - as above
    """Words of a text run without a shell, each a list of parts; the flag tells slots that stood in quotes."""
    words: list[list[tuple[Part, bool]]] = []
    word: list[tuple[Part, bool]] = []
    literal = ""
    inside = False  # a word, possibly empty, has begun
    quote = ""
    escaped = False
    for part in parts:
        if isinstance(part, TemplateSlot):
            if literal:
                word.append((literal, False))
                literal = ""
            word.append((part, bool(quote)))
            inside = True
            continue
        at = 0
        while at < len(part):
            run = None if escaped else _RUNS[quote].match(part, at)
            if run is not None:
                literal += run[0]
                inside = True
                at = run.end()
                continue
            char = part[at]
            at += 1
            if escaped:
                escaped = False
                literal += char if not quote or char in '"\\' else "\\" + char
            elif quote:
                if char == quote:
                    quote = ""
                else:  # a backslash in double quotes
                    escaped = True
            elif char in "'\"":
                quote = char
                inside = True
            elif char == "\\":
                escaped = inside = True
            elif inside:  # white space
                words.append([*word, (literal, False)] if literal or not word else word)
                word, literal, inside = [], "", False
    if quote or escaped:
        raise InvalidWorkload(f"{shown(unparse(parts))} has {'an open quote' if quote else 'a backslash at its end'}")
    if inside:
        words.append([*word, (literal, False)] if literal or not word else word)
    return words


# --- quoting ------------------------------------------------------------------------------------------

_IN_DOUBLE = re.compile(r'[\\"$`]')


def _quote_single(text: str) -> str:
    return text.replace("'", "'\\''")


def _quote_double(text: str) -> str:
    return _IN_DOUBLE.sub(r"\\\g<0>", text)


QUOTES: dict[str, Callable[[str], str]] = {"": shlex.quote, "'": _quote_single, '"': _quote_double}  # by context


def contexts(parts: Sequence[Part]) -> list[str]:
    """For each slot of a shell text the quotes it stands in: none, ' or double."""
    found = []
    stack = [""]  # of what is open: "", a quote, ")" for a subshell, "`"
    for part in parts:
        if isinstance(part, TemplateSlot):
            found.append(stack[-1] if stack[-1] in {"'", '"'} else "")
        else:
            _follow(part, stack)
    return found


_TURNS = {"'": re.compile("'"), '"': re.compile(r'[\\"`(]'), "": re.compile(r"[\\\"'`()#]")}


def _follow(text: str, stack: list[str]) -> None:
    """Follow the quotes of a literal; comments and escapes hide theirs."""
    at = 0
    while True:
        top = stack[-1]
        turn = _TURNS.get(top, _TURNS[""]).search(text, at)
        if turn is None:
            return
        char = turn[0]
        at = turn.end()
        if char == "\\":
            at += 1
        elif char == "#":
            if turn.start() == 0 or text[turn.start() - 1] in " \t\n;":
                at = text.find("\n", at) if "\n" in text[at:] else len(text)
        elif char == top:
            stack.pop()
        elif char == "(":
            if top != '"' or text[turn.start() - 1 : turn.start()] == "$":
                stack.append(")")
        elif char != ")":
            stack.append(char)
