"""Parameter spaces and marks for later values."""

import collections
import pickle
from typing import NamedTuple

import pytest

from bough.errors import InvalidWorkload
from bough.model.filtering import Filtered, filtered
from bough.model.refs import Ref, replaced, resolve
from bough.model.spaces import Axis, Product, Ranges, Tie


class Point(NamedTuple):
    x: object
    y: object


def test_a_product_varies_its_last_axis_fastest():
    space = Product({"q": ["a", "b"], "e": [1, 2, 3]})
    assert space.names == ("q", "e")
    assert list(space) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3)]
    assert space[-1] == ("b", 3)
    assert space[1:5] == list(space)[1:5]
    assert space[::2] == list(space)[::2]


def test_a_hundred_million_combinations_cost_nothing():
    space = Product({"a": range(10_000), "b": range(10_000)})
    assert len(space) == 10**8
    assert space[12_345_678] == (1234, 5678)
    assert space[99_999_998:] == [(9999, 9998), (9999, 9999)]
    assert len(pickle.dumps(space)) < 200


def test_an_index_outside_is_an_index_error():
    space = Product({"a": [1, 2]})
    for index in (2, -3):
        with pytest.raises(IndexError):
            space[index]


def test_tied_lists_advance_together():
    space = Tie({"a": ["x", "y"], "h": ["X", "Y"]})
    assert list(space) == [("x", "X"), ("y", "Y")]


def test_tied_lists_of_different_lengths_are_refused_naming_both():
    with pytest.raises(InvalidWorkload, match="a has 2 values, h has 3"):
        Tie({"a": [1, 2], "h": [1, 2, 3]})


def test_spaces_nest():
    space = Product({"e": [1, 2]}, Tie({"a": ["x", "y"], "h": ["X", "Y"]}))
    assert space.names == ("a", "h", "e")
    assert list(space) == [("x", "X", 1), ("x", "X", 2), ("y", "Y", 1), ("y", "Y", 2)]
    both = Product({"a": [1, 2]}) * Product({"b": [3]})
    assert list(both) == [(1, 3), (2, 3)]
    assert list(Tie({"n": range(4)}, Product({"a": [1, 2], "b": [3, 4]})))[3] == (2, 4, 3)


def test_a_name_given_twice_is_refused():
    with pytest.raises(InvalidWorkload, match="parameter a is given twice"):
        Product({"a": [1]}, Tie({"a": [1]}))


def test_a_text_is_no_list_of_values():
    with pytest.raises(InvalidWorkload, match="parameter q is one text"):
        Axis("q", "abc")
    with pytest.raises(InvalidWorkload, match="parameter q is 5"):
        Axis("q", 5)


def test_axes_take_any_iterable_and_do_not_see_later_changes():
    values = [1, 2]
    space = Product({"a": values, "b": (c for c in "xy"), "c": collections.deque([1]), "d": {3, 1, 2}})
    values.append(3)
    assert len(space) == 2 * 2 * 1 * 3
    assert space[0] == (1, "x", 1, 1)


def test_spaces_survive_pickling():
    space = filtered(Product({"a": range(10)}, Tie({"b": [1, 2], "c": [3, 4]})), lambda a, c: (a + c) % 2)
    again = pickle.loads(pickle.dumps(space))
    assert again == space
    assert list(again) == list(space)


def test_an_empty_axis_makes_an_empty_space():
    space = Product({"a": [], "b": range(3)})
    assert len(space) == 0
    assert space[:] == []
    assert len(filtered(space, lambda a: True)) == 0


@pytest.mark.parametrize(
    "where",
    [
        lambda a, b: a % 3 == b,
        lambda b, a: a % 3 == b,
        lambda **row: row["a"] % 3 == row["b"],
        lambda a, *, b: a % 3 == b,
        lambda *row: row[0] % 3 == row[1],
        lambda k=3, a=None, b=None: a % k == b,
        lambda a, b, k=3: a % k == b,
    ],
)
def test_a_filter_gets_its_parameters_by_name(where):
    space = Product({"a": range(50), "b": range(4)})
    expected = [row for row in space if row[0] % 3 == row[1]]
    kept = filtered(space, where)
    assert len(kept) == len(expected)
    assert list(kept) == expected
    assert kept[7] == expected[7]
    assert kept[-1] == expected[-1]
    assert kept[5:20] == expected[5:20]


def test_a_filter_may_ask_for_one_parameter_or_none():
    space = Product({"a": range(4), "b": range(2)})
    assert filtered(space, lambda b: b)[:] == [(a, 1) for a in range(4)]
    assert filtered(space, lambda: True)[:] == space[:]
    assert filtered(space, max)[:] == [row for row in space if max(row)]


def test_a_filter_that_asks_for_something_unknown_is_refused_naming_it():
    with pytest.raises(InvalidWorkload, match="where asks for x, which is no parameter; parameters are a, b"):
        filtered(Product({"a": [1], "b": [2]}), lambda a, x: True)


def test_few_kept_combinations_of_many_are_found():
    space = Product({"a": range(1000), "b": range(1000)})
    bitmap = bytearray(125_000)
    for position in (3, 70_001, 999_999):
        bitmap[position // 8] |= 1 << position % 8
    kept = Filtered(space, bytes(bitmap))
    assert kept[:] == [(0, 3), (70, 1), (999, 999)]
    assert kept[1] == (70, 1)


def test_refs_are_replaced_wherever_they_are_nested():
    obj = {"a": [1, (Ref(0), 2)], "b": Point(Ref(1), 3), "c": collections.OrderedDict(z=Ref(0))}
    found = resolve(obj, ["zero", "one"])
    assert found == {"a": [1, ("zero", 2)], "b": Point("one", 3), "c": {"z": "zero"}}
    assert type(found["b"]) is Point
    assert type(found["c"]) is collections.OrderedDict
    assert obj["a"][1][0] == Ref(0)


def test_what_holds_no_ref_comes_back_itself():
    obj = {"a": [1, (2, {"b": object()})]}
    assert resolve(obj, []) is obj
    loop = [object()]
    loop.append(loop)
    assert resolve(loop, []) is loop


def test_other_kinds_can_be_swapped():
    assert replaced([1, {"a": range(3)}], range, list) == [1, {"a": [0, 1, 2]}]
    assert pickle.loads(pickle.dumps(Ref(3))) == Ref(3)


def test_ranges_are_one_sequence_that_is_not_unfolded():
    parts = (range(1, 4), range(0), range(10, 20, 5), range(7, 8))
    numbers = Ranges(*parts)
    flat = [1, 2, 3, 10, 15, 7]
    assert list(numbers) == flat
    assert [numbers[at] for at in range(-6, 6)] == flat * 2
    assert numbers[1:5] == flat[1:5]
    assert numbers[::-1] == flat[::-1]
    assert pickle.loads(pickle.dumps(numbers)) == numbers
    assert len(pickle.dumps(Ranges(range(10**9), range(5)))) < 200
    for at in (6, -7):
        with pytest.raises(IndexError):
            numbers[at]
    assert not list(Ranges())
    space = Tie({"i": numbers})
    assert space[3] == (10,)
    assert space.rows(2, 5) == [(3,), (10,), (15,)]
