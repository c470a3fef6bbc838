"""Macros of submit descriptions: $(NAME), $(NAME:default), the functions such as $ENV() and $Fn(), and $$(ATTRIBUTE).

As in the HTCondor manual, "condor_submit", section on macros. Rules: names are read in any case; what depends on chance
depends on the node alone, so that a run that is repeated finds what it had done; nothing is run. What HTCondor would
fill in when a machine is found ($$) is known here as far as this machine and the node tell it.
"""

from __future__ import annotations

import functools
import os
import random
import re
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from bough.describe.dagman.classad_expression import Value, evaluate, shown
from bough.describe.plan import Where
from bough.errors import InvalidWorkload

RETRY = "\0retry\0"  # these stand for a value in a word, until the word is quoted: see `quote`
STATUS = "\0dag_status\0"
FAILED = "\0failed\0"

_MACRO = re.compile(r"\$\(([\w.+-]+)(?::([^()$]*))?\)")
_FUNCTION = re.compile(
    r"\$(ENV|RANDOM_CHOICE|RANDOM_INTEGER|CHOICE|INT|REAL|STRING|SUBSTR|BASENAME|DIRNAME|EVAL|F[fpduwnxbqa]*)"
    r"\(([^()$]*(?:\([^()$]*\)[^()$]*)*)\)"
)
_TARGET = re.compile(r"\$\$\(([\w.]+)(?::([^()$]*))?\)")
_DEPTH = 20
_LONG = 1 << 20  # characters of a value with its macros filled in
_MANY = 10_000  # macros in one value
_DOLLAR = "\0dollar\0"

_CONFIGURED = {
    "iswindows": "false",
    "islinux": str(os.uname().sysname == "Linux").lower(),
    "arch": os.uname().machine.upper(),
    "opsys": os.uname().sysname.upper(),
    "hostname": socket.gethostname().partition(".")[0],
    "full_hostname": socket.gethostname(),
}  # macros of HTCondor's configuration that descriptions use

Lookup = Callable[[str], str | None]


class MacroSource(Protocol):
    """What macros are filled in from."""

    def lookup(self, name: str) -> str | None:
        """What a macro stands for, not expanded."""

    def attributes(self) -> Mapping[str, Value]:
        """What ClassAd expressions know."""

    def dice(self) -> str:
        """What chance depends on."""


def expand(text: str, source: MacroSource, where: Where) -> str:
    """A text with its macros filled in."""
    lookup = source.lookup
    for _ in range(_DEPTH):
        if "$$(" in text:
            text = _expand_targets(text, source, where)
        if text.count("$(") > _MANY:
            raise where.wrong(f"{text!r:.60}: its macros name more than {_MANY} others")
        found = _MACRO.sub(lambda match: _value(match, lookup), text)
        if len(found) > _LONG:
            raise where.wrong(f"{text!r:.60}: its macros stand for more than {_LONG} characters")
        if "$" not in found:
            return found.replace(_DOLLAR, "$") if _DOLLAR in found else found
        found = _FUNCTION.sub(lambda match: _call(match, source, where), found)
        if found == text:
            return found.replace(_DOLLAR, "$")
        text = found
    raise where.wrong(f"{text!r:.60}: its macros name each other")


def _value(match: re.Match[str], lookup: Lookup) -> str:
    name = match[1].lower()
    if name == "dollar":
        return _DOLLAR
    found = lookup(name)
    return found if found is not None else match[2] if match[2] is not None else _CONFIGURED.get(name, "")


# --- $$(...) ----------------------------------------------------------------------------------------------


def _expand_targets(text: str, source: MacroSource, where: Where) -> str:
    """Fill in what HTCondor would, once it has a machine: $$(ATTRIBUTE:default) and $$([EXPRESSION])."""
    parts: list[str] = []
    at = 0
    while (begin := text.find("$$([", at)) >= 0:
        end = text.find("])", begin)
        if end < 0:
            raise where.wrong(f"{text!r:.60}: the ]) that ends $$([ is missing")
        inner = text[begin + 4 : end]
        inner = _MACRO.sub(lambda match: _value(match, source.lookup), inner).replace('""', '"')
        try:
            value = shown(evaluate(inner, source.attributes()))
        except ValueError as error:
            raise where.wrong(f"$$([{inner:.60}]): {error}") from None
        parts += [text[at:begin], value]
        at = end + 2
    text = "".join([*parts, text[at:]])
    return _TARGET.sub(lambda match: _attribute(match, source.attributes()), text)


def _attribute(match: re.Match[str], attributes: Mapping[str, Value]) -> str:
    value = attributes.get(match[1].lower().removeprefix("target.").removeprefix("my."))
    return shown(value) if value is not None else match[2] if match[2] is not None else "undefined"


@functools.cache  # a queue may ask for a million jobs
def machine_attributes() -> dict[str, Value]:
    """What HTCondor tells of a machine, for the one that reads the description."""
    system, _, _, _, kind = os.uname()
    page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    return {
        "arch": kind.upper(),
        "opsys": system.upper(),
        "machine": socket.gethostname(),
        "name": socket.gethostname(),
        "cpus": os.cpu_count() or 1,
        "totalcpus": os.cpu_count() or 1,
        "memory": page * pages >> 20,
        "totalmemory": page * pages >> 20,
    }


# --- functions --------------------------------------------------------------------------------------------


def _call(match: re.Match[str], source: MacroSource, where: Where) -> str:
    lookup = source.lookup
    name, given = match[1], match[2]
    words = [word.strip() for word in given.split(",")]
    try:
        if name == "ENV":
            variable, _, default = given.partition(":")
            return os.environ.get(variable.strip(), default)
        if name == "EVAL":
            inner = lookup(given.strip().lower())
            return shown(evaluate(given if inner is None else inner, source.attributes()))
        if name.startswith("RANDOM"):
            return _random(name, words, random.Random(f"{source.dice()} {match[0]}"))
        value = lookup(words[0].lower())
        if name == "CHOICE":
            return _choice(words, value, lookup)
        text = words[0] if value is None else value
        if name == "SUBSTR":
            start = int(words[1])
            rest = text[start:] if start >= 0 else text[max(0, len(text) + start) :]
            return rest[: int(words[2])] if len(words) > 2 else rest
        if name in ("INT", "REAL", "STRING"):
            return _formatted(name, text, words[1] if len(words) > 1 else "", source.attributes())
        return _path_part(name, text)
    except InvalidWorkload:  # of a macro inside: it says where
        raise
    except (ValueError, IndexError, TypeError, OverflowError) as error:
        raise where.wrong(f"{match[0]:.60}: {error}") from None


def _random(name: str, words: list[str], dice: random.Random) -> str:
    if name == "RANDOM_CHOICE":
        return dice.choice(words)
    low, high, step = int(words[0]), int(words[1]), int(words[2]) if len(words) > 2 else 1
    if not (low <= high and step > 0):
        raise ValueError("the first number is the least, and the step is above 0")
    return str(dice.randrange(low, high + 1, step))


def _choice(words: list[str], value: str | None, lookup: Lookup) -> str:
    """$CHOICE(index, list) or $CHOICE(index, item, item, ...)."""
    said = value or _CONFIGURED.get(words[0].lower(), words[0])
    at = {"false": 0, "true": 1}.get(said.lower(), -1)
    at = int(said) if at < 0 else at
    items = words[1:]
    if len(items) == 1:
        items = (lookup(items[0].lower()) or items[0]).replace(",", " ").split()
    if not 0 <= at < len(items):
        raise ValueError(f"there is no item {at}")
    return items[at]


def _formatted(name: str, text: str, form: str, attributes: Mapping[str, Value]) -> str:
    if len(form) > 20 or (form and re.fullmatch(r"%[-+ 0#]*\d{0,3}(?:\.\d{1,2})?[a-zA-Z]", form) is None):
        raise ValueError(f"{form:.20} is no format such as %05d")
    if name == "STRING":
        return form % text if form else text
    found = evaluate(text, attributes)
    number = float(text) if found is None or isinstance(found, str) else float(found)
    if name == "INT":
        return (form or "%d") % int(number)
    return form % number if form else f"{number:.15g}"


def _path_part(name: str, text: str) -> str:
    """$Fpdnx(NAME): the folder, its last part, the stem, the ending; $BASENAME and $DIRNAME."""
    text = text.strip().strip('"')
    modes = {"BASENAME": "nx", "DIRNAME": "p"}.get(name, name[1:])
    if "f" in modes:
        text = os.path.abspath(text)
    folder, base = os.path.split(text)
    stem, ending = os.path.splitext(base)
    made = ""
    if "p" in modes:
        made += f"{folder}/" if folder else ""
    elif "d" in modes:
        made += f"{os.path.basename(folder)}/" if folder else ""
    if "b" in modes:
        made = made.rstrip("/")
        ending = ending.removeprefix(".")
    if "n" in modes:
        made += stem
    if "x" in modes:
        made += ending
    if not set(modes) & set("pdnx"):
        made = text
    if name == "DIRNAME":
        return folder
    return f'"{made}"' if "q" in modes else f"'{made}'" if "a" in modes else made
