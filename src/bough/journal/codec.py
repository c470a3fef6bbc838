"""How the facts of one turn become the bytes of one journal row, and back.

The first byte is the format's version (low seven bits) and says whether the rest is compressed (high
bit). Rule: every version that was ever released can be read; an old one is upgraded step by step. Of a row that holds
facts out of bounds, or is damaged, the others can be read (`salvage`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, get_args

import msgspec

from bough.model.events.facts import VERSION, Fact, decode_facts

COMPRESSED: Final = 0x80
WORTH_TRYING: Final = 131_072  # bytes; zlib takes ten times as long as writing, so only what fills disks is squeezed
PROBE: Final = 4_096  # bytes compressed first, to see whether the rest is worth it
PAYS: Final = 0.7  # compressed size over plain size

Upgrade = Callable[[bytes], bytes]

# version -> what turns the (uncompressed) payload of that version into one of the next
UPGRADES: Final[Mapping[int, Upgrade]] = {
    1: lambda payload: payload,  # paths where there are numbers of files now; a replay gives them theirs
    2: lambda payload: payload,  # without `Freed`
    3: lambda payload: payload,  # without monitors and what they saw
}

WHOLE: Final = -1  # the position of a row of which nothing can be read

_encoder = msgspec.msgpack.Encoder()
_encode_into = _encoder.encode_into
encode_fact = _encoder.encode
_decode_raw = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_fact = msgspec.msgpack.Decoder(Fact).decode
_KINDS: Final[dict[object, str]] = {kind.__struct_config__.tag: kind.__name__ for kind in get_args(Fact)}


class Unreadable(ValueError):
    """A row that this version cannot read: damaged, or written by a later one."""


class Newer(Unreadable):
    """A row that was written by a later version: there is nothing wrong with it."""


class Spoilt(msgspec.Struct, frozen=True):
    """A fact of a row that cannot be read, or all of a row."""

    position: int  # in its row
    kind: str  # the fact's type, as far as that can be told
    reason: str
    data: bytes  # the fact as it stands in the row, or the whole row


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
    payload = _payload(row, version, upgrades)
    try:
        return decode_facts(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unreadable(f"the row of format {row[0] & ~COMPRESSED} does not hold facts: {error}") from error


def salvage(row: bytes) -> tuple[list[Fact], list[Spoilt]]:
    """What can be read of a row that `decode` cannot read, and what not; `Newer` if a later version can."""
    try:
        payload = _payload(row, VERSION, UPGRADES)
        parts = _decode_raw(payload)
    except Newer:
        raise
    except (Unreadable, msgspec.MsgspecError, RecursionError) as error:
        return [], [Spoilt(WHOLE, "", str(error), bytes(row))]
    good: list[Fact] = []
    bad: list[Spoilt] = []
    for position, part in enumerate(parts):
        try:
            good.append(_decode_fact(part))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            bad.append(Spoilt(position, _kind(part), str(error), bytes(part)))
    return good, bad


def _payload(row: bytes, version: int, upgrades: Mapping[int, Upgrade]) -> bytes | memoryview:
    """The facts of a row as they are encoded today."""
    if not row:
        raise Unreadable("the row is empty")
    written = row[0] & ~COMPRESSED
    payload: bytes | memoryview = memoryview(row)[1:]
    if row[0] & COMPRESSED:
        try:
            payload = zlib.decompress(payload)
        except zlib.error as error:
            raise Unreadable(f"the row is damaged: {error}") from error
    return payload if written == version else _upgrade(bytes(payload), written, version, upgrades)


def _kind(part: msgspec.Raw) -> str:
    """Which type of fact this was to be."""
    try:
        tag = msgspec.msgpack.decode(part, type=list[msgspec.Raw])[0]
        return _KINDS.get(msgspec.msgpack.decode(tag, type=str), "")
    except (msgspec.MsgspecError, IndexError):
        return ""


def _shrinks(buffer: bytearray) -> bool:
    """Whether a piece from the middle says that compressing the whole pays: pickled floats do not shrink."""
    middle = len(buffer) // 2
    probe = memoryview(buffer)[middle : middle + PROBE]
    return len(zlib.compress(probe, 1)) < PAYS * len(probe)


def _upgrade(payload: bytes, written: int, version: int, upgrades: Mapping[int, Upgrade]) -> bytes:
    if written > version:
        raise Newer(f"the row has format {written}, this version of bough reads up to {version}: use a newer one")
    for step in range(written, version):
        if step not in upgrades:
            raise Unreadable(f"the row has format {written}, which is not known")
        payload = upgrades[step](payload)
    return payload
