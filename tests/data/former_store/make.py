"""Make the stores that `tests/integration/test_former_store.py` opens: `python make.py`, with an older Bough.

It was run with the version that `made_with.txt` names. It is not run with the version under test: that would test
nothing. To make the stores anew, check that version out and run this script with its Python; `embedded.tar.gz`,
`served.tar.gz` and `made_with.txt` beside it are overwritten.

* `embedded.tar.gz`: the directory of `embedded.py`, whose session was killed while its last task ran.
* `served.tar.gz`: the directory of a service that was killed with tasks of `served.py` done, running and queued.

Rule: the archives serve wherever they are unpacked. A store holds absolute paths of its own files and of declared
outputs. Here they all begin with `/proc/self/cwd`, so every process that uses them must be in the directory that was
unpacked. The one exception is the directory that a client tells a service. It is gone when this script ends, so later
executors run the commands of that workflow in sandboxes.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import bough

BESIDE = Path(__file__).resolve().parent
SOURCE = Path(bough.__file__).resolve().parent.parent  # by way of a link, so that no traceback says where it is
HERE = "/proc/self/cwd"
DEADLINE = 60.0  # seconds
SCRIPTS = ("embedded.py", "served.py")  # they are beside the archives
LEFT_OUT = (".sock", ".pyc", "seen.json", "-shm", "/src", *SCRIPTS)


def main() -> None:
    """Make all of it."""
    for make in (make_embedded, make_served):
        folder = Path(tempfile.mkdtemp(prefix="former-"))
        (folder / "src").symlink_to(SOURCE)
        try:
            pack(folder, make(folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=BESIDE, capture_output=True, text=True, check=True)
    python = ".".join(platform.python_version_tuple()[:2])
    lines = [f"bough {bough.__version__}", f"commit {commit.stdout.strip()}", f"python {python}"]
    (BESIDE / "made_with.txt").write_text("\n".join(lines) + "\n")


def make_embedded(folder: Path) -> str:
    """A session that is killed when all of its tasks but the last have ended."""
    shutil.copy(BESIDE / "embedded.py", folder)
    script = start(folder, [sys.executable, f"{HERE}/embedded.py"])
    until(lambda: (folder / "seen.json").exists() or script.poll(), "the script's tasks")
    note = folder / ".bough" / "former" / "server.json"
    server = json.loads(note.read_bytes())["pid"]
    time.sleep(1.0)  # the last task begins, and the jobs database gets what the journal has
    kill(server)
    kill(script.pid)
    script.wait()
    time.sleep(1.0)  # the executor notices, ends its task and goes
    return "embedded"


def make_served(folder: Path) -> str:
    """A service, with a snapshot, that is killed with its executor when the first part of a workflow has ended."""
    shutil.copy(BESIDE / "served.py", folder)
    server = start_server(folder)
    executor = start(folder, [*BOUGH, "executor", "start", "--cores", "1"])
    address = f"unix:{HERE}/home/server/server.sock"
    start(folder, [sys.executable, f"{HERE}/served.py", address, "leave"]).wait(DEADLINE)
    server.terminate()  # it saves a snapshot, and the executor goes on
    server.wait(DEADLINE)
    server = start_server(folder)
    more = ["--queue", "extra", "--array", "1-4", "--", 'echo extra >> "$FORMER_RAN"; echo extra {index}']
    start(folder, [*BOUGH, "submit", *more]).wait(DEADLINE)
    time.sleep(2.0)  # the executor comes back, and the jobs database gets what the journal has
    for process in (server, executor):
        kill(process.pid)
        process.wait()
    return "served"


BOUGH = [sys.executable, "-m", "bough.cli.main"]


def start_server(folder: Path) -> subprocess.Popen[bytes]:
    """A server that answers."""
    note = folder / "home" / "server" / "server.json"
    server = start(folder, [*BOUGH, "server", "start"])
    until(lambda: server.poll() or (note.exists() and json.loads(note.read_bytes())["pid"] == server.pid), "the server")
    return server


def start(folder: Path, words: list[str]) -> subprocess.Popen[bytes]:
    """Start a process in a folder, in a session of its own."""
    environment = {**os.environ, "BOUGH_HOME": f"{HERE}/home", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("BOUGH_SERVER", None)
    environment["PYTHONPATH"] = f"{HERE}/src"
    environment |= {"FORMER_RAN": str(folder / "ran.txt"), "FORMER_GO": str(folder / "go")}
    return subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)


def kill(pid: int) -> None:
    """End a process as a crash would."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that must come."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.02)


def pack(folder: Path, name: str) -> None:
    """Pack what a store was made in, without sockets and without the owner's name."""

    def cleaned(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return None if entry.name.endswith(LEFT_OUT) or "__pycache__" in entry.name else entry

    with tarfile.open(BESIDE / f"{name}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.add(folder, name, filter=cleaned)


if __name__ == "__main__":
    main()
