"""Who takes a content from whom."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.movers import spread_plan
from bough.movers.spread_plan import (
    MOST_BUSY,
    MOST_OF_SERVER,
    MOST_READERS,
    ORIGIN,
    Candidate,
    Link,
    SpreadPlan,
)

X, Y = b"x" * 32, b"y" * 32
LINK = Link("a", "b")


def serves(number: int) -> Candidate | None:
    return Candidate(number)


def test_the_server_sends_a_file_once_and_the_rest_is_a_chain() -> None:
    plan = SpreadPlan()
    found = [plan.choose(X, reader, [], serves) for reader in range(1, 9)]
    assert found == [[], [1], [2], [3], [4], [5], [6], [7]]
    assert plan.load(ORIGIN) == 1


def test_long_chains_branch() -> None:
    plan = SpreadPlan()
    for reader in range(1, 200):
        plan.choose(X, reader, [], serves)
    assert plan.load(ORIGIN) == 1
    assert max(plan.load(reader) for reader in range(1, 200)) <= 3
    depths = []
    for reader in range(1, 200):
        depth, at = 0, reader
        while at != ORIGIN:
            depth, at = depth + 1, plan.source_of(X, at) or ORIGIN
        depths.append(depth)
    assert max(depths) < 40


def test_complete_copies_near_by_come_first_and_others_are_named_in_case_they_fail() -> None:
    plan = SpreadPlan()
    holders = [Candidate(1, LINK), Candidate(2), Candidate(3)]
    assert plan.choose(X, 9, holders, serves) == [2, 3, 1]
    assert plan.choose(Y, 7, holders, serves) == [3, 1, 2]  # 2 is busy with the other content
    assert plan.choose(X, 8, holders, serves)[0] == 9  # who is getting it serves before one has two readers


def test_who_has_failed_is_left_out_and_the_server_is_the_last() -> None:
    plan = SpreadPlan()
    plan.choose(X, 1, [], serves)
    assert plan.choose(X, 2, [], serves) == [1]
    assert plan.choose(X, 2, [], serves, {1}) == []
    assert plan.source_of(X, 2) == ORIGIN
    assert plan.choose(X, 3, [Candidate(3)], lambda _: None) == []  # nobody serves itself


def test_nobody_waits_for_who_waits_for_it() -> None:
    plan = SpreadPlan()
    plan.choose(X, 1, [], serves)
    plan.choose(X, 2, [], serves)
    plan.choose(X, 3, [], serves)
    plan.gone(1)
    assert plan.choose(X, 2, [], serves, {1}) == []  # 3 waits for 2
    assert plan.choose(X, 4, [], serves) == [3]


def test_what_has_ended_is_forgotten() -> None:
    plan = SpreadPlan()
    plan.choose(X, 1, [], serves)
    plan.choose(X, 2, [], serves)
    plan.ended(X, 2)
    plan.ended(X, 2)
    plan.ended(Y, 1)
    plan.gone(1)
    plan.choose(X, 3, [Candidate(2, LINK)], serves)
    plan.choose(X, 4, [], serves)
    plan.gone(3)
    plan.gone(4)
    assert not plan._sources
    assert not plan._load
    assert not plan._crossing
    assert not plan._on_link


def test_a_link_between_sites_carries_so_many_and_then_it_is_the_servers_turn() -> None:
    plan = SpreadPlan()
    contents = [bytes([number]) * 32 for number in range(3)]
    far = [Candidate(number, LINK, most=2) for number in (1, 2, 3)]
    for digest in contents[:2]:
        assert plan.choose(digest, 9, far, serves)[0] != ORIGIN
    assert plan.on_link(LINK) == 2
    assert plan.choose(contents[2], 9, far, serves) == []
    assert plan.choose(contents[2], 8, [*far, Candidate(7)], serves)[0] == 7  # near by there is no link
    plan.ended(contents[2], 8)
    plan.ended(contents[0], 9)
    assert plan.choose(contents[2], 9, far, serves)[0] in {1, 2, 3}
    assert plan.choose(contents[0], 9, [Candidate(1, Link("b", "a"), most=1)], serves) == [1]  # the other way


def test_executors_serve_a_few_more_while_the_server_has_as_many_readers_as_it_should() -> None:
    plan = SpreadPlan()
    busy = [Candidate(1)]
    alone = {reader: bytes([reader]) * 32 for reader in range(100, 100 + MOST_OF_SERVER)}
    for reader in range(10, 10 + MOST_READERS):
        assert plan.choose(X, reader, busy, lambda _: None) == [1]
    assert plan.choose(X, 50, busy, lambda _: None) == []  # the server has few
    for reader, digest in alone.items():
        plan.choose(digest, reader, [], serves)
    for reader in range(51, 51 + MOST_BUSY - MOST_READERS):
        assert plan.choose(X, reader, busy, lambda _: None) == [1]
    assert plan.choose(X, 90, busy, lambda _: None) == []  # nobody waits for ever
    assert plan.choose(X, 91, [Candidate(2), *busy], lambda _: None) == [2]
    for reader, digest in alone.items():
        plan.ended(digest, reader)
    assert plan.choose(X, 92, busy, lambda _: None) == []


EXECUTORS = range(1, 25)
CONTENTS = (X, Y, b"z" * 32)
numbers = st.integers(EXECUTORS[0], EXECUTORS[-1])
steps = st.lists(
    st.tuples(
        st.sampled_from(["want", "want", "want", "end", "gone"]),
        numbers,
        st.sampled_from(CONTENTS),
        st.sets(numbers, max_size=4),
        st.sets(numbers, max_size=3),
    ),
    max_size=80,
)


def site_of(executor: int) -> str:
    return "abc"[executor % 3]


def reached(reader: int, source: int) -> Candidate:
    ours, theirs = site_of(reader), site_of(source)
    return Candidate(source) if ours == theirs else Candidate(source, Link(theirs, ours), most=2)


@settings(max_examples=100, deadline=None)
@given(steps, st.sampled_from([1, 3, MOST_OF_SERVER]))
def test_whatever_happens_nobody_waits_for_itself_and_no_source_or_link_has_too_many(
    history: list[tuple[str, int, bytes, set[int], set[int]]], of_server: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spread_plan, "MOST_OF_SERVER", of_server)
        plan = SpreadPlan()
        for what, executor, digest, holders, failed in history:
            if what == "want":
                far = [reached(executor, one) for one in sorted(holders)]
                found = plan.choose(digest, executor, far, lambda one, at=executor: reached(at, one), failed)
                assert executor not in found
                assert not failed & set(found)
                assert (plan.source_of(digest, executor) or ORIGIN) == (found[0] if found else ORIGIN)
                if found and plan.load(found[0]) > MOST_READERS:
                    assert plan.load(ORIGIN) >= of_server
            elif what == "end":
                plan.ended(digest, executor)
            else:
                plan.gone(executor)
            check(plan)


def check(plan: SpreadPlan) -> None:
    """Nobody waits for itself, and all counts are what they should be."""
    for one in CONTENTS:
        for reader in EXECUTORS:
            seen, at = set(), reader
            while at is not None and at != ORIGIN:
                assert at not in seen
                seen.add(at)
                at = plan.source_of(one, at)  # type: ignore[assignment]
    taken = [(reader, plan.source_of(one, reader)) for one in CONTENTS for reader in EXECUTORS]
    sources = [source for _, source in taken]
    for source in EXECUTORS:
        assert plan.load(source) == sources.count(source) <= MOST_BUSY
    assert plan.load(ORIGIN) == sources.count(ORIGIN)
    crossed = [Link(site_of(source), site_of(reader)) for reader, source in taken if source]
    for link in itertools.permutations("abc", 2):
        assert plan.on_link(Link(*link)) == crossed.count(Link(*link)) <= 2
