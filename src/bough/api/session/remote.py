"""The host of a session whose server is a service: it was there before the session, and stays.

What is submitted is the service's. A session whose workflow is still running joins it: an identical submission is
then the task that is there. In the folder it is opened in a session leaves `.bough/token`, a random text by which
others see that they share this folder, and `.bough/served/NAME`, which holds big arguments and digests of outputs.

Rules: the connection may break and be made again at any time, and no caller need know. Other users can read nothing of
what lies in the folder.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from bough import private
from bough.api.client.connection import Connection
from bough.api.client.reconnect import DialAgain, Dialled
from bough.api.file_transfer import FileTransfer
from bough.api.futures.completed import read_stream_bytes
from bough.api.session import launch
from bough.api.session.launch import HOME, DispatchOptions, client_hello, find_place, read_tuning
from bough.api.session.rejoin import ExistingWork, WorkflowContents
from bough.api.session.session_store import script_run
from bough.errors import BoughError, PeerLost, SessionClosed, StoreFailed, UnknownName, UserError
from bough.model.bounds import Word, within
from bough.model.ids import RecordId
from bough.transport.access import find_access
from bough.transport.dial import dial
from bough.wire import questions

if TYPE_CHECKING:
    from bough.api.futures.progress import Progress
    from bough.api.futures.task_registry import TaskRegistry
    from bough.api.values.argument_values import ArgumentValues
    from bough.model.events.news import PagesAdded
    from bough.model.outcomes import Stream
    from bough.model.reuse_scope import ReuseMode
    from bough.model.sites.resources import Needs
    from bough.model.tasks import Item
    from bough.wire.client_messages import Farewell

IDS = 1_000_000  # numbers for records and groups that a session asks for
_GOODBYE = 5.0  # seconds that a server has to say good-bye
_TRIES = 5  # servers of the user's own that end while they are dialled


class RemoteHost:
    """See the module."""

    is_remote = True
    cores = 0.0  # those of the service's executors

    def __init__(
        self,
        address: str,
        *,
        name: str | None,
        reuse: ReuseMode,
        policy: str | None,
        fail_fast: bool | None,
        tuning: DispatchOptions,
        find: Callable[[], str] | None = None,
    ) -> None:
        self._find = find  # gives the address of the user's own server, which is started if it is not there
        self._bundle = read_tuning(tuning, is_remote=True).bundle
        self.address = os.path.abspath(address) if os.path.exists(address) else address  # the script may change folders
        self.name = find_place(launch.setting("name", name), None).name
        find_access(self.address, role="submit")  # before anything is made: what is wrong with the address is said now
        self.is_near = False
        self.keeps_arguments = False
        self.store = own_folder(self.name)
        self._fields = {
            "workflow": self.name,
            "ids": launch.setting("numbers", None, IDS),
            "directory": os.getcwd(),
            "token": own_token(),
            "reuse": reuse,
            "script": script_run(),
            "fail_fast": bool(launch.setting("fail_fast", fail_fast or None)),
            "policy": within("policy", launch.setting("policy", policy, ""), Word),
            "user": user_name(),
        }
        self._numbering = threading.Lock()
        self._next = self._last = 0  # numbers for records
        self._connection: Connection
        self.transfer: FileTransfer

    @property
    def pid(self) -> int:
        """The process of a service is not the session's."""
        raise UserError("pid: the server of this session is not a process of its own; see bough server status")

    # --- opening --------------------------------------------------------------------------------------

    def connect(
        self,
        registry: TaskRegistry,
        on_refused: Callable[[Item | PagesAdded, BoughError], None],
        on_lost: Callable[[BoughError | None], None],
    ) -> Connection:
        """Connect to the service; a workflow that is running is joined, even if nothing more was to come into it."""
        registry.read_remote_output = self._read_output
        for left in reversed(range(1 if self._find is None else _TRIES)):
            try:
                return self._connect(registry, on_refused, on_lost)
            except PeerLost:  # it ended just now, because it had nothing to do
                if not left or self._find is None:
                    raise
                self.address = self._find()
        raise AssertionError("the last try returns or raises")

    def _connect(
        self,
        registry: TaskRegistry,
        on_refused: Callable[[Item | PagesAdded, BoughError], None],
        on_lost: Callable[[BoughError | None], None],
    ) -> Connection:
        self.transfer = FileTransfer(self.address, registry.on_messages)

        def say_hello(**fields: Any) -> Connection:
            reconnect = DialAgain(self._dial, self.address, registry.unended)
            connection = Connection(reconnect, self.transfer.on_messages, on_refused, on_lost, self._bundle)
            self.transfer.pass_on_later = connection.pass_on_later
            registry.connect(connection)
            connection.start(client_hello(**self._fields, **fields))
            try:
                connection.welcome()
            except BaseException:
                connection.ended.wait(5)
                raise
            return connection

        try:
            self._connection = say_hello(join=True)
        except UnknownName:
            self._connection = say_hello()
        welcome = self._connection.welcome()
        self._next, self._last = welcome.first_id, welcome.first_id + welcome.ids
        self.keeps_arguments = welcome.shared
        self.transfer.on_welcome(welcome.run, is_shared=welcome.shared)
        return self._connection

    def _dial(self) -> Dialled:
        if self._find is not None:
            self.address = self._find()
        access = find_access(self.address, role="submit")
        self.is_near = access.is_unix
        sock, proof, leftover = dial(access)
        return Dialled(sock, [proof] if proof is not None else [], leftover)

    def join(self, connection: Connection, progress: Progress) -> ExistingWork | None:
        """What a workflow that is running holds; a whole description needs none of it."""
        welcome = connection.welcome()
        if not welcome.joined or (welcome.closed and launch.defaults().describes):
            return None
        contents = msgspec.convert(connection.ask(questions.Inventory()), WorkflowContents)
        groups = {group.id: group for group in contents.groups}

        def add(number: int) -> None:
            """Parents first, whatever their numbers are."""
            group = groups.pop(number, None)
            if group is not None:
                add(group.parent)
                if not group.name.startswith("."):
                    progress.group_added(group.id, group.parent, group.name)

        for number in sorted(groups):
            add(number)
        return ExistingWork(contents, connection)

    # --- while it is open -----------------------------------------------------------------------------

    def new_record(self) -> RecordId:
        """A number for a task or array; the server gives more of them when they are used up."""
        with self._numbering:
            if self._next >= self._last:
                given = self._connection.ask(questions.Ids(IDS))
                self._next, self._last = given.first_id, given.first_id + given.ids
            self._next += 1
            return RecordId(self._next - 1)

    def upload(self, paths: Iterable[str], label: str) -> dict[str, bytes]:
        """Give the server the contents of files; their digests, empty if it can read them itself."""
        return self.transfer.upload(paths, label)

    def leave_files(self, records: Iterable[int]) -> None:
        """What these tasks of earlier runs made is not brought: newer files may lie in its places."""
        self.transfer.left.update(records)

    def _read_output(self, record: int, index: int, name: str, stream: Stream) -> bytes:
        """What a task wrote: from its file, where this process may read it, or through the server."""
        if self.is_near or self.keeps_arguments:
            with contextlib.suppress(StoreFailed):
                return read_stream_bytes(stream)
        pieces: list[bytes] = []
        got = 0
        while got < stream.length:
            offset, length = stream.offset + got, stream.length - got
            piece = self._connection.ask(
                questions.Output(RecordId(record), index, questions.stream_name(name), offset, length, stream.path)
            ).data
            if not piece:
                break
            pieces.append(piece)
            got += len(piece)
        return b"".join(pieces)

    # --- ending ---------------------------------------------------------------------------------------

    def argument_values(self) -> ArgumentValues:
        """The server keeps them."""
        from bough.api.values.remote_values import RemoteValues  # late: few arguments are big

        return RemoteValues(self.transfer.put_value)

    def check_needs(self, needs: Needs) -> None:
        """An executor that has what is needed may join at any time; until then tasks wait, and `explain` says so."""

    def check_detach(self) -> None:
        """The service keeps the tasks of a session that leaves."""

    def say_goodbye(self, connection: Connection, how: Farewell, timeout: float) -> None:
        """Leave, however the session ends: the tasks are the server's."""
        self.transfer.abandon()
        if not connection.is_away:
            connection.close("detach")
            connection.ended.wait(_GOODBYE)
        connection.leave(self._left())

    def finish(self, connection: Connection, timeout: float) -> None:
        """Wait for the end of the connection."""
        connection.ended.wait(timeout)

    def on_lost(self, error: BoughError | None, *, is_detached: bool) -> BoughError | None:
        """Pass on what the server said last, and tell why no more comes."""
        self.transfer.finish()
        if is_detached:
            return self._left()
        return self.died() if isinstance(error, PeerLost) else error

    def died(self) -> PeerLost:
        """The server ended the session."""
        return PeerLost(f"the server at {self.address} ended the session; see bough server status")

    def _left(self) -> SessionClosed:
        back = f"bough.Session({self.address!r}, name={self.name!r})"
        return SessionClosed(f"the session has left workflow {self.name} to the server; return to it with {back}")


# --- what a session leaves in its folder, and the user's name -------------------------------------------


def own_token() -> str:
    """The text of ./.bough/token, by which other sessions see that they share this folder; made if need be."""
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
        os.link(hidden, path)  # another process may have made one just now: that one counts
    except FileExistsError:
        return own_token()
    except OSError:
        return ""  # nothing can be written here, so nothing is shared
    finally:
        with contextlib.suppress(OSError):
            os.unlink(hidden)
    return token


def user_name() -> str:
    """The name of this user, for people to read."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def own_folder(name: str) -> str:
    """Where this side keeps what it must remember of the workflow: big arguments, digests of outputs."""
    folder = os.path.abspath(os.path.join(HOME, "served", name))
    try:
        for inner in (HOME, os.path.dirname(folder), folder, os.path.join(folder, "args")):
            private.make_folder(inner)
    except OSError as error:
        raise StoreFailed(f"the folder {folder} cannot be made: {error.strerror}") from error
    return folder
