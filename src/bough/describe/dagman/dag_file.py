"""The lines of DAGMan files: nodes, what belongs to them and what waits for what, with splices and included files.

Commands and their words are those of the DAGMan reference in the HTCondor manual; keywords are read in any case, with
`-` or `_`. A splice is read with the file that names it, so that `VARS SPLICE+NODE` finds its node; a sub-DAG is not.
Rule: an unknown command is an error with file and line; commands that only concern HTCondor are noted and passed over.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bough.describe.dagman.submit_description import Submit, assignments, joined, parse
from bough.describe.plan import MOST_DEEP, NOWHERE, Where
from bough.describe.source_files import read_file
from bough.errors import InvalidWorkload, UserError, did_you_mean
from bough.model.texts.plurals import counted

ALL = "ALL_NODES"
MOST_FILES = 10_000  # that one workflow is made of
MOST_RESCUES = 999
_PASSED_OVER = {
    "DOT": "draw it with `bough describe --to dot`",
    "JOBSTATE_LOG": "see `bough history`",
    "NODE_STATUS_FILE": "see `bough status`",
    "SAVE_POINT_FILE": "a run that is repeated begins where the last one stopped",
    "SET_JOB_ATTR": "there is no job of DAGMan's own here",
}
_RESERVED = frozenset({"PARENT", "CHILD", ALL})
_NOT_FINAL = frozenset({"RETRY", "ABORT_DAG_ON", "PRIORITY", "CATEGORY", "DONE", "PIN_IN", "PIN_OUT"})
_STREAMS = frozenset({"STDOUT", "STDERR", "ALL"})
_WHOLE = re.compile(r"-?\d{1,15}\Z", re.ASCII)
_WORD = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"'])+""")
_QUOTED = re.compile(r"""(["'])((?:(?!\1)[^\\]|\\.)*)\1""")
_PAIR = re.compile(
    r"""\s*(?P<key>[^\s="']+)\s*=\s*
        (?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<bare>[^\s"']+))(?=\s|\Z)""",
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(.)")
_RESCUE = re.compile(r"\.rescue(\d{3})\Z")
_YES = frozenset({"true", "yes", "t", "y", "1"})


@dataclass(slots=True)
class DagScript:
    """A PRE or POST script."""

    words: list[str]
    where: Where
    defer: tuple[int, int] | None = None  # run it again for this exit code, after so many seconds
    debug: tuple[str, str] | None = None  # a file for what it prints, and which stream


@dataclass(slots=True)
class DagNode:
    """A node: a job, a sub-DAG, or a splice, which has nothing but what is in it."""

    name: str
    kind: str  # JOB, FINAL, PROVISIONER, SERVICE, SUBDAG, SPLICE
    source: str  # the submit description or DAG file
    where: Where
    folder: str = ""
    noop: bool = False
    done: bool = False
    submit: Submit | None = None  # given inline
    inner: Dag | None = None  # of a splice
    retries: int = 0
    unless: int | None = None
    abort: tuple[int, int | None] | None = None  # the exit code that ends the DAG, and what the DAG returns then
    priority: int = 0
    category: str = ""
    pre: DagScript | None = None
    post: DagScript | None = None
    skip: int | None = None
    before: dict[str, str] = field(default_factory=dict)  # VARS that the submit description may change
    macros: dict[str, str] = field(default_factory=dict)  # VARS that change the submit description (APPEND)


@dataclass(slots=True)
class Dag:
    """One DAG with its splices; sub-DAGs are not read yet."""

    file: str
    folder: str = ""  # from which what it names is looked for; empty: where we are
    nodes: dict[str, DagNode] = field(default_factory=dict)
    edges: list[tuple[list[str], list[str], Where]] = field(default_factory=list)
    connections: list[tuple[str, str, Where]] = field(default_factory=list)
    pins_in: dict[int, list[str]] = field(default_factory=dict)
    pins_out: dict[int, list[str]] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    described: dict[str, Submit] = field(default_factory=dict)  # SUBMIT-DESCRIPTION
    environment: dict[str, str] = field(default_factory=dict)  # ENV SET
    always_post: bool = False  # a POST script runs after a PRE script that failed, too
    later: list[tuple[str, str, Where, Callable[[DagNode], None]]] = field(default_factory=list)

    def find(self, name: str) -> DagNode | None:
        """A node of it, or of its splices: SPLICE+NODE."""
        found = self.nodes.get(name)
        if found is None and "+" in name:
            head, _, rest = name.partition("+")
            splice = self.nodes.get(head)
            if splice is not None and splice.inner is not None:
                return splice.inner.find(rest)
        return found

    def every_node(self) -> Iterator[tuple[str, DagNode]]:
        """All nodes with their full names, those of splices in the place of these."""
        for node in self.nodes.values():
            if node.inner is None:
                yield node.name, node
            else:
                for name, inner in node.inner.every_node():
                    yield f"{node.name}+{name}", inner


def read_dag(path: str, folder: str, note: Callable[[str], None]) -> Dag:
    """Read one file, those it includes and its splices; what it names is looked for in the folder."""
    dag = _read(path, folder, _Reading(note), ())
    _read_rescue(dag, note)
    return dag


class _Reading:
    """What the files of one DAG have in common."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.note = note
        self.files = 0

    def count(self, asked: Where) -> None:
        self.files += 1
        if self.files > MOST_FILES:
            raise asked.wrong(f"more than {MOST_FILES} files are included")


def _read(path: str, folder: str, reading: _Reading, splices: tuple[str, ...], asked: Where = NOWHERE) -> Dag:
    dag = Dag(path, folder)
    parser = _Parser(dag, reading)
    parser.read(path, asked, ())
    for node in dag.nodes.values():
        if node.kind == "SPLICE":
            node.inner = _splice(node, dag, reading, (*splices, os.path.abspath(path)))
    for command, name, where, apply in dag.later:
        if name.upper() == ALL and command not in ("DONE", "PIN_IN", "PIN_OUT"):
            for node in dag.nodes.values():
                if node.kind not in ("FINAL", "SPLICE", "PROVISIONER", "SERVICE"):
                    apply(node)
            continue
        found = dag.find(name)
        if found is None and command == "DONE":
            reading.note(f"{where.file}:{where.line}: DONE {name}: there is no such node")
        else:
            apply(_taking(found, command, name, where))
    for parents, children, where in dag.edges:
        _check_edge(dag, parents, children, where)
    return dag


def _taking(node: DagNode | None, command: str, name: str, where: Where) -> DagNode:
    """A node that a command is about, if it takes that command."""
    if node is None:
        raise where.wrong(f"there is no node {name}")
    if node.kind == "SPLICE" and not command.startswith("PIN_"):
        raise where.wrong(f"{name} is a splice, which has no {command}; name a node of it: {name}+NODE")
    if node.kind == "FINAL" and command in _NOT_FINAL:
        raise where.wrong(f"{name} is the FINAL node, which takes no {command.replace('_', '-')}")
    return node


def _splice(node: DagNode, dag: Dag, reading: _Reading, splices: tuple[str, ...]) -> Dag:
    folder = inside(dag.folder, node.folder)
    path = inside(folder, node.source)
    real = os.path.abspath(path)
    if len(splices) > MOST_DEEP:
        raise node.where.wrong(f"more than {MOST_DEEP} files contain each other")
    if real in splices:
        names = " -> ".join(os.path.basename(file) for file in (*splices[splices.index(real) :], real))
        raise node.where.wrong(f"these files contain each other: {names}")
    inner = _read(path, folder, reading, splices, node.where)
    inner.described = {**dag.described, **inner.described}
    for name in [name for name in dag.limits if name.startswith(f"{node.name}+")]:
        inner.limits[name[len(node.name) + 1 :]] = dag.limits[name]  # what is said higher up counts
    return inner


def _check_edge(dag: Dag, parents: list[str], children: list[str], where: Where) -> None:
    for name in (*parents, *children):
        found = dag.nodes.get(name) or dag.find(name)
        if found is None:
            raise where.wrong(f"there is no node {name}")
        if found.kind == "FINAL":
            raise where.wrong(f"{name} is the FINAL node, which waits for everything already")
        if found.kind in ("SERVICE", "PROVISIONER"):
            raise where.wrong(f"{name} is a {found.kind} node, which waits for nothing and for which nothing waits")
    for name in set(parents).intersection(children):
        raise where.wrong(f"{name} would wait for itself")


# --- rescue files ---------------------------------------------------------------------------------------


def rescue_of(path: str) -> str | None:
    """The rescue file that `condor_submit_dag` would use for a DAG file: the one with the highest number."""
    folder, base = os.path.split(path)
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return None
    found = [name for name in names if name.startswith(base) and _RESCUE.fullmatch(name[len(base) :])]
    return os.path.join(folder, max(found)) if found else None


def _read_rescue(dag: Dag, note: Callable[[str], None]) -> None:
    """Take over what an earlier run with HTCondor had done."""
    path = rescue_of(dag.file)
    if path is None:
        return
    done = 0
    for number, line in joined(enumerate(read_text(path, NOWHERE, "the rescue file").split("\n"), start=1)):
        where = Where(path, number)
        words = line.split()
        command = words[0].upper()
        if command not in ("DONE", "RETRY") or len(words) < (2 if command == "DONE" else 3):
            raise where.wrong(
                f"{words[0]:.40} is not in rescue files that go with their DAG file; if this one is a whole DAG, run it"
                " by its own name, or move it away"
            )
        node = dag.find(words[1])
        if node is None:
            raise where.wrong(f"there is no node {words[1]} in {dag.file}; take the line out")
        if command == "DONE":
            node.done = True
            done += 1
        else:
            node.retries = _whole(words[2], where, least=0)
    note(f"{path}: HTCondor has done {counted(done, 'node')} of it already; remove the file to run all of it")


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


Lines = Iterator[tuple[int, str]]


class _Parser:
    def __init__(self, dag: Dag, reading: _Reading) -> None:
        self.dag = dag
        self.reading = reading
        self.commands: dict[str, Callable[[list[str], str, Lines, Where], None]] = {
            "PARENT": self._edges,
            "JOB": self._job,
            "NODE": self._job,
            "FINAL": self._job,
            "PROVISIONER": self._job,
            "SERVICE": self._job,
            "SUBDAG": self._subdag,
            "SPLICE": self._splice,
            "SUBMIT_DESCRIPTION": self._description,
            "VARS": self._vars,
            "SCRIPT": self._script,
            "RETRY": self._retry,
            "ABORT_DAG_ON": self._abort,
            "PRIORITY": self._number,
            "PRE_SKIP": self._number,
            "CATEGORY": self._category,
            "DONE": self._done,
            "MAXJOBS": self._maxjobs,
            "CONNECT": self._connect,
            "PIN_IN": self._pin,
            "PIN_OUT": self._pin,
            "ENV": self._env,
            "CONFIG": self._config,
            "REJECT": self._reject,
        }

    def read(self, path: str, asked: Where, above: tuple[str, ...]) -> None:
        if len(above) >= MOST_DEEP:
            raise asked.wrong(f"more than {MOST_DEEP} files include each other")
        if path in above:
            raise asked.wrong(f"these files include each other: {' -> '.join([*above, path])}")
        self.reading.count(asked)
        lines = enumerate(read_text(path, asked, "the DAG file").split("\n"), start=1)
        for number, line in joined(lines):
            if line.startswith("//"):
                continue
            where = Where(path, number)
            words = line.split()
            command = words[0].upper()
            if "-" in command:
                command = command.replace("-", "_")
            if command == "INCLUDE":
                words = _words(line, where)
                _count(words, 2, where, most=2)
                self.read(inside(self.dag.folder, words[1]), where, (*above, path))
                continue
            handler = self.commands.get(command)
            if handler is not None:
                if ('"' in line or "'" in line) and command not in ("VARS", "SCRIPT", "ENV"):
                    words = _words(line, where)
                words[0] = command
                handler(words, line, lines, where)
            elif command in _PASSED_OVER:
                _count(words, 2, where)
                self._note(where, f"{command} is passed over: {_PASSED_OVER[command]}")
            else:
                meant = did_you_mean(command, [*self.commands, *_PASSED_OVER])
                raise where.wrong(f"{words[0]:.60} is no command of DAGMan files{meant}")

    def _note(self, where: Where, text: str) -> None:
        self.reading.note(f"{where.file}:{where.line}: {text}")

    def _later(self, command: str, name: str, where: Where, apply: Callable[[DagNode], None]) -> None:
        self.dag.later.append((command, name, where, apply))

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
        if node.name.upper() in _RESERVED:
            raise where.wrong(f"{node.name} is a word of DAGMan files and no name of a node")
        if "+" in node.name:
            raise where.wrong(f"{node.name!r} is no name of a node: it has no +")
        first = self.dag.nodes.setdefault(node.name, node)
        if first is not node:
            raise where.wrong(f"the name {node.name!r} is taken by {first.where.file}:{first.where.line}")

    def _job(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        _count(words, 3, where)
        kind = "JOB" if words[0] == "NODE" else words[0]
        node = DagNode(words[1], kind, words[2], where)
        options = words[3:]
        if words[2].startswith(("{", "@=")):
            node.source = ""
            node.submit, rest = self._inline(words[2], line, lines, where)
            options = _words(rest, where)
        if kind in ("FINAL", "PROVISIONER") and any(other.kind == kind for other in self.dag.nodes.values()):
            raise where.wrong(f"{words[1]}: there is a {kind} node already")
        self._add(node, options, where)

    def _subdag(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        if len(words) < 2 or words[1].upper() != "EXTERNAL":
            raise where.wrong("SUBDAG is followed by EXTERNAL, a name and a file")
        del words[1]
        self._splice(words, line, lines, where)

    def _splice(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        _count(words, 3, where)
        self._add(DagNode(words[1], words[0], words[2], where), words[3:], where)

    def _description(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        _count(words, 3, where)
        if not words[2].startswith(("{", "@=")):
            raise where.wrong("SUBMIT-DESCRIPTION is followed by a name and a description between { and }")
        self.dag.described[words[1]] = self._inline(words[2], line, lines, where)[0]

    def _inline(self, begin: str, line: str, lines: Lines, where: Where) -> tuple[Submit, str]:
        """A submit description between braces, or @=END and @END, on lines of its own; what stands behind it."""
        end = "}" if begin[0] == "{" else f"@{begin[2:]}"
        if line.partition("{" if end == "}" else begin)[2].strip():
            raise where.wrong("what stands between { and } begins on the next line")
        if end == "@":
            raise where.wrong("@= is followed by the word that ends the description, such as @=END")
        inner: list[tuple[int, str]] = []
        for number, text in lines:
            said = text.strip()
            if said == end or said.startswith(f"{end} ") or (end == "}" and said.startswith("}")):
                return parse(inner, where.file), said[len(end) :].strip()
            inner.append((number, text))
        raise where.wrong(f"the {end} that ends this description is missing")

    def _edges(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        at = next((at for at, word in enumerate(words) if word.upper() == "CHILD"), 0)
        if at < 2 or at == len(words) - 1:
            raise where.wrong("PARENT is followed by names, CHILD and names")
        self.dag.edges.append((words[1:at], words[at + 1 :], where))

    def _connect(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        _count(words, 3, where, most=3)
        self.dag.connections.append((words[1], words[2], where))

    def _pin(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        _count(words, 3, where, most=3)
        pins = self.dag.pins_in if words[0] == "PIN_IN" else self.dag.pins_out
        pins.setdefault(_whole(words[2], where, least=1), []).append(words[1])
        self._later(words[0], words[1], where, lambda node: None)  # that it is there

    # --- what belongs to nodes --------------------------------------------------------------------------

    def _number(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        _count(words, 3, where, most=3)
        attribute, least = ("priority", None) if words[0] == "PRIORITY" else ("skip", 0)
        value = _whole(words[2], where, least=least)
        self._later(words[0], words[1], where, lambda node: setattr(node, attribute, value))

    def _category(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        _count(words, 3, where, most=3)
        self._later("CATEGORY", words[1], where, lambda node: setattr(node, "category", words[2]))

    def _done(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        _count(words, 2, where, most=2)
        self._later("DONE", words[1], where, lambda node: setattr(node, "done", True))

    def _retry(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        _count(words, 3, where)
        count, code = _whole(words[2], where, least=0), None
        if len(words) > 3:
            if len(words) != 5 or words[3].upper() != "UNLESS-EXIT":
                raise where.wrong("RETRY name number is followed by nothing or by UNLESS-EXIT and a number")
            code = _whole(words[4], where)

        def apply(node: DagNode) -> None:
            node.retries, node.unless = count, code

        self._later("RETRY", words[1], where, apply)

    def _abort(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        _count(words, 3, where)
        code, returned = _whole(words[2], where), None
        if len(words) > 3:
            if len(words) != 5 or words[3].upper() != "RETURN":
                raise where.wrong("ABORT-DAG-ON name number is followed by nothing or by RETURN and a number")
            returned = _whole(words[4], where, least=0)
            if returned > 255:
                raise where.wrong(f"RETURN {returned}: an exit code is from 0 to 255")
        self._later("ABORT_DAG_ON", words[1], where, lambda node: setattr(node, "abort", (code, returned)))

    def _maxjobs(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        _count(words, 3, where, most=3)
        self.dag.limits[words[1]] = _whole(words[2], where, least=0)

    def _script(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        rest = words[1:]
        defer: tuple[int, int] | None = None
        debug: tuple[str, str] | None = None
        while len(rest) > 2 and (option := rest[0].upper()) in ("DEFER", "DEBUG"):
            if option == "DEFER":
                defer = (_whole(rest[1], where), _whole(rest[2], where, least=0))
            elif rest[2].upper() not in _STREAMS:
                raise where.wrong(f"DEBUG file {rest[2]:.40}: give STDOUT, STDERR or ALL")
            else:
                debug = (rest[1], rest[2].upper())
            rest = rest[3:]
        if len(rest) < 3 or rest[0].upper() not in ("PRE", "POST", "HOLD"):
            raise where.wrong("SCRIPT is followed by PRE, POST or HOLD, the name of a node, and a program")
        kind = rest[0].lower()
        if kind == "hold":
            self._note(where, "SCRIPT HOLD is passed over: nothing is held here")
            self._later("SCRIPT", rest[1], where, lambda node: None)
            return
        script = DagScript(rest[2:], where, defer, debug)
        self._later("SCRIPT", rest[1], where, lambda node: setattr(node, kind, script))

    def _vars(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        _count(words, 3, where)
        text = line.split(None, 2)[2]
        after = words[2].upper() == "APPEND"
        if words[2].upper() in ("PREPEND", "APPEND"):
            text = text.split(None, 1)[1] if len(words) > 3 else ""
        found: dict[str, str] = {}
        at = 0
        while at < len(text.rstrip()):
            match = _PAIR.match(text, at)
            if match is None:
                raise where.wrong(f'VARS: {text[at:].strip()!r:.60} is no name="value"')
            key = _macro_name(match["key"], where)
            quoted = match["double"] if match["double"] is not None else match["single"]
            found[key] = match["bare"] if quoted is None else _ESCAPED.sub(r"\1", quoted) if "\\" in quoted else quoted
            at = match.end()
        if not found:
            raise where.wrong('VARS is followed by a node and pairs of name="value"')

        def apply(node: DagNode) -> None:
            (node.macros if after else node.before).update(found)
            for key in found:
                (node.before if after else node.macros).pop(key, None)

        self._later("VARS", words[1], where, apply)

    # --- the whole DAG ----------------------------------------------------------------------------------

    def _env(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        _count(words, 3, where)
        what = words[1].upper()
        if what == "SET":
            text = line.split(None, 2)[2]
            self.dag.environment.update(assignments(text, where))
        elif what != "GET":  # every variable is there anyway
            raise where.wrong("ENV is followed by GET and names, or by SET and NAME=VALUE;NAME=VALUE")

    def _config(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        _count(words, 2, where, most=2)
        self._note(where, "of CONFIG only DAGMAN_ALWAYS_RUN_POST is used")
        try:
            text = read_file(inside(self.dag.folder, words[1])).decode("utf-8-sig", "replace")
        except OSError:
            return
        for _, said in joined(enumerate(text.split("\n"), start=1)):
            key, _, value = said.partition("=")
            if key.strip().upper() == "DAGMAN_ALWAYS_RUN_POST":
                self.dag.always_post = value.strip().lower() in _YES

    def _reject(self, words: list[str], line: str, lines: Lines, where: Where) -> None:
        raise where.wrong("REJECT: the file says that it must not be run")


def _macro_name(key: str, where: Where) -> str:
    """The name of a macro in small letters; that of an attribute (`+Name`, `My.Name`) as +Name."""
    if key.lower().startswith("my."):
        key = f"+{key[3:]}"
    if key == "+":
        raise where.wrong("VARS: + is followed by the name of an attribute")
    if key.lower().startswith("queue"):
        raise where.wrong(f"VARS: {key:.60} is no name of a macro: it must not begin with queue")
    return key if key[0] == "+" else key.lower()


def _words(line: str, where: Where) -> list[str]:
    """The words of a line; quotes hold words with blanks together."""
    if '"' not in line and "'" not in line:
        return line.split()
    if _WORD.sub("", line).strip():
        raise where.wrong(f"a quote is not closed in {line:.60}")
    return [_QUOTED.sub(lambda match: _ESCAPED.sub(r"\1", match[2]), word) for word in _WORD.findall(line)]


def _count(words: list[str], least: int, where: Where, most: int = 0) -> None:
    if len(words) < least:
        raise where.wrong(f"{words[0]} is followed by at least {least - 1} words")
    if most and len(words) > most:
        raise where.wrong(f"{words[most]:.60} is one word too many for {words[0]}")


def _whole(text: str, where: Where, *, least: int | None = None) -> int:
    if _WHOLE.match(text) is None or (least is not None and int(text) < least):
        raise where.wrong(f"{text!r:.60} is no whole number that can stand here")
    return int(text)


def inside(folder: str, path: str) -> str:
    """A path as it is meant in a folder."""
    return os.path.join(folder, path) if folder else path
