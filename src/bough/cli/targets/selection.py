"""From selectors to tasks: which records and elements of a jobs database are meant.

A `Selected` is a loose task, a whole array, or a range of an array's elements. Rule: a selector that names
nothing is an error; a state filter that leaves nothing is an empty answer.
"""

from __future__ import annotations

import argparse
import contextlib
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeGuard, assert_never

import msgspec

from bough.api.session.remote import user_name
from bough.cli.option_values import count
from bough.cli.output import Output
from bough.cli.targets.jobs_database import OpenDatabase, Workflow, as_int, open_place
from bough.cli.targets.locate import ServerLocation, ServiceAddress, find_target, own_stores
from bough.errors import UnknownName, UserError
from bough.model.arrays.array_indices import index_label, positions, range_label, task_label
from bough.model.ids import NUMBERS, number_of
from bough.model.states import WORDS
from bough.model.tasks import Dep, On
from bough.model.texts.selectors import (
    All,
    Elements,
    Last,
    Named,
    Records,
    Selector,
    Within,
    read_selectors,
    show_selector,
)
from bough.stores.jobs.numbers import bases_of, numbered

_FORMER = {"notrun": "skipped", "placed": "ready"}  # words of earlier versions, which still work
_SELECTOR = "last, all, 12, 12.3-40, 5-9, NAME, group/*, or a comma list; WORKFLOW:SELECTOR at a server with several"
_HELP = {
    "failed": "failed (likewise --waiting, --held, --ready, --running, --done, --cancelled)",
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
    indices: str = ""  # of the array: as its submitter wrote them, see `model.arrays.array_indices`

    @property
    def label(self) -> str:
        """As a selector."""
        return str(number_of(self.id)) if self.whole else range_label(self.id, self.first, self.last, self.indices)

    def part(self, first: int, last: int, state: str = "") -> Selected:
        """Some elements of the array."""
        return msgspec.structs.replace(self, first=first, last=last, whole=False, state=state)

    def label_of(self, index: int) -> str:
        """One element of the array, as a selector."""
        return task_label(self.id, index, self.indices)

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
    for state in WORDS:
        chosen.add_argument(
            f"--{state}", dest="states", action="append_const", const=state, help=_HELP.get(state, argparse.SUPPRESS)
        )
    for former, word in _FORMER.items():
        chosen.add_argument(f"--{former}", dest="states", action="append_const", const=word, help=argparse.SUPPRESS)
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
    for word in sorted(words - set(WORDS)):
        raise UserError(f"--state {word}: there is no such state; there are: {', '.join(WORDS)}")
    return words


@contextlib.contextmanager
def open_selected(
    args: argparse.Namespace, selectors: Sequence[Selector], output: Output, *, acts: bool = False
) -> Iterator[tuple[OpenDatabase, int]]:
    """Open the store or service where the selectors name something; with it comes the run that is meant.

    A number is looked for in the workflow that was submitted to last. A name is looked for in every workflow; `acts`:
    something is done to the tasks, so a name that several running workflows have is refused.
    """
    place = find_target(args)
    others: list[ServerLocation] = []
    is_own = isinstance(place, ServerLocation) or not place.address
    if is_own and _by_name(selectors) and not (args.name or args.store or args.run):
        others = [other for other in own_stores(live=acts) if other != place]
    having = [one for one in others if _has(one, selectors)]
    if isinstance(place, ServiceAddress):
        among_stores = bool(having) and not _service_has(place, selectors)
    else:
        among_stores = bool(others)
        having[:0] = [place] if others and _has(place, selectors) else []
    if not among_stores:
        with open_place(place, acts=acts) as database:
            yield database, choose_run(database, args, selectors, acts=acts, output=output)
        return
    if acts and len(having) > 1:
        names = ", ".join(f"{one.name}:{args.selector}" for one in having)
        raise UserError(f"several running workflows have {args.selector}; say which: {names}")
    if not having:
        raise UnknownName(_nowhere(args.selector, [one.name for one in own_stores()]))
    chosen = having[0]
    if chosen != place:
        output.note(f"{args.selector} is in the workflow {chosen.name}")
    with open_place(chosen, acts=acts) as database:
        yield database, database.last_run()


def _by_name(selectors: Sequence[Selector]) -> bool:
    return any(isinstance(one, Named | Within) for one in selectors)


def _has(place: ServerLocation, selectors: Sequence[Selector]) -> bool:
    """Whether the latest run of a store has all that is named."""
    try:
        with open_place(place) as database:
            run = database.last_run()
            return all(_picks(database, selector, run) for selector in selectors)
    except UnknownName:
        return False


def _service_has(place: ServiceAddress, selectors: Sequence[Selector]) -> bool:
    """Whether one workflow of a service has all that is named."""
    with open_place(place) as database:
        return any(_names(database, selectors, one) for one in database.workflows())


def choose_run(
    database: OpenDatabase,
    args: argparse.Namespace,
    selectors: Sequence[Selector] = (),
    *,
    acts: bool = False,
    output: Output | None = None,
) -> int:
    """The run that is meant: of the workflow that was named, or that has what is named, or the latest."""
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
    return _unnamed(database, args, selectors, workflows, acts=acts, output=output)


def _unnamed(
    database: OpenDatabase,
    args: argparse.Namespace,
    selectors: Sequence[Selector],
    workflows: list[Workflow],
    *,
    acts: bool,
    output: Output | None,
) -> int:
    """The run that is meant when no workflow was named."""
    if len(workflows) == 1:
        return as_int(workflows[0]["run"])
    for record in (one.first if isinstance(one, Records) else one.record for one in selectors if _is_whole_id(one)):
        rows = database.rows("select run from tasks where id = ?", [record])
        if rows:
            return as_int(rows[0]["run"])
    going = [one for one in workflows if not one["closed"]] or workflows[-1:]
    if _by_name(selectors):
        going = _having(database, args.selector, selectors, going, workflows, acts=acts)
    elif len(going) > 1 and not (selectors and all(isinstance(one, Records | Elements | Last) for one in selectors)):
        names = ", ".join(str(one["name"]) for one in going)
        which = f"{going[-1]['name']}:{args.selector or 'all'}"
        raise UserError(f"several workflows are running: {names}; say which, as in {which}")
    chosen = max(going, key=lambda one: _last_submission(database, one))
    run = as_int(chosen["run"])
    if selectors and not _names(database, [one for one in selectors if isinstance(one, Records | Elements)], chosen):
        raise UnknownName(_not_in(database, args.selector, selectors, chosen, workflows))
    if output is not None and selectors:
        output.note(f"{args.selector or 'this'} is in the workflow {chosen['name']}")
    return run


def _not_in(
    database: OpenDatabase, text: str, selectors: Sequence[Selector], chosen: Workflow, workflows: Sequence[Workflow]
) -> str:
    """What to say when the workflow that was submitted to last has no such number."""
    last = [one for one in reversed(workflows) if one is not chosen][:_LOOKED_AT]
    others = ", ".join(dict.fromkeys(f"{one['name']}:{text}" for one in last if _names(database, selectors, one)))
    where = f"there is {others}" if others else "see bough status"
    return f"there is no {text} in the workflow {chosen['name']}, which was submitted to last; {where}"


def _having(
    database: OpenDatabase,
    text: str,
    selectors: Sequence[Selector],
    going: list[Workflow],
    workflows: list[Workflow],
    *,
    acts: bool,
) -> list[Workflow]:
    """The running workflows that have what is named, or the latest of all that has it."""
    having = [one for one in going if _names(database, selectors, one)]
    if not having:
        having = [one for one in reversed(workflows) if _names(database, selectors, one)][:1]
    if acts and len(having) > 1:
        names = ", ".join(f"{one['name']}:{text}" for one in having)
        raise UserError(f"several running workflows have {text}; say which: {names}")
    if not having:
        raise UnknownName(_nowhere(text, [str(one["name"]) for one in workflows]))
    return having


def _nowhere(text: str, workflows: Sequence[str]) -> str:
    """What to say when no workflow has what is named; a workflow's own name is often meant as one."""
    if text in workflows:
        return f"no task or group is named {text!r}; it is a workflow, and {text}:all means all of its tasks"
    return f"nothing is named {text!r} in any workflow; see bough status"


def _is_whole_id(selector: Selector) -> TypeGuard[Records | Elements]:
    """Whether it is an id as SQL and $BOUGH_TASK have it, which names its workflow itself."""
    return (isinstance(selector, Records) and selector.first >= NUMBERS) or (
        isinstance(selector, Elements) and selector.record >= NUMBERS
    )


def _names(database: OpenDatabase, selectors: Sequence[Selector], workflow: Workflow) -> bool:
    """Whether a workflow has all that is named."""
    run = as_int(workflow["run"])
    return all(_picks(database, selector, run) for selector in selectors)


def _last_submission(database: OpenDatabase, workflow: Workflow) -> tuple[bool, float, int]:
    """When something was submitted to a workflow last; this user's own workflows come before those of others."""
    run, latest = as_int(workflow["run"]), 0.0
    for base in bases_of(database.rows, run)[0]:
        rows = database.rows(
            "select submitted from tasks where id > ? and id < ? and run = ? order by id desc limit 1",
            [base, base + NUMBERS, run],
        )
        latest = max([latest, *(float(str(row["submitted"] or 0)) for row in rows)])
    return workflow.get("user") == user_name(), latest, run


def pick(database: OpenDatabase, selectors: Iterable[Selector], states: frozenset[str], run: int) -> list[Selected]:
    """The tasks that are meant, in the order of the selectors, each once; arrays whole unless a filter splits them."""
    found: dict[tuple[int, int, int], Selected] = {}
    for selector in selectors:
        picks = _picks(database, selector, run)
        if not picks and not isinstance(selector, All):
            raise UnknownName(_nothing(selector))
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


def _nothing(selector: Selector) -> str:
    match selector:
        case Elements(record):
            return f"no such element: {show_selector(selector)}; see bough status {record}"
        case Records(first, last) if first == last:
            return f"there is no task {first} in this workflow; see bough status all"
        case Within(path):
            return f"there is no group {path!r} with tasks in this workflow; see bough status"
        case _:
            return f"nothing is named {show_selector(selector)!r} in this workflow; see bough status all"


_LOOKED_AT = 100  # other workflows in which a number is looked for
_GLOB = {"*": ".*", "?": "."}
_COLUMNS = "tasks.id as id, tasks.length as length, tasks.is_array as is_array, tasks.state as state, indices"
_IN_GROUP = "tasks left join groups on groups.id = tasks.grp and groups.run = tasks.run"


def _picks(database: OpenDatabase, selector: Selector, run: int) -> list[Selected]:
    match selector:
        case Last():
            rows = database.rows(f"select {_COLUMNS} from tasks where run = ? order by id desc limit 1", [run])
        case All():
            rows = database.rows(f"select {_COLUMNS} from tasks where run = ? order by id", [run])
        case Records(first, last):
            rows = _numbered(database, run, first, last)
        case Elements(record, first, last):
            return [one for row in _numbered(database, run, record, record) for one in _slice(row, first, last)]
        case Within(path):
            rows = _within(database, path, run)
        case Named():
            rows = _named(database, selector, run) or _within(database, selector.name, run)
        case _:
            assert_never(selector)
    return [_whole(row) for row in rows]


def _numbered(database: OpenDatabase, run: int, first: int, last: int) -> list[dict[str, object]]:
    condition, values = numbered(database.rows, run, first, last)
    rows = database.rows(f"select {_COLUMNS} from tasks where {condition} order by id", values)
    if rows or database.is_service:
        return rows
    # the store of a service, read without it: records of earlier versions have numbers that only they have
    return database.rows(f"select {_COLUMNS} from tasks where id between ? and ? order by id", [first, last])


def _whole(row: dict[str, object]) -> Selected:
    if row["is_array"]:
        last = as_int(row["length"]) - 1
        return Selected(as_int(row["id"]), 0, last, is_array=True, whole=True, indices=_indices(row))
    return Selected(as_int(row["id"]), 0, 0, is_array=False, whole=True, state=str(row["state"]))


def _slice(row: dict[str, object], first: int, last: int) -> Iterator[Selected]:
    """The elements that are meant, by the indexes that the submitter wrote; nothing, if that goes beyond the last."""
    start, stop = positions(_indices(row), first, last)
    if start < stop and last <= index_label(_indices(row), max(as_int(row["length"]), 1) - 1):
        one = Selected(as_int(row["id"]), start, stop - 1, is_array=True, whole=False, indices=_indices(row))
        yield one if row["is_array"] else _whole(row)


def _indices(row: dict[str, object]) -> str:
    return str(row.get("indices") or "")


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
            yield one.part(first, last, state)


def element_states(database: OpenDatabase, one: Selected) -> list[tuple[int, int, str]]:
    """The states of an array's elements as ranges (first, last, state), both ends included, in order."""
    row = database.rows("select waits from tasks where id = ?", [one.id])[0]
    spans = database.rows("select start, stop, state from spans where id = ? and state != 'lost'", [one.id])
    singles = database.rows(
        "select idx, state from elements where id = ? and idx between ? and ? order by idx",
        [one.id, one.first, one.last],
    )
    ranges = [(as_int(span["start"]), as_int(span["stop"]), span_word(span["state"])) for span in spans]
    own = {as_int(single["idx"]): str(single["state"]) for single in singles}
    return _merged(one.first, one.last, ranges, own, rest="waiting" if row["waits"] else "ready")


def span_word(state: object) -> str:
    """The state of a task that a span or an attempt says: what an executor has not started is ready."""
    return "ready" if state == "placed" else str(state)


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
