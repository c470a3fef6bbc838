from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_service_life import PATIENCE, Harness, Peer

from bough.core.machine import Machine
from bough.model.events.facts import ExecutorLost, SpanEnded, SpanReturned
from bough.model.events.news import Cancel, Hold, WorkSucceeded
from bough.model.ids import RecordId, number_of
from bough.model.outcomes import Cause
from bough.model.sites.resources import Needs
from bough.model.states import TaskState
from bough.model.tasks import Dep, GroupSpec, Kind, Limits, On, TaskExtras, TaskSpec
from bough.policies.policy_registry import load_policies
from bough.server.service.features import FeatureOptions, Features
from bough.testing.builders import question
from bough.wire.client_messages import Answer, Ask, DoAction, Refused, Submit, TasksFailed, TasksSucceeded
from bough.wire.executor_messages import Report, RunSpan


class Workshop(Harness):
    """A service with all it offers besides."""

    def __init__(self, folder: Path, machine: Machine | None = None) -> None:
        super().__init__(folder, machine)
        self.services = Features(self.shell, self.numbers, str(folder), FeatureOptions())
        self.reception.answers.add(self.services.handlers)
        self.loop.run()

    def ask(self, what: str, role: str = "owner", **arguments: object) -> object:
        peer = Peer(self, role)
        from bough.wire.client_messages import VERSION, ClientHello, Welcome

        peer.say(ClientHello(VERSION, 9, "there"))
        assert peer.said(Welcome)
        peer.say(Ask(1, question(what, **arguments)))
        (said,) = peer.said(Answer | Refused)
        peer.hang_up()
        return said.value if isinstance(said, Answer) else said

    def take(self, name: str = "ann", **arguments: object) -> object:
        return self.ask("take", name=name, host="desk", **arguments)

    def done(self, record: int, name: str = "ann", **arguments: object) -> object:
        return self.ask("done", record=record, name=name, **arguments)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    made = Workshop(tmp_path)
    yield made
    made.numbers.close()


def submit(client: Peer, *items: TaskSpec | GroupSpec, request: int = 9) -> None:
    client.say(Submit(list(items), request))


def test_the_same_task_is_given_again_until_it_is_done(shop: Workshop) -> None:
    client = shop.client()
    first, second = client.submit(2)

    assert shop.take()["id"] == str(number_of(first))
    assert shop.take()["id"] == str(number_of(first))
    assert shop.take("bob")["id"] == str(number_of(second))
    assert shop.done(first) == {"id": str(number_of(first)), "state": "done", "changed": True}

    assert [outcome.record for outcome in client.said(TasksSucceeded)] == [first]
    assert shop.take()["answer"] == "none"
    shop.done(second, "bob")
    assert shop.take()["answer"] == "done"
    assert shop.shell.queries.executors() == []


def test_saying_done_again_changes_nothing(shop: Workshop) -> None:
    (task,) = shop.client().submit(1)
    shop.take()
    shop.done(task)

    assert shop.done(task) == {"id": str(number_of(task)), "state": "done", "changed": False}
    assert len(shop.facts(SpanEnded)) == 1
    assert isinstance(shop.done(999), Refused)


def test_only_who_has_a_task_can_end_it(shop: Workshop) -> None:
    (task,) = shop.client().submit(1)
    shop.take("ann")

    refused = shop.done(task, "bob")

    assert "was taken by ann@desk, not by bob" in refused.message
    assert shop.done(task, "ann@desk")["changed"]


def test_what_an_executor_runs_is_not_ended_by_hand(shop: Workshop) -> None:
    client, executor = shop.client(), shop.executor()
    (task,) = client.submit(1)
    assert executor.said(RunSpan)

    assert "runs on executor" in shop.done(task).message
    assert shop.take()["answer"] == "none"


def test_an_exit_code_is_a_failure_that_counts_against_retries(shop: Workshop) -> None:
    client = shop.client()
    number = RecordId(client.welcome.first_id)
    submit(client, TaskSpec(number, Kind.COMMAND, b"", b"", group=client.welcome.group, limits=Limits(retries=1)))

    shop.take()
    assert shop.done(number, exit_code=3)["state"] == "ready"
    again = shop.take()
    assert (again["id"], again["attempt"]) == (str(number_of(number)), 2)
    assert shop.done(number, exit_code=3)["state"] == "failed"

    (bad,) = client.said(TasksFailed)
    assert (bad.failure.cause, bad.failure.exit_code) == (Cause.EXIT, 3)


def test_an_output_that_is_missing_is_a_failure(shop: Workshop) -> None:
    client = shop.client()
    (task,) = client.submit(1)
    shop.take()

    shop.done(task, missing="/data/out")

    (bad,) = client.said(TasksFailed)
    assert bad.failure.cause is Cause.MISSING_OUTPUT
    assert "/data/out" in bad.failure.message


def test_outputs_that_were_found_are_kept(shop: Workshop) -> None:
    (task,) = shop.client().submit(1)
    shop.take()
    shop.done(task, outputs=[["o", "/data/out", 5, 77]])

    (ended,) = shop.facts(SpanEnded)
    assert [(o.slot, o.path, o.size, o.mtime_ns) for o in ended.details[0].outputs] == [("o", "/data/out", 5, 77)]


def test_a_task_given_back_goes_to_others(shop: Workshop) -> None:
    client = shop.client()
    (task,) = client.submit(1)
    shop.take("ann")

    assert shop.done(task, give_back=True) == {"id": str(number_of(task)), "state": "ready", "changed": True}
    again = shop.take("bob")
    assert again["id"] == str(number_of(task))


def test_functions_are_passed_over_and_need_an_executor(shop: Workshop) -> None:
    shop.store.put_blob(b"f", b"")
    client = shop.client()
    group, first = client.welcome.group, client.welcome.first_id
    submit(client, TaskSpec(RecordId(first), Kind.FUNCTION, b"f", b"", group=group))

    blocked = shop.take()
    assert (blocked["answer"], "need an executor" in blocked["text"]) == ("blocked", True)
    submit(client, TaskSpec(RecordId(first + 1), Kind.COMMAND, b"", b"", group=group), request=10)
    assert shop.take()["id"] == str(number_of(first + 1))


def test_only_the_workflow_and_group_that_are_named_count(shop: Workshop) -> None:
    one, two = shop.client("one"), shop.client("two", pid=2)
    one.submit(1)
    number, group = RecordId(two.welcome.first_id), two.welcome.first_group
    submit(two, GroupSpec(group, "align", two.welcome.group), TaskSpec(number, Kind.COMMAND, b"", b"", group=group))

    assert shop.take(queue="two", group="align")["id"] == str(number_of(number))
    assert "there is no workflow 'three'" in shop.take("bob", queue="three").message
    assert "there is no group 'x'" in shop.take("bob", queue="two", group="x").message
    assert shop.take("bob", queue="two")["answer"] == "none"


def test_held_tasks_block_until_somebody_acts(shop: Workshop) -> None:
    client = shop.client()
    client.submit(1)
    client.say(DoAction(5, Hold(Dep(On.GROUP, client.welcome.group))))
    client.hang_up()

    blocked = shop.take()

    assert (blocked["answer"], "bough release" in blocked["text"]) == ("blocked", True)


def test_a_task_of_any_needs_can_be_taken_and_nothing_comes_with_it(shop: Workshop) -> None:
    client, executor = shop.client(), shop.executor()
    for request in range(1, 8):  # so short that executors get many at once
        client.submit(1, request)
        (run,) = executor.said(RunSpan)
        executor.say(Report(request, [WorkSucceeded(run.span, 0, 1, 0.001)]))
    executor.hang_up()
    many = client.submit(9, 8)
    number = RecordId(client.welcome.first_id + 95)
    wide = TaskSpec(number, Kind.COMMAND, b"", b"", group=client.welcome.group, needs=Needs(64), priority=1)
    submit(client, wide, request=51)

    assert shop.take("ann")["cores"] == 64
    assert shop.take("bob")["id"] == str(number_of(many[0]))
    taken = [(executor.site, executor.tasks) for executor in shop.shell.queries.executors() if executor.is_manual]
    assert taken == [("manual", 1), ("manual", 1)]


def test_a_task_that_is_cancelled_leaves_the_hand_free(shop: Workshop) -> None:
    client = shop.client()
    first, second = client.submit(2)
    shop.take()

    client.say(DoAction(5, Cancel(Dep(On.TASK, first))))

    assert shop.take()["id"] == str(number_of(second))
    assert shop.done(first)["state"] == "cancelled"
    shop.done(second)
    assert shop.shell.queries.executors() == []


def test_who_has_what_survives_a_server_that_is_started_anew(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    before = Workshop(tmp_path / "before")
    (task,) = before.client().submit(1)
    before.take()
    machine = Machine.restore(before.machine.snapshot(), load_policies("fifo"))

    after = Workshop(tmp_path, machine)
    after.loop.advance(2 * PATIENCE)

    assert after.facts(ExecutorLost) == []
    assert after.facts(SpanReturned) == []
    assert after.take()["id"] == str(number_of(task))
    assert after.done(task)["state"] == "done"
    after.numbers.close()
    before.numbers.close()


def test_who_only_reads_takes_nothing(shop: Workshop) -> None:
    (task,) = shop.client().submit(1)

    assert "reading only" in shop.ask("take", role="read", name="ann", host="desk").message
    assert shop.ask("task", role="read", record=task)["kind"] == "command"
    assert "say who you are" in shop.take("").message


def pipeline(client: Peer, *, attributes: tuple[tuple[str, str], ...] = ()) -> list[int]:
    """Two pipelines of two commands, the second with affinity to the first."""
    first, group = client.welcome.first_id, client.welcome.group
    made: list[TaskSpec] = []
    for number in (first, first + 2):
        near = TaskExtras(same_host_as=number, attributes=attributes)
        one = TaskSpec(RecordId(number), Kind.COMMAND, b"", b"", group=group, extras=TaskExtras(release=True))
        two = TaskSpec(RecordId(number + 1), Kind.COMMAND, b"", b"", group, after=(Dep(On.TASK, number),), extras=near)
        made += [one, two]
    submit(client, *made)
    return [int(spec.id) for spec in made]


def test_who_ran_the_predecessor_gets_what_has_affinity_to_it_and_others_get_it_last(shop: Workshop) -> None:
    one, two, other, last = pipeline(shop.client())
    assert shop.take("ann@a")["id"] == str(number_of(one))
    shop.done(one, "ann@a")

    assert shop.ask("take", name="bob", host="b")["id"] == str(number_of(other))
    assert shop.ask("take", name="cid", host="a")["id"] == str(number_of(two))  # another placeholder of the same host
    shop.done(other, "bob")
    assert shop.ask("take", name="dan", host="c")["id"] == str(number_of(last))  # nothing else is left


def test_what_belongs_to_the_host_of_an_executor_is_not_given_to_a_hand(shop: Workshop) -> None:
    client, executor = shop.client(), shop.executor()
    one, two, other, last = pipeline(client)
    (run,) = executor.said(RunSpan)
    urgent = TaskSpec(RecordId(last + 1), Kind.COMMAND, b"", b"", group=client.welcome.group, priority=1)
    submit(client, urgent, request=10)
    executor.say(Report(1, [WorkSucceeded(run.span, 0, 1, 0.1)]))

    states = [shop.shell.queries.state_of(number, 0) for number in (one, two, urgent.id)]
    assert states == [TaskState.DONE, TaskState.READY, TaskState.PLACED]
    assert shop.take("ann")["id"] == str(number_of(other))
    assert shop.take("bob")["answer"] == "none"


def test_attributes_of_the_user_come_with_a_task(shop: Workshop) -> None:
    _, two, *_ = pipeline(shop.client(), attributes=(("est", "40"),))
    told = shop.ask("task", record=two)
    assert (told["attributes"], told["affinity"], told["release"]) == ({"est": "40"}, True, False)
