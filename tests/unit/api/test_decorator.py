"""`bough.memo` marks functions of any kind, and leaves them what they are."""

from __future__ import annotations

import functools
import math
import pickle

from bough.api.memo.content_keys import known_function
from bough.api.memo.decorator import is_memo, memo


@memo
def marked(x: int) -> int:
    return x + 1


def plain(x: int) -> int:
    return x + 1


class Thing:
    def method(self) -> int:
        return 7

    @memo
    def marked(self) -> int:
        return 8


def test_a_decorated_function_is_itself() -> None:
    assert marked(1) == 2
    assert pickle.loads(pickle.dumps(marked)) is marked
    assert is_memo(marked)
    assert not is_memo(plain)


def test_functions_that_take_no_attributes_get_a_wrapper() -> None:
    root = memo(math.sqrt)
    assert (root(9.0), is_memo(root), is_memo(math.sqrt)) == (3.0, True, False)
    bound = memo(Thing().method)
    assert (bound(), is_memo(bound), is_memo(Thing().method)) == (7, True, False)
    assert pickle.loads(pickle.dumps(root))(4.0) == 2.0
    assert is_memo(pickle.loads(pickle.dumps(root)))


def test_methods_and_partials_of_marked_functions_are_marked() -> None:
    assert is_memo(Thing().marked)
    assert is_memo(functools.partial(functools.partial(marked), 3))
    assert not is_memo(functools.partial(plain, 3))


def test_a_mark_that_is_set_after_the_first_call_counts() -> None:
    def late() -> int:
        return 3

    before = known_function(late)
    assert before is not None
    assert not before.is_memo
    after = known_function(memo(late))
    assert after is not None
    assert after.is_memo
