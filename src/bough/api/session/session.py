"""A session: one run of a workflow, and a `concurrent.futures.Executor`.

A session has a host (the server that it started, or a service), a connection to the server, a registry of its tasks, a
table of its groups and one of its files. `Session(address)` has a `RemoteHost`, `Session()` an `EmbeddedHost`.

Rules: leaving the `with` block waits for everything. Nothing outlives the script unless the host is a service: then
`detach()`, an exception or Ctrl-C leave the tasks to it. Little is imported here before the server is started, so
that both load at the same time.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, Unpack

from bough.api.session import launch, shutdown
from bough.api.session.launch import DispatchOptions, EmbeddedHost
from bough.api.submit.submitter import Submitter
from bough.errors import BoughError, SessionClosed, UnknownName, UserError, WrongType
from bough.model.bounds import Count, Index, shown, within
from bough.model.events.news import GroupClosed, Kill
from bough.model.ids import GroupId, RecordId
from bough.model.texts.plurals import counted
from bough.wire import questions
from bough.wire.questions import Question

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from bough.api.client.connection import Connection
    from bough.api.display.echo import Echo
    from bough.api.file_table import FileTable
    from bough.api.futures.array import Array
    from bough.api.futures.elements import ArrayElements
    from bough.api.futures.progress import Progress
    from bough.api.futures.task import Task
    from bough.api.futures.task_registry import TaskRegistry, UnseenFailure
    from bough.api.remote_monitors import MonitorFailure
    from bough.api.session.rejoin import ExistingWork
    from bough.api.submit.context import RunningFeed
    from bough.api.submit.groups import Group
    from bough.api.submit.initializer import Initializer
    from bough.api.submit.task_options.options import TaskOptions
    from bough.api.values.argument_values import ArgumentValues
    from bough.api.values.packing import Packing, Shared
    from bough.errors import WorkflowFailed
    from bough.model.events.news import Action, PagesAdded
    from bough.model.ids import BlobId, MemoKey
    from bough.model.reuse_scope import ReuseMode
    from bough.model.sites.resources import Needs
    from bough.model.tasks import Dep, Item, TaskSpec
    from bough.stores.jobs.jobs_reader import JobsDatabase
    from bough.wire.client_messages import Farewell

T = TypeVar("T")
_LOOK = 0.5  # seconds between two looks whether the server is still there
_GOODBYE = 5.0  # seconds that a service has to say good-bye


class Host(Protocol):
    """Where a session runs: a server of its own, or a service."""

    is_remote: bool
    is_near: bool  # the server is on this machine, so that the paths it names are valid here
    keeps_arguments: bool  # those too big to send go into a file of the store
    address: str  # of a service
    name: str  # of the workflow
    cores: float
    store: str  # a folder

    @property
    def new_record(self) -> Callable[[], RecordId]:
        """Gives a number for a task or array."""

    @property
    def pid(self) -> int:
        """The server's process."""

    def connect(
        self,
        registry: TaskRegistry,
        on_refused: Callable[[Item | PagesAdded, BoughError], None],
        on_lost: Callable[[BoughError | None], None],
    ) -> Connection:
        """Connect to the server, which has welcomed the session then."""

    def join(self, connection: Connection, progress: Progress) -> ExistingWork | None:
        """What the workflow holds already, if it was there before."""

    def upload(self, paths: Iterable[str], label: str) -> dict[str, bytes]:
        """Give the server the contents of files; their digests, empty if it can read them itself."""

    def leave_files(self, records: Iterable[int]) -> None:
        """What these tasks of earlier runs made is not brought: newer files may lie in its places."""

    def argument_values(self) -> ArgumentValues | None:
        """Where the big buffers of arguments go, if the server is to keep them; None: into memory, or the store."""

    def check_needs(self, needs: Needs) -> None:
        """Raise an error if tasks with these needs can never run."""

    def check_detach(self) -> None:
        """Raise an error if tasks cannot be left to the server."""

    def say_goodbye(self, connection: Connection, how: Farewell, timeout: float) -> None:
        """Tell the server that the session ends."""

    def finish(self, connection: Connection, timeout: float) -> None:
        """The session has ended."""

    def on_lost(self, error: BoughError | None, *, is_detached: bool) -> BoughError | None:
        """The connection has ended; what to tell callers that wait."""

    def died(self) -> BoughError:
        """The error for a server that is gone."""


class Session(Submitter, Executor):  # type: ignore[misc] # map gives more than an iterator
    """Runs tasks on the cores of this machine; its store is ./.bough/NAME, NAME being the script's stem.

    Args:
        address: of a running server (unix:PATH, HOST:PORT or an access file), by default that of $BOUGH_SERVER;
            its executors do the work then, and cores and store mean nothing. A number stands for `max_workers`.
        name: of the workflow.
        cores: how many to use; by default all this process may use.
        store: the folder of the store, in place of ./.bough/NAME.
        reuse: which work of earlier runs counts. "resume" (the default): what an unfinished one has done, that was
            killed or interrupted or had failures; after a run that ended well everything runs anew. "always": what
            any earlier run has done. "never": nothing. See also `bough.memo` and the option memo of tasks.
        fresh: True is short for reuse="never".
        policy: the placement policy, such as "sjf" or "bough:delay=10s"; by default "fifo" on this machine. A server
            has one for all: the user's own is started with what is given here, any other must have been.
        replication: whether idle executors run what others run, too: "none", "careful-tail", "tail", "wqr" or
            "storage-affinity", with options as in "wqr:cap=2,age=30s". The first success counts. By default "none", but
            the policies "bough", "storage-affinity" and "wqr" bring their own. It is for sessions with several
            executors: those that name sites, or a server that was started with it.
        fail_fast: stop at the first failure.
        max_workers: the same as cores, by the name that `ProcessPoolExecutor` has for it.
        initializer: called as `initializer(*initargs)` in each worker, before the first function it runs.
        initargs: its arguments.
        sites: where tasks may run, such as ["local", "alpha"]: they are given to the user's own server, which is
            started if none runs, and starts executors there; see `bough site add`. ["local"] alone is this machine.
        on_failure: what the end of the `with` block does about failures that the script did not look at: "raise" (the
            default) tells them and raises `WorkflowFailed`, "report" only tells them, "ignore" does neither.
        echo: show what tasks print as it comes, each line with its task before it; by default in notebooks only.
        progress: show a live picture of what is done; by default in notebooks, and where standard error is a terminal.
        preload: modules that workers import before the first function needs them, by default those that the script
            has imported so far; False: none.
        gpus: how many to use; by default those that this process was given ($CUDA_VISIBLE_DEVICES), or all there are.
        pin: give tasks cores of their own: they run on no others.
        tuning: bundle, pickup and piggyback, see `DispatchTuning`; best left alone.
    """

    def __init__(
        self,
        address: str | int | None = None,
        *,
        name: str | None = None,
        cores: float | None = None,
        store: str | os.PathLike[str] | None = None,
        reuse: ReuseMode | None = None,
        fresh: bool | None = None,
        policy: str | None = None,
        replication: str | None = None,
        fail_fast: bool | None = None,
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        sites: Iterable[str] | None = None,
        on_failure: str = "raise",
        echo: bool | None = None,
        progress: bool | None = None,
        preload: bool | Iterable[str] | None = None,
        gpus: int | None = None,
        pin: bool = False,
        **tuning: Unpack[DispatchOptions],
    ) -> None:
        if tuning:
            launch.check_keywords(tuning, {"address", *_keywords(Session.__init__), *DispatchOptions.__annotations__})
        address, cores = launch.read_workers(address, max_workers, cores)
        self.sites = launch.chosen_sites(sites)  # that its tasks are bound to; empty: to none
        for option, given in {"fail_fast": fail_fast, "echo": echo, "progress": progress}.items():
            launch.yes_or_no(option, given)
        self.initializer: Initializer | None = None
        if initializer is not None:
            from bough.api.submit.initializer import Initializer  # late: most sessions have none

            self.initializer = Initializer(initializer, initargs)
        self.on_failure = launch.read_failure_mode(on_failure)
        if "BOUGH_TASK" in os.environ or "BOUGH_RUN" in os.environ:
            raise UserError("a task cannot open a session of its own; use bough.here().session() inside a task")
        server, find = launch.server_address(address), None
        replicates, placing = launch.setting("replication", replication), launch.setting("policy", policy)
        if self.sites and (server or self.sites != (launch.LOCAL,)):
            server, find = self._server_with_sites(server, placing, replicates, cores=cores, store=store)
        if server and replicates is not None:
            from bough.api.session.own_server import check_replication

            check_replication(server, launch.read_replication(replicates))
        mode = launch.reuse_mode(reuse, fresh)
        self.directory = os.getcwd()  # where it was opened; relative paths of its commands begin here
        if server:
            from bough.api.session.remote import RemoteHost  # late: an embedded session needs no TLS

            self.host: Host = RemoteHost(
                server, name=name, reuse=mode, policy=policy, fail_fast=fail_fast, tuning=tuning, find=find
            )
            shutdown.refuse_twice(self.host.name, self.host.address)
        else:
            self.host = EmbeddedHost(
                name=name,
                cores=cores,
                store=store,
                reuse=mode,
                policy=policy,
                replication=replication,
                fail_fast=fail_fast,
                gpus=gpus,
                pin=pin,
                tuning=tuning,
                preload=preload,
            )
        self.address = self.host.address
        self.cores = self.host.cores  # of a service: see processors()
        self._echo: Echo | None = None
        self._shows_progress = False
        self._prepare()  # takes as long as a server takes to come up: meanwhile
        self._open()
        self._show(echo, progress)

    def _server_with_sites(
        self, server: str | None, placing: object, replicates: object, **given: object
    ) -> tuple[str, Callable[[], str] | None]:
        """The server that was named, or the user's own, with what finds it again: it knows the session's sites."""
        from bough.api.session import own_server

        if server:
            own_server.settle_sites(server, self.sites)
            return server, None
        said = {option: launch.setting(option, value) for option, value in given.items()}
        launch.refuse_beside_sites(self.sites, **said)
        words = [] if placing is None else [f"--policy={launch.read_policy(placing)}"]
        words += [] if replicates is None else [f"--replication={launch.read_replication(replicates)}"]
        return own_server.server_for(self.sites, words), partial(own_server.find_or_start, words)

    def _prepare(self) -> None:
        """What there is before the connection; modules are loaded here while the server starts."""
        from bough.api.futures.task_registry import TaskRegistry
        from bough.api.submit import calls
        from bough.api.submit.task_options.options import AT_SERVICE, DEFAULTS, read_options

        if launch.defaults().runs_commands:
            import bough.api.submit.command_lines.commands  # noqa: F401 - used soon

        base = AT_SERVICE if self.host.is_remote else DEFAULTS
        said = {"sites": self.sites or None, "queue": launch.setting("queue", None)}
        super().__init__(self, read_options(base, said))
        self.submit_call, self.submit_map = calls.submit_call, calls.submit_map
        self.registry = TaskRegistry()
        self.possible_needs: Needs | None = None  # those that were checked last
        self._queues: set[str] = set()  # the named queues of the server, as far as they were asked for
        self.registry.keeps_dropped = self.host.is_remote
        self.known: dict[int, Task | ArrayElements] = {}  # tasks and arrays of other sessions that were found
        self._existing: ExistingWork | None = None  # what the workflow held when this session joined it
        self._feeds: list[RunningFeed] = []
        self._broken_feeds: list[ArrayElements] = []  # those whose generator raised something
        self._submitted: list[int] = []
        self._closing = threading.Lock()
        self.is_shut = False  # takes no more work
        self.is_draining = False  # and will close by itself when everything has ended
        self.is_over = False  # the server has ended, or the session has left it
        self.is_detached = False  # the session has left its tasks to the server
        self._is_told = False  # that the server died
        self._told_failures = 0  # how many failures were told
        self._fault: BoughError | None = None  # why it died, as far as that is known
        self._files: FileTable | None = None
        self._make_packing: type[Packing] | None = None

    def _open(self) -> None:
        """Connect to the server, and take what its welcome gives."""
        from bough.api.submit.group_table import GroupTable

        self.connection = self.host.connect(self.registry, self._refused, self._lost)
        self.welcome = self.connection.welcome()
        self.name, self.store = self.host.name, self.host.store
        self.root = GroupId(self.welcome.group)  # the workflow's own group
        self.registry.progress.set_root(self.root)
        self.groups = GroupTable(self.connection, self.welcome.first_group, self._existing_group)
        self.new_record: Callable[[], RecordId] = self.host.new_record  # a number for a task or array
        if launch.defaults().detaches:
            self.new_record = self._new_submitted
        if launch.defaults().keeps_sessions:
            opened_sessions.append(self)
        shutdown.at_exit(self)
        try:
            self._existing = self.host.join(self.connection, self.registry.progress)
        except BaseException:
            self.leave()
            raise

    def _show(self, echo: bool | None, progress: bool | None) -> None:
        """Begin to show what tasks print, and how far they are, if that is wanted."""
        self._echo = launch.start_echo(self.registry, echo)
        self._shows_progress = launch.shows_progress(progress)
        if self._shows_progress:
            from bough.api.display import script_progress

            script_progress.add(self)

    # --- looking ------------------------------------------------------------------------------------

    @property
    def progress(self) -> Progress:
        """Counts of tasks by group and state, the rate, the latest failures."""
        return self.registry.progress

    @property
    def is_remote(self) -> bool:
        """Whether its server is a service."""
        return self.host.is_remote

    @property
    def is_near(self) -> bool:
        """Whether its server is on this machine."""
        return self.host.is_near

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more work."""
        return self.is_shut

    @property
    def is_joined(self) -> bool:
        """Whether the workflow was there before, at a service, and this session continues it."""
        return self.welcome.joined

    @property
    def base_needs(self) -> Needs:
        """What it says of every task: the sites it is bound to, and the queue of what names none."""
        return self._settings.needs

    @property
    def keeps_arguments(self) -> bool:
        """Whether arguments that are too big to send go into a file of the store."""
        return self.host.keeps_arguments

    @property
    def pid(self) -> int:
        """The server's process."""
        return self.host.pid

    @property
    def _max_workers(self) -> int:
        """As `ProcessPoolExecutor` has it, for programs that look: the cores that are there, at least 1."""
        return max(1, int(sum(self.processors().values()) if self.is_remote else self.cores))

    def processors(self) -> dict[str, float]:
        """The processors that are there now, by site."""
        return self.connection.ask(questions.Processors())

    def on_processors(self, callback: Callable[[dict[str, float]], object]) -> None:
        """Call a function with what `processors()` gives, whenever processors come or go from now on.

        It is called in a thread of its own, so that it may submit tasks and wait for them. What it raises is
        reported, and it is called the next time as well.
        """
        if not callable(callback):
            raise UserError(f"on_processors: {callback!r:.80} cannot be called; give a function of one argument")
        self.connection.follow_processors(callback)

    def unretrieved(self) -> list[UnseenFailure]:
        """The failures that were not looked at: by `result()`, `exception()`, `failed()` or an iterator."""
        return self.registry.unretrieved()

    def monitor_failures(self) -> list[MonitorFailure]:
        """What functions of remote monitors raised: the task, the name of the monitor, and the error."""
        return list(self.registry.remote_monitors.failures) if self.registry.has_remote_monitors else []

    def find(self, selector: str | int) -> Array:
        """Tasks of this and earlier runs by id, name or group, as on the command line: "12", "align/*", "last"."""
        from bough.api.find import find

        return find(self, str(selector))

    def tasks(self) -> Array:
        """All tasks of this run; those of a service's workflow also if another session submitted them."""
        return self.find("all")

    def jobs(self) -> AbstractContextManager[JobsDatabase]:
        """The jobs database as it is now; a service may be asked for it."""
        from bough.api.find import open_jobs

        return open_jobs(self)  # type: ignore[return-value] # at a service: what answers the same questions

    def submitted(self) -> list[int]:
        """The numbers of everything that was submitted here, if the run said that it leaves."""
        return list(self._submitted)

    def explain(self, what: Task | int, index: int = 0) -> str:
        """Why a task is not running, or how it ended, in a few lines."""
        if isinstance(what, int):
            record, element = within("the task", what, Count), within("the index", index, Index)
            return "\n".join(self.registry.explain(record, element))
        if not hasattr(type(what), "explain"):
            raise WrongType(f"explain is about a task or its number, not {shown(what)}")
        return what.explain()

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {word}" for word, count in self.progress.counts().items() if count)
        return f"<session {self.name}: {counts or 'no tasks'}{', closed' if self.is_shut else ''}>"

    # --- acting -------------------------------------------------------------------------------------

    def cancel(self, what: object) -> int:
        """Cancel a task, array or group, or what a selector names; returns how many tasks that was."""
        from bough.api.actions import cancel

        return cancel(self, what)

    def kill(self, what: object) -> int:
        """End what is running of a task, array, group or selector: those attempts fail. Returns how many tasks."""
        from bough.api.actions import kill

        return kill(self, what)

    def hold(self, what: object) -> int:
        """Keep a task, array, group or what a selector names from starting; returns how many tasks that was."""
        from bough.api.actions import hold

        return hold(self, what)

    def release(self, what: object) -> int:
        """Let start what was held; returns how many tasks that was."""
        from bough.api.actions import release

        return release(self, what)

    def disable(self, what: object) -> int:
        """As `hold`, for groups that are to be named so until `enable`; returns how many tasks that was."""
        from bough.api.actions import disable

        return disable(self, what)

    def enable(self, what: object) -> int:
        """Let groups start that were disabled; returns how many tasks that was."""
        from bough.api.actions import enable

        return enable(self, what)

    def reset(self, what: object, *, cascade: bool = False) -> int:
        """Make what has ended, also well, not started; `cascade`: also what has started and depends on it.

        Returns how many tasks that was. A future that is done stays done.
        """
        from bough.api.actions import reset

        return reset(self, what, cascade=cascade)

    def declare_done(self, what: object) -> int:
        """Declare done what has not started, or failed; returns how many tasks that was."""
        from bough.api.actions import declare_done

        return declare_done(self, what)

    def stop(self, what: object, *, disable: bool = False) -> int:
        """End what runs and hold, or disable, the rest; returns how many tasks that was."""
        from bough.api.actions import stop

        return stop(self, what, disable=disable)

    def act(self, action: Action, not_changed: list[str] | None = None) -> int:
        """Act on tasks; returns how many the server says that was. Why others were not changed is added to a list."""
        answer = self.connection.act_and_wait(action)
        if not_changed is not None and isinstance(answer, dict):
            not_changed += answer.get("left_out", ())
        if isinstance(action, Kill):
            self.registry.has_killed = True
        count = answer.get("tasks", 0) if isinstance(answer, dict) else answer
        return count if isinstance(count, int) else 0

    # --- ending -------------------------------------------------------------------------------------

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; with `wait`, return when everything has ended. Cancelling spares what runs."""
        if self.connection.is_forked or self.is_detached:
            return
        if not self.is_shut:
            self.groups.close_all()
        self.is_shut = True
        if cancel_futures:
            self.cancel_waiting()
        if not wait:
            self.is_draining = True
            threading.Thread(target=self._drain_quietly, name="bough-drain", daemon=True).start()
            return
        shutdown.shut(self)

    def share(self, value: Any) -> Shared:
        """Write a value once, for any number of calls: give what this returns in the place of the value.

        Workers get the value; what big arrays in it hold lies in memory that all of them map, and is read-only. What
        the value holds now counts: changes that are made later are not seen. It is freed when the handle and all
        tasks that it was given to are gone.
        """
        from bough.api.values.packing import Shared

        self.check_open()
        return Shared(value, self._argument_values)

    def detach(self) -> None:
        """Leave the tasks to the server, once it has acknowledged all; here they cannot be asked for any more.

        An embedded session cannot: its server ends with it.
        """
        self.host.check_detach()
        if self.connection.is_forked or self.is_detached:
            return
        self.is_shut = True
        for feed in list(self._feeds):
            feed.stop()
            feed.join()
        try:
            self.connection.wait_acknowledged()
        finally:
            self.leave()

    def close_and_detach(self) -> None:
        """As `detach`, and nothing will be added: the workflow has finished once everything in it has ended."""
        if self.is_detached:
            return
        self.groups.close_all()
        self.post(GroupClosed(self.root))
        self.detach()

    def leave(self) -> None:
        """Leave the tasks to the server, whatever it has acknowledged; an embedded session stops them."""
        self.end("detach" if self.is_remote else "stop", _GOODBYE)

    def give_back(self) -> None:
        """Leave the tasks to a service because of an error or Ctrl-C, and say what is still running there."""
        if self.is_over or self.connection.is_forked:
            return
        left = self.progress.left()
        is_acknowledged = False
        try:
            self.is_shut = True
            for feed in list(self._feeds):
                feed.stop()
            is_acknowledged = self.connection.wait_acknowledged(0 if self.connection.is_away else None)
        finally:
            self.leave()
            if left:
                server = f" --server {self.address}" if self.address else ""
                sys.stderr.write(
                    f"bough: workflow {self.name} is running at the server with {counted(left, 'task')}; run the script"
                    f" again to come back to it, or end it with bough cancel{server} {self.name}:all\n"
                )
                if not is_acknowledged:
                    sys.stderr.write("bough: what the server has not acknowledged is not among them\n")
                sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_detached:
            return
        if kind is not None:
            self.tell_failures()  # those of now: what is ended for the error's sake is no failure
        is_exit = isinstance(error, SystemExit) and not error.code  # the script ends well
        if self.is_remote and kind is not None:
            if error is not None and not is_exit and not isinstance(error, KeyboardInterrupt):
                shutdown.cancel_waiting(self)
            self.give_back()
        elif isinstance(error, KeyboardInterrupt):
            self.is_shut = True
            shutdown.stop(self)
        elif error is not None and not is_exit:
            self.is_shut = self._is_told = True  # the error that leaves the block says enough
            shutdown.abandon(self)
        elif self.is_remote and launch.defaults().detaches:
            self.close_and_detach()
        else:
            self.shutdown(wait=True)
            broken = next(self._unseen_feeds(), None)
            if broken is not None and broken.feed_error is not None and self.on_failure == "raise":
                raise broken.feed_error
            failures = self._failures()
            if failures is not None:
                raise failures from None

    def tell_failures(self) -> None:
        """Tell the failures that the script did not look at, unless that was done, or is not wanted."""
        if self.on_failure == "ignore":
            return
        for elements in self._unseen_feeds():
            from bough.api.session.failure_report import tell_broken_feed

            tell_broken_feed(elements)
        if launch.defaults().tells_failures or not self.registry.has_unseen:
            return
        from bough.api.session.failure_report import FailureReport, tell

        report = FailureReport(self)
        if report.failed > self._told_failures:
            self._told_failures = report.failed
            tell(report)

    def _unseen_feeds(self) -> Iterator[ArrayElements]:
        """The feeds that ended early, and the script has not heard why."""
        return (elements for elements in self._broken_feeds if not elements.is_feed_error_seen)

    def _failures(self) -> WorkflowFailed | None:
        """What the `with` block is to raise."""
        if self.on_failure != "raise" or not self.registry.has_unseen:
            return None
        from bough.api.session.failure_report import FailureReport

        report = FailureReport(self)
        return report.exception() if report.failed else None

    def cancel_waiting(self) -> None:
        """Cancel what has not started."""
        from bough.api.futures.task import PENDING

        for feed in list(self._feeds):
            feed.stop()
        for task in list(self.registry.tasks.values()):
            if task._state == PENDING:
                task.cancel()
        for array in list(self.registry.arrays.values()):
            array.cancel_waiting()

    def drain(self) -> None:
        """Wait for the end of everything and close in good order."""
        for feed in list(self._feeds):
            feed.abandon()
            feed.join()
        if self._echo is not None or self.registry.has_remote_monitors:
            while not self.progress.wait(self.root, _LOOK) and not self.connection.ended.is_set():
                continue  # what was printed last is asked for while the server is there
            self._finish_watching()
        self.connection.close("drain")
        self.connection.ended.wait()
        self._finish(10)
        if not self.connection.is_closed and not self._is_told:
            self._is_told = True
            raise self._fault or self.host.died()

    def _drain_quietly(self) -> None:
        """Drain where no caller could catch an error; the tasks tell it."""
        with contextlib.suppress(BoughError):
            self.drain()
            self.tell_failures()

    def end(self, how: Farewell, timeout: float) -> None:
        """Tell the server to stop, and see to it that it does; leave a service."""
        self.is_detached = self.is_remote
        for feed in list(self._feeds):
            feed.stop()
        self._finish_watching()
        self.host.say_goodbye(self.connection, how, timeout)
        self._finish(timeout)

    def _finish_watching(self) -> None:
        """Show what was printed last, and let remote monitors return."""
        if self._echo is not None:
            self._echo.finish()
        if self.registry.has_remote_monitors:
            self.registry.remote_monitors.finish()

    def _finish(self, timeout: float) -> None:
        with self._closing:
            if not self.is_over:
                self.host.finish(self.connection, timeout)
                self.is_over = True
        if self.registry.values is not None:
            self.registry.values.close()
        if self._shows_progress:
            from bough.api.display import script_progress

            script_progress.remove(self)
        shutdown.forget(self)

    # --- for the modules of this package --------------------------------------------------------------

    @property
    def files(self) -> FileTable:
        """Which task writes which file."""
        if self._files is None:
            from bough.api.file_table import EarlierOutputs, FileTable

            there = self._existing.maker if self._existing is not None else None
            self._files = FileTable(self._earlier_paths, EarlierOutputs(self.store, self.welcome.first_id), there)
        return self._files

    def packing(self) -> Packing:
        """What takes the big buffers of a submission apart."""
        if self._make_packing is None:
            from bough.api.values.packing import Packing  # late: arguments are mostly numbers and texts

            self._make_packing = Packing
        return self._make_packing(self._argument_values)

    def _argument_values(self) -> ArgumentValues:
        """The big buffers of arguments; made for the first one."""
        values = self.registry.values
        if values is None:
            from bough.api.values.argument_values import ArgumentValues

            with self._closing:
                values = self.registry.values
                if values is None:
                    values = self.host.argument_values()
                    if values is None:
                        values = ArgumentValues(self.store, self.welcome.first_id)
                    self.registry.values = values
        return values

    def _earlier_paths(self) -> Iterable[str]:
        there = self._existing.paths() if self._existing is not None else []
        return [*self.connection.ask(questions.Paths()), *there]

    def check_open(self) -> None:
        """Refuse work after shutdown, or in a forked process."""
        if self.connection.is_forked:  # before anything is locked: a lock may have been held when we were forked
            from bough.api.client.connection import FORKED

            raise UserError(FORKED)
        if self.is_shut:
            raise SessionClosed("the session is shut down and takes no more work; open another one")

    def check_needs(self, needs: Needs) -> None:
        """Refuse what can never run here; at a service an executor that has it may still join."""
        self.host.check_needs(needs)
        if needs.queue and needs.queue not in self._queues:
            self._check_queue(needs.queue)
        self.possible_needs = needs

    def _check_queue(self, name: str) -> None:
        """Refuse a queue that the server does not have; one that is removed later it refuses itself."""
        if not self.is_remote:
            raise UserError(
                f"queue is {name!r}: this session has no queues; they are made at a server: bough queue add"
            )
        if self.connection.is_reading:
            return  # in a callback nothing can be asked for; the server looks, too
        self._queues = {queue["queue"] for queue in self.connection.ask(questions.Queues()) if queue["defined"]}
        if name not in self._queues:
            there = ", ".join(sorted(self._queues)) or "none"
            raise UnknownName(f"queue is {name!r}: there is no such queue at the server; there are: {there}")

    def new_records(self, count: int) -> list[RecordId]:
        """Numbers for tasks, ascending."""
        return [self.new_record() for _ in range(count)]

    def _new_submitted(self) -> RecordId:
        record = self.host.new_record()
        self._submitted.append(record)
        return record

    def send_task(self, task: Task, spec: TaskSpec, size: int, blobs: tuple[tuple[BlobId, bytes], ...] = ()) -> None:
        """Submit a loose task, in its place in the group."""
        order = self.groups.orders.get(spec.group)
        if order is not None:
            order.send(task, spec, size, blobs)
            return
        if spec.extras.same_host_as < 0:
            from bough.api.submit.groups import placed_alone

            spec = placed_alone(self.registry, spec)
        self.put_task(task, spec, size, blobs)

    def put_task(self, task: Task, spec: TaskSpec, size: int, blobs: tuple[tuple[BlobId, bytes], ...]) -> None:
        """Submit a loose task that waits for all it is to wait for, or make it the one that is there."""
        registry = self.registry
        if self._existing is not None:
            there = self._existing.take_task(spec.group, spec.key, spec.after, spec.inputs)
            if there is not None:
                if self._files is not None:
                    self._files.renumber(spec.id, there.id, map(str, spec.writes))
                task.record = there.id
                registry.tasks[there.id] = task
                registry.progress.added(spec.group, 1)
                self._existing.wait_for(there.id)
                return
        registry.tasks[spec.id] = task
        registry.progress.added(spec.group, 1)
        try:
            self.connection.submit(spec, size + 200, blobs)
        except BoughError:
            if registry.tasks.pop(spec.id, None) is not None:
                registry.progress.added(spec.group, -1)
            raise

    def put_page(self, items: list[Item], size: int, tasks: Mapping[int, Task], counts: Mapping[GroupId, int]) -> None:
        """Submit groups and tasks that wait for all they are to wait for; `counts` are tasks by group."""
        registry = self.registry
        registry.tasks.update(tasks)
        for group, count in counts.items():
            registry.progress.added(group, count)
        try:
            self.connection.submit_all(items, size)
        except BoughError:
            for record in tasks:
                registry.tasks.pop(record, None)
            for group, count in counts.items():
                registry.progress.added(group, -count)
            raise

    def make_group(self, name: Any, parent: int, after: Any, settings: TaskOptions, **how: Any) -> Group:
        """Make a group in another one, see `groups.make_group`."""
        from bough.api.submit.groups import make_group

        self.check_open()
        return make_group(self, name, parent, after, settings, **how)

    def _existing_group(self, parent: int, name: str) -> int | None:
        return self._existing.groups.get((parent, name)) if self._existing is not None else None

    def existing_array(
        self, group: int, key: MemoKey, after: tuple[Dep, ...], arguments: tuple[int, BlobId, bytes, bool], record: int
    ) -> int | None:
        """The array of an earlier session of this run that a submission is; `record` is the number it had here."""
        there = self._existing.take_array(group, key, after, arguments) if self._existing is not None else None
        if there is None:
            return None
        if record and self._files is not None:
            self._files.renumber(RecordId(record), there.id)
        return there.id

    def on_adopted(self, elements: ArrayElements) -> None:
        """An array of an earlier session is in the registry: be told how it ends."""
        assert self._existing is not None
        self._existing.wait_for(elements.record)

    def upload(self, paths: Iterable[str], label: str) -> dict[str, bytes]:
        """Give a service the contents of files; their digests, empty if it can read them itself."""
        return self.host.upload(paths, label)

    def leave_files(self, records: Iterable[int]) -> None:
        """What these tasks of earlier runs made is not brought: newer files may lie in its places."""
        self.host.leave_files(records)

    def add_feed(self, feed: RunningFeed) -> None:
        """Remember a feed that must end before the session can."""
        self._feeds.append(feed)

    def feed_ended(self, feed: RunningFeed, elements: ArrayElements) -> None:
        """A feed takes no more from its generator."""
        self._feeds.remove(feed)
        if elements.feed_error is not None:
            self._broken_feeds.append(elements)
        self.registry.forget_ended(elements)

    def deferral_ended(self, deferral: RunningFeed) -> None:
        """A call that waited for futures of others was submitted, or never will be."""
        with contextlib.suppress(ValueError):
            self._feeds.remove(deferral)

    def post(self, *messages: object) -> None:
        """Send messages that need no answer; nothing is said to a server that has gone."""
        if not self.connection.ended.is_set():
            self.connection.post(*messages)

    def ask(self, question: Question[T]) -> T:
        """Ask the server."""
        return self.connection.ask(question)

    # --- what the connection tells ------------------------------------------------------------------

    def _refused(self, item: Any, error: BoughError) -> None:
        if self._files is not None and hasattr(item, "id"):
            self._files.withdraw(item.id)
        self.registry.refused(item, error)

    def _lost(self, error: BoughError | None) -> None:
        self._fault = self.host.on_lost(error, is_detached=self.is_detached)
        self.registry.lost(self._fault)


def _keywords(call: Callable[..., object]) -> Iterable[str]:
    """The keywords that a method names."""
    return getattr(call, "__kwdefaults__", None) or ()


# The sessions of a run of the command line in the order of opening; closed ones too, for their counts and failures.
# A plain script keeps none here: one that opens many would never give back their memory.
opened_sessions: list[Session] = []
