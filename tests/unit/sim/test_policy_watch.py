"""A policy that never answers ends its own run, is reported, and stops nothing else."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable, Iterator

import pytest

from bough.policies import policy_registry
from bough.policies.placement.fifo import Fifo
from bough.policy.interface import Place, ReadyWork, View
from bough.sim.experiment import simulate
from bough.sim.platforms.platform import one_site
from bough.sim.workload import SimulatedTask, Workload

FEW = Workload("few", [SimulatedTask("t", 1.0) for _ in range(4)])
_BRIEF = 0.4


class _Loops(Fifo):
    """Looks at what is ready again and again, and catches what it can."""

    def place(self, view: View, /) -> Iterator[Place]:
        while True:
            try:
                for work in view.ready():
                    if work.id < 0:
                        yield Place(work.id, 0)
            except Exception:  # as careless code does
                continue


class _Sleeps(Fifo):
    """Waits for something that never comes."""

    def place(self, view: View, /) -> Iterable[Place]:
        time.sleep(1e6)
        return ()


class _RanksForEver(Fifo):
    """Does not even get as far as being asked for a place."""

    def rank(self, work: ReadyWork, /) -> float:
        while True:
            pass


class _Slow(Fifo):
    """Takes its time for each of many answers, and no more than it may for any."""

    def rank(self, work: ReadyWork, /) -> float:
        time.sleep(_BRIEF / 2)
        return 0.0


class _WishesForEver(Fifo):
    """Wishes the impossible, without end."""

    def place(self, view: View, /) -> Iterator[Place]:
        while True:
            yield Place(10**6, 10**6)


@pytest.mark.parametrize("policy", [_Loops, _Sleeps, _RanksForEver])
def test_a_policy_that_does_not_answer_is_ended_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, policy: type[Fifo]
) -> None:
    monkeypatch.setitem(policy_registry._PLACEMENT, "hangs", policy)
    bad, good = simulate(FEW, one_site(2), ["hangs", "fifo"], patience=_BRIEF).runs
    assert "took more than 0.4 s for one answer" in bad.complaint
    assert not bad.ended
    assert good.ended
    assert not good.complaint
    assert signal.getsignal(signal.SIGVTALRM) == signal.SIG_DFL
    assert "policy watch" not in {thread.name for thread in threading.enumerate()}


def test_many_answers_may_take_long_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(policy_registry._PLACEMENT, "slow", _Slow)
    (run,) = simulate(FEW, one_site(2), ["slow"], patience=30.0).runs
    assert run.ended
    monkeypatch.setattr(time, "sleep", lambda _: None)
    (again,) = simulate(FEW, one_site(2), ["slow"], patience=0.0).runs
    assert again == run


def test_wishes_without_end_are_cut_off_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(policy_registry._PLACEMENT, "wishes", _WishesForEver)
    bad, good = simulate(FEW, one_site(2), ["wishes", "fifo"]).runs
    assert "the policy wished the impossible" in bad.complaint
    assert "none of 1000 wishes in a row" in bad.complaint
    assert good.ended


def test_a_simulation_in_another_thread_runs_unwatched() -> None:
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(simulate(FEW, one_site(2), ["fifo"]).runs[0].ended))
    thread.start()
    thread.join()
    assert found == [True]
