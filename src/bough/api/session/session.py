"""Class `Session`, whole again: opening, looking, acting, ending.

Looking at tasks and acting on them by hand, which a session does through its server.

Rule: nothing here knows what kind of server that is; what needs more modules imports them when it is called.

A session: one run of a workflow, and a `concurrent.futures.Executor`.

It holds together what does the work: the server that was started (`launch`), the connection to it, the
ledger of tasks, the table of files. Rule: leaving the `with` block waits for everything; nothing outlives
the script, unless it is the session of a service (`remote`). Little is imported here before the server is
started, so that both load at the same time.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast

from bough.api.session import launch, shutdown
from bough.api.session.launch import DispatchOptions, ServerProcess, find_place, read_cores, read_tuning, server_options
from bough.api.submit.group_table import Placing
from bough.api.submit.submitter import Submitter
from bough.errors import BoughError, PeerLost, SessionClosed, UserError
from bough.model.bounds import Count, Index, shown, within
from bough.model.ids import GroupId, RecordId
from bough.wire import questions
from bough.wire.questions import Question

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from bough.api.client.connection import Action, Connection
    from bough.api.file_table import FileTable
    from bough.api.futures.array import Array
    from bough.api.futures.elements import ArrayElements
    from bough.api.futures.progress import Progress
    from bough.api.futures.task import Task
    from bough.api.futures.task_registry import TaskRegistry, UnseenFailure
    from bough.api.submit.arrays import ArrayParts
    from bough.api.submit.feeds import Feed
    from bough.api.submit.options import TaskOptions
    from bough.model.tasks import Dep
    from bough.stores.jobs.jobs_reader import JobsDatabase
    from bough.wire.client_messages import Farewell


class Steering:
    """What a session has besides the ways to submit."""

    _session: Session
    _connection: Connection
    ledger: TaskRegistry

    def processors(self) -> dict[str, float]:
        """The processors that are there now, by site."""
        return self._connection.ask(questions.Processors())

    def explain(self, what: Task | int, index: int = 0) -> str:
        """Why a task is not running, or how it ended, in a few lines."""
        if isinstance(what, int):
            record, element = within("the task", what, Count), within("the index", index, Index)
            return "\n".join(self.ledger.explain(record, element))
        if not hasattr(type(what), "explain"):
            raise UserError(f"explain is about a task or its number, not {shown(what)}")
        return what.explain()

    def cancel(self, what: object) -> int:
        """Cancel a task, array or group, or what a selector names; returns how many tasks that was."""
        from bough.api.actions import cancel

        return cancel(self._session, what)

    def kill(self, what: object) -> int:
        """End what is running of a task, array, group or selector: those attempts fail. Returns how many tasks."""
        from bough.api.actions import kill

        return kill(self._session, what)

    def hold(self, what: object) -> int:
        """Keep a task, array, group or what a selector names from starting; returns how many tasks that was."""
        from bough.api.actions import hold

        return hold(self._session, what)

    def release(self, what: object) -> int:
        """Let start what was held; returns how many tasks that was."""
        from bough.api.actions import release

        return release(self._session, what)

    def disable(self, what: object) -> int:
        """As `hold`, for groups that are to be named so until `enable`; returns how many tasks that was."""
        from bough.api.actions import disable

        return disable(self._session, what)

    def enable(self, what: object) -> int:
        """Let groups start that were disabled; returns how many tasks that was."""
        from bough.api.actions import enable

        return enable(self._session, what)

    def reset(self, what: object, *, cascade: bool = False) -> int:
        """Make what has ended, also well, not started; `cascade`: also what has started and depends on it.

        Returns how many tasks that was. A future that is done stays done.
        """
        from bough.api.actions import reset

        return reset(self._session, what, cascade=cascade)

    def declare_done(self, what: object) -> int:
        """Declare done what has not started, or failed; returns how many tasks that was."""
        from bough.api.actions import declare_done

        return declare_done(self._session, what)

    def stop(self, what: object, *, disable: bool = False) -> int:
        """End what runs and hold, or disable, the rest; returns how many tasks that was."""
        from bough.api.actions import stop

        return stop(self._session, what, disable=disable)

    def act(self, action: Action, left_out: list[str] | None = None) -> int:
        """Send an action and return how many tasks the server says it is about; what it left out is added to a list."""
        answer = self._connection.act_and_wait(action)
        if left_out is not None and isinstance(answer, dict):
            left_out += answer.get("left_out", ())
        count = answer.get("tasks", 0) if isinstance(answer, dict) else answer
        return count if isinstance(count, int) else 0


T = TypeVar("T")


class Session(Submitter, Placing, Steering, Executor):  # type: ignore[misc] # map gives more than an iterator
    """Runs tasks on the cores of this machine; its store is ./.bough/NAME, NAME being the script's stem.

    Args:
        address: of a running server (unix:PATH, HOST:PORT or an access file), by default that of $BOUGH_SERVER;
            its executors do the work then, and cores and store mean nothing.
        name: of the workflow.
        cores: how many to use; by default all this process may use.
        store: the folder of the store, in place of ./.bough/NAME.
        fresh: run everything, also what earlier runs have done.
        policy: the placement policy, "fifo" (the default) or "sjf".
        fail_fast: stop at the first failure.
        tuning: bundle, pickup and piggyback, see `DispatchTuning`; best left alone.
    """

    is_remote = False
    keeps_arguments = True  # those too big to send go into a file of the store

    def __new__(cls, address: str | None = None, **_: object) -> Self:
        """A session here, or the session of a service."""
        if cls is Session and launch.server(address):
            from bough.api.session.remote import RemoteSession

            return cast(Self, super().__new__(RemoteSession))
        return super().__new__(cls)

    def __init__(
        self,
        address: str | None = None,
        *,
        name: str | None = None,
        cores: float | None = None,
        store: str | os.PathLike[str] | None = None,
        fresh: bool | None = None,
        policy: str | None = None,
        fail_fast: bool | None = None,
        **tuning: Unpack[DispatchOptions],
    ) -> None:
        refuse_inside()
        if launch.server(address):
            raise UserError(f"{type(self).__name__} is for sessions on this machine; derive it from RemoteSession")
        place = find_place(launch.setting("name", name), launch.setting("store", store))
        self.name = place.name
        self.cores = read_cores(launch.setting("cores", cores))
        dispatch = read_tuning(tuning)
        options = server_options(self.cores, policy=policy, fresh=fresh, fail_fast=fail_fast, tuning=dispatch)
        self.directory = os.getcwd()  # where it was opened; relative paths of its commands begin here
        self._server = ServerProcess(place, options)
        self._prepare()  # takes as long as the server takes to come up: meanwhile
        from bough.api.client.connection import Connection
        from bough.api.client.reconnect import GiveUp

        reconnect = GiveUp(self._server.socket)
        self._open(Connection(reconnect, self.ledger.hear, self._refused, self._lost, dispatch.bundle), owner=True)
        self.store = self.welcome.store

    def _prepare(self) -> None:
        """What there is before the connection."""
        from bough.api.futures.task_registry import TaskRegistry
        from bough.api.submit import arrays, calls
        from bough.api.submit.options import DEFAULTS

        if launch.runs_commands:
            import bough.api.submit.commands  # noqa: F401 - used soon

        super().__init__(self, DEFAULTS)
        self.calls, self._submission = calls, arrays
        self.ledger = TaskRegistry()
        self._prepare_places()
        self._feeds: list[Feed] = []
        self._closing = threading.Lock()
        self._is_shut = False  # takes no more work
        self.is_draining = False  # and will close by itself when everything has ended
        self.is_over = False  # the server has ended
        self._is_told = False  # that the server died
        self._fault: BoughError | None = None  # why it died, as far as anybody said
        self._files: FileTable | None = None

    def _open(self, connection: Connection, **hello: Any) -> None:
        """Say hello, and take what the welcome gives."""
        from bough.wire.client_messages import VERSION, ClientHello

        self._connection = self.ledger.connection = connection
        connection.start(ClientHello(VERSION, os.getpid(), socket.gethostname(), **hello))
        try:
            self.welcome = connection.welcome()
        except BaseException as error:
            self._give_up(error)
            raise
        self.root = GroupId(self.welcome.group)  # the workflow's own group
        self.ledger.progress.set_root(self.root)
        self._records = cast("Iterator[RecordId]", itertools.count(self.welcome.first_id))
        self._groups = itertools.count(self.welcome.first_group)
        launch.sessions.append(self)
        shutdown.at_exit(self)

    def _give_up(self, error: BaseException) -> None:
        """It could not be opened."""
        self._server.kill()
        if isinstance(error, PeerLost):
            raise self._died() from error

    # --- looking ------------------------------------------------------------------------------------

    @property
    def progress(self) -> Progress:
        """Counts of tasks by group and state, the rate, the latest failures."""
        return self.ledger.progress

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more work."""
        return self._is_shut

    @property
    def is_joined(self) -> bool:
        """Whether the workflow was there before, at a service, and is gone on with."""
        return self.welcome.joined

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._server.process.pid

    def unretrieved(self) -> list[UnseenFailure]:
        """The failures nobody has looked at: by `result()`, `exception()`, `failed()` or an iterator."""
        return self.ledger.unretrieved()

    def find(self, selector: str | int) -> Array:
        """Tasks of this and earlier runs by id, name or group, as on the command line: "12", "align/*", "last"."""
        from bough.api.find import find

        return find(self, str(selector))

    def jobs(self) -> AbstractContextManager[JobsDatabase]:
        """The jobs database as it is now."""
        from bough.stores.jobs.jobs_reader import JobsDatabase

        self._connection.ask(questions.Project())
        return JobsDatabase(self.store)

    def tasks(self) -> Array:
        """All tasks of this run; those of a service's workflow also if another session submitted them."""
        return self.find("all")

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {word}" for word, count in self.progress.counts().items() if count)
        return f"<session {self.name}: {counts or 'no tasks'}{', closed' if self._is_shut else ''}>"

    # --- ending -------------------------------------------------------------------------------------

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; with `wait`, return when everything has ended. Cancelling spares what runs."""
        if self._connection.is_forked:
            return
        if not self._is_shut:
            self.close_groups()
        self._is_shut = True
        if cancel_futures:
            self.cancel_waiting()
        if not wait:
            self.is_draining = True
            threading.Thread(target=self._drain_quietly, name="bough-drain", daemon=True).start()
            return
        shutdown.shut(self)

    def detach(self) -> None:
        """Leave the tasks to the server; an embedded session has none that would outlive it."""
        raise UserError("detach: this session's tasks end with the script, because its server is part of it")

    def give_back(self) -> None:
        """Leave in a hurry what goes on without us."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._is_shut = True
            shutdown.stop(self)
        elif error is not None and not (isinstance(error, SystemExit) and not error.code):
            self._is_shut = self._is_told = True  # the error that leaves the block says enough
            shutdown.abandon(self)
        else:
            self.shutdown(wait=True)

    def cancel_waiting(self) -> None:
        """Cancel what has not started."""
        from bough.api.futures.task import PENDING

        for feed in list(self._feeds):
            feed.stop()
        for task in list(self.ledger.tasks.values()):
            if task._state == PENDING:
                task.cancel()
        for array in list(self.ledger.arrays.values()):
            array.cancel_waiting()

    def drain(self) -> None:
        """Wait for the end of everything and close in good order."""
        for feed in list(self._feeds):
            feed.abandon()
            feed.join()
        self._connection.close("drain")
        self._connection.ended.wait()
        self._finish(10)
        if not self._connection.is_closed and not self._is_told:
            self._is_told = True
            raise self._fault or self._died()

    def _drain_quietly(self) -> None:
        """Drain where nobody could catch an error; the tasks tell it."""
        with contextlib.suppress(BoughError):
            self.drain()

    def end(self, how: Farewell, patience: float) -> None:
        """Tell the server to stop, and see to it that it does."""
        for feed in list(self._feeds):
            feed.stop()
        self._connection.close(how)
        self._connection.ended.wait(patience)
        self._finish(patience)

    def _finish(self, patience: float) -> None:
        """See the server's process off."""
        with self._closing:
            if not self.is_over:
                if not self._server.wait(patience):
                    self._server.kill()
                self._connection.ended.wait(5)
                self.is_over = True
        shutdown.forget(self)

    # --- what modules of this package use -------------------------------------------------------------

    @property
    def files(self) -> FileTable:
        """Who writes what in this workflow."""
        if self._files is None:
            from bough.api.file_table import EarlierOutputs, FileTable

            self._files = FileTable(self._earlier_paths, EarlierOutputs(self.store, self.welcome.first_id))
        return self._files

    def _earlier_paths(self) -> Iterable[str]:
        return self._connection.ask(questions.Paths())

    def check_open(self) -> None:
        """Refuse work after shutdown, or in a forked process."""
        if self._connection.is_forked:  # before anything is locked: a lock may have been held when we were forked
            from bough.api.client.connection import FORKED

            raise UserError(FORKED)
        if self._is_shut:
            raise SessionClosed("the session is shut down and takes no more work; open another one")

    def new_record(self) -> RecordId:
        """A number for a task or array."""
        return next(self._records)

    def new_records(self, count: int) -> list[RecordId]:
        """Numbers for tasks, ascending."""
        return [self.new_record() for _ in range(count)]

    def keep_argument(self, record: RecordId, payload: bytes) -> str:
        """Put arguments that are too big to send into a file."""
        from bough.api.submit.calls import keep_argument

        return keep_argument(self.store, record, payload)

    def send_array(self, settings: TaskOptions, group: int, **parts: Any) -> ArrayElements:
        """Submit an array; see `submission.ArrayParts`."""
        made = self._submission.ArrayParts(**parts)
        return self._submission.send_array(self, settings, group, made)

    def array_there(self, group: int, parts: ArrayParts, after: tuple[Dep, ...]) -> int | None:
        """The array of an earlier session of this run that a submission is."""
        return None

    def adopted(self, elements: ArrayElements) -> None:
        """An array that was there is in the ledger."""

    def add_feed(self, feed: Feed) -> None:
        """Remember a feed that must end before the session can."""
        self._feeds.append(feed)

    def feed_ended(self, feed: Feed, elements: ArrayElements) -> None:
        """A feed takes no more from its generator."""
        self._feeds.remove(feed)
        self.ledger.forget_ended(elements)

    def post(self, *messages: object) -> None:
        """Send messages that nobody answers; nothing is said to a server that has gone."""
        if not self._connection.ended.is_set():
            self._connection.post(*messages)

    def ask(self, question: Question[T]) -> T:
        """Ask the server."""
        return self._connection.ask(question)

    @property
    def connection(self) -> Connection:
        """The connection to the server."""
        return self._connection

    @property
    def server(self) -> ServerProcess:
        """The server's process."""
        return self._server

    # --- what the connection tells ------------------------------------------------------------------

    def _refused(self, item: Any, error: BoughError) -> None:
        if self._files is not None and hasattr(item, "id"):
            self._files.withdraw(item.id)
        self.ledger.refused(item, error)

    def _lost(self, error: BoughError | None) -> None:
        if isinstance(error, PeerLost):
            error = self._died()
        self._fault = error
        self.ledger.lost(error)

    def _died(self) -> PeerLost:
        said = self._server.last_words()
        where = self._server.place.log
        return PeerLost(f"the session's server ended unexpectedly; see {where}{': ' + said if said else ''}")


def refuse_inside() -> None:
    """A task opens no session."""
    if "BOUGH_TASK" in os.environ or "BOUGH_RUN" in os.environ:
        raise UserError("a task cannot open a session of its own; use bough.here().session() inside a task")
