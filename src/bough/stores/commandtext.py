"""The `command` column: what a person would call the thing a task runs.

Rule: a text is for reading; a payload that cannot be read gives the template's name, never an error.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

import msgspec

from bough.model.commands import CommandCall, Part, Slot, decode_call, decode_template
from bough.model.tasks import ArraySpec, Kind, TaskSpec


def task_text(spec: TaskSpec) -> str:
    """A command with its outputs' final paths, or a function's name."""
    if spec.kind is Kind.COMMAND and spec.payload:
        try:
            return _call(decode_call(spec.payload), spec.needs.cores)
        except msgspec.MsgspecError:
            pass
    return spec.template or spec.name


def array_text(spec: ArraySpec, blob: Callable[[bytes], bytes]) -> str:
    """A command template with its slots, or a function's name."""
    if spec.kind is Kind.COMMAND:
        try:
            return "".join(map(_show, decode_template(blob(spec.body)).parts))
        except (msgspec.MsgspecError, KeyError):
            pass
    return spec.template or spec.name


def _call(call: CommandCall, cores: float) -> str:
    quote = bool(call.parts)

    def fill(part: Part) -> str:
        if isinstance(part, str):
            return part
        if part.name in call.writes:
            path = call.writes[part.name]
            return shlex.quote(path) if quote else path
        if part.mode == "r":
            return shlex.quote(part.format) if quote else part.format
        return f"{cores:g}" if part.name == "cores" else _show(part)

    if call.parts:
        return "".join(map(fill, call.parts))
    return shlex.join("".join(map(fill, word)) for word in call.argv)


def _show(part: Part) -> str:
    if isinstance(part, str):
        return part
    return "{" + part.name + (f".{part.attribute}" if part.attribute else "") + _use(part) + "}"


def _use(slot: Slot) -> str:
    use = slot.mode or slot.format
    return f":{use}" if use else ""
