"""What commands of a service carry with them, so that their files can travel: which ones they read and write.

Rule: contents that the server cannot read itself are there before the command that reads them is submitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from bough.api.arrayfiles import files_of
from bough.api.commands import PlannedCommand, PlannedSweep
from bough.api.files import Declared
from bough.model.commands import CommandCall, Slot
from bough.model.manifests import pack_manifest
from bough.model.rendering import render_row

if TYPE_CHECKING:
    from bough.api.remote import RemoteSession
    from bough.api.session import Session


def travelling_call(session: Session, planned: PlannedCommand, declared: Declared, label: str) -> CommandCall:
    """A loose command that says what it reads."""
    call = planned.call if planned.template is None else render_row(planned.template, planned.row, late=True)
    sent = cast("RemoteSession", session).carrier.supply(declared.external, label)
    paths = (declared.renamed.get(path, path) for path in planned.reads)
    return replace(call, reads={path: sent.get(path, b"") for path in paths})


def travelling_files(session: Session, planned: PlannedSweep, external: Iterable[str], label: str) -> bytes:
    """The declared files of an array, packed; nothing if it has none."""
    template, renamed = planned.template, planned.template.renamed
    if not planned.reads and not any(isinstance(part, Slot) and part.mode in {"r", "w"} for part in template.parts):
        return b""
    sent = cast("RemoteSession", session).carrier.supply(external, label)
    reads = {renamed.get(path, path): b"" for path in planned.reads}
    writes: set[str] = set()
    for read, written in files_of(template, planned.rows):
        reads.update((renamed.get(path, path), b"") for path in read)
        writes.update(renamed.get(path, path) for path in written.values())
    return pack_manifest({path: sent.get(path, b"") for path in reads}, writes)
