"""Sites and requirements of tasks: who gets them, which pilots are asked for, and what explain says."""

from __future__ import annotations

from bough.core.explain import explain
from bough.core.queries.facade import Queries
from bough.model.events import facts
from bough.model.events.orders import AskForPilot, SendSpan
from bough.model.sites.site_specs import SiteSpec
from bough.testing.builders import array, executor, needs, task
from tests.unit.core.core_bench import Bench

BIG, SMALL = 64_000_000_000, 32_000_000_000


def bench_with(*joined: facts.ExecutorJoined) -> Bench:
    bench = Bench(cores=0)
    bench.tell(*joined)
    return bench


def sent(bench: Bench) -> list[tuple[int, int]]:
    """Which record went to which executor."""
    return [(order.spec.id, order.executor) for order in bench.orders if isinstance(order, SendSpan)]


def why(bench: Bench, record: int) -> str:
    return " / ".join(explain(bench.machine.state, record))


def test_a_task_runs_at_its_sites_only() -> None:
    bench = bench_with(executor(1, 4, site="local"), executor(2, 4, site="alpha"), executor(3, 4, site="beta"))
    bench.submit(task(1, needs=needs(sites=("beta",))), task(2, needs=needs(sites=("alpha",))))
    assert sorted(sent(bench)) == [(1, 3), (2, 2)]


def test_an_array_goes_to_the_executors_that_meet_its_requirement() -> None:
    bench = bench_with(executor(1, 1, memory=SMALL), executor(2, 1, memory=BIG), executor(3, 1, memory=BIG))
    bench.submit(array(1, 10, needs=needs(requires="memory_gb >= 64")))
    assert {one for _, one in sent(bench)} == {2, 3}


def test_attributes_of_the_user_count_and_survive_a_snapshot() -> None:  # the bench restores one after every turn
    bench = bench_with(
        executor(1, 1, attributes=(("rack", 3.0),)), executor(2, 1, attributes=(("cpu", ("avx512",)), ("rack", 7.0)))
    )
    bench.submit(task(1, needs=needs(requires="rack == 7 and 'avx512' in cpu and host == 'host2' and site == 'local'")))
    assert sent(bench) == [(1, 2)]


def test_what_cannot_be_placed_does_not_hold_up_the_rest() -> None:
    bench = bench_with(executor(1, 2))
    bench.submit(
        *(task(number, needs=needs(sites=("alpha",))) for number in range(1, 50)),
        task(50, needs=needs(requires="cores > 100")),
        task(51),
    )
    assert sent(bench) == [(51, 1)]
    bench.tell(executor(2, 100, site="alpha"))
    assert len(sent(bench)) == 50


def test_a_requirement_that_cannot_be_read_is_refused() -> None:
    bench = bench_with(executor(1, 2))
    assert "requires" in bench.refuse(task(1, needs=needs(requires="open('x')")))
    assert "requires" in bench.refuse(array(2, 3, needs=needs(requires="open('x')")))


def test_explain_says_what_is_lacking_where() -> None:
    bench = bench_with(executor(1, 1, site="alpha", memory=SMALL), executor(2, 1, site="beta", memory=BIG))
    bench.submit(
        task(1, needs=needs(sites=("alpha",), requires="memory_gb >= 64 and cores >= 1")),
        task(2, needs=needs(sites=("gamma",))),
        task(3, needs=needs(requires="'avx512' in cpu")),
    )
    assert "requires memory_gb >= 64: alpha has 32" in why(bench, 1)
    assert "no executor at gamma, where it must run" in why(bench, 2)
    assert "there is no site gamma: add it with bough site add gamma" in why(bench, 2)
    assert "'avx512' in cpu: alpha has no cpu, beta has no cpu" in why(bench, 3)


def test_pilots_are_asked_for_at_the_sites_that_a_task_names() -> None:
    bench = bench_with()
    bench.tell(*(facts.SiteDefined(name, SiteSpec(ssh="h")) for name in ("alpha", "beta")))
    turn = bench.submit(task(1, needs=needs(sites=("beta",))))
    assert [order.site for order in turn.orders if isinstance(order, AskForPilot)] == ["beta"]
    assert "no executor at beta" in why(bench, 1)
    assert "site beta was asked for 1 pilot" in why(bench, 1)


def test_pilots_are_not_asked_for_where_a_requirement_is_known_not_to_be_met() -> None:
    bench = bench_with()
    bench.tell(*(facts.SiteDefined(name, SiteSpec(ssh="h", max_pilots=2)) for name in ("alpha", "beta")))
    turn = bench.submit(task(1, needs=needs(requires="site != 'alpha' and memory_gb >= 64")))
    assert [order.site for order in turn.orders if isinstance(order, AskForPilot)] == ["beta"]  # perhaps it has it
    bench.tell(executor(1, 1, site="beta", pilot=1, memory=SMALL))
    turn = bench.submit(task(2, needs=needs(requires="site != 'alpha' and memory_gb >= 64")))
    assert not [order for order in turn.orders if isinstance(order, AskForPilot)]  # it has not


def test_a_relay_meets_a_requirement_by_what_its_biggest_executor_has() -> None:
    each = needs(4, memory=SMALL)
    joined = facts.ExecutorJoined(1, "alpha", "head", 9, needs(40, memory=10 * SMALL), 0, 10, each)  # type: ignore[arg-type]
    bench = bench_with(joined)
    bench.submit(task(1, needs=needs(requires="memory_gb >= 64")), task(2, needs=needs(requires="memory_gb >= 32")))
    assert sent(bench) == [(2, 1)]
    bench.tell(facts.ExecutorResized(1, needs(44, memory=10 * SMALL + BIG), 11, needs(4, memory=BIG)))  # type: ignore[arg-type]
    assert sent(bench) == [(2, 1), (1, 1)]


def test_answers_about_requirements_are_kept_within_bounds() -> None:
    bench = bench_with(executor(1, 1))
    record = bench.machine.state.executors[1]  # type: ignore[index]
    for number in range(3000):
        assert record.meets(f"cores < {number + 2}")
    assert len(record._meets) <= 1000


def test_a_workflow_is_not_stuck_while_a_pilot_is_about_to_come() -> None:
    bench = bench_with(executor(1, 1, site="local"))
    queries = Queries(bench.machine)
    bench.submit(task(1, needs=needs(sites=("alpha",))))
    assert "no executor has what they need" in queries.why_stuck(1)
    bench.tell(facts.SiteDefined("alpha", SiteSpec(ssh="h")))
    assert not queries.why_stuck(1)
    bench.tell(facts.PilotEnded(1, "refused", failed=True))  # type: ignore[arg-type]
    assert "no executor has what they need" in queries.why_stuck(1)
