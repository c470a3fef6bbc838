"""What is said of a failure below its first line."""

from __future__ import annotations

import traceback

from bough.api.display.failure_lines import WIDE, last_place, what_ran


def raised(code: str) -> str:
    try:
        exec(code)
    except Exception:
        return traceback.format_exc()
    raise AssertionError


def test_each_thing_that_is_known_has_its_line() -> None:
    trace = raised("1 / 0")
    assert what_ran("", "", "") == []
    assert what_ran("n=2", "gzip  -k\n  a", "") == ["parameters: n=2", "command: gzip -k a"]
    assert what_ran("", "", trace) == ["code: <string>:1, in <module>"]
    assert [len(line) for line in what_ran("n" * 9999, "", "")] == [WIDE]


def test_the_code_is_that_of_the_last_place_of_a_traceback() -> None:
    place = f"{__file__}:"
    said = last_place(raised("raised('1 / 0')\nint('x')"))
    assert said == "<string>:2, in <module>"
    try:
        raised("pass")
    except AssertionError:
        found = last_place(traceback.format_exc())
    assert found.startswith(place)
    assert found.endswith(", in raised: raise AssertionError")
    assert last_place(raised("compile('a b', 'bad.py', 'exec')")).startswith("bad.py:1")
    assert last_place("") == last_place("ValueError: x\n") == ""
