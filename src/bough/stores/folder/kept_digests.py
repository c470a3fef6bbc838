"""Which content a file had when it was last read, kept in a file, so that nothing big is read and hashed twice.

A file is known by its name, and by a stamp that is another one when it changes: size, time and inode of a file, size
and mark of a URL. Each line of the kept file is one of them; what is written later counts. The oldest are forgotten
when there are too many, and the file is written anew when most of its lines are out of date. It is read when it is
first asked for, so that a server without declared files never does.
Rule: it is advice until its reader has compared the stamp and seen that the content is there. So a line that a crash
cut off, or a disk that is full, costs a reading and no error.
"""

from __future__ import annotations

import contextlib
import os

import msgspec

from bough import private

_MOST = 50_000  # files that are remembered

Stamp = tuple[int | str, ...]


class _Line(msgspec.Struct, array_like=True):
    name: bytes  # as the system has it: not every path is a text
    stamp: Stamp
    digest: bytes


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode


class KeptDigests:
    """See the module. `path`: the kept file, whose folder may not be there yet."""

    def __init__(self, path: str, most: int = _MOST) -> None:
        self._path = path
        self._most = most
        self._known: dict[str, tuple[Stamp, bytes]] | None = None  # by name, the oldest first; None: not read yet
        self._lines = 0  # in the kept file

    def get(self, name: str) -> tuple[Stamp, bytes] | None:
        """The stamp that something had when it was last read, and the digest of its content."""
        return (self._known if self._known is not None else self._read()).get(name)

    def note(self, name: str, stamp: Stamp, digest: bytes) -> None:
        """Something had a stamp when it was read, and this content."""
        known = self._known if self._known is not None else self._read()
        if known.get(name) == (stamp, digest):
            return
        known.pop(name, None)
        known[name] = (stamp, digest)
        if len(known) > self._most:
            del known[next(iter(known))]
        with contextlib.suppress(OSError):
            if self._lines >= 2 * self._most:
                self._write_anew(known)
            else:
                private.make_folder(os.path.dirname(self._path))
                with open(self._path, "ab", opener=private.opener) as file:
                    file.write(_line(name, stamp, digest))
                self._lines += 1

    def _read(self) -> dict[str, tuple[Stamp, bytes]]:
        known: dict[str, tuple[Stamp, bytes]] = {}
        lines: list[bytes] = []
        with contextlib.suppress(OSError), open(self._path, "rb") as file:
            lines = file.read().split(b"\n")
        self._lines = len(lines)
        for line in lines:
            with contextlib.suppress(msgspec.MsgspecError):  # an empty one, or what a crash left of one
                one = _decode(line)
                name = os.fsdecode(one.name)
                known.pop(name, None)
                known[name] = (one.stamp, one.digest)
        while len(known) > self._most:
            del known[next(iter(known))]
        self._known = known  # last: threads may ask, too
        return known

    def _write_anew(self, known: dict[str, tuple[Stamp, bytes]]) -> None:
        hidden = f"{self._path}.part"
        with open(hidden, "wb", opener=private.opener) as file:
            file.write(b"".join([_line(name, *one) for name, one in known.items()]))
        os.replace(hidden, self._path)
        self._lines = len(known)


def _line(name: str, stamp: Stamp, digest: bytes) -> bytes:
    """A line that begins with its own end of line: what was cut off before it does not spoil it."""
    return b"\n" + _encode(_Line(os.fsencode(name), stamp, digest))
