r"""Job files of OurGrid and MyGrid (`.jdf`): a bag of tasks, each with what is put, run and got.

    job:
      label: blast
      requirements: (os == linux && mem >= 512)
      init: store db/slice-1.fa slice-1.fa
      remote: blastall -d $STORAGE/slice-1.fa -i query.fa -o hits.$TASK
      final: get hits.$TASK results/hits.$TASK
      check: test -s hits.$TASK
    task:
      init: put query-1.fa query.fa
    task:
      init:
        if (os == linux) then
          put query-2.fa query.fa
        else
          put query-2.txt query.fa
        endif

What `job:` says is there for every task that does not say it itself; `none` says that there is nothing. `init` has
`put` and `store`, `final` has `get`; `$JOB` and `$TASK` stand for numbers. A task runs in a playpen of its own
(`Transfer`), and `check` runs there behind it: if that fails, the task has. It is tried three times, as OurGrid does.
Rule: either the whole text is understood, or the error names file and line and nothing of it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from bough.describe.plan import Plan, PlanTask, PlanTransfer, Where
from bough.errors import BoughError
from bough.model.commands.playpens import check_remote
from bough.model.sites.requirements import join_requirements, read_requirement

_KINDS: dict[str, Literal["put", "store", "get"]] = {"put": "put", "store": "store", "get": "get"}
RETRIES = 2  # a task fails after three failed copies
_SECTION = re.compile(r"\s*(job|task|label|requirements|init|remote|final|check)\s*:(?:\s+(.*)|\s*)\Z", re.DOTALL)
_FIRST = re.compile(r"\s*job\s*:\s*\Z")
_TOKEN = re.compile(r"\s*(&&|\|\||==|!=|<=|>=|[()<>=!]|\"[^\"]*\"|'[^']*'|[^\s()<>=!&|\"']+)")
_WORDS = {"&&": "and", "||": "or", "!": "not", "=": "==", "and": "and", "or": "or", "not": "not"}
_COMPARING = frozenset({"==", "!=", "<", "<=", ">", ">="})
_MEGABYTES = 1024.0  # of a gigabyte: OurGrid counts memory in these
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_DEEPEST = 20  # conditions in conditions


class _Line(NamedTuple):
    number: int
    text: str


class _Block(NamedTuple):
    """`job:` or one `task:`: its sections, each with its lines."""

    line: int
    sections: dict[str, list[_Line]]


def is_job_file(path: str, text: str) -> bool:
    """Whether a text is a job file: by its name, or because its first line says so."""
    if path.endswith(".jdf"):
        return True
    return next((bool(_FIRST.match(line.text)) for line in _lines(text)), False)


def read(text: str, filename: str) -> Plan:
    """The plan of a job file."""
    if "\0" in text:
        raise Where(filename, text.count("\n", 0, text.index("\0")) + 1).wrong("a job file is plain text, without NUL")
    job, tasks = _blocks(text, filename)
    label = _one_line(job, "label", filename) or "job"
    plan = Plan(source=filename)
    for number, block in enumerate(tasks, 1):
        plan.root.tasks.append(_task(job, block, number, label, filename))
    return plan


def _lines(text: str) -> Iterator[_Line]:
    """Lines that say something."""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield _Line(number, stripped)


class _Blocks:
    """The blocks of a job file, as its lines come."""

    def __init__(self, filename: str) -> None:
        self._filename = filename
        self.job: _Block | None = None
        self.tasks: list[_Block] = []
        self._into: list[_Line] | None = None

    def take(self, line: _Line) -> None:
        """The next line."""
        where = Where(self._filename, line.number)
        found = _SECTION.match(line.text)
        name, rest = (found[1], (found[2] or "").strip()) if found else ("", "")
        if name in {"job", "task"}:
            if rest:
                raise where.wrong(f"{name}: stands alone; what it says follows on the next lines")
            self._begin(name, where)
        elif self.job is None:
            raise where.wrong("a job file begins with job:")
        elif name:
            self._open(name, self.tasks[-1] if self.tasks else self.job, where).append(_Line(line.number, rest))
        elif self._into is None:
            raise where.wrong(f"{line.text!r:.60} belongs to no section; they are init, remote, final and check")
        else:
            self._into.append(line)

    def _begin(self, name: str, where: Where) -> None:
        if (name == "job") != (self.job is None):
            raise where.wrong("a job file begins with job:, and has it once")
        block = _Block(where.line, {})
        self._into = None
        if name == "job":
            self.job = block
        else:
            self.tasks.append(block)

    def _open(self, name: str, block: _Block, where: Where) -> list[_Line]:
        if name in block.sections:
            raise where.wrong(f"{name}: is there already (line {block.sections[name][0].number})")
        if name in {"label", "requirements"} and self.tasks:
            raise where.wrong(f"{name}: is for the job, before its first task:")
        self._into = block.sections[name] = []
        return self._into


def _blocks(text: str, filename: str) -> tuple[_Block, list[_Block]]:
    found = _Blocks(filename)
    for line in _lines(text):
        found.take(line)
    if found.job is None:
        raise Where(filename).wrong("it has no job:")
    if not found.tasks:
        raise Where(filename, found.job.line).wrong("the job has no task:")
    return found.job, found.tasks


def _section(job: _Block, block: _Block, name: str) -> list[_Line]:
    """The lines of a section of a task, or of the job; `none` is nothing."""
    lines = [line for line in block.sections.get(name, job.sections.get(name, ())) if line.text]
    return [] if len(lines) == 1 and lines[0].text == "none" else lines


def _one_line(block: _Block, name: str, filename: str) -> str:
    lines = [line for line in block.sections.get(name, ()) if line.text]
    if len(lines) > 1:
        raise Where(filename, lines[1].number).wrong(f"{name}: has one line")
    return lines[0].text if lines else ""


def _task(job: _Block, block: _Block, number: int, label: str, filename: str) -> PlanTask:
    where = Where(filename, block.line)
    command = "\n".join(line.text for line in _section(job, block, "remote"))
    if not command:
        raise where.wrong("the task has no remote: command")
    numbers = {"JOB": "1", "TASK": str(number)}
    transfers = [
        *_transfers(_section(job, block, "init"), ("put", "store"), numbers, filename),
        *_transfers(_section(job, block, "final"), ("get",), numbers, filename),
    ]
    check = "\n".join(line.text for line in _section(job, block, "check"))
    if check:
        said = f"check of task {number} failed"
        command = f'(\n{command}\n)\n(\n{check}\n) || {{ echo "{said}" >&2; exit 1; }}'
    return PlanTask(
        command,
        f"{label}.{number}",
        retries=RETRIES,
        env=numbers,
        requires=_requirements(_section(job, block, "requirements"), filename),
        transfers=transfers,
        playpen=True,
        where=where,
    )


# --- init and final -------------------------------------------------------------------------------------


def _transfers(
    lines: list[_Line], kinds: tuple[str, ...], numbers: dict[str, str], filename: str
) -> Iterator[PlanTransfer]:
    """What the lines of a section move: kind, local, remote, condition."""
    conditions: list[tuple[str, bool]] = []  # each with whether its else has come
    for line in lines:
        where = Where(filename, line.number)
        try:
            if not _condition(line.text, conditions):
                yield _transfer(line.text, kinds, numbers, conditions)
        except BoughError as error:
            raise where.wrong(str(error)) from None
        except ValueError as error:
            raise where.wrong(str(error)) from None
    if conditions:
        raise Where(filename, lines[-1].number).wrong("an if has no endif")


def _condition(text: str, conditions: list[tuple[str, bool]]) -> bool:
    """Whether a line is about conditions; they are changed as it says."""
    word = text.split(None, 1)[0].lower()
    if word.startswith("if"):
        found = re.match(r"if\s*\((.*)\)\s*then\Z", text, re.DOTALL | re.IGNORECASE)
        if found is None:
            raise ValueError("a condition is written as: if (os == linux) then")
        if len(conditions) >= _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} conditions lie in each other")
        conditions.append((translate(found[1]), False))
        return True
    if text.lower() == "else":
        if not conditions or conditions[-1][1]:
            raise ValueError("else stands between if and endif, once")
        conditions[-1] = (f"not ({conditions[-1][0]})", True)
        return True
    if text.lower() == "endif":
        if not conditions:
            raise ValueError("endif has no if")
        conditions.pop()
        return True
    return False


def _transfer(
    text: str, kinds: tuple[str, ...], numbers: dict[str, str], conditions: list[tuple[str, bool]]
) -> PlanTransfer:
    words = text.split()
    kind: Literal["put", "store", "get"] | None = _KINDS.get(words[0].lower())
    if kind is None or kind not in kinds or len(words) != 3:
        raise ValueError(f"{text!r:.60}: here stands {' or '.join(f'{one} FROM TO' for one in kinds)}")
    source, target = (re.sub(r"\$\{?(JOB|TASK)\}?", lambda found: numbers[found[1]], word) for word in words[1:])
    local, remote = (target, source) if kind == "get" else (source, target)
    if "$" in local:
        raise ValueError(f"{local!r:.60}: a name at home has no variables but $JOB and $TASK")
    check_remote(remote, stored=kind == "store")
    when = ""
    for condition, _ in conditions:
        when = join_requirements(when, condition)
    return kind, local, remote, when


# --- requirements ---------------------------------------------------------------------------------------


def _requirements(lines: list[_Line], filename: str) -> str:
    text = " ".join(line.text for line in lines)
    if not text:
        return ""
    try:
        return translate(text)
    except (BoughError, ValueError) as error:
        raise Where(filename, lines[0].number).wrong(str(error)) from None


def translate(text: str) -> str:
    """A requirement of OurGrid as one of ours: `os == linux && mem >= 512` is `os == 'linux' and memory_gb >= 0.5`."""
    tokens = _tokens(text)
    found: list[str] = []
    for at, token in enumerate(tokens):
        before = tokens[at - 1] if at else ""
        following = tokens[at + 1] if at + 1 < len(tokens) else ""
        if token in _WORDS:
            found.append(_WORDS[token])
        elif token in _COMPARING or token in "()":
            found.append(token)
        elif _WORDS.get(before, before) in _COMPARING:  # a value
            found.append(_value(token, of_memory=at > 1 and tokens[at - 2].lower() == "mem"))
        elif _WORDS.get(following, following) in _COMPARING or _NAME.match(token):
            if not _NAME.match(token):
                raise ValueError(f"{token!r:.40} is no name of an attribute")
            found.append("memory_gb" if token.lower() == "mem" else token.lower())
        else:
            raise ValueError(f"{token!r:.40} is no name of an attribute")
    made = " ".join(found)
    read_requirement(made)
    return made


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"the requirement {text!r:.60} cannot be read at {text[at : at + 20]!r}")
        tokens.append(found[1])
        at = found.end()
        while at < len(text) and text[at].isspace():
            at += 1
    return tokens


def _value(token: str, *, of_memory: bool) -> str:
    if _NUMBER.match(token):
        return repr(float(token) / _MEGABYTES) if of_memory else token
    plain = token[1:-1] if token[0] in "\"'" else token
    return repr(plain.lower() if token[0] not in "\"'" else plain)
