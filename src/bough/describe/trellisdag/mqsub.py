"""Flat scripts of TrellisDAG: one call of `mqsub` per job, in an order in which what is waited for comes first.

    mqsub -deps "crunch audit" -l "pack" -c "./pack all" -attr "affinity=yes"

Every target of the Makefile is a group here, prologues too, and one without commands has a job that does nothing, as
in the original (Goldenberg, TrellisDAG, 2003, chapter 4). Rule: such a script runs as it stands; of the jobs of a group
each waits for the one before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bough.describe.flat_list import logical_lines
from bough.describe.plan import Plan, PlanGroup, PlanTask, Where, of_task, put_on_task
from bough.describe.trellisdag.expansion import PROLOGUE, ExpandedTarget, targets

_CALL = re.compile(r"^\s*mqsub\s+-", re.MULTILINE)
_OPTIONS = {"-l": "group", "-deps": "deps", "-c": "command", "-comm": "command", "-attr": "attributes"}
_NOTHING = "echo"
_SPECIAL = re.compile(r'[\\"$`]')
_PIECE = re.compile(r"""(?P<double>"(?:\\.|[^"\\])*")|(?P<single>'[^']*')|\\(?P<bare>.)""")
_WORD = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\])+""")


def is_mqsub(text: str) -> bool:
    """Whether a list of commands is made of calls of `mqsub`."""
    return _CALL.search(text) is not None


def write(plan: Plan) -> str:
    """A plan as calls of `mqsub`, in the order of the numbers of jobs."""
    found = targets(plan)
    if not plan.levels:
        found = list(_without_empty_prologues(found))
    names = {target.id: target.name for target in found}
    return "".join(f"{line}\n" for target in found for line in _calls(target, names))


def _without_empty_prologues(found: list[ExpandedTarget]) -> Iterator[ExpandedTarget]:
    """The targets of a Makefile by hand: what waits for an empty prologue waits for what that waits for."""
    empty: dict[int, tuple[int, ...]] = {}  # what they wait for; they may wait for each other, and come in that order
    for target in found:
        others = tuple(dict.fromkeys(one for other in target.before for one in empty.get(other, (other,))))
        if target.name.endswith(PROLOGUE) and not target.tasks:
            empty[target.id] = others
        else:
            yield target._replace(before=others)


def _calls(target: ExpandedTarget, names: dict[int, str]) -> Iterator[str]:
    deps = " ".join(names[other] for other in target.before)
    for task in target.tasks or (PlanTask(_NOTHING),):
        words = ["mqsub", "-deps", _quoted(deps), "-l", _quoted(target.name), "-c", _quoted(task.command)]
        pairs = "#".join(f"{key}={value}" for key, value in of_task(task) if key != "after")
        yield " ".join(words + (["-attr", _quoted(pairs)] if pairs else []))


def _plain(word: str) -> str:
    """A word without its quotes."""
    if word[0] == '"' and "\\" not in word and word.find('"', 1) == len(word) - 1:
        return word[1:-1]
    return _PIECE.sub(_unquoted, word)


def _unquoted(piece: re.Match[str]) -> str:
    if piece["double"] is not None:
        return re.sub(r'\\([\\"$`])', r"\1", piece["double"][1:-1])
    return piece["single"][1:-1] if piece["single"] is not None else piece["bare"]


def _quoted(text: str) -> str:
    return '"' + _SPECIAL.sub(r"\\\g<0>", text) + '"'


def read(text: str, file: str) -> Plan:
    """Calls of `mqsub` as a plan; groups that are waited for may also come later."""
    plan = Plan(source=file)
    groups: dict[str, PlanGroup] = {}
    for number, line in logical_lines(text, file):
        where = Where(file, number)
        said = _options(line, where)
        name = said.get("group", "")
        if not name:
            raise where.wrong("mqsub needs -l and the name of a group")
        group = groups.get(name)
        if group is None:
            group = groups[name] = PlanGroup(name, where=where)
            plan.root.groups.append(group)
        if said.get("deps"):
            group.after = list(dict.fromkeys((*group.after, *said["deps"].split())))
        command = said.get("command", "").strip()
        if not command:
            raise where.wrong("mqsub needs -c and a command")
        if command != _NOTHING:
            group.tasks.append(_task(command, said.get("attributes", ""), where))
    return plan


def _options(line: str, where: Where) -> dict[str, str]:
    words = [_plain(word) for word in _WORD.findall(line)]
    if ("'" in line or "\\" in line or line.count('"') % 2) and _WORD.sub("", line).strip():
        raise where.wrong(f"a quote is not closed in {line:.60}")
    if words[0] != "mqsub":
        raise where.wrong(f"{words[0]!r:.40} stands among calls of mqsub; a list has either those or plain commands")
    said: dict[str, str] = {}
    rest = iter(words[1:])
    for word in rest:
        if word not in _OPTIONS:
            raise where.wrong(f"{word!r:.40} is not one of the options {', '.join(_OPTIONS)} of mqsub")
        said[_OPTIONS[word]] = next(rest, "")
    return said


def _task(command: str, pairs: str, where: Where) -> PlanTask:
    task = PlanTask(command, where=where)
    for pair in re.split(r"[#\s]+", pairs.strip()) if pairs.strip() else ():
        key, _, value = pair.partition("=")
        try:
            put_on_task(task, key, value)
        except ValueError as error:
            raise where.wrong(str(error)) from None
    return task
