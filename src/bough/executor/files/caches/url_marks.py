"""Which contents of a host's cache were found at URLs: by the mark that each URL had when it was read.

A mark is a digest of a URL, its size and what it tells of itself (`RemoteFile.identity`). For each there is a small
file in a folder beside the contents, which all executors of the host use and which outlives them. Rules: what is here
is a hint, and counts only while the cache has the content; a file that is not whole counts as none. Their number is
bounded: those whose content is gone go first, then those that are oldest.
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import Final

from bough import private
from bough.executor.files.caches.host_cache import HostCache
from bough.wire.file_messages import DIGEST

_RECORD: Final = struct.Struct(f"<{DIGEST}sQ")  # digest, bytes
_MOST: Final = 10_000  # marks


class UrlMarks:
    """See the module."""

    def __init__(self, cache: HostCache) -> None:
        self._cache = cache
        self._folder = f"{cache.folder}/urls"

    def content(self, mark: bytes) -> tuple[bytes, int] | None:
        """The digest and the size of what had this mark; None: that is not known, or it is not here any more."""
        if not mark:
            return None
        found = self._read(f"{self._folder}/{mark.hex()}")
        return found if found is not None and self._cache.has(*found) else None

    @staticmethod
    def _read(path: str) -> tuple[bytes, int] | None:
        try:
            with open(path, "rb") as file:
                data = file.read(_RECORD.size + 1)
            digest, size = _RECORD.unpack(data)
        except (OSError, struct.error):
            return None
        return digest, size

    def note(self, mark: bytes, digest: bytes, size: int) -> None:
        """What has this mark is this content. One that cannot be written is not missed."""
        if not mark:
            return
        hidden = f"{self._folder}/.{os.urandom(6).hex()}"
        with contextlib.suppress(OSError):
            private.make_folder(self._folder)
            try:
                with open(hidden, "wb", opener=private.opener) as file:
                    file.write(_RECORD.pack(digest, size))
                os.replace(hidden, f"{self._folder}/{mark.hex()}")
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(hidden)
            self._prune()

    def _prune(self) -> None:
        with os.scandir(self._folder) as entries:
            there = sorted((entry.stat().st_mtime_ns, entry.path) for entry in entries)
        if len(there) <= _MOST:
            return
        useless = {path for _, path in there if not self._is_useful(path)}
        left = [path for _, path in there if path not in useless]
        for path in (*useless, *left[: max(0, len(left) - _MOST // 2)]):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _is_useful(self, path: str) -> bool:
        found = self._read(path)
        return found is not None and self._cache.has(*found)
