"""Who takes a content from whom."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bough.movers.spread_plan import MOST_READERS, ORIGIN, Candidate, SpreadPlan

X, Y = b"x" * 32, b"y" * 32


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
    holders = [Candidate(1, is_near=False), Candidate(2), Candidate(3)]
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
    assert not plan._sources
    assert not plan._load


steps = st.lists(
    st.tuples(
        st.sampled_from(["want", "want", "want", "end", "gone"]),
        st.integers(1, 12),
        st.sampled_from([X, Y]),
        st.sets(st.integers(1, 12), max_size=4),
        st.sets(st.integers(1, 12), max_size=3),
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_whatever_happens_nobody_waits_for_itself_and_no_source_has_too_many(
    history: list[tuple[str, int, bytes, set[int], set[int]]],
) -> None:
    plan = SpreadPlan()
    for what, executor, digest, holders, failed in history:
        if what == "want":
            found = plan.choose(digest, executor, [Candidate(one) for one in sorted(holders)], serves, failed)
            assert executor not in found
            assert not failed & set(found)
            assert (plan.source_of(digest, executor) or ORIGIN) == (found[0] if found else ORIGIN)
        elif what == "end":
            plan.ended(digest, executor)
        else:
            plan.gone(executor)
        for one in (X, Y):
            for reader in range(1, 13):
                seen, at = set(), reader
                while at is not None and at != ORIGIN:
                    assert at not in seen
                    seen.add(at)
                    at = plan.source_of(one, at)
        readers = [plan.source_of(one, reader) for one in (X, Y) for reader in range(1, 13)]
        for source in range(1, 13):
            assert plan.load(source) == readers.count(source) <= MOST_READERS
        assert plan.load(ORIGIN) == readers.count(ORIGIN)
