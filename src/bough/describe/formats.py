"""The forms in which workflows are written: which one a file has, and what reads and writes it; plans as JSON.

A reader makes a plan of a file, a writer a text of a plan. Both are named as "module:function" and loaded when they are
wanted. The JSON, for other programs, has everything that a plan holds and nothing else; what is written reads back as
the same plan.
Rule: a new form is an entry in one of the two tables, and nothing else.
"""

from __future__ import annotations

import importlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from bough.describe.plan import (
    Plan,
    PlanGroup,
    PlanTask,
    Verdict,
    Where,
    of_group,
    settings_of,
    tidy,
    with_explicit_order,
    without_gc,
)
from bough.errors import InvalidWorkload, UserError
from bough.model.bounds import in_plain_words
from bough.model.texts.plurals import counted

if TYPE_CHECKING:
    from bough.describe.wfformat import TraceReplay

_IS_DAG = re.compile(r"\.dag(?:\.rescue\d{3})?\Z")
KEY = "bough_plan"  # of plans as JSON
VERSION = 1


class Source(NamedTuple):
    """A file that is to be read."""

    path: str  # as it was named; - is standard input
    text: str
    args: tuple[str, ...] = ()  # what stands behind it on the command line
    emulation: TraceReplay | None = None  # how a recorded workflow is replayed, if it is
    note: Callable[[str], None] = lambda _: None  # told what a reader passes over

    @property
    def name(self) -> str:
        """How messages name it."""
        return "stdin" if self.path == "-" else self.path

    @property
    def is_makefile(self) -> bool:
        """Whether its name is that of a Makefile."""
        base = os.path.basename(self.path)
        return base.endswith((".mk", ".make")) or base.lower() in {"makefile", "gnumakefile"}


class FormatReader(NamedTuple):
    """What reads a form."""

    form: str
    suits: Callable[[Source], bool]
    read: str  # module:function, which takes a Source and gives a Plan
    takes_arguments: bool = False


def _is_script(source: Source) -> bool:
    if not is_python(source.path, source.text):
        return False
    from bough.describe.trellisdag.description_script import is_description

    return is_description(source.text)


def is_python(path: str, text: str) -> bool:
    """Whether a file is a Python script: by its name, or by its first line."""
    first = text[:200].partition("\n")[0]
    return path.endswith(".py") or (path != "-" and first.startswith("#!") and "python" in first)


def _is_trellis(source: Source) -> bool:
    if not source.is_makefile and not source.text.startswith("#AutoMakefile"):
        return False
    from bough.describe.trellisdag.trellis_makefile import is_trellis

    return is_trellis(source.text)


def _is_plan(source: Source) -> bool:
    if source.text.lstrip()[:1] != "{":
        return False

    return is_plan(source.text)


def _is_job_file(source: Source) -> bool:
    if not source.path.endswith(".jdf") and "job" not in source.text[:10_000]:
        return False
    from bough.describe.ourgrid_job import is_job_file

    return is_job_file(source.path, source.text)


def _is_make(source: Source) -> bool:
    return source.is_makefile and source.path != "-"


def _is_trace(source: Source) -> bool:
    from bough.describe.wfformat import is_wfformat

    return source.text.lstrip()[:1] == "{" and is_wfformat(source.text)


def _is_mqsub(source: Source) -> bool:
    if "mqsub" not in source.text or source.is_makefile or source.path.endswith(".py"):
        return False
    from bough.describe.trellisdag.mqsub import is_mqsub

    return is_mqsub(source.text)


def _is_grouped(source: Source) -> bool:
    if "::" not in source.text or source.is_makefile:
        return False
    from bough.describe.grouped_list import is_grouped

    return is_grouped(source.text)


# In the order in which they are asked whether a file is theirs.
READERS: list[FormatReader] = [
    FormatReader("script", _is_script, "bough.describe.formats:_read_script", takes_arguments=True),
    FormatReader("trellis", _is_trellis, "bough.describe.formats:_read_trellis"),
    FormatReader("make", _is_make, "bough.describe.formats:_read_make", takes_arguments=True),
    FormatReader(
        "dagman", lambda source: _IS_DAG.search(source.path) is not None, "bough.describe.formats:_read_dagman"
    ),
    FormatReader("ourgrid", _is_job_file, "bough.describe.formats:_read_job_file"),
    FormatReader("json", _is_plan, "bough.describe.formats:_read_json"),
    FormatReader("wfformat", _is_trace, "bough.describe.formats:_read_trace"),
    FormatReader("mqsub", _is_mqsub, "bough.describe.formats:_read_mqsub"),
    FormatReader("groups", _is_grouped, "bough.describe.formats:_read_flat"),
]
WRITERS: dict[str, str] = {
    "make": "bough.describe.trellisdag.trellis_makefile:write",
    "flat": "bough.describe.grouped_list:write",
    "mqsub": "bough.describe.trellisdag.mqsub:write",
    "dot": "bough.describe.dot:write_plan",
    "json": "bough.describe.formats:write_json",
    "wfformat": "bough.describe.formats:_write_trace",
}
FLAT = FormatReader("flat", lambda _: True, "bough.describe.formats:_read_flat")


def find_reader(source: Source) -> FormatReader | None:
    """What reads a file; None: it is a plain list of commands, or a Python script that is no description."""
    return next((reader for reader in READERS if reader.suits(source)), None)


def read(source: Source, reader: FormatReader) -> Plan:
    """The plan of a file."""
    if source.args and not reader.takes_arguments:
        raise UserError(f"{source.name} takes no arguments: {' '.join(source.args)}")
    if source.emulation is not None and reader.form != "wfformat":
        raise UserError(f"{source.name} is no recorded workflow (WfFormat); there is nothing to emulate")
    if not source.text.isascii():
        _check_unicode(source)
    with without_gc():
        plan: Plan = _loaded(reader.read)(source)
    plan.source = source.name
    return plan


def _check_unicode(source: Source) -> None:
    """Refuse a text of which half a character could be neither sent nor stored."""
    try:
        source.text.encode()
    except UnicodeEncodeError as error:
        line = source.text.count("\n", 0, error.start) + 1
        raise UserError(f"{source.name}:{line}: a description is UTF-8 text, and this line is not") from None


def write(plan: Plan, form: str) -> str:
    """A plan in another form."""
    if form not in WRITERS:
        raise UserError(f"there is no form {form!r}; give one of {', '.join(WRITERS)}")
    text: str = _loaded(WRITERS[form])(plan if form in _WITH_FILES else with_explicit_order(plan))
    return text


def left_out(plan: Plan, form: str) -> str:
    """What of a plan a form has no place for, or whoever reads it passes over, in a line; empty if nothing."""
    tasks = sum(bool(task.monitors) for _, group in plan.walk() for task in group.all_tasks())
    groups = sum(bool(group.monitors) for _, group in plan.walk())
    found = [(tasks, "task")] if form in _WITHOUT_MONITORS else []
    found += [(groups, "group")] if form in {*_WITHOUT_MONITORS, "mqsub"} else []
    said = " and ".join(f"{count} {noun}{'s' if count > 1 else ''}" for count, noun in found if count)
    lines = [f"{form} has no place for monitors: those of {said} are left out"] if said else []
    tasks_there = [task for _, group in plan.walk() for task in group.all_tasks()]
    bound = sum(bool(task.sites or task.requires or task.queue) for task in tasks_there)
    if bound and form in _WITHOUT_MONITORS:
        what = "sites, requirements and queues"
        lines.append(f"{form} has no place for {what}: those of {counted(bound, 'task')} are left out")
    lines += _settings_left_out([group for _, group in plan.walk()], form)
    limited = sum(bool(group.limit or group.retries or group.timeout) for _, group in plan.walk())
    if limited and form in {*_WITHOUT_MONITORS, "mqsub"}:
        lines.append(f"{form} has no place for limits of groups: those of {counted(limited, 'group')} are left out")
    declaring = sum(bool(task.reads or task.writes) for task in tasks_there)
    if declaring and form not in _WITH_FILES:
        lines.append(f"{form} has no place for declared files: of {counted(declaring, 'task')} only the order is kept")
    if plan.verdict is not None and form != "json":
        lines.append(f"{form} has no place for what decides about success: it is left out")
    moving = sum(task.playpen for task in tasks_there)
    if moving and form != "json":
        lines.append(f"{form} has no place for playpens: what {counted(moving, 'task')} put, store and get is left out")
    timeless = sum("seconds" not in task.attributes for task in tasks_there)
    if timeless and form == "wfformat":
        have = f"{counted(timeless, 'task')} {'have' if timeless > 1 else 'has'} no run time"
        lines.append(f"wfformat has commands only of workflows that have run, and {have}: all commands are left out")
    return "; ".join(lines)


def _settings_left_out(groups: Sequence[PlanGroup], form: str) -> Iterator[str]:
    """How tasks run, as far as a form cannot say it or `make` does not do it."""
    done = _DONE.get(form)
    if done is None:
        return
    tasks = [task for group in groups for task in group.all_tasks()]
    found = Counter(key for task in tasks for key in settings_of(task) - done)
    if form == "make":
        from bough.describe.trellisdag.trellis_makefile import has_name_for_shells

        found["env"] = sum(not all(map(has_name_for_shells, task.env)) for task in tasks)
        found.update(key for group in groups for key, _ in of_group(group) if key in _OF_GROUPS)
    words = ", ".join(sorted(+found))
    if words and form == "make":
        yield f"make passes over {words} of its comments, which Bough reads"
    elif words:
        yield f"{form} has no place for {words}: what tasks say by that is left out"


_WITHOUT_MONITORS = frozenset({"dot", "wfformat"})
_SAID = frozenset({"monitor", "sites", "requires", "queue"})  # in a line of their own
_OF_GROUPS = frozenset({"limit", "retries", "timeout", "monitor"})
_DONE = {  # settings that each form has, or that make no difference to who runs it
    "make": frozenset({"cwd", "env", "memo", "idempotent", "affinity", "priority", "release", "keep"}),
    "dot": _SAID,
    "wfformat": _SAID | {"cores", "priority"},
}
_WITH_FILES = frozenset({"flat", "json"})  # forms that say which files a task reads and writes


def _loaded(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def _read_script(source: Source) -> Plan:
    from bough.describe.trellisdag.description_script import read_script

    return read_script(source.text, source.path, source.args)


def _read_trellis(source: Source) -> Plan:
    from bough.describe.trellisdag.trellis_makefile import read

    return read(source.text, source.name)


def _read_json(source: Source) -> Plan:

    return read_json(source.text, source.name)


def _read_job_file(source: Source) -> Plan:
    from bough.describe.ourgrid_job import read

    return read(source.text, source.name)


def _read_mqsub(source: Source) -> Plan:
    from bough.describe.trellisdag.mqsub import read

    return read(source.text, source.name)


def _read_flat(source: Source) -> Plan:
    from bough.describe.grouped_list import read

    return read(source.text, source.name)


def _read_make(source: Source) -> Plan:
    from bough.describe.make.makefile import read

    return read(source.path, source.args)


def _read_dagman(source: Source) -> Plan:
    from bough.describe.dagman.dag_plan import read

    return read(source.path, source.note)


def _read_trace(source: Source) -> Plan:
    from bough.describe.wfformat import read

    return read(source.text, source.name, source.emulation, source.note)


def _write_trace(plan: Plan) -> str:
    from bough.describe.task_graph import of_plan
    from bough.describe.wfformat import write

    return write(of_plan(plan, os.path.splitext(os.path.basename(plan.source))[0] or "workflow"))


class _File(msgspec.Struct, omit_defaults=True):
    bough_plan: int
    levels: list[str] = []
    root: PlanGroup = msgspec.field(default_factory=lambda: PlanGroup("", pipeline=False))
    verdict: Verdict | None = None


def write_json(plan: Plan) -> str:
    """A plan as JSON, without the places it was read from."""
    bare = tidy(plan)
    return (
        msgspec.json.format(msgspec.json.encode(_File(VERSION, bare.levels, bare.root, bare.verdict))).decode() + "\n"
    )


def is_plan(text: str) -> bool:
    """Whether a text is a plan as JSON."""
    return f'"{KEY}"' in text[:200]


def read_json(text: str, file: str) -> Plan:
    """A plan from JSON."""
    try:
        found = msgspec.json.decode(text, type=_File)
    except msgspec.DecodeError as error:
        raise InvalidWorkload(f"{file}: {in_plain_words(str(error))}") from error
    except RecursionError:
        raise InvalidWorkload(f"{file}: its groups lie too deep in each other") from None
    if found.bough_plan != VERSION:
        raise InvalidWorkload(f"{file}: it is of version {found.bough_plan}, and this Bough reads version {VERSION}")
    plan = Plan(found.levels, found.root, file, found.verdict)
    here = Where(file)
    for _, group in plan.walk():
        group.where = here
        for task in group.all_tasks():
            assert isinstance(task, PlanTask)
            task.where = here
    return plan
