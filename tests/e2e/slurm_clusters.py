"""Slurm clusters of our own on this machine, as many as a test wants side by side: munged, slurmctld, slurmds.

Rule: everything lies in one folder and is started and ended by its own process number; a cluster is chosen by
`SLURM_CONF`; when a cluster is stopped no job of it is left.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from processes import PATIENCE, free_port, is_alive, read, until

_PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scancel", "sinfo")


def need_slurm() -> None:
    """Skip, aloud, where there is none."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"Slurm is not installed ({missing[0]}): apt-get install slurm-wlm munge slurm-client")
    if os.geteuid():
        pytest.skip("daemons of a Slurm of our own need to be started by root")


class SlurmCluster:
    """`nodes` nodes of `cpus` declared processors each, one partition called main."""

    def __init__(self, name: str, nodes: int, cpus: int, more: str = "") -> None:
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix=f"bough-slurm-{name}-"))  # munged wants folders that all may enter
        self.bin = self.folder / "bin"
        for part in ("state", "log", "run", "etc", "bin"):
            (self.folder / part).mkdir(parents=True)
        self.conf = self.folder / "etc" / "slurm.conf"
        self.nodes = [f"{name[0]}{number}" for number in range(1, nodes + 1)]
        key = self.folder / "etc" / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        for place in (self.folder, self.folder / "run", self.folder / "etc"):
            place.chmod(0o755)
        self.socket = self.folder / "run" / "munge.sock"
        self._write_conf(cpus, more)
        self.pids: list[int] = []
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        self._start()

    def _write_conf(self, cpus: int, more: str) -> None:
        place = self.folder
        lines = [
            f"ClusterName={self.name}",
            "SlurmctldHost=localhost(127.0.0.1)",
            f"SlurmctldPort={free_port()}",
            "SlurmUser=root",
            "SlurmdUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={self.socket}",
            "CredType=cred/munge",
            f"StateSaveLocation={place}/state",
            f"SlurmctldPidFile={place}/run/slurmctld.pid",
            f"SlurmctldLogFile={place}/log/slurmctld.log",
            f"SlurmdSpoolDir={place}/spool.%n",
            f"SlurmdPidFile={place}/run/slurmd.%n.pid",
            f"SlurmdLogFile={place}/log/slurmd.%n.log",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "ReturnToService=2",
            "SchedulerType=sched/backfill",
            "SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "SlurmdParameters=config_overrides",
            "MaxJobCount=20000",
            "MinJobAge=5",
            "InactiveLimit=0",
            "KillWait=5",
            "SlurmctldTimeout=60",
            "SlurmdTimeout=60",
            *more.splitlines(),
        ]
        for node in self.nodes:
            lines.append(
                f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={free_port()} CPUs={cpus}"
                f" CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory=1000 State=UNKNOWN"
            )
            (place / f"spool.{node}").mkdir()
        lines.append(f"PartitionName=main Nodes={','.join(self.nodes)} Default=YES MaxTime=INFINITE State=UP")
        self.conf.write_text("\n".join(lines) + "\n")

    def _start(self) -> None:
        run, log = self.folder / "run", self.folder / "log"
        self._daemon(
            "munged",
            f"--key-file={self.folder}/etc/munge.key",
            f"--socket={self.socket}",
            f"--pid-file={run}/munged.pid",
            f"--log-file={log}/munged.log",
            f"--seed-file={run}/munged.seed",
            "--num-threads=2",
            pid=run / "munged.pid",
        )
        self._daemon("slurmctld", "-f", str(self.conf), pid=run / "slurmctld.pid")
        for node in self.nodes:
            self.start_node(node)
        until(
            lambda: self.says("sinfo", "-h", "-t", "idle", "-o", "%D") == str(len(self.nodes)),
            "nodes",
            story=self.story,
        )

    def restart_controller(self, **settings: object) -> None:
        """End slurmctld, and start it with other settings; jobs and nodes stay."""
        note = self.folder / "run" / "slurmctld.pid"
        pid = int(read(str(note)))
        os.kill(pid, signal.SIGTERM)
        until(lambda: not is_alive(pid), "slurmctld to end", story=self.story)
        note.unlink(missing_ok=True)
        names = tuple(f"{name}=" for name in settings)
        lines = [line for line in self.conf.read_text().splitlines() if not line.startswith(names)]
        self.conf.write_text("\n".join([*(f"{name}={value}" for name, value in settings.items()), *lines]) + "\n")
        place = self.pids.index(pid)
        self._daemon("slurmctld", "-f", str(self.conf), pid=note)
        self.pids[place] = self.pids.pop()

    def start_node(self, node: str) -> None:
        """Let a node take jobs, or again after it was killed."""
        self._daemon("slurmd", "-f", str(self.conf), "-N", node, pid=self.folder / "run" / f"slurmd.{node}.pid")

    def kill_node(self, node: str) -> None:
        """A node dies; what ran there goes on without it."""
        note = self.folder / "run" / f"slurmd.{node}.pid"
        os.kill(int(read(str(note))), signal.SIGKILL)
        note.unlink()

    def _daemon(self, *words: str, pid: Path) -> None:
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stderr
        until(lambda: read(str(pid)).strip(), words[0], story=self.story)
        self.pids.append(int(read(str(pid))))

    def says(self, *words: str) -> str:
        """What a command of Slurm says about this cluster."""
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        return done.stdout.strip()

    def jobs(self) -> list[str]:
        """The numbers of jobs that wait or run."""
        return self.says("squeue", "-h", "-o", "%i").split()

    def names(self) -> list[str]:
        """The names of jobs that wait or run."""
        return self.says("squeue", "-h", "-o", "%j").split()

    def story(self) -> str:
        """What its daemons have to say, for a test that fails."""
        logs = sorted((self.folder / "log").glob("*.log"))
        parts = [f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:]) for log in logs]
        return "\n".join([self.says("squeue"), *parts])

    def stop(self) -> None:
        """End its jobs and daemons; once is enough."""
        if not self.pids:
            return
        for node in self.nodes:  # Slurm learns of a killed one what became of the jobs there
            if not (self.folder / "run" / f"slurmd.{node}.pid").exists():
                self.start_node(node)
        if self.jobs():
            self.says("scancel", "-Q", *self.jobs())
            until(lambda: not self.jobs(), "jobs to end", story=self.story)
        for pid in reversed(self.pids):
            if is_alive(pid):
                os.kill(pid, signal.SIGTERM)
                until(lambda pid=pid: not is_alive(pid), "a daemon to end")  # type: ignore[misc]
        self.pids.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
