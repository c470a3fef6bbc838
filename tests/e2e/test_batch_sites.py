"""Sites with a real batch system: Slurm, here and behind an sshd. Jobs come, work, are cancelled, and none is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import PATIENCE, read, until
from slurm_clusters import SlurmCluster, need_slurm
from ssh_hosts import SshHost, install_ssh, need_sshd
from workshop import Workshop

import bough
from bough.api.session.session import opened_sessions

_QUICK = ("--poll", "0.3s", "--walltime", "10m", "--cores-per-pilot", "1")


class BatchShop:
    """A server without anything that runs tasks, and a cluster that it reaches: `ssh` has its name as a host."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.shop = Workshop(folder)
        self.cluster = SlurmCluster("alpha", 1, 2)
        self.host: SshHost | None = None
        self._patch = monkeypatch
        self.set("SLURM_CONF", str(self.cluster.conf))
        self.set("XDG_CACHE_HOME", str(folder / "cache"))
        self.set("PATH", f"{self.cluster.bin}:{os.environ['PATH']}")
        monkeypatch.setenv("BOUGH_HOME", str(self.shop.home))
        monkeypatch.delenv("BOUGH_SERVER", raising=False)

    def set(self, key: str, value: str) -> None:
        self.shop.environment[key] = value
        self._patch.setenv(key, value)

    def start(self) -> None:
        self.shop.start("--reconnect", "30s")

    def behind_ssh(self) -> SshHost:
        """From now on Slurm is found on the host alpha only."""
        path = f"{self.cluster.bin}:/usr/local/bin:/usr/bin:/bin"
        self.host = SshHost(self.folder, "alpha", f"SetEnv SLURM_CONF={self.cluster.conf} PATH={path}")
        text = self.host.config.read_text().replace("SetEnv HOME", f"SetEnv SLURM_CONF={self.cluster.conf} HOME")
        self.host.cut()
        self.host.config.write_text(text)
        self.host.start()
        self.set("PATH", f"{install_ssh(self.folder, [self.host])}:{os.environ['PATH']}")
        self.set("SLURM_CONF", "/nowhere")
        return self.host

    def bough(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "bough.cli.main", *words],
            env=self.shop.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}{self.story()}"
        return done.stdout + done.stderr

    def story(self) -> str:
        said = self.shop.server.said() if self.shop.server is not None else ""
        return said + self.cluster.story()

    def site(self, name: str = "alpha") -> dict[str, object]:
        return next(one for one in self.shop.ask("sites") if one["site"] == name)

    def until(self, condition: Callable[[], object], what: str) -> None:
        until(condition, what, story=self.story)

    def executors(self) -> list[int]:
        """Processes of ours in jobs of the cluster."""
        mark = f"SLURM_CONF={self.cluster.conf}\0".encode()
        return [
            int(entry)
            for entry in os.listdir("/proc")
            if entry.isdecimal()
            and mark in read(f"/proc/{entry}/environ") + b"\0"
            and b"bough.executor" in read(f"/proc/{entry}/cmdline")
            and b"--pilot" in read(f"/proc/{entry}/cmdline")
        ]

    def is_clean(self) -> bool:
        return not self.cluster.jobs() and not self.executors()

    def clean_up(self) -> None:
        self.shop.clean_up()
        self.cluster.stop()
        if self.host is not None:
            self.host.cut()
            for pid in self.host.processes():
                os.kill(pid, 9)


@pytest.fixture
def batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[BatchShop]:
    need_slurm()
    folder = tmp_path / "w"
    folder.mkdir()
    monkeypatch.chdir(folder)
    shop = BatchShop(folder, monkeypatch)
    yield shop
    shop.clean_up()
    opened_sessions.clear()


def test_slurm_here_gives_results_and_keeps_nothing(batch: BatchShop) -> None:
    batch.start()
    batch.bough("site", "add", "alpha", "--batch", "slurm", "--partition", "main", *_QUICK)
    said = batch.bough("site", "test", "alpha")
    assert [line.split()[:2] for line in said.splitlines()[:-1]] == [
        ["ok", step]
        for step in ("reach", "python", "space", "clock", "bootstrap", "batch", "tunnel", "relay", "task", "end")
    ]
    with bough.Session(batch.shop.address, name="first") as session:
        task = session.command("echo $SLURM_JOB_NAME $SLURM_CPUS_PER_TASK")
        name, cores = task.result(PATIENCE).stdout.split()
        assert name.startswith("bough-")
        assert cores == "1"
        assert session.submit(pow, 2, 10).result(PATIENCE) == 1024
    [entry] = batch.shop.entries()
    assert time.time() < entry["until"] <= time.time() + 600
    assert "partition: main" in batch.bough("site", "show", "alpha")
    batch.bough("site", "remove", "alpha")
    batch.until(batch.is_clean, "the job to end")


def test_slurm_behind_ssh_gives_results_and_keeps_nothing(batch: BatchShop) -> None:
    need_sshd()
    host = batch.behind_ssh()
    batch.start()
    batch.bough(
        "site", "add", "alpha", "--ssh", "alpha", "--batch", "slurm", "--setup", "export FROM_SETUP=yes", *_QUICK
    )
    with bough.Session(batch.shop.address, name="first") as session:
        task = session.command("echo $FROM_SETUP $BOUGH_TEST_HOST")
        assert task.result(PATIENCE).stdout.split() == ["yes", str(host.folder)]
    batch.bough("site", "remove", "alpha")
    batch.until(batch.is_clean, "the job to end")
    assert not list(host.home.rglob("access.json"))


def test_a_job_that_is_cancelled_behind_our_back_costs_its_running_task_only(batch: BatchShop) -> None:
    batch.start()
    batch.bough("site", "add", "alpha", "--batch", "slurm", *_QUICK)
    notes, gate = batch.folder / "notes", batch.folder / "gate"
    with bough.Session(batch.shop.address, name="scancel") as session:
        task = session.command(f"echo $SLURM_JOB_ID >> {notes}; while [ ! -e {gate} ]; do sleep 0.05; done")
        batch.until(notes.exists, "the task to begin")
        [job] = batch.cluster.jobs()
        batch.cluster.says("scancel", job)
        batch.until(lambda: len(notes.read_text().split()) == 2, "another pilot to run the task")
        gate.touch()
        assert task.result(PATIENCE).returncode == 0
    first, second = notes.read_text().split()
    assert first == job != second
    batch.bough("site", "remove", "alpha")
    batch.until(batch.is_clean, "the job to end")


def test_a_job_that_is_cancelled_while_it_waits_is_asked_for_again(batch: BatchShop) -> None:
    batch.start()
    batch.cluster.says("scontrol", "update", "NodeName=a1", "State=DRAIN", "Reason=test")
    batch.bough("site", "add", "alpha", "--batch", "slurm", *_QUICK)
    with bough.Session(batch.shop.address, name="waits") as session:
        task = session.command("true")
        batch.until(batch.cluster.jobs, "a job that waits")
        batch.cluster.says("scancel", *batch.cluster.jobs())
        batch.until(lambda: "it was cancelled" in "".join(task.explain()), "explain to say what became of it")
        batch.cluster.says("scontrol", "update", "NodeName=a1", "State=RESUME")
        assert task.result(PATIENCE).returncode == 0
    batch.bough("site", "remove", "alpha")
    batch.until(batch.is_clean, "the job to end")


def test_what_slurm_refuses_is_told_in_its_own_words(batch: BatchShop) -> None:
    batch.start()
    batch.bough("site", "add", "alpha", "--batch", "slurm", "--partition", "nowhere", *_QUICK)
    said = batch.bough("site", "test", "alpha", code=3)
    assert "slurm: sbatch: error: Batch job submission failed: Invalid partition name specified" in said
    batch.bough("site", "remove", "alpha")
    (batch.folder / "sites.toml").write_text('[alpha]\nbatch = "lsf"\ncores_per_pilot = 1\nwalltime = "2h"\n')
    batch.bough("site", "add", "--file", "sites.toml")
    assert "there is no bsub on this machine: is its batch system lsf?" in batch.bough("site", "test", "alpha", code=3)
    batch.bough("site", "remove", "alpha")
    assert "partition" in batch.bough("site", "add", "x", "--batch", "slurm", "--partition", "a;b", code=2)
    assert "say --cores-per-pilot" in batch.bough("site", "add", "x", "--batch", "sge", code=2)
    assert batch.shop.ask("sites") == []
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
2) accept "$@"; echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1 ;;
3) accept "$@"; sleep 600 ;;  # it never answers
4) accept "$@"; exit 0 ;;  # it says nothing
5) sleep 600 ;;  # it never answers, and has not been heard
6) accept "$@"; echo "sbatch: error: something unheard of" >&2; exit 7 ;;
*) accept "$@"; echo "$out" ;;
esac
"""


def test_no_pilot_is_lost_or_doubled_when_sbatch_errs_or_does_not_answer(batch: BatchShop) -> None:
    script = batch.cluster.bin / "sbatch"
    script.write_text(FAULTS.replace("@SBATCH@", str(shutil.which("sbatch", path="/usr/bin:/usr/local/bin"))))
    script.chmod(0o755)
    batch.start()
    batch.bough(
        *("site", "add", "alpha", "--batch", "slurm", "--max-pilots", "8", "--idle", "0.5s", "--patience", "2s"),
        *_QUICK,
    )
    with bough.Session(batch.shop.address, name="faults") as session:
        tasks = [session.command(f"sleep 0.5; echo {number}") for number in range(12)]
        assert [int(task.result(PATIENCE).stdout) for task in tasks] == list(range(12))
        accepted = batch.cluster.bin / "accepted"
        batch.until(lambda: len(accepted.read_text().split()) >= 8, "all pilots to be accepted")
    names = accepted.read_text().split()
    assert len(names) == len(set(names)), "a pilot was submitted twice"
    calls = (batch.cluster.bin / "calls").read_text().splitlines()
    assert len(calls) == len(names) + 2, "what was not heard was not submitted again, or more was"
    batch.until(lambda: not batch.site()["pilots"], "idle pilots to end")
    assert batch.is_clean()
    assert "failed" not in batch.story()
