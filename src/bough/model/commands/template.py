"""Command texts with slots: parsing, checking, and the text that a slot takes from a value or a path.

`{name}` is a value, `{name.stem}` an attribute of a path, `{name:r}` and `{name:w}` files read and written,
`{name:raw}` goes in unquoted, `{name:.3f}` is formatted; `{{` and `}}` are braces. A text counts as a path when an
attribute of it is asked for, and has the attributes that pathlib gives it; lists, tuples and ranges stand for several
words.
Rule: what is wrong with a text is found before any row is filled in, and the error names the slot. No file system is
asked, so that a path means the same on the client, the server and an executor. A slot reads attributes and never calls
what it finds there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bough.errors import InvalidWorkload, did_you_mean
from bough.model.commands.command import Part, TemplateSlot, show_slot

BUILT_IN = frozenset({"cores", "attempt"})
MANY = (list, tuple, range)  # types of values that become several words
_MODES = frozenset({"r", "w", "raw"})
_WITHOUT = (bool, int, float, complex, bytes, type(None))  # types of values that have no attributes

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_SLOT = re.compile(r"([^\W\d]\w*)((?:\.[^\W\d]\w*)*)(?::(.*))?", re.DOTALL)
_LOOKS_LIKE_SLOT = re.compile(r"\{([^\W\d]\w*)(?:\.[^\W\d]\w*)*(?::[^{}]*)?\}")


def parse(text: str) -> list[Part]:
    """Split a text into literals and slots; bad syntax is an InvalidWorkload that says where."""
    parts: list[Part] = []
    literal = ""
    end = 0
    for token in _TOKEN.finditer(text):
        literal += text[end : token.start()]
        end = token.end()
        if token[0] in ("{{", "}}"):
            literal += token[0][0]
            continue
        slot = token[1] is not None and _SLOT.fullmatch(token[1])
        if not slot:
            raise InvalidWorkload(
                f"{shown(token[0])} at position {token.start()} of {shown(text)} is no slot:"
                " write {name}, or {{ and }} for braces"
            )
        name, attribute, spec = slot[1], slot[2][1:], slot[3] or ""
        mode, form = (spec, "") if spec in _MODES else ("", spec)
        if mode == "w" and attribute:
            raise InvalidWorkload(f"{shown(token[0])} in {shown(text)}: an output slot takes no attribute")
        if name in BUILT_IN and (attribute or mode in {"r", "w"}):
            raise InvalidWorkload(f"{shown(token[0])} in {shown(text)}: {name} is a number, not a file")
        if literal:
            parts.append(literal)
            literal = ""
        parts.append(TemplateSlot(name, attribute, mode, form))
    literal += text[end:]
    if literal:
        parts.append(literal)
    return parts


def is_template(value: str) -> bool:
    """Whether a parameter's value is itself a template: it holds something of the form {name}."""
    return "{" in value and _LOOKS_LIKE_SLOT.search(value) is not None


def is_template_over(value: str, names: Iterable[str]) -> bool:
    """Whether a value is a template over some parameters: a slot of it names one, or nearly does (a mistake to tell).

    A value such as "{print}" that names none of them is data: it may be a program of awk's.
    """
    known = tuple(names)
    found = {slot[1] for slot in _LOOKS_LIKE_SLOT.finditer(value)} if "{" in value else set()
    return any(name in known or did_you_mean(name, known) for name in found)


def unparse(parts: Iterable[Part]) -> str:
    """The text that `parse` would read as these parts."""
    words = []
    for part in parts:
        if isinstance(part, str):
            words.append(part.replace("{", "{{").replace("}", "}}"))
        else:
            words.append(show_slot(part))
    return "".join(words)


def check_slots(
    parts: Sequence[Part],
    names: Iterable[str],
    derived: dict[str, list[Part]] | None = None,
    used: Iterable[str] = (),
    options: Iterable[str] = (),
) -> None:
    """Refuse slots without a parameter, parameters without a slot, and values that use each other in a circle.

    `used` are parameters that count as used for another reason, such as a filter that asks for them;
    `options` are keywords that stand beside parameters, one of which may have been meant.
    """
    derived = derived or {}
    known = dict.fromkeys((*names, *derived))
    for name in known:
        if name in BUILT_IN:
            raise InvalidWorkload(f"{name} is a built-in slot: choose another name for the parameter")
    wanted = set(used)
    for owner, texts in ((None, parts), *derived.items()):
        for slot in texts:
            if isinstance(slot, str):
                continue
            if slot.name not in known and (slot.name not in BUILT_IN or owner is not None):
                raise InvalidWorkload(unknown(slot, owner, texts, tuple(known)))
            if owner is not None and slot.mode in {"r", "w"}:
                raise InvalidWorkload(
                    f"{show_slot(slot)} in the value of {owner}: files are declared in the command's text"
                )
            if slot.name != owner:
                wanted.add(slot.name)
    unused = [name for name in known if name not in wanted]
    if unused:
        hint = did_you_mean(unused[0], (*options, *sorted(wanted - known.keys())))
        raise InvalidWorkload(f"no slot uses parameter {', '.join(unused)} in {shown(unparse(parts))}{hint}")
    in_order(derived)


def in_order(derived: dict[str, list[Part]]) -> dict[str, list[Part]]:
    """Derived parameters so that each uses only earlier ones; a circle is an InvalidWorkload naming it."""
    done: dict[str, list[Part]] = {}
    path: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            raise InvalidWorkload(f"parameters are made of each other in a circle: {circle}")
        path.append(name)
        for part in derived[name]:
            if not isinstance(part, str) and part.name in derived:
                visit(part.name)
        path.pop()
        done[name] = derived[name]

    for name in derived:
        visit(name)
    return done


def unknown(slot: TemplateSlot, owner: str | None, texts: Sequence[Part], known: tuple[str, ...]) -> str:
    """What is wrong with a slot that no parameter fills, and what to do."""
    where = f"the value of {owner}" if owner else shown(unparse(texts))
    if slot.name in BUILT_IN:
        return f"slot {show_slot(slot)} in {where}: it is known only when the command starts"
    return (
        f"slot {show_slot(slot)} in {where} needs a parameter {slot.name};"
        f" parameters are {', '.join(known) or 'none'}{did_you_mean(slot.name, known)}"
    )


def shown(text: str) -> str:
    """A text as errors quote it: short, on one line."""
    short = text if len(text) <= 100 else text[:97] + "..."
    return '"' + short.replace("\n", "\\n") + '"'


# --- paths ---------------------------------------------------------------------------------------------


def _pieces(path: str) -> tuple[str, list[str]]:
    """Root and components of a path, as pathlib reads it."""
    root = "/" if path.startswith("/") else ""
    if path.startswith("//") and not path.startswith("///"):
        root = "//"
    return root, [piece for piece in path.split("/") if piece and piece != "."]


def _name(path: str) -> str:
    name = path.rpartition("/")[2]
    if name and name != ".":
        return name
    pieces = _pieces(path)[1]
    return pieces[-1] if pieces else ""


def _suffix(path: str) -> str:
    name = _name(path)
    dot = name.rfind(".")
    return name[dot:] if 0 < dot < len(name) - 1 else ""


def _stem(path: str) -> str:
    name = _name(path)
    dot = name.rfind(".")
    return name[:dot] if 0 < dot < len(name) - 1 else name


def _suffixes(path: str) -> list[str]:
    name = _name(path)
    if name.endswith("."):
        return []
    return ["." + suffix for suffix in name.lstrip(".").split(".")[1:]]


def _parent(path: str) -> str:
    root, pieces = _pieces(path)
    return root + "/".join(pieces[:-1]) or "."


def _parts(path: str) -> list[str]:
    root, pieces = _pieces(path)
    return [root, *pieces] if root else pieces


OF_PATHS: dict[str, Callable[[str], Any]] = {
    "name": _name,
    "stem": _stem,
    "suffix": _suffix,
    "suffixes": _suffixes,
    "parent": _parent,
    "parts": _parts,
    "root": lambda path: _pieces(path)[0],
    "anchor": lambda path: _pieces(path)[0],
    "drive": lambda path: "",  # there are none here
}


# --- values --------------------------------------------------------------------------------------------


def plain(value: Any, form: str = "") -> str:
    """A value as text, unquoted."""
    kind = type(value)
    if kind is str:
        return format(value, form) if form else value
    if form:
        return format(value, form)
    if kind is int or kind is float:
        return str(value)
    if hasattr(kind, "__fspath__"):
        value = value.__fspath__()
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return str(value)


def attribute(value: Any, path: str, slot: str) -> Any:
    """An attribute of a path as pathlib has it, or of any other object; `slot` is named in errors."""
    if isinstance(value, MANY) and not hasattr(value, "_fields"):
        return [attribute(item, path, slot) for item in value]
    for name in path.split("."):
        if hasattr(type(value), "__fspath__"):
            value = value.__fspath__()
        if isinstance(value, str):
            if name not in OF_PATHS:
                raise InvalidWorkload(f"slot {slot}: a path has no {name}, only {', '.join(OF_PATHS)}")
            value = OF_PATHS[name](value)
        elif isinstance(value, _WITHOUT) or not hasattr(value, name):
            raise InvalidWorkload(f"slot {slot}: {value!r:.60} is of type {type(value).__name__} and has no {name}")
        else:
            value = getattr(value, name)
            if callable(value):
                raise InvalidWorkload(f"slot {slot}: {name} would have to be called, which a slot cannot do")
    return value


def joined(value: Any, show: Callable[[Any], str]) -> str:
    """The text of a value that may be several words, each shown by itself."""
    return " ".join([show(item) for item in value]) if isinstance(value, MANY) else show(value)
