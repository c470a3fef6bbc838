"""Name, store, server process; defaults by `with run_defaults(...)`; dispatch tuning.

What `bough run` hands to the script it runs: defaults of its sessions, and the sessions that are open.

Rule: the arguments of a `Session` win over what stands here.

Starting a session's server: its name, its store, the child process and its end of the connection.

Rule: the child has a process group of its own, so that Ctrl-C reaches the script alone, and it lives no
longer than the script: it sees the connection's end.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from bough import private
from bough.errors import StoreFailed, UserError
from bough.model.bounds import Amount, Index, Name, Word, check_path, shown, within
from bough.model.dispatch_tuning import NO_PIGGYBACK, PICKUP, DispatchTuning
from bough.stores.store_folder import CLOSED, make_store_folder

if TYPE_CHECKING:
    from bough.api.session.session import Session


class DispatchOptions(TypedDict, total=False):
    """The options of `Session` for dispatch tuning, see `DispatchTuning`."""

    bundle: int  # most loose tasks in one message to the server, which goes when the one before is acknowledged
    pickup: int  # most tasks that are handed to an executor at once
    piggyback: bool  # False: work never travels with an acknowledgement, an executor asks for it first


def read_tuning(options: DispatchOptions, *, is_remote: bool = False) -> DispatchTuning:
    """What a session was asked for; UserError when it makes no sense, or is not the session's to say."""
    if is_remote:
        theirs = next((name for name in ("pickup", "piggyback") if name in options), "")
        if theirs:
            option = f"{PICKUP} N" if theirs == "pickup" else NO_PIGGYBACK
            raise UserError(f"{theirs} is a matter of the server: start it with {option}")
    bundle, max_span = (_count(name, options.get(name)) for name in ("bundle", "pickup"))
    return DispatchTuning(bundle, max_span, options.get("piggyback") is not False)


def _count(name: str, given: object) -> int:
    if given is None:
        return 0
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise UserError(f"{name} is {shown(given)}; give a number of tasks, 1 or more")
    return within(name, given, Index)


# Keys: server, name, store, cores, policy, fresh, fail_fast. A missing key, or None, says nothing.
options: dict[str, object] = {}

# A flat list is run: what commands need is loaded while the server starts.
runs_commands = False

# A whole description is submitted: what is there of a workflow that goes on need not be told to the session.
describes = False

# Every session of this process in the order of opening; closed ones too, for their counts and failures.
sessions: list[Session] = []


def setting(name: str, given: object, otherwise: object = None) -> object:
    """A constructor's argument, or what `bough run` said, or the default."""
    if given is not None:
        return given
    said = options.get(name)
    return otherwise if said is None else said


def server(given: str | None) -> str | None:
    """The address of a server: as given, or as `bough run` said, or $BOUGH_SERVER; None: there is to be none."""
    if given is not None and not isinstance(given, str):
        raise UserError(f"address is {shown(given)}; give unix:PATH, HOST:PORT or the path of an access file")
    said = options.get("server")
    return given or (said if isinstance(said, str) and said else None) or os.environ.get("BOUGH_SERVER") or None


HOME = ".bough"
LOG = "server.log"


class StoreLocation(NamedTuple):
    """What a session is called, and where its store is."""

    name: str
    store: str  # absolute

    @property
    def log(self) -> str:
        """Where the server writes what it has to say to operators."""
        return os.path.join(self.store, LOG)


def find_place(name: object, store: object) -> StoreLocation:
    """The name and store of a session: what was said, or the script's stem and a folder of that name in ./.bough."""
    if name is not None and not (isinstance(name, str) and name):
        raise UserError(f"name is {shown(name)}; give a text that is not empty")
    if store is not None and not isinstance(store, str | os.PathLike):
        raise UserError(f"store is {shown(store)}; give the path of a folder")
    chosen = within("name", name or _script_stem(), Name)
    if os.sep in chosen or chosen in {".", ".."}:
        raise UserError(f"name is {chosen!r}; a name cannot hold a {os.sep}, because it names a folder in ./{HOME}")
    folder = check_path("store", os.fspath(store)) if store is not None else os.path.join(HOME, chosen)
    return StoreLocation(chosen, os.path.abspath(folder))


def _script_stem() -> str:
    script = sys.argv[0] if sys.argv else ""
    stem = os.path.splitext(os.path.basename(script))[0]
    if stem == "__main__":  # python -m package
        stem = os.path.basename(os.path.dirname(os.path.abspath(script)))
    return stem if stem not in {"", "-c", "-", ".", ".."} else "session"


def own_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0))


def read_cores(given: object) -> float:
    """The cores that a session is to use."""
    if given is None:
        return own_cores()
    if isinstance(given, bool) or not isinstance(given, int | float) or given <= 0:
        raise UserError(f"cores is {shown(given)}; give a number of cores, 1 or more")
    within("cores", given, Amount)
    return given


def server_options(
    cores: float, *, policy: str | None, fresh: bool | None, fail_fast: bool | None, tuning: DispatchTuning
) -> list[str]:
    """What a session tells its server, from its arguments and what `bough run` said."""
    options = ["--cores", f"{cores:g}", "--policy", within("policy", setting("policy", policy, "fifo"), Word)]
    options += ["--fresh"] if setting("fresh", fresh or None) else []
    options += ["--fail-fast"] if setting("fail_fast", fail_fast or None) else []
    return options + tuning.server_words()


class ServerProcess:
    """A server that was started, and our end of the connection to it."""

    def __init__(self, place: StoreLocation, options: list[str]) -> None:
        self.place = place
        try:
            if os.path.basename(os.path.dirname(place.store)) == HOME:
                private.make_folder(os.path.dirname(place.store))
            closed = make_store_folder(place.store)  # results are pickles: nobody else may touch them
            log = open(place.log, "ab", opener=private.opener)  # noqa: SIM115 - the child's from here on
            if closed:
                log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {CLOSED.format(place.store)}\n".encode())
                log.flush()
        except OSError as error:
            raise StoreFailed(f"the store {place.store} cannot be used: {error.strerror}") from error
        self.socket, theirs = socket.socketpair()
        with log, theirs:
            self.log_start = log.tell()
            fd, client = str(theirs.fileno()), str(os.getpid())
            words = ["--store", place.store, "--name", place.name, "--fd", fd, "--client", client, *options]
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "bough.server",
                    *words,
                ],  # -P: no module of the user's folder may shadow ours
                env={**os.environ, "BOUGH_PATH": os.pathsep.join(map(os.path.abspath, sys.path))},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def last_words(self) -> str:
        """The last line the server wrote to its log in this run."""
        from bough.api.futures.task import last_line

        try:
            with open(self.place.log, "rb") as file:
                file.seek(max(self.log_start, file.seek(0, os.SEEK_END) - 4096))
                return last_line(file.read().decode("utf-8", "replace"))
        except OSError:
            return ""

    def wait(self, patience: float) -> bool:
        """Wait for the process to end. `Popen.wait` would look now and then, and see the end late."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # somebody else was told of its end
                number = os.pidfd_open(self.process.pid)
                try:
                    poll = select.poll()
                    poll.register(number, select.POLLIN)
                    if not poll.poll(patience * 1000):
                        return False
                finally:
                    os.close(number)
            self.process.wait()
        return True

    def kill(self) -> None:
        """End the server at once, with everything in its process group; executors end when they see it gone."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
