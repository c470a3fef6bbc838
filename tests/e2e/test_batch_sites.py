"""Sites with a real batch system: Slurm, here and behind an sshd. Jobs come, work, are cancelled, and none is left."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_shop import QUICK, BatchShop
from fresh_install import FreshInstall
from processes import PATIENCE
from site_shop import shop_folder
from slurm_clusters import SlurmCluster, need_slurm
from ssh_hosts import need_sshd

import bough
from bough.model.sites.site_specs import SiteSpec
from bough.sites.batch.batch_site import BatchSite
from bough.sites.site_kind import Surroundings
from bough.testing.site_conformance import check_site_kind

__all__ = ["shop_folder"]  # a fixture


@pytest.fixture
def alpha() -> Iterator[SlurmCluster]:
    need_slurm()
    cluster = SlurmCluster("alpha", 1, 2)
    yield cluster
    cluster.stop()


@pytest.fixture
def batch(monkeypatch: pytest.MonkeyPatch, shop_folder: Path, alpha: SlurmCluster) -> Iterator[BatchShop]:
    shop = BatchShop(shop_folder, monkeypatch, alpha, SLURM_CONF=str(alpha.conf))
    yield shop
    shop.clean_up()


def test_slurm_here_gives_results_and_keeps_nothing(batch: BatchShop, alpha: SlurmCluster) -> None:
    batch.start()
    batch.bough("site", "add", "alpha", "--batch", "slurm", "--partition", "main", *QUICK)
    said = batch.bough("site", "test", "alpha")
    assert [line.split()[:2] for line in said.splitlines()[:-1]] == [
        ["ok", step]
        for step in ("reach", "python", "space", "clock", "bootstrap", "batch", "tunnel", "relay", "task", "end")
    ]
    with bough.Session(batch.address, name="first") as session:
        task = session.command("echo $SLURM_JOB_NAME $SLURM_CPUS_PER_TASK")
        name, cores = task.result(PATIENCE).stdout.split()
        assert name.startswith("bough-")
        assert cores == "1"
        assert session.submit(pow, 2, 10).result(PATIENCE) == 1024
    [entry] = batch.entries()
    assert time.time() < entry["until"] <= time.time() + 600
    assert "partition: main" in batch.bough("site", "show", "alpha")
    batch.bough("site", "remove", "alpha")
    batch.until(batch.is_clean, "the job to end")


def test_slurm_behind_ssh_gives_results_and_keeps_nothing(batch: BatchShop, alpha: SlurmCluster) -> None:
    need_sshd()
    host = batch.behind_ssh()
    batch.start()
    batch.bough(
        "site", "add", "alpha", "--ssh", "alpha", "--batch", "slurm", "--setup", "export FROM_SETUP=yes", *QUICK
    )
    with bough.Session(batch.address, name="first") as session:
        task = session.command("echo $FROM_SETUP $BOUGH_TEST_HOST")
        assert task.result(PATIENCE).stdout.split() == ["yes", str(host.folder)]
    batch.bough("site", "remove", "alpha")
    batch.until(batch.is_clean, "the job to end")
    assert not list(host.home.rglob("access.json"))


def test_a_job_that_is_cancelled_behind_our_back_costs_its_running_task_only(
    batch: BatchShop, alpha: SlurmCluster
) -> None:
    batch.start()
    batch.bough("site", "add", "alpha", "--batch", "slurm", *QUICK)
    notes, gate = batch.folder / "notes", batch.folder / "gate"
    with bough.Session(batch.address, name="scancel") as session:
        task = session.command(f"echo $SLURM_JOB_ID >> {notes}; while [ ! -e {gate} ]; do sleep 0.05; done")
        batch.until(notes.exists, "the task to begin")
        [job] = alpha.jobs()
        alpha.says("scancel", job)
        batch.until(lambda: len(notes.read_text().split()) == 2, "another pilot to run the task")
        gate.touch()
        assert task.result(PATIENCE).returncode == 0
    first, second = notes.read_text().split()
    assert first == job != second
    batch.bough("site", "remove", "alpha")
    batch.until(batch.is_clean, "the job to end")


def test_a_job_that_is_cancelled_while_it_waits_is_asked_for_again(batch: BatchShop, alpha: SlurmCluster) -> None:
    batch.start()
    alpha.says("scontrol", "update", "NodeName=a1", "State=DRAIN", "Reason=test")
    batch.bough("site", "add", "alpha", "--batch", "slurm", *QUICK)
    with bough.Session(batch.address, name="waits") as session:
        task = session.command("true")
        batch.until(alpha.jobs, "a job that waits")
        alpha.says("scancel", *alpha.jobs())
        batch.until(lambda: "it was cancelled" in "".join(task.explain()), "explain to say what became of it")
        alpha.says("scontrol", "update", "NodeName=a1", "State=RESUME")
        assert task.result(PATIENCE).returncode == 0
    batch.bough("site", "remove", "alpha")
    batch.until(batch.is_clean, "the job to end")


def test_what_slurm_refuses_is_told_in_its_own_words(batch: BatchShop, alpha: SlurmCluster) -> None:
    batch.start()
    batch.bough("site", "add", "alpha", "--batch", "slurm", "--partition", "nowhere", *QUICK)
    said = batch.bough("site", "test", "alpha", code=3)
    assert "slurm: sbatch: error: Batch job submission failed: Invalid partition name specified" in said
    batch.bough("site", "remove", "alpha")
    (batch.folder / "sites.toml").write_text('[alpha]\nbatch = "lsf"\ncores_per_pilot = 1\nwalltime = "2h"\n')
    batch.bough("site", "add", "--file", "sites.toml")
    assert "there is no bsub on this machine: is its batch system lsf?" in batch.bough("site", "test", "alpha", code=3)
    batch.bough("site", "remove", "alpha")
    assert "partition" in batch.bough("site", "add", "x", "--batch", "slurm", "--partition", "a;b", code=2)
    assert "say --cores-per-pilot" in batch.bough("site", "add", "x", "--batch", "sge", code=2)
    assert batch.ask("sites") == []
    assert not list((batch.home / "server").glob("site-*"))
    assert batch.is_clean()


FAULTS = r"""#!/bin/bash
# sbatch that misbehaves in a way for each call, then behaves
calls=$(dirname "$0")/calls
name=$(grep -o 'bough-[0-9a-f]*-[0-9]*' "$1" | head -1)
exec 9>>"$calls"; flock 9
number=$(grep -c . "$calls")
echo "call $name" >&9
flock -u 9
accept() { out=$(@SBATCH@ "$@") || exit 1; echo "$name" >> "$(dirname "$0")/accepted"; }
case $number in
0) sleep 0.5; accept "$@"; sleep 0.5; echo "$out" ;;  # slow
1) echo "sbatch: error: Unable to contact slurm controller (connect failure)" >&2; exit 1 ;;
2) accept "$@"; echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1 ;;
3) accept "$@"; sleep 600 ;;  # it never answers
4) accept "$@"; exit 0 ;;  # it says nothing
5) sleep 600 ;;  # it never answers, and has not been heard
6) accept "$@"; echo "sbatch: error: something unheard of" >&2; exit 7 ;;
*) accept "$@"; echo "$out" ;;
esac
"""


def test_no_pilot_is_lost_or_doubled_when_sbatch_errs_or_does_not_answer(batch: BatchShop, alpha: SlurmCluster) -> None:
    script = alpha.bin / "sbatch"
    script.write_text(FAULTS.replace("@SBATCH@", str(shutil.which("sbatch", path="/usr/bin:/usr/local/bin"))))
    script.chmod(0o755)
    batch.start()
    batch.bough(
        *("site", "add", "alpha", "--batch", "slurm", "--max-pilots", "8", "--idle", "0.5s", "--patience", "2s"),
        *QUICK,
    )
    with bough.Session(batch.address, name="faults") as session:
        tasks = [session.command(f"sleep 0.5; echo {number}") for number in range(12)]
        assert [int(task.result(PATIENCE).stdout) for task in tasks] == list(range(12))
        accepted = alpha.bin / "accepted"
        batch.until(lambda: len(accepted.read_text().split()) >= 8, "all pilots to be accepted")
    names = accepted.read_text().split()
    assert len(names) == len(set(names)), "a pilot was submitted twice"
    calls = (alpha.bin / "calls").read_text().splitlines()
    assert len(calls) == len(names) + 2, "what was not heard was not submitted again, or more was"
    batch.until(lambda: not batch.site()["pilots"], "idle pilots to end")
    assert batch.is_clean()
    assert "failed" not in batch.story()


def test_the_how_to_leads_from_pip_to_results(batch: BatchShop, alpha: SlurmCluster, tmp_path: Path) -> None:
    """Its commands as they stand there: `ssh` knows me@alpha.example.org, and `pip` a wheel of this tree."""
    need_sshd()
    installed = FreshInstall(tmp_path / "env")
    batch.behind_ssh(options="-o User=root")  # which wins over who is named
    page = (Path(__file__).parents[2] / "docs" / "howto" / "batch-sites.md").read_text()
    first, second = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    [script] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (batch.folder / "squares.py").write_text(script)
    assert first.startswith("pip install ")
    text = "\n".join(["set -e; trap 'bough server stop' EXIT", first, second, "bough site remove alpha"])
    done = subprocess.run(
        ["bash", "-c", text],
        env=batch.environment | installed.variables | {"PATH": f"{installed.bin}:{batch.environment['PATH']}"},
        cwd=batch.folder,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^Successfully installed bough-", done.stdout, re.MULTILINE)
    assert "site alpha works\n" in done.stdout
    assert f"{sum(number**2 for number in range(100))}\n{socket.gethostname()}\n" in done.stdout
    batch.until(batch.is_clean, "the jobs to end")


def test_pilots_end_in_good_order_before_their_time_is_over(batch: BatchShop, alpha: SlurmCluster) -> None:
    batch.start()
    batch.bough("site", "add", "alpha", "--batch", "slurm", *QUICK, "--walltime", "6s")
    notes = batch.folder / "notes"
    with bough.Session(batch.address, name="long") as session:
        tasks = [session.command(f"echo {number} $SLURM_JOB_ID >> {notes}; sleep 0.3") for number in range(22)]
        assert {task.result(2 * PATIENCE).returncode for task in tasks} == {0}
        too_long = session.command("sleep 10", walltime=10)
        batch.until(lambda: "its pilots end after 6 s" in "".join(too_long.explain()), "explain to say why not")
        too_long.cancel()
    ran = [line.split() for line in notes.read_text().splitlines()]
    assert {int(number) for number, _ in ran} == set(range(22))
    assert len(ran) <= 22 + len({job for _, job in ran}), "more was cut off than what ran last in a job"
    assert len({job for _, job in ran}) > 1
    batch.bough("site", "remove", "alpha")
    batch.until(batch.is_clean, "the jobs to end")


def test_a_server_that_dies_while_it_submits_finds_its_pilots_again(batch: BatchShop, alpha: SlurmCluster) -> None:
    script = alpha.bin / "sbatch"
    real = shutil.which("sbatch", path="/usr/bin:/usr/local/bin")
    script.write_text(f'#!/bin/sh\n{real} "$@"\ntouch {alpha.bin}/accepted\nexec sleep 600\n')
    script.chmod(0o755)
    batch.start()
    batch.bough("site", "add", "alpha", "--batch", "slurm", "--patience", "5s", *QUICK)
    with bough.Session(batch.address, name="dies") as session:
        task = session.command("echo $SLURM_JOB_ID")
        batch.until((alpha.bin / "accepted").exists, "the job to be accepted")
        batch.kill()
        script.unlink()
        batch.start()
        task.result(PATIENCE)
        batch.until(lambda: "was started at site alpha" in batch.story(), "the pilot to be found by its name")
    assert [pilot["handle"] for pilot in batch.site()["pilots"]] == [task.result().stdout.strip()]  # type: ignore[attr-defined]
    batch.bough("site", "remove", "alpha")
    batch.until(batch.is_clean, "the job to end")


def test_available_asks_for_what_slurm_has_free_and_for_more_when_there_is(
    batch: BatchShop, alpha: SlurmCluster
) -> None:
    batch.start("--provisioning", "available")
    other = alpha.says("sbatch", "--parsable", "--wrap", "sleep 600", "-o", "/dev/null")
    batch.until(lambda: alpha.says("squeue", "-h", "-t", "R", "-o", "%i") == other, "another's job to run")
    batch.bough("site", "add", "alpha", "--batch", "slurm", "--max-pilots", "5", *QUICK)
    notes, gate = batch.folder / "notes", batch.folder / "gate"
    with bough.Session(batch.address, name="room") as session:
        text = f"echo $SLURM_JOB_ID >> {notes}; while [ ! -e {gate} ]; do sleep 0.05; done"
        tasks = [session.command(text) for _ in range(4)]
        batch.until(notes.exists, "the first task to begin")
        batch.until(lambda: batch.site()["room"] == 0, "the site to say that nothing is free")
        assert len(batch.site()["pilots"]) == 1  # type: ignore[arg-type]
        assert "room for 0 pilots" in batch.bough("site", "show", "alpha")
        assert "it says that it has no room" in batch.bough("site", "show", "alpha")
        alpha.says("scancel", other)
        batch.until(lambda: len(notes.read_text().split()) == 2, "a pilot where the other job was")
        assert len(batch.site()["pilots"]) == 2  # type: ignore[arg-type]
        assert not alpha.says("squeue", "-h", "-t", "PD", "-o", "%i"), "a pilot waits"
        gate.touch()
        assert {task.result(PATIENCE).returncode for task in tasks} == {0}
    batch.bough("site", "remove", "alpha")
    batch.until(batch.is_clean, "the jobs to end")


def test_pilots_have_their_successors_in_the_queue_before_they_end_until_there_is_no_work(
    batch: BatchShop, alpha: SlurmCluster
) -> None:
    batch.start()
    batch.bough(
        *("site", "add", "alpha", "--batch", "slurm", "--resubmit", *QUICK),
        *("--walltime", "8s", "--idle", "1s", "--poll", "0.5s"),
    )
    most = 0
    with bough.Session(batch.address, name="chain") as session:
        tasks = [session.command(f"sleep 0.3; echo {number} $SLURM_JOB_ID") for number in range(36)]

        def is_done() -> bool:
            nonlocal most
            most = max(most, len(alpha.jobs()))
            return all(task.done() for task in tasks)

        batch.until(is_done, "the tasks to be done")
        ran = [task.result(PATIENCE).stdout.split() for task in tasks]
        assert [int(number) for number, _ in ran] == list(range(36))
    batch.until(lambda: not batch.site()["pilots"], "the chain to end")
    assert batch.is_clean()
    assert most <= 2, "more than a pilot and its successor"
    rows = json.loads(batch.bough("sql", "--json", "SELECT id, reason, asked, ended FROM pilots ORDER BY id"))
    pilots = {row["id"]: row for row in rows}
    heirs = {row["id"]: re.match(r"successor of pilot (\d+), whose time ends", row["reason"]) for row in rows}
    early = [(pilots[int(heir[1])], pilots[number]) for number, heir in heirs.items() if heir]
    assert len({job for _, job in ran}) >= 2
    assert early, [row["reason"] for row in rows]
    assert all(heir["asked"] < before["ended"] for before, heir in early)


def test_batch_is_a_kind_as_kinds_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alpha: SlurmCluster
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(alpha.conf))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    around = Surroundings(str(tmp_path), str(tmp_path / "cache"), str(tmp_path / "door"), "A" * 43, "0" * 32)
    spec = SiteSpec("batch", batch="slurm", cores_per_pilot=1)
    asyncio.run(check_site_kind(lambda: BatchSite("alpha", spec, around)))
    assert not alpha.jobs()
