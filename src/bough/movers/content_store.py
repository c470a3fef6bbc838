"""What a mover needs of a place that keeps files by their content.

The server's store (`stores.folder.contents`) is one; a cache of an executor, a shared disk or a bucket may be others.
Rule: a content is named by the digest of its bytes, and `has` is true only when all of them are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class IncomingContent(Protocol):
    """A content that is being written. It has no name before `finish`."""

    @property
    def size(self) -> int:
        """The bytes written so far."""

    def write(self, data: bytes, /) -> None:
        """Append bytes: all of them, or none and OSError."""

    def finish(self, elsewhere: str = "", /) -> bytes:
        """Give the complete content its name, or put it at another path; returns its digest."""

    def drop(self) -> None:
        """Delete what was written."""


class ContentStore(Protocol):
    """Keeps contents under their digests. Any thread may call it."""

    def has(self, digest: bytes, /) -> bool:
        """Whether a content is here."""

    def size(self, digest: bytes, /) -> int:
        """The bytes of a content; -1 when it is not here."""

    def read(self, digest: bytes, offset: int, length: int, /) -> bytes:
        """A piece of a content; StoreFailed when it cannot be read."""

    def put_many(self, contents: Sequence[tuple[bytes, bytes]], /) -> None:
        """Keep small contents, by digest; those that are not what their digest says are left out."""

    def receive(self, digest: bytes = b"", /) -> IncomingContent:
        """Begin to write a content; without a digest its name is known only at the end."""
