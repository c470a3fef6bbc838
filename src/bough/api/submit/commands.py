"""Submits commands: loose ones, and sweeps as one array.

Commands of a service say which files they read and write, so that these can be transferred.

Rules: files are declared before anything is sent, and withdrawn if it cannot be sent. Contents that the server cannot
read itself are uploaded before the command that reads them is submitted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from bough.api.file_table import DeclaredFiles, files_of, store_output_digests
from bough.api.futures.array import Array
from bough.api.futures.array_view import ArrayView
from bough.api.futures.completed import CommandRows
from bough.api.futures.task import Task
from bough.api.memo.content_keys import command_key, template_key
from bough.api.memo.file_identities import file_identity
from bough.api.pickling import pack_table, unsendable
from bough.api.submit.arrays import ArrayParts, array_length, send_array
from bough.api.submit.command_plan import PlannedCommand, PlannedSweep, plan_command, plan_sweep, read_around
from bough.api.submit.options import after_deps
from bough.errors import BadValue, BoughError, InvalidWorkload, WrongType
from bough.model.blobs import blob_id
from bough.model.bounds import check_path, shown
from bough.model.commands.command import CommandCall, CommandTemplate, OnClash, TemplateSlot, encode_call, shown_text
from bough.model.commands.rendering import render_row
from bough.model.commands.template import BUILT_IN, is_template, parse
from bough.model.element_reads import ElementReads, pack_reads
from bough.model.files import pack_manifest
from bough.model.ids import DIGEST_SIZE, BlobId, GroupId, MemoKey, RecordId, number_of
from bough.model.spaces import Tie
from bough.model.tasks import Dep, Kind, TaskExtras, TaskSpec

if TYPE_CHECKING:
    from bough.api.futures.elements import ArrayElements
    from bough.api.submit.context import SessionLike, SubmitContext
    from bough.api.submit.options import TaskOptions
    from bough.model.spaces import Space

_NO_NAME = frozenset("({[!<>|&;\"'-")  # a word that begins with one of these names no program
_SLOT = re.compile(r"\{([^\W\d]\w*)[^{}]*\}")


def submit_command(
    context: SubmitContext, text: str | Sequence[Any], parameters: Mapping[str, Any], how: Mapping[str, Any]
) -> Task:
    """Submit one command."""
    session, settings, group = context
    session.check_open()
    session.check_needs(settings.needs)
    planned = plan_command(
        text,
        parameters,
        cwd=directory(how),
        shell=how["shell"],
        env=how["env"],
        stdin=how["stdin"],
        around=read_around(how),
    )
    registry = session.registry
    name = settings.name or command_name(planned.text, parameters or None)
    after = after_deps([*settings.after, *planned.tasks], registry)
    record = session.new_record()
    declared = declare_command(
        session, record, name, planned, read_clash(how["clash"]), memo=settings.memo is not False
    )
    spec = TaskSpec(
        record,
        Kind.COMMAND,
        BlobId(b""),
        declared.payload,
        GroupId(group),
        name,
        planned.text[:200],
        settings.needs,
        settings.limits,
        settings.priority,
        tuple(dict.fromkeys([*after, *declared.after])) if declared.after else after,
        (),
        session.groups.watched_key(declared.key, group, settings.watching),
        "",
        declared.writes,
        settings.extras if settings.extras.checkpoint is None else _with_checkpoint(settings, how),
        declared.reads,
        _is_always(settings, writes=bool(declared.writes)),
    )
    planned = declared.planned
    task = Task(registry, record, name, group, command=shown_text(planned.call), writes=planned.writes)
    try:
        session.send_task(
            task, spec, len(declared.payload), () if settings.watching is None else (settings.watching.blob,)
        )
    except BoughError:
        session.files.withdraw(record)
        raise
    return task


def _with_checkpoint(settings: TaskOptions, how: Mapping[str, Any], *, is_array: bool = False) -> TaskExtras:
    """The extras of commands that can save their state."""
    from bough.api.submit.checkpoint_options import placed  # few can

    return placed(settings.extras, directory(how), os.getcwd(), is_array=is_array)


class DeclaredCommand(NamedTuple):
    """A command whose files the session knows of, and what of it goes into a `TaskSpec`."""

    planned: PlannedCommand  # with the names that its outputs really get
    payload: bytes
    key: MemoKey
    after: tuple[Dep, ...]  # writers of what it reads
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def declare_command(
    session: SessionLike, record: RecordId, name: str, planned: PlannedCommand, clash: OnClash, *, memo: bool
) -> DeclaredCommand:
    """Declare the files of a command; the caller withdraws them if it cannot be submitted."""
    declared = DeclaredFiles()
    payload = _encoded(planned.call)  # first: what cannot be sent is refused before anything is declared
    if planned.reads or planned.writes:
        label = f"task {number_of(record)} ({name})"
        declared = session.files.declare(record, label, planned.reads, planned.writes, clash=clash)
        if declared.renamed:
            planned = planned.rename(declared.renamed)
            payload = _encoded(planned.call)
    key = _command_key(session, planned, declared) if memo else MemoKey(b"")
    if session.is_remote and (planned.reads or planned.writes):
        payload = _encoded(call_with_files(session, planned, declared, name))
    reads = tuple(dict.fromkeys(declared.renamed.get(path, path) for path in planned.reads))
    return DeclaredCommand(planned, payload, key, declared.after, reads, tuple(planned.writes.values()))


def _is_always(settings: TaskOptions, *, writes: bool) -> bool:
    """Whether a command is reused whatever the session says: it was asked for, or it declares what it writes.

    Such a command is up to date, as under make, while what it reads and writes is what it was.
    """
    return settings.memo is True or (settings.memo is None and writes)


def _command_key(session: SessionLike, planned: PlannedCommand, declared: DeclaredFiles) -> MemoKey:
    outside = set(declared.external)
    reads = []
    for wanted in planned.reads:
        path = declared.renamed.get(wanted, wanted)
        reads.append((path, (file_identity(path) or b"") if path in outside else b""))
    return command_key(planned.call, reads, session.directory)


def submit_sweep(
    context: SubmitContext, text: str, space: Space, parameters: Mapping[str, Any], how: Mapping[str, Any]
) -> Array:
    """Submit a command for every combination of a space, as one array."""
    session, settings, group = context
    session.check_open()
    session.check_needs(settings.needs)
    planned = plan_sweep(
        text,
        space,
        parameters,
        cwd=directory(how),
        where=how["where"],
        shell=how["shell"],
        env=how["env"],
        stdin=how["stdin"],
        around=read_around(how),
    )
    if settings.extras.checkpoint is not None:
        settings = replace(settings, extras=_with_checkpoint(settings, how, is_array=True))
    length = array_length(planned.rows)
    name = settings.name or command_name(planned.text, parameters)
    record = session.new_record()
    label = f"{name or 'array'} {number_of(record)}"
    clash = read_clash(how["clash"])
    body, blob = template_blob(planned.template)
    declared = session.files.declare_array(record, label, planned.template, planned.rows, clash=clash)
    try:
        shared = session.files.declare(record, label, planned.reads) if planned.reads else DeclaredFiles()
        renamed = {**declared.renamed, **shared.renamed}
        if renamed:
            planned = planned.rename(renamed)
            body, blob = template_blob(planned.template)
        table, data = pack_table(planned.rows)
        outside = [*declared.external, *shared.external]
        files, reads = b"", None
        if session.is_remote:
            files, reads = packed_files(session, planned, outside, name)
        key = sweep_key(session, planned, shared.external) if settings.memo is not False else MemoKey(b"")
        parts = ArrayParts(
            kind=Kind.COMMAND,
            name=name,
            body=body,
            length=length,
            table=table,
            blobs=((body, blob), (table, data)),
            key=session.groups.watched_key(key, group, settings.watching),
            template=planned.text[:200],
            record=record,
            after=tuple(dict.fromkeys([*declared.after, *shared.after, *after_deps(planned.tasks, session.registry)])),
            element_after=declared.element_after,
            rows=CommandRows(planned.template, planned.rows),
            identities=identities(outside) if settings.memo is not False else None,
            writes=declared.writes,
            files=files,
            reads=reads,
            always=_is_always(settings, writes=bool(declared.writes)),
            indices=how.get("indices", ""),
        )
        elements = send_array(session, settings, group, parts)
    except BoughError:
        session.files.withdraw(record)
        raise
    return ArrayView(elements)


def sweep_key(session: SessionLike, planned: PlannedSweep, shared: Iterable[str]) -> MemoKey:
    """The key of a command array's body, with the files that every element reads."""
    from hashlib import blake2b

    key = template_key(planned.template, session.directory)
    inputs = b"".join(file_identity(path) or b"" for path in shared)
    return MemoKey(blake2b(inputs, key=key, digest_size=DIGEST_SIZE).digest()) if inputs else key


def identities(paths: Iterable[str]) -> dict[str, bytes]:
    """What the files hold that are read and made by no task."""
    return {path: file_identity(path) or b"" for path in paths}


def template_blob(template: CommandTemplate) -> tuple[BlobId, bytes]:
    """A template as a blob."""
    data = _encoded(template)
    return blob_id(data), data


def _encoded(command: CommandCall | CommandTemplate) -> bytes:
    try:
        return encode_call(command)
    except UnicodeEncodeError as error:
        raise unsendable("the command", error.object) from None


def directory(how: Mapping[str, Any]) -> str:
    """Where a command runs: what was said, relative to where the script is now, or there."""
    given = how["cwd"]
    if given is None:
        return os.getcwd()
    if not isinstance(given, str | os.PathLike):
        raise WrongType(f"cwd is {shown(given)}; give the path of a folder")
    return os.path.abspath(check_path("cwd", str(os.fspath(given))))


def read_clash(given: object) -> OnClash:
    """What to do about outputs whose path is taken."""
    if given is None:
        return OnClash.ERROR
    try:
        return OnClash(str(given))
    except ValueError:
        raise BadValue(f'clash is {given!r}; give "error", "rename" or "overwrite"') from None


def command_name(text: str, values: Mapping[str, object] | None = None) -> str:
    """What a command is called in messages: its program's name.

    A slot stands for its value, if all tasks have the same, or else for its name: `{python} {script:r}` is `python`.
    """
    for written in text.split(maxsplit=20):
        word = written if values is None else _SLOT.sub(lambda slot: _word_of(slot[1], values), written)
        if "=" not in word.partition("/")[0] and word[:1] not in _NO_NAME:
            return os.path.basename(word.rstrip(";|&)"))[:40]
    return ""


def _word_of(slot: str, values: Mapping[str, object]) -> str:
    value = values.get(slot)
    text = str(value) if isinstance(value, str | os.PathLike) else ""
    return text if text and not set(text) & set("{ \t\n") else slot


def open_command_array(
    context: SubmitContext, text: str, how: Mapping[str, Any], *, keep: bool
) -> tuple[ArrayElements, Callable[[list[Any], int], list[Any]]]:
    """An open array of a command; the function declares the files of new items and makes rows of them."""
    session, settings, group = context
    said = {name: how.get(name) for name in ("cwd", "shell", "env", "stdin", "clash", "setup", "container")}
    parameters = {name: value for name, value in how.items() if name not in said}
    clash = read_clash(said["clash"])
    names = tuple(dict.fromkeys(slot.name for slot in slots_of(text, parameters) if slot.name not in parameters))
    if not names:
        raise InvalidWorkload(f"feed: {text!r:.60} has no {{slot}} that an item could fill")
    if settings.extras.checkpoint is not None:
        settings = replace(settings, extras=_with_checkpoint(settings, said, is_array=True))
    example = Tie(dict.fromkeys(names, ("",)))
    planned = plan_sweep(
        text,
        example,
        parameters,
        cwd=directory(said),
        shell=said["shell"],
        env=said["env"],
        stdin=said["stdin"],
        around=read_around(said),
    )
    name = settings.name or command_name(planned.text, parameters)
    body, blob = template_blob(planned.template)
    record = session.new_record()
    held: list[Any] = []
    parts = ArrayParts(
        kind=Kind.COMMAND,
        name=name,
        body=body,
        length=0,
        blobs=((body, blob),),
        template=planned.text[:200],
        record=record,
        after=after_deps(planned.tasks, session.registry),
        rows=CommandRows(planned.template, held),
        open=True,
        keep=keep,
    )
    elements = send_array(session, settings, group, parts)
    fixed = planned.rows[0][len(names) :]  # parameters that are the same for every item

    def prepare(items: list[Any], start: int) -> list[Any]:
        rows = [(*_row(item, names), *fixed) for item in items]
        declared = session.files.declare_array(
            record, f"{name} {number_of(record)}", planned.template, rows, clash=clash, start=start
        )
        if declared.renamed or declared.after or declared.element_after:
            session.files.withdraw(record)
            raise InvalidWorkload(
                "feed: its commands cannot read what tasks make, nor write under other names; submit them with sweep"
            )
        if declared.writes:
            store_output_digests(session.store, record, declared.writes, more=start > 0)
        held.extend(rows)
        return rows

    return elements, prepare


def _row(item: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    if isinstance(item, Mapping):
        if set(item) != set(names):
            has = ", ".join(map(str, item)) or "nothing"
            raise InvalidWorkload(f"feed: an item has {has}; the command has {', '.join(names)}")
        return tuple(item[name] for name in names)
    if len(names) == 1:
        return (item,)
    if isinstance(item, tuple) and len(item) == len(names):
        return item
    raise InvalidWorkload(f"feed: {item!r:.60} does not give {', '.join(names)}; give dicts of them")


def slots_of(text: str, parameters: Mapping[str, Any]) -> list[TemplateSlot]:
    """The slots of a text, and of parameters that are templates, that parameters must fill."""
    texts = [text, *(value for value in parameters.values() if isinstance(value, str) and is_template(value))]
    parts = [part for one in texts for part in parse(one)]
    return [part for part in parts if isinstance(part, TemplateSlot) and part.name not in BUILT_IN]


def call_with_files(session: SessionLike, planned: PlannedCommand, declared: DeclaredFiles, label: str) -> CommandCall:
    """A loose command that says what it reads."""
    call = planned.call if planned.template is None else render_row(planned.template, planned.row, late=True)
    sent = session.upload(declared.external, label)
    paths = (declared.renamed.get(path, path) for path in planned.reads)
    return replace(call, reads={path: sent.get(path, b"") for path in paths})


def packed_files(
    session: SessionLike, planned: PlannedSweep, external: Iterable[str], label: str
) -> tuple[bytes, ElementReads | None]:
    """The declared files of an array, packed: all of them, and what each element reads; nothing if it has none."""
    template, renamed = planned.template, planned.template.renamed
    if not planned.reads and not any(
        isinstance(part, TemplateSlot) and part.mode in {"r", "w"} for part in template.parts
    ):
        return b"", None
    sent = session.upload(external, label)
    shared = [renamed.get(path, path) for path in planned.reads]
    reads = dict.fromkeys(shared, b"")
    writes: set[str] = set()
    each: list[list[str]] = []
    for read, written in files_of(template, planned.rows):
        own = [renamed.get(path, path) for path in read]
        reads.update(dict.fromkeys(own, b""))
        each.append(shared + own)
        writes.update(renamed.get(path, path) for path in written.values())
    return pack_manifest({path: sent.get(path, b"") for path in reads}, writes), pack_reads(each)
