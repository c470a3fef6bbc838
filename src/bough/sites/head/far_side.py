"""The errand on the host that pilots are started from: sent there as text, it does one thing and says what came of it.

It reads a request, one line of JSON, and what follows it from stdin, and answers with one marked line of JSON, so that
what a login script prints does no harm. Rules: the standard library only, because nothing of ours may be there yet;
nothing is believed to be private that belongs to somebody else; a pilot that was started before is found by its number,
and the relay of a site by its host: a site whose name leads to several hosts has a folder that they share.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import io
import json
import os
import random
import re
import selectors
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import tarfile
import time
from typing import Any

MARK = "bough-answer:"
_LONGEST_SOCKET = 100
_LAST_WORDS = 2000  # bytes of a log
_BEGIN = "runpy.run_module('bough.executor', None, '__main__')"
_ALWAYS = {"SBATCH_NO_REQUEUE": "1"}  # a pilot whose node fails is lost; another one is asked for
_FRESH = 3600.0  # seconds for which a program stays that no pilot uses, and a folder that holds no living socket
_MOST_SWEPT = 200  # folders that are looked at, in a tenth of a second
_MOST_SOCKETS = 100  # in one of them
_ENDING = 8.0  # seconds that a pilot has to end in good order
_RELAY = "runpy.run_module('bough.cli.main', None, '__main__')"
_LISTENS = 15.0  # seconds that a relay has to begin
_LINKED = 3.0  # seconds that are waited for it to find the server
_PIECE = 1 << 20
_SETTLED = 2_000_000_000  # nanoseconds after which a file that is written again has another time
_NOTED = 2.0  # seconds after which a relay's note says what is so: it looks every second


class Trouble(Exception):
    """Something that the user must know of."""


def private_folder(path: str) -> str:
    """A folder of our own, closed to others."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise Trouble(f"{path} there is not a folder of your own: remove it")
    if status.st_mode & 0o077:
        os.chmod(path, 0o700)
    return path


def root() -> str:
    """The user's cache of ours."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return private_folder(os.path.join(cache, "bough"))


def site_folder(key: str) -> str:
    """What belongs to one site of one server."""
    private_folder(os.path.join(root(), "sites"))
    return private_folder(os.path.join(root(), "sites", key))


def pilot_folder(key: str, pilot: int | str) -> str:
    """What belongs to one pilot."""
    return os.path.join(site_folder(key), "pilots", str(int(pilot)))


def socket_place(key: str) -> str:
    """Where executors find the way to the server."""
    path = os.path.join(site_folder(key), "server")
    if len(os.fsencode(path)) < _LONGEST_SOCKET:
        return path
    folder = f"/tmp/bough-{os.geteuid()}-{key[:16]}"
    if not os.path.isdir(folder):
        sweep_sockets("/tmp")  # whoever makes one looks for those that were left
    return os.path.join(private_folder(folder), "server")


def sweep_sockets(place: str) -> None:
    """Remove folders for sockets, of this user, that a server or a tunnel has left.

    Such a folder holds nothing but sockets that nobody answers at, no process has its lock, and nothing in it has
    changed for a while: one that was made just now has no socket yet.
    """
    mark = re.compile(rf"bough-(?:{os.geteuid()}-)?[0-9a-f]{{16}}")
    try:
        names = [name for name in os.listdir(place) if mark.fullmatch(name)]
    except OSError:
        return
    random.shuffle(names)  # so that those that stay are in nobody's way for ever
    for name in names[:_MOST_SWEPT]:
        with contextlib.suppress(OSError):
            _sweep_folder(os.path.join(place, name))


def _sweep_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mtime > time.time() - _FRESH:
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        names = os.listdir(descriptor)
        if len(names) <= _MOST_SOCKETS and all(_is_dead_socket(os.path.join(path, name)) for name in names):
            for name in names:
                os.unlink(name, dir_fd=descriptor)
            os.rmdir(path)
    finally:
        os.close(descriptor)


def _is_dead_socket(path: str) -> bool:
    """Whether it is a socket, and nobody answers at it."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:  # it is there, and busy
            return False
    return False


def program_folder(digest: str) -> str:
    """Where the archive of this content is unpacked."""
    private_folder(os.path.join(root(), "programs"))
    return os.path.join(root(), "programs", digest)


def write_private(path: str, data: bytes) -> None:
    """A file of mode 0600, there complete or not at all."""
    hidden = f"{path}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(hidden)
    with open(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    os.replace(hidden, path)


# --- what can be asked for ------------------------------------------------------------------------------


def look(request: dict[str, Any]) -> dict[str, Any]:
    """What kind of place this is."""
    folder = site_folder(request["key"])
    space = shutil.disk_usage(request["shared_dir"] or folder)
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        **platform(request.get("tag", "")),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "time": time.time(),
        "free": space.free,
        "folder": folder,
        "socket": socket_place(request["key"]),
        "installed": is_installed(request["digest"]),
    }


def is_installed(digest: str) -> bool:
    """Whether the archive of this content is unpacked; from now on it stays for a while."""
    try:
        os.utime(os.path.join(program_folder(digest), "complete"))
    except OSError:
        return False
    return True


def platform(known: str) -> dict[str, str]:
    """What extension modules must be made for; if that is not what is known, also whether msgspec is installed."""
    tag = sysconfig.get_config_var("SOABI") or ""
    libc = version = ""
    with contextlib.suppress(OSError, ValueError):  # it is not glibc
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    if tag != known:
        try:
            import msgspec

            version = str(msgspec.__version__)
        except Exception:  # noqa: BLE001 -- whatever is wrong with it: it is of no use
            version = ""
    return {"tag": tag, "system": sysconfig.get_platform(), "libc": libc, "msgspec": version}


def install(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Unpack the archive, and remove those that no pilot uses."""
    digest = request["digest"]
    if hashlib.sha256(data).hexdigest() != digest:
        raise Trouble(f"the archive arrived damaged: {len(data)} bytes of {request['size']}; try again")
    folder = program_folder(digest)
    if not os.path.exists(os.path.join(folder, "complete")):
        hidden = f"{folder}.{os.getpid()}"
        os.mkdir(hidden, 0o700)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extractall(hidden, filter="data")
            else:
                archive.extractall(hidden)
        with open(os.path.join(hidden, "complete"), "w", encoding="ascii"):
            pass
        if not os.path.exists(os.path.join(folder, "complete")):
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # somebody else was faster
            os.rename(hidden, folder)
        shutil.rmtree(hidden, ignore_errors=True)
    _remove_unused(digest)
    return {}


def _remove_unused(digest: str) -> None:
    used = {digest}
    sites = os.path.join(root(), "sites")
    for key in os.listdir(sites):
        for _, note in _notes(os.path.join(sites, key)):
            if _is_alive(note):
                used.add(note["digest"])
        used.update(note["digest"] for note in _relay_notes(os.path.join(sites, key)))
    programs = os.path.join(root(), "programs")
    for name in os.listdir(programs):
        if name.partition(".")[0] not in used and not _is_fresh(os.path.join(programs, name)):
            shutil.rmtree(os.path.join(programs, name), ignore_errors=True)


def _is_fresh(folder: str) -> bool:
    """Whether a program was looked at a short while ago: somebody is about to use it."""
    try:
        return os.stat(os.path.join(folder, "complete")).st_mtime > time.time() - _FRESH
    except OSError:
        return False


def prepare(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Make way for the tunnel, and keep the access file, which arrives behind the request."""
    path = socket_place(request["key"])
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # of a connection that was lost
    write_private(os.path.join(site_folder(request["key"]), "access.json"), data)
    return {"socket": path}


def start(request: dict[str, Any]) -> dict[str, Any]:
    """Start a pilot that goes on without us, unless it was started before."""
    folder = pilot_folder(request["key"], request["pilot"])
    note = _read_note(folder)
    if note is not None:
        return {"handle": note["handle"]}
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(os.path.join(folder, "log"), "ab") as log:
        process = subprocess.Popen(
            executor_argv(request),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=request["shared_dir"] or os.path.expanduser("~"),
        )
    process.returncode = 0  # it goes on without us: do not complain about that
    note = {"pid": process.pid, "began": _began(process.pid), "digest": request["digest"]}
    note["handle"] = f"{process.pid}"
    write_private(os.path.join(folder, "pilot.json"), json.dumps(note).encode())
    return {"handle": note["handle"]}


def executor_argv(request: dict[str, Any]) -> list[str]:
    """What starts the executor of a pilot, after its setup; words may be added at the end."""
    programs = program_folder(request["digest"])
    access = request.get("access") or os.path.join(site_folder(request["key"]), "access.json")
    argv = [sys.executable, "-c", _begin(programs, _BEGIN), "--server", access, *request["words"]]
    if request["setup"]:
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        argv = [shell, "-l", "-c", request["setup"] + '\nexec "$@"', "bough", *argv]
    return argv


def statuses(request: dict[str, Any]) -> dict[str, Any]:
    """Which pilots are there, and the last words of those that are not."""
    found = {}
    for pilot in request["pilots"]:
        folder = pilot_folder(request["key"], pilot)
        note = _read_note(folder)
        alive = note is not None and _is_alive(note)
        found[str(pilot)] = {"alive": alive, "reason": "" if alive else _last_words(folder)}
        if not alive:
            shutil.rmtree(folder, ignore_errors=True)
    return {"pilots": found, "relay": relay_state(request["key"])}


def cancel(request: dict[str, Any]) -> dict[str, Any]:
    """End pilots: they are told first, and killed if that takes too long; what they started goes, too."""
    folders = [pilot_folder(request["key"], pilot) for pilot in request["pilots"]]
    _end([note for note in map(_read_note, folders) if note is not None and _is_alive(note)])
    return {}


def _end(notes: list[dict[str, Any]]) -> None:
    """Have processes end: told first, killed with all of theirs if that takes too long."""
    for note in notes:
        _signal(note, signal.SIGTERM)
    until = time.monotonic() + _ENDING
    while any(map(_is_alive, notes)) and time.monotonic() < until:
        time.sleep(0.05)
    for note in filter(_is_alive, notes):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(note["pid"], signal.SIGKILL)


def relay(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Have a relay run here, for hosts that reach only this one; the access file that they use.

    The certificate and its key arrive behind the request. One that runs is found, unless it is of another program or
    was started with other words.
    """
    home = _relay_home(request["key"])
    note = _read_note(home, "note.json")
    if note is not None and _is_alive(note):
        if note["digest"] == request["digest"] and note["words"] == request["words"]:
            said = _read_note(os.path.join(home, "relay"), "relay.json")
            if said is not None and said["pid"] == note["pid"] and not said["linked"]:
                _signal(note, signal.SIGHUP)  # it pauses between its tries: there is a way again
            try:
                return _publish(request["key"], home, note)
            except Trouble:
                if _is_alive(note):
                    raise
        _end([note])
    _end_unnoted(home)
    private_folder(os.path.dirname(home))
    private_folder(home)
    folder = private_folder(os.path.join(home, "relay"))
    sent = json.loads(data)
    if not (os.path.exists(os.path.join(folder, "cert.pem")) and os.path.exists(os.path.join(folder, "key.pem"))):
        write_private(os.path.join(folder, "key.pem"), sent["key"].encode())
        write_private(os.path.join(folder, "cert.pem"), sent["certificate"].encode())
    server = os.path.join(site_folder(request["key"]), "access.json")
    begin = _begin(program_folder(request["digest"]), _RELAY)
    argv = [sys.executable, "-c", begin, "relay", "start", "--server", server, *request["words"]]
    with open(os.open(os.path.join(home, "log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=home,
            env={**os.environ, "BOUGH_HOME": home},
        )
    note = {"pid": process.pid, "began": _began(process.pid), "digest": request["digest"], "words": request["words"]}
    write_private(os.path.join(home, "note.json"), json.dumps(note).encode())
    return _publish(request["key"], home, note)


def _end_unnoted(home: str) -> None:
    """End a relay of which nobody took note, because the errand that started it was cut off: it has the lock."""
    try:
        with open(os.path.join(home, "relay", "lock"), "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                pid, host = file.read(500).decode("ascii", "replace").split()
                if host == socket.gethostname():
                    _end([{"pid": int(pid), "began": _began(int(pid))}])
    except (OSError, ValueError):
        return


def relay_state(key: str) -> str:
    """How the relay that was started on this host is: "alive", "dead", or empty if none was."""
    note = _read_note(_relay_home(key), "note.json")
    return "" if note is None else "alive" if _is_alive(note) else "dead"


def _publish(key: str, home: str, note: dict[str, Any]) -> dict[str, Any]:
    """Wait until a relay listens, and for a while until it has its server; tell hosts behind it where it is."""
    begun = time.monotonic()
    while True:
        said = _read_note(os.path.join(home, "relay"), "relay.json") or {"pid": 0}
        access = _read_note(os.path.join(home, "relay"), "access.json") or {}
        listens = said["pid"] == note["pid"] and access.get("address") == said["address"]
        waited = time.monotonic() - begun
        if listens and (said["linked"] or waited > _LINKED):
            break
        if not _is_alive(note):
            raise Trouble(f"the relay on {socket.gethostname()} ended: {_last_words(home) or 'without a word'}")
        if waited > _LISTENS:
            words = _last_words(home) or "it says nothing"
            raise Trouble(f"the relay on {socket.gethostname()} has not begun within {_LISTENS:g} s: {words}")
        time.sleep(0.02)
    assert access is not None
    server = _read_note(site_folder(key), "access.json")
    if server is not None:  # last: who is on this very host, and sees no network, sees the socket
        access["also"] = [*access.get("also", ()), server["address"]]
    path, data = os.path.join(site_folder(key), "nodes.json"), json.dumps(access).encode()
    if not _holds(path, data):
        write_private(path, data)
    return {"access": path, "address": said["address"], "linked": said["linked"]}


def _holds(path: str, data: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read() == data
    except OSError:
        return False


def end_relay(request: dict[str, Any]) -> dict[str, Any]:
    """End the relays of this site: the one on this host now, others when they miss their folder."""
    site = site_folder(request["key"])
    note = _read_note(_relay_home(request["key"]), "note.json")
    if note is not None and _is_alive(note):
        _end([note])
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(site, "nodes.json"))
    shutil.rmtree(os.path.join(site, "relays"), ignore_errors=True)
    return {}


def rest_relay(request: dict[str, Any]) -> dict[str, Any]:
    """End the relay on this host if nobody is behind it; the next one has its port and certificate."""
    home = _relay_home(request["key"])
    note = _read_note(home, "note.json")
    if note is None or _is_needed(home, note):
        return {}
    if _is_alive(note):
        _end([note])
    with contextlib.suppress(FileNotFoundError):  # it has not died: nobody shall start it again for that
        os.unlink(os.path.join(home, "note.json"))
    return {}


def _is_needed(home: str, note: dict[str, Any]) -> bool:
    """Whether executors are behind a relay. Its own word for that may be older than the last one's leaving."""
    deadline = time.monotonic() + _NOTED
    while _is_alive(note):
        said = _read_note(os.path.join(home, "relay"), "relay.json")
        if said is None or not said["connections"]:
            return False
        if time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    return False


def submit(request: dict[str, Any]) -> dict[str, Any]:
    """Give pilots to the batch system, one after the other, no faster than it wants, while there is time.

    One that was tried before is submitted only `again`: perhaps it was taken. The first that is not answered, or is
    told that the batch system is full or cannot be reached, ends it; those that had no turn are not in the answer.
    """
    begun, answers, is_over, due = time.monotonic(), {}, False, 0.0
    for job in request["jobs"]:
        folder = pilot_folder(request["key"], job["pilot"])
        note = _read_note(folder)
        if note is not None and not request["again"]:
            answers[str(job["pilot"])] = {"tried": max(0.0, time.time() - note["tried"])}
            continue
        if is_over or (due and max(due, time.monotonic()) > begun + request["seconds"]):
            continue
        time.sleep(max(0.0, due - time.monotonic()))
        due = time.monotonic() + request["gap"]
        try:
            did = _submit_one({**request, **job}, folder)
        except OSError as error:  # others may have been taken before
            did = {"trouble": str(error)}
        answers[str(job["pilot"])] = {"did": did}
        is_over = "code" not in did or bool(did["code"] and re.search(request["ends"], did["said"] + did["out"]))
    return {"pilots": answers}


def _submit_one(request: dict[str, Any], folder: str) -> dict[str, Any]:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    write_private(os.path.join(folder, "start"), start_text(request, folder).encode())
    write_private(os.path.join(folder, "job"), request["script"].encode())
    write_private(
        os.path.join(folder, "pilot.json"), json.dumps({"digest": request["digest"], "tried": time.time()}).encode()
    )
    script = os.path.join(folder, "job") if request["by_stdin"] else os.devnull
    return _command(request["submit"], request["limit"], script, request["waits"])


def start_text(request: dict[str, Any], folder: str) -> str:
    """What a job does: the first one of a pilot starts the executor, and tells it when the job ends."""
    lines = [
        f"if ! mkdir {shlex.quote(os.path.join(folder, 'begun'))}; then",
        "  echo 'another job of this pilot has begun'",
        "  exit 0",
        "fi",
        f"cd {shlex.quote(request['shared_dir'] or os.path.expanduser('~'))} || exit 1",
        f"end=$(( $(date +%s) + {int(request['walltime'])} ))",
        '[ "${SLURM_JOB_END_TIME:-$end}" -lt "$end" ] 2>/dev/null && end=$SLURM_JOB_END_TIME',  # a partition has bounds
        f'exec {shlex.join(executor_argv(request))} --until "$end" {request["more"]}',
    ]
    return "\n".join(lines) + "\n"


def ask(request: dict[str, Any]) -> dict[str, Any]:
    """Run commands of the batch system, one after the other; those that there are not are said to be missing."""
    did = [_command(argv, request["limit"]) for argv in request["commands"]]
    return {"did": did, "relay": relay_state(request["key"])}


def ended(request: dict[str, Any]) -> dict[str, Any]:
    """The last words of pilots that the batch system has not any more; what they left is removed."""
    words = {}
    for pilot in request["pilots"]:
        folder = pilot_folder(request["key"], pilot)
        words[str(pilot)] = _last_words(folder)
        shutil.rmtree(folder, ignore_errors=True)
    return {"words": words}


def missing(request: dict[str, Any]) -> dict[str, Any]:
    """Which of these programs are not there."""
    path = {**os.environ, **_login_environment()}.get("PATH")
    return {
        "missing": [name for name in request["commands"] if not (shutil.which(name) or shutil.which(name, path=path))]
    }


def _command(argv: list[str], patience: float, reads: str = os.devnull, waits: str = "") -> dict[str, Any]:
    """Run a command; if it is not on the path, with the environment of a login shell.

    `waits`: what it says when it is about to try again by itself; then it is ended, and somebody else tries again.
    """
    environment = {**os.environ, **_ALWAYS}
    if shutil.which(argv[0]) is None:
        environment |= _login_environment()
        if shutil.which(argv[0], path=environment.get("PATH")) is None:
            return {"missing": argv[0]}
    with open(reads, "rb") as stdin:
        process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
            cwd=os.path.expanduser("~"),
        )
    with process:  # at the end its streams are closed, and it is waited for
        has_ended, out, said = _hear(process, patience, waits)
        if not has_ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return {"out": out, "said": said, **({"code": process.returncode} if has_ended else {"slow": patience})}


def _hear(process: subprocess.Popen[bytes], patience: float, waits: str) -> tuple[bool, str, str]:
    """Whether a command has ended in time and without a word that it waits, and what it has said on both streams."""
    assert process.stdout is not None
    assert process.stderr is not None
    heard = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    until, has_ended = time.monotonic() + patience, True
    with selectors.DefaultSelector() as selector:
        for number in heard:
            selector.register(number, selectors.EVENT_READ)
        while has_ended and selector.get_map():
            ready = selector.select(max(0.0, until - time.monotonic()))
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                heard[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
            errors = heard[process.stderr.fileno()].decode("utf-8", "replace") if waits else ""
            is_late = not ready or (bool(selector.get_map()) and time.monotonic() > until)
            has_ended = not is_late and not (waits and re.search(waits, errors))
    out, said = (data.decode("utf-8", "replace") for data in heard.values())
    if has_ended:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            has_ended = False
    return has_ended, out, said


@functools.cache
def _login_environment() -> dict[str, str]:
    """The environment of a login shell: many sites put their batch system on the path there only."""
    try:
        found = subprocess.run(
            ["/bin/bash", "-lc", "printf '\\0%s\\0' bough; env -0"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        return {}
    entries = found.partition("\0bough\0")[2].split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def forget(request: dict[str, Any]) -> dict[str, Any]:
    """Remove what belongs to this site, its access file first."""
    folder, path = site_folder(request["key"]), socket_place(request["key"])
    end_relay(request)
    for name in (os.path.join(folder, "access.json"), path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    if os.path.dirname(path) != folder:
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(path))
    shutil.rmtree(folder, ignore_errors=True)
    return {}


# --- pilots ---------------------------------------------------------------------------------------------


def _notes(folder: str) -> list[tuple[str, dict[str, Any]]]:
    pilots = os.path.join(folder, "pilots")
    names = os.listdir(pilots) if os.path.isdir(pilots) else []
    found = [(name, _read_note(os.path.join(pilots, name))) for name in names]
    return [(name, note) for name, note in found if note is not None]


def _relay_home(key: str) -> str:
    """Where the relay on this host lives."""
    return os.path.join(site_folder(key), "relays", socket.gethostname())


def _relay_notes(folder: str) -> list[dict[str, Any]]:
    """Of those that run; whether one on another host does is not known here."""
    relays = os.path.join(folder, "relays")
    names = os.listdir(relays) if os.path.isdir(relays) else []
    found = [(name, _read_note(os.path.join(relays, name), "note.json")) for name in names]
    here = socket.gethostname()
    return [note for name, note in found if note is not None and (name != here or _is_alive(note))]


def _begin(programs: str, what: str) -> str:
    """What Python is told to do, with the packages of an unpacked archive."""
    return f"import sys; sys.path.insert(0, {programs!r}); import runpy; {what}"


def _read_note(folder: str, name: str = "pilot.json") -> dict[str, Any] | None:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            note: dict[str, Any] = json.load(file)
            return note
    except (OSError, ValueError):
        return None


def _began(pid: int) -> str:
    """When a process began, by which it is told from a later one of the same number; empty: it is not there."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]


def _is_alive(note: dict[str, Any]) -> bool:
    if "pid" not in note:  # a job: its note is removed when the batch system has it no more
        return True
    if os.path.isdir("/proc/self"):
        return bool(note["began"]) and _began(note["pid"]) == note["began"]
    try:
        os.kill(note["pid"], 0)
    except OSError:
        return False
    return True


def _signal(note: dict[str, Any], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(note["pid"], number)


def _last_words(folder: str) -> str:
    """The last line of a pilot's log; the log of a job has its number."""
    try:
        names = [name for name in os.listdir(folder) if name == "log" or name.endswith(".out")]
        latest = max((os.path.join(folder, name) for name in names), key=os.path.getmtime, default="")
        if not latest:
            return ""
        with open(latest, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _LAST_WORDS))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""


# --- files of the site's storage ------------------------------------------------------------------------


def send(request: dict[str, Any]) -> dict[str, Any]:
    """What a file is like; unless it has the mark that is known, it follows the answer."""
    path = request["path"]
    size, mark = _like(path)
    return {"size": size, "mark": mark, "follows": "" if mark and mark == request["known"] else path}


def follow(answer: dict[str, Any], out: io.BufferedIOBase) -> None:
    """Send the file that an answer names, and then the mark that it has by now."""
    path = answer.get("ok", {}).get("follows")
    if not path:
        return
    with open(path, "rb") as file:
        shutil.copyfileobj(file, out, _PIECE)
    said = json.dumps({"ok": {"mark": _like(path)[1]}})
    out.write(f"\n{MARK}{said}\n".encode())


def _like(path: str) -> tuple[int, str]:
    """The bytes of a file, and what changes with it; one that was written a moment ago has no mark."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        raise Trouble(f"{path} is not there") from None
    if not stat.S_ISREG(status.st_mode):
        raise Trouble(f"{path} is no file, and only an executor there can send a folder")
    if not os.access(path, os.R_OK):
        raise Trouble(f"{path} may not be read")
    is_settled = abs(time.time_ns() - status.st_mtime_ns) > _SETTLED
    mark = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
    return status.st_size, mark if is_settled else ""


# --- the errand -----------------------------------------------------------------------------------------


_WITH_LOAD = {"install": install, "prepare": prepare, "relay": relay}
_DEEDS = {
    deed.__name__: deed
    for deed in (look, start, statuses, cancel, forget, submit, ask, ended, missing, end_relay, rest_relay, send)
}


def run(line: bytes, rest: io.BufferedIOBase) -> dict[str, Any]:
    """Do what a request says."""
    request = json.loads(line)
    data = rest.read(request["size"]) if request.get("size") else b""
    what = request["what"]
    try:
        if what in _WITH_LOAD:
            return {"ok": _WITH_LOAD[what](request, data)}
        return {"ok": _DEEDS[what](request)}
    except (Trouble, OSError) as error:
        return {"trouble": str(error)}


if __name__ == "__main__":
    answer = run(sys.stdin.buffer.readline(), sys.stdin.buffer)  # type: ignore[arg-type]
    sys.stdout.write(f"\n{MARK}{json.dumps(answer)}\n")
    sys.stdout.flush()
    follow(answer, sys.stdout.buffer)  # type: ignore[arg-type]
