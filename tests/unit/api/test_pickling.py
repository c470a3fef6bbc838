"""Functions, arguments and tables as bytes."""

import functools
import importlib
import os.path
import pickle
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from bough.api.pickling import make_pages, pack, pack_arguments, pack_function, pack_table, unpack
from bough.errors import NotPicklable
from bough.model.blobs import blob_id
from bough.model.spaces import Product

LOCK = threading.Lock()
OFFSET = 10


def add(x):
    return x + OFFSET


def uses_lock():
    return LOCK


def uses_it_indirectly():
    return uses_lock()


def test_a_library_function_goes_by_reference():
    name, data = pack_function(os.path.join)
    assert len(data) < 60
    assert name == blob_id(data)
    assert unpack(data) is os.path.join


def test_a_function_that_has_not_changed_is_packed_once():
    assert pack_function(add)[1] is pack_function(add)[1]


def test_a_function_is_packed_again_when_a_global_it_uses_changes(monkeypatch):
    before = pack_function(add)
    monkeypatch.setitem(globals(), "OFFSET", 20)
    after = pack_function(add)
    assert before[0] != after[0]
    assert (unpack(before[1])(1), unpack(after[1])(1)) == (11, 21)


def test_closures_lambdas_and_partials_travel():
    n = 5
    assert unpack(pack_function(lambda x: x + n)[1])(1) == 6
    assert unpack(pack_function(functools.partial(add, 3))[1])() == 13


def test_an_unpicklable_global_is_named():
    with pytest.raises(NotPicklable, match=r"function uses_lock .*global LOCK that it uses is of type lock"):
        pack_function(uses_lock)
    with pytest.raises(NotPicklable, match=r"LOCK that it uses .in uses_lock. is of type lock"):
        pack_function(uses_it_indirectly)


def test_an_unpicklable_closure_variable_is_named():
    guard = threading.Lock()
    with pytest.raises(NotPicklable, match="variable guard that it uses is of type lock"):
        pack_function(lambda: guard)


def test_an_unpicklable_argument_is_named_by_place_and_type():
    with pytest.raises(NotPicklable, match=r"argument 2 of f .*the value of 'a': item 1: it is of type lock"):
        pack_arguments((1, {"a": [0, LOCK]}), {}, "f")
    with pytest.raises(NotPicklable, match="argument key cannot"):
        pack_arguments((), {"key": LOCK})
    with pytest.raises(NotPicklable, match="its attribute inner: it is of type lock"):
        pack_arguments((Holder(),), {})
    with pytest.raises(NotPicklable, match="the value cannot"):
        pack(LOCK)


class Holder:
    def __init__(self):
        self.inner = LOCK


def test_pages_hold_all_items_in_order():
    pages = list(make_pages(range(2500), start=10))
    assert [(page.start, page.stop) for page in pages] == [(10, 1010), (1010, 2010), (2010, 2510)]
    assert [item for page in pages for item in unpack(page.data)] == list(range(2500))


def test_pages_are_about_64_kilobytes_and_big_items_are_alone():
    items = [bytes([n % 256]) * 5000 + str(n).encode() for n in range(40)] + [b"x" * 300_000] + list(range(3000))
    pages = list(make_pages(iter(items)))
    assert [item for page in pages for item in unpack(page.data)] == items
    assert [page.stop for page in pages[:-1]] == [page.start for page in pages[1:]]
    assert all(len(page.data) <= 65536 or page.stop - page.start == 1 for page in pages)
    assert len(pages) < 20


def test_no_items_make_no_pages():
    assert list(make_pages([])) == []


def test_an_item_that_cannot_travel_is_named():
    with pytest.raises(NotPicklable, match="item 1234 cannot"):
        list(make_pages([0] * 1234 + [LOCK]))


def test_a_hundred_thousand_items_are_paged_in_no_time():
    best = min(_timed(lambda: list(make_pages(range(100_000)))) for _ in range(5))
    assert best < 0.1  # of processor; a list of pages takes 0.01


def _timed(work):
    began = time.process_time()
    work()
    return time.process_time() - began


def test_tables_are_small():
    for table in (range(10**8), Product({"a": range(10**4), "b": range(10**4)})):
        name, data = pack_table(table)
        assert len(data) < 300
        assert name == blob_id(data)
        assert unpack(data)[5:7] == table[5:7]


def test_the_script_and_modules_beside_it_travel_by_value(tmp_path):
    (tmp_path / "beside.py").write_text("FACTOR = 3\nclass Point:\n    x = 1\ndef scaled(x): return x * FACTOR\n")
    (tmp_path / "script.py").write_text(
        textwrap.dedent(
            """
            import sys, beside
            from bough.api.pickling import pack_function, pack
            def run(x): return beside.scaled(x) + 1
            class Mine: value = 7
            sys.stdout.buffer.write(pack([pack_function(run)[1], pack_function(beside.scaled)[1],
                                          pack(Mine()), pack(beside.Point())]))
            """
        )
    )
    out = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, check=True, timeout=60
    ).stdout
    run, scaled, mine, point = (pickle.loads(data) for data in pickle.loads(out))
    assert (run(2), scaled(2), mine.value, point.x) == (7, 6, 7, 1)
    with pytest.raises(ImportError):
        importlib.import_module("beside")
