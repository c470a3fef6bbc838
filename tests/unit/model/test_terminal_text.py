"""What a terminal would obey in text of others is shown; colours of output stay."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.model.texts.terminal_text import TerminalFilter, harmless, harmless_name, harmless_output

HOSTILE = "a\x1b]0;title\x07b\x1b[2Jc\x9b31m\r\x7f"
COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
PIECES = st.sampled_from(["\x1b", "[", "31", ";", "m", "\x1b[1m", "\x1b[0m", "\x9b", "\r", "\n", "\t", "é", "x", "\0"])


def controls(text: str, *, allowed: str = "") -> set[str]:
    """The control characters of a text that are not part of a colour."""
    return {one for one in COLOUR.sub("", text) if (ord(one) < 32 or 127 <= ord(one) < 160) and one not in allowed}


def test_a_name_is_one_line_in_which_nothing_is_obeyed() -> None:
    assert harmless_name(HOSTILE) == r"a\x1b]0;title\x07b\x1b[2Jc\x9b31m\r\x7f"
    assert harmless_name("a\nb\tc\x1b[31mred") == r"a\nb\tc\x1b[31mred"
    assert harmless_name("plot ä 漢") == "plot ä 漢"


def test_a_line_keeps_its_colours_and_they_end_with_it() -> None:
    assert harmless("\x1b[31mfailed\x1b[0m\tä\nnext") == "\x1b[31mfailed\x1b[0m\tä\nnext"
    assert harmless("a\x1b[8mhidden") == "a\x1b[8mhidden\x1b[0m"
    assert harmless("\x1b[2J") == r"\x1b[2J"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"50%\r100%\n", "50%\r100%\n"),
        (b"\x1b[1;31mred\x1b[m\n", "\x1b[1;31mred\x1b[m\n"),
        (b"\x1b[31mred\n", "\x1b[31mred\n\x1b[0m"),
        (b"\x1b]8;;http://x\x1b\\a\x08", r"\x1b]8;;http://x\x1b\a\x08"),
        (b"\x1b", r"\x1b"),
        (b"\x1b[31", r"\x1b[31"),
        (b"\xff\xc2\x9b2J", "\N{REPLACEMENT CHARACTER}\\x9b2J"),
    ],
)
def test_output_keeps_its_colours_and_carriage_returns(written: bytes, shown: str) -> None:
    assert harmless_output(written) == shown


@given(st.lists(PIECES), st.data())
def test_where_output_is_cut_makes_no_difference(parts: list[str], data: st.DataObject) -> None:
    written = "".join(parts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=5)))
    pieces = [written[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(written)], strict=True)]
    filtered = TerminalFilter()
    assert "".join(map(filtered.add, pieces)) + filtered.end() == harmless_output(written)


@given(st.lists(PIECES | st.characters()))
def test_nothing_but_colours_is_obeyed(parts: list[str]) -> None:
    text = "".join(parts)
    assert not controls(harmless_output(text.encode(errors="replace")), allowed="\n\t\r")
    assert not controls(harmless(text), allowed="\n\t")
    assert not controls(harmless_name(text))
    assert "\x1b" not in harmless_name(text)
