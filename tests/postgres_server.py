"""A real PostgreSQL server for tests: its own data folder, a Unix socket, nobody else's business."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import pytest

DEADLINE = 60.0


def programs() -> Path | None:
    """Where initdb and postgres are; Debian keeps them off the PATH."""
    found = shutil.which("initdb")
    places = [found, *sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)]
    return next((Path(place).parent for place in places if place), None)


class PostgresServer:
    """One server; `url` names a schema of its database."""

    def __init__(self) -> None:
        found = programs()
        if found is None:
            pytest.skip("initdb is not installed; on Debian and Ubuntu: apt-get install postgresql")
        self.programs = found
        self.folder = Path(tempfile.mkdtemp(prefix="bough-pg-"))
        self.as_user: dict[str, object] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = pwd.getpwnam("postgres" if _is_user("postgres") else "nobody")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self.as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        made = self._run("initdb", "-D", str(self.folder / "data"), "-A", "trust", "-U", "bough", "-E", "UTF8",
                         "--locale=C", "--no-sync")  # fmt: skip
        assert made.returncode == 0, made.stdout.decode()
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def url(self, schema: str = "bough") -> str:
        return f"postgresql://bough@/postgres?host={quote(str(self.folder), safe='')}&options=-csearch_path%3D{schema}"

    def start(self) -> None:
        command = [str(self.programs / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder)]
        command += [
            "-c",
            "fsync=off",
        ]  # only the database dies here, never the machine; a recovery would sync all files
        for setting in ("listen_addresses=", "wal_writer_delay=10s", "autovacuum=off", "shared_buffers=32MB"):
            command += ["-c", setting]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **self.as_user)
        deadline = time.monotonic() + DEADLINE
        while not self._answers():
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.05)

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url()).close()
        except psycopg.OperationalError:
            return False
        return True

    def end(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: an orderly end. SIGQUIT: as if it crashed, without writing what it still had in memory."""
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(DEADLINE)
        self.process = None

    def remove(self) -> None:
        if self.process is not None:
            self.end()
        shutil.rmtree(self.folder)

    def _run(self, program: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        command = [str(self.programs / program), *words]
        return subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, cwd=self.folder, **self.as_user
        )


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
