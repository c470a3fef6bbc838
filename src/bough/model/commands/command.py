"""What a command is, from the client that renders it to the worker that runs it, and how it reads to a person.

A text is held as parts: literal strings and slots, because output slots get their hidden name, and `{attempt}` its
number, only on the executor. Rule: nothing here touches a file. A text for people never fails: for a payload that
cannot be read it is the template's name.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Literal

import msgspec

from bough.model.tasks import ArraySpec, Kind, TaskSpec


class TemplateSlot(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """A hole in a text: parameter `name`, an attribute path such as `stem`, and how it is used.

    mode: "" a value (shell-quoted), "raw" unquoted, "r" a file read, "w" a file written.
    Built-in names are `cores` and `attempt`.
    """

    name: str
    attribute: str = ""
    mode: str = ""
    format: str = ""  # a format specification for plain values, as in {e:.3f}


Part = str | TemplateSlot


class OnClash(enum.StrEnum):
    """What happens when another task has an output's path."""

    ERROR = "error"
    RENAME = "rename"
    OVERWRITE = "overwrite"


class Transfer(msgspec.Struct, frozen=True, array_like=True):
    """A file between the submitter and the playpen of a command, or the storage of its host (`$STORAGE/...`)."""

    kind: Literal["put", "store", "get"]  # put: always; store: unless the same is there; get: back, when it succeeded
    local: str  # absolute, at the submitter
    remote: str  # in the playpen; in the storage if it begins with $STORAGE/
    when: str = ""  # a requirement: only where it is met


class TransferTemplate(msgspec.Struct, frozen=True, array_like=True):
    """A `Transfer` of each element of an array: names of the parameters that hold its two paths.

    One that is empty is the last part of the other path.
    """

    kind: Literal["put", "store", "get"]
    local: str
    remote: str


class CommandSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all tasks of one call of `command` or `sweep` share."""

    cwd: str
    shell: tuple[str, ...] = ()  # words before the text, e.g. ("/bin/bash", "-eo", "pipefail", "-c"); empty: no shell
    env: dict[str, str] = {}
    stdin: bytes | None = None  # text for standard input; None: /dev/null
    stdin_path: str = ""  # a file for standard input
    setup: str = ""  # shell text that runs before it, on its host
    container: str = ""  # that it runs in, as apptainer:IMAGE; see `containers`
    teardown: str = ""  # shell text that runs after it, on its host, however it ended
    environment: str = ""  # the archive of an environment, absolute: unpacked on its host and put first on PATH
    playpen: bool = False  # it runs in a folder of its own, which is deleted; see `Transfer`
    folders: tuple[str, ...] = ()  # of patterns of outputs, absolute: they were there, so a sandbox has them, too


class CommandCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A loose command, ready but for its output slots: the payload of a command `TaskSpec`.

    `parts` holds literal text, already quoted; slots left in it are outputs (mode "w"), `attempt` and `cores`, and for
    a service those inputs (mode "r") whose path, held in `format`, leads out of the submitter's directory.
    Without a shell `argv` holds the words, each a list of parts (unquoted).
    """

    settings: CommandSettings
    parts: list[Part] = []  # text for the shell
    argv: list[list[Part]] = []  # words, when no shell is needed
    writes: dict[str, str] = {}  # output slot name -> final absolute path
    reads: dict[str, bytes] = {}  # of a service's command: absolute path read -> digest of its content, if it was sent
    folders: list[str] = []  # those of `reads` that were sent as the archive of a folder
    in_place: list[str] = []  # slots of `writes` that stand nowhere in the text: the command writes the final path
    transfers: list[Transfer] = []  # of a command in a playpen
    patterns: list[str] = []  # absolute: whatever the command made that matches is an output, too


class CommandTemplate(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a command array: a text over the parameters of each row.

    `derived` are parameters that are themselves templates over the others (`o="hits/{q.stem}.txt"`),
    in an order in which each uses only earlier ones. Relative `w` and `r` paths are relative to `settings.cwd`.
    """

    settings: CommandSettings
    parts: list[Part]
    names: tuple[str, ...]  # parameters of a row, in the order of the table
    derived: dict[str, list[Part]] = {}
    renamed: dict[str, str] = {}  # Jole's table: wanted absolute path -> the free one chosen (clash="rename")
    inputs: tuple[str, ...] = ()  # parameters that are files it reads, whether or not they stand in the text
    outputs: tuple[str, ...] = ()  # parameters that are files, or patterns of files, that it writes by itself
    late: bool = False  # some of its files are at URLs: what is read stays a slot, for it lies elsewhere when it runs
    transfers: tuple[TransferTemplate, ...] = ()  # of commands in playpens


def has_atomic_outputs(template: CommandTemplate) -> bool:
    """Whether two attempts of a command could run at once without harm, by what it declares.

    It declares outputs, and writes each of them under a name that no other attempt has until its own has succeeded. So
    not: outputs beside the text, which it writes under their final names; a text that uses the final name of an output,
    or a part of it; a playpen, from which files may be put into the storage of a host, which stays; a teardown, which
    removes things after each attempt, also while the other one goes on.
    """
    slots = [part for part in template.parts if isinstance(part, TemplateSlot)]
    outputs = {slot.name for slot in slots if slot.mode == "w"}
    if not outputs or template.outputs or template.transfers:
        return False
    if template.settings.playpen or template.settings.teardown:
        return False
    within = [part for parts in template.derived.values() for part in parts if isinstance(part, TemplateSlot)]
    by_final_name = (slot for slot in slots if slot.mode in {"r", "raw"} or slot.attribute or slot.format)
    return outputs.isdisjoint(slot.name for slot in (*within, *by_final_name))


encode_call = msgspec.msgpack.Encoder().encode
decode_call = msgspec.msgpack.Decoder(CommandCall).decode
decode_template = msgspec.msgpack.Decoder(CommandTemplate).decode


def task_text(spec: TaskSpec) -> str:
    """A command with its outputs' final paths, or a function's name."""
    if spec.kind is Kind.COMMAND and spec.payload:
        try:
            call, cores = decode_call(spec.payload), f"{spec.needs.cores:g}"
            return _filled(
                call,
                lambda slot: call.writes[slot.name],
                lambda slot: cores if slot.name == "cores" else show_slot(slot),
            )
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


def shown_text(call: CommandCall) -> str:
    """A command as a person would type it: outputs by the paths that the user wrote."""
    return _filled(call, lambda slot: slot.format or call.writes[slot.name], show_slot)


def final_text(call: CommandCall) -> str:
    """A command as jobs databases have it: outputs by their absolute paths."""
    return _filled(call, lambda slot: call.writes[slot.name], show_slot)


def show_slot(slot: TemplateSlot) -> str:
    """A slot as the user writes it."""
    attribute = f".{slot.attribute}" if slot.attribute else ""
    use = slot.mode or slot.format
    return f"{{{slot.name}{attribute}{':' + use if use else ''}}}"


def _filled(call: CommandCall, output: Callable[[TemplateSlot], str], other: Callable[[TemplateSlot], str]) -> str:
    """The text of a call; `output` gives the path of an output slot, `other` the text of a built-in one."""
    import shlex  # late: executors and servers start without it

    quote = shlex.quote if call.parts else str  # words without a shell are quoted as a whole

    def fill(part: Part) -> str:
        if isinstance(part, str):
            return part
        if part.name in call.writes:
            return quote(output(part))
        return quote(part.format) if part.mode == "r" else other(part)

    if call.parts:
        return "".join(map(fill, call.parts))
    return shlex.join("".join(map(fill, word)) for word in call.argv)


def _show(part: Part) -> str:
    return part if isinstance(part, str) else show_slot(part)
