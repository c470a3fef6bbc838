"""Which workflows need which contents, so that those of removed workflows can be deleted.

One file for each run, `files/runs/RUN`, holds the digests it refers to, one behind the other. Rule: a reference is
written down before anybody is told that the content is there; a content goes only when no run refers to it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from bough import private
from bough.stores.contents import Contents
from bough.wire.filemessages import DIGEST

_SLICE = 100  # contents deleted at a time


class FileReferences:
    """See the module."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._folder = f"{contents.folder}/runs"
        self.runs: dict[int, set[bytes]] = {}
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                if name.isdecimal():
                    with open(f"{self._folder}/{name}", "rb") as file:
                        data = file.read()
                    whole = len(data) - len(data) % DIGEST
                    self.runs[int(name)] = {data[at : at + DIGEST] for at in range(0, whole, DIGEST)}

    def add(self, run: int, digests: Iterable[bytes]) -> None:
        """A run refers to these; OSError when that cannot be written down."""
        known = self.runs.setdefault(run, set())
        new = [digest for digest in dict.fromkeys(digests) if digest not in known]
        if new:
            private.make_folder(self._folder)
            with open(f"{self._folder}/{run}", "ab", opener=private.opener) as file:
                if file.tell() % DIGEST:  # a writer that was killed left a part of one
                    file.truncate(file.tell() - file.tell() % DIGEST)
                file.write(b"".join(new))
            known.update(new)

    def sweep(self, removed: Iterable[int]) -> bool:
        """Delete some contents that only removed runs refer to; whether there may be more."""
        gone = next((run for run in removed if run in self.runs), None)
        if gone is None:
            return False
        mine = self.runs[gone]
        others = [digests for run, digests in self.runs.items() if run != gone]
        for _ in range(min(_SLICE, len(mine))):
            digest = mine.pop()
            if not any(digest in digests for digests in others):
                with contextlib.suppress(OSError):
                    os.unlink(self._contents.path(digest))
        if not mine:
            del self.runs[gone]
            with contextlib.suppress(OSError):
                os.unlink(f"{self._folder}/{gone}")
        return True
