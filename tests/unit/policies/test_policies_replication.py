"""Replication policies by themselves: which running task goes where, and how they are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

import msgspec
import pytest

from bough.errors import UnknownName, UserError
from bough.model.sites.resources import ONE_CORE, Needs
from bough.policies.policy_registry import (
    load_placement,
    load_policies,
    load_provisioning,
    load_replication,
    replication_of,
)
from bough.policies.replication.affinity_replication import AffinityReplication
from bough.policies.replication.careful_tail import CarefulTail
from bough.policies.replication.tail import Tail
from bough.policies.replication.wqr import Wqr
from bough.policy.interface import AskAgain, ExecutorView, Replicate, ReplicationPolicy, RunningWork


class Work(msgspec.Struct):
    id: int
    index: int = 0
    since: float = 0.0
    replicas: int = 0
    needs: Needs = ONE_CORE
    expected: float = 0.0
    measured: int = 9


class Place(msgspec.Struct):
    id: int
    site: str
    host: str = "h"

    def free(self, resource: str) -> float:
        return 1.0

    def could_fit(self, needs: Needs) -> bool:
        return True


class FakeView:
    """Running tasks and idle executors of one slot each; a wish that is heard takes effect."""

    def __init__(
        self, works: list[Work], places: list[Place], affinities: dict[tuple[int, str], int] | None = None
    ) -> None:
        self.now, self.random = 100.0, Random(0)
        self._works, self._places = works, places
        self._affinities = affinities or {}

    def running(self) -> Iterator[RunningWork]:
        return iter(sorted(self._works, key=lambda work: (work.replicas, work.since)))

    def executors(self) -> Sequence[ExecutorView]:
        return list(self._places)

    def may_run(self, work: RunningWork, executor: ExecutorView) -> bool:
        return True

    def executor_for(self, work: RunningWork) -> ExecutorView | None:
        return self._places[0] if self._places else None

    def affinity(self, work: RunningWork, executor: ExecutorView) -> int:
        return self._affinities.get((work.id, executor.site), 0)

    def hear(self, policy: ReplicationPolicy) -> list[tuple[int, int] | float]:
        """Record and executor of each wish, or when it is asked again."""
        heard: list[tuple[int, int] | float] = []
        for wish in policy.replicate(self):
            if isinstance(wish, AskAgain):
                heard.append(wish.when)
                continue
            assert isinstance(wish, Replicate)
            heard.append((wish.record, wish.executor))
            next(work for work in self._works if work.id == wish.record).replicas += 1
            self._places = [place for place in self._places if place.id != wish.executor]
        return heard


def test_wqr_gives_every_idle_executor_something_the_oldest_task_first() -> None:
    view = FakeView([Work(1, since=5.0), Work(2, since=3.0), Work(3, since=9.0)], [Place(7, "a"), Place(8, "b")])
    assert view.hear(Wqr()) == [(2, 7), (1, 8)]


def test_storage_affinity_goes_where_data_is_the_least_replicated_task_of_greatest_affinity_first() -> None:
    """Santos Neto 2004, 3.3: (i) some input is at a site with an idle processor, (ii) lowest degree, (iii) highest
    affinity. Task 1 has the most bytes, but a replica already; task 4 has none anywhere."""
    works = [Work(1, replicas=1), Work(2), Work(3), Work(4)]
    affinities = {(1, "a"): 900, (2, "a"): 10, (3, "b"): 20, (2, "b"): 15}
    places = [Place(1, "a"), Place(2, "a"), Place(3, "b"), Place(4, "c")]
    view = FakeView(works, places, affinities)
    # 3 at b is the best of degree 0; b is full then, so 2 goes to a; 1 is left with its one replica, at a
    assert view.hear(AffinityReplication(cap=3)) == [(3, 3), (2, 1), (1, 2)]


def test_storage_affinity_replicates_nothing_where_nothing_is_known() -> None:
    assert FakeView([Work(1)], [Place(1, "a")]).hear(AffinityReplication()) == []


def test_many_tasks_without_affinity_do_not_hide_one_that_has_some() -> None:
    """Santos Neto 2004, 3.3: the lowest degree of those that satisfy (i), and not of all that run."""
    view = FakeView([Work(number) for number in range(1, 301)], [Place(1, "a")], {(300, "a"): 5})
    assert view.hear(AffinityReplication()) == [(300, 1)]


def test_of_equal_affinities_the_first_one_that_is_seen_wins() -> None:
    view = FakeView([Work(1), Work(2)], [Place(1, "a")], {(1, "a"): 5, (2, "a"): 5})
    assert view.hear(AffinityReplication()) == [(1, 1)]


def test_tail_takes_the_latest_first_and_asks_again_when_the_next_one_is_late() -> None:
    works = [Work(1, since=10.0, expected=50.0), Work(2, since=20.0, expected=20.0), Work(3, since=90.0, expected=20.0)]
    view = FakeView(works, [Place(number, "a") for number in (1, 2, 3)])
    # late at 85, 50 and 120
    assert view.hear(Tail(age=1.0, factor=1.5)) == [(2, 1), (1, 2), 120.0]


@pytest.mark.parametrize(
    ("text", "kind", "cap", "age"),
    [
        ("wqr", Wqr, 1, 0.0),
        ("wqr:cap=2,age=30s", Wqr, 2, 30.0),
        ("storage-affinity:cap=4", AffinityReplication, 4, 0.0),
        ("tail", Tail, 1, 5.0),
        ("tail:age=1:30,factor=2.5", Tail, 1, 90.0),
        ("careful-tail", CarefulTail, 1, 30.0),
        ("careful-tail:age=1m,factor=3", CarefulTail, 1, 60.0),
    ],
)
def test_a_policy_is_found_by_its_name_and_options(text: str, kind: type, cap: int, age: float) -> None:
    policy = load_replication(text)
    assert type(policy) is kind
    assert (policy.cap, policy.age) == (cap, age)  # type: ignore[union-attr]


def test_none_is_no_policy() -> None:
    assert load_replication("none") is None
    assert load_policies("fifo").replication is None


@pytest.mark.parametrize(
    ("placement", "name", "kind", "cap"),
    [
        ("storage-affinity", "storage-affinity:cap=100", AffinityReplication, 100),
        ("storage-affinity:tie=random", "storage-affinity:cap=100", AffinityReplication, 100),
        ("bough", "careful-tail", CarefulTail, 1),
        ("bough:patience=5m", "careful-tail", CarefulTail, 1),
        ("wqr", "wqr:cap=100", Wqr, 100),
        ("wqr:reuse=no,cap=2,age=30s,order=random", "wqr:cap=2,age=30s,reuse=no", Wqr, 2),
    ],
)
def test_a_placement_policy_may_bring_its_own_replication(placement: str, name: str, kind: type, cap: int) -> None:
    assert replication_of(placement) == name
    found = load_policies(placement).replication
    assert isinstance(found, kind)
    assert found.cap == cap
    assert replication_of(placement, "none") == "none"
    assert load_policies(placement, replication="none").replication is None
    assert isinstance(load_policies(placement, replication="tail").replication, Tail)


def test_wqr_as_a_placement_policy_may_do_without_caches() -> None:
    policies = load_policies("wqr:reuse=no,age=30s")
    assert isinstance(policies.replication, Wqr)
    assert (policies.replication.age, policies.replication.uses_caches) == (30.0, False)
    assert load_policies("wqr:reuse=no", replication="none").placement.uses_caches is False
    assert load_policies("wqr").placement.uses_caches is True


def test_who_chose_another_placement_than_the_usual_one_has_no_task_run_twice() -> None:
    for name in ("fifo", "workqueue", "data-only"):
        assert load_policies(name).replication is None


def test_careful_tail_waits_for_three_measured_tasks_and_twice_what_is_expected() -> None:
    unknown = Work(1, since=0.0, expected=1.0, measured=2)
    late = Work(2, since=20.0, expected=30.0, measured=3)
    soon = Work(3, since=20.0, expected=45.0, measured=3)
    view = FakeView([unknown, late, soon], [Place(number, "a") for number in (1, 2, 3)])
    assert view.hear(CarefulTail()) == [(2, 1), 110.0]


def test_no_task_is_late_for_careful_tail_before_half_a_minute() -> None:
    view = FakeView([Work(1, since=75.0, expected=1.0)], [Place(1, "a")])
    assert view.hear(CarefulTail()) == [105.0]


@pytest.mark.parametrize(
    "text",
    [
        "wqr:",
        "wqr:cap=0",
        "wqr:cap=x",
        "wqr:cap=101",
        "wqr:age=-1s",
        "wqr:factor=2",
        "wqr:nonsense=1",
        "tail:factor=nan",
    ],
)
def test_wrong_options_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError, match="is not understood; say cap=N"):
        load_replication(text)


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (load_replication, "wqr:cap=2,age=1s,cap=3"),
        (load_placement, "bough:delay=1s,delay=1s"),
        (load_provisioning, "additive:release=queue,q=2,q=3"),
    ],
)
def test_an_option_that_is_given_twice_is_refused(load: Callable[[str], object], text: str) -> None:
    with pytest.raises(UserError, match=r"has the option '[a-z]+' twice"):
        load(text)


def test_an_unknown_name_is_the_user_s_error() -> None:
    with pytest.raises(
        UnknownName,
        match="there is no replication policy 'wrq'; known are: careful-tail, none, storage-affinity, tail, wqr",
    ):
        load_replication("wrq")
    with pytest.raises(UserError, match="has no options"):
        load_replication("none:cap=2")
