"""How the facts of one turn become the bytes of one journal row, and back.

The first byte is the format's version (low seven bits) and says whether the rest is compressed (high
bit). Rule: every version that was ever released can be read; an old one is upgraded step by step.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from bough.model.facts import VERSION, Fact, decode_facts

COMPRESSED: Final = 0x80
WORTH_TRYING: Final = 131_072  # bytes; zlib takes ten times as long as writing, so only what fills disks is squeezed
PROBE: Final = 4_096  # bytes compressed first, to see whether the rest is worth it
PAYS: Final = 0.7  # compressed size over plain size

Upgrade = Callable[[bytes], bytes]

# version -> what turns the (uncompressed) payload of that version into one of the next
UPGRADES: Final[Mapping[int, Upgrade]] = {}

_encode_into = msgspec.msgpack.Encoder().encode_into


class Unreadable(ValueError):
    """A row that this version cannot read: damaged, or written by a later one."""


def encode(facts: Sequence[Fact]) -> bytes | bytearray:
    """One row."""
    buffer = bytearray(1)
    _encode_into(facts, buffer, 1)
    if len(buffer) > WORTH_TRYING and _shrinks(buffer):
        squeezed = zlib.compress(memoryview(buffer)[1:], 1)
        if len(squeezed) < PAYS * len(buffer):
            return bytes((VERSION | COMPRESSED,)) + squeezed
    buffer[0] = VERSION
    return buffer


def decode(row: bytes, *, version: int = VERSION, upgrades: Mapping[int, Upgrade] = UPGRADES) -> list[Fact]:
    """The facts of one row; `Unreadable` says why not."""
    if not row:
        raise Unreadable("the row is empty")
    written = row[0] & ~COMPRESSED
    payload: bytes | memoryview = memoryview(row)[1:]
    try:
        if row[0] & COMPRESSED:
            payload = zlib.decompress(payload)
        if written != version:
            payload = _upgrade(bytes(payload), written, version, upgrades)
        return decode_facts(payload)
    except zlib.error as error:
        raise Unreadable(f"the row is damaged: {error}") from error
    except msgspec.MsgspecError as error:
        raise Unreadable(f"the row of format {written} does not hold facts: {error}") from error


def _shrinks(buffer: bytearray) -> bool:
    """Whether a piece from the middle says that compressing the whole pays: pickled floats do not shrink."""
    middle = len(buffer) // 2
    probe = memoryview(buffer)[middle : middle + PROBE]
    return len(zlib.compress(probe, 1)) < PAYS * len(probe)


def _upgrade(payload: bytes, written: int, version: int, upgrades: Mapping[int, Upgrade]) -> bytes:
    if written > version:
        raise Unreadable(f"the row has format {written}, this version of bough reads up to {version}: use a newer one")
    for step in range(written, version):
        if step not in upgrades:
            raise Unreadable(f"the row has format {written}, which is not known")
        payload = upgrades[step](payload)
    return payload
