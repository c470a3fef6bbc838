"""Lines of a file as remote monitors read them, in parts and from the end, against plain Python."""

from __future__ import annotations

import os
import re
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.executor.probes import file_answers
from bough.executor.probes.file_answers import ProbePlace, answer_file
from bough.wire.probes import FileData, ReadPart, Tail

LINES = st.sampled_from([b"\n", b"a\n", b"b=1\n", b"\xff\r\n", b"aaaaaaaaaaaaab\n", b"a b a\n"])
CONTENTS = st.builds(
    lambda lines, end: b"".join(lines) + end, st.lists(LINES, max_size=30), st.sampled_from([b"", b"ab"])
)
CHUNK = 16  # longer than every line


@pytest.fixture(scope="module", autouse=True)
def _small_chunks() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_answers, "_CHUNK", CHUNK)
        yield


def lines_of(content: bytes) -> list[bytes]:
    """Lines with their ends."""
    return [line for line in re.split(rb"(?<=\n)", content) if line]


def ask(content: bytes, question: ReadPart | Tail) -> FileData:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        found = answer_file(question, ProbePlace(os.getpid(), 1, 0, 1, {"stdout": (file.name, 0)}))
    assert isinstance(found, FileData)
    return found


@settings(max_examples=300, deadline=None)
@given(CONTENTS, st.integers(CHUNK, 40), st.booleans(), st.sampled_from(["", "b", "a"]))
def test_parts_together_are_the_whole(content: bytes, size: int, whole: bool, pattern: str) -> None:
    wanted = [line for line in lines_of(content) if not whole or line.endswith(b"\n")]
    expected = b"".join(line for line in wanted if re.search(pattern.encode(), line))
    got, offset, more = b"", 0, True
    while more:
        part = ask(content, ReadPart("stdout", offset, size, pattern, whole))
        assert part.offset > offset or not part.more
        got, offset, more = got + part.data, part.offset, part.more
    assert got == expected


@settings(max_examples=300, deadline=None)
@given(CONTENTS, st.integers(1, 12), st.sampled_from(["", "b", "a"]))
def test_the_last_lines_are_the_last_lines(content: bytes, count: int, pattern: str) -> None:
    expected = [line for line in lines_of(content) if re.search(pattern.encode(), line)][-count:]
    assert ask(content, Tail("stdout", count, pattern)).data == b"".join(expected)
