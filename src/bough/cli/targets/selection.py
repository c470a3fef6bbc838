"""From selectors to tasks: which records and elements of a jobs database are meant.

A `Selected` is a loose task, a whole array, or a range of an array's elements. Rule: a selector that names
nothing is an error; a state filter that leaves nothing is an empty answer.
"""

from __future__ import annotations

import argparse
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

import msgspec

from bough.cli.option_values import count
from bough.cli.targets.jobs_database import OpenDatabase, as_int
from bough.errors import UnknownName, UserError
from bough.model.selectors import All, Elements, Last, Named, Records, Selector, Within, read_selectors, show_selector
from bough.model.states import LABELS
from bough.model.tasks import Dep, On

_FORMER = {"notrun": "skipped"}  # words of earlier versions, which still work
_SELECTOR = "last, all, 12, 12.3-40, 5-9, NAME, group/*, or a comma list; WORKFLOW:SELECTOR at a server with several"
_HELP = {
    "failed": "failed (likewise --waiting, --held, --ready, --placed, --running, --done, --cancelled)",
    "skipped": "skipped, because something they depend on failed",
}


class Selected(msgspec.Struct, frozen=True):
    """The elements from `first` to `last` of a record, both included; a loose task has only element 0."""

    id: int
    first: int
    last: int
    is_array: bool
    whole: bool
    state: str = ""  # of all these elements; empty for an array that was not looked into

    @property
    def label(self) -> str:
        """As a selector."""
        if self.whole:
            return str(self.id)
        return f"{self.id}.{self.first}" if self.first == self.last else f"{self.id}.{self.first}-{self.last}"

    @property
    def target(self) -> tuple[Dep, int]:
        """What the core is told: a dependency-like target, and where a slice ends."""
        if not self.is_array:
            return Dep(On.TASK, self.id), 0
        return (Dep(On.ARRAY, self.id), 0) if self.whole else (Dep(On.TASK, self.id, self.first), self.last + 1)


def add_selector_arguments(parser: argparse.ArgumentParser, *, positional: bool = True) -> None:
    """The selector (unless the command has its own), the state filters and the run."""
    if positional:
        parser.add_argument("selector", nargs="?", metavar="SELECTOR", help=_SELECTOR)
    else:
        parser.set_defaults(selector=None)
    chosen = parser.add_argument_group("only tasks that are (several may be given)")
    for state in LABELS:
        chosen.add_argument(
            f"--{state}", dest="states", action="append_const", const=state, help=_HELP.get(state, argparse.SUPPRESS)
        )
    chosen.add_argument("--notrun", dest="states", action="append_const", const="skipped", help=argparse.SUPPRESS)
    parser.add_argument("--state", metavar="STATE", help="only tasks in these states: failed, or a comma list")
    parser.add_argument("--group", metavar="PATH", help="everything in a group, as the selector PATH/* does")
    parser.add_argument("--run", type=count, metavar="N", help="look at run N of the workflow (default: the latest)")


def read_request(args: argparse.Namespace, *, needed: bool = True) -> tuple[tuple[Selector, ...], frozenset[str]]:
    """The selectors and states that were asked for; a filter alone means all tasks in these states."""
    states = frozenset(args.states or ()) | _words(args.state)
    if args.group is not None:
        if args.selector is not None:
            raise UserError(f"--group {args.group} and the selector {args.selector} exclude each other; give one")
        args.selector = args.group.strip("/") + "/*"
    if args.selector is not None:
        workflow, colon, rest = args.selector.partition(":")
        if colon:
            if args.name not in {None, workflow}:
                raise UserError(f"the selector is about workflow {workflow!r}, --name about {args.name!r}; give one")
            args.name, args.selector = workflow, rest or "all"
        return read_selectors(args.selector), states
    if states or not needed:
        return (All(),), states
    raise UserError("say which tasks: last, all, an id, a name, group/*, or a state such as --failed")


def _words(given: str | None) -> frozenset[str]:
    words = frozenset(_FORMER.get(word.strip(), word.strip()) for word in given.split(",")) if given else frozenset()
    for word in sorted(words - set(LABELS)):
        raise UserError(f"--state {word}: there is no such state; there are: {', '.join(LABELS)}")
    return words


def choose_run(database: OpenDatabase, args: argparse.Namespace, selectors: Iterable[Selector] = ()) -> int:
    """The run that is meant: of the workflow that was named, or of the one that is running, or the latest."""
    if args.run or not database.is_service:
        return args.run or database.last_run()
    workflows = database.workflows()
    if not workflows:
        raise UnknownName(f"{database.label} has no workflow yet; submit something: bough submit -- COMMAND")
    if args.name:
        named = [one for one in workflows if one["name"] == args.name]
        if not named:
            names = ", ".join(dict.fromkeys(str(one["name"]) for one in workflows))
            raise UnknownName(f"{database.label} has no workflow {args.name!r}; there are: {names}")
        return as_int(named[-1]["run"])
    going = [one for one in workflows if not one["closed"]] or workflows[-1:]
    if len(going) > 1 and not all(isinstance(one, Records | Elements | Last) for one in selectors):
        names = ", ".join(str(one["name"]) for one in going)
        raise UserError(f"several workflows are running: {names}; say which, as in {going[-1]['name']}:SELECTOR")
    return as_int(max(going, key=lambda one: _last_record(database, as_int(one["run"])))["run"])


def _last_record(database: OpenDatabase, run: int) -> int:
    rows = database.rows("select max(id) as last from tasks where run = ?", [run])
    return as_int(rows[0]["last"]) if rows else 0


def pick(database: OpenDatabase, selectors: Iterable[Selector], states: frozenset[str], run: int) -> list[Selected]:
    """The tasks that are meant, in the order of the selectors, each once; arrays whole unless a filter splits them."""
    found: dict[tuple[int, int, int], Selected] = {}
    for selector in selectors:
        picks = _picks(database, selector, run)
        if not picks and not isinstance(selector, All):
            raise UnknownName(_nothing(selector, run))
        for one in picks:
            for part in _filtered(database, one, states) if states else [one]:
                found.setdefault((part.id, part.first, part.last), part)
    return list(found.values())


def targets(
    database: OpenDatabase, selectors: Iterable[Selector], states: frozenset[str], run: int
) -> list[tuple[Dep, int]]:
    """What to tell the core. A group is named as a group, so that it also covers what is being submitted now."""
    found: list[tuple[Dep, int]] = []
    for selector in selectors:
        group = None if states else _group(database, selector, run)
        if group is not None:
            found.append((Dep(On.GROUP, group), 0))
        else:
            found += [one.target for one in pick(database, [selector], states, run)]
    return list(dict.fromkeys(found))


def _group(database: OpenDatabase, selector: Selector, run: int) -> int | None:
    match selector:
        case All():
            return database.root(run)
        case Within(path):
            wanted = path
        case Named(name) if not selector.is_pattern:
            if _named(database, selector, run):
                return None
            wanted = name
        case _:
            return None
    rows = database.rows("select id from groups where run = ? and path = ?", [run, wanted])
    return as_int(rows[0]["id"]) if rows else None


def _nothing(selector: Selector, run: int) -> str:
    match selector:
        case Elements(record):
            return f"no such element: {show_selector(selector)}; see bough status {record}"
        case Within(path):
            return f"no group {path!r} with tasks in run {run}; see bough status"
        case _:
            return f"nothing is named {show_selector(selector)!r} in run {run}; see bough status all"


_GLOB = {"*": ".*", "?": "."}
_COLUMNS = "tasks.id as id, tasks.length as length, tasks.is_array as is_array, tasks.state as state"
_IN_GROUP = "tasks left join groups on groups.id = tasks.grp and groups.run = tasks.run"


def _picks(database: OpenDatabase, selector: Selector, run: int) -> list[Selected]:
    match selector:
        case Last():
            rows = database.rows(f"select {_COLUMNS} from tasks where run = ? order by id desc limit 1", [run])
        case All():
            rows = database.rows(f"select {_COLUMNS} from tasks where run = ? order by id", [run])
        case Records(first, last):
            rows = database.rows(f"select {_COLUMNS} from tasks where id between ? and ? order by id", [first, last])
        case Elements(record, first, last):
            rows = database.rows(f"select {_COLUMNS} from tasks where id = ?", [record])
            return [_slice(row, first, last) for row in rows if last < max(as_int(row["length"]), 1)]
        case Within(path):
            rows = _within(database, path, run)
        case Named():
            rows = _named(database, selector, run) or _within(database, selector.name, run)
        case _:
            assert_never(selector)
    return [_whole(row) for row in rows]


def _whole(row: dict[str, object]) -> Selected:
    if row["is_array"]:
        return Selected(as_int(row["id"]), 0, as_int(row["length"]) - 1, is_array=True, whole=True)
    return Selected(as_int(row["id"]), 0, 0, is_array=False, whole=True, state=str(row["state"]))


def _slice(row: dict[str, object], first: int, last: int) -> Selected:
    return Selected(as_int(row["id"]), first, last, is_array=True, whole=False) if row["is_array"] else _whole(row)


def _within(database: OpenDatabase, path: str, run: int) -> list[dict[str, object]]:
    pattern = path.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "/%"
    return database.rows(
        f"select {_COLUMNS} from {_IN_GROUP} where tasks.run = ?"
        " and (groups.path = ? or groups.path like ? escape '\\') order by tasks.id",
        [run, path, pattern],
    )


def _named(database: OpenDatabase, selector: Named, run: int) -> list[dict[str, object]]:
    full = "case when coalesce(groups.path, '') = '' then tasks.name else groups.path || '/' || tasks.name end"
    columns = f"select {_COLUMNS}, tasks.name as name, {full} as whole from {_IN_GROUP} where tasks.run = ?"
    if not selector.is_pattern:
        exact = f"{columns} and (tasks.name = ? or {full} = ?) order by tasks.id"
        return database.rows(exact, [run, selector.name, selector.name])
    pattern = re.compile("".join(_GLOB.get(letter, re.escape(letter)) for letter in selector.name) + r"\Z", re.DOTALL)
    rows = database.rows(f"{columns} and tasks.name != '' order by tasks.id", [run])
    return [row for row in rows if pattern.match(str(row["name"])) or pattern.match(str(row["whole"]))]


def _filtered(database: OpenDatabase, one: Selected, states: frozenset[str]) -> Iterator[Selected]:
    if not one.is_array:
        if one.state in states:
            yield one
        return
    for first, last, state in element_states(database, one):
        if state in states:
            yield Selected(one.id, first, last, is_array=True, whole=False, state=state)


def element_states(database: OpenDatabase, one: Selected) -> list[tuple[int, int, str]]:
    """The states of an array's elements as ranges (first, last, state), both ends included, in order."""
    row = database.rows("select waits from tasks where id = ?", [one.id])[0]
    spans = database.rows("select start, stop, state from spans where id = ? and state != 'lost'", [one.id])
    singles = database.rows(
        "select idx, state from elements where id = ? and idx between ? and ? order by idx",
        [one.id, one.first, one.last],
    )
    ranges = [(as_int(span["start"]), as_int(span["stop"]), str(span["state"])) for span in spans]
    own = {as_int(single["idx"]): str(single["state"]) for single in singles}
    return _merged(one.first, one.last, ranges, own, rest="waiting" if row["waits"] else "ready")


def _merged(
    first: int, last: int, ranges: Sequence[tuple[int, int, str]], own: dict[int, str], rest: str
) -> list[tuple[int, int, str]]:
    """Cut [first, last] where the state changes: an element's own word wins, then the latest range, then the rest."""
    edges = {first, last + 1}
    for start, stop, _ in ranges:
        edges.update((start, stop))
    for index in own:
        edges.update((index, index + 1))
    cuts = sorted(edge for edge in edges if first <= edge <= last + 1)
    states = [rest] * (len(cuts) - 1)
    for start, stop, state in ranges:
        begin, end = bisect_left(cuts, start), bisect_left(cuts, stop)
        states[begin:end] = [state] * (min(end, len(states)) - begin)
    pieces: list[tuple[int, int, str]] = []
    for begin, end, state in zip(cuts, cuts[1:], states, strict=False):
        word = own.get(begin, state)
        if pieces and pieces[-1][2] == word:
            pieces[-1] = (pieces[-1][0], end - 1, word)
        else:
            pieces.append((begin, end - 1, word))
    return pieces
