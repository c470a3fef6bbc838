"""Lines out of bytes that arrive in any pieces.

A line ends with a newline, a carriage return, or both together, so that a progress bar is a row of lines. Complete
lines are handed on together, each ended by one newline. Rules: how the bytes were cut never changes which lines come
out. What is kept is bounded: of a line longer than `LONGEST` only its beginning is ever seen.
"""

from __future__ import annotations

LONGEST = 64 << 10  # bytes of a line that are looked at


class LineReader:
    """The lines of one stream."""

    __slots__ = ("_after_return", "_rest", "_skips", "was_cut")

    def __init__(self) -> None:
        self._rest = b""  # of a line that has no end yet
        self._skips = False  # the rest of a line that is too long is dropped
        self._after_return = False  # a newline that comes now belongs to the carriage return before
        self.was_cut = False  # a line was too long

    def feed(self, data: bytes) -> bytes:
        """All lines that are complete now, each ended by a newline; empty: none is."""
        if not data:
            return b""
        if self._after_return and data[0] == 10:
            data = data[1:]
        self._after_return = False
        if b"\r" in data:
            self._after_return = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._skips:
            end = data.find(b"\n")
            if end < 0:
                return b""
            self._skips = False
            data = data[end + 1 :]
        end = data.rfind(b"\n") + 1
        lines = b""
        if end:
            lines = self._rest + data[:end] if self._rest else data[:end]
            self._rest = data[end:]
            if len(lines) > LONGEST:
                lines = self._shortened(lines)
        elif data:
            self._rest += data
        if len(self._rest) > LONGEST:
            lines += self._rest[:LONGEST] + b"\n"
            self._rest = b""
            self._skips = self.was_cut = True
        return lines

    def end(self) -> bytes:
        """The last line, if nothing ended it, with a newline; empty: there is none."""
        rest, self._rest = self._rest, b""
        self._skips = self._after_return = False
        return rest + b"\n" if rest else b""

    def _shortened(self, lines: bytes) -> bytes:
        """The same lines, with no more of each than is looked at."""
        pieces: list[bytes] = []
        kept = at = 0  # what is before `kept` stands in the pieces, what is before `at` was looked at
        while len(lines) - at > LONGEST + 1:
            end = lines.rfind(b"\n", at, at + LONGEST + 1)
            if end >= 0:
                at = end + 1
                continue
            self.was_cut = True
            pieces += (lines[kept : at + LONGEST], b"\n")
            kept = at = lines.find(b"\n", at) + 1
        pieces.append(lines[kept:])
        return b"".join(pieces) if len(pieces) > 1 else lines
