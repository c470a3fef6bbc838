"""The declared files of a command array, packed: what its elements read and write, by absolute path.

A server cannot know these from the array itself, whose rows it never unpickles. Rule: only what a client declared
here, or in a loose command's call, travels; what executors say about paths is checked against it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

import msgspec

_MOST = 1 << 30  # bytes of an unpacked manifest


class Manifest(msgspec.Struct, frozen=True):
    """What an array declares."""

    reads: dict[str, bytes]  # path -> digest of its content, if it was sent to the server
    writes: set[str]


def pack_manifest(reads: Mapping[str, bytes], writes: Iterable[str]) -> bytes:
    """The bytes of a manifest."""
    return zlib.compress(msgspec.msgpack.encode([dict(reads), list(writes)]), 1)


def unpack_manifest(data: bytes) -> Manifest:
    """What `pack_manifest` packed; ValueError when it is something else."""
    if not data:
        return Manifest({}, set())
    try:
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(data, _MOST)
        if not unpacker.eof:
            raise ValueError("the declared files cannot be read: some are missing, or they are too many")
        reads, writes = msgspec.msgpack.decode(plain, type=tuple[dict[str, bytes], set[str]])
    except (zlib.error, msgspec.MsgspecError) as error:
        raise ValueError(f"the declared files cannot be read: {error}") from error
    return Manifest(reads, writes)
