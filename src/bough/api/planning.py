"""A command being put together: its parts and settings, and what its parameters stand for.

A task, or one of its outputs, given for an `:r` slot stands for the path of its file. Rule: the file and
the task that makes it are noted wherever such a value is met, so that a command waits for what it reads.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Self

from bough.api.array import Array
from bough.api.texts import check_sendable
from bough.errors import InvalidWorkload
from bough.model.commands import CommandSettings, CommandTemplate, Part, Slot
from bough.model.filtering import Filtered
from bough.model.paths import absolute
from bough.model.shelltext import needs_shell
from bough.model.spaces import Axis, Product, Space, Tie
from bough.model.template import check_slots, is_template, parse, show_slot
from bough.model.values import plain

Text = str | Sequence[object]  # a command line, or its words
Shell = bool | str | Sequence[str] | None
Stdin = str | bytes | os.PathLike[str] | object | None


class OutputPath(str):
    """The path of a task's declared output; given to another command it brings the dependency along."""

    __slots__ = ("task",)

    task: Any

    def __new__(cls, path: str, task: Any) -> Self:
        """Make a path that knows the task that makes the file."""
        self = super().__new__(cls, path)
        self.task = task
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:  # elsewhere it is a plain path
        return str, (str(self),)


_templates: dict[tuple[object, ...], CommandTemplate] = {}
_parsed = functools.lru_cache(256)(parse)


@functools.lru_cache(256)
def _needs_shell(text: str, verbatim: bool) -> bool:
    return needs_shell(text if verbatim else _parsed(text))


class Plan:
    """A command being put together: its parts, its parameters, and the files and tasks it needs."""

    def __init__(self, text: Text, cwd: str, *, verbatim: bool) -> None:
        self.cwd = cwd
        self.verbatim = verbatim
        self.reads: list[str] = []
        self.tasks: list[Any] = []
        self.values: dict[str, Any] = {}
        self.derived: dict[str, list[Part]] = {}  # of a sweep: parameters that are templates over others
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
        fixed = (settings.cwd, settings.shell, settings.stdin, settings.stdin_path, tuple(settings.env.items()))
        key = (self.text, self.is_text, fixed, tuple(self.values))
        found = _templates.get(key) if self.is_text else None
        if found is None:
            check_slots(self.parts, self.values)
            found = CommandTemplate(settings, self.parts, tuple(self.values))
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

    def settings(self, shell: Shell, env: Mapping[str, object] | None, stdin: Stdin) -> CommandSettings:
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
        return CommandSettings(self.cwd, words, _environment(env), content, path)

    # --- parameters ---

    def put(self, name: str, value: Any) -> None:
        """Take a parameter's value as it is, braces and all: it may come from anywhere."""
        found = self.given(name, value)
        self.values[name] = os.fspath(found) if hasattr(type(found), "__fspath__") else found

    def put_over_space(self, name: str, value: Any) -> None:
        """Take a parameter beside a space: a text with slots is a template over the others, a task's file is not."""
        text = os.fspath(value) if hasattr(type(value), "__fspath__") else value
        if not isinstance(text, str) or isinstance(text, OutputPath) or not is_template(text):
            self.put(name, value)
            return
        try:
            self.derived[name] = parse(text)
        except InvalidWorkload as error:
            raise InvalidWorkload(f"parameter {name}: {error}") from None

    def given(self, name: str, value: Any) -> Any:
        """A parameter's value with tasks replaced by the paths of their files."""
        if isinstance(value, Array):
            return [self.given(name, task) for task in value.tasks()]
        if isinstance(value, list | tuple) and any(map(_brings_task, value)):
            items: list[Any] = []
            for item in value:  # an array among them stands for its tasks
                items += item.tasks() if isinstance(item, Array) else (item,)
            return [self.given(name, item) for item in items]
        if isinstance(value, OutputPath):
            return self.path_of(value, name)
        if _is_task(value):
            if not self.is_read(name):
                slot = show_slot(Slot(name, mode="r"))
                raise InvalidWorkload(f"parameter {name} is a task: write {slot} to read its file")
            return self.path_of(value, name)
        if value is None:
            raise InvalidWorkload(f"parameter {name} is None: give a value")
        return value

    def is_read(self, name: str) -> bool:
        """Whether a parameter stands for files that are read."""
        return any(isinstance(part, Slot) and part.name == name and part.mode == "r" for part in self.parts)

    def path_of(self, value: Any, name: str) -> str:
        """The path of a task's single output, relative where it lies below `cwd`; the task is noted."""
        if _is_task(value):
            outputs = value.outputs
            if len(outputs) != 1:
                have = f"has outputs {', '.join(outputs)}: give task.outputs[...]" if outputs else "declares no output"
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
            if _may_hold_tasks(space.values) and any(map(_brings_task, space.values)):
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


def _brings_task(value: object) -> bool:
    """Whether a value stands for files of tasks, or holds some that do."""
    if isinstance(value, list | tuple):
        return any(map(_brings_task, value))
    return _is_task(value) or isinstance(value, OutputPath | Array)


def _may_hold_tasks(values: Sequence[object]) -> bool:
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
