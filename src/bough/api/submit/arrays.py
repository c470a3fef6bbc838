"""Submitting an array: its spec, what earlier runs have done of it, and pages too many for one message.

Rule: the array is in the registry before the server hears of it, and out of it again if it cannot be sent.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bough import private
from bough.api.client.outbox import check_size
from bough.api.file_table import store_output_digests
from bough.api.futures.completed import CommandRows
from bough.api.futures.elements import ArrayElements
from bough.api.futures.feed_elements import FeedElements
from bough.api.memo.file_identities import paths_of
from bough.api.submit.array_reuse import EarlierArray, NewArray, match, row_key
from bough.api.submit.task_options.options import after_deps
from bough.errors import BoughError, InvalidWorkload, UserError
from bough.model.arrays.element_reads import ElementReads
from bough.model.bounds import MOST_TASKS
from bough.model.ids import BlobId, GroupId, MemoKey, RecordId
from bough.model.memo_keys import pages_digest
from bough.model.reuse_scope import ReuseScope
from bough.model.tasks import ArraySpec, Dep, Kind, Page, Reuse
from bough.stores.places import FormerPlaces
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.submit.context import SessionLike
    from bough.api.submit.task_options.options import TaskOptions

AT_ONCE = 32 << 20  # bytes of pages in one message


class ArrayParts(msgspec.Struct):
    """What an array is made of, besides its settings."""

    kind: Kind
    name: str
    body: BlobId
    length: int
    table: BlobId = BlobId(b"")
    pages: tuple[Page, ...] = ()
    blobs: tuple[tuple[BlobId, bytes], ...] = ()  # body and table
    key: MemoKey = MemoKey(b"")
    star: bool = False
    template: str = ""
    record: int = 0  # 0: a new one
    after: tuple[Dep, ...] = ()
    element_after: tuple[tuple[int, tuple[Dep, ...]], ...] = ()
    rows: Any = None  # CommandRows of a command array
    identities: Any = None  # of the files it reads that no task makes, and of paths in its arguments: path -> identity
    writes: bytes = b""  # digests of the paths it writes
    open: bool = False  # a generator feeds it
    keep: bool = True  # what is fed: all results
    files: bytes = b""  # declared files that may travel
    reads: ElementReads | None = None  # those that each element reads
    always: bool = False  # any earlier run counts, not only what the session says
    indices: str = ""  # as the submitter wrote them; empty: from 0 up
    atomic_outputs: bool = False  # see `ArraySpec`


def array_length(items: Sequence[Any]) -> int:
    """How many tasks an array over these items has; UserError if that is more than an array can have."""
    try:
        length = len(items)
    except OverflowError:  # a range of more than 63 bits
        length = sys.maxsize
    if length > MOST_TASKS:
        raise InvalidWorkload(f"{items!r:.60} makes too many tasks for one array; at most {MOST_TASKS} are possible")
    return length


def send_array(session: SessionLike, settings: TaskOptions, group: int, parts: ArrayParts) -> ArrayElements:
    """Submit an array."""
    after = tuple(dict.fromkeys([*after_deps(settings.after, session.registry), *parts.after]))
    if settings.extras.same_host_as or settings.extras.final:
        word = "final" if settings.extras.final else "affinity"
        raise UserError(f"{word}=True is for single tasks, not for the tasks of an array; submit them one by one")
    if settings.extras.checkpoint is not None and parts.kind is Kind.FUNCTION:  # commands know where they run
        from bough.api.submit.task_options.checkpoint_options import placed

        here = os.getcwd()
        settings = msgspec.structs.replace(settings, extras=placed(settings.extras, here, here, is_array=True))
    with session.groups.ordered(group) as order:
        if order is not None and (parts.length or parts.open):
            after, settings = order.array_waits(after), order.settled(settings)
        elements = _send(session, settings, group, parts, after)
        if order is not None and (parts.length or parts.open):
            order.array_joined(elements.record)
    return elements


def _send(
    session: SessionLike, settings: TaskOptions, group: int, parts: ArrayParts, after: tuple[Dep, ...]
) -> ArrayElements:
    there = _existing(session, group, parts, after) if session.is_joined and parts.length and not parts.open else None
    record = RecordId(there or parts.record or session.new_record())
    about = {"name": parts.name, "group": group, "is_command": parts.kind is Kind.COMMAND, "rows": parts.rows}
    if parts.open:
        elements: ArrayElements = FeedElements(session.registry, record, keep=parts.keep, **about)
    else:
        elements = ArrayElements(session.registry, record, parts.length, **about)
    if not parts.length and not parts.open:
        return elements  # there is nothing to run, and nothing to wait for
    elements.is_open, elements.indices = parts.open, parts.indices
    if there is not None:
        session.registry.arrays[record] = elements
        session.registry.progress.added(group, parts.length)
        session.on_adopted(elements)
        return elements
    reuse = _find_reuse(session, parts) if parts.key and not parts.open else ()
    if parts.identities and parts.key:
        _keep_identities(session.store, record, parts.identities)
    if parts.writes:
        store_output_digests(session.store, record, parts.writes)
    now, later = _split(parts.pages) if not reuse else (parts.pages, [])
    spec = ArraySpec(
        record,
        parts.kind,
        parts.body,
        now[-1].stop if later else parts.length,
        parts.table,
        now,
        parts.star,
        GroupId(group),
        parts.name,
        parts.template or parts.name,
        settings.call_needs if parts.kind is Kind.FUNCTION else settings.needs,
        settings.limits,
        settings.priority,
        after,
        parts.element_after,
        parts.key,
        reuse,
        bool(later) or parts.open,
        parts.files,
        parts.open,
        settings.extras,
        parts.always,
        parts.indices,
        parts.reads,
        parts.atomic_outputs,
    )
    registry = session.registry
    registry.arrays[record] = elements
    registry.progress.added(group, parts.length)
    blobs = parts.blobs if settings.watching is None else (*parts.blobs, settings.watching.blob)
    try:
        session.connection.submit(spec, 500 + _size(now) + len(parts.files) + _reads_size(parts.reads), blobs)
        for number, pages in enumerate(later, 1):
            last = number == len(later) and not parts.open
            session.connection.add_pages(record, list(pages), _size(pages), last=last)
    except BoughError:
        if registry.arrays.pop(record, None) is not None:
            registry.progress.added(group, -parts.length)
        raise
    return elements


def _existing(session: SessionLike, group: int, parts: ArrayParts, after: tuple[Dep, ...]) -> int | None:
    """The array of an earlier session of this run that a submission is."""
    arguments = (parts.length, parts.table, pages_digest(parts.pages), bool(parts.element_after))
    return session.existing_array(group, parts.key, after, arguments, parts.record)


def _reads_size(reads: ElementReads | None) -> int:
    return sum(map(len, reads.files)) + len(reads.reads) + len(reads.stops) if reads is not None else 0  # type: ignore[arg-type]


def _size(pages: Sequence[Page]) -> int:
    return sum(len(page.data) + 20 for page in pages)


def is_in_parts(pages: Sequence[Page]) -> bool:
    """Whether pages are too many for one message: then the array is open until the last of them is sent."""
    return _size(pages) > AT_ONCE


def _split(pages: tuple[Page, ...]) -> tuple[tuple[Page, ...], list[tuple[Page, ...]]]:
    """Pages as messages of bearable size: the first one, and those that follow."""
    if not is_in_parts(pages):
        return pages, []
    bunches: list[tuple[Page, ...]] = []
    bunch: list[Page] = []
    size = 0
    for page in pages:
        check_size(f"item {page.start}", len(page.data))
        if bunch and size + len(page.data) > AT_ONCE:
            bunches.append(tuple(bunch))
            bunch, size = [], 0
        bunch.append(page)
        size += len(page.data)
    if bunch:
        bunches.append(tuple(bunch))
    return bunches[0], bunches[1:]


# --- what earlier runs have done ------------------------------------------------------------------------


def may_reuse(session: SessionLike, *, always: bool) -> bool:
    """Whether earlier runs may have done what is submitted."""
    return session.welcome.memos and (always or session.welcome.reuse is not ReuseScope.NONE)


def _find_reuse(session: SessionLike, parts: ArrayParts) -> tuple[Reuse, ...]:
    if not may_reuse(session, always=parts.always):
        return ()
    olds = msgspec.convert(session.ask(questions.Memos(parts.key, parts.always)), list[EarlierArray])
    if not olds:
        return ()
    table = next((data for blob, data in parts.blobs if blob == parts.table), b"") if parts.table else b""
    new = NewArray(parts.length, table, parts.pages)
    return _match_with_files(session.store, olds, parts, new) if parts.identities else match(olds, new)


def _match_with_files(store: str, olds: list[EarlierArray], parts: ArrayParts, new: NewArray) -> tuple[Reuse, ...]:
    """As `match`, but rows count as equal only if the files they read are what they were."""
    reads_of = parts.rows.reads if isinstance(parts.rows, CommandRows) else paths_of
    then = {old.record: _kept_identities(store, old.record) for old in olds}
    if all(identities == parts.identities for identities in then.values()):
        return match(olds, new)

    def keyed(identities: Mapping[str, bytes]) -> Callable[[Any], object]:
        def key(row: Any) -> object:
            plain = row_key(row)
            reads = reads_of(row)
            return None if plain is None else (plain, tuple(identities.get(path, b"") for path in reads))

        return key

    keys = {record: keyed(identities) for record, identities in then.items()}
    return match(olds, new, keyed(parts.identities), keys)


def _keep_identities(store: str, record: int, identities: Mapping[str, bytes]) -> None:
    with open(_identities_path(store, record), "wb", opener=private.opener) as file:
        pickle.dump(dict(identities), file)


def _kept_identities(store: str, record: int) -> Mapping[str, bytes]:
    try:
        with open(_identities_path(store, record), "rb") as file:
            found = pickle.load(file)
    except Exception:  # noqa: BLE001 - a damaged pickle raises anything; without it, nothing counts as unchanged
        return {}
    places = FormerPlaces(store)
    return {places.now(path): identity for path, identity in found.items()} if isinstance(found, dict) else {}


def _identities_path(store: str, record: int) -> str:
    return os.path.join(store, "args", f"{record}.inputs")
