"""What a session starts from: its name, its store, defaults of the run, and the server's process of an embedded one.

`with run_defaults(...)` gives defaults to all sessions that are opened meanwhile, in whatever thread: `bough run` and
`bough submit` do so around a user's script. The arguments of a `Session` win over them.

Rules: only `run_defaults` changes the defaults. A session's server has a process group of its own, so that Ctrl-C
reaches the script alone. It lives no longer than the script: it sees the connection's end.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, cast

from bough import private
from bough.errors import BoughError, PeerLost, StoreFailed, UserError
from bough.model.bounds import Amount, Index, Name, Word, check_path, shown, within
from bough.model.dispatch_tuning import NO_PIGGYBACK, PICKUP, DispatchTuning
from bough.stores.store_folder import CLOSED, make_store_folder

if TYPE_CHECKING:
    from bough.api.client.connection import Connection
    from bough.api.futures.progress import Progress
    from bough.api.futures.task_registry import TaskRegistry
    from bough.api.session.rejoin import ExistingWork
    from bough.model.events.news import PagesAdded
    from bough.model.ids import RecordId
    from bough.model.tasks import Item
    from bough.wire.client_messages import ClientHello, Farewell

HOME = ".bough"
LOG = "server.log"


# --- defaults of a run ----------------------------------------------------------------------------------


class RunDefaults(NamedTuple):
    """Defaults of the sessions that are opened while a run lasts."""

    # Keys: server, name, store, cores, policy, fresh, fail_fast, numbers. A missing key, or None, says nothing.
    options: Mapping[str, object] = {}
    runs_commands: bool = False  # what commands need is loaded while the server starts
    describes: bool = False  # a whole description is submitted: what the workflow holds need not be told to the session
    detaches: bool = False  # sessions leave where they would have waited, and remember what they submitted


_defaults = RunDefaults()


@contextlib.contextmanager
def run_defaults(options: Mapping[str, object] | None = None, **others: Any) -> Iterator[None]:
    """Give defaults to all sessions that are opened meanwhile; see `RunDefaults`. What is not given stays as it is."""
    global _defaults
    before = _defaults
    _defaults = before._replace(options={**before.options, **(options or {})}, **others)
    try:
        yield
    finally:
        _defaults = before


def defaults() -> RunDefaults:
    """The defaults that count now."""
    return _defaults


def setting(name: str, given: object, otherwise: object = None) -> object:
    """A constructor's argument, or the default of the run, or another default."""
    if given is not None:
        return given
    said = _defaults.options.get(name)
    return otherwise if said is None else said


def server_address(given: str | None) -> str | None:
    """The address of a server: as given, or as the run says, or $BOUGH_SERVER; None: there is to be none."""
    if given is not None and not isinstance(given, str):
        raise UserError(f"address is {shown(given)}; give unix:PATH, HOST:PORT or the path of an access file")
    said = _defaults.options.get("server")
    return given or (said if isinstance(said, str) and said else None) or os.environ.get("BOUGH_SERVER") or None


# --- dispatch tuning ------------------------------------------------------------------------------------


class DispatchOptions(TypedDict, total=False):
    """The options of `Session` for dispatch tuning, see `DispatchTuning`."""

    bundle: int  # most loose tasks in one message to the server, which goes when the one before is acknowledged
    pickup: int  # most tasks that are sent to an executor at once
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


# --- name, store, cores ---------------------------------------------------------------------------------


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


# --- the server of an embedded session -----------------------------------------------------------------


class EmbeddedHost:
    """Where an embedded session runs: a server that is started for it, and ends with it."""

    is_remote = False
    is_near = True
    address = ""
    keeps_arguments = True

    def __init__(
        self,
        *,
        name: str | None,
        cores: float | None,
        store: str | os.PathLike[str] | None,
        fresh: bool | None,
        policy: str | None,
        fail_fast: bool | None,
        tuning: DispatchOptions,
    ) -> None:
        place = find_place(setting("name", name), setting("store", store))
        self.name = place.name
        self.cores = read_cores(setting("cores", cores))
        self.store = place.store
        self.new_record: Callable[[], RecordId]  # once it is connected
        options = ["--cores", f"{self.cores:g}", "--policy", within("policy", setting("policy", policy, "fifo"), Word)]
        options += ["--fresh"] if setting("fresh", fresh or None) else []
        options += ["--fail-fast"] if setting("fail_fast", fail_fast or None) else []
        dispatch = read_tuning(tuning)
        options += dispatch.server_words()
        self._bundle = dispatch.bundle
        self._server = ServerProcess(place, options)

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._server.process.pid

    def connect(
        self,
        registry: TaskRegistry,
        on_refused: Callable[[Item | PagesAdded, BoughError], None],
        on_lost: Callable[[BoughError | None], None],
    ) -> Connection:
        """Connect to the server, which has been starting meanwhile."""
        from bough.api.client.connection import Connection  # late: it is loaded while the server starts
        from bough.api.client.reconnect import GiveUp

        connection = Connection(GiveUp(self._server.socket), registry.on_messages, on_refused, on_lost, self._bundle)
        registry.connect(connection)
        connection.start(client_hello(owner=True))
        try:
            welcome = connection.welcome()
        except BaseException as error:
            self._server.kill()
            if isinstance(error, PeerLost):
                raise self.died() from error
            raise
        self.store = welcome.store
        self.new_record = cast("Callable[[], RecordId]", itertools.count(welcome.first_id).__next__)
        return connection

    def join(self, connection: Connection, progress: Progress) -> ExistingWork | None:
        """No other session of this run has left work."""
        return None

    def upload(self, paths: Iterable[str], label: str) -> dict[str, bytes]:
        """The server reads all files itself."""
        return dict.fromkeys(paths, b"")

    def check_detach(self) -> None:
        """Refuse to leave tasks to a server that ends with the session."""
        raise UserError("detach: this session's tasks end with the script, because its server is part of it")

    def say_goodbye(self, connection: Connection, how: Farewell, timeout: float) -> None:
        """Tell the server to stop."""
        connection.close(how)
        connection.ended.wait(timeout)

    def finish(self, connection: Connection, timeout: float) -> None:
        """See to it that the server's process ends."""
        if not self._server.wait(timeout):
            self._server.kill()
        connection.ended.wait(5)

    def on_lost(self, error: BoughError | None, *, is_detached: bool) -> BoughError | None:
        """What to tell of a connection that has ended."""
        return self.died() if isinstance(error, PeerLost) else error

    def died(self) -> PeerLost:
        """The server ended unexpectedly."""
        said = self._server.last_words()
        where = self._server.place.log
        return PeerLost(f"the session's server ended unexpectedly; see {where}{': ' + said if said else ''}")


def client_hello(**fields: Any) -> ClientHello:
    """The hello of a session in this process."""
    from bough.wire.client_messages import VERSION, ClientHello  # late: it is loaded while the server starts

    return ClientHello(VERSION, os.getpid(), socket.gethostname(), **fields)


class ServerProcess:
    """A server that was started, and our end of the connection to it."""

    def __init__(self, place: StoreLocation, options: list[str]) -> None:
        self.place = place
        try:
            if os.path.basename(os.path.dirname(place.store)) == HOME:
                private.make_folder(os.path.dirname(place.store))
            closed = make_store_folder(place.store)  # results are pickles: no other user may touch them
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

    def wait(self, timeout: float) -> bool:
        """Wait for the process to end. `Popen.wait` would look now and then, and see the end late."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # another part of the script waited for it
                number = os.pidfd_open(self.process.pid)
                try:
                    poll = select.poll()
                    poll.register(number, select.POLLIN)
                    if not poll.poll(timeout * 1000):
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
