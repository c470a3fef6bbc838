"""Flat scripts of TrellisDAG: one call of `mqsub` per job, in an order in which what is waited for comes first.

    mqsub -deps "crunch audit" -l "pack" -c "./pack all" -attr "affinity=yes"

Every target of the Makefile is a group here, prologues too, and one without commands has a job that does nothing, as
in the original (Goldenberg, TrellisDAG, 2003, chapter 4). A command may have several lines. Rule: such a script runs as
it stands; of the jobs of a group each waits for the one before, so that the tasks of a group that is no pipeline are
groups of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from bough.describe.flat_list import is_continued
from bough.describe.plan import Plan, PlanGroup, PlanTask, Where, join, of_task, put_on_task
from bough.describe.trellisdag.expansion import PROLOGUE, ExpandedTarget, targets

_CALL = re.compile(r"^\s*mqsub\s+-", re.MULTILINE)
_OPTIONS = {"-l": "group", "-deps": "deps", "-c": "command", "-comm": "command", "-attr": "attributes"}
_NOTHING = "echo"
_SPECIAL = re.compile(r'[\\"$`]')
_HARD = re.compile(r"[\s#%]", re.ASCII)  # in a value: what would end it
_ESCAPE = re.compile(r"%(20|23|25|0[9ABCDabcd])")
_PIECE = re.compile(r"""(?P<double>"(?:\\.|[^"\\])*")|(?P<single>'[^']*')|\\(?P<bare>.)""", re.DOTALL)
_WORD = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\])+""", re.DOTALL)


def is_mqsub(text: str) -> bool:
    """Whether a list of commands is made of calls of `mqsub`."""
    return _CALL.search(text) is not None


def write(plan: Plan) -> str:
    """A plan as calls of `mqsub`, in the order of the numbers of jobs."""
    found = targets(_in_pipelines(plan))
    if not plan.levels:
        found = list(_without_empty_prologues(found))
    names = {target.id: target.name for target in found}
    return "".join(f"{line}\n" for target in found for line in _calls(target, names))


def _in_pipelines(plan: Plan) -> Plan:
    """The same workflow with pipelines alone: a task that waits for none of its group becomes a group in it."""
    if not any(path and not group.pipeline and len(group.tasks) > 1 for path, group in plan.walk()):
        return plan
    taken = {group.name for _, group in plan.walk()} | {task.name for task in plan.root.tasks}

    def changed(group: PlanGroup, path: str) -> PlanGroup:
        inner = [changed(one, join(path, one.name)) for one in group.groups]
        if not path or group.pipeline or len(group.tasks) < 2:
            return msgspec.structs.replace(group, groups=inner)
        before = [join(path, one.name) for one in group.groups]
        for number, task in enumerate(group.tasks, start=1):
            name = task.name.replace("/", "_").lstrip(".") or f"{group.name}_{number}"
            while name in taken:
                name += "_"
            taken.add(name)
            alone = msgspec.structs.replace(task, after=[])
            inner.append(PlanGroup(name, after=[*task.after, *before], tasks=[alone], where=task.where))
        return msgspec.structs.replace(group, groups=inner, tasks=[])

    return msgspec.structs.replace(plan, root=changed(plan.root, ""))


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
        pairs = "#".join(f"{key}={_HARD.sub(_escaped, value)}" for key, value in of_task(task) if key != "after")
        yield " ".join(words + (["-attr", _quoted(pairs)] if pairs else []))


def _escaped(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"


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
    for number, line in _lines(text, file):
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


def _lines(text: str, file: str) -> Iterator[tuple[int, str]]:
    """The calls with the numbers of their first lines; a quote that is open at the end of a line takes in the next."""
    if "\0" in text:
        raise Where(file, text.count("\n", 0, text.index("\0")) + 1).wrong("the line holds a null byte")
    lines = enumerate(text.split("\n"), start=1)
    for number, raw in lines:
        if not raw.strip() or raw.lstrip()[0] == "#":
            continue
        parts, quote = [raw], _quote_after(raw, "")
        while quote or is_continued(parts[-1].rstrip("\r")):
            following = next(lines, (0, None))[1]
            if following is None:
                break  # what is wrong is told with the call
            if not quote:
                parts[-1] = parts[-1].rstrip("\r")[:-1]
            parts += ["\n", following] if quote else [following]
            quote = _quote_after(following, quote)
        yield number, "".join(parts).strip()


def _quote_after(line: str, quote: str) -> str:
    """The quote that is open at the end of a line, if one was at its beginning or not."""
    at = 0
    while at < len(line):
        if quote == "'":
            at = line.find("'", at)
            if at < 0:
                return quote
            quote = ""
        elif line[at] == "\\":
            at += 1
        elif line[at] == '"':
            quote = "" if quote else '"'
        elif line[at] == "'" and not quote:
            quote = "'"
        at += 1
    return quote


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
            put_on_task(task, key, _ESCAPE.sub(lambda match: chr(int(match[1], 16)), value))
        except ValueError as error:
            raise where.wrong(str(error)) from None
    return task
