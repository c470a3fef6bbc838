"""Sites with another Python than the submitter's: pilots are asked for commands, not for functions; explain says so."""

from __future__ import annotations

from bough.model.events import facts
from bough.model.events.orders import AskForPilot, SendSpan
from bough.model.sites.site_specs import PilotId, SiteSpec
from bough.testing.builders import executor, needs, submit, task
from tests.unit.core.core_bench import Bench


def bench_that_knows(python: str) -> Bench:
    """One site, whose executors had this Python, and which has no pilot now."""
    bench = Bench(cores=0)
    bench.tell(facts.SiteDefined("alpha", SiteSpec(ssh="head", max_pilots=2, cores_per_pilot=1)))
    bench.tell(submit(task(1)))
    bench.tell(executor(5, 1, python=python, site="alpha", pilot=1))
    bench.end(1)
    bench.tell(facts.ExecutorLost(5, "idle"))
    bench.tell(facts.PilotEnded(PilotId(1), "idle"))
    bench.orders.clear()
    return bench


def asked(bench: Bench) -> int:
    return sum(isinstance(order, AskForPilot) for order in bench.orders)


def test_no_pilot_is_asked_for_when_only_functions_of_another_python_wait() -> None:
    bench = bench_that_knows("3.12")
    bench.tell(submit(task(2, needs=needs(python="3.11"))))
    assert not asked(bench)
    said = "\n".join(bench.machine.explain(2))
    assert "site alpha has Python 3.12, where a function submitted from Python 3.11 cannot run" in said


def test_commands_and_functions_of_the_same_python_are_asked_for() -> None:
    bench = bench_that_knows("3.12")
    bench.tell(submit(task(2), task(3, needs=needs(python="3.12"))))
    assert asked(bench) == 2


def test_a_pilot_of_another_python_takes_the_commands_and_leaves_the_functions() -> None:
    bench = bench_that_knows("3.12")
    bench.tell(submit(task(2, needs=needs(python="3.11")), task(3)))
    assert asked(bench) == 1
    turn = bench.tell(executor(6, 1, python="3.12", site="alpha", pilot=2))
    assert [order.spec.id for order in turn.orders if isinstance(order, SendSpan)] == [3]
    said = "\n".join(bench.machine.explain(2))
    assert "no executor with Python 3.11 is there" in said
    assert "no pilot is asked for there" in said


def test_before_anything_is_known_one_pilot_finds_out() -> None:
    bench = Bench(cores=0)
    bench.tell(facts.SiteDefined("alpha", SiteSpec(ssh="head", max_pilots=5)))
    bench.tell(submit(*(task(number, needs=needs(python="3.11")) for number in range(1, 9))))
    assert asked(bench) == 1
