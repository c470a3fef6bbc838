"""Named queues: their limits hold, their shares count, and nothing of them is lost."""

from __future__ import annotations

from collections import Counter

from bough.core.queries.facade import Queries
from bough.model.events import facts, news
from bough.model.events.orders import AskForPilot, SendSpan
from bough.model.sites.queue_specs import QueueSpec
from bough.model.sites.site_specs import SiteSpec
from bough.testing.builders import array, executor, limits, needs, task
from tests.unit.core.core_bench import Bench
from tests.unit.core.test_workflow_records import opened


def queues(cores: float, /, **specs: QueueSpec) -> Bench:
    bench = Bench(0)
    bench.tell(*(facts.QueueDefined(name, spec) for name, spec in specs.items()))
    if cores:
        bench.tell(executor(1, cores))
    return bench


def out(bench: Bench) -> Counter[str]:
    """How many tasks of each queue are with executors."""
    return Counter(span.queue.named.name for span in bench.machine.state.spans.values())


def end_one(bench: Bench, queue: str = "") -> None:
    span = next(s for s in bench.machine.state.spans.values() if not queue or s.queue.named.name == queue)
    bench.tell(news.WorkSucceeded(span.id, *span.left[0], 100.0))


def test_no_more_cores_than_its_ceiling_whatever_is_free() -> None:
    bench = queues(8, night=QueueSpec(max_cores=3))
    bench.submit(*(task(id_, needs=needs(1, queue="night")) for id_ in range(1, 4)))
    bench.submit(task(4, needs=needs(2, queue="night")), array(5, 10, needs=needs(1, queue="night")), task(6))
    assert out(bench) == {"night": 3, "": 1}
    assert bench.machine.explain(4) == [
        "task 4 is ready, but its queue night holds 3 of the 3 cores that it may have at once"
    ]
    end_one(bench, "night")
    assert bench.machine.state.named_queues["night"].cores == 3


def test_a_higher_ceiling_lets_more_out_at_once_and_a_lower_one_ends_nothing() -> None:
    bench = queues(8, night=QueueSpec(max_cores=1))
    bench.submit(*(task(id_, needs=needs(1, queue="night")) for id_ in range(1, 6)))
    assert out(bench) == {"night": 1}
    bench.tell(facts.QueueDefined("night", QueueSpec(max_cores=4)))
    assert out(bench) == {"night": 4}
    bench.tell(facts.QueueDefined("night", QueueSpec(max_cores=2)))
    end_one(bench)
    assert out(bench) == {"night": 3}
    bench.tell(facts.QueueRemoved("night"))
    assert out(bench) == {"night": 4}, "it has no limits any more"


def test_the_smaller_of_both_times_ends_a_task() -> None:
    bench = queues(8, night=QueueSpec(max_time=60))
    bench.submit(
        task(1, needs=needs(1, queue="night")),
        task(2, needs=needs(1, queue="night"), limits=limits(timeout=5)),
        task(3, needs=needs(1, queue="night"), limits=limits(timeout=500)),
        task(4, limits=limits(timeout=500)),
        array(5, 2, needs=needs(1, queue="night")),
    )
    sent = {order.spec.id: order.spec.limits.timeout for order in bench.orders if isinstance(order, SendSpan)}
    assert sent == {1: 60, 2: 5, 3: 60, 4: 500, 5: 60}
    assert bench.task(3).spec.limits.timeout == 500, "what was submitted stays as it was"


def test_its_tasks_run_at_its_sites_only() -> None:
    bench = queues(2, night=QueueSpec(sites=("alpha", "beta")))
    bench.submit(task(1, needs=needs(1, queue="night")), task(2))
    assert bench.states(1, 2) == ["ready", "placed"]
    assert bench.machine.explain(1) == [
        "task 1 is ready, but its queue night runs tasks only at alpha or beta, and no executor there could run it"
    ]
    assert Queries(bench.machine).unplaceable() == {needs(1, queue="night"): 1}
    bench.tell(facts.ExecutorJoined(2, "beta", "b1", 1, needs(1)))  # type: ignore[arg-type]
    assert bench.state(1) == "placed"


def test_pilots_are_asked_for_at_its_sites_and_for_what_it_may_hold() -> None:
    bench = queues(0, night=QueueSpec(sites=("beta",), max_cores=2))
    for site in ("alpha", "beta"):
        bench.tell(facts.SiteDefined(site, SiteSpec(ssh="h", max_pilots=9, cores_per_pilot=1)))
    bench.submit(array(1, 50, needs=needs(1, queue="night")))
    asked = Counter(order.site for order in bench.orders if isinstance(order, AskForPilot))
    assert asked == {"beta": 2}


def test_where_a_task_and_its_queue_may_run_both_count_for_executors_and_for_pilots() -> None:
    bench = queues(0, night=QueueSpec(sites=("beta", "gamma")))
    for site in ("alpha", "beta", "gamma"):
        bench.tell(facts.ExecutorJoined(len(bench.machine.state.executors) + 1, site, site, 1, needs(1)))  # type: ignore[arg-type]
    both = needs(1, queue="night", sites=("alpha", "beta"))
    bench.submit(task(1, needs=both), task(2, needs=both), task(3, needs=needs(1, queue="night")))
    assert {span.record.id: span.executor.site for span in bench.machine.state.spans.values()} == {
        1: "beta",
        3: "gamma",
    }
    for site in ("alpha", "gamma", "beta"):
        bench.tell(facts.SiteDefined(site, SiteSpec(ssh="h", max_pilots=9, cores_per_pilot=1)))
    assert Counter(order.site for order in bench.orders if isinstance(order, AskForPilot)) == {"beta": 1}


def test_why_a_task_waits_names_the_pilots_at_the_sites_of_its_queue_only() -> None:
    bench = queues(2, night=QueueSpec(sites=("beta",)))
    for site in ("alpha", "beta"):
        bench.tell(facts.SiteDefined(site, SiteSpec(ssh="h", max_pilots=9, cores_per_pilot=1)))
    bench.submit(task(1, needs=needs(1, queue="night")))
    assert bench.machine.explain(1) == [
        "task 1 is ready, but its queue night runs tasks only at beta, and no executor there could run it",
        "site beta was asked for 1 pilot, the first 0 s ago",
    ]


def test_others_leave_the_cores_that_a_queue_has_reserved_while_it_wants_them() -> None:
    bench = queues(4, tests=QueueSpec(min_cores=2))
    bench.submit(array(1, 50))
    assert out(bench) == {"": 4}, "nothing of the queue is ready: others may have all"
    bench.submit(task(2, needs=needs(2, queue="tests")))
    end_one(bench)
    assert out(bench) == {"": 3}, "one core is free, and kept"
    assert "reserved for queue tests (2)" in bench.machine.explain(1, 40)[0]
    end_one(bench)
    assert out(bench) == {"": 2, "tests": 1}
    end_one(bench)
    assert out(bench) == {"": 2, "tests": 1}, "the reservation is met: the rest is for all"


def test_a_reservation_for_what_can_run_nowhere_keeps_nothing_idle() -> None:
    bench = queues(2, tests=QueueSpec(min_cores=2, sites=("away",)), big=QueueSpec(min_cores=2))
    bench.submit(task(1, needs=needs(1, queue="tests")), task(2, needs=needs(16, queue="big")), array(3, 10))
    assert out(bench) == {"": 2}


def test_shares_are_shares_of_the_cores() -> None:
    bench = queues(9, two=QueueSpec(share=2.0), one=QueueSpec())
    bench.submit(array(1, 100, needs=needs(1, queue="one")), array(2, 100, needs=needs(1, queue="two")))
    for _ in range(30):
        end_one(bench)
    assert out(bench) == {"two": 6, "one": 3}


def test_shares_hold_on_a_single_core_and_nobody_saves_up_or_starves() -> None:
    bench = queues(1, two=QueueSpec(share=2.0), one=QueueSpec(), tiny=QueueSpec(share=0.1))
    bench.submit(array(1, 300, needs=needs(1, queue="one")), array(2, 300, needs=needs(1, queue="two")))
    ran: Counter[str] = Counter()
    for _ in range(60):
        ran += out(bench)
        end_one(bench)
    assert abs(ran["two"] - 40) <= 1
    bench.submit(array(3, 300, needs=needs(1, queue="tiny")))
    ran.clear()
    for _ in range(62):
        ran += out(bench)
        end_one(bench)
    assert 1 <= ran["tiny"] <= 4, "it had nothing to do before, and has saved up nothing"


def test_workflows_share_a_queue_between_them() -> None:
    bench = queues(0, night=QueueSpec(max_cores=4))
    bench.tell(opened(2), opened(3), executor(1, 10))
    bench.submit(*(task(id_, group=2, needs=needs(1, queue="night")) for id_ in range(100, 110)))
    bench.submit(*(task(id_, group=3, needs=needs(1, queue="night")) for id_ in range(200, 210)))
    for _ in range(4):
        end_one(bench)
    held = Counter(span.record.group.workflow.run for span in bench.machine.state.spans.values())
    assert held == {2: 2, 3: 2}


def test_a_queue_that_is_not_there_is_refused_and_so_is_what_it_could_never_hold() -> None:
    bench = queues(2, night=QueueSpec(max_cores=4))
    assert bench.refuse(task(1, needs=needs(1, queue="nihgt"))) == ("task 1: there is no queue nihgt; there are: night")
    assert bench.refuse(task(1, needs=needs(8, queue="night"))) == (
        "task 1 asks for 8 cores, and queue night has at most 4"
    )
    bench.tell(facts.QueueRemoved("night"))
    assert "made at a server, with bough queue add" in bench.refuse(task(1, needs=needs(1, queue="night")))


def test_tasks_of_a_queue_that_was_removed_are_its_own_when_it_is_back() -> None:
    bench = queues(2, night=QueueSpec(max_cores=1))
    bench.submit(*(task(id_, needs=needs(1, queue="night")) for id_ in range(1, 6)))
    bench.tell(facts.QueueRemoved("night"))
    assert out(bench) == {"night": 2}
    assert [queue.name for queue in Queries(bench.machine).queues()] == ["", "night"]
    bench.tell(facts.QueueDefined("night", QueueSpec(max_cores=1)))
    end_one(bench)
    assert out(bench) == {"night": 1}
    assert [(queue.name, queue.ready, queue.cores) for queue in Queries(bench.machine).queues()] == [
        ("night", 3, 1.0),
        ("", 0, 0.0),
    ]
    assert Queries(bench.machine).out_in_queues() == {"night": 1}
