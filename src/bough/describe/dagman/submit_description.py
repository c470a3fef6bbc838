"""Submit descriptions of HTCondor, as far as they say what to run: program, arguments, surroundings, needs.

A description is a list of statements: settings, `if`, `include` and `queue`. For each node they are gone through with
its macros, as `condor_submit` does; most descriptions have no conditions and one `queue`, and are gone through once.
What concerns HTCondor alone (log, notification, file transfer, ranks, attributes of its own) is left out. Syntax as in
the HTCondor manual, chapters "Submitting a Job" and "condor_submit". Rule: a setting that changes what runs and is not
understood is an error with file and line, never passed over; those that HTCondor judges a job by are noted.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bough.describe.dagman import submit_macros
from bough.describe.dagman.classad_expression import Value, evaluate
from bough.describe.dagman.queue_statement import queue_size, queued
from bough.describe.dagman.submit_macros import FAILED, RETRY, STATUS, machine_attributes
from bough.describe.plan import Where
from bough.describe.source_files import read_file
from bough.model.bounds import LONGEST

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?\Z", re.IGNORECASE)
_SCALE = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}  # the manual: MiB unless said
_WORD = re.compile(r"(?:'(?:[^']|'')*'|[^\s'])+")
_PIECE = re.compile(r"'(?:[^']|'')*'")
_STATEMENT = re.compile(r"(if|elif|else|endif|include|use)\b(?!\s*=)\s*(.*)\Z", re.IGNORECASE | re.DOTALL)
_INCLUDE = re.compile(r"(ifexist\s*)?:\s*(.*)\Z", re.IGNORECASE | re.DOTALL)
_VERSION = re.compile(r"version\s*(<=|>=|==|!=|<|>)\s*(\d+(?:\.\d+){0,2})\Z", re.IGNORECASE)
_UNIVERSES = frozenset({"", "vanilla", "local", "scheduler", "parallel", "container", "docker", "5", "7", "11", "12"})
_OFTEN = frozenset({"arguments", "args", "input", "output", "error"})  # what mostly is all that macros change
_SELDOM = frozenset(
    {
        *("universe", "executable", "environment", "env", "initialdir", "initial_dir", "iwd", "request_cpus"),
        *(
            "request_memory",
            "priority",
            "max_retries",
            "transfer_executable",
            "machine_count",
            "noop_job",
            "container_image",
        ),
        *("docker_image", "noop_job_exit_code", "prio"),
    }
)  # the other settings that count
_JUDGING = (
    *("periodic_hold", "periodic_remove", "periodic_release", "on_exit_hold", "on_exit_remove", "success_exit_code"),
    *("retry_until", "hold", "deferral_time", "cron_minute", "cron_hour", "allowed_execute_duration"),
    *("allowed_job_duration", "noop_job_exit_signal"),
)  # settings by which HTCondor judges, stops or delays a job
_YES = frozenset({"true", "yes", "t", "y", "1"})
_NO = frozenset({"false", "no", "f", "n", "0", ""})
_UNSAFE = re.compile(r"[^\w@%+=:,./ -]", re.ASCII)  # what a shell may make something of
_OUR_VERSION = (25, 0, 0)  # of the HTCondor whose syntax this is
_ALONE = {"process": "0", "procid": "0", "step": "0", "row": "0", "itemindex": "0"}  # macros of an only job
_NESTED = 20  # files that include each other

Note = Callable[[str], None]
Values = dict[str, tuple[str, Where]]


@dataclass(slots=True)
class Submit:
    """One description; keys in small letters."""

    file: str
    statements: list[tuple[int, str]] = field(default_factory=list)  # lines with what continues them
    values: Values = field(default_factory=dict)  # of a plain one, as they are at its `queue`
    is_plain: bool = True  # it has no conditions, includes nothing, and queues once
    queue: str = ""
    line: int = 0  # of `queue`
    noted: set[str] = field(default_factory=set)
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


_VARIABLES = {RETRY: "$retry", STATUS: "$dag_status", FAILED: "$failed"}


def quote(word: str) -> str:
    """A word for a shell, in which what is known only when it runs is filled in then: the retry, the DAG's state."""
    quoted = shlex.quote(word)
    if "\0" in word:
        for mark, variable in _VARIABLES.items():
            quoted = quoted.replace(mark, f"'\"{variable}\"'")
    return quoted


def parse(lines: Iterable[tuple[int, str]], file: str) -> Submit:
    """Read a description from its numbered lines."""
    found = Submit(file, list(_statements(joined(lines), file)))
    queues = 0
    for number, line in found.statements:
        if _is_queue(line):
            queues += 1
            found.queue, found.line = line[5:].strip(), number
            continue
        said, pair = _STATEMENT.match(line), _assignment(line)
        if said is not None and said[1].lower() == "use":
            raise Where(file, number).wrong("use: templates of HTCondor's configuration are not known here")
        if said is None and pair is None:
            raise Where(file, number).wrong(f"{line!r:.60} is no `name = value` and no `queue`")
        if said is not None or queues:  # what follows a `queue` concerns a later one alone
            found.is_plain = False
        elif pair is not None:
            _assign(found.values, *pair, Where(file, number))
    if queues > 1:
        found.is_plain = False
    if not found.is_plain:
        found.values = {}
    return found


def _assignment(line: str) -> tuple[str, str] | None:
    key, equals, value = line.partition("=")
    key = key.strip()
    if not equals or not key or " " in key or "\t" in key or key.startswith("("):
        return None
    return key.lower().replace("my.", "+", 1) if key.lower().startswith("my.") else key.lower(), value.strip()


def _assign(values: Values, key: str, value: str, where: Where) -> None:
    """Give a setting its value; one that names itself means what it was before."""
    if f"$({key}" in value.lower():
        before = values[key][0] if key in values else ""
        value = re.sub(
            rf"\$\({re.escape(key)}(?::([^()$]*))?\)",
            lambda match: before or match[1] or "",
            value,
            flags=re.IGNORECASE,
        )
    values[key] = (value, where)


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
        if (text + line).strip():
            yield first, (text + line).strip()
        text, first = "", 0
    if text.strip():
        yield first, text.strip()


def _statements(lines: Iterator[tuple[int, str]], file: str) -> Iterator[tuple[int, str]]:
    """Lines, of which a list in parentheses that follows `queue` is one."""
    for number, first in lines:
        line = first
        if line[:5].lower() == "queue" and line.endswith("(") and _assignment(line) is None:
            parts = [line]
            for _, more in lines:
                parts.append(more)
                if more.startswith(")"):
                    break
            else:
                raise Where(file, number).wrong("queue: the ) that ends the list is missing")
            line = "\n".join(parts)
        yield number, line


class Expander:
    """Expands one description for one node."""

    def __init__(
        self,
        submit: Submit,
        known: Mapping[str, str],
        *,
        before: Mapping[str, str],
        after: Mapping[str, str],
        base: str,
        attributes: Callable[[], Mapping[str, Value]] = dict,
        note: Note = lambda text: None,
    ) -> None:
        self.submit = submit
        self.known = known  # what DAGMan tells: the node's name and so on
        self.before = before  # macros that the description may change
        self.after = after  # macros that change the description
        self.base = base  # the folder from which the job would be submitted
        self.own_attributes = attributes
        self.note = note
        self.item: Mapping[str, str] = {}  # of one process
        self.values: Values = submit.values

    # --- macros -----------------------------------------------------------------------------------------

    def lookup(self, name: str) -> str | None:
        """What a macro stands for, not expanded."""
        if name in self.item:
            return self.item[name]
        if name in self.after:
            return self.after[name]
        found = self.values.get(name)
        if found is not None:
            return found[0]
        return self.before[name] if name in self.before else self.known.get(name)

    @property
    def names_a_program(self) -> bool:
        """Whether it says what to run; of a description that is not plain, that is seen when it is gone through."""
        return not self.submit.is_plain or any(self.lookup(key) is not None for key in ("executable", "noop_job"))

    def get(self, *keys: str) -> tuple[str, Where]:
        """The value of the first of these settings that is there, expanded."""
        for key in keys:
            value = self.lookup(key)
            if value is not None:
                found = self.values.get(key)
                where = found[1] if found is not None else Where(self.submit.file, self.submit.line)
                return (self.expand(value, where) if "$" in value else value), where
        return "", Where(self.submit.file, self.submit.line)

    def _text(self, key: str) -> str:
        value = self.lookup(key)
        return "" if value is None else value if "$" not in value else self.get(key)[0]

    def expand(self, text: str, where: Where) -> str:
        """A text with its macros filled in."""
        return submit_macros.expand(text, self, where)

    def dice(self) -> str:
        """What chance depends on: the node and the process."""
        return f"{self.known.get('job', '')} {self.item.get('process', '0')}"

    def attributes(self) -> dict[str, Value]:
        """What ClassAd expressions know: this machine, the node, and the description's own attributes."""
        found: dict[str, Value] = {**machine_attributes(), **self.own_attributes()}
        pairs = [*((key, value) for key, (value, _) in self.values.items()), *self.before.items(), *self.after.items()]
        for key, value in pairs:
            if key[0] == "+":
                try:
                    found[key[1:].lower()] = evaluate(value, found)
                except ValueError:
                    found[key[1:].lower()] = value
        return found

    # --- statements -------------------------------------------------------------------------------------

    def jobs(self) -> Iterator[SubmitJob]:
        """What the processes of the job run, in order."""
        if self.submit.is_plain:
            where = Where(self.submit.file, self.submit.line)
            for item in self._queued(self.submit.queue, where):
                self.item = item
                yield self.job()
            return
        self.values = {}
        number = 0
        for text, where in self._walk(self.submit.statements, self.submit.file, 0):
            for item in self._queued(text, where):
                self.item = {**item, "process": str(number), "procid": str(number)}
                number += 1
                yield self.job()
            self.item = {}
        if not number and not any(_is_queue(line) for _, line in self.submit.statements):
            yield self.one()

    def count(self) -> int:
        """How many jobs there are, without making them."""
        if self.submit.is_plain:
            return self._size(self.submit.queue, Where(self.submit.file, self.submit.line))
        self.values = {}
        sizes = [self._size(text, where) for text, where in self._walk(self.submit.statements, self.submit.file, 0)]
        return sum(sizes) if any(_is_queue(line) for _, line in self.submit.statements) else sum(sizes) or 1

    def _size(self, text: str, where: Where) -> int:
        return queue_size(text, self.base, self.expand, where) if text else 1

    def one(self) -> SubmitJob:
        """The only job of a plain description without `queue`, or with a bare one."""
        self.item = _ALONE
        return self.job()

    def _queued(self, text: str, where: Where) -> Iterator[dict[str, str]]:
        if not text:
            yield dict(_ALONE)
            return
        yield from queued(text, self.base, self.expand, where)

    def _walk(self, statements: list[tuple[int, str]], file: str, depth: int) -> Iterator[tuple[str, Where]]:
        """Go through statements, the values changing; each `queue` on the way."""
        if depth > _NESTED:
            raise Where(file, 1).wrong(f"more than {_NESTED} descriptions include each other")
        branches: list[tuple[bool, bool]] = []  # of each `if`: whether this part counts, whether one has counted
        for number, line in statements:
            where = Where(file, number)
            active = all(counts for counts, _ in branches)
            found = _STATEMENT.match(line)
            if found is not None:
                word, rest = found[1].lower(), found[2].strip()
                if word == "include":
                    if active:
                        yield from self._include(rest, file, where, depth)
                else:
                    self._branch(word, rest, branches, active, where)
            elif not active:
                continue
            elif _is_queue(line):
                yield line[5:].strip(), where
            else:
                pair = _assignment(line)
                if pair is None:
                    raise where.wrong(f"{line!r:.60} is no `name = value` and no `queue`")
                _assign(self.values, *pair, where)
        if branches:
            raise Where(file, statements[-1][0]).wrong("the endif that ends this if is missing")

    def _branch(self, word: str, rest: str, branches: list[tuple[bool, bool]], active: bool, where: Where) -> None:
        if word == "if":
            truth = active and self._truth(rest, where)
            branches.append((truth, truth))
            return
        if not branches:
            raise where.wrong(f"{word} without if")
        _, before = branches.pop()
        if word == "endif":
            return
        outer = all(counts for counts, _ in branches)
        truth = outer and not before and (word == "else" or self._truth(rest, where))
        branches.append((truth, before or truth))

    def _truth(self, text: str, where: Where) -> bool:
        """Whether a condition holds: defined NAME, version >= 8.1.2, a truth value, or an expression."""
        text = text.strip()
        if text.startswith("!"):
            return not self._truth(text[1:], where)
        words = text.split()
        if words and words[0].lower() == "defined":
            if len(words) > 2:
                raise where.wrong(f"if {text:.60}: defined is followed by one name")
            return len(words) == 2 and (self.lookup(words[1].lower()) or "") != ""
        version = _VERSION.match(text)
        if version is not None:
            wanted = tuple(map(int, version[2].split(".")))
            ours = _OUR_VERSION[: len(wanted)]
            return bool(evaluate(f"{(ours > wanted) - (ours < wanted)} {version[1]} 0", {}))
        said = self.expand(text, where).strip()
        if said.lower() in _YES or said.lower() in _NO:
            return said.lower() in _YES
        try:
            return bool(evaluate(said, self.attributes()))
        except ValueError as error:
            raise where.wrong(f"if {said:.60}: {error}") from None

    def _include(self, rest: str, file: str, where: Where, depth: int) -> Iterator[tuple[str, Where]]:
        said = _INCLUDE.match(rest)
        if said is None or said[2].rstrip().endswith("|"):
            raise where.wrong(f"include {rest:.60}: give a file; programs are not run to read a description")
        path = os.path.join(self.base, self.expand(said[2], where).strip())
        try:
            text = read_file(path).decode("utf-8-sig", "replace")
        except OSError as error:
            if said[1]:
                return
            raise where.wrong(f"cannot read {path}, which is included: {error.strerror}") from None
        inner = list(_statements(joined(enumerate(text.split("\n"), start=1)), path))
        yield from self._walk(inner, path, depth + 1)

    # --- jobs -------------------------------------------------------------------------------------------

    def job(self) -> SubmitJob:
        """What one process runs."""
        submit = self.submit
        usual = submit.is_plain and self._is_usual()
        known = submit.jobs.get(self.base) if usual else None
        if known is not None:
            arguments, where = self.get("arguments", "args")
            return SubmitJob(
                [known.words[0], *_arguments(arguments, where)],
                known.folder,
                known.environment,
                self._text("input"),
                self._text("output"),
                self._text("error"),
                known.cores,
                known.memory,
                known.priority,
                known.retries,
            )
        made = self._job()
        if usual and not any("$" in value for key, (value, _) in submit.values.items() if key not in _OFTEN):
            submit.jobs[self.base] = made
        return made

    def _is_usual(self) -> bool:
        """Whether macros do not set anything but what differs from job to job anyway."""
        return _SELDOM.isdisjoint(self.item) and _SELDOM.isdisjoint(self.before) and _SELDOM.isdisjoint(self.after)

    def _job(self) -> SubmitJob:
        self._check_universe()
        self._note_judging()
        program, where = self.get("executable")
        arguments, arguments_where = self.get("arguments", "args")
        words = _arguments(arguments, arguments_where)
        initial = self.get("initialdir", "initial_dir", "iwd")[0]
        if self.get("noop_job")[0].lower() in _YES:
            words = ["sh", "-c", f"exit {round(self._number('noop_job_exit_code', 0))}"]
        elif not program:
            raise where.wrong("the submit description has no executable")
        else:
            words.insert(0, self._program(program, moved=bool(initial)))
        environment, env_where = self.get("environment", "env")
        return SubmitJob(
            words,
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

    def _check_universe(self) -> None:
        universe, where = self.get("universe")
        kind = universe.lower()
        if kind not in _UNIVERSES:
            raise where.wrong(f"universe {universe:.40}: only vanilla, local and scheduler jobs run here")
        if kind in ("docker", "container") or self.get("docker_image")[0] or self.get("container_image")[0]:
            raise where.wrong(
                "the job runs in a container, which is not started here; put the call into the executable"
            )
        if kind in ("parallel", "11") and self._number("machine_count", 1) > 1:
            raise where.wrong("universe parallel: a job runs on one machine here; set machine_count = 1")

    def _note_judging(self) -> None:
        for key in _JUDGING:
            if key not in self.submit.noted and (found := self.values.get(key)) is not None:
                self.submit.noted.add(key)
                self.note(f"{found[1].file}:{found[1].line}: {key} is passed over")

    def _environment(self, text: str, where: Where) -> dict[str, str]:
        known = self.submit.environments.get(text)
        if known is None:
            known = self.submit.environments[text] = dict(assignments(text, where))
        return known

    def _program(self, name: str, *, moved: bool) -> str:
        """The program as its job calls it: a path from where it was submitted, or a name to be looked for."""
        if name.startswith("/") or self.get("transfer_executable")[0].lower() in _NO - {""}:
            return name
        found = local_program(name, self.base)
        return os.path.abspath(os.path.join(self.base, found)) if moved and "/" in found else found

    def _number(self, key: str, default: float, least: float = 0) -> float:
        text, where = self.get(key)
        try:
            found = (int(text) if text.lstrip("+-").isdecimal() else float(text)) if text else default
        except ValueError:
            found = self._calculated(text)
        if not least <= found <= LONGEST:
            raise where.wrong(f"{key} = {text:.60}: give a number that a job can have")
        return found

    def _calculated(self, text: str) -> float:
        try:
            found = evaluate(text, self.attributes())
        except ValueError:
            return math.nan
        return float(found) if isinstance(found, int | float) else math.nan

    def _memory(self) -> int:
        text, where = self.get("request_memory")
        if not text:
            return 0
        match = _SIZE.match(text)
        number = float(match[1]) if match is not None else self._calculated(text)
        amount = number * _SCALE[match[2].upper() if match is not None else ""]
        if math.isnan(amount):
            raise where.wrong(f"request_memory = {text:.60}: give an amount such as 512 or 2GB")
        if not 0 <= amount <= LONGEST:
            raise where.wrong(f"request_memory = {text:.60}: no machine has so much")
        return int(amount)


def _is_queue(line: str) -> bool:
    return line.split(None, 1)[0].lower() == "queue" and _assignment(line) is None


def local_program(name: str, folder: str) -> str:
    """A program that is named without a folder: the one that is, or will be, in the folder, else one of the system."""
    if "/" in name:
        return name
    if not os.path.exists(os.path.join(folder, name)) and shutil.which(name):
        return name
    return f"./{name}"


def _arguments(text: str, where: Where) -> list[str]:
    if text.startswith('"'):
        return list(_quoted(text, where))
    return [word.replace('\\"', '"') for word in text.split()]


def assignments(text: str, where: Where) -> Iterator[tuple[str, str]]:
    """NAME=VALUE pairs: divided by semicolons, or in double quotes and divided by blanks."""
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
