"""Text of others on a terminal: what the terminal would obey is shown instead.

A name, a message or a line of output may hold control sequences that clear the screen, set the window's title or move
the cursor. `harmless_name` is for names, labels and hosts: one line in which nothing is obeyed. `harmless` is for lines
of ours in which others are quoted, and `TerminalFilter` for what tasks print: colours stay, as in `less -R`.

Rule: every name goes through here wherever it is shown. What a task wrote is changed only on its way to a terminal;
files and pipes get its bytes.
"""

from __future__ import annotations

import codecs
import re

_CONTROL = r"[\x00-\x1f\x7f-\x9f]"  # compiled when first met: most names have none
_COLOUR = r"\x1b\[[0-9;:]{0,40}m"
_OBEYED = rf"({_COLOUR})|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
# A carriage return stays in output: it cannot leave its line, and programs draw their progress with it.
_OBEYED_IN_OUTPUT = rf"({_COLOUR})|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
_BEGUN_COLOUR = r"\x1b(?:\[[0-9;:]{0,40})?\Z"
_RESET = "\x1b[0m"
_LAST_COLOUR = rf"(?s:.*)({_COLOUR})"
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def harmless_name(text: str) -> str:
    """A name on one line, with its control characters as Python writes them."""
    return text if text.isprintable() else re.sub(_CONTROL, _shown, text)


def harmless(text: str) -> str:
    """A text with its control characters shown; colours end with it, and tabs and ends of lines stay."""
    if text.isprintable():
        return text
    shown = _without_orders(text, _OBEYED)
    return shown + _end_of(_last_colour(shown))


class TerminalFilter:
    """Makes one stream of bytes a text for a terminal, piece by piece: a piece may end within a sequence."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""
        self._colour = ""

    def add(self, data: bytes) -> str:
        """What can be shown now."""
        text = self._begun + self._decoder.decode(data)
        begun = re.search(_BEGUN_COLOUR, text[-50:])
        self._begun = begun[0] if begun else ""
        shown = _without_orders(text[: len(text) - len(self._begun)], _OBEYED_IN_OUTPUT)
        self._colour = _last_colour(shown) or self._colour
        return shown

    def end(self) -> str:
        """What is left at the end of the stream, and the end of a colour that is still on."""
        rest, self._begun = self._begun + self._decoder.decode(b"", final=True), ""
        colour, self._colour = self._colour, ""
        return _without_orders(rest, _OBEYED_IN_OUTPUT) + _end_of(colour)


def harmless_output(data: bytes) -> str:
    """The whole of a piece of output, such as a line, for a terminal; its colours end with it."""
    whole = TerminalFilter()
    return whole.add(data) + whole.end()


def _shown(found: re.Match[str]) -> str:
    return _SHORT.get(found[0]) or f"\\x{ord(found[0]):02x}"


def _without_orders(text: str, obeyed: str) -> str:
    return re.sub(obeyed, lambda found: found[1] or _shown(found), text)


def _last_colour(text: str) -> str:
    if "\x1b" not in text:
        return ""
    found = re.match(_LAST_COLOUR, text)
    return found[1] if found else ""


def _end_of(colour: str) -> str:
    return "" if colour in {"", "\x1b[m", _RESET} else _RESET
