from __future__ import annotations

import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from service_client import Service, until

from bough.model.ids import number_of

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors cannot import this module


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.clean_up()


def answer(service: Service, *words: str) -> tuple[int, object]:
    """The exit code and the JSON answer of a command."""
    done = service.bough(*words, "--json", check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def square(x: int) -> int:
    return x * x


def test_tasks_are_taken_and_ended_by_hand_also_over_a_crash_of_the_server(service: Service) -> None:
    service.start()
    client = service.client("night")
    first = client.run_command("echo one", name="first")
    second = client.run_command("echo two")
    client.sock.close()
    first, second = number_of(first), number_of(second)

    taken = service.bough("take", "--as", "ann")
    assert taken.stdout.splitlines() == [str(first), "echo one"]
    assert service.bough("command", str(first)).stdout == "echo one\n"
    assert service.bough("attribute", str(first), "name").stdout == "first\n"

    service.kill()
    service.start()
    assert service.bough("take", "--as", "ann").stdout.splitlines()[0] == str(first)
    assert service.bough("take", "--as", "bob", "--queue", "night").stdout.splitlines()[0] == str(second)
    assert answer(service, "take", "--as", "cid")[0] == 10
    assert "1 workflow, 0 executors, 0 cores" in service.bough("status").stdout  # ann and bob are no executors

    wrong = service.bough("done", str(first), "--as", "bob", check=False)
    assert (wrong.returncode, "taken by ann@" in wrong.stderr) == (2, True)
    for changed in (True, False):
        code, told = answer(service, "done", str(first), "--as", "ann")
        assert (code, told) == (0, {"id": str(first), "state": "done", "changed": changed})
    assert answer(service, "done", str(second), "--as", "bob", "--exit-code", "3")[1]["state"] == "failed"
    code, over = answer(service, "take", "--as", "ann")
    assert (code, over["answer"], over["failed"]) == (11, "done", 1)

    rows = json.loads(service.bough("status", "night:all", "--json").stdout)
    assert [(row["state"], row["host"].partition("@")[0]) for row in rows] == [("done", "ann"), ("failed", "bob")]


def test_what_waits_for_a_task_taken_by_hand_goes_to_an_executor_when_it_is_done(service: Service) -> None:
    service.start()
    held = service.bough("submit", "--into", "q", "--json", "--", "echo by hand")
    (first,) = json.loads(held.stdout)["ids"]
    taken = service.bough("take", "--queue", "q")
    assert taken.stdout.splitlines()[0] == str(first)
    service.executor()
    service.bough("submit", "--into", "q", "--after", str(first), "--", f"echo then > {service.folder}/then")
    assert answer(service, "take", "--as", "other")[0] == 10

    service.bough("done", str(first))

    assert until((service.folder / "then").exists, "the task that waited")


def test_held_tasks_block_whoever_takes(service: Service) -> None:
    service.start()
    service.bough("submit", "--into", "q", "--", "echo x")
    service.bough("hold", "q:all")

    code, told = answer(service, "take")

    assert (code, told["answer"]) == (12, "blocked")


def test_statistics_are_kept_every_second_and_served_in_all_forms(service: Service) -> None:
    service.start("--metrics", "127.0.0.1:0")
    service.executor(cores=2)
    client = service.client("one")
    assert client.values(client.array(square, range(2000)), 2000)

    def enough() -> object:
        _, samples = answer(service, "stats", "--since", "1h")
        return samples if len(samples) >= 3 and samples[-1]["ended"] == 2000 else None

    samples = until(enough, "three samples")
    last = samples[-1]
    assert (last["allocated"], last["cores"], last["clients"] > 0) == (1, 2, True)
    assert 0.5 < samples[-1]["time"] - samples[-2]["time"] < 5
    assert max(sample["throughput"] for sample in samples) > 0
    assert last["memory"] > 1_000_000

    assert "bough_tasks_ended_total 2000" in service.bough("stats", "--prometheus").stdout
    shown = service.bough("status", "--stats").stdout
    assert "throughput" in shown
    assert isinstance(json.loads(service.bough("status", "--stats", "--json").stdout), list)
    url = re.search(r"http://127\.0\.0\.1:\d+/metrics", service.log.read_text())
    with urllib.request.urlopen(url[0], timeout=10) as page:
        assert b'bough_executors{state="idle"} 1' in page.read()


def test_core_hours_are_told_by_site_and_workflow_and_survive_a_crash_and_pruning(service: Service) -> None:
    service.start("--metrics", "127.0.0.1:0")
    service.executor("--site", "lab", cores=2)
    client = service.client("night")
    client.run_command("sleep 0.4")
    client.run_command("sleep 0.2; exit 3")

    def told() -> dict[str, dict[str, float]] | None:
        sites = answer(service, "stats", "--core-hours")[1]["sites"]
        return sites if sites and sites["lab"]["used"] > 0 and sites["lab"]["wasted"] > 0 else None

    first = until(told, "core-hours of site lab")["lab"]
    assert 0.4 <= first["used"] * 3600 < first["all"] * 3600
    assert first["wasted"] * 3600 >= 0.2

    [usage] = answer(service, "status", "--name", "night")[1]["core_hours"]
    assert usage["site"] == "lab"
    assert usage["used"] * 3600 >= 0.4
    assert usage["wasted"] * 3600 >= 0.2
    assert "core-hours at lab: " in service.bough("status", "--name", "night").stdout
    assert "core-hours " in service.bough("stats").stdout
    assert 'bough_core_seconds_total{site="lab",use="used"} 0.' in service.bough("stats", "--prometheus").stdout
    url = re.search(r"http://127\.0\.0\.1:\d+/metrics", service.log.read_text())
    with urllib.request.urlopen(url[0], timeout=10) as page:
        assert b'bough_core_seconds_total{site="lab",use="all"}' in page.read()

    client.close()
    client.sock.close()
    service.kill()
    service.start()
    service.bough("remove", "night", "--kill")

    def kept() -> float | None:
        history = answer(service, "stats", "--core-hours")[1]["history"]
        return sum(one["used"] for one in history) if history else None

    assert until(kept, "the history") == pytest.approx(first["used"] * 3600)
    assert answer(service, "stats", "--core-hours")[1]["sites"]["lab"]["used"] == pytest.approx(first["used"])
    assert "in all" in service.bough("stats", "--core-hours", "--since", "30d").stdout
    rows = answer(service, "sql", "select site, sum(used) as used from site_usage group by site")[1]
    assert "lab" in json.dumps(rows)


def test_the_end_of_a_workflow_is_told_to_a_command(service: Service) -> None:
    out = service.folder / "told"
    service.start("--notify", f'echo "$BOUGH_EVENT $BOUGH_WORKFLOW: $BOUGH_TEXT" >> {out}', "--notify-on", "finished")
    service.executor()
    client = service.client("survey")
    client.run_command("exit 1")
    client.run_command("true")
    client.close("drain")

    said = until(lambda: out.exists() and out.read_text(), "the notice")
    assert re.fullmatch(r"finished survey: workflow survey, run \d+, has ended: 1 done, 1 failed\n", str(said))


def test_options_that_make_no_sense_are_refused_before_anything_starts(service: Service) -> None:
    for words, said in (
        (["--notify-on", "lunch"], "no event 'lunch'"),
        (["--metrics", "nowhere"], "not of the form HOST:PORT"),
        (["--notify-mail", "-x"], "not an address"),
    ):
        done = service.bough("server", "start", *(f"{words[0]}={words[1]}",), check=False)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def size_of(store: Path) -> int:
    return sum(path.stat().st_size for path in store.glob("journal.db*"))


def test_a_removed_workflow_is_gone_and_its_space_is_given_back(service: Service) -> None:
    store = service.home / "server" / "store"
    service.start()
    service.executor()
    kept, big = service.client("kept"), service.client("big", pid=1)
    mine = kept.function(square, 3)
    for number in range(20):
        big.function(len, os.urandom(200_000), name=f"t{number}")
    big.array(square, range(3000))
    assert "is running" in service.bough("remove", "big", check=False).stderr
    big.close("drain")
    kept.outcome(mine)
    service.bough("sql", "select 1")
    before = size_of(store)
    assert before > 4_000_000

    assert [one["name"] for one in answer(service, "remove", "big")[1]] == ["big"]

    until(lambda: size_of(store) < before / 2, "a smaller store")
    assert service.bough("remove", "big", check=False).returncode == 2
    names = [row["name"] for row in json.loads(service.bough("sql", "--json", "select name from runs").stdout)]
    assert names == ["server", "kept"]
    service.kill()
    service.start()
    back = service.client("kept")
    assert back.ask("outcomes", records=[mine]) == 1
    assert back.outcome(mine).record == mine


def test_what_removed_tasks_wrote_is_deleted_when_it_is_old_and_nobody_elses(service: Service) -> None:
    out = service.home / "server" / "store" / "out"
    service.start()
    executor = service.executor()
    for name in ("kept", "gone"):
        client = service.client(name)
        client.run_command(f"echo {name}")
        client.close("drain")
    executor.terminate()
    executor.wait()
    until(lambda: not answer(service, "executor", "list")[1], "the executor's leaving")
    (first,) = out.glob("x1-*.out")
    old = out / "x1-unused.out"
    old.write_text("nobody's")
    young = out / "x1-young.out"
    young.touch()
    for path in (first, old):
        os.utime(path, (1e9, 1e9))

    service.bough("remove", "gone")

    until(lambda: not old.exists(), "the end of the file")
    assert first.exists()  # the workflow that is kept wrote to it, too
    assert young.exists()


def test_a_workflow_that_goes_on_is_killed_and_removed_when_asked_for(service: Service) -> None:
    service.start()
    service.executor()
    client = service.client("endless")
    client.run_command(f"echo $$ > {service.folder}/pid; sleep 600")
    until((service.folder / "pid").exists, "the start")

    code, gone = answer(service, "remove", "endless", "--kill")

    assert (code, gone[0]["name"]) == (0, "endless")
    pid = int((service.folder / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists(), "the end of its task")


def test_old_workflows_are_pruned_by_hand_and_by_age(service: Service) -> None:
    service.start()
    service.executor()
    for name in ("old", "older"):
        client = service.client(name)
        client.run_command("true")
        client.close("drain")
    service.client("going").run_command("true", name="g")

    assert answer(service, "prune", "--older-than", "1h")[1] == []
    _, listed = answer(service, "prune", "--older-than", "1ms", "--dry-run")
    assert {one["name"] for one in listed} == {"old", "older"}
    _, listed = answer(service, "prune", "--older-than", "1ms")
    assert {one["name"] for one in listed} == {"old", "older"}
    assert [one["name"] for one in json.loads(service.bough("status", "--json").stdout)["workflows"]] == ["going"]

    client = service.client("third")
    client.run_command("true")
    client.close("drain")
    service.stop()
    service.start("--keep", "100ms")

    def only_going() -> bool:
        return [one["name"] for one in json.loads(service.bough("status", "--json").stdout)["workflows"]] == ["going"]

    until(only_going, "the end of what was too old")
