"""Submit descriptions of HTCondor, as far as they say what to run: program, arguments, surroundings, needs.

What concerns HTCondor alone (log, notification, file transfer, ranks, attributes of its own) is left out. Syntax as in
the HTCondor manual, chapters "Submitting a Job" and "condor_submit". Rule: a setting that changes what runs and is not
understood is an error with file and line, never passed over.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bough.describe.plan import Where
from bough.model.bounds import LONGEST

RETRY = "\0retry\0"  # stands for the number of the retry in a word, until the word is quoted

_MACRO = re.compile(r"\$\(([\w.+-]+)(?::([^()$]*))?\)")
_ENV = re.compile(r"\$ENV\((\w+)(?::([^()$]*))?\)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?\Z", re.IGNORECASE)
_SCALE = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}  # the manual: MiB unless said
_WORD = re.compile(r"(?:'(?:[^']|'')*'|[^\s'])+")
_PIECE = re.compile(r"'(?:[^']|'')*'")
_REFUSED = ("if", "elif", "else", "endif", "include", "use")
_UNIVERSES = frozenset({"", "vanilla", "local", "scheduler", "5", "7", "12"})
_OFTEN = frozenset({"arguments", "args", "input", "output", "error"})  # what mostly is all that macros change
_UNSAFE = re.compile(r"[^\w@%+=:,./ -]", re.ASCII)  # what a shell may make something of
_DEPTH = 20
_DIGITS = 9  # of a number of processes
_LONG = 1 << 20  # characters of a value with its macros filled in
_MANY = 10_000  # macros in one value


@dataclass(slots=True)
class Submit:
    """One description, not expanded yet; keys in small letters."""

    file: str
    values: dict[str, tuple[str, int]] = field(default_factory=dict)
    queue: str = "1"
    line: int = 0  # of `queue`
    environments: dict[str, dict[str, str]] = field(default_factory=dict)  # by the texts that were read already
    jobs: dict[str, SubmitJob] = field(
        default_factory=dict
    )  # by folder: one of them, if all differ in what `_OFTEN` names


@dataclass(slots=True)
class SubmitJob:
    """What one process of a job runs."""

    words: list[str]
    folder: str  # where it runs
    environment: dict[str, str]
    input: str = ""
    output: str = ""
    error: str = ""
    cores: float = 1
    memory: int = 0
    priority: int = 0
    retries: int = 0

    def text(self) -> str:
        """As a command for a shell."""
        plain = " ".join(self.words)
        safe = _UNSAFE.search(plain) is None and plain.count(" ") == len(self.words) - 1 and "" not in self.words
        parts = [plain] if safe else [quote(word) for word in self.words]
        for mark, path in (("<", self.input), (">", self.output), ("2>", self.error)):
            if path:
                parts.append("2>&1" if mark == "2>" and path == self.output else f"{mark} {quote(path)}")
        return " ".join(parts)


def quote(word: str) -> str:
    """A word for a shell, in which the number of the retry is filled in when it runs."""
    quoted = shlex.quote(word)
    return quoted.replace(RETRY, "'\"$retry\"'") if RETRY in word else quoted


def parse(lines: Iterable[tuple[int, str]], file: str) -> Submit:
    """Read a description from its numbered lines."""
    found = Submit(file)
    for number, line in joined(lines):
        first = line.split(None, 1)[0].lower()
        if first == "queue":
            found.queue = line[5:].strip() or "1"
            found.line = number
            continue
        if first in _REFUSED and "=" not in line:
            raise Where(file, number).wrong(f"{first}: submit descriptions with it are not read; write it out")
        key, equals, value = line.partition("=")
        if not equals:
            raise Where(file, number).wrong(f"{line!r:.60} is no `name = value` and no `queue`")
        found.values[key.strip().lower()] = (value.strip(), number)
    return found


def joined(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines with what continues them, without comments and empty ones, with the number of their first line."""
    text, first = "", 0
    for number, raw in lines:
        line = raw.strip()
        if not text and (not line or line[0] == "#"):
            continue
        first = first or number
        if line.endswith("\\"):
            text += line[:-1]
            continue
        yield first, (text + line).strip()
        text, first = "", 0
    if text.strip():
        yield first, text.strip()


class Expander:
    """Expands one description for one node."""

    def __init__(self, submit: Submit, macros: Mapping[str, str], *, base: str) -> None:
        self.submit = submit
        self.macros = macros
        self.base = base  # the folder from which the job would be submitted

    def get(self, *keys: str) -> tuple[str, Where]:
        """The value of the first of these settings that is there, expanded."""
        for key in keys:
            found = self.submit.values.get(key)
            if found is not None:
                where = Where(self.submit.file, found[1])
                value = found[0]
                return (self.expand(value, where) if "$" in value else value), where
        return "", Where(self.submit.file, self.submit.line)

    def expand(self, text: str, where: Where) -> str:
        """A text with its macros filled in."""
        for _ in range(_DEPTH):
            if text.count("$(") > _MANY:
                raise where.wrong(f"{text!r:.60}: its macros name more than {_MANY} others")
            if "$$(" in text:
                raise where.wrong(f"{text!r:.60}: $$(...) stands for an attribute of HTCondor's machine; write it out")
            text = _MACRO.sub(self._value, text)
            if len(text) > _LONG:
                raise where.wrong(f"{text!r:.60}: its macros stand for more than {_LONG} characters")
            if "$ENV(" in text:
                text = _ENV.sub(lambda match: os.environ.get(match[1], match[2] or ""), text)
            if not _MACRO.search(text):
                return text.replace("\0dollar\0", "$")
        raise where.wrong(f"{text!r:.60}: its macros name each other")

    def _value(self, match: re.Match[str]) -> str:
        name = match[1].lower()
        if name == "dollar":
            return "\0dollar\0"
        if name in self.macros:
            return self.macros[name]
        found = self.submit.values.get(name)
        return found[0] if found is not None else match[2] or ""

    def count(self) -> int:
        """How many processes it queues."""
        where = Where(self.submit.file, self.submit.line)
        text = self.expand(self.submit.queue, where)
        if not text.isdecimal() or len(text) > _DIGITS:
            raise where.wrong(f"queue {text:.60}: give a number; lists of items are not read")
        return int(text)

    def job(self) -> SubmitJob:
        """What one process runs."""
        known = self.submit.jobs.get(self.base)
        if known is not None:
            arguments, where = self.get("arguments", "args")
            return SubmitJob(
                [known.words[0], *_arguments(arguments, where)],
                known.folder,
                known.environment,
                self.get("input")[0],
                self.get("output")[0],
                self.get("error")[0],
                known.cores,
                known.memory,
                known.priority,
                known.retries,
            )
        made = self._job()
        if not any("$" in value for key, (value, _) in self.submit.values.items() if key not in _OFTEN):
            self.submit.jobs[self.base] = made
        return made

    def _job(self) -> SubmitJob:
        universe, where = self.get("universe")
        if universe.lower() not in _UNIVERSES:
            raise where.wrong(f"universe {universe}: only vanilla jobs run here")
        program, where = self.get("executable")
        if not program:
            raise where.wrong("the submit description has no executable")
        arguments, where = self.get("arguments", "args")
        environment, env_where = self.get("environment", "env")
        initial = self.get("initialdir", "initial_dir", "iwd")[0]
        return SubmitJob(
            [self._program(program, moved=bool(initial)), *_arguments(arguments, where)],
            os.path.join(self.base, initial) if initial else self.base,
            self._environment(environment, env_where),
            self.get("input")[0],
            self.get("output")[0],
            self.get("error")[0],
            self._number("request_cpus", 1),
            self._memory(),
            round(self._number("priority", 0, least=-LONGEST)),
            round(self._number("max_retries", 0)),
        )

    def _environment(self, text: str, where: Where) -> dict[str, str]:
        known = self.submit.environments.get(text)
        if known is None:
            known = self.submit.environments[text] = dict(_assignments(text, where))
        return known

    def _program(self, name: str, *, moved: bool) -> str:
        """The program as its job calls it: a path from where it was submitted, or a name to be looked for."""
        if name.startswith("/"):
            return name
        path = os.path.join(self.base, name)
        if "/" not in name:
            if not os.path.exists(path):
                return name
            name = f"./{name}"
        return os.path.abspath(path) if moved else name

    def _number(self, key: str, default: float, least: float = 0) -> float:
        text, where = self.get(key)
        try:
            found = (int(text) if text.lstrip("+-").isdecimal() else float(text)) if text else default
        except ValueError:
            found = math.nan
        if not least <= found <= LONGEST:
            raise where.wrong(f"{key} = {text:.60}: give a number that a job can have")
        return found

    def _memory(self) -> int:
        text, where = self.get("request_memory")
        if not text:
            return 0
        match = _SIZE.match(text)
        if match is None:
            raise where.wrong(f"request_memory = {text}: give an amount such as 512 or 2GB")
        amount = float(match[1]) * _SCALE[match[2].upper()]
        if amount > LONGEST:
            raise where.wrong(f"request_memory = {text:.60}: no machine has so much")
        return int(amount)


def _arguments(text: str, where: Where) -> list[str]:
    if text.startswith('"'):
        return list(_quoted(text, where))
    return [word.replace('\\"', '"') for word in text.split()]


def _assignments(text: str, where: Where) -> Iterator[tuple[str, str]]:
    words = _quoted(text, where) if text.startswith('"') else filter(None, map(str.strip, text.split(";")))
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise where.wrong(f"environment: {word!r:.60} is no name=value")
        yield name, value


def _quoted(text: str, where: Where) -> Iterator[str]:
    """The words of the newer syntax: double quotes around all, single ones around words with blanks."""
    if len(text) < 2 or not text.endswith('"'):
        raise where.wrong(f"{text!r:.60}: the closing double quote is missing")
    inner = text[1:-1].replace('""', '"')
    if inner.count("'") % 2:
        raise where.wrong(f"{text!r:.60}: a single quote is not closed")
    for word in _WORD.findall(inner):
        yield _PIECE.sub(_unquoted, word) if "'" in word else word


def _unquoted(match: re.Match[str]) -> str:
    return match[0][1:-1].replace("''", "'")
