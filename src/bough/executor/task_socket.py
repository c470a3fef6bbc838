"""Where running tasks find their executor: a socket on which they ask, and are answered by the server.

$BOUGH_HERE names it. A request is one line of JSON, {"task": [record, index, attempt] or null, "question": {"what",
...}} (see `wire.questions.HereQuestion`), and so is its answer, {"value"} or {"error", "kind"}; one request a
connection. A process that does not know its task is known by its process group. The socket has an abstract name:
nothing is left of it, however the executor ends. Rule: only the user's own processes are listened to, and only for
tasks that are here.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from bough import private
from bough.model.bounds import Count, in_plain_words
from bough.model.ids import RecordId, SpanId
from bough.wire.executor_messages import TaskAnswer, TaskRequest
from bough.wire.questions import Forget, HereQuestion, Lock, Unlock

VARIABLE = "BOUGH_HERE"
_LONGEST = 1 << 16  # bytes of a request
_WAITING = 256  # that may wait to be let in

Whereabouts = tuple[SpanId, RecordId, int, int]  # span, record, index and attempt of a task that is here
Find = Callable[[tuple[int, int, int] | None, int], Whereabouts | None]  # by its name, or by a process group


class SocketRequest(msgspec.Struct, frozen=True):
    """What a process says on the socket."""

    task: tuple[Count, Count, Count] | None  # record, index and attempt
    question: HereQuestion


_decode = msgspec.json.Decoder(SocketRequest).decode


class _Caller:
    """A process that asks."""

    __slots__ = ("data", "pid", "request", "sock")

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self.sock = sock
        self.pid = pid
        self.data = b""
        self.request = 0


class TaskSocket:
    """See the module. `find` finds a task that is here, `say` speaks to the server."""

    def __init__(self, epoll: select.epoll, find: Find, say: Callable[[object], None]) -> None:
        self._epoll = epoll
        self._find = find
        self._say = say
        self._last = 0
        self._callers: dict[int, _Caller] = {}  # by descriptor
        self._asked: dict[int, tuple[_Caller | None, TaskRequest]] = {}  # by request
        name = f"bough-here-{os.getpid()}-{os.urandom(8).hex()}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.bind(f"\0{name}")
        self._listener.listen(_WAITING)
        epoll.register(self._listener.fileno(), select.EPOLLIN)
        os.environ[VARIABLE] = f"@{name}"
        for inherited in ("BOUGH_TASK", "BOUGH_ATTEMPT"):  # of a task that this executor was started by
            os.environ.pop(inherited, None)

    def hear(self, fd: int) -> None:
        """Something happened at one of our descriptors."""
        if fd == self._listener.fileno():
            self._let_in()
        elif fd in self._callers:
            self._read(self._callers[fd])

    def _let_in(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # it left again, or there are too many
            return
        pid, user = private.other_end(sock)
        if user not in {0, os.getuid()}:
            sock.close()
            return
        sock.setblocking(False)
        self._callers[sock.fileno()] = _Caller(sock, pid)
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _read(self, caller: _Caller) -> None:
        try:
            data = caller.sock.recv(_LONGEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        caller.data += data
        if not data or len(caller.data) > _LONGEST:
            self._hang_up(caller)
        elif caller.data.endswith(b"\n") and not caller.request:
            self._ask(caller)

    def _ask(self, caller: _Caller) -> None:
        try:
            asked = _decode(caller.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            text = f"the request cannot be read: {in_plain_words(str(error))}"
            self._reply(caller, TaskAnswer(0, error=text, kind="ProtocolError"))
            return
        task = asked.task
        found = self._find(task, _group_of(caller.pid))
        if found is None:
            which = f"task {task[0]}.{task[1]}, attempt {task[2]}," if task is not None else "the process that asks"
            text = f"{which} is not run by this executor: only a running task can ask"
            self._reply(caller, TaskAnswer(0, error=text, kind="UserError"))
            return
        self._last += 1
        caller.request = self._last
        ask = TaskRequest(self._last, *found, asked.question)
        self._asked[self._last] = (caller, ask)
        self._say(ask)

    def resume(self) -> None:
        """The server is back: ask again."""
        for _, ask in self._asked.values():
            self._say(ask)

    def answer(self, answer: object) -> bool:
        """The server said something; whether it is an answer to what was asked here."""
        if not isinstance(answer, TaskAnswer):
            return False
        caller, ask = self._asked.pop(answer.request, (None, None))
        if caller is not None:
            self._reply(caller, answer)
        elif ask is not None and isinstance(ask.question, Lock) and answer.value.get("new"):  # nobody will free it
            self._last += 1
            self._say(replace(ask, request=self._last, question=Unlock(ask.question.name)))
        return True

    def _reply(self, caller: _Caller, answer: TaskAnswer) -> None:
        import json

        said: dict[str, object] = {"value": answer.value}
        if answer.error:
            said = {"error": answer.error, "kind": answer.kind}
        with contextlib.suppress(OSError):  # it did not wait
            caller.sock.send(json.dumps(said).encode() + b"\n")
        caller.request = 0
        self._hang_up(caller)

    def _hang_up(self, caller: _Caller) -> None:
        """One that left before it was answered does not wait for anything any more."""
        self._epoll.unregister(caller.sock.fileno())
        del self._callers[caller.sock.fileno()]
        caller.sock.close()
        if caller.request in self._asked:
            _, ask = self._asked[caller.request]
            self._asked[caller.request] = (None, ask)
            self._say(replace(ask, question=Forget()))

    def close(self) -> None:
        """Listen no more; who waits for an answer will not get one."""
        for caller in self._callers.values():
            caller.sock.close()
        self._listener.close()


def _group_of(pid: int) -> int:
    """The process group of a process, 0 when it is gone."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0
