r"""Flat lists: one command a line, read and written, and the steps that submit them.

    # a whole line that begins with # is a comment; blank lines are skipped
    sort in.txt > sorted.txt
    plot: after=count,sort cores=2 memory=4GB timeout=1h retries=2 :: plot sorted.txt \
        --format pdf
    in=a.txt,b.txt out=both.txt :: cat a.txt b.txt > both.txt
    monitor=plateau:score=([-0-9.]+),25,1e-4 monitor='silent:10min -> fail' :: ./fold protein.pdb
    sites=alpha,beta requires='memory_gb >= 64 and "avx512" in cpu' :: ./simulate
    :: echo "a command that holds :: itself begins with ::"

A backslash at the end joins the next line, as in a shell. Names are unique and may be used before the line that has
them. Lists with groups are for `grouped_list`; a flat list needs no plan, since it has no groups and is put in order
when it is read. Tasks have the numbers of their places, which come after those they wait for.
Rule: either the whole text is understood, or the error names file and line and nothing of it is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from bough.describe.plan import (
    GROWING,
    PlanTask,
    Where,
    check_task,
    file_writers,
    made_place,
    read_amount,
    read_growing,
    read_keep,
    read_queue_name,
    read_site_names,
    read_switch,
    show_growing,
    show_keep,
    without_gc,
)
from bough.describe.steps import ROOT, For, Step, What
from bough.errors import InvalidWorkload, did_you_mean
from bough.model.tasks import Keep


class FlatTask(NamedTuple):
    """One command of a flat list. Amounts that were not given are 0 (cores: 1)."""

    command: str
    name: str = ""
    after: tuple[str, ...] = ()  # names of other tasks of the list
    cores: float = 1
    memory: int = 0  # bytes
    timeout: float = 0  # seconds
    retries: int = 0
    reads: tuple[str, ...] = ()  # declared files
    writes: tuple[str, ...] = ()
    memory_growth: float = 0  # times so much after each attempt that its limit ended
    timeout_growth: float = 0
    monitors: tuple[str, ...] = ()  # as `model.monitoring.monitor_text` reads them
    sites: tuple[str, ...] = ()  # where it may run
    requires: str = ""  # of the executor's attributes
    queue: str = ""  # a named queue of the server
    idempotent: bool | None = None  # False: it never runs twice at the same time; None: nothing was said of it
    keep: Keep = True  # False: what it writes is temporary; "later": it is written back in bulk
    line: int = 0  # where it begins, from 1; 0: it was not read from a text


NAME = re.compile(r"[\w.+@%~-]+\Z")
_OPTION = re.compile(r"(?:[A-Za-z_]\w*|(?:attr|env)\.[^\s=]+)=")
_OPTIONS = (
    *("after", "cores", "memory", "timeout", "retries", "in", "out", "monitor", "sites", "requires", "queue"),
    *("idempotent", "keep"),
)
_MONITOR = "monitor="
_WORD = re.compile(r"(?:monitor|requires)='[^']*'(?=\s|\Z)|\S+")


def read(text: str, filename: str) -> list[FlatTask]:
    """Read a flat list. Tasks come in the order of the file, but for those that others wait for, which come first."""
    tasks = [_read_task(line, number, filename) for number, line in logical_lines(text, filename)]
    named: dict[str, FlatTask] = {}
    for task in tasks:
        if task.name:
            first = named.setdefault(task.name, task)
            if first is not task:
                raise _wrong(filename, task.line, f"the name {task.name!r} is taken by line {first.line}")
    for task in tasks:
        for name in task.after:
            if name not in named:
                raise _wrong(filename, task.line, f"after={name}: no line has the name {name!r}")
    return _in_order(tasks, _waits(tasks, named, filename), filename)


def _waits(tasks: list[FlatTask], named: dict[str, FlatTask], filename: str) -> dict[int, list[FlatTask]]:
    """What each task waits for, by its line: those it names, and those that write what it reads."""
    writers = file_writers([_plan_task(task, filename) for task in tasks]) if any(task.writes for task in tasks) else {}
    found: dict[int, list[FlatTask]] = {}
    for task in tasks:
        if task.after or (task.reads and writers):
            places = [made_place(os.path.abspath(path), writers) for path in task.reads]
            makers = [maker for place in places if place and (maker := tasks[writers[place]]) is not task]
            found[task.line] = [*(named[name] for name in task.after), *makers]
    return found


def write(tasks: Iterable[FlatTask]) -> str:
    """Write tasks as a flat list that reads back as the same tasks."""
    return "".join(f"{show_task(task)}\n" for task in tasks)


def show_task(task: FlatTask) -> str:
    """One task as a line, without the end of the line."""
    if "\n" in task.command or not task.command.strip() or is_continued(task.command):
        raise InvalidWorkload(f"the command {task.command!r} cannot stand on one line of a flat list")
    words = [f"{task.name}:"] if task.name else []
    if task.after:
        words.append("after=" + ",".join(task.after))
    if task.cores != 1:
        words.append(f"cores={task.cores:.15g}")
    if task.memory:
        words.append(f"memory={show_growing(task.memory, task.memory_growth)}")
    if task.timeout:
        words.append(f"timeout={show_growing(task.timeout, task.timeout_growth)}")
    if task.retries:
        words.append(f"retries={task.retries}")
    words += [f"queue={task.queue}"] if task.queue else []
    words += [] if task.idempotent is None else [f"idempotent={'yes' if task.idempotent else 'no'}"]
    words += [] if task.keep is True else [f"keep={show_keep(task.keep)}"]
    if task.reads:
        words.append("in=" + show_paths(task.reads))
    if task.writes:
        words.append("out=" + show_paths(task.writes))
    words += map(show_monitor, task.monitors)
    words += ["sites=" + ",".join(task.sites)] if task.sites else []
    words += [show_quoted("requires", task.requires)] if task.requires else []
    if not words and not _needs_mark(task.command):
        return task.command
    return " ".join([*words, "::", task.command])


def _needs_mark(command: str) -> bool:
    return command.startswith("#") or split_prefix(command) is not None


def _wrong(filename: str, line: int, message: str) -> InvalidWorkload:
    return InvalidWorkload(f"{filename}:{line}: {message}")


def logical_lines(text: str, filename: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations, stripped, with the number of their first line."""
    if "\0" in text:
        number = text.count("\n", 0, text.index("\0")) + 1
        raise _wrong(filename, number, "the line holds a null byte; a flat list is plain text")
    lines = enumerate(text.split("\n"), start=1)
    for number, raw in lines:
        line = raw.strip()
        if not line or line[0] == "#":
            continue
        if line[-1] == "\\" and is_continued(line):
            line = _joined(raw, lines, filename, number)
        if line:
            yield number, line


def is_continued(line: str) -> bool:
    """Whether a line ends with a backslash that joins the next one."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1  # an even number is escaped backslashes


def _joined(raw: str, lines: Iterator[tuple[int, str]], filename: str, number: int) -> str:
    parts: list[str] = []
    while is_continued(raw.rstrip()):
        line = raw.rstrip("\r")
        if not line.endswith("\\"):
            raise _wrong(filename, number, "blanks follow the backslash that ends the line; remove them")
        parts.append(line[:-1])
        following = next(lines, None)
        if following is None:
            raise _wrong(filename, number, "the last line ends with a backslash and nothing follows it")
        number, raw = following
    return "".join([*parts, raw]).strip()


def split_prefix(line: str) -> tuple[str, str] | None:
    """The prefix and the command, or None for a plain command."""
    if "::" not in line:
        return None
    words = line.split(None, 1)
    if words[0] == "::":
        return "", words[1] if len(words) > 1 else ""
    first = words[0]
    if not (_OPTION.match(first) or (first.endswith(":") and first.count(":") == 1)):
        return None
    match = re.search(r"\s::(\s+|\Z)", line)
    return None if match is None else (line[: match.start()], line[match.end() :])


def _read_task(line: str, number: int, filename: str) -> FlatTask:
    split = split_prefix(line)
    if split is None:
        return FlatTask(line, line=number)
    prefix, command = split
    if not command:
        raise _wrong(filename, number, "there is no command after '::'")
    words = prefix_words(prefix)
    name = words.pop(0)[:-1] if words and words[0].endswith(":") else ""
    if name and not NAME.match(name):
        raise _wrong(filename, number, f"{name!r} is no name; use letters, digits and any of _ . + @ % ~ -")
    after: tuple[str, ...] = ()
    said: dict[str, tuple[str, ...]] = {}
    amounts: dict[str, float] = {}
    growth: dict[str, float] = {}
    seen: set[str] = set()
    monitors = tuple([read_quoted(word[len(_MONITOR) :]) for word in words if word.startswith(_MONITOR)])
    for word in [word for word in words if not word.startswith(_MONITOR)] if monitors else words:
        option, equals, value = word.partition("=")
        if not equals or option not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            raise _wrong(
                filename,
                number,
                f"{word!r} is not one of the options {known}; a command that holds '::' itself begins with ':: '"
                f"{did_you_mean(option, _OPTIONS)}",
            )
        if option in seen:
            raise _wrong(filename, number, f"{option}= is given twice")
        seen.add(option)
        if option == "after":
            after = _names(value, number, filename)
        elif option in _READERS:
            try:
                said[option] = _READERS[option](option, value)
            except ValueError as error:
                raise _wrong(filename, number, str(error)) from None
        else:
            amounts[option], growth[option] = _amount(option, value, number, filename)
    return FlatTask(
        command,
        name,
        after,
        cores=amounts.get("cores", 1),
        memory=int(amounts.get("memory", 0)),
        timeout=amounts.get("timeout", 0),
        retries=int(amounts.get("retries", 0)),
        reads=said.get("in", ()),
        writes=said.get("out", ()),
        memory_growth=growth.get("memory", 0),
        timeout_growth=growth.get("timeout", 0),
        monitors=monitors,
        sites=said.get("sites", ()),
        requires="".join(said.get("requires", ())),
        queue="".join(said.get("queue", ())),
        idempotent=bool(said["idempotent"]) if "idempotent" in said else None,
        keep=read_keep(said["keep"][0]) if "keep" in said else True,
        line=number,
    )


def _names(value: str, number: int, filename: str) -> tuple[str, ...]:
    names = value.split(",")
    if not all(names):
        raise _wrong(filename, number, f"after={value}: give one name or several, separated by commas without spaces")
    return tuple(dict.fromkeys(names))


def prefix_words(prefix: str) -> list[str]:
    """The words before `::`. Blanks separate them, but not within the quotes of monitor='...' and requires='...'."""
    return _WORD.findall(prefix) if "='" in prefix else prefix.split()


def read_quoted(value: str) -> str:
    """What monitor= or requires= says: a text in quotes as it stands; else %20 stands for a blank, as in paths."""
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1]
    from urllib.parse import unquote

    return unquote(value)


def show_monitor(text: str) -> str:
    """The word that says a monitor, as `prefix_words` and `read_quoted` read it."""
    return show_quoted("monitor", text)


def show_quoted(option: str, text: str) -> str:
    """The word that says a text that may hold blanks, as `prefix_words` and `read_quoted` read it."""
    if not any(char.isspace() or char in "%'" for char in text):
        return f"{option}={text}"
    if "'" not in text and "::" not in text and not any(char.isspace() and char != " " for char in text):
        return f"{option}='{text}'"
    from urllib.parse import quote

    return f"{option}={quote(text, safe=_SAFE.replace(chr(39), '') + ',')}"


def read_paths(option: str, value: str) -> tuple[str, ...]:
    """Paths, separated by commas; %20 stands for a blank, %2C for a comma. ValueError says what would be right."""
    from urllib.parse import unquote

    paths = tuple(dict.fromkeys(unquote(path) for path in value.split(",")))
    if not all(paths):
        raise ValueError(f"{option}={value:.60}: give one path or several, separated by commas without spaces")
    return paths


def show_paths(paths: Iterable[str]) -> str:
    """Paths as `read_paths` reads them."""
    from urllib.parse import quote

    return ",".join(quote(path, safe=_SAFE) for path in paths)


_READERS: dict[str, Callable[[str, str], tuple[str, ...]]] = {
    "in": read_paths,
    "out": read_paths,
    "sites": lambda _, value: tuple(read_site_names(value)),
    "requires": lambda _, value: (read_quoted(value).strip(),),
    "queue": lambda _, value: (read_queue_name(value),),
    "idempotent": lambda option, value: ("yes",) if read_switch(option, value) else (),
    "keep": lambda _, value: (show_keep(read_keep(value)),),
}


_SAFE = "/:@+~=^()[]{}!*'\"<>|&;$?`\\"  # in a path: neither blanks nor commas


def _amount(option: str, value: str, number: int, filename: str) -> tuple[float, float]:
    """An amount, and by which factor it grows."""
    try:
        return read_growing(option, value) if option in GROWING else (read_amount(option, value), 0.0)
    except ValueError as error:
        raise _wrong(filename, number, str(error)) from None


def _in_order(tasks: list[FlatTask], waits: dict[int, list[FlatTask]], filename: str) -> list[FlatTask]:
    """Dependencies first, else as in the file. A walk with its own stack: chains may be as long as the file."""
    if not waits:
        return tasks
    order: list[FlatTask] = []
    finished: set[int] = set()  # by line
    path: dict[int, FlatTask] = {}  # being visited, outermost first
    for root in tasks:
        stack = [(root, iter(waits.get(root.line, ())))] if root.line not in finished else []
        if stack:
            path[root.line] = root
        while stack:
            task, waiting = stack[-1]
            other = next(waiting, None)
            if other is None:
                stack.pop()
                del path[task.line]
                finished.add(task.line)
                order.append(task)
                continue
            if other.line in path:
                raise _cycle(list(path.values()), other, filename)
            if other.line not in finished:
                path[other.line] = other
                stack.append((other, iter(waits.get(other.line, ()))))
    return order


def _cycle(path: list[FlatTask], other: FlatTask, filename: str) -> InvalidWorkload:
    ring = [*path[path.index(other) :], other]
    names = " -> ".join(task.name or f"{task.command:.40}" for task in ring)
    lines = " -> ".join(str(task.line) for task in ring)
    return _wrong(filename, other.line, f"these tasks wait for each other: {names} (lines {lines})")


def flat_steps(tasks: Sequence[FlatTask], file: str) -> list[Step]:
    """What submits the tasks of a flat list, as `read` gives them."""
    steps: list[Step] = []
    numbers: dict[str, int] = {}
    makers: dict[str, int] = {}  # of declared files
    with without_gc():
        for number, task in enumerate(tasks, 1):
            if task.name:
                numbers[task.name] = number
            said = _plan_task(task, file)
            check_task(said)
            waits = tuple([(For.TASK, numbers[name]) for name in task.after])
            if makers and task.reads:
                places = [made_place(os.path.abspath(path), makers) for path in task.reads]
                made = [makers[place] for place in places if place]
                waits = tuple(dict.fromkeys((*waits, *((For.TASK, maker) for maker in made))))
            if task.writes:
                makers.update((os.path.abspath(path), number) for path in task.writes)
            steps.append(Step(What.TASK, number, ROOT, waits, said))
    return steps


def _plan_task(task: FlatTask, file: str) -> PlanTask:
    return PlanTask(
        task.command,
        task.name,
        list(task.after),
        cores=task.cores,
        memory=task.memory,
        timeout=task.timeout,
        retries=task.retries,
        reads=list(task.reads),
        writes=list(task.writes),
        memory_growth=task.memory_growth,
        timeout_growth=task.timeout_growth,
        monitors=list(task.monitors),
        sites=list(task.sites),
        requires=task.requires,
        queue=task.queue,
        idempotent=task.idempotent,
        keep=task.keep,
        where=Where(file, task.line),
    )
