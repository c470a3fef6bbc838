"""What the hosts behind a relay hold, and what the server hears of it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.model.ids import ExecutorId
from bough.relay import member_contents
from bough.relay.member_contents import Host, MemberContents, SiteChange

X, Y, Z = (bytes([letter]) * 32 for letter in b"xyz")
A, B, C = ExecutorId(1), ExecutorId(2), ExecutorId(3)
NOTHING = SiteChange([], [])


def two_hosts() -> MemberContents:
    contents = MemberContents()
    contents.join(A, Host("s", "one"))
    contents.join(B, Host("s", "two"))
    return contents


def holders(contents: MemberContents, digest: bytes) -> dict[str, list[int]]:
    return {host.name: [int(one) for one in members] for host, members in contents.holders(digest)}


def test_the_first_that_has_a_content_and_the_last_that_loses_it_are_told() -> None:
    contents = two_hosts()
    assert contents.change(A, [(X, 5)], []) == SiteChange([(X, 5)], [])
    assert contents.change(B, [(X, 5), (Y, 6)], []) == SiteChange([(Y, 6)], [])
    assert holders(contents, X) == {"one": [A], "two": [B]}
    assert contents.change(A, [], [X]) == NOTHING
    assert contents.of_site("s") == [(X, 5), (Y, 6)]
    assert contents.change(B, [], [X, X, Z]) == SiteChange([], [X])
    assert contents.change(A, [], [Y]) == NOTHING  # it is the other's
    assert contents.of_site("s") == [(Y, 6)]


def test_executors_of_a_host_share_what_it_holds_until_the_last_has_left() -> None:
    contents = two_hosts()
    contents.join(C, Host("s", "one"))
    contents.change(A, [(X, 5), (Y, 6)], [])
    assert contents.change(C, [], [X]) == SiteChange([], [X])  # one brought it, the other evicted it
    assert contents.leave(A) == NOTHING
    assert holders(contents, Y) == {"one": [C]}
    assert contents.leave(C) == SiteChange([], [Y])
    assert contents.leave(C) == NOTHING
    assert contents.of_site("s") == []


def test_a_whole_report_says_what_is_not_there_too() -> None:
    contents = two_hosts()
    contents.change(A, [(X, 5), (Y, 6)], [])
    assert contents.change(A, [(Y, 6), (Z, 7)], [], whole=True) == SiteChange([(Z, 7)], [X])


def test_sites_are_counted_apart() -> None:
    contents = two_hosts()
    contents.join(C, Host("other", "one"))
    contents.change(A, [(X, 5)], [])
    assert contents.change(C, [(X, 5)], []) == SiteChange([(X, 5)], [])
    assert contents.leave(A) == SiteChange([], [X])
    assert contents.of_site("other") == [(X, 5)]
    assert contents.of_site("s") == []


def test_who_is_not_known_and_what_is_no_digest_are_passed_over() -> None:
    contents = two_hosts()
    assert contents.change(C, [(X, 5)], []) == NOTHING
    assert contents.change(A, [(b"short", 5)], [b"short"]) == NOTHING


def test_a_host_is_believed_to_hold_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = two_hosts()
    monkeypatch.setattr(member_contents, "MOST_HELD", 2)
    assert contents.change(A, [(X, 5), (Y, 6), (Z, 7)], []) == SiteChange([(X, 5), (Y, 6)], [])


_members = st.integers(1, 5).map(ExecutorId)
_digests = st.lists(st.sampled_from([bytes([n]) * 32 for n in range(6)]), max_size=4)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("change"), _members, _digests, _digests, st.booleans()), st.tuples(st.just("leave"), _members)
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(_steps)
def test_the_server_that_adds_up_what_it_is_told_knows_the_union(steps: Iterable[tuple[object, ...]]) -> None:
    contents, there, told = MemberContents(), dict[int, Host](), dict[str, set[bytes]]()
    held: dict[Host, set[bytes]] = {}
    for step in steps:
        member = ExecutorId(step[1])  # type: ignore[arg-type]
        if member not in there:
            there[member] = Host("s" if member < 4 else "t", f"host-{member % 2}")
            contents.join(member, there[member])
        host = there[member]
        mine = held.setdefault(host, set())
        if step[0] == "leave":
            change = contents.leave(member)
            del there[member]
            if host not in there.values():
                del held[host]
        else:
            added, removed, whole = step[2:]
            gained = [(one, 9) for one in added]  # type: ignore[attr-defined]
            change = contents.change(member, gained, removed, whole=bool(whole))  # type: ignore[arg-type]
            mine.difference_update(set(mine) if whole else removed)  # type: ignore[call-overload]
            mine.update(added)  # type: ignore[arg-type]
        known = told.setdefault(host.site, set())
        assert known >= set(change.removed)
        known.difference_update(change.removed)  # as the server does, before it adds
        assert not known & {digest for digest, _ in change.added}
        known.update(digest for digest, _ in change.added)
        for site in ("s", "t"):
            union = {digest for one, some in held.items() if one.site == site for digest in some}
            assert told.get(site, set()) == union == {digest for digest, _ in contents.of_site(site)}
