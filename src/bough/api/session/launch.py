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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, cast

from bough import private
from bough.api.session.preload_list import VARIABLE, preload_words
from bough.api.session.session_store import OpenedStore, StoreLocation, choose_store, register_once, script_run
from bough.errors import (
    BadValue,
    BoughError,
    PeerLost,
    StoreFailed,
    StoreHeld,
    UserError,
    WrongType,
    unknown_keyword,
)
from bough.model.arrays.dispatch_tuning import NO_PIGGYBACK, PICKUP, DispatchTuning
from bough.model.bounds import Amount, Gpus, Index, Name, Word, check_path, shown, within
from bough.model.reuse_scope import MODES, NEVER, RESUME, ReuseMode
from bough.movers.value_places import VARIABLE as VALUE_MEMORY
from bough.movers.value_places import value_memory
from bough.stores.folder.store_folder import CLOSED, make_store_folder

if TYPE_CHECKING:
    from bough.api.client.connection import Connection
    from bough.api.display.echo import Echo
    from bough.api.futures.progress import Progress
    from bough.api.futures.task_registry import TaskRegistry
    from bough.api.session.rejoin import ExistingWork
    from bough.model.events.news import PagesAdded
    from bough.model.ids import RecordId
    from bough.model.sites.resources import Needs
    from bough.model.tasks import Item
    from bough.wire.client_messages import ClientHello, Farewell

HOME = ".bough"
LOG = "server.log"
LOCAL = "local"  # the site that is this machine
_POLICY = "fifo"  # the placement policy of those who give none
NO_REPLICATION = "none"
_MOST_TRIED = 100  # stores that others took while we asked


# --- defaults of a run ----------------------------------------------------------------------------------


class RunDefaults(NamedTuple):
    """Defaults of the sessions that are opened while a run lasts."""

    # Keys: server, name, store, cores, policy, replication, reuse, fresh, fail_fast, echo, numbers, sites, queue. A
    # missing key is silent.
    options: Mapping[str, object] = {}
    runs_commands: bool = False  # what commands need is loaded while the server starts
    describes: bool = False  # a whole description is submitted: what the workflow holds need not be told to the session
    has_display: bool = False  # progress is shown already
    detaches: bool = False  # sessions leave where they would have waited, and remember what they submitted
    keeps_sessions: bool = False  # sessions are put into `opened_sessions`: the run asks them for counts and failures
    tells_failures: bool = False  # failures are shown as they come: sessions need not tell them


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


FAILURE_MODES = ("raise", "report", "ignore")


def read_failure_mode(given: object) -> str:
    """The value of `on_failure`: what a session does about failures that the script did not look at."""
    if given not in FAILURE_MODES:
        raise BadValue(f"on_failure is {shown(given)}; give 'raise', 'report' or 'ignore'")
    return str(given)


def server_address(given: object) -> str | None:
    """The address of a server: as given, or as the run says, or $BOUGH_SERVER; None: there is to be none."""
    if given is not None and not isinstance(given, str):
        raise WrongType(f"address is {shown(given)}; give unix:PATH, HOST:PORT or the path of an access file")
    said = _defaults.options.get("server")
    return given or (said if isinstance(said, str) and said else None) or os.environ.get("BOUGH_SERVER") or None


def reuse_mode(reuse: object, fresh: object) -> ReuseMode:
    """Which earlier runs count for a session: as given, or as the run says, or "resume"; `fresh` is "never"."""
    if fresh is not None and not isinstance(fresh, bool):
        raise WrongType(f"fresh is {shown(fresh)}; give True or False")
    if reuse is not None and reuse not in MODES:
        raise BadValue(f"reuse is {shown(reuse)}; give {', '.join(map(repr, MODES))}")
    if fresh and reuse not in {None, NEVER}:
        raise BadValue(f"fresh=True and reuse={reuse!r} contradict each other; leave one of them out")
    if fresh:
        return NEVER
    if reuse is None and _defaults.options.get("fresh"):
        return NEVER
    mode = setting("reuse", reuse, RESUME)
    assert mode in MODES
    return mode


# --- what people see ------------------------------------------------------------------------------------


def start_echo(registry: TaskRegistry, given: object) -> Echo | None:
    """Show what tasks print, if that was asked for, or in a notebook."""
    wanted = setting("echo", yes_or_no("echo", given))
    if wanted is None and ("BOUGH_ECHO" in os.environ or "IPython" in sys.modules):
        from bough.api.display.surroundings import environment_switch, notebook

        said = environment_switch("BOUGH_ECHO")
        wanted = said if said is not None else notebook() is not None
    if not wanted:
        return None
    from bough.api.display.echo import Echo

    return Echo(registry)


def shows_progress(given: object) -> bool:
    """Whether a session shows a picture of its own: as asked for, or where people look."""
    wanted = yes_or_no("progress", given)
    if _defaults.has_display:
        return False
    if wanted is not None:
        return wanted
    if "BOUGH_PROGRESS" not in os.environ and "IPython" not in sys.modules and not _is_terminal():
        return False
    from bough.api.display.surroundings import environment_switch, is_watched_by_people, notebook

    said = environment_switch("BOUGH_PROGRESS")
    if said is not None:
        return said
    return notebook() is not None or is_watched_by_people(sys.stderr)


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


def yes_or_no(name: str, given: object) -> bool | None:
    """An option that is on, off or not given."""
    if given is not None and not isinstance(given, bool):
        raise WrongType(f"{name} is {shown(given)}; give True or False")
    return given


# --- dispatch tuning ------------------------------------------------------------------------------------


class DispatchOptions(TypedDict, total=False):
    """The options of `Session` for dispatch tuning, see `DispatchTuning`."""

    bundle: int  # most loose tasks in one message to the server, which goes when the one before is acknowledged
    pickup: int  # most tasks that are sent to an executor at once
    piggyback: bool  # False: work never travels with an acknowledgement, an executor asks for it first


# What ProcessPoolExecutor takes besides, and what to do instead.
_OF_POOLS = {
    "mp_context": "workers are processes of their own that never import __main__: leave it out",
    "max_tasks_per_child": "a worker that ends is replaced by itself: leave it out",
}


def check_keywords(given: Collection[str], known: Collection[str]) -> None:
    """Refuse keywords that `Session` does not know; `known` are all that it does."""
    for name in given:
        if name in _OF_POOLS:
            raise unknown_keyword("Session", name, known, _OF_POOLS[name])
        if name not in known:
            raise unknown_keyword("Session", name, known)


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
        raise BadValue(f"{name} is {shown(given)}; give a number of tasks, 1 or more")
    return within(name, given, Index)


# --- name, store, cores ---------------------------------------------------------------------------------


_LONGEST_NAME = 240  # bytes; file systems allow 255, and some names get a number


def find_place(name: object, store: object) -> StoreLocation:
    """The name and store of a session: what was said, or the script's stem and a folder of that name in ./.bough."""
    if name is not None and not (isinstance(name, str) and name):
        raise BadValue(f"name is {shown(name)}; give a text that is not empty")
    if store is not None and not isinstance(store, str | os.PathLike):
        raise WrongType(f"store is {shown(store)}; give the path of a folder")
    chosen = within("name", name or _script_stem(), Name)
    if os.sep in chosen or chosen in {".", ".."}:
        raise BadValue(f"name is {chosen!r}; a name cannot hold a {os.sep}, because it names a folder in ./{HOME}")
    if store is None and len(os.fsencode(chosen)) > _LONGEST_NAME:
        raise BadValue(
            f"name is {shown(chosen)}; it names a folder in ./{HOME}, so that it has at most {_LONGEST_NAME} bytes"
        )
    if store is not None and not os.fspath(store):
        raise BadValue("store is ''; give the path of a folder")
    folder = check_path("store", os.fspath(store)) if store is not None else os.path.join(HOME, chosen)
    return StoreLocation(chosen, os.path.abspath(folder))


def _script_stem() -> str:
    script = sys.argv[0] if sys.argv else ""
    if os.path.basename(script) == "ipykernel_launcher.py":  # a notebook; Jupyter's server says which one
        script = os.environ.get("JPY_SESSION_NAME", "") or "notebook"
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
        raise BadValue(f"cores is {shown(given)}; give a number of cores, 1 or more")
    within("cores", given, Amount)
    return given


def read_workers(address: object, max_workers: object, cores: object) -> tuple[Any, Any]:
    """The address and the cores that a session was given.

    `max_workers`, or a number in the place of the address, is another word for cores.
    """
    if isinstance(address, int) and not isinstance(address, bool):
        if max_workers is not None and max_workers != address:
            raise BadValue(f"the session was given {address} workers and max_workers={shown(max_workers)}; give one")
        address, max_workers = None, address
    if max_workers is None:
        return address, cores
    if isinstance(max_workers, bool) or not isinstance(max_workers, int):
        raise WrongType(f"max_workers is {shown(max_workers)}; give a whole number, 1 or more")
    if max_workers <= 0:
        raise BadValue(f"max_workers must be greater than 0, not {max_workers}")
    if cores is not None and cores != max_workers:
        raise BadValue(f"max_workers is {max_workers} and cores is {shown(cores)}; they mean the same: give one")
    within("max_workers", max_workers, Amount)
    return address, max_workers


def chosen_sites(given: object) -> tuple[str, ...]:
    """The sites that a session is bound to: as given, or as the run says; none: this machine, or all of a server's."""
    said = setting("sites", given)
    if said is None:
        return ()
    from bough.api.submit.task_options.options import read_sites  # late: most sessions name none

    return read_sites(said)


def refuse_beside_sites(sites: tuple[str, ...], **given: object) -> None:
    """Refuse options that are for this machine alone, of a session that names sites."""
    for option, value in given.items():
        if value is not None:
            instead = f"bough site add {LOCAL} --local --cores-per-pilot N" if option == "cores" else "leave it out"
            raise UserError(
                f"{option} is for sessions on this machine, and this one has sites={list(sites)}: {instead}"
            )


def read_policy(name: object) -> str:
    """The name of a placement policy that there is, before a store is made for it."""
    known: str = within("policy", name, Word)
    if known != _POLICY:
        from bough.policies.policy_registry import load_policies  # late: most sessions take the usual one

        load_policies(known)
    return known


def read_replication(text: object) -> str:
    """The name and options of a replication policy that there is."""
    known: str = within("replication", text, Word)
    if known != NO_REPLICATION:
        from bough.policies.policy_registry import load_replication  # late: most sessions have none

        load_replication(known)
    return known


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
        reuse: ReuseMode,
        policy: str | None,
        replication: str | None,
        fail_fast: bool | None,
        gpus: int | None,
        pin: bool,
        tuning: DispatchOptions,
        preload: bool | Iterable[str] | None = None,
    ) -> None:
        said = (setting("name", name), setting("store", store))
        self._place = find_place(*said)
        self._is_given = said != (None, None)
        self.cores = read_cores(setting("cores", cores))
        if VALUE_MEMORY in os.environ:
            value_memory()  # it is refused before anything is made
        self.new_record: Callable[[], RecordId]  # once it is connected
        options = ["--cores", f"{self.cores:g}", "--policy", read_policy(setting("policy", policy, _POLICY))]
        replicates = setting("replication", replication)
        options += ["--replication", read_replication(replicates)] if replicates is not None else []
        options += ["--reuse", reuse, "--script", script_run()]
        self.gpus = None if gpus is None else within("gpus", gpus, Gpus)
        options += ["--gpus", str(self.gpus)] if self.gpus is not None else []
        options += ["--pin"] if pin else []
        options += ["--fail-fast"] if setting("fail_fast", fail_fast or None) else []
        dispatch = read_tuning(tuning)
        options += dispatch.server_words()
        self._bundle = dispatch.bundle
        self._options = options
        self._preload = preload_words(False if preload is None and _defaults.runs_commands else preload)
        self._refused: set[str] = set()  # stores that another process was faster to take
        register_once()
        self._start()

    def _start(self) -> None:
        place = self._place if self._is_given else choose_store(self._place, frozenset(self._refused))
        self.name, self.store = place
        self._server = ServerProcess(place, self._options, self._preload)

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
        while True:
            try:
                connection = self._connect(registry, on_refused, on_lost)
            except StoreHeld:
                if self._is_given or len(self._refused) > _MOST_TRIED:
                    raise
                self._refused.add(self.store)
                self._start()
            else:
                OpenedStore(self._server.place, is_extra=self._server.place != self._place)
                return connection

    def _connect(
        self,
        registry: TaskRegistry,
        on_refused: Callable[[Item | PagesAdded, BoughError], None],
        on_lost: Callable[[BoughError | None], None],
    ) -> Connection:
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
        self.store = registry.store = welcome.store
        self.new_record = cast("Callable[[], RecordId]", itertools.count(welcome.first_id).__next__)
        return connection

    def join(self, connection: Connection, progress: Progress) -> ExistingWork | None:
        """No other session of this run has left work."""
        return None

    def upload(self, paths: Iterable[str], label: str) -> dict[str, bytes]:
        """The server reads all files itself."""
        return dict.fromkeys(paths, b"")

    def leave_files(self, records: Iterable[int]) -> None:
        """All files are in their places."""

    def argument_values(self) -> None:
        """They go into memory."""

    def check_needs(self, needs: Needs) -> None:
        """Refuse what this machine does not have: no other one can join."""
        from bough.api.submit.task_options.never import refuse_impossible  # late: it is loaded while the server starts

        refuse_impossible(needs, self.cores, self.gpus)

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
        where = self._server.log
        return PeerLost(f"the session's server ended unexpectedly; see {where}{': ' + said if said else ''}")


def client_hello(**fields: Any) -> ClientHello:
    """The hello of a session in this process."""
    from bough.wire.client_messages import VERSION, ClientHello  # late: it is loaded while the server starts

    return ClientHello(VERSION, os.getpid(), socket.gethostname(), **fields)


class ServerProcess:
    """A server that was started, and our end of the connection to it."""

    def __init__(self, place: StoreLocation, options: list[str], preload: str = "") -> None:
        self.place = place
        self.log = os.path.join(place.store, LOG)  # what the server has to say to operators
        try:
            if os.path.basename(os.path.dirname(place.store)) == HOME:
                private.make_folder(os.path.dirname(place.store))
            closed = make_store_folder(place.store)  # results are pickles: no other user may touch them
            log = open(self.log, "ab", opener=private.opener)  # noqa: SIM115 - the child's from here on
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
                env={
                    **os.environ,
                    "BOUGH_PATH": os.pathsep.join(map(os.path.abspath, sys.path)),
                    VARIABLE: preload,
                },
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def last_words(self) -> str:
        """The last line the server wrote to its log in this run."""
        from bough.api.futures.endings import last_line

        try:
            with open(self.log, "rb") as file:
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
