"""What `Session.command` and `Session.sweep` make of a text and its parameters, before anything is sent.

A text without parameters is taken verbatim, a list of words runs without a shell, as in `subprocess`. Only a keyword
beside the space of a sweep may be a template; every other value is data, braces and all. A task, or one of its
outputs, given for an `:r` slot stands for the path of its file.

Rules: everything that is wrong with a command is found here, and named, before a task exists. A file and the task
that makes it are noted wherever such a value is met, so that a command waits for what it reads.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from bough.api.futures.array import Array
from bough.api.futures.task import OutputPath
from bough.api.pickling import check_sendable
from bough.api.submit.task_options.options import NAMES
from bough.errors import InvalidWorkload
from bough.model.commands.command import (
    CommandCall,
    CommandSettings,
    CommandTemplate,
    Part,
    TemplateSlot,
    Transfer,
    TransferTemplate,
    has_atomic_outputs,
    show_slot,
)
from bough.model.commands.playpens import got_files, put_files, stored_files
from bough.model.commands.rendering import render_row, row_files
from bough.model.commands.shell_text import needs_shell, split_words
from bough.model.commands.template import check_slots, in_order, is_template_over, parse, plain, shown, unparse
from bough.model.files import absolute, check_url, is_pattern, is_url, site_file
from bough.model.filtering import Filtered, filtered
from bough.model.spaces import Axis, Product, Space, Tie

if TYPE_CHECKING:
    from bough.api.submit.command_lines.transfers import SaidTransfer

Text = str | Sequence[object]  # a command line, or its words
Shell = bool | str | Sequence[str] | None
Stdin = str | bytes | os.PathLike[str] | object | None
_NO_OUTPUT = "declares no output by name; files that match patterns are given by their paths"
Files = Iterable[Any] | str | os.PathLike[str] | object | None  # what `inputs` and `outputs` take


_OF_COMMANDS = (
    *("env", "cwd", "stdin", "shell", "clash", "where", "setup", "container", "inputs", "outputs"),
    *("teardown", "environment", "put", "store", "get"),
)
_KEYWORDS = (*NAMES, *_OF_COMMANDS)  # keywords that are no parameters
_templates: dict[tuple[object, ...], CommandTemplate] = {}
_parsed = functools.lru_cache(256)(parse)


@functools.lru_cache(256)
def _needs_shell(text: str, verbatim: bool) -> bool:
    return needs_shell(text if verbatim else _parsed(text))


class Around(NamedTuple):
    """What stands around a command where it runs."""

    setup: str = ""
    container: str = ""
    teardown: str = ""
    environment: str = ""


NOTHING_AROUND = Around()


def read_around(how: Mapping[str, object]) -> Around:
    """What was said of it; BadValue when it makes no sense."""
    setup, container = how.get("setup"), how.get("container")
    teardown, environment = how.get("teardown"), how.get("environment")
    if setup is None and container is None and teardown is None and environment is None:
        return NOTHING_AROUND
    from bough.model.commands.containers import read_container, read_setup  # late: few commands have either

    if container is not None:
        read_container(container)
    archive = "" if environment is None else _path_text("environment", environment)
    for name, text in (("setup", setup), ("container", container), ("teardown", teardown)):
        if isinstance(text, str):
            check_sendable(name, text)
    return Around(
        read_setup(setup) if setup is not None else "",
        str(container or ""),
        read_setup(teardown, "teardown") if teardown is not None else "",
        archive,
    )


class CommandPlan:
    """A command being put together: its parts, its parameters, and the files and tasks it needs."""

    def __init__(self, text: Text, cwd: str, *, verbatim: bool) -> None:
        self.cwd = cwd
        self.verbatim = verbatim
        self.reads: list[str] = []
        self.tasks: list[Any] = []
        self.values: dict[str, Any] = {}
        self.derived: dict[str, list[Part]] = {}  # of a sweep: parameters that are templates over others
        self.inputs: list[str] = []  # names of parameters that are files declared beside the text
        self.outputs: list[str] = []
        self.transfers: list[TransferTemplate] = []  # of an array in playpens: by names of parameters
        self.is_text = isinstance(text, str)
        self.parts: list[Part]
        if isinstance(text, str):
            self.text = text
            self.parts = [text] if verbatim else _parsed(text)
        else:
            words = self.words(text)
            self.text = shlex.join(words)
            self.parts = _joined(words, text, verbatim=verbatim)
        if not self.text.strip():
            raise InvalidWorkload("the command is empty")
        if "<task " in self.text or "<array of " in self.text:
            _refuse_shown(self.text)

    def needs(self) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        """Files and tasks it needs, each once."""
        return tuple(dict.fromkeys(self.reads)), tuple({id(task): task for task in self.tasks}.values())

    def words(self, words: object) -> list[str]:
        """The words of a command that was given as a list."""
        if not isinstance(words, list | tuple):
            raise InvalidWorkload(f"a command is a text or a list of words, not {words!r:.60}")
        return [self.word(word) for word in words]

    def template(self, settings: CommandSettings) -> CommandTemplate:
        """The template of a loose command; loops submit the same one again and again, so it is kept."""
        late = is_url(settings.environment) or any(map(_has_url, self.values.values()))
        fixed = (settings.cwd, settings.shell, settings.stdin, settings.stdin_path, tuple(settings.env.items()))
        beside = (tuple(self.inputs), tuple(self.outputs), self.verbatim, late)
        around = (settings.setup, settings.container, settings.teardown, settings.environment)
        key = (self.text, self.is_text, fixed, around, tuple(self.values), beside)
        found = _templates.get(key) if self.is_text else None
        if found is None:
            used = (*self.inputs, *self.outputs)
            check_slots(self.parts, self.values, used=used, options=_KEYWORDS)
            names = tuple(self.values)
            files = (tuple(self.inputs), tuple(self.outputs))
            found = CommandTemplate(settings, self.parts, names, {}, {}, *files, late=late)
            if self.is_text:
                if len(_templates) >= 64:
                    _templates.pop(next(iter(_templates)), None)
                _templates[key] = found
        return found

    def word(self, word: object) -> str:
        """A word of a list: a text, a path, a number, a task's file."""
        if _is_task(word) or isinstance(word, OutputPath):
            path = self.path_of(word, "a word of the command")
            self.reads.append(absolute(path, self.cwd))
            return path
        if word is None or isinstance(word, list | tuple | dict | set):
            raise InvalidWorkload(f"{word!r:.60} cannot be a word of a command")
        return plain(word)

    # --- settings ---

    def settings(self, shell: Shell, env: Mapping[str, object] | None, stdin: Stdin, around: Around) -> CommandSettings:
        """What all tasks of a call share."""
        words: tuple[str, ...] = ()
        if isinstance(shell, str):
            words = shell_words(shell)
        elif isinstance(shell, list | tuple) and shell and all(isinstance(word, str) for word in shell):
            words = tuple(shell)
        elif shell is not None and not isinstance(shell, bool):
            raise InvalidWorkload(f"shell is {shell!r:.60}; give True, False, a name, or words such as ['bash', '-c']")
        elif shell or (shell is None and self.is_text and _needs_shell(self.text, self.verbatim)):
            words = shell_words()
        content: bytes | None = None
        path = ""
        if isinstance(stdin, OutputPath) or _is_task(stdin) or hasattr(type(stdin), "__fspath__"):
            path = absolute(self.path_of(stdin, "stdin"), self.cwd)
            self.reads.append(path)
        elif isinstance(stdin, str):
            check_sendable("stdin", stdin)
            content = stdin.encode()
        elif isinstance(stdin, bytes | bytearray):
            content = bytes(stdin)
        elif stdin is not None and stdin != -3:  # subprocess.DEVNULL
            raise InvalidWorkload(f"stdin is a text, bytes or a path, not {stdin!r:.60}")
        archive = absolute(around.environment, self.cwd) if around.environment else ""
        if archive:
            self.reads.append(archive)
        rest = (around.setup, around.container, around.teardown, archive)
        return CommandSettings(self.cwd, words, _environment(env), content, path, *rest)

    # --- parameters ---

    def put(self, name: str, value: Any) -> None:
        """Take a parameter's value as it is, braces and all: it may come from anywhere."""
        found = self.given(name, value)
        if self.is_read(name) and isinstance(found, str | os.PathLike) and not isinstance(found, OutputPath):
            found = self.expanded(str(os.fspath(found))) or found
        self.values[name] = os.fspath(found) if hasattr(type(found), "__fspath__") else found

    def put_over_space(self, name: str, value: Any, others: Iterable[str]) -> None:
        """Take a parameter beside a space: a text with slots of the others is a template, a task's file is not."""
        text = os.fspath(value) if hasattr(type(value), "__fspath__") else value
        if not isinstance(text, str) or isinstance(text, OutputPath) or not is_template_over(text, others):
            self.put(name, value)
            return
        try:
            self.derived[name] = parse(text)
        except InvalidWorkload as error:
            raise InvalidWorkload(f"parameter {name}: {error}") from None

    def put_files(self, inputs: Files, outputs: Files, space: Sequence[str] = ()) -> None:
        """Take files that are declared beside the text; over a space they may be templates."""
        for value in _listed("inputs", inputs):
            if isinstance(value, Array) or _is_task(value):
                tasks = value.tasks() if isinstance(value, Array) else [value]
                made = [path for task in tasks for path in task.outputs.values()]
                if not made:
                    raise InvalidWorkload(f"inputs holds a task that {_NO_OUTPUT}")
                for path in made:
                    self._put_beside("inputs", self.path_of(path, "inputs"), space)
                continue
            text = self.path_of(value, "inputs") if isinstance(value, OutputPath) else _path_text("inputs", value)
            if is_pattern(text) and is_template_over(text, space):
                raise InvalidWorkload(f"inputs holds {text!r:.60}: over a space a file is named, or its folder is")
            for path in self.expanded(text) or [text]:
                self._put_beside("inputs", path, space)
        for value in _listed("outputs", outputs):
            self._put_beside("outputs", _path_text("outputs", value), space)

    def put_transfers(self, said: Iterable[SaidTransfer], space: Sequence[str]) -> None:
        """Take what the commands of an array put, store and get; both names may be templates."""
        for number, (kind, *paths) in enumerate(said):
            names = [f"{kind}[{number}]{end}" if path else "" for path, end in zip(paths, ("", " there"), strict=True)]
            for name, path in zip(names, paths, strict=True):
                if name:
                    self.put_over_space(name, path, space)
            self.transfers.append(TransferTemplate(kind, *names))

    def _put_beside(self, what: str, path: str, space: Sequence[str]) -> None:
        if is_url(path):
            kind = "the file of a site" if site_file(path)[0] else "the URL"
            raise InvalidWorkload(f"{what} holds {kind} {path!r:.80}: give it as a slot of the text, as {{x:r}}")
        names = self.inputs if what == "inputs" else self.outputs
        name = f"{what}[{len(names)}]"
        names.append(name)
        if "\0" in path:
            raise InvalidWorkload(f"{what} holds {path!r:.60}, with a NUL, which no file's name has")
        if space:
            self.put_over_space(name, path, space)
        else:
            self.values[name] = path

    def expanded(self, text: str) -> list[str]:
        """The files that match a pattern now, as the user would write them; none if it is no pattern."""
        if is_url(text) and "*" in text:
            if site_file(text)[0]:
                raise InvalidWorkload(
                    f"{text!r:.200}: nobody looks for patterns at a site; name the files, or their folder"
                )
            from bough.movers.remote_files import expand_url

            urls = expand_url(check_url(text))
            if not urls:
                raise InvalidWorkload(
                    f"no file matches {text!r:.200} now: a pattern stands for the files that are there"
                )
            return urls
        if not is_pattern(text) or os.path.lexists(os.path.join(self.cwd, text)):
            return []
        from bough.movers.local import expand  # few commands have patterns

        found = expand(absolute(text, self.cwd))
        if not found:
            raise InvalidWorkload(
                f"no file matches {text!r:.60} now: a pattern stands for the files that are there when you submit;"
                " name the files, or submit their reader when the task that makes them has ended"
            )
        base = "" if text.startswith("/") else self.cwd.rstrip("/") + "/"
        return [path.removeprefix(base) for path in found]

    def given(self, name: str, value: Any) -> Any:
        """A parameter's value with tasks replaced by the paths of their files."""
        if isinstance(value, Array):
            return [self.given(name, task) for task in value.tasks()]
        if isinstance(value, list | tuple) and any(map(brings_task, value)):
            items: list[Any] = []
            for item in value:  # an array among them stands for its tasks
                items += item.tasks() if isinstance(item, Array) else (item,)
            return [self.given(name, item) for item in items]
        if isinstance(value, OutputPath):
            return self.path_of(value, name)
        if _is_task(value):
            if not self.is_read(name):
                slot = show_slot(TemplateSlot(name, mode="r"))
                raise InvalidWorkload(f"parameter {name} is a task: write {slot} to read its file")
            return self.path_of(value, name)
        if value is None:
            raise InvalidWorkload(f"parameter {name} is None: give a value")
        return value

    def is_read(self, name: str) -> bool:
        """Whether a parameter stands for files that are read."""
        return any(isinstance(part, TemplateSlot) and part.name == name and part.mode == "r" for part in self.parts)

    def path_of(self, value: Any, name: str) -> str:
        """The path of a task's single output, relative where it lies below `cwd`; the task is noted."""
        if _is_task(value):
            outputs = value.outputs
            if len(outputs) != 1:
                have = f"has outputs {', '.join(outputs)}: give task.outputs[...]" if outputs else _NO_OUTPUT
                raise InvalidWorkload(f"the task given for {name} {have}")
            self.tasks.append(value)
            value = next(iter(outputs.values()))
        elif isinstance(value, OutputPath):
            self.tasks.append(value.task)
        path = str(os.fspath(value))
        return path.removeprefix(self.cwd.rstrip("/") + "/")

    def with_paths(self, space: Space) -> Space:
        """A space in which tasks are replaced by the paths of their files."""
        if isinstance(space, Axis):
            if may_hold_tasks(space.values) and any(map(brings_task, space.values)):
                name, before = space.names[0], len(self.tasks)
                paths = Axis(name, [self.given(name, value) for value in space.values])
                if self.is_read(name):  # each element waits for the file it reads, not for all of them
                    del self.tasks[before:]
                return paths
        elif isinstance(space, Filtered):
            inner = self.with_paths(space.space)
            return space if inner is space.space else Filtered(inner, space.bitmap)
        elif isinstance(space, Product | Tie):
            factors = [self.with_paths(factor) for factor in space.factors]
            if any(new is not old for new, old in zip(factors, space.factors, strict=True)):
                return type(space)(None, *factors)
        return space


def _has_url(value: object) -> bool:
    """Whether a value may be a URL, or hold one."""
    if isinstance(value, str):
        return ":/" in value
    return isinstance(value, list | tuple) and any(map(_has_url, value))


def _space_has_url(space: Space) -> bool:
    if isinstance(space, Axis):
        return isinstance(space.values, list | tuple) and any(map(_has_url, space.values))
    if isinstance(space, Filtered):
        return _space_has_url(space.space)
    return isinstance(space, Product | Tie) and any(map(_space_has_url, space.factors))


def _listed(what: str, given: Files) -> list[Any]:
    """Files that were given one or many; a task is one, although it can be iterated over."""
    if given is None:
        return []
    if isinstance(given, str | os.PathLike | Array) or _is_task(given):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
        raise InvalidWorkload(f"{what} is {given!r:.60}; give a list of paths")
    return list(given)


def _path_text(what: str, value: object) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text:
        raise InvalidWorkload(f"{what} holds {value!r:.60}; give paths")
    check_sendable(what, text)
    return text


def _refuse_shown(text: str) -> None:
    """Refuse what an f-string makes of a task: the text by which Python shows one."""
    found = re.search(r"<(?:task \d|array of \d)[^<>]*: [^<>]*>", text)
    if found is not None:
        way = "give it as a parameter, as in s.command('sort {x:r}', x=task), or use its result()"
        raise InvalidWorkload(f"the command holds {found[0]:.60}, a task as Python shows it; {way}")


def _joined(words: Sequence[str], given: Sequence[object], *, verbatim: bool) -> list[Part]:
    """Words as one text whose splitting gives them back; only those that were given as texts hold slots."""
    parts: list[Part] = []
    for word, source in zip(words, given, strict=True):
        pieces: list[Part] = [word] if verbatim or type(source) is not str else parse(word) or [""]
        parts += [shlex.quote(piece) if isinstance(piece, str) else piece for piece in pieces]
        parts.append(" ")
    return parts


def _is_task(value: object) -> bool:
    """Tasks are known by what they have: outputs and a result."""
    return hasattr(type(value), "outputs") and hasattr(type(value), "result")


def brings_task(value: object) -> bool:
    """Whether a value stands for files of tasks, or holds some that do."""
    if isinstance(value, list | tuple):
        return any(map(brings_task, value))
    return _is_task(value) or isinstance(value, OutputPath | Array)


def may_hold_tasks(values: Sequence[object]) -> bool:
    """A quick look, because there may be millions."""
    return isinstance(values, Array) or (
        isinstance(values, list | tuple)
        and any(not issubclass(kind, str | int | float) or kind is OutputPath for kind in set(map(type, values)))
    )


def _environment(env: Mapping[Any, object] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    if not isinstance(env, Mapping | None):
        raise InvalidWorkload(f"env is {env!r:.60}; give a dict such as {{'LANG': 'C'}}")
    for name, value in (env or {}).items():
        text = "" if value is None else plain(value)
        if not isinstance(name, str) or not name or "=" in name or "\0" in name + text or value is None:
            raise InvalidWorkload(f"env holds {name!r}={value!r:.60}: names and values must be texts")
        found[name] = text
    return found


_STRICT = ("-eo", "pipefail", "-c")  # a command that fails, also inside a pipe, fails the task
_OPTIONS = {"bash": _STRICT, "zsh": _STRICT, "ksh": _STRICT, "sh": ("-ec",), "dash": ("-ec",)}


@functools.cache
def shell_words(name: str = "bash") -> tuple[str, ...]:
    """The words that start a shell on a text."""
    path = shutil.which(name)
    if path is None:
        raise InvalidWorkload(f"shell {name} was not found in PATH")
    return (path, *_OPTIONS.get(os.path.basename(name), ("-c",)))


class PlannedCommand(NamedTuple):
    """A loose command, and what it depends on."""

    call: CommandCall
    text: str  # as the user wrote it: commands of equal text are expected to run equally long
    reads: tuple[str, ...] = ()  # absolute
    tasks: tuple[Any, ...] = ()  # tasks whose files were given as parameters
    template: CommandTemplate | None = None
    row: tuple[Any, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    fresh: int = 0  # so many of the last of `reads` are only put: sent for each attempt anew
    writes_by_itself: bool = False  # it makes some of its outputs under their final names

    def with_transfers(self, transfers: Sequence[Transfer]) -> PlannedCommand:
        """The same in a playpen."""
        kept = dict.fromkeys((*self.reads, *stored_files(transfers)))
        reads = dict.fromkeys((*kept, *put_files(transfers)))
        fresh = len(reads) - len(kept)
        planned = self._replace(transfers=tuple(transfers), reads=tuple(reads), fresh=fresh)
        return planned._replace(call=planned.completed(self.call))

    def completed(self, call: CommandCall, renamed: Mapping[str, str] | None = None) -> CommandCall:
        """A call of this command with what it has beside its template: the transfers of its playpen."""
        if not self.transfers and not self.call.settings.playpen:
            return call
        real = renamed or {}
        moved = [replace(one, local=real.get(one.local, one.local)) for one in self.transfers]
        settings = replace(call.settings, playpen=True)
        return replace(call, settings=settings, transfers=moved, writes={**call.writes, **got_files(moved)})

    @property
    def writes(self) -> dict[str, str]:
        """Declared outputs by slot, absolute."""
        return self.call.writes

    @property
    def has_atomic_outputs(self) -> bool:
        """See `model.commands.command.has_atomic_outputs`; nor may a losing attempt be sending something to a URL.

        A final name that stands in the text itself, as in `x > out.tmp && mv out.tmp {o:w}`, is used by both attempts.
        """
        template = self.template
        if template is None or not self.writes or self.writes_by_itself or self.transfers:
            return False
        sends = template.late and any(map(is_url, self.writes.values()))
        names = [os.path.basename(path) for path in self.writes.values()]
        if sends or any(name in part for part in template.parts if isinstance(part, str) for name in names):
            return False
        return not self.call.settings.playpen and has_atomic_outputs(template)

    def rename(self, renamed: Mapping[str, str]) -> PlannedCommand:
        """The same with other paths for some files (wanted -> used)."""
        if not renamed:
            return self
        if self.template is None:
            call = replace(self.call, settings=_with_real_files(self.call.settings, renamed))
            return self._replace(call=self.completed(call, renamed))
        template = _replace(self.template, dict(renamed))
        return self._replace(call=self.completed(render_row(template, self.row), renamed), template=template)


class PlannedSweep(NamedTuple):
    """A command array: its body and its table."""

    template: CommandTemplate
    rows: Space
    text: str
    reads: tuple[str, ...] = ()  # files that every element reads without naming them, absolute: standard input
    tasks: tuple[Any, ...] = ()  # tasks that every element waits for; those in the space are found by their files

    def rename(self, renamed: Mapping[str, str]) -> PlannedSweep:
        """The same with other paths for some files (wanted -> used)."""
        return self._replace(template=_replace(self.template, dict(renamed))) if renamed else self


def _replace(old: CommandTemplate, renamed: dict[str, str]) -> CommandTemplate:
    settings = _with_real_files(old.settings, renamed)
    return replace(old, renamed=old.renamed | renamed, settings=settings)


def _with_real_files(settings: CommandSettings, renamed: Mapping[str, str]) -> CommandSettings:
    """Settings that name standard input and the environment by the names these files really have."""
    stdin, environment = settings.stdin_path, settings.environment
    real = (renamed.get(stdin, stdin), renamed.get(environment, environment))
    return replace(settings, stdin_path=real[0], environment=real[1])


def plan_command(
    text: Text,
    parameters: Mapping[str, Any],
    *,
    cwd: str,
    shell: Shell = None,
    env: Mapping[str, object] | None = None,
    stdin: Stdin = None,
    around: Around = NOTHING_AROUND,
    inputs: Files = None,
    outputs: Files = None,
) -> PlannedCommand:
    """Check one command and render it as far as it can be before it runs; `cwd` is absolute."""
    plan = CommandPlan(text, cwd, verbatim=not parameters)
    settings = plan.settings(shell, env, stdin, around)
    if inputs is not None or outputs is not None:
        plan.put_files(inputs, outputs)
    if not parameters and not plan.values and not is_url(settings.environment):
        return PlannedCommand(_without_nul(_verbatim(plan.parts, settings)), plan.text, *plan.needs())
    for name, value in parameters.items():
        plan.put(name, value)
    template = plan.template(settings)
    row = tuple(plan.values.values())
    call = _filled(template, row)
    plan.reads += row_files(template, row)[0]
    return PlannedCommand(call, plan.text, *plan.needs(), template, row)


def _filled(template: CommandTemplate, row: tuple[Any, ...]) -> CommandCall:
    try:
        return _without_nul(render_row(template, row))
    except InvalidWorkload:
        raise
    except (ValueError, TypeError) as error:  # what format() says of a value that does not suit its {slot:format}
        given = ", ".join(f"{name}={value!r:.40}" for name, value in zip(template.names, row, strict=False))
        raise InvalidWorkload(f"the slots of {shown(unparse(template.parts))} do not fit {given}: {error}") from None


def _without_nul(call: CommandCall) -> CommandCall:
    """Refuse what no process can be given: a text or a path with a NUL in it."""
    for part in chain(call.parts, *call.argv):
        if "\0" in (part if isinstance(part, str) else part.format):
            text = part if isinstance(part, str) else part.format
            raise InvalidWorkload(f"{text!r:.80} holds a NUL, which no command can be given")
    return call


def plan_sweep(
    text: Text,
    space: Space,
    parameters: Mapping[str, Any],
    *,
    cwd: str,
    where: Callable[..., Any] | None = None,
    shell: Shell = None,
    env: Mapping[str, object] | None = None,
    stdin: Stdin = None,
    around: Around = NOTHING_AROUND,
    inputs: Files = None,
    outputs: Files = None,
    transfers: Sequence[SaidTransfer] = (),
) -> PlannedSweep:
    """Check a command generator; the filter is evaluated now, rows are rendered where they run."""
    if where is not None and not callable(where):
        raise InvalidWorkload(f"where is {where!r:.60}; give a function of the parameters")
    if not isinstance(space, Space):
        raise InvalidWorkload(f"a sweep runs over bough.product(...) or bough.tie(...), not {space!r:.60}")
    plan = CommandPlan(text, cwd, verbatim=False)
    settings = plan.settings(shell, env, stdin, around)
    if transfers:
        settings = replace(settings, playpen=True)
    space = plan.with_paths(space)
    for name, value in parameters.items():
        if name in space.names:
            raise InvalidWorkload(f"parameter {name} is given twice: in the space and beside it")
        plan.put_over_space(name, value, (*space.names, *parameters))
    if inputs is not None or outputs is not None:
        plan.put_files(inputs, outputs, (*space.names, *parameters))
    plan.put_transfers(transfers, (*space.names, *parameters))
    moved = (name for one in plan.transfers for name in (one.local, one.remote))
    used = (*_asked_for(where), *plan.inputs, *plan.outputs, *moved)
    check_slots(plan.parts, (*space.names, *plan.values), plan.derived, used, _KEYWORDS)
    rows: Space = filtered(space, where) if where is not None else space
    if plan.values:  # the same for every row
        rows = Product(None, rows, Tie({name: (value,) for name, value in plan.values.items()}))
    files = (tuple(plan.inputs), tuple(plan.outputs))
    late = is_url(settings.environment) or _has_url(list(plan.values.values())) or _space_has_url(space)
    late = late or any(_has_url(part) for parts in plan.derived.values() for part in parts)
    derived, moves = in_order(plan.derived), tuple(plan.transfers)
    template = CommandTemplate(settings, plan.parts, rows.names, derived, {}, *files, late=late, transfers=moves)
    if rows:
        _filled(template, rows[0])  # a slot that does not suit its values is found before anything runs
    return PlannedSweep(template, rows, plan.text, *plan.needs())


def _verbatim(parts: list[Part], settings: CommandSettings) -> CommandCall:
    if settings.shell:
        return CommandCall(settings, parts=parts)
    return CommandCall(settings, argv=[[part for part, _ in word] for word in split_words(parts)])


def _asked_for(where: Callable[..., Any] | None) -> tuple[str, ...]:
    """The parameters a filter asks for, which count as used."""
    if where is None:
        return ()
    try:
        return tuple(inspect.signature(where).parameters)
    except (TypeError, ValueError):
        return ()
