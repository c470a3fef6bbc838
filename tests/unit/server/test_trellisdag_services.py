"""The services and the administration of TrellisDAG, on the test vector of its two-level script.

The vector (jobs 1 to 20 of the original, of which 8 do nothing) is that of the specification's section 2.6. Bough has
no empty jobs, so jobs are told by their commands; `bough take` stands for `mqnextjob`, `bough done` for `mqdonejob`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_manual_tasks import Workshop
from test_service_life import Peer

from bough.core.queries.facade import Queries
from bough.model.events import facts, news
from bough.model.events.facts import SpanEnded
from bough.model.ids import number_of
from bough.model.states import TaskState
from bough.model.tasks import Dep, On
from bough.testing.builders import here_question, question
from bough.wire.client_messages import VERSION, Answer, Ask, ClientHello, Submit
from tests.unit.core.core_bench import Bench
from tests.unit.describe.described_items import Described
from tests.unit.describe.description_scripts import TWO_LEVELS, described


class Site(Workshop):
    """A service with the two-level script for three pieces, and placeholders."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        client = super().client("checkers")
        said = client.welcome
        plan = described(TWO_LEVELS, 3)
        self.described = Described(plan, record=said.first_id, group=said.first_group, root=said.group)
        client.say(Submit(self.described.items, 1), *self.described.closed)
        client.hang_up()  # as `bough submit` does: nobody will add anything
        self.base = said.first_id - number_of(said.first_id)
        self.number = {command: record for record, command in self.described.commands.items()}

    def next_job(self, placeholder: str) -> str:
        """The command that a placeholder, as in sge17@machineA, is given; or the answer that there is none."""
        said = self.take(placeholder)
        if said["answer"] != "task":
            return str(said["answer"])
        return self.described.commands[self.base + int(said["id"])]

    def done_job(self, command: str, placeholder: str) -> None:
        self.done(self.number[command], placeholder)

    def act(self, deed: facts.Fact) -> None:
        self.shell.news(deed)  # type: ignore[arg-type]
        self.loop.run()

    def group(self, name: str) -> Dep:
        return Dep(On.GROUP, self.described.groups[name])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.numbers.close()


def test_item_1_the_first_answer_is_job_3_then_job_4_is_for_its_host_and_others_get_6_and_9(site: Site) -> None:
    assert site.next_job("1@machineA") == "2100comp"  # job 3: 1 and 2 do nothing
    assert site.next_job("2@machineB") == "none"
    site.done_job("2100comp", "1@machineA")
    assert site.next_job("2@machineB") == "2001comp"  # job 6
    assert site.next_job("3@machineC") == "1110comp"  # job 9
    assert site.next_job("4@machineA") == "2100ver"  # job 4: affinity, to the host and not to the placeholder


def test_item_1_the_ready_jobs_after_job_3_are_4_for_machine_a_and_6_and_9_for_anybody(site: Site) -> None:
    site.next_job("1@machineA")
    site.done_job("2100comp", "1@machineA")
    records = site.machine.state.records  # which host a task belongs to is not asked for by the server
    ready = {
        site.described.commands[one.id]: one.place
        for one in records.values()
        if site.shell.queries.state_of(one.id, 0) is TaskState.READY
    }
    assert ready == {"2100ver": "1@machineA", "2001comp": "", "1110comp": ""}


def test_item_8_a_repeated_request_gets_the_same_job_and_a_repeated_completion_does_no_harm(site: Site) -> None:
    assert [site.next_job("1@machineA") for _ in range(3)] == ["2100comp"] * 3
    for _ in range(2):
        site.done_job("2100comp", "1@machineA")
    assert len(site.facts(SpanEnded)) == 1
    assert site.next_job("1@machineA") == "2100ver"
    assert site.done(site.number["0021ver"]) == {
        "id": str(number_of(site.number["0021ver"])), "state": "waiting", "changed": False,
    }  # fmt: skip


def test_item_8_one_placeholder_runs_everything_and_is_told_that_all_is_done(site: Site) -> None:
    ran = []
    while (job := site.next_job("1@machineA")) not in {"done", "none", "blocked"}:
        ran.append(job)
        site.done_job(job, "1@machineA")
    assert job == "done"
    assert sorted(ran) == sorted(site.described.commands.values())
    assert ran[:4] == ["2100comp", "2100ver", "2001comp", "2001ver"]  # what has affinity to the host goes first


def test_item_9_what_is_left_is_disabled_and_placeholders_are_told_instead_of_polling(site: Site) -> None:
    site.act(news.Hold(site.group("Slice_1_1_1_0"), disabled=True))
    while (job := site.next_job("1@machineA")) not in {"done", "none", "blocked"}:
        site.done_job(job, "1@machineA")
    assert job == "blocked"
    assert "held" in str(site.take("1@machineA")["text"])
    assert site.machine.next_timer is None  # nothing is due: the server itself does nothing either
    site.act(news.Release(site.group("Slice_1_1_1_0"), enabled=True))
    assert site.next_job("1@machineA") == "1110comp"


# --- administration at any level -------------------------------------------------------------------------


class Desk(Bench):
    """The core with the two-level script for four pieces, on one host."""

    def __init__(self) -> None:
        super().__init__(1000)
        self.queries = Queries(self.machine)
        self.described = Described(described(TWO_LEVELS, 4))
        self.submit(*self.described.items)  # type: ignore[arg-type]
        self.tell(*self.described.closed)
        self.number = {command: record for record, command in self.described.commands.items()}

    def group(self, name: str) -> Dep:
        return Dep(On.GROUP, self.described.groups[name])

    def out(self) -> set[str]:
        """What an executor has."""
        return {self.described.commands[attempt.record] for attempt in self.queries.attempts()}

    def in_state(self, state: TaskState) -> set[str]:
        commands = self.described.commands
        return {command for record, command in commands.items() if self.queries.state_of(record, 0) is state}

    def all_done(self) -> bool:
        return len(self.in_state(TaskState.DONE)) == len(self.number)


@pytest.mark.parametrize("level", ["Slice_1_1_1_0", "VS_2_1"])
def test_item_9_a_disabled_group_of_any_level_keeps_all_that_depends_on_it_waiting(level: str) -> None:
    desk = Desk()
    desk.tell(news.Hold(desk.group(level), disabled=True))
    desk.end_all()
    assert desk.out() == set()
    free = {"2100comp", "2100ver", "2001comp", "2001ver"} if level == "Slice_1_1_1_0" else {"2100comp"}
    assert (
        desk.in_state(TaskState.DONE) == free
    )  # 2100comp ran already; what is below VS_2_1 waits, and so do 2v2 and 3v1
    desk.tell(news.Release(desk.group(level), enabled=True))
    desk.end_all()
    assert desk.all_done()


@pytest.mark.parametrize("level", ["Slice_2_1_0_0", "VS_2_1"])
def test_item_9_done_at_any_level_lets_dependents_start_and_leaves_nothing_of_it_to_run(level: str) -> None:
    desk = Desk()
    desk.tell(news.Hold(Dep(On.GROUP, 0)))
    desk.tell(news.WorkReturned(desk.span(desk.number["2100comp"]), 0, 1))  # what runs cannot be declared done
    assert desk.out() == set()
    desk.tell(news.DeclareDone(desk.group(level)))
    desk.tell(news.Release(Dep(On.GROUP, 0)))
    assert desk.out() == ({"2200comp", "3100comp"} if level == "VS_2_1" else {"2001comp", "1110comp"})
    desk.end_all()
    assert desk.all_done()


@pytest.mark.parametrize("level", ["Slice_2_1_0_0", "VS_2_1"])
def test_item_9_not_started_is_refused_if_dependents_have_started_and_cascades_if_asked(level: str) -> None:
    desk = Desk()
    desk.end_all()
    assert desk.all_done()
    desk.tell(news.Reset(desk.group(level)))
    assert desk.all_done()  # something that depends on it has run
    assert any("depends on it" in text for text in desk.queries.preview(news.Reset(desk.group(level))).not_changed)
    desk.tell(news.Reset(desk.group(level), cascade=True))
    assert desk.in_state(TaskState.DONE) == set()  # all of it depends on the first slice of all
    assert desk.out() == {"2100comp"}
    desk.end_all()
    assert desk.all_done()


def test_item_9_a_group_that_nobody_depends_on_is_not_started_again_and_nothing_else_changes() -> None:
    desk = Desk()
    desk.end_all()
    desk.tell(news.Reset(desk.group("Slice_0_0_2_2")))
    assert desk.in_state(TaskState.DONE) == set(desk.number) - {"0022comp", "0022ver"}
    desk.end_all()
    assert desk.all_done()


def test_item_9_the_states_of_groups_above_follow() -> None:
    desk = Desk()
    desk.end_all()

    def is_finished() -> bool:
        above = desk.queries.group(desk.described.groups["VS_2_2"])
        return above is not None and above.finished

    assert is_finished()
    desk.tell(news.Reset(desk.group("Slice_0_0_2_2")))
    assert not is_finished()
    desk.end_all()
    assert is_finished()


def test_who_took_a_task_speaks_for_it_status_attributes_signs_of_life_and_locks(site: Site) -> None:
    site.next_job("1@machineA")
    site.done_job("2100comp", "1@machineA")
    for placeholder, job in (("1@machineA", "2100ver"), ("2@machineB", "2001comp")):
        assert site.next_job(placeholder) == job

    def here(job: str, placeholder: str, what: str, **arguments: object) -> object:
        record = site.number[job]
        return site.ask("here", record=record, name=placeholder, question=here_question(what, **arguments))

    first, second = ("2100ver", "1@machineA"), ("2001comp", "2@machineB")
    assert here(*first, "status", text="verifying") == here(*first, "alive") == {}
    assert here(*first, "attributes")["host"] == "1@machineA"
    assert here(*first, "lock", name="reserve") == {"taken": True, "new": True}
    assert here(*second, "lock", name="reserve", wait=False)["owner"] == str(number_of(site.number["2100ver"]))
    assert "is not the task's own" in here(*second, "unlock", name="reserve").message
    assert here(*first, "unlock", name="reserve") == {"freed": True}
    assert here(*second, "lock", name="reserve")["taken"]
    site.done_job("2001comp", "2@machineB")  # its locks go with it
    assert here(*first, "lock", name="reserve", wait=False)["taken"]
    assert "was taken by 1@machineA, not by" in here("2100ver", "2@machineB", "alive").message
    assert "was not taken manually" in here("0021ver", "1@machineA", "alive").message


def test_who_waited_for_a_lock_by_hand_and_left_does_not_keep_it(site: Site) -> None:
    site.next_job("1@machineA")
    site.done_job("2100comp", "1@machineA")
    jobs = {placeholder: site.number[site.next_job(placeholder)] for placeholder in ("1@machineA", "2@machineB")}

    def lock(placeholder: str, **arguments: object) -> object:
        asked = here_question("lock", name="reserve", **arguments)
        return site.ask("here", record=jobs[placeholder], name=placeholder, question=asked)

    assert lock("1@machineA")["taken"]
    impatient = Peer(site, "owner")
    impatient.say(ClientHello(VERSION, 9, "there"))
    lock_wanted = here_question("lock", name="reserve")
    impatient.say(Ask(1, question("here", record=jobs["2@machineB"], name="2@machineB", question=lock_wanted)))
    assert impatient.said(Answer) == []
    impatient.hang_up()
    site.done(jobs["1@machineA"], "1@machineA")
    assert site.shell.queries.lock_owner("reserve") is None
