"""The socket on which running tasks ask their executor; the server answers.

$BOUGH_HERE names it. A request is one line of JSON, {"task": [record, index, attempt] or null, "question": {"what",
...}} (see `wire.here_questions`), and so is its answer, {"value"} or {"error", "kind"}; one request a
connection. Numbers that a task reports go with the executor's news, and are answered at once. A process that does not
know its task is known by its process group. The socket has an abstract name: nothing is left of it, however the
executor ends. Rule: only the user's own processes are listened to, and only for
tasks that are here.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec.structs import replace

from bough import private
from bough.executor.host.descriptors import Descriptors
from bough.model.bounds import Count, in_plain_words
from bough.model.ids import RecordId, SpanId
from bough.wire.executor_messages import TaskAnswer, TaskRequest
from bough.wire.here_questions import Forget, HereQuestion, Lock, Report, Unlock

VARIABLE = "BOUGH_HERE"
_LONGEST = 1 << 16  # bytes of a request
_WAITING = 256  # callers that may wait to be accepted

Location = tuple[SpanId, RecordId, int, int]  # span, record, index and attempt of a task that is here
TakeReport = Callable[[SpanId, int, Report], str]  # span and index of the task; why it cannot be taken, or nothing
Find = Callable[[tuple[int, int, int] | None, int], Location | None]  # by its name, or by a process group


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
    """See the module. `find` finds a task that is here, `say` speaks to the server, `report` takes numbers of it."""

    def __init__(self, descriptors: Descriptors, find: Find, say: Callable[[object], None], report: TakeReport) -> None:
        self._descriptors = descriptors
        self._find = find
        self._say = say
        self._report = report
        self._last = 0
        self._callers: set[_Caller] = set()
        self._asked: dict[int, tuple[_Caller | None, TaskRequest]] = {}  # by request
        name = f"bough-here-{os.getpid()}-{os.urandom(8).hex()}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.bind(f"\0{name}")
        self._listener.listen(_WAITING)
        descriptors.add(self._listener.fileno(), self._accept)
        os.environ[VARIABLE] = f"@{name}"
        for inherited in ("BOUGH_TASK", "BOUGH_ATTEMPT"):  # of a task that this executor was started by
            os.environ.pop(inherited, None)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # it left again, or there are too many
            return
        pid, user = private.other_end(sock)
        if user not in {0, os.getuid()}:
            sock.close()
            return
        sock.setblocking(False)
        caller = _Caller(sock, pid)
        self._callers.add(caller)
        self._descriptors.add(sock.fileno(), partial(self._read, caller))

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
        if isinstance(asked.question, Report):
            wrong = self._report(found[0], found[2], asked.question)
            self._reply(caller, TaskAnswer(0, error=wrong, kind="UserError" if wrong else ""))
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
        elif (
            ask is not None and isinstance(ask.question, Lock) and answer.value.get("new")
        ):  # its task would never free it
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
        """Close the connection of a caller; the server forgets what one that left early had asked."""
        self._descriptors.remove(caller.sock.fileno())
        self._callers.discard(caller)
        caller.sock.close()
        if caller.request in self._asked:
            _, ask = self._asked[caller.request]
            self._asked[caller.request] = (None, ask)
            self._say(replace(ask, question=Forget()))

    def close(self) -> None:
        """Listen no more; callers that wait for an answer will not get one."""
        for caller in self._callers:
            caller.sock.close()
        self._listener.close()


def _group_of(pid: int) -> int:
    """The process group of a process, 0 when it has ended."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0
