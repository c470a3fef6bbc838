"""The session of a service: the same `Session` with another host object.

What a session of a service leaves in the folder it is opened in, and who it says it is.

`.bough/token` is a random text by which others see that they share this folder; `.bough/served/NAME` holds big
arguments and claims of outputs. Rule: nothing of it can be read by other users.

A session of a service: the same as an embedded one, but its server was there before and stays.

What is submitted is the server's. Leaving the `with` block waits for all of it; `detach()`, an exception or Ctrl-C
leave it to the server. A session whose workflow still goes on joins it: an identical submission is then the
task that is there. Rule: the connection may break and come back at any time, and nobody here need know.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import socket
import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from bough import private
from bough.api.client.reconnect import LastingConnection
from bough.api.file_transfer import FileTransfer
from bough.api.futures.completed import read_stream_bytes
from bough.api.session import launch, shutdown
from bough.api.session.launch import HOME, DispatchTuning, find_place, read_bundle
from bough.api.session.rejoin import ExistingRecord, ExistingWork, WorkflowContents
from bough.api.session.session import Session, refuse_inside
from bough.errors import BoughError, PeerLost, SessionClosed, StoreFailed, UnknownName, UserError
from bough.model.bounds import Word, within
from bough.model.events.facts import GroupClosed
from bough.model.events.news import Retry
from bough.model.ids import BlobId, GroupId, RecordId
from bough.model.tasks import Dep, On
from bough.transport.access import find_access
from bough.wire import questions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bough.api.futures.array import Array
    from bough.api.futures.elements import ArrayElements
    from bough.api.futures.task import Task
    from bough.api.submit.arrays import ArrayParts
    from bough.model.outcomes import Stream
    from bough.model.tasks import TaskSpec


def own_token() -> str:
    """What stands in ./.bough/token, by which others see that they share this directory; it is made if need be."""
    path = os.path.join(HOME, "token")
    with contextlib.suppress(OSError):
        with open(path, encoding="ascii") as file:
            found = file.read().strip()
        if found:
            return found
    token, hidden = secrets.token_hex(16), f"{path}.{os.getpid()}"
    try:
        private.make_folder(HOME)
        with open(hidden, "w", encoding="ascii", opener=private.opener) as file:
            file.write(token + "\n")
        os.link(hidden, path)  # somebody else may have made one just now: theirs counts
    except FileExistsError:
        return own_token()
    except OSError:
        return ""  # nothing can be written here, so nothing is shared
    finally:
        with contextlib.suppress(OSError):
            os.unlink(hidden)
    return token


def user_name() -> str:
    """Who this is, for people to read."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def own_folder(name: str) -> str:
    """Where this side keeps what it must remember of the workflow: big arguments, claims of outputs."""
    folder = os.path.abspath(os.path.join(HOME, "served", name))
    try:
        for inner in (HOME, os.path.dirname(folder), folder, os.path.join(folder, "args")):
            private.make_folder(inner)
    except OSError as error:
        raise StoreFailed(f"the folder {folder} cannot be made: {error.strerror}") from error
    return folder


IDS = 1_000_000  # numbers for records and groups that a session asks for
_GATHER = 0.05  # seconds in which records to be asked about gather
_MOST = 500  # of them at a time
_GOODBYE = 5.0  # seconds that a server has to say good-bye


class RemoteSession(Session):
    """A session of a running server. `bough.Session(address)` makes one."""

    is_remote = True
    is_near = False  # its server is on this machine, so that the paths it names are the ones here

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
        numbers: int = IDS,
        **knobs: Unpack[DispatchTuning],
    ) -> None:
        refuse_inside()
        self._bundle = read_bundle(knobs, is_remote=True)
        self.address = launch.server(address) or ""
        if os.path.exists(self.address):
            self.address = os.path.abspath(self.address)  # the script may change its folder
        self.name = find_place(launch.setting("name", name), None).name
        find_access(self.address, role="submit")  # before anything is made: what is wrong with the address is said now
        self._refuse_twice()
        self.cores = 0.0  # those of the server's executors: see processors()
        self.directory = os.getcwd()
        self.store = own_folder(self.name)
        self._inventory: ExistingWork | None = None
        self.known: dict[int, Task | ArrayElements] = {}  # records of others that were found
        self._asked: list[int] = []  # records to be asked about soon
        self._asking = threading.Lock()
        self._numbering = threading.Lock()
        self._is_detached = False
        self._submitted: list[int] = []  # kept for those who submit and leave
        self._prepare()
        self.ledger.far_output = self._read_output
        self.carrier = FileTransfer(self)
        hello = {
            "workflow": self.name,
            "ids": numbers,
            "directory": self.directory,
            "token": own_token(),
            "fresh": bool(launch.setting("fresh", fresh or None)),
            "fail_fast": bool(launch.setting("fail_fast", fail_fast or None)),
            "policy": within("policy", launch.setting("policy", policy, ""), Word),
            "user": user_name(),
        }
        try:  # one that goes on is joined even if its last session had said that nothing more comes
            self._open(self._connect(), **hello, join=True)
        except UnknownName:
            self._open(self._connect(), **hello)
        self._record, self._last_record = self.welcome.first_id, self.welcome.first_id + self.welcome.ids
        self.keeps_arguments = self.welcome.shared
        if self.welcome.joined and not (self.welcome.closed and launch.describes):
            try:
                self._join()
            except BaseException:
                self.let_go()
                raise

    def _refuse_twice(self) -> None:
        mine = [other for other in launch.sessions if isinstance(other, RemoteSession) and not other.is_over]
        if any((other.name, other.address) == (self.name, self.address) and other.is_connected for other in mine):
            raise UserError(
                f"the workflow {self.name!r} has a session already in this process: pid {os.getpid()} on host"
                f" {socket.gethostname()}; close it, or choose another name"
            )

    @property
    def is_connected(self) -> bool:
        """Whether it has a server, though that may be away for a while."""
        return not self._connection.ended.is_set()

    def _connect(self) -> LastingConnection:
        return LastingConnection(
            self._dial,
            self.address,
            hear=self.carrier.hear,
            refused=self._refused,
            lost=self._lost,
            unended=self.ledger.unended,
            bundle=self._bundle,
        )

    def _dial(self) -> tuple[socket.socket, list[object], bytes]:
        from bough.transport.dial import dial

        access = find_access(self.address, role="submit")
        self.is_near = access.is_unix
        sock, proof, leftover = dial(access)
        return sock, [proof] if proof is not None else [], leftover

    def _give_up(self, error: BaseException) -> None:
        self._connection.ended.wait(5)

    def _join(self) -> None:
        """Learn what is there."""
        stock = msgspec.convert(self._connection.ask(questions.Inventory()), WorkflowContents)
        self._inventory = ExistingWork(stock)
        groups = {group.id: group for group in stock.groups}
        for group in sorted(groups.values(), key=lambda group: group.id):
            self._add_group(groups, group.id)

    def _add_group(self, groups: dict[int, Any], number: int) -> None:
        """Parents first, whatever their numbers are."""
        group = groups.pop(number, None)
        if group is not None:
            self._add_group(groups, group.parent)
            if not group.name.startswith("."):
                self.ledger.progress.group_added(group.id, group.parent, group.name)

    # --- looking --------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The process of a service is nobody's child."""
        raise UserError("pid: the server of this session is not a process of its own; see bough server status")

    def find(self, selector: str | int) -> Array:
        """Tasks of this workflow by id, name or group, as on the command line; also those of its earlier runs."""
        from bough.api.find import find_far

        return find_far(self, str(selector))

    def jobs(self) -> Any:
        """The jobs database, which the server asks for us."""
        from bough.api.find import far_jobs

        return far_jobs(self)

    def _read_output(self, record: int, index: int, name: str, stream: Stream) -> bytes:
        """What a task wrote: from its file, where that is ours to see, or through the server."""
        if self.is_near or self.welcome.shared:
            with contextlib.suppress(StoreFailed):
                return read_stream_bytes(stream)
        pieces: list[bytes] = []
        got = 0
        while got < stream.length:
            offset, length = stream.offset + got, stream.length - got
            piece = self.ask(
                questions.Output(RecordId(record), index, questions.stream_name(name), offset, length, stream.path)
            ).data
            if not piece:
                break
            pieces.append(piece)
            got += len(piece)
        return b"".join(pieces)

    def _earlier_paths(self) -> Iterable[str]:
        there = self._inventory.records.values() if self._inventory is not None else ()
        return [*super()._earlier_paths(), *(path for record in there for path in record.writes)]

    # --- what is there already --------------------------------------------------------------------------

    def put_task(self, task: Task, spec: TaskSpec, size: int, blobs: tuple[tuple[BlobId, bytes], ...]) -> None:
        """Submit a loose task, or make it the one that is there."""
        if self._inventory is not None:
            there = self._inventory.take_task(spec.group, spec.key, spec.after, spec.inputs)
            if there is not None:
                self._renumber(spec.id, there.id, spec.writes)
                task.id = there.id
                self.ledger.tasks[there.id] = task
                self.ledger.progress.added(spec.group, 1)
                self._go_on_with(there)
                return
        super().put_task(task, spec, size, blobs)

    def array_there(self, group: int, parts: ArrayParts, after: tuple[Dep, ...]) -> int | None:
        """The array that a submission is, if it is there."""
        if self._inventory is None or parts.open:
            return None
        from bough.model.memo_keys import pages_digest

        arguments = (parts.length, parts.table, pages_digest(parts.pages), bool(parts.element_after))
        there = self._inventory.take_array(group, parts.key, after, arguments)
        if there is None:
            return None
        if parts.record:
            self._renumber(parts.record, there.id)
        return there.id

    def adopted(self, elements: ArrayElements) -> None:
        """An array that is there was put into the ledger: hear of its ends."""
        assert self._inventory is not None
        self._go_on_with(self._inventory.records[elements.record])

    def group_there(self, parent: int, name: str) -> int | None:
        """The group of that name that is there."""
        return self._inventory.groups.get((parent, name)) if self._inventory is not None else None

    def _renumber(self, record: int, there: int, paths: Iterable[str] = ()) -> None:
        if self._files is not None:
            self._files.renumber(RecordId(record), RecordId(there), paths)

    def _go_on_with(self, there: ExistingRecord) -> None:
        if there.failed:  # what ended without success is tried again, and then waited for
            on = On.ARRAY if there.is_array else On.TASK
            self._connection.act(Retry(Dep(on, there.id)))
        self.inquire(there.id)

    def inquire(self, record: int) -> None:
        """Ask soon how a record ended; those asked about within a moment are asked about together."""
        with self._asking:
            self._asked.append(record)
            count = len(self._asked)
        if count >= _MOST:
            self._inquire_now()
        elif count == 1:
            timer = threading.Timer(_GATHER, self._inquire_now)
            timer.daemon = True
            timer.start()

    def _inquire_now(self) -> None:
        with self._asking:
            asked, self._asked = self._asked, []
        if asked:
            with contextlib.suppress(BoughError):
                self._service.inquire(asked)

    @property
    def _service(self) -> LastingConnection:
        assert isinstance(self._connection, LastingConnection)
        return self._connection

    def submitted(self) -> list[int]:
        """The numbers of everything that was submitted here."""
        return list(self._submitted)

    # --- numbers --------------------------------------------------------------------------------------

    def new_record(self) -> RecordId:
        """A number for a task or array; the server gives more of them when they are used up."""
        with self._numbering:
            if self._record >= self._last_record:
                given = self._connection.ask(questions.Ids(IDS))
                self._record, self._last_record = given.first_id, given.first_id + given.ids
            self._record += 1
            if launch.options.get("detach"):
                self._submitted.append(self._record - 1)
            return RecordId(self._record - 1)

    # --- ending ---------------------------------------------------------------------------------------

    def detach(self) -> None:
        """Leave the tasks to the server, once it has acknowledged all; here they cannot be asked for any more."""
        if self._connection.is_forked or self._is_detached:
            return
        self._is_shut = True
        for feed in list(self._feeds):
            feed.stop()
            feed.join()
        try:
            self._service.settle()
        finally:
            self.let_go()

    def close_and_detach(self) -> None:
        """As `detach`, and nothing will be added: the workflow is over once everything in it has ended."""
        if self._is_detached:
            return
        self.close_groups()
        self.post(GroupClosed(GroupId(self.root)))
        self.detach()

    def let_go(self) -> None:
        """Leave, whatever the server has acknowledged."""
        self._is_detached = True
        self.carrier.abandon()
        if not self._service.is_away:
            self._connection.close("detach")
            self._connection.ended.wait(_GOODBYE)
        self._service.leave(self._left_error())
        self.is_over = True
        shutdown.forget(self)

    def _left_error(self) -> SessionClosed:
        back = f"bough.Session({self.address!r}, name={self.name!r})"
        return SessionClosed(f"the session has left workflow {self.name} to the server; come back to it with {back}")

    def give_back(self) -> None:
        """Leave because of an error or Ctrl-C, and say what goes on."""
        if self.is_over or self._connection.is_forked:
            return
        left = self.progress.left()
        is_there = False
        try:
            self._is_shut = True
            for feed in list(self._feeds):
                feed.stop()
            is_there = self._service.settle(None if not self._service.is_away else 0)
        finally:
            self.let_go()
            if left:
                server = f" --server {self.address}" if self.address else ""
                sys.stderr.write(
                    f"bough: workflow {self.name} goes on at the server with {left} tasks; run the script again to come"
                    f" back to it, or end it with bough cancel{server} {self.name}:all\n"
                )
                if not is_there:
                    sys.stderr.write("bough: what the server has not acknowledged is not among them\n")
                sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_detached:
            return
        if kind is not None:
            self.give_back()
        elif launch.options.get("detach"):
            self.close_and_detach()
        else:
            self.shutdown(wait=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; with `wait`, return when everything has ended. Cancelling spares what runs."""
        if not self._is_detached:
            super().shutdown(wait, cancel_futures=cancel_futures)

    def end(self, how: str, patience: float) -> None:
        """Leave; what goes on is the server's."""
        self.let_go()

    def _finish(self, patience: float) -> None:
        self._connection.ended.wait(patience)
        self.is_over = True
        shutdown.forget(self)

    def _lost(self, error: BoughError | None) -> None:
        self.carrier.settle()
        super()._lost(self._left_error() if self._is_detached else error)

    def _died(self) -> PeerLost:
        return PeerLost(f"the server at {self.address} ended the session; see bough server status")
