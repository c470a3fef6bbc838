"""Command texts with slots: parsing them, and checking them against their parameters.

`{name}` is a value, `{name.stem}` an attribute of a path, `{name:r}` and `{name:w}` files read and
written, `{name:raw}` goes in unquoted, `{name:.3f}` is formatted; `{{` and `}}` are braces. Rule: what is
wrong with a text is found before any row is filled in, and the error names the slot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bough.errors import InvalidWorkload
from bough.model.commands import Part, Slot

BUILT_IN = frozenset({"cores", "attempt"})
_MODES = frozenset({"r", "w", "raw"})

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_SLOT = re.compile(r"([^\W\d]\w*)((?:\.[^\W\d]\w*)*)(?::(.*))?", re.DOTALL)
_LOOKS_LIKE_SLOT = re.compile(r"\{[^\W\d]\w*(?:\.[^\W\d]\w*)*(?::[^{}]*)?\}")


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
        parts.append(Slot(name, attribute, mode, form))
    literal += text[end:]
    if literal:
        parts.append(literal)
    return parts


def is_template(value: str) -> bool:
    """Whether a parameter's value is itself a template: it holds something of the form {name}."""
    return "{" in value and _LOOKS_LIKE_SLOT.search(value) is not None


def unparse(parts: Iterable[Part]) -> str:
    """The text that `parse` would read as these parts."""
    words = []
    for part in parts:
        if isinstance(part, str):
            words.append(part.replace("{", "{{").replace("}", "}}"))
        else:
            words.append(show_slot(part))
    return "".join(words)


def show_slot(slot: Slot) -> str:
    """A slot as the user writes it."""
    attribute = f".{slot.attribute}" if slot.attribute else ""
    spec = slot.mode or slot.format
    return f"{{{slot.name}{attribute}{':' + spec if spec else ''}}}"


def check_slots(
    parts: Sequence[Part],
    names: Iterable[str],
    derived: dict[str, list[Part]] | None = None,
    used: Iterable[str] = (),
) -> None:
    """Refuse slots without a parameter, parameters without a slot, and values that use each other in a circle.

    `used` are parameters that count as used for another reason, such as a filter that asks for them.
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
        raise InvalidWorkload(f"no slot uses parameter {', '.join(unused)} in {shown(unparse(parts))}")
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


def unknown(slot: Slot, owner: str | None, texts: Sequence[Part], known: tuple[str, ...]) -> str:
    """What is wrong with a slot that no parameter fills, and what to do."""
    where = f"the value of {owner}" if owner else shown(unparse(texts))
    if slot.name in BUILT_IN:
        return f"slot {show_slot(slot)} in {where}: it is known only when the command starts"
    from difflib import get_close_matches  # loaded when somebody has mistyped a name

    close = get_close_matches(slot.name, known, 1)
    hint = f"; did you mean {close[0]}" if close else ""
    return (
        f"slot {show_slot(slot)} in {where} needs a parameter {slot.name};"
        f" parameters are {', '.join(known) or 'none'}{hint}"
    )


def shown(text: str) -> str:
    """A text as errors quote it: short, on one line."""
    short = text if len(text) <= 100 else text[:97] + "..."
    return '"' + short.replace("\n", "\\n") + '"'
