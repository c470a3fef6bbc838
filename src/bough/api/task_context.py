"""`bough.here()`: a running task's view of itself, and sessions inside a task.

A function finds its task by what its worker shows (`executor.worker.current_task`), a program by its environment.
Both ask their executor by the socket that $BOUGH_HERE names. A nested session runs on the cores of its task, which
waits for it and uses nothing meanwhile.

Rules: it is light to import, since shell scripts call `bough here` again and again. A question waits as long as the
server is away. A nested session ends with the process of its task, however that ends; its folder goes with it, or
with the executor if the process was killed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from bough import errors, private
from bough.errors import BadValue, BoughError, PeerLost, SiteError, UserError
from bough.model.bounds import check_bounds
from bough.private import TemporaryFolder
from bough.wire import here_questions
from bough.wire.here_questions import HereQuestion

if TYPE_CHECKING:
    from bough.api.session.session import Session

_OUTSIDE = "there is no task here: bough.here() and bough here are for functions and commands that Bough runs"
_DIGITS = 18  # of an id that a store can hold
_OUTER = ("BOUGH_TASK", "BOUGH_ATTEMPT", "BOUGH_RUN", "BOUGH_SERVER")  # what belongs to the task, not to its session
Attribute = str | int | float | None


def here() -> TaskContext:
    """The task that runs in this process, or that started it; a UserError when there is none."""
    address = os.environ.get("BOUGH_HERE", "")
    if not address:
        raise UserError(_OUTSIDE)
    return TaskContext(address, _task())


def _task() -> tuple[int, int, int] | None:
    """Record, index and attempt; None: the executor finds out by the process group."""
    present = sys.modules.get("bough.executor.worker.current_task")
    found: tuple[int, int, int] | None = present.task() if present is not None else None
    if found is not None:
        return found
    record, _, index = os.environ.get("BOUGH_TASK", "").partition(".")
    attempt = os.environ.get("BOUGH_ATTEMPT", "")
    if all(one.isdecimal() and len(one) <= _DIGITS for one in (record, index, attempt)):
        return int(record), int(index), int(attempt)
    return None


def _number(name: str, given: float) -> float:
    try:
        found = float(given)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{name} is {given!r:.60}; report numbers") from None
    if found - found != 0:  # not finite
        raise UserError(f"{name} is {found}; report finite numbers")
    return found


class TaskContext:
    """A running task, as it sees itself. Made by `bough.here()`; may be kept as long as the task runs."""

    def __init__(self, address: str, task: tuple[int, int, int] | None) -> None:
        self._address = address
        self._task = task
        self.attributes = TaskAttributes(self)

    @property
    def gpus(self) -> list[str]:
        """The GPUs that are this task's own, by index or UUID; none, if it did not ask for any."""
        listed = os.environ.get("BOUGH_GPUS", "")
        return listed.split(",") if listed else []

    @property
    def cpus(self) -> list[int]:
        """The cores that it may run on: its own, if its executor pins tasks to cores."""
        return sorted(os.sched_getaffinity(0))

    def status(self, text: str) -> None:
        """Say in words what it does; `bough status` and `bough watch` show it. Also a sign of life."""
        self.ask(here_questions.SetStatus(str(text)))

    def progress(self, share: float) -> None:
        """Say how much of it is done, from 0 to 1. Also a sign of life."""
        found = float(share)
        if not 0 <= found <= 1:
            raise BadValue(f"progress is {share!r:.60}; give a share from 0 to 1")
        self.ask(here_questions.Progress(found))

    def report(self, *, step: float | None = None, total: int | None = None, **values: float) -> None:
        """Report numbers, such as `report(step=3, score=-1.5)`: they join the task's series of these names.

        Without a step they are counted from 1. `total` is the number of steps of a whole run. They may come as often
        as you like: a part of them is kept, the first, the last, the lowest and the highest among them.
        """
        if not values:
            raise UserError("report needs numbers, such as report(step=3, score=-1.5)")
        found = {name: _number(name, value) for name, value in values.items()}
        self.ask(here_questions.Report(found, None if step is None else _number("step", step), total or 0))

    def alive(self) -> None:
        """Give a sign of life: for tasks that are sent again after a silence (`replay`)."""
        self.ask(here_questions.Alive())

    def lock(self, name: str, wait: bool = True) -> TaskLock:
        """Take a lock, which others can take when this task frees it or ends, however it does.

        Names are those of all tasks of the server. The task that waited first gets it first. With
        `wait=False` another task may have it: the `TaskLock` is false then.
        """
        said = self.ask(here_questions.Lock(name, wait))
        return TaskLock(self, name, taken=bool(said["taken"]), owner_task=str(said.get("owner") or ""))

    def unlock(self, name: str) -> None:
        """Free a lock that this task has; a UserError when it does not."""
        self.ask(here_questions.Unlock(name))

    def release(self) -> bool:
        """Let those start that wait for this task's group; False when they could already."""
        return bool(self.ask(here_questions.Release())["released"])

    def counts(self) -> dict[str, int]:
        """How many tasks of its workflow are in which state, such as {"failed": 2, "done": 5, ...}.

        `aborted` is 1 once a task has cancelled all others.
        """
        return {name: int(count or 0) for name, count in self.ask(here_questions.Counts()).items()}

    def cancel(self, *names: str, all_others: bool = False) -> int:
        """Cancel tasks of its workflow by their names, or all others but the final ones; how many were."""
        return int(self.ask(here_questions.CancelOthers(list(names), all_others))["cancelled"] or 0)

    def session(self, **options: Any) -> Session:
        """A session for nested work, on the cores of this task: it has them while the task waits.

        Takes what `bough.Session` takes, but no `address` and no `cores`. What it did is forgotten with it, unless
        it is given a `store`.
        """
        return nested_session(self, options)

    def ask(self, question: HereQuestion) -> dict[str, Attribute | bool]:
        """Ask the executor, which asks the server; wait for the answer."""
        import json

        said = msgspec.json.encode({"task": self._task, "question": check_bounds(question)})
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connection.connect(self._address.replace("@", "\0", 1))
                if private.other_end(connection)[1] != os.geteuid():  # it is dead, and another user has taken its name
                    raise PeerLost("the executor of this task has ended, and another user answers in its name")
                connection.sendall(said + b"\n")
                data = b""
                while not data.endswith(b"\n"):
                    part = connection.recv(1 << 16)
                    if not part:
                        raise PeerLost("the executor of this task closed the connection before it answered")
                    data += part
            except OSError as error:
                raise PeerLost(f"the executor of this task cannot be asked: {error.strerror}") from error
        answer = json.loads(data)
        if "error" in answer:
            raise _kind(answer["kind"])(answer["error"])
        value: dict[str, Attribute | bool] = answer["value"]
        return value


def _kind(name: str) -> type[BoughError]:
    kind = getattr(errors, name, UserError)
    return kind if isinstance(kind, type) and issubclass(kind, BoughError) else UserError


class TaskAttributes(Mapping[str, Attribute]):
    """A task's attributes: the system's and the user's own; asked for when they are first used, and kept.

    When and where it ran last (`lastStart`, `lastCompletion`, `lastHost`) takes longer to find, and is looked for only
    when it is wanted.
    """

    def __init__(self, owner: TaskContext) -> None:
        self._owner = owner
        self._known: dict[str, Attribute] = {}
        self._whole = False

    def _load(self, past: bool) -> dict[str, Attribute]:
        if not self._known or (past and not self._whole):
            self._known = dict(self._owner.ask(here_questions.Attributes(past)))
            self._whole = past
        return self._known

    def __getitem__(self, name: str) -> Attribute:
        known = self._load(past=False)
        return known[name] if name in known else self._load(past=True)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._load(past=True))

    def __len__(self) -> int:
        return len(self._load(past=True))

    def __repr__(self) -> str:
        return f"Attributes({self._load(past=True)!r})"


class TaskLock:
    """A lock that was taken, or was not free (then it is false); leaving its `with` block frees it."""

    def __init__(self, owner: TaskContext, name: str, *, taken: bool, owner_task: str = "") -> None:
        self._here = owner
        self.name = name
        self.taken = taken
        self.owner = owner_task  # the task that has it, if it was not free

    def __bool__(self) -> bool:
        return self.taken

    def __enter__(self) -> Self:
        if not self.taken:
            raise SiteError(f"the lock {self.name!r} is not free: task {self.owner} has it")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.taken:
            self.taken = False
            self._here.unlock(self.name)


def nested_session(here: TaskContext, options: dict[str, Any]) -> Session:
    """A session on the cores of a task; without a `store` of its own, one that is forgotten with it."""
    from bough.api.session.session import Session  # heavy, and few tasks nest: `bough here` must stay light

    for given in ("address", "cores"):
        if given in options:
            raise UserError(f"a session within a task has the task's own cores: leave out {given}")
    attributes = here.attributes
    cores = attributes["cores"]
    assert isinstance(cores, int | float)
    options.setdefault("name", f"task-{attributes['id']}")
    folder: TemporaryFolder | None = None
    if options.get("store") is None:
        folder = TemporaryFolder("nested")
        options["store"] = folder.make()
    try:
        with _outside():
            session = Session(cores=max(1, cores), **options)
    except BaseException:
        if folder is not None:
            folder.remove()
        raise
    if folder is not None:
        weakref.finalize(session, folder.remove)
    return session


@contextlib.contextmanager
def _outside() -> Iterator[None]:
    """Hide the task from a session that is being opened: it would refuse, or go to the task's server."""
    hidden = {name: os.environ.pop(name) for name in _OUTER if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)
