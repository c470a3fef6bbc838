"""Memo keys: what counts and what does not."""

import abc
import array
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import logging
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time
import typing
import uuid
from typing import NamedTuple

import pytest

from bough.api.memo.content_keys import (
    Alike,
    call_key,
    command_key,
    function_key,
    known_function,
    template_key,
)
from bough.api.memo.digests import value_digest
from bough.api.memo.file_identities import file_identity
from bough.model.commands.command import CommandCall, CommandSettings, CommandTemplate, encode_call
from bough.model.commands.template import parse


def defined(text, name="f", **scope):
    """A function from source text, as if it were the user's own."""
    space = {"__name__": "__main__", **scope}
    exec(textwrap.dedent(text), space)
    return space[name]


BASE = """
def f(x, y=2):
    z = [x, 'a', 1.5]
    def inner(q):
        return q + 1
    return inner(y), z
"""


def test_comments_docstrings_and_line_numbers_do_not_count():
    moved = """


    # a comment
    def f(x, y=2):
        '''A docstring.'''
        z = [x, 'a', 1.5]  # another

        def inner(q):
            '''One more.'''
            return q + 1
        return inner(y), z
    """
    assert function_key(defined(BASE)) == function_key(defined(moved))


@pytest.mark.parametrize(
    ("old", "new"),
    [("y=2", "y=3"), ("'a'", "'b'"), ("1.5", "2.5"), ("q + 1", "q + 2"), ("q + 1", "q - 1"), ("y=2", "*, y=2")],
)
def test_code_constants_and_defaults_count(old, new):
    assert function_key(defined(BASE)) != function_key(defined(BASE.replace(old, new)))


def test_one_and_one_point_zero_and_true_are_different_constants():
    keys = {
        function_key(defined(f"def f(): return {text}")) for text in ("1", "1.0", "True", "'1'", "b'1'", "(1,)", "-0.0")
    }
    assert len(keys) == 7


def test_globals_that_are_used_count_and_others_do_not():
    text = "def f(x): return x + K"
    assert function_key(defined(text, K=1)) == function_key(defined(text, K=1, other=5))
    assert function_key(defined(text, K=1)) != function_key(defined(text, K=2))
    attribute = "def f(x): return x.K"
    assert function_key(defined(attribute, K=1)) == function_key(defined(attribute, K=2))


def test_functions_it_calls_count_through_all_levels():
    text = "def h(x): return x + {}\ndef g(x): return h(x)\ndef f(x): return g(x)"
    assert function_key(defined(text.format(1))) == function_key(defined(text.format(1)))
    assert function_key(defined(text.format(1))) != function_key(defined(text.format(2)))


def test_recursion_is_no_obstacle():
    text = "def f(n): return n if n < 2 else g(n - 1)\ndef g(n): return f(n - 1)"
    assert function_key(defined(text)) == function_key(defined(text))


def test_closures_count_by_their_content():
    def made(n):
        return lambda x: x + n

    assert function_key(made(1)) == function_key(made(1))
    assert function_key(made(1)) != function_key(made(2))


def test_a_changed_global_is_noticed():
    scope = {"__name__": "__main__", "K": 1, "L": [1]}
    exec("def f(x): return x + K + L[0]", scope)
    first = function_key(scope["f"])
    assert function_key(scope["f"]) == first
    scope["K"] = 2
    assert function_key(scope["f"]) != first
    scope["K"] = 1
    assert function_key(scope["f"]) == first
    scope["L"].append(2)
    assert function_key(scope["f"]) != first


def test_a_changed_class_attribute_is_noticed():
    scope = {"__name__": "__main__"}
    exec("class C:\n    k = 1\n    def m(self): return 1\ndef f(x): return C.k", scope)
    first = function_key(scope["f"])
    scope["C"].k = 2
    assert function_key(scope["f"]) != first


def test_decorated_functions_count_by_what_they_wrap():
    text = "@deco\ndef f(x): return x + {}"
    for deco in (functools.lru_cache, functools.cache):
        assert function_key(defined(text.format(1), deco=deco)) != function_key(defined(text.format(2), deco=deco))


def test_methods_partials_and_callables_have_keys():
    class Model:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            return x

    keys = [
        function_key(Model(1).__call__),
        function_key(Model(2).__call__),
        function_key(Model(1)),
        function_key(functools.partial(max, 1)),
        function_key(functools.partial(max, 2)),
        function_key(len),
        function_key("a".join),
        function_key("b".join),
        function_key(os.path.join),
    ]
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_classes_of_every_make_have_keys():
    text = """
    class Shape(abc.ABC, typing.Generic[T]):
        sides: list[int] = []
        __slots__ = ("a",)
        @abc.abstractmethod
        def area(self): ...
        @functools.cached_property
        def p(self): return {}
        @property
        def q(self): return 1
        @classmethod
        def c(cls): return cls
        @staticmethod
        def s(): return 2
    def f(x: "int | None" = None): return Shape, typing.Optional[int]
    """
    scope = {"abc": abc, "typing": typing, "functools": functools, "T": typing.TypeVar("T")}
    keys = [function_key(defined(text.format(n), **scope)) for n in (1, 1, 2)]
    assert None not in keys
    assert keys[0] == keys[1] != keys[2]


def test_an_object_that_resists_being_looked_at_has_no_digest():
    class Odd:
        def __reduce_ex__(self, version):
            raise RuntimeError("no")

        def __call__(self):
            pass

        def __getattr__(self, name):
            raise RuntimeError(name)

    assert value_digest(Odd()) is None
    assert function_key(Odd()) is None


def test_what_cannot_be_told_apart_has_no_key():
    lock = threading.Lock()
    assert function_key(lambda: lock) is None
    assert call_key(function_key(len), (lock,), {}) is None
    with open(os.devnull) as file:
        for thing in (lock, file, (i for i in ()), [lock], {"a": {1: lock}}):
            assert value_digest(thing) is None


@dataclasses.dataclass
class Point:
    x: int
    y: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    x: int


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    a: int
    b: int


UTC = dt.UTC

VALUES = [
    *(1, 1.0, True, 0, 0.0, -0.0, False, None, "1", b"1", "", b"", 1j, float("nan"), 10**30, ...),
    *([1], (1,), {1}, frozenset({1}), {1: 2}, {1: "2"}, [], (), {}, set(), [[1], 2], [1, [2]], ((1,), 2)),
    *(bytearray(b"1"), array.array("i", [1]), array.array("q", [1]), range(3), range(4), slice(1, 2)),
    *(Point(1), Point(2), Point(1, [2]), Slotted(1), Slotted(2), Colour.RED, Colour.BLUE, Pair(1, 2), (1, 2)),
    *(pathlib.Path("a"), pathlib.Path("b"), pathlib.PurePosixPath("a"), uuid.UUID(int=1), uuid.UUID(int=2)),
    *(decimal.Decimal("1.0"), decimal.Decimal("1.00"), fractions.Fraction(1, 3), dt.date(2020, 1, 1)),
    *(dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=UTC), dt.timedelta(1), dt.time(1), UTC),
    *(collections.deque([1]), collections.OrderedDict(a=1), collections.Counter("a"), {"a": 1}, logging.getLogger("a")),
    *(len, max, os, sys, int, Point, Colour, functools.partial(max, 1)),
]


def test_different_values_have_different_digests():
    digests = [value_digest(value) for value in VALUES]
    assert None not in digests
    assert len(set(digests)) == len(VALUES)


def test_equal_values_have_equal_digests():
    assert value_digest([1, {"a": (2, "x" * 3)}]) == value_digest([1, {"a": (2, "xxx")}])
    assert value_digest(Point(1, [2])) == value_digest(Point(1, [2]))
    shared = [1]
    assert value_digest(([1], [1])) == value_digest((shared, shared))


def test_structures_that_hold_themselves_end():
    loop = [1]
    loop.append(loop)
    assert value_digest(loop) is not None


def test_numpy_arrays_count_by_type_shape_and_content():
    numpy = pytest.importorskip("numpy", reason="numpy is not installed: pip install numpy to include it")
    a = numpy.arange(6)
    values = [
        a,
        a.reshape(2, 3),
        a.astype("f4"),
        a + 1,
        numpy.float64(1),
        numpy.int64(1),
        a[:0],
        numpy.array(["a"], object),
    ]
    digests = [value_digest(value) for value in values]
    assert None not in digests
    assert len(set(digests)) == len(values)
    assert value_digest(a[::2]) == value_digest(a[::2].copy())


def test_what_classes_of_arrays_add_to_them_counts():
    numpy = pytest.importorskip("numpy", reason="numpy is not installed: pip install numpy to include it")

    class Quantity(numpy.ndarray):
        def __reduce__(self):
            make, args, state = super().__reduce__()
            return make, args, (*state, self.unit)

        def __setstate__(self, state):
            super().__setstate__(state[:-1])
            self.unit = state[-1]

    def quantity(values, unit):
        made = numpy.asarray(values).view(Quantity)
        made.unit = unit
        return made

    a = numpy.arange(6.0)
    values = [
        a,
        quantity(a, "m"),
        quantity(a, "km"),
        quantity(a + 1, "m"),
        numpy.ma.array(a, mask=a > 3),
        numpy.ma.array(a, mask=a > 4),
    ]
    digests = [value_digest(value) for value in values]
    assert None not in digests
    assert len(set(digests)) == len(values)
    assert value_digest(quantity(a.copy(), "m")) == digests[1]
    assert value_digest(numpy.ma.array(a, mask=a > 3)) == digests[4]


def test_keys_are_the_same_in_every_process():
    script = textwrap.dedent(
        """
        import dataclasses, enum, re
        from bough.api.memo.digests import value_digest
        from bough.api.memo.content_keys import function_key
        NAMES = {"a", "b", "c", "d"}
        @dataclasses.dataclass
        class P:
            x: int
            tags: frozenset = frozenset({"p", "q", "r"})
        class E(enum.Enum):
            A = 1
        def helper(x): return x in {"u", "v", "w"} and E.A
        def f(x, pattern=re.compile("a+")): return helper(x), NAMES, P(1)
        print(function_key(f).hex(), value_digest({"s": {"a", "b", "c"}, "p": P(2), "e": E.A}).hex())
        """
    )
    seen = set()
    for seed in ("1", "2", "3"):
        run = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        )
        seen.add(run.stdout)
    assert len(seen) == 1


def test_the_modules_beside_a_script_count_by_what_is_used_of_them(tmp_path):
    (tmp_path / "script.py").write_text(
        "import beside\nfrom bough.api.memo.content_keys import function_key\n"
        "def f(x): return beside.g(x)\nprint(function_key(f).hex())\n"
    )

    def key(source):
        (tmp_path / "beside.py").write_text(source)
        options = ["-B", "script.py"]  # no cached bytecode: the file changes within a second
        return subprocess.run(
            [sys.executable, *options], cwd=tmp_path, capture_output=True, check=True, timeout=60
        ).stdout

    first = key("def g(x): return x + 1\ndef other(): return 1\n")
    assert key("# moved\ndef other(): return 2\ndef g(x): return x + 1\n") == first
    assert key("def g(x): return x + 2\n") != first


def test_the_order_of_keyword_arguments_does_not_count():
    key = function_key(len)
    assert call_key(key, (1,), {"a": 1, "b": 2}) == call_key(key, (1,), {"b": 2, "a": 1})
    assert call_key(key, (1,), {"a": 1}) != call_key(key, (1,), {"a": 2})
    assert call_key(key, (), {}) != call_key(key, (1,), {})
    assert call_key(key, (1,), {}) != call_key(key, ([1],), {})
    assert (
        len({call_key(key, given, {}) for given in ((1,), (1.0,), (True,), ("1",), (b"1",), (1, None), ((1,),))}) == 7
    )
    assert call_key(None, (), {}) is None


def test_small_tuples_are_digested_fast():
    value = (1, 2, 3)
    best = 1.0
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(1000):
            value_digest(value)
        best = min(best, (time.perf_counter() - began) / 1000)
    assert best < 20e-6  # 1.5e-6 on an idle machine


def test_files_count_by_content(tmp_path):
    file = tmp_path / "a"
    file.write_text("one")
    first = file_identity(str(file))
    os.utime(file, (1, 1))
    assert file_identity(str(file)) == first
    assert file_identity(str(file)) == first
    file.write_text("two")
    assert file_identity(str(file)) != first
    file.write_text("one")
    assert file_identity(str(file)) == first
    assert file_identity(str(tmp_path / "missing")) is None
    assert file_identity(str(file / "below")) is None


def test_big_files_count_by_size_and_time(tmp_path):
    file = tmp_path / "big"
    with file.open("wb") as out:
        out.truncate(17 << 20)
    os.utime(file, ns=(5, 5))
    first = file_identity(str(file))
    os.utime(file, ns=(6, 6))
    assert file_identity(str(file)) != first


def test_folders_count_by_what_is_in_them(tmp_path):
    (tmp_path / "a").write_text("x")
    first = file_identity(str(tmp_path))
    assert file_identity(str(tmp_path)) == first
    (tmp_path / "b").write_text("x")
    assert file_identity(str(tmp_path)) != first


def test_a_command_counts_by_text_settings_and_files():
    def key(text="a b", base="/w", cwd="/w", reads=(), writes=None, **settings):
        return command_key(
            CommandCall(CommandSettings(cwd, **settings), parts=[text], writes=writes or {}), reads, base
        )

    keys = [
        key(),
        key(text="a c"),
        key(cwd="/w/sub"),
        key(shell=("sh", "-c")),
        key(env={"A": "1"}),
        key(stdin=b"x"),
        key(reads=[("/w/i", b"1")]),
        key(reads=[("/w/i", b"2")]),
        key(writes={"o": "/w/o"}),
        key(writes={"o": "/w/p"}),
    ]
    assert len(set(keys)) == len(keys)
    assert key(reads=[("/w/i", b"1")], writes={"o": "/w/o"}) == key(
        base="/v", cwd="/v", reads=[("/v/i", b"1")], writes={"o": "/v/o"}
    )


def test_the_body_of_a_command_array_counts_without_its_rows():
    def key(text, cwd="/w", derived="{x}.txt"):
        return template_key(CommandTemplate(CommandSettings(cwd), parse(text), ("x",), {"o": parse(derived)}), cwd)

    assert key("a {x} {o:w}") == key("a {x} {o:w}", cwd="/v")
    assert key("a {x} {o:w}") != key("b {x} {o:w}")
    assert key("a {x} {o:w}") != key("a {x} {o:w}", derived="{x}.csv")


def test_what_is_known_of_a_function_gives_the_keys_that_its_digest_gives() -> None:
    def f(x: int, y: int = 0) -> int:
        return x + y

    known = known_function(f)
    assert known is not None
    assert known_function(f) is known
    for args, kwargs in (((), {}), ((1, "a"), {}), (([1],), {}), ((1,), {"y": 2})):
        assert known.call_key(args, kwargs) == call_key(function_key(f), args, kwargs)
    f.__defaults__ = (1,)
    changed = known_function(f)
    assert changed is not None
    assert changed.key != known.key
    f.note = "something"  # type: ignore[attr-defined]
    noted = known_function(f)
    assert noted is not None
    assert noted.key != changed.key


@pytest.mark.parametrize("cwd", ["/w", "/w/sub", "/elsewhere"])
@pytest.mark.parametrize("env", [{}, {"B": "2", "A": "é"}])
def test_commands_that_are_alike_have_the_payloads_and_keys_that_each_has_alone(cwd: str, env: dict[str, str]) -> None:
    for shell, called in (
        ((), {"argv": [["echo"], ["two words"]]}),
        ((), {"argv": [[word] for word in map(str, range(40))]}),
        (("/bin/sh", "-c"), {"parts": ["echo $HOME | sort"]}),
        (("/bin/sh", "-c"), {"parts": ["x" * 70_000]}),
    ):
        settings = CommandSettings(cwd, shell, env)
        alike, call = Alike(settings, "/w"), CommandCall(settings, **called)
        body, is_text = alike.encode(call.parts or call.argv), bool(call.parts)
        assert alike.payload(body, is_text=is_text) == encode_call(call)
        assert alike.key(body, is_text=is_text) == command_key(call, (), "/w")
