"""What the inputs of tasks are known to hold: the core hears of it, so that tasks are placed where their data is.

What a client has sent is known by its digest; of what it names by path alone, and of URLs, what was read there last
counts. Rule: few inputs are looked up while a submission is taken; the others, however many, in a thread behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from bough.model.events.facts import Fact, Submitted
from bough.model.events.news import MOST_CONTENTS, FilesIdentified, IdentifiedFile, NamedContent, PagesAdded
from bough.model.files import is_url, unpack_manifest
from bough.model.ids import FileId, RecordId
from bough.model.tasks import Item, Page
from bough.server.files.file_permissions import declared_inputs
from bough.server.files.stored_files import StoredFiles
from bough.server.files.url_contents import UrlContents
from bough.server.turns.shell import Shell
from bough.wire.file_messages import DIGEST

_MOST_EARLY: Final = 1000  # inputs that are looked up while a submission is taken


class KnownInputs:
    """See the module."""

    def __init__(self, shell: Shell, files: StoredFiles, urls: UrlContents) -> None:
        self._shell = shell
        self._files = files
        self._urls = urls
        self._under_way: set[asyncio.Task[None]] = set()
        shell.on_facts.append(self._hear)

    def contents(self, items: Sequence[Item]) -> tuple[NamedContent, ...]:
        """What some of the inputs of new tasks are known to hold, so that these are placed where that is already."""
        found: dict[str, NamedContent] = {}
        for path, digest in islice(_all_inputs(items), min(_MOST_EARLY, MOST_CONTENTS)):
            if path not in found and (seen := self._content_of(path, digest)) is not None:
                found[path] = NamedContent(path, *seen)
        return tuple(found.values())

    def _content_of(self, path: str, digest: bytes) -> tuple[bytes, int] | None:
        """The content and size of an input: the one that its client has sent, or which it had when it was read here."""
        if not digest:
            return self._urls.last_content(path) if is_url(path) else self._files.content_seen(path)
        size = self._files.size_now(digest)
        return (digest, size) if size >= 0 else None

    def _hear(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if type(fact) is Submitted and fact.files:
                self._begin(self._identify_submitted(fact.items))
            elif type(fact) is PagesAdded and any(page.reads is not None for page in fact.pages):
                self._begin(self._identify_fed(fact))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._shell.loop.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _identify_fed(self, fact: PagesAdded) -> None:
        """The same for what is fed."""
        found = await self._files.in_thread(self._contents_fed, fact.pages)
        if self._shell.queries.can_find(fact.record):
            self.identify(self._shell.queries.run_of(fact.record), found)
        if self._shell.dirty:
            self._shell.flush()

    def _contents_fed(self, pages: Sequence[Page]) -> list[tuple[str, bytes, int]]:
        """What the elements of pages read, as their client has sent it. In a thread."""
        digests: dict[str, bytes] = {}
        for page in pages:
            with contextlib.suppress(ValueError):  # it is said when the task wants them
                digests.update(unpack_manifest(page.files).reads)
        sizes = {path: self._files.size_now(digest) for path, digest in digests.items() if len(digest) == DIGEST}
        return [(path, digests[path], size) for path, size in sizes.items() if size >= 0]

    async def _identify_submitted(self, items: Sequence[Item]) -> None:
        """What tasks read that were submitted: there may be more than was looked up while that was taken."""
        queries = self._shell.queries
        for record, contents in (await self._files.in_thread(self._known_inputs, items)).items():
            if queries.can_find(record):
                self.identify(queries.run_of(record), contents)
        if self._shell.dirty:
            self._shell.flush()

    def _known_inputs(self, items: Sequence[Item]) -> dict[RecordId, list[tuple[str, bytes, int]]]:
        """What the tasks among some items read, as far as it is known: path, digest and size. In a thread."""
        found: dict[RecordId, list[tuple[str, bytes, int]]] = {}
        known: dict[tuple[str, bytes], tuple[bytes, int] | None] = {}
        for item in items:
            for path, digest in declared_inputs(item).items():
                key = ("", digest) if digest else (path, b"")
                if key not in known:
                    known[key] = self._content_of(path, digest)
                if (content := known[key]) is not None:
                    found.setdefault(item.id, []).append((path, *content))  # type: ignore[arg-type]
        return found

    def identify(self, run: int, contents: Iterable[tuple[str, bytes, int]]) -> None:
        """What files of a workflow hold became known: by path, digest and size."""
        queries = self._shell.queries
        found = []
        for path, digest, size in contents:
            file = queries.file_number(run, path)
            if file and len(digest) == DIGEST and queries.file_content(run, file) != (digest, size):
                found.append(IdentifiedFile(FileId(file), digest, size))
        for start in range(0, len(found), MOST_CONTENTS):
            self._shell.news(FilesIdentified(run, tuple(found[start : start + MOST_CONTENTS])))


def _all_inputs(items: Sequence[Item]) -> Iterator[tuple[str, bytes]]:
    """The inputs of some items: see `declared_inputs`."""
    for item in items:
        yield from declared_inputs(item).items()
