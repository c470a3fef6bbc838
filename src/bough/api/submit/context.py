"""Where a submission is made: by which session, with which options, into which group; and what it asks of the session.

Rule: submitting knows a session by the protocol `SessionLike` alone, so that no module of it imports `Session`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from bough.api.client.connection import Connection
    from bough.api.file_table import FileTable
    from bough.api.futures.array import Array
    from bough.api.futures.elements import ArrayElements
    from bough.api.futures.task import Task
    from bough.api.futures.task_registry import TaskRegistry
    from bough.api.submit.group_table import GroupTable
    from bough.api.submit.initializer import Initializer
    from bough.api.submit.task_options.options import TaskOptions
    from bough.api.values.packing import Packing
    from bough.model.events.news import Action
    from bough.model.ids import BlobId, GroupId, MemoKey, RecordId
    from bough.model.sites.resources import Needs
    from bough.model.tasks import Dep, Item, TaskSpec
    from bough.wire.client_messages import Welcome
    from bough.wire.questions import Question

T = TypeVar("T")


class OpenGroup(Protocol):
    """A group whose `with` block is entered."""

    id: GroupId
    _session: SessionLike


class RunningFeed(Protocol):
    """A feed that must end before its session can."""

    def stop(self) -> None:
        """Take no more from the generator."""

    def abandon(self) -> None:
        """No caller takes results any more."""

    def join(self) -> None:
        """Wait until the generator has ended, or was stopped."""


class SessionLike(Protocol):
    """What submitting, finding and acting ask of a session."""

    name: str  # of the workflow
    directory: str  # where the session was opened
    store: str  # its folder
    root: GroupId  # the workflow's own group
    welcome: Welcome
    registry: TaskRegistry
    connection: Connection
    groups: GroupTable
    submit_call: Callable[..., Task]
    submit_map: Callable[..., Array]
    new_record: Callable[[], RecordId]  # a number for a task or array
    initializer: Initializer | None  # runs first in each worker
    is_shut: bool  # it takes no more work
    known: dict[int, Task | ArrayElements]  # tasks and arrays of other sessions that were found

    @property
    def is_remote(self) -> bool:
        """Whether its server is a service."""

    @property
    def is_near(self) -> bool:
        """Whether its server is on this machine, so that the paths it names are valid here."""

    @property
    def is_joined(self) -> bool:
        """Whether the workflow was there before."""

    @property
    def keeps_arguments(self) -> bool:
        """Whether arguments that are too big to send may go into a file of the store."""

    def packing(self) -> Packing:
        """What takes the big buffers of a submission apart; of an embedded session."""

    @property
    def files(self) -> FileTable:
        """Which task writes which file."""

    possible_needs: Needs | None  # those that were checked last

    @property
    def base_needs(self) -> Needs:
        """What it says of every task: the sites it is bound to, and the queue of what names none."""

    def check_open(self) -> None:
        """Refuse work after shutdown, or in a forked process."""

    def check_needs(self, needs: Needs) -> None:
        """Refuse what can never run in this session."""

    def new_records(self, count: int) -> list[RecordId]:
        """Numbers for tasks, ascending."""

    def send_task(self, task: Task, spec: TaskSpec, size: int, blobs: tuple[tuple[BlobId, bytes], ...] = ()) -> None:
        """Submit a loose task, in its place in the group."""

    def put_task(self, task: Task, spec: TaskSpec, size: int, blobs: tuple[tuple[BlobId, bytes], ...]) -> None:
        """Submit a loose task that waits for all it is to wait for."""

    def make_group(self, name: Any, parent: int, after: Any, settings: TaskOptions, **how: Any) -> Any:
        """Make a `Group` in another one, see `groups.make_group`."""

    def put_page(self, items: list[Item], size: int, tasks: Mapping[int, Task], counts: Mapping[GroupId, int]) -> None:
        """Submit groups and tasks that wait for all they are to wait for."""

    def existing_array(
        self, group: int, key: MemoKey, after: tuple[Dep, ...], arguments: tuple[int, BlobId, bytes, bool], record: int
    ) -> int | None:
        """The array of an earlier session of this run that a submission is; `record` is the number it had here."""

    def on_adopted(self, elements: ArrayElements) -> None:
        """An array of an earlier session is in the registry."""

    def leave_files(self, records: Iterable[int]) -> None:
        """What these tasks of earlier runs made is not brought: newer files may lie in its places."""

    def upload(self, paths: Iterable[str], label: str) -> dict[str, bytes]:
        """Give a service the contents of files; their digests, empty if it can read them itself."""

    def add_feed(self, feed: RunningFeed) -> None:
        """Remember a feed that must end before the session can."""

    def feed_ended(self, feed: RunningFeed, elements: ArrayElements) -> None:
        """A feed takes no more from its generator."""

    def deferral_ended(self, deferral: RunningFeed) -> None:
        """A call that waited for futures of others was submitted, or never will be."""

    def post(self, *messages: object) -> None:
        """Send messages that need no answer."""

    def ask(self, question: Question[T]) -> T:
        """Ask the server."""

    def act(self, action: Action, not_changed: list[str] | None = None) -> int:
        """Act on tasks; returns how many tasks that was."""

    def jobs(self) -> AbstractContextManager[Any]:
        """The jobs database as it is now."""

    def cancel(self, what: object) -> int:
        """Cancel a task, array, group or selector."""

    def kill(self, what: object) -> int:
        """End what is running of a task, array, group or selector."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Close the session."""


class SubmitContext(NamedTuple):
    """Where a submission is made."""

    session: SessionLike
    settings: TaskOptions
    group: GroupId


open_groups: ContextVar[tuple[OpenGroup, ...]] = ContextVar("bough_groups", default=())  # the `with` blocks around us
