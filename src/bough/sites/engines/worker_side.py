"""What runs on a worker of a Dask or Ray cluster: a pilot, which is an executor as a child of the worker, and errands.

It travels by value, so a worker needs nothing of ours; folders, archives and notes of pilots are those of `far_side`,
whose text comes along. Rules: the standard library only, but for the engine that calls; a pilot ends with its worker;
what a call carries is secret, so its text shows nothing; what goes wrong is said, not raised: engines write arguments
of calls that raise into their logs.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_UNIX = "unix:"
_LOOK = 0.5  # seconds between two looks at whether the worker is to end
_CONNECTED = 5.0  # seconds for a connection
_ENDING = 8.0  # seconds that an executor has to end in good order
_REMEMBERED = 300.0  # seconds for which the last words of a pilot are kept


class Call:
    """What a call carries. `ways`: addresses of the server and the access file for each, the best first."""

    def __init__(self, far_side: str, request: dict[str, Any], ways: list[list[str]], archive: bytes = b"") -> None:
        self.far_side = far_side
        self.request = request
        self.ways = ways
        self.archive = archive

    def __repr__(self) -> str:
        return "<a call of Bough>"


def boot_id() -> str:
    """Tells one machine, as it was started, from others; empty: not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(100).strip()
    except OSError:
        return ""


def look(call: Call) -> dict[str, Any]:
    """What kind of place a worker is, and by which address it reaches the server."""
    far = _far(call)
    try:
        found: dict[str, Any] = far["look"](call.request)
    except (far["Trouble"], OSError) as error:
        return {"trouble": f"{socket.gethostname()}: {error}"}
    way = _way(call)
    return {**found, "host": socket.gethostname(), "way": way[0] if way else ""}


def run_pilot(call: Call, is_over: Callable[[], bool]) -> str:
    """Run an executor until it ends, or until the worker is to end; its last words."""
    far = _far(call)
    try:
        process, folder = _start(call, far)
    except (far["Trouble"], OSError) as error:
        return f"{socket.gethostname()}: {error}"
    asked = 0.0
    while True:
        try:
            process.wait(_LOOK)
            break
        except subprocess.TimeoutExpired:
            if asked and time.monotonic() > asked + _ENDING:
                process.kill()
            elif not asked and (is_over() or os.path.exists(_mark(call, far, call.request["pilot"]))):
                asked = time.monotonic()
                process.terminate()
    words = str(far["_last_words"](folder))
    shutil.rmtree(folder, ignore_errors=True)
    return words


def _start(call: Call, far: dict[str, Any]) -> tuple[subprocess.Popen[bytes], str]:
    request, trouble = call.request, far["Trouble"]
    if os.path.exists(_mark(call, far, request["pilot"])):
        raise trouble("it was cancelled before it began")
    tag = far["platform"](request["tag"])["tag"]
    if tag != request["platform"]:
        raise trouble(f"the Python of this worker is {tag}, that of another one was {request['platform']}")
    way = _way(call)
    if way is None:
        raise trouble(no_way(call))
    far["write_private"](os.path.join(far["site_folder"](request["key"]), "access.json"), way[1].encode())
    programs = far["program_folder"](request["digest"])
    with open(os.open(os.path.join(far["root"](), "install.lock"), os.O_RDWR | os.O_CREAT, 0o600), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers of this host begin at the same time
        if not far["is_installed"](request["digest"]):
            far["install"]({"digest": request["digest"], "size": len(call.archive)}, call.archive)
    folder = os.path.join(far["site_folder"](request["key"]), "pilots", str(int(request["pilot"])))
    os.makedirs(folder, mode=0o700, exist_ok=True)
    process = _spawn(request, far, programs, folder)
    note = {"pid": process.pid, "began": far["_began"](process.pid), "digest": request["digest"]}
    far["write_private"](os.path.join(folder, "pilot.json"), json.dumps({**note, "handle": str(process.pid)}).encode())
    return process, folder


def _spawn(request: dict[str, Any], far: dict[str, Any], programs: str, folder: str) -> subprocess.Popen[bytes]:
    begin = (
        f"import ctypes, os, sys; sys.path.insert(0, {programs!r}); ctypes.CDLL(None).prctl(1, 15, 0, 0, 0);"
        f" os.getppid() == {os.getpid()} or sys.exit('its worker has ended'); import runpy; {far['_BEGIN']}"
    )  # from here on it ends with the thread that waits for it, and so with the worker
    access = os.path.join(far["site_folder"](request["key"]), "access.json")
    argv = [sys.executable, "-c", begin, "--server", access, *request["words"]]
    if request["setup"]:
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        argv = [shell, "-l", "-c", request["setup"] + '\nexec "$@"', "bough", *argv]
    with open(os.path.join(folder, "log"), "ab") as log:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=request["shared_dir"] or os.path.expanduser("~"),
        )


def end_pilots(call: Call) -> None:
    """End the pilots of this host that are named, and keep those from beginning that have not."""
    far = _far(call)
    for pilot in call.request["pilots"]:
        far["write_private"](_mark(call, far, pilot), b"")
    far["cancel"](call.request)


def forget(call: Call) -> None:
    """Remove what is on this host of the site."""
    _far(call)["forget"](call.request)


def no_way(call: Call) -> str:
    """Why a worker cannot reach the server, and what to do about it."""
    listens = [address for address, _ in call.ways if not address.startswith(_UNIX)]
    if listens:
        return f"this worker reaches neither the server's socket nor {listens[0]}: is there a firewall between?"
    return (
        "this worker is not on the server's machine, and the server listens on its Unix sockets only:"
        " start it with bough server start --listen HOST:PORT"
    )


def _way(call: Call) -> tuple[str, str] | None:
    """An address by which the server is reached from here, with its access file."""
    for address, access in call.ways:
        if address.startswith(_UNIX):
            path = address.removeprefix(_UNIX)
            if boot_id() == call.request["boot"] and os.access(path, os.R_OK | os.W_OK):
                return address, access
        else:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), _CONNECTED).close()
            except OSError:
                continue
            return address, access
    return None


def _mark(call: Call, far: dict[str, Any], pilot: int) -> str:
    """There once a pilot was cancelled."""
    return os.path.join(far["site_folder"](call.request["key"]), f"cancelled-{int(pilot)}")


def _far(call: Call) -> dict[str, Any]:
    """The functions of `far_side`."""
    names: dict[str, Any] = {"__name__": "bough_far_side"}
    exec(compile(call.far_side, "bough_far_side", "exec"), names)
    return names


# --- as Dask and Ray call it ----------------------------------------------------------------------------


def dask_pilot(call: Call) -> str:
    """A task of Dask: it keeps one thread of its worker for as long as the pilot lives."""
    from distributed import get_worker

    worker = get_worker()
    return run_pilot(call, lambda: worker.status.name not in {"init", "running", "paused"})


async def dask_end_pilots(call: Call) -> None:
    """Called beside the tasks of a worker, in its event loop, which must not wait."""
    import asyncio

    await asyncio.get_running_loop().run_in_executor(None, end_pilots, call)


class RayPilot:
    """An actor of Ray: it keeps the processors that it was given for as long as the pilot lives."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._words = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._words = run_pilot(self._call, lambda: False)
        threading.Thread(target=self._leave, daemon=True).start()

    def _leave(self) -> None:
        """Nobody asked for its last words."""
        time.sleep(_REMEMBERED)
        os._exit(0)

    def status(self) -> list[Any]:
        """Whether it lives, and its last words."""
        return [self._thread.is_alive(), self._words]

    def end(self, call: Call) -> None:
        """End it, and wait for that."""
        end_pilots(call)
        self._thread.join(2 * _ENDING)
