"""A Grid Engine of our own on this machine, in namespaces of its own, because it wants a host name and an address.

Rule: everything lies in one folder and is started and ended by its own process number; its commands are reached by
wrappers in `bin`, which is all that a site has to have on its path.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from processes import PATIENCE, is_alive, until

_LIBRARY = Path("/usr/lib/gridengine")
_SHARE = Path("/usr/share/gridengine")
_BOOTSTRAP = Path("/var/lib/gridengine/default/common/bootstrap")
_HOST, _ADDRESS = "sgehost", "10.99.0.1"
_ENVIRONMENT_OF_CORES = """pe_name smp
slots 99
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule $pe_slots
control_slaves FALSE
job_is_first_task TRUE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""


def need_grid_engine() -> None:
    """Skip, aloud, where there is none."""
    if shutil.which("sge_qmaster") is None or shutil.which("sge_execd") is None or not _BOOTSTRAP.exists():
        pytest.skip("Grid Engine is not installed: apt-get install gridengine-master gridengine-exec gridengine-client")
    if os.geteuid():
        pytest.skip("a Grid Engine of our own needs to be started by root")


class GridEngineCluster:
    """One host with `slots` slots in the queue main.q."""

    def __init__(self, slots: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bough-sge-"))
        self.folder.chmod(0o755)
        self.bin = self.folder / "commands"
        self.environment = {
            **os.environ,
            "SGE_ROOT": str(self.folder),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": "6444",  # in a network of its own
            "SGE_EXECD_PORT": "6445",
            "SGE_ND": "1",
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lay_out()
        holder = (
            "hostname $0; mount --bind $1 /etc/hosts; ip link set lo up; ip addr add $2/32 dev lo; exec sleep 100000"
        )
        self._spawn(
            *("unshare", "-m", "-u", "-n", "bash", "-e", "-c", holder, _HOST, str(self.folder / "hosts"), _ADDRESS)
        )
        self._inside = ("nsenter", "-t", str(self._processes[0].pid), "-m", "-u", "-n")
        try:
            until(lambda: _ADDRESS in self.says("ip", "-o", "address"), "a host of its own", story=self.story)
            self._start(slots)
        except BaseException:
            self.stop()
            raise
        self._make_commands()

    def _lay_out(self) -> None:
        common = self.folder / "default" / "common"
        for place in (common, *(self.folder / "spool" / name for name in ("qmaster", "execd", "db")), self.bin):
            place.mkdir(parents=True)
        for name in ("bin", "lib", "util", "utilbin"):
            (self.folder / name).symlink_to(f"/var/lib/gridengine/{name}")
        spool = str(self.folder / "spool")
        text = _BOOTSTRAP.read_text().replace("/var/spool/gridengine/spooldb", f"{spool}/db")
        (common / "bootstrap").write_text(text.replace("/var/spool/gridengine", spool))
        (common / "act_qmaster").write_text(f"{_HOST}\n")
        settings = {"execd_spool_dir": f"{spool}/execd", "min_uid": "0", "min_gid": "0", "load_report_time": "00:00:01"}
        lines = (_SHARE / "default-configuration").read_text().splitlines()
        (self.folder / "configuration").write_text(
            "\n".join(
                f"{word} {settings[word]}" if (word := line.split(" ")[0]) in settings else line for line in lines
            )
            + "\n"
        )
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{_ADDRESS} {_HOST}\n")
        for path in (self.folder, *self.folder.rglob("*")):
            shutil.chown(path, "sgeadmin") if not path.is_symlink() else None

    def _start(self, slots: int) -> None:
        resources = _SHARE / "util" / "resources"
        self._as_admin(_LIBRARY / "spoolinit", "berkeleydb", "libspoolb", self.folder / "spool" / "db", "init")
        self._as_admin(_LIBRARY / "spooldefaults", "configuration", self.folder / "configuration")
        self._as_admin(_LIBRARY / "spooldefaults", "complexes", resources / "centry")
        self._as_admin(_LIBRARY / "spooldefaults", "usersets", resources / "usersets")
        self._as_admin(_LIBRARY / "spooldefaults", "managers", "sgeadmin")
        self._spawn(*self._inside, "sge_qmaster")
        until(lambda: self.says("qconf", "-sh") == _HOST, "the qmaster", story=self.story)
        self.says("qconf", "-as", _HOST)
        self._add("-Ahgrp", f"group_name @allhosts\nhostlist {_HOST}\n")
        self._add("-Ap", _ENVIRONMENT_OF_CORES)
        self._spawn(*self._inside, "sge_execd")
        until(lambda: _HOST in self.says("qconf", "-sel"), "the execd", story=self.story)
        queue = {"qname": "main.q", "hostlist": "@allhosts", "slots": str(slots), "pe_list": "smp"}
        queue |= {"load_thresholds": "NONE", "notify": "00:00:10"}
        self._add("-Aq", _changed(self.says("qconf", "-sq"), queue))
        quick = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}
        self._add("-Msconf", _changed(self.says("qconf", "-ssconf"), quick))
        until(lambda: "main.q@" in self.says("qstat", "-f"), "the queue", story=self.story)

    def _add(self, option: str, text: str) -> None:
        path = self.folder / "added"
        path.write_text(text)
        done = self._run(*self._inside, "qconf", option, str(path))
        assert done.returncode == 0, done.stdout + done.stderr

    def _as_admin(self, *words: object) -> None:
        done = self._run(
            *self._inside,
            *("setpriv", "--reuid", "sgeadmin", "--regid", "sgeadmin", "--clear-groups"),
            *map(str, words),
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _make_commands(self) -> None:
        exports = "".join(
            f"export {name}={self.environment[name]}\n" for name in self.environment if name.startswith("SGE_")
        )
        for name in ("qsub", "qstat", "qdel"):
            path = self.bin / name
            path.write_text(f'#!/bin/sh\n{exports}exec {" ".join(self._inside)} /usr/bin/{name} "$@"\n')
            path.chmod(0o755)

    def _spawn(self, *words: str) -> None:
        with open(self.folder / "daemons.log", "ab") as log:
            self._processes.append(
                subprocess.Popen(
                    words,
                    env=self.environment,
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env=self.environment, cwd="/", capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def says(self, *words: str) -> str:
        """What a command says, run where the cluster is."""
        return self._run(*self._inside, *words).stdout.strip()

    def jobs(self) -> list[str]:
        """The numbers of jobs that wait or run."""
        return [line.split()[0] for line in self.says("qstat").splitlines()[2:]]

    def story(self) -> str:
        """What its daemons have to say, for a test that fails."""
        logs = [self.folder / "daemons.log", *(self.folder / "spool").rglob("messages")]
        return "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-2000:]}" for log in logs if log.exists())

    def stop(self) -> None:
        """End its jobs and daemons; once is enough."""
        if not self._processes:
            return
        if self.jobs():
            self.says("qdel", "-f", *self.jobs())
            until(lambda: not self.jobs(), "jobs to end", story=self.story)
        for process in reversed(self._processes):
            if is_alive(process.pid):
                os.kill(process.pid, signal.SIGKILL)  # it takes seconds to end otherwise, and nothing of it is kept
            process.wait(PATIENCE)
        self._processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)


def _changed(text: str, values: dict[str, str]) -> str:
    """A text of `qconf` with other values; long lines are continued, which is joined first."""
    lines = text.replace("\\\n", " ").splitlines()
    return "\n".join(f"{w} {values[w]}" if (w := line.split(" ")[0]) in values else line for line in lines) + "\n"
