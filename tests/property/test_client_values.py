"""Properties of spaces, templates, pages and digests over many made-up inputs."""

import itertools
import pickle
import shlex
import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from bough.api.memo.digests import value_digest
from bough.api.pickling import make_pages, unpack
from bough.model.commands.command import CommandSettings, CommandTemplate
from bough.model.commands.rendering import render_call, render_row
from bough.model.commands.shell_text import split_words
from bough.model.commands.template import parse, unparse
from bough.model.filtering import Filtered
from bough.model.spaces import Product, Tie

axes = st.lists(st.integers(0, 5).map(range), min_size=1, max_size=4)


@given(axes, st.integers(0, 700), st.integers(0, 700))
def test_a_product_is_what_nested_loops_make(ranges, start, stop):
    space = Product({f"p{n}": axis for n, axis in enumerate(ranges)})
    expected = list(itertools.product(*ranges))
    assert list(space) == expected
    assert space[start:stop] == expected[start:stop]
    assert pickle.loads(pickle.dumps(space))[:] == expected


@given(axes, st.integers(1, 4), st.integers(0, 300), st.integers(0, 60))
def test_products_of_ties_slice_as_lists_do(ranges, length, start, count):
    tie = Tie({"a": range(length), "b": list("wxyz"[:length])})
    space = Product({f"p{n}": axis for n, axis in enumerate(ranges)}, tie)
    rows = [(*pair, *rest) for pair in tie for rest in itertools.product(*ranges)]
    assert space[start : start + count] == rows[start : start + count]


@given(st.lists(st.booleans(), max_size=9000), st.integers(0, 9000), st.integers(0, 200))
@settings(max_examples=40, deadline=None)
def test_a_filtered_space_holds_the_kept_rows_in_order(keep, start, count):
    bitmap = bytearray((len(keep) + 7) // 8)
    for n, kept in enumerate(keep):
        bitmap[n // 8] |= kept << n % 8
    space = Filtered(Product({"n": range(len(keep))}), bytes(bitmap))
    expected = [(n,) for n, kept in enumerate(keep) if kept]
    assert len(space) == len(expected)
    assert space[start : start + count] == expected[start : start + count]
    assert all(space[k] == row for k, row in list(enumerate(expected))[:: max(1, len(expected) // 20)])


texts = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=12)


@given(texts)
def test_any_text_can_be_written_as_a_template(text):
    parts = parse(unparse([text]))
    assert "".join(str(part) for part in parts) == text


@given(st.lists(texts, min_size=1, max_size=4))
def test_quoted_words_are_split_as_the_shell_does(words):
    assert [("".join(str(part) for part, _ in word)) for word in split_words([shlex.join(words)])] == words


@given(st.lists(texts, min_size=5, max_size=5))
@settings(max_examples=60, deadline=None)
def test_bash_sees_every_value_as_it_was_given(values):
    text = """printf '%s\\0' {a} pre{b}post '{c}' "{d}" "$(printf '%s.' {e})" """
    shell = CommandSettings("/", ("bash", "-c"))
    call = render_row(CommandTemplate(shell, parse(text), ("a", "b", "c", "d", "e")), tuple(values))
    out = subprocess.run(render_call(call, {}), capture_output=True, check=True, timeout=60).stdout
    a, b, c, d, e = values
    assert out.decode() == "\0".join([a, f"pre{b}post", c, d, f"{e}."]) + "\0"


@given(st.lists(st.one_of(st.integers(), st.binary(max_size=3000), st.text()), max_size=300))
@settings(max_examples=40, deadline=None)
def test_pages_hold_every_item_once_and_in_order(items):
    pages = list(make_pages(iter(items), start=7))
    assert [item for page in pages for item in unpack(page.data)] == items
    assert [n for page in pages for n in range(page.start, page.stop)] == list(range(7, 7 + len(items)))


simple = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.binary(max_size=5)
)
nested = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4), st.tuples(inner)
    ),
    max_leaves=12,
)


def shape(value):
    """A value with its types, so that 1, 1.0 and True differ and 0.0 and -0.0 too."""
    if isinstance(value, dict):
        return ("dict", tuple((key, shape(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return (type(value).__name__, tuple(shape(item) for item in value))
    return (type(value).__name__, repr(value))


@given(nested, nested)
def test_digests_are_equal_exactly_when_values_are(a, b):
    assert (value_digest(a) == value_digest(b)) == (shape(a) == shape(b))
    assert value_digest(pickle.loads(pickle.dumps(a))) == value_digest(a)
