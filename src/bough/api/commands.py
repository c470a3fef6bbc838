"""What `Session.command` and `Session.sweep` make of a text and its parameters, before anything is sent.

A text without parameters is taken verbatim, a list of words runs without a shell, as in `subprocess`. Only a keyword
beside the space of a sweep may be a template; every other value is data, braces and all.
Rule: everything that is wrong with a command is found here, and named, before a task exists.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from bough.api.planning import Plan, Shell, Stdin, Text
from bough.errors import InvalidWorkload
from bough.model.commands import CommandCall, CommandSettings, CommandTemplate, Part
from bough.model.filtering import filtered
from bough.model.rendering import render_row, row_files
from bough.model.shelltext import split_words
from bough.model.spaces import Product, Space, Tie
from bough.model.template import check_slots, in_order, shown, unparse


class PlannedCommand(NamedTuple):
    """A loose command, and what it depends on."""

    call: CommandCall
    text: str  # as the user wrote it: commands of equal text are expected to run equally long
    reads: tuple[str, ...] = ()  # absolute
    tasks: tuple[Any, ...] = ()  # tasks whose files were given as parameters
    template: CommandTemplate | None = None
    row: tuple[Any, ...] = ()

    @property
    def writes(self) -> dict[str, str]:
        """Declared outputs by slot, absolute."""
        return self.call.writes

    def rename(self, renamed: Mapping[str, str]) -> PlannedCommand:
        """The same with other paths for some files (wanted -> used)."""
        if not renamed or self.template is None:
            return self
        template = _replace(self.template, dict(renamed))
        return self._replace(call=render_row(template, self.row), template=template)


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
    return CommandTemplate(old.settings, old.parts, old.names, old.derived, old.renamed | renamed)


def plan_command(
    text: Text,
    parameters: Mapping[str, Any],
    *,
    cwd: str,
    shell: Shell = None,
    env: Mapping[str, object] | None = None,
    stdin: Stdin = None,
) -> PlannedCommand:
    """Check one command and render it as far as it can be before it runs; `cwd` is absolute."""
    plan = Plan(text, cwd, verbatim=not parameters)
    settings = plan.settings(shell, env, stdin)
    if not parameters:
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
) -> PlannedSweep:
    """Check a command generator; the filter is evaluated now, rows are rendered where they run."""
    if where is not None and not callable(where):
        raise InvalidWorkload(f"where is {where!r:.60}; give a function of the parameters")
    if not isinstance(space, Space):
        raise InvalidWorkload(f"a sweep runs over bough.product(...) or bough.tie(...), not {space!r:.60}")
    plan = Plan(text, cwd, verbatim=False)
    settings = plan.settings(shell, env, stdin)
    space = plan.with_paths(space)
    for name, value in parameters.items():
        if name in space.names:
            raise InvalidWorkload(f"parameter {name} is given twice: in the space and beside it")
        plan.put_over_space(name, value)
    check_slots(plan.parts, (*space.names, *plan.values), plan.derived, used=_asked_for(where))
    rows: Space = filtered(space, where) if where is not None else space
    if plan.values:  # the same for every row
        rows = Product(None, rows, Tie({name: (value,) for name, value in plan.values.items()}))
    template = CommandTemplate(settings, plan.parts, rows.names, in_order(plan.derived))
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
