"""Arguments as short bytes: what goes in comes out, and what is not simple is left to pickle."""

from __future__ import annotations

import importlib.util
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bough.model.monitoring.monitors import Emit
from bough.model.refs import FORMER, Ref, load_pickle, pack_marked, pack_simple, unpack_call
from bough.sim import one_site

SIMPLE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(), st.complex_numbers()
)


@given(st.lists(SIMPLE))
def test_simple_arguments_come_out_as_they_went_in(args: list[Any]) -> None:
    packed = pack_simple(tuple(args))
    assert packed is not None
    found, named = unpack_call(packed, ())
    assert repr(list(found)) == repr(args)
    assert named == {}


@given(st.lists(st.one_of(SIMPLE, st.integers(0, 3).map(Ref))))
def test_marks_give_way_to_values(args: list[Any]) -> None:
    values = [object() for _ in range(4)]
    packed = pack_marked(tuple(args))
    assert packed is not None
    found, _ = unpack_call(packed, values)
    expected = [values[arg.n] if isinstance(arg, Ref) else arg for arg in args]
    assert repr(list(found)) == repr(expected)


class Number(int):
    pass


@pytest.mark.parametrize("odd", [(), [1], Number(3), object(), bytearray(b"x"), {1}])
def test_what_is_not_simple_is_not_packed(odd: object) -> None:
    assert pack_simple((1, odd)) is None
    assert pack_marked((1, odd)) is None
    assert pack_simple((1, Ref(0))) is None


def test_a_pickle_is_read_as_one() -> None:
    packed = pickle.dumps((([Ref(0)], 2), {"x": Ref(1)}))
    assert unpack_call(packed, ["a", "b"]) == ((["a"], 2), {"x": "b"})
    assert unpack_call(pickle.dumps(((1,), {"y": 2})), ()) == ((1,), {"y": 2})


@pytest.mark.parametrize(("former", "now"), FORMER.items())
def test_a_former_module_is_gone_and_its_contents_are_elsewhere(former: str, now: str) -> None:
    assert importlib.util.find_spec(former) is None
    assert importlib.util.find_spec(now) is not None


@pytest.mark.parametrize("value", [Emit("best"), one_site(hosts=2, cores=4)])
def test_a_pickle_that_names_former_modules_is_read(value: object) -> None:
    data = pickle.dumps(value, protocol=0)  # names of modules are lines of their own
    for former, now in FORMER.items():
        data = data.replace(f"c{now}\n".encode(), f"c{former}\n".encode())
    with pytest.raises(ModuleNotFoundError):
        pickle.loads(data)
    assert load_pickle(data) == value
