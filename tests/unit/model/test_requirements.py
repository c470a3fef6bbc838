"""Requirements: an expression over the attributes of executors."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.errors import BadValue, UserError
from bough.model.sites.requirements import (
    LONGEST_TEXT,
    Attributes,
    AttributeText,
    as_known,
    compact,
    holds,
    join_requirements,
    meets,
    read_requirement,
)

NODE = {"rack": 7.0} | as_known(
    (
        ("cores", 8.0),
        ("memory_gb", 64.0),
        ("cpu", ("avx2", "sse4_2")),
        ("arch", "x86_64"),
        ("python", "3.11"),
        ("rack", 7.0),
    )
)


@pytest.mark.parametrize(
    "text",
    [
        "memory_gb >= 64",
        "memory_gb >= 64 and 'avx2' in cpu",
        "cores > 7 and not cores > 8",
        "4 <= cores <= 8",
        "arch == 'x86_64'",
        "arch in ('x86_64', 'aarch64')",
        "rack in [7, 8]",
        "'86' in arch",
        "'avx512' not in cpu",
        "python >= '3.9'",
        "python < '3.12'",
        "rack",
        "(rack == 3 or rack == 7) and True",
        "-1 < rack",
        "nothing_known or cores == 8",
        "cores == 8 or nothing_known",
        "memory_gb >= cores",
    ],
)
def test_what_is_met(text: str) -> None:
    assert meets(text, NODE)


@pytest.mark.parametrize(
    "text",
    [
        "memory_gb >= 65",
        "'avx512' in cpu",
        "'avx' in cpu",  # a word, not a part of one
        "cores > 8 or rack == 3",
        "not cores",
        "python >= '3.12'",
        "gpu_model == 'a100'",  # unknown
        "not gpu_model == 'a100'",  # still unknown
        "gpu_model == 'a100' and cores == 8",
        "python >= 3.9",  # a text is not compared with a number
        "arch > 3",
        "cpu == 'avx2'",
        "4 <= cores <= 7",
    ],
)
def test_what_is_not_met(text: str) -> None:
    assert not meets(text, NODE)


def test_what_is_not_known_may_still_come() -> None:
    assert holds("memory_gb >= 64", {"site": "alpha"}) is None
    assert holds("site == 'beta' and memory_gb >= 64", {"site": "alpha"}) is False
    assert holds("site == 'alpha' or memory_gb >= 64", {"site": "alpha"}) is True


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "memory_gb >=",
        "memory_gb = 64",
        "__import__('os').system('true')",
        "cpu.append",
        "cpu[0] == 'x'",
        "lambda: 1",
        "[x for x in cpu]",
        "(x := 3) == 3",
        "cores is 8",
        "cores * 2 > 3",
        "f'{cores}' == '8'",
        "b'x' in cpu",
        "1e999 < cores",
        "1j == cores",
        "-'x' == arch",
        "- -1 == cores",
        "None == cores",
        "... == cores",
        "cores == ['a', [1]]",
        "cores\n and rack",
        "'\\x41' == arch",
        "a\0b",
        "await cores",
        "(" * 300 + "cores" + ")" * 300,
        "not " * 200 + "cores",
        " or ".join(["cores"] * 200),
        "x" * (LONGEST_TEXT + 1),
    ],
)
def test_all_else_is_refused_with_a_line_that_says_so(text: str) -> None:
    with pytest.raises(BadValue, match="requires") as error:
        read_requirement(text)
    assert "\n" not in str(error.value)
    assert not meets(text, NODE)


def test_what_is_lacking_is_said_part_by_part() -> None:
    found = read_requirement("(memory_gb >= 128 and cores > 4) and 'avx512' in cpu and gpu == 'a100'").unmet(NODE)
    assert list(found) == [
        ("memory_gb >= 128", "64"),
        ("'avx512' in cpu", "another cpu"),
        ("gpu == 'a100'", "no gpu"),
    ]


def test_two_requirements_become_one() -> None:
    assert join_requirements("", "a") == "a"
    assert join_requirements("a", "a") == "a"
    both = join_requirements("cores > 1 or rack == 3", "rack == 7")
    assert meets(both, NODE)
    assert not meets(join_requirements("rack == 3 or cores > 1", "rack == 8"), NODE)


def test_equal_words_are_kept_once() -> None:
    words = ["avx2", "sse"]
    one = compact((("cpu", tuple(words)), ("disk_gb", 1.0)))
    other = compact((("cpu", tuple(words)), ("disk_gb", 2.0)))
    assert one[0][1] is other[0][1]


def test_attributes_are_read_many_times_over() -> None:  # a pattern in this union made msgspec 0.22 crash
    said = [["rack", 7], ["arch", "x86_64"], ["cpu", ["avx2"]]]
    data = msgspec.msgpack.encode(said)
    for _ in range(2000):
        assert len(msgspec.msgpack.Decoder(Attributes).decode(data)) == 3
    assert msgspec.convert("x86_64", AttributeText) == "x86_64"


_WORDS = st.sampled_from(
    [
        *("and", "or", "not", "in", "is", "if", "else", "lambda", "for", "(", ")", "[", "]", "{", "}", ",", ":", ":="),
        *(
            "==",
            "!=",
            "<",
            "<=",
            ">",
            ">=",
            "+",
            "-",
            "*",
            "**",
            ".",
            "cores",
            "cpu",
            "arch",
            "missing",
            "'avx2'",
            "'x'",
        ),
        *("1", "64", "1e9", "1e999", "9" * 400, "True", "None", "...", "f'{cores}'", "\n", "#", "\\", "await", "yield"),
    ]
)
_TEXTS = st.one_of(
    st.lists(_WORDS, max_size=60).map(" ".join),
    st.text(max_size=200),
    st.builds(lambda words, times: "".join(words) * times, st.lists(_WORDS, max_size=4), st.integers(1, 300)),
)


@given(_TEXTS)
@settings(max_examples=1000, deadline=2000)
def test_any_text_is_answered_or_refused_and_nothing_else(text: str) -> None:
    assert meets(text, NODE) in {True, False}
    assert holds(text, {}) in {True, False, None}
    try:
        found = read_requirement(text)
    except UserError:
        return
    assert meets(text, NODE) == (found.holds(NODE) is True) == (not list(found.unmet(NODE)))
