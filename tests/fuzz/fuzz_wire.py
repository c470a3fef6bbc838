"""Feed hostile frames to everything that reads the wire: python -m tests.fuzz.fuzz_wire --frames 1000000 --seed 1.

Valid frames of every message are made from the messages' own types, then broken in many ways. Rule: each
is understood, waited for or a `ProtocolError`; anything else is printed with the bytes that caused it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import time
import typing
from collections import Counter
from collections.abc import Callable

from bough.errors import ProtocolError
from bough.server.peer_connection import PeerConnection
from bough.wire.client_messages import FromClient, ToClient
from bough.wire.executor_messages import FromExecutor, ToExecutor
from bough.wire.framing import Frames, frame_list
from bough.wire.handshake import split_first
from bough.wire.peer_messages import AskContent, ContentComes
from bough.wire.relay_channels import (
    ChannelClosed,
    ChannelCredit,
    ChannelData,
    ChannelOpened,
    Channels,
    FromRelay,
    RelayHello,
    ToRelay,
)
from tests.fuzz.messages import kinds, valid

UNIONS: dict[str, object] = {
    "server": FromClient | FromExecutor | RelayHello,
    "client": ToClient,
    "executor": ToExecutor,
    "relay": ToRelay,
    "line": FromRelay,
    "peer": AskContent | ContentComes,
}
_LENGTHS = (0, 1, 2, 15, 31, 32, 255, 256, 65535, 65536, 1 << 24, 1 << 30, (1 << 30) + 1, (1 << 32) - 1)
_CODES = bytes((0xC0, 0xC1, 0xC4, 0xC6, 0xC9, 0xCA, 0xCB, 0xCF, 0xD3, 0xD6, 0xDB, 0xDD, 0xDF, 0x91, 0x81, 0xA1, 0xFF))


def make_many(union: object, count: int, dice: random.Random) -> list[object]:
    """Random messages of a union."""
    choice = kinds(union)
    return [valid(dice.choice(choice), dice) for _ in range(count)]


# --- breaking them ---------------------------------------------------------------------------------


def mutate(data: bytes, other: bytes, dice: random.Random) -> bytes:
    """Break a frame in one to four ways; mostly the length is set right again, so that the inside is read."""
    out = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        dice.choice(_WAYS)(out, other, dice)
    if len(out) >= 4 and dice.random() < 0.85:
        out[:4] = (len(out) - 4).to_bytes(4, "big")
    return bytes(out)


def _flip(out: bytearray, _other: bytes, dice: random.Random) -> None:
    if out:
        out[dice.randrange(len(out))] ^= 1 << dice.randrange(8)


def _code(out: bytearray, _other: bytes, dice: random.Random) -> None:
    if out:
        out[dice.randrange(len(out))] = dice.choice(_CODES)


def _cut(out: bytearray, _other: bytes, dice: random.Random) -> None:
    del out[dice.randrange(len(out) + 1) :]


def _drop(out: bytearray, _other: bytes, dice: random.Random) -> None:
    at = dice.randrange(len(out) + 1)
    del out[at : at + dice.randrange(1, 9)]


def _insert(out: bytearray, _other: bytes, dice: random.Random) -> None:
    at = dice.randrange(len(out) + 1)
    out[at:at] = dice.randbytes(dice.randrange(1, 9))


def _repeat(out: bytearray, _other: bytes, dice: random.Random) -> None:
    at = dice.randrange(len(out) + 1)
    out[at:at] = out[at : at + dice.randrange(1, 33)] * dice.randrange(1, 20)


def _splice(out: bytearray, other: bytes, dice: random.Random) -> None:
    out[dice.randrange(len(out) + 1) :] = other[dice.randrange(len(other) + 1) :]


def _length(out: bytearray, _other: bytes, dice: random.Random) -> None:
    at = dice.randrange(len(out) + 1)
    out[at:at] = bytes((dice.choice(b"\xdb\xc6\xdd\xdf\xc9"),)) + dice.choice(_LENGTHS).to_bytes(4, "big")


def _head(out: bytearray, _other: bytes, dice: random.Random) -> None:
    out[:4] = dice.choice(_LENGTHS).to_bytes(4, "big")


def _nest(out: bytearray, _other: bytes, dice: random.Random) -> None:
    at = dice.randrange(min(4, len(out)), len(out) + 1)
    out[at:at] = dice.choice((b"\x91", b"\x81\xa1k")) * dice.choice((2, 100, 3000))


_WAYS: tuple[Callable[[bytearray, bytes, random.Random], None], ...] = (
    _flip,
    _flip,
    _code,
    _cut,
    _drop,
    _insert,
    _repeat,
    _splice,
    _length,
    _head,
    _nest,
)


# --- who reads them --------------------------------------------------------------------------------


class Silent(asyncio.Transport):
    """The other end of a connection; counts how often it was hung up."""

    closed = False

    def write(self, data: object) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None:
        pass


class Ears:
    """Listens to a connection of the server."""

    heard_count = 0

    def on_messages(self, _connection: PeerConnection, messages: list[typing.Any]) -> None:
        self.heard_count += len(messages)

    def on_lost(self, _connection: PeerConnection) -> None:
        pass


def read_as_frames(union: object, data: bytes, dice: random.Random) -> str:
    """As client and executor read: in pieces."""
    frames: Frames[object] = Frames(union)
    at = dice.randrange(len(data) + 1)
    try:
        found = frames.feed(data[:at]) + frames.feed(data[at:])
    except ProtocolError:
        return "refused"
    return "understood" if found else "waiting"


def read_as_server(data: bytes) -> str:
    """As the server reads from a peer it has let in."""
    ears, transport = Ears(), Silent()
    connection = PeerConnection(ears, [])
    connection.connection_made(transport)
    connection.data_received(data)
    return "refused" if transport.closed else "understood" if ears.heard_count else "waiting"


def read_as_line(data: bytes, dice: random.Random) -> str:
    """As the server reads from a relay that has a few channels open."""
    frames: Frames[object] = Frames(FromRelay)
    channels = Channels(opens=False)
    for number in range(dice.randrange(4)):
        channels.hear(ChannelOpened(number + 1))
        channels.write(number + 1, b"x")
    try:
        for message in frames.feed(data):
            if isinstance(message, ChannelOpened | ChannelData | ChannelCredit | ChannelClosed):
                channels.hear(message)
                channels.used(message.channel, 1)
    except ProtocolError:
        return "refused"
    return "understood" if channels.take() else "waiting"


def read_as_doorman(data: bytes) -> str:
    """As the server reads from a stranger."""
    try:
        found = split_first(data)
    except ProtocolError:
        return "refused"
    return "understood" if found else "waiting"


def attack(frames: int, seed: int, report: Callable[[str], None]) -> tuple[Counter[str], int]:
    """Feed this many hostile frames; what became of them, and how many broke something."""
    dice = random.Random(seed)
    pool = {
        name: [bytes(frame_list([valid(kind, dice)])) for kind in kinds(union) for _ in range(30)]
        + [bytes(frame_list(make_many(union, dice.randrange(2, 6), dice))) for _ in range(100)]
        for name, union in UNIONS.items()
    }
    counts: Counter[str] = Counter()
    broken = 0
    names = list(UNIONS)
    for number in range(frames):
        name = names[number % len(names)]
        data = mutate(dice.choice(pool[name]), dice.choice(pool[dice.choice(names)]), dice)
        try:
            counts[f"{name}: {read_as_frames(UNIONS[name], data, dice)}"] += 1
            if name == "server":
                counts[f"connection: {read_as_server(data)}"] += 1
                counts[f"doorman: {read_as_doorman(data)}"] += 1
            elif name == "line":
                counts[f"channels: {read_as_line(data, dice)}"] += 1
        except Exception as error:
            broken += 1
            counts[f"broken by {type(error).__name__}"] += 1
            if broken <= 10:
                report(f"{name}: {type(error).__name__}: {error}: {data[:200].hex()}")
    return counts, broken


def resident() -> int:
    """KiB of memory this process has now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4


def main() -> int:
    """Attack as the command line says; 1 if anything broke."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    attack(min(5000, options.frames), options.seed + 1, lambda _: None)  # warm up: caches are no leak
    gc.collect()
    before, start = resident(), time.monotonic()
    counts, broken = attack(options.frames, options.seed, lambda line: print(line, file=sys.stderr))
    gc.collect()
    print(f"{options.frames} hostile frames in {time.monotonic() - start:.1f} s, seed {options.seed}")
    for what, count in sorted(counts.items()):
        print(f"{count:>10}  {what}")
    print(f"memory before {before} KiB, after {resident()} KiB")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
