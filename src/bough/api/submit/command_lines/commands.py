"""Submits commands: loose ones, and sweeps as one array.

Commands of a service say which files they read and write, so that these can be transferred.

Rules: files are declared before anything is sent, and withdrawn if it cannot be sent. Contents that the server cannot
read itself are uploaded before the command that reads them is submitted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from bough.api.file_table import DeclaredFiles, declares_files, files_of, store_output_digests
from bough.api.futures.array import Array
from bough.api.futures.array_view import ArrayView
from bough.api.futures.completed import CommandRows
from bough.api.futures.task import Task
from bough.api.memo.content_keys import command_key, template_key
from bough.api.memo.file_identities import file_identity
from bough.api.pickling import pack_table, unsendable
from bough.api.submit.arrays import ArrayParts, array_length, send_array
from bough.api.submit.command_lines.command_plan import (
    PlannedCommand,
    PlannedSweep,
    brings_task,
    may_hold_tasks,
    plan_command,
    plan_sweep,
    read_around,
)
from bough.api.submit.task_options.options import after_deps, read_options
from bough.errors import BadValue, BoughError, Clash, InvalidWorkload, WrongType
from bough.model.arrays.element_reads import ElementReads, pack_reads
from bough.model.blobs import blob_id
from bough.model.bounds import check_path, shown
from bough.model.commands.command import (
    CommandCall,
    CommandSettings,
    CommandTemplate,
    OnClash,
    TemplateSlot,
    encode_call,
    has_atomic_outputs,
    shown_text,
)
from bough.model.commands.rendering import render_row, row_files, row_patterns
from bough.model.commands.template import BUILT_IN, is_template, parse
from bough.model.files import absolute, is_url, pack_manifest, pattern_folder, site_file
from bough.model.ids import DIGEST_SIZE, BlobId, GroupId, MemoKey, RecordId, number_of
from bough.model.spaces import Tie
from bough.model.tasks import Dep, Kind, TaskExtras, TaskSpec

if TYPE_CHECKING:
    from bough.api.futures.elements import ArrayElements
    from bough.api.submit.command_lines.transfers import SaidTransfer
    from bough.api.submit.context import SessionLike, SubmitContext
    from bough.api.submit.task_options.options import TaskOptions
    from bough.model.spaces import Space

_OF_FEEDS = (
    *("cwd", "shell", "env", "stdin", "clash", "setup", "container", "inputs", "outputs", "teardown", "environment"),
    *("put", "store", "get"),
)
_NO_NAME = frozenset("({[!<>|&;\"'-")  # a word that begins with one of these names no program
_NO_TASKS = "feed: its commands cannot read what tasks make, nor write under other names; submit them with sweep"
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
        inputs=how.get("inputs"),
        outputs=how.get("outputs"),
    )
    if _moves_files(how):
        from bough.api.submit.command_lines.transfers import read_transfers  # few commands have some

        planned = planned.with_transfers(read_transfers(how, directory(how)))
    registry = session.registry
    name = settings.name or command_name(planned.text, parameters or None)
    after = after_deps([*settings.after, *planned.tasks], registry)
    settings = at_sites_of(session, settings, planned.reads, planned.writes.values())
    record = session.new_record()
    session.files.has_temporary |= not settings.limits.keep
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
        declared.fresh,
        planned.has_atomic_outputs,
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


def at_sites_of(
    session: SessionLike, settings: TaskOptions, reads: Iterable[str], writes: Iterable[str]
) -> TaskOptions:
    """The options of a task that names files of sites' own storage: where it runs follows from these."""
    sites = sites_of(reads, writes, settings.needs.sites)
    if sites == settings.needs.sites:
        return settings
    settings = read_options(settings, {"sites": sites})
    session.check_needs(settings.needs)
    return settings


def sites_of(reads: Iterable[str], writes: Iterable[str], bound: tuple[str, ...]) -> tuple[str, ...]:
    """The sites where a task may run, given the files it names and those that it is bound to; none: anywhere.

    It runs where it writes, else where something lies that it reads, if it may; what lies elsewhere is brought.
    """
    written, read = _sites_in(writes), _sites_in(reads)
    if len(written) > 1:
        named = " and ".join(sorted(written))
        raise InvalidWorkload(f"it writes files of {named}: a task writes to the storage of one site, where it runs")
    if written:
        if bound and not written & {*bound}:
            raise BadValue(f"it writes a file of {', '.join(written)}, where it may not run: {', '.join(bound)}")
        return tuple(written)
    if bound:
        return tuple(site for site in bound if site in read) or bound
    return tuple(sorted(read))


def _sites_in(paths: Iterable[str]) -> set[str]:
    return {site for path in paths if ":/" in path and (site := site_file(path)[0])}


def _moves_files(how: Mapping[str, Any]) -> bool:
    """Whether files are put, stored or got."""
    return any(how.get(name) is not None for name in ("put", "store", "get"))


def _said_transfers(how: Mapping[str, Any]) -> Sequence[SaidTransfer]:
    if not _moves_files(how):
        return ()
    from bough.api.submit.command_lines.transfers import said_transfers  # few commands have some

    return said_transfers(how)


def _check_transfers(template: CommandTemplate, rows: Sequence[Any], start: int = 0) -> None:
    if template.transfers:
        from bough.api.submit.command_lines.transfers import check_element_transfers

        check_element_transfers(template, rows, start)


def _with_checkpoint(settings: TaskOptions, how: Mapping[str, Any], *, is_array: bool = False) -> TaskExtras:
    """The extras of commands that can save their state."""
    from bough.api.submit.task_options.checkpoint_options import placed  # few can

    return placed(settings.extras, directory(how), os.getcwd(), is_array=is_array)


class DeclaredCommand(NamedTuple):
    """A command whose files the session knows of, and what of it goes into a `TaskSpec`."""

    planned: PlannedCommand  # with the names that its outputs really get
    payload: bytes
    key: MemoKey
    after: tuple[Dep, ...]  # writers of what it reads
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    fresh: int  # see `TaskSpec`


def declare_command(
    session: SessionLike, record: RecordId, name: str, planned: PlannedCommand, clash: OnClash, *, memo: bool
) -> DeclaredCommand:
    """Declare the files of a command; the caller withdraws them if it cannot be submitted."""
    declared = DeclaredFiles()
    payload = _encoded(planned.call)  # first: what cannot be sent is refused before anything is declared
    patterns = planned.call.patterns
    if planned.reads or planned.writes or patterns:
        label = f"task {number_of(record)} ({name})"
        declared = session.files.declare(record, label, planned.reads, planned.writes, clash=clash, patterns=patterns)
        if declared.renamed:
            _refuse_renaming(planned, declared.renamed)
            planned = planned.rename(declared.renamed)
            payload = _encoded(planned.call)
    key = _command_key(session, planned, declared) if memo else MemoKey(b"")
    if session.is_remote and (planned.reads or planned.writes or patterns):
        payload = _encoded(call_with_files(session, planned, declared, name))
    used = [declared.renamed.get(path, path) for path in planned.reads]
    reads, kept = dict.fromkeys(used), dict.fromkeys(used[: len(used) - planned.fresh])
    fresh = len(reads) - len(kept)
    return DeclaredCommand(planned, payload, key, declared.after, tuple(reads), tuple(planned.writes.values()), fresh)


def _refuse_renaming(planned: PlannedCommand, renamed: Mapping[str, str]) -> None:
    """What a command writes by itself cannot be given another name."""
    for slot in planned.call.in_place:
        if planned.call.writes[slot] in renamed:
            raise Clash(f"{slot} is there already: an output that stands in outputs= cannot be renamed; use a slot")
    template = planned.template
    if template is None:
        return
    for name in template.inputs:
        path = absolute(str(planned.row[template.names.index(name)]), template.settings.cwd)
        if path in renamed:
            raise Clash(f"{path} was renamed to {renamed[path]}: a text does not follow that by itself; use a slot")


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
        inputs=how.get("inputs"),
        outputs=how.get("outputs"),
        transfers=_said_transfers(how),
    )
    if settings.extras.checkpoint is not None:
        settings = replace(settings, extras=_with_checkpoint(settings, how, is_array=True))
    length = array_length(planned.rows)
    _check_transfers(planned.template, planned.rows)
    name = settings.name or command_name(planned.text, parameters)
    atomic_outputs = has_atomic_outputs(planned.template)
    if planned.template.late:
        reads_there, writes_there = _remote_files(planned)
        settings = at_sites_of(session, settings, reads_there, writes_there)
        atomic_outputs = atomic_outputs and not writes_there
    record = session.new_record()
    label = f"{name or 'array'} {number_of(record)}"
    clash = read_clash(how["clash"])
    if session.is_remote and planned.template.outputs:
        patterns = (pattern for row in planned.rows for pattern in row_patterns(planned.template, row))
        settings_there = _with_folders(planned.template.settings, patterns)
        planned = planned._replace(template=replace(planned.template, settings=settings_there))
    body, blob = template_blob(planned.template)
    declared = session.files.declare_array(record, label, planned.template, planned.rows, clash=clash)
    try:
        shared = session.files.declare(record, label, planned.reads) if planned.reads else DeclaredFiles()
        renamed = {**declared.renamed, **shared.renamed}
        if renamed:
            if declared.renamed and planned.template.outputs:
                raise Clash("an output of a sweep is there already, and outputs= cannot be renamed; use slots")
            planned = planned.rename(renamed)
            body, blob = template_blob(planned.template)
        table, data = pack_table(planned.rows)
        outside = [*declared.external, *shared.external]
        files, reads = b"", None
        session.files.has_temporary |= not settings.limits.keep
        if session.is_remote:
            files, reads = packed_files(session, planned, outside, name)
        elif session.files.has_temporary:  # readers count
            reads = element_reads(planned)
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
            atomic_outputs=atomic_outputs,
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
) -> tuple[
    ArrayElements,
    Callable[[list[Any], int], list[Any]],
    Callable[[Sequence[Any]], tuple[bytes, ElementReads | None]] | None,
]:
    """An open array of a command, what declares the files of new items and makes rows of them, and their manifests."""
    session, settings, group = context
    said = {name: how.get(name) for name in _OF_FEEDS}
    parameters = {name: value for name, value in how.items() if name not in said}
    clash = read_clash(said["clash"])
    slots = slots_of(text, parameters, _file_names(said))
    names = tuple(dict.fromkeys(slot.name for slot in slots if slot.name not in parameters))
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
        inputs=said["inputs"],
        outputs=said["outputs"],
        transfers=_said_transfers(said),
    )
    if declares_files(planned.template):  # items may have URLs
        planned = planned._replace(template=replace(planned.template, late=True))
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

    sent: dict[str, bytes] = {}  # files that no task makes -> their digests, where the server does not see them
    if session.is_remote and planned.reads:
        sent.update(session.upload(session.files.declare(record, name, planned.reads).external, name))

    def prepare(items: list[Any], start: int) -> list[Any]:
        rows = [(*_row(item, names), *fixed) for item in items]
        _refuse_tasks(rows)
        _check_site_files(planned.template, rows, settings)
        _check_transfers(planned.template, rows, start)
        declared = session.files.declare_array(
            record, f"{name} {number_of(record)}", planned.template, rows, clash=clash, start=start
        )
        if declared.renamed or declared.after or declared.element_after:
            session.files.withdraw(record)
            raise InvalidWorkload(_NO_TASKS)
        if session.is_remote:
            sent.update(session.upload(declared.external, name))
        if declared.writes:
            store_output_digests(session.store, record, declared.writes, more=start > 0)
        held.extend(rows)
        return rows

    def manifest(rows: Sequence[Any]) -> tuple[bytes, ElementReads | None]:
        return pack_files(planned.template, rows, planned.reads, sent)

    travels = session.is_remote and (declares_files(planned.template) or planned.reads)
    return elements, prepare, manifest if travels else None


def _refuse_tasks(rows: list[tuple[Any, ...]]) -> None:
    """A command that is fed waits for nothing: no task can be among its values."""
    if any(may_hold_tasks(row) and any(map(brings_task, row)) for row in rows):
        raise InvalidWorkload(_NO_TASKS)


def _file_names(said: Mapping[str, Any]) -> list[object]:
    """The names of files that stand beside the text of a feed."""
    found: list[object] = []
    for name in ("inputs", "outputs", "put", "store", "get"):
        files = said[name]
        if isinstance(files, str):
            found.append(files)
        elif isinstance(files, Mapping):
            found += [*files, *files.values()]
        elif isinstance(files, list | tuple | set):
            found += files
    return [os.fspath(one) if isinstance(one, os.PathLike) else one for one in found]


def _remote_files(planned: PlannedSweep) -> tuple[set[str], set[str]]:
    """The files at URLs and in sites' own storage that elements read and write."""
    reads = set(filter(is_url, planned.reads))
    writes: set[str] = set()
    for read, made in files_of(planned.template, planned.rows):
        reads.update(filter(is_url, read))
        writes.update(filter(is_url, made.values()))
    return reads, writes


def _check_site_files(template: CommandTemplate, rows: Sequence[tuple[Any, ...]], settings: TaskOptions) -> None:
    """What is fed runs wherever the feed does: it writes files of a site only if that is where the feed is bound to."""
    for row in rows:
        if any(isinstance(value, str) and ":/" in value for value in row):
            sites = sites_of((), row_files(template, row)[1].values(), settings.needs.sites)
            if sites != settings.needs.sites:
                raise InvalidWorkload(f"feed: it writes files of {', '.join(sites)}: give sites={[*sites]}")


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


def slots_of(text: str, parameters: Mapping[str, Any], files: Iterable[object] = ()) -> list[TemplateSlot]:
    """The slots of a text, and of parameters and names of files that are templates, that parameters must fill."""
    given = chain(parameters.values(), files)
    texts = [text, *(value for value in given if isinstance(value, str) and is_template(value))]
    parts = [part for one in texts for part in parse(one)]
    return [part for part in parts if isinstance(part, TemplateSlot) and part.name not in BUILT_IN]


def call_with_files(session: SessionLike, planned: PlannedCommand, declared: DeclaredFiles, label: str) -> CommandCall:
    """A loose command that says what it reads."""
    call = planned.call
    if planned.template is not None:
        call = planned.completed(render_row(planned.template, planned.row, late=True), declared.renamed)
    sent = session.upload(declared.external, label)
    paths = (declared.renamed.get(path, path) for path in planned.reads)
    call = replace(call, settings=_with_folders(call.settings, call.patterns))
    return replace(call, reads={path: sent.get(path, b"") for path in paths}, folders=folders_sent(sent))


def _with_folders(settings: CommandSettings, patterns: Iterable[str]) -> CommandSettings:
    """The settings with those folders of patterns of outputs that are there: a sandbox is to have them, too."""
    folders = dict.fromkeys(map(pattern_folder, patterns))
    there = tuple(folder for folder in folders if folder != "/" and os.path.isdir(folder))
    return replace(settings, folders=there) if there else settings


def packed_files(
    session: SessionLike, planned: PlannedSweep, external: Iterable[str], label: str
) -> tuple[bytes, ElementReads | None]:
    """The declared files of an array, packed: all of them, and what each element reads; nothing if it has none."""
    template = planned.template
    if not planned.reads and not declares_files(template):
        return b"", None
    return pack_files(template, planned.rows, planned.reads, session.upload(external, label))


def element_reads(planned: PlannedSweep) -> ElementReads | None:
    """What each element of an array reads."""
    return pack_files(planned.template, planned.rows, planned.reads, {})[1]


def pack_files(
    template: CommandTemplate,
    rows: Sequence[Any],
    shared: Iterable[str],
    sent: Mapping[str, bytes],
) -> tuple[bytes, ElementReads | None]:
    """The declared files of some rows, packed: all of them, and what each row reads.

    `shared`: those that all read, `sent`: digests of what was sent.
    """
    renamed = template.renamed
    common = [renamed.get(path, path) for path in shared]
    reads = dict.fromkeys(common, b"")
    writes: set[str] = set()
    patterns = {path for row in rows for path in row_patterns(template, row)} if template.outputs else set()

    def elements() -> Iterator[list[str]]:
        for read, written in files_of(template, rows):
            own = [renamed.get(path, path) for path in read]
            reads.update(dict.fromkeys(own, b""))
            writes.update(renamed.get(path, path) for path in written.values())
            yield common + own

    each = pack_reads(elements(), put=sum(one.kind == "put" for one in template.transfers))
    manifest = {path: sent.get(path, b"") for path in reads}
    return pack_manifest(manifest, writes, folders_sent(sent), patterns), each


def folders_sent(sent: Mapping[str, bytes]) -> list[str]:
    """Those of the paths that were sent, and are folders."""
    return [path for path, digest in sent.items() if digest and os.path.isdir(path)]
