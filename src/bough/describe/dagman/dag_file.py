"""The lines of DAGMan files: nodes, what belongs to them and what waits for what, for one file and those it includes.

Commands and their words are those of the DAGMan reference in the HTCondor manual; keywords are read in any case.
Rule: an unknown command is an error with file and line; commands that only concern HTCondor are noted and passed over.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bough.describe.dagman.submit_description import Submit, joined, parse
from bough.describe.plan import MOST_DEEP, NOWHERE, Where
from bough.describe.source_files import read_file
from bough.errors import InvalidWorkload, UserError

ALL = "ALL_NODES"
MOST_FILES = 10_000  # that one workflow is made of
_PASSED_OVER = frozenset(
    {"CONFIG", "DOT", "JOBSTATE_LOG", "NODE_STATUS_FILE", "SAVE_POINT_FILE", "SET_JOB_ATTR", "ENV"}
)
_REFUSED = {
    "ABORT-DAG-ON": "use `bough run --fail-fast`",
    "SERVICE": "services beside a workflow are not run",
    "PROVISIONER": "resources are provided by executors",
    "REJECT": "the file says that it must not be run",
    "PIN_IN": "connect splices by PARENT and CHILD",
    "PIN_OUT": "connect splices by PARENT and CHILD",
    "CONNECT": "connect splices by PARENT and CHILD",
}
_WHOLE = re.compile(r"(-?)\d{1,15}\Z", re.ASCII)
_ESCAPED = re.compile(r'\\(["\\])')
_PAIR = re.compile(r'\s*([+\w.]+)\s*=\s*"((?:[^"\\]|\\.)*)"')


@dataclass(slots=True)
class DagScript:
    """A PRE or POST script."""

    words: list[str]
    where: Where


@dataclass(slots=True)
class DagNode:
    """A node: a job, a sub-DAG, or a splice, which has nothing but a file."""

    name: str
    kind: str  # JOB, FINAL, SUBDAG, SPLICE
    source: str  # the submit description or DAG file
    where: Where
    folder: str = ""
    noop: bool = False
    done: bool = False
    submit: Submit | None = None  # given inline
    retries: int = 0
    unless: int | None = None
    priority: int = 0
    category: str = ""
    pre: DagScript | None = None
    post: DagScript | None = None
    skip: int | None = None
    macros: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Dag:
    """One DAG, splices and sub-DAGs not read yet."""

    file: str
    folder: str = ""  # from which what it names is looked for; empty: where we are
    nodes: dict[str, DagNode] = field(default_factory=dict)
    edges: list[tuple[list[str], list[str], Where]] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)
    described: dict[str, Submit] = field(default_factory=dict)  # SUBMIT-DESCRIPTION
    later: list[tuple[str, Where, Callable[[DagNode], None]]] = field(default_factory=list)


def read_dag(path: str, folder: str, note: Callable[[str], None]) -> Dag:
    """Read one file and those it includes; what it names is looked for in the folder."""
    dag = Dag(path, folder)
    _Parser(dag, note).read(path, NOWHERE, ())
    for name, where, apply in dag.later:
        if name.upper() == ALL:
            for node in dag.nodes.values():
                if node.kind not in ("FINAL", "SPLICE"):
                    apply(node)
        elif name not in dag.nodes:
            raise where.wrong(f"there is no node {name}")
        else:
            apply(dag.nodes[name])
    for parents, children, where in dag.edges:
        for name in (*parents, *children):
            if name not in dag.nodes:
                raise where.wrong(f"there is no node {name}")
            if dag.nodes[name].kind == "FINAL":
                raise where.wrong(f"{name} is the FINAL node, which waits for everything already")
    return dag


def read_text(path: str, where: Where, what: str) -> str:
    """The text of a file that is named at a place."""
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidWorkload(f"{path}: {what} is UTF-8 text, and this is not") from None
    except OSError as error:
        if where is NOWHERE:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        raise where.wrong(f"cannot read {what} {path}: {error.strerror}") from None


class _Parser:
    def __init__(self, dag: Dag, note: Callable[[str], None]) -> None:
        self.dag = dag
        self.note = note
        self.files = 0

    def read(self, path: str, asked: Where, above: tuple[str, ...]) -> None:
        if len(above) >= MOST_DEEP:
            raise asked.wrong(f"more than {MOST_DEEP} files include each other")
        if path in above:
            raise asked.wrong(f"these files include each other: {' -> '.join([*above, path])}")
        self.files += 1
        if self.files > MOST_FILES:
            raise asked.wrong(f"more than {MOST_FILES} files are included")
        lines = enumerate(read_text(path, asked, "the DAG file").split("\n"), start=1)
        for number, line in joined(lines):
            where = Where(path, number)
            words = line.split()
            command = words[0].upper()
            if command == "PARENT":
                self._edges(words, where)
            elif command in ("JOB", "NODE", "FINAL"):
                self._job(words, line, lines, where)
            elif command == "INCLUDE":
                self._count(words, 2, where)
                self.read(inside(self.dag.folder, words[1]), where, (*above, path))
            else:
                self._other(command, words, line, lines, where)

    def _other(self, command: str, words: list[str], line: str, lines: Iterator[tuple[int, str]], where: Where) -> None:
        if command in ("RETRY", "PRIORITY", "CATEGORY", "PRE_SKIP", "DONE"):
            self._setting(command, words, where)
        elif command == "VARS":
            self._vars(words, line, where)
        elif command == "SCRIPT":
            self._script(words, where)
        elif command in ("SPLICE", "SUBDAG"):
            self._nested(command, words, where)
        elif command == "SUBMIT-DESCRIPTION":
            self._count(words, 3, where)
            self.dag.described[words[1]] = self._inline(line, lines, where)
        elif command == "MAXJOBS":
            self._count(words, 3, where)
            self.dag.limits[words[1]] = _whole(words[2], where)
        elif command in _PASSED_OVER:
            self.note(f"{where.file}:{where.line}: {command} concerns HTCondor alone and is passed over")
        else:
            known = f"{command} is not read: {_REFUSED[command]}" if command in _REFUSED else ""
            raise where.wrong(known or f"{words[0]} is no command of DAGMan files")

    def _nested(self, command: str, words: list[str], where: Where) -> None:
        if command == "SUBDAG":
            if len(words) < 2 or words[1].upper() != "EXTERNAL":
                raise where.wrong("SUBDAG is followed by EXTERNAL, a name and a file")
            del words[1]
        self._count(words, 3, where)
        self._add(DagNode(words[1], command, words[2], where), words[3:], where)

    # --- nodes ------------------------------------------------------------------------------------------

    def _add(self, node: DagNode, options: list[str], where: Where) -> None:
        at = 0
        while at < len(options):
            option = options[at].upper()
            if option == "DIR" and at + 1 < len(options):
                node.folder = options[at + 1]
                at += 1
            elif option == "NOOP" and node.kind != "SPLICE":
                node.noop = True
            elif option == "DONE" and node.kind not in ("SPLICE", "FINAL"):
                node.done = True
            else:
                raise where.wrong(
                    f"{options[at]} is no option of {node.kind} {node.name}; there are DIR, NOOP and DONE"
                )
            at += 1
        first = self.dag.nodes.setdefault(node.name, node)
        if first is not node:
            raise where.wrong(f"the name {node.name!r} is taken by {first.where.file}:{first.where.line}")

    def _job(self, words: list[str], line: str, lines: Iterator[tuple[int, str]], where: Where) -> None:
        self._count(words, 3, where)
        kind = "FINAL" if words[0].upper() == "FINAL" else "JOB"
        if "/" in words[1] or "+" in words[1]:
            raise where.wrong(f"{words[1]!r} is no name of a node: it has no / and no +")
        node = DagNode(words[1], kind, words[2], where)
        options = words[3:]
        if words[2].startswith("{"):
            node.source = ""
            node.submit = self._inline(line, lines, where)
            options = []
        if kind == "FINAL" and any(other.kind == "FINAL" for other in self.dag.nodes.values()):
            raise where.wrong(f"{words[1]}: there is a FINAL node already")
        self._add(node, options, where)

    def _inline(self, line: str, lines: Iterator[tuple[int, str]], where: Where) -> Submit:
        """A submit description between braces, which follow on lines of their own."""
        rest = line.partition("{")[2].strip()
        if rest:
            raise where.wrong("what stands between { and } begins on the next line")
        inner: list[tuple[int, str]] = []
        for number, text in lines:
            if text.strip().startswith("}"):
                return parse(inner, where.file)
            inner.append((number, text))
        raise where.wrong("the } that ends this description is missing")

    def _edges(self, words: list[str], where: Where) -> None:
        at = next((at for at, word in enumerate(words) if word.upper() == "CHILD"), 0)
        if at < 2 or at == len(words) - 1:
            raise where.wrong("PARENT is followed by names, CHILD and names")
        self.dag.edges.append((words[1:at], words[at + 1 :], where))

    # --- what belongs to nodes --------------------------------------------------------------------------

    def _count(self, words: list[str], least: int, where: Where) -> None:
        if len(words) < least:
            raise where.wrong(f"{words[0]} is followed by at least {least - 1} words")

    def _setting(self, command: str, words: list[str], where: Where) -> None:
        self._count(words, 2 if command == "DONE" else 3, where)
        value: object = True
        attribute = {"RETRY": "retries", "PRIORITY": "priority", "PRE_SKIP": "skip"}.get(command, command.lower())
        if command in ("RETRY", "PRIORITY", "PRE_SKIP"):
            value = _whole(words[2], where, negative=command == "PRIORITY")
        elif command == "CATEGORY":
            value = words[2]
        self.dag.later.append((words[1], where, lambda node: setattr(node, attribute, value)))
        if command == "RETRY" and len(words) > 3:
            if len(words) != 5 or words[3].upper() != "UNLESS-EXIT":
                raise where.wrong("RETRY name number is followed by nothing or by UNLESS-EXIT and a number")
            code = _whole(words[4], where)
            self.dag.later.append((words[1], where, lambda node: setattr(node, "unless", code)))

    def _script(self, words: list[str], where: Where) -> None:
        rest = words[1:]
        while rest and rest[0].upper() in ("DEFER", "DEBUG"):
            self.note(f"{where.file}:{where.line}: {rest[0]} of a script is passed over")
            rest = rest[3:]
        if len(rest) < 3 or rest[0].upper() not in ("PRE", "POST", "HOLD"):
            raise where.wrong("SCRIPT is followed by PRE or POST, the name of a node, and a program")
        kind = rest[0].lower()
        if kind == "hold":
            self.note(f"{where.file}:{where.line}: SCRIPT HOLD is passed over: nothing is held here")
            return
        script = DagScript(rest[2:], where)
        self.dag.later.append((rest[1], where, lambda node: setattr(node, kind, script)))

    def _vars(self, words: list[str], line: str, where: Where) -> None:
        self._count(words, 3, where)
        text = line.split(None, 2)[2]
        if words[2].upper() in ("PREPEND", "APPEND"):
            text = text.split(None, 1)[1] if len(words) > 3 else ""
        found: dict[str, str] = {}
        at = 0
        while at < len(text.rstrip()):
            match = _PAIR.match(text, at)
            if match is None:
                raise where.wrong(f'VARS: {text[at:].strip()!r:.60} is no name="value"')
            name, value = match.groups()
            found[name if name[0] == "+" else name.lower()] = _ESCAPED.sub(r"\1", value) if "\\" in value else value
            at = match.end()
        self.dag.later.append((words[1], where, lambda node: node.macros.update(found)))


def _whole(text: str, where: Where, *, negative: bool = False) -> int:
    found = _WHOLE.match(text)
    if found is None or (found[1] and not negative):
        raise where.wrong(f"{text!r:.60} is no whole number that a node can have")
    return int(text)


def inside(folder: str, path: str) -> str:
    """A path as it is meant in a folder."""
    return os.path.join(folder, path) if folder else path
