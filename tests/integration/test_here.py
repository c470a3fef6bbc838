"""What running tasks ask for and say of themselves: functions and commands, of a session, a service and a relay."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import cloudpickle
import pytest
from relay_site import Site
from server_client import until
from service_client import Service

import bough
from bough import Session, UserError
from bough.api.session.session import opened_sessions

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module

HERE = f"{shlex.quote(sys.executable)} -m bough.cli.main here"
PATIENCE = 60.0


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("here")
    before = os.getcwd()
    os.chdir(folder)
    with Session(cores=4) as session:
        yield session
    os.chdir(before)
    opened_sessions.clear()


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.chdir(tmp_path)
    made = Service(tmp_path)
    made.start()
    made.executor(cores=3)
    yield made
    made.clean_up()
    opened_sessions.clear()


def open_session(service: Service, name: str) -> bough.Session:
    session = bough.Session(f"unix:{service.address}", name=name)
    assert session.is_remote
    return session


def wait_for(path: str | Path, what: str = "a file") -> None:
    until(lambda: os.path.exists(path), f"{what}: {path}")


def attributes() -> dict[str, object]:
    return dict(bough.here().attributes)


def own_id(_: int) -> object:
    return bough.here().attributes["id"]


def sees_inside(name: str, log: str) -> str:
    """Enter and leave by a lock; what was seen of others meanwhile."""
    with bough.here().lock(name), open(log, "a+") as file:
        file.write("in ")
        file.flush()
        time.sleep(0.02)
        file.write("out ")
    return name


def holds(name: str, told: str, until_there: str) -> None:
    """Take a lock, tell of it, and keep it until a file is there."""
    bough.here().lock(name)
    Path(told).touch()
    wait_for(until_there)


def dies_with(name: str, told: str) -> None:
    if os.path.exists(told):  # its second try
        return
    bough.here().lock(name)
    Path(told).touch()
    os._exit(9)


def takes(name: str) -> bool:
    with bough.here().lock(name) as lock:
        return bool(lock)


def tries(name: str) -> tuple[bool, str]:
    lock = bough.here().lock(name, wait=False)
    return bool(lock), lock.owner


# --- the rest of its workflow -------------------------------------------------------------------------------


def test_a_task_knows_how_its_workflow_fares_and_can_end_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Session(cores=4, name="others") as session:
        failed, long = session.command("exit 3"), session.command("sleep 600", name="long")
        assert failed.exception(PATIENCE) is not None
        said = session.command(f"{HERE} counts; {HERE} cancel long nosuch", name="first").result(PATIENCE).stdout
        counts = dict(line.split("=") for line in said.split())
        assert (counts["failed"], counts["aborted"]) == ("1", "0")
        assert int(counts["running"]) >= 1
        until(long.cancelled, "the end of the long task")
        waits = session.command("sleep 600")
        assert session.submit(ends_all).result(PATIENCE) == (1, 1)
        until(waits.cancelled, "the end of all others")
    opened_sessions.clear()


def ends_all() -> tuple[int, int]:
    here = bough.here()
    return here.cancel(all_others=True), here.counts()["aborted"]


# --- attributes ---------------------------------------------------------------------------------------------


def test_a_function_knows_its_attributes(opened: Session) -> None:
    with opened.group("fruits", attributes={"basket": "big", "colour": "green"}):
        task = opened.options(attributes={"colour": "red", "pieces": 4}, name="apple", cores=2).submit(attributes)
    found = task.result(PATIENCE)
    expected = {"name": "apple", "group": "fruits", "attempt": 1, "index": 0, "cores": 2, "kind": "function"}
    assert {name: found[name] for name in expected} == expected
    assert (found["basket"], found["colour"], str(found["pieces"])) == ("big", "red", "4")
    assert found["id"] == str(found["record"])
    assert isinstance(found["lastStart"], float)
    assert found["lastCompletion"] is None


def test_every_element_and_every_call_knows_which_it_is(opened: Session) -> None:
    array = [str(one) for one in opened.map(own_id, range(20))]
    assert [one.partition(".")[2] for one in array] == [str(index) for index in range(20)]
    loose = [opened.submit(own_id, number) for number in range(20)]
    assert len({task.result(PATIENCE) for task in loose}) == 20


def test_a_command_prints_its_attributes(opened: Session) -> None:
    task = opened.command(
        f"{HERE} attribute colour; {HERE} attribute --json", attributes={"colour": "blue"}, name="paint"
    )
    said = task.result(PATIENCE).stdout
    assert said.startswith("blue\n")
    assert '"name": "paint"' in said.replace('":"', '": "')
    bad = opened.command(f"{HERE} attribute nothing")
    assert "has no attribute 'nothing'" in str(bad.exception(PATIENCE))


def test_a_later_run_knows_when_and_where_the_task_ran_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = []
    for _ in range(2):
        with Session(cores=1, name="twice") as session, session.group("g"):
            found.append(session.options(name="again", memo=False).submit(attributes).result(PATIENCE))
    assert found[0]["lastCompletion"] is None
    assert found[0]["lastStart"] < found[1]["lastCompletion"] <= found[1]["lastStart"]
    assert found[1]["lastHost"] == found[1]["host"]


def test_where_a_task_ran_last_is_not_where_its_namesakes_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ends = []
    for _ in range(2):
        with Session(cores=1, name="twice", reuse="never") as session:
            # one after the other: what ends in one turn has one time
            found = [session.options(name="alike").submit(attributes).result(PATIENCE) for _ in range(3)]
            ends.append([one["lastCompletion"] for one in found])
    assert ends[0] == [None, None, None]
    assert None not in ends[1]
    assert ends[1] == sorted({*ends[1]})  # each its own: that of the first, the second and the third


def test_what_a_function_starts_is_known_by_its_process_group(opened: Session) -> None:
    def start() -> tuple[str, object]:
        words = [sys.executable, "-m", "bough.cli.main", "here", "attribute", "id"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout, bough.here().attributes["id"]

    said, own = opened.submit(start).result(PATIENCE)
    assert said.strip() == own


def test_outside_of_a_task_there_is_nothing_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOUGH_HERE", raising=False)
    with pytest.raises(UserError, match="there is no task here"):
        bough.here()


# --- status -------------------------------------------------------------------------------------------------


def test_what_a_task_says_is_shown_until_it_ends(opened: Session, tmp_path: Path) -> None:
    go = tmp_path / "go"
    text = f"{HERE} status 'reading genome 3' --progress 0.25 && while [ ! -e {go} ]; do sleep 0.02; done"
    task = opened.command(text, name="reader")

    def said() -> object:
        words = [sys.executable, "-m", "bough.cli.main", "status", "--store", opened.store]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    shown = until(lambda: "reading" in str(out := said()) and out, "what the task says")
    assert "(reader): reading genome 3, 25%" in str(shown)
    go.touch()
    task.result(PATIENCE)
    assert "reading genome" not in str(said())


def test_progress_is_a_share(opened: Session) -> None:
    def too_much() -> None:
        bough.here().progress(2)

    with pytest.raises(UserError, match="from 0 to 1"):
        opened.submit(too_much).result(PATIENCE)


def test_signs_of_life_keep_a_task_from_being_sent_again(opened: Session) -> None:
    def lives() -> int:
        task = bough.here()
        begun = time.monotonic()
        while time.monotonic() - begun < 3.5:
            task.alive()
            time.sleep(0.1)
        return int(str(task.attributes["attempt"]))

    assert opened.options(replay="1.5s").submit(lives).result(PATIENCE) == 1


# --- locks --------------------------------------------------------------------------------------------------


def test_a_lock_has_one_owner_at_a_time(opened: Session, tmp_path: Path) -> None:
    log = tmp_path / "log"
    functions = [opened.submit(sees_inside, "door", str(log)) for _ in range(6)]
    guarded = f"{HERE} lock door && printf 'in ' >> {log} && sleep 0.02 && printf 'out ' >> {log}; {HERE} unlock door"
    commands = [opened.command(guarded) for _ in range(3)]
    for task in [*functions, *commands]:
        task.result(PATIENCE)
    assert log.read_text().split() == ["in", "out"] * 9


def test_a_lock_that_is_not_free_can_be_left(opened: Session, tmp_path: Path) -> None:
    told, go = tmp_path / "told", tmp_path / "go"
    owner = opened.submit(holds, "busy", str(told), str(go))
    wait_for(told)
    taken, by = opened.submit(tries, "busy").result(PATIENCE)
    assert not taken
    assert by
    left = opened.command(f"{HERE} lock busy --no-wait || echo $?; {HERE} unlock busy || echo $?").result(PATIENCE)
    assert left.stdout.split() == ["1", "2"]
    assert "is not free: task" in left.stderr
    assert "is not the task's own: it belongs to task" in left.stderr
    go.touch()
    owner.result(PATIENCE)
    assert opened.submit(tries, "busy").result(PATIENCE) == (True, "")


def test_who_gives_up_waiting_does_not_get_the_lock(opened: Session, tmp_path: Path) -> None:
    told, go, gave_up, end = (tmp_path / name for name in ("told", "go", "gave_up", "end"))
    owner = opened.submit(holds, "wanted", str(told), str(go))
    wait_for(told)
    text = f"timeout 1 {HERE} lock wanted || touch {gave_up}; while [ ! -e {end} ]; do sleep 0.02; done"
    impatient = opened.command(text)
    wait_for(gave_up)
    go.touch()
    owner.result(PATIENCE)
    assert opened.submit(takes, "wanted").result(PATIENCE)
    end.touch()
    impatient.result(PATIENCE)


@pytest.mark.parametrize("how", ["kill", "cancel"])
def test_a_task_that_is_ended_leaves_its_locks(opened: Session, tmp_path: Path, how: str) -> None:
    told = tmp_path / "told"
    owner = opened.submit(holds, f"ended by {how}", str(told), str(tmp_path / "never"))
    wait_for(told)
    waiting = opened.submit(takes, f"ended by {how}")
    assert not waiting.done()
    getattr(owner, how)()
    assert waiting.result(PATIENCE)


def test_a_task_that_dies_leaves_its_locks(opened: Session, tmp_path: Path) -> None:
    told = tmp_path / "told"
    owner = opened.options(retries=1).submit(dies_with, "dead", str(told))
    wait_for(told)
    assert opened.submit(takes, "dead").result(PATIENCE)
    owner.result(PATIENCE)


def test_tasks_that_would_wait_for_each_other_are_refused(opened: Session, tmp_path: Path) -> None:
    def both(first: str, second: str, told: str, other: str) -> str:
        task = bough.here()
        with task.lock(first):
            Path(told).touch()
            wait_for(other)
            try:
                with task.lock(second):
                    return "both"
            except UserError as error:
                return str(error)

    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    tasks = [opened.submit(both, "a", "b", one, two), opened.submit(both, "b", "a", two, one)]
    said = sorted(task.result(PATIENCE) for task in tasks)
    assert said[0] == "both"
    assert "would never end" in said[1]


# --- early release, nested work --------------------------------------------------------------------------------


def test_a_task_releases_its_group_before_it_ends(opened: Session, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with opened.group("built") as built:
        builder = opened.command(f"{HERE} release && while [ ! -e {go} ]; do sleep 0.02; done")
    with opened.group("tested", after=built):
        follower = opened.command("echo started")
    assert follower.result(PATIENCE).stdout == "started\n"
    assert not builder.done()
    go.touch()
    builder.result(PATIENCE)


def test_a_task_in_no_group_has_nothing_to_release(opened: Session) -> None:
    bad = opened.command(f"{HERE} release")
    assert "in no group" in str(bad.exception(PATIENCE))


def test_nested_work_runs_on_the_cores_of_its_task(opened: Session) -> None:
    def nested() -> tuple[list[int], float]:
        with bough.here().session() as inner:
            return list(inner.map(abs, [-1, -2, -3])), inner.cores

    assert opened.options(cores=2).submit(nested).result(PATIENCE) == ([1, 2, 3], 2)


def test_commands_of_a_task_run_on_its_cores(opened: Session, tmp_path: Path) -> None:
    run = f"{shlex.quote(sys.executable)} -m bough.cli.main run --quiet"
    wide = partial(opened.options(cores=2).command, cwd=tmp_path)
    one = wide(f"{run} -- sh -c 'echo in $BOUGH_TASK; exit 3'")
    assert one.exception(PATIENCE) is not None
    assert (one.stdout, one.exception(0).returncode) == ("in 1.0\n", 3)  # type: ignore[union-attr]
    two = [wide(f"{run} -- sh -c 'sleep 0.3; echo {n}'") for n in (1, 2)]  # at once, under one name
    assert [task.result(PATIENCE).stdout for task in two] == ["1\n", "2\n"]
    many = wide(f"{run} --array 1-3 -k -- echo {{index}}")
    assert many.result(PATIENCE).stdout == "1\n2\n3\n"
    assert opened.command(f"{run} -j 3 -- true", cwd=tmp_path).result(PATIENCE).returncode == 0


# --- services and relays --------------------------------------------------------------------------------------


def test_locks_outlive_the_server(service: Service, tmp_path: Path) -> None:
    told, go = tmp_path / "told", tmp_path / "go"
    with open_session(service, "locked") as session:
        owner = session.submit(holds, "kept", str(told), str(go))
        wait_for(told)
        waiting = session.submit(takes, "kept")
        until(lambda: waiting.state == "running", "a task that waits")
        service.kill()
        service.start()
        assert session.submit(tries, "kept").result(PATIENCE)[0] is False
        assert not waiting.done()
        go.touch()
        owner.result(PATIENCE)
        assert waiting.result(PATIENCE)


def test_tasks_behind_a_relay_that_shares_out_work_are_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    site = Site(tmp_path)
    try:
        relay = site.relay(site.begin(), "127.0.0.1:0", "--dispatch", "--reconnect", "2s")
        for _ in range(2):
            site.executor("--server", str(relay.access), joined=False)
        log = tmp_path / "log"
        with open_session(site, "far") as session:
            tasks = [session.submit(sees_inside, "gate", str(log)) for _ in range(4)]
            command = session.command(f"{HERE} status working; {HERE} attribute name", name="behind")
            assert [str(one).partition(".")[2] for one in session.map(own_id, range(5))] == list("01234")
            for task in tasks:
                task.result(PATIENCE)
            assert command.result(PATIENCE).stdout == "behind\n"
        assert log.read_text().split() == ["in", "out"] * 4
    finally:
        site.clean_up()
        opened_sessions.clear()
