"""The groups of a session: by name, with the order inside each that this session fills.

Groups are found by their parent and name. Hidden groups have names that begin with a dot; only the server knows them.

Rule: siblings have different names. A group that an earlier session of this run made keeps its number.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

from bough.errors import UserError
from bough.model.events.news import GroupClosed
from bough.model.ids import DIGEST_SIZE, GroupId, MemoKey
from bough.model.tasks import Dep, GroupSpec

if TYPE_CHECKING:
    from bough.api.client.connection import Connection
    from bough.api.futures.task import Task
    from bough.api.submit.task_options.monitor_options import Watching
    from bough.api.submit.task_options.options import TaskOptions
    from bough.model.ids import BlobId
    from bough.model.tasks import TaskSpec


class GroupOrder(Protocol):
    """What orders the tasks of one group that this session fills; see `groups.Order`."""

    lock: Any
    priority: int

    def send(self, task: Task, spec: TaskSpec, size: int, blobs: tuple[tuple[BlobId, bytes], ...]) -> None:
        """Submit a loose task into the group."""

    def settled(self, settings: TaskOptions) -> TaskOptions:
        """The options of an array, with the group's priority."""

    def array_waits(self, after: tuple[Dep, ...]) -> tuple[Dep, ...]:
        """What an array that comes into the group waits for."""

    def array_joined(self, record: int) -> None:
        """An array has come into the group."""

    def subgroup_waits(self, name: str) -> tuple[Dep, ...]:
        """What a subgroup that comes into the group waits for."""

    def subgroup_joined(self, group: GroupId) -> None:
        """Own tasks that come from now on wait for a subgroup."""

    def close(self) -> None:
        """Nothing more comes into the group."""


class WatchedGroups:
    """What the monitors of groups say, for the memo keys of the tasks in them."""

    def __init__(self) -> None:
        self.watch_keys: dict[int, bytes | None] = {}  # of groups that are watched; None: a function has no digest

    def watch(self, group: int, parent: int, watching: Watching | None) -> None:
        """Remember what watches the tasks of a group: its own monitors, and those of the groups around it."""
        around = self.watch_keys.get(parent, b"")
        if watching is not None:
            both = None if around is None or watching.key is None else watching.key + around
            self.watch_keys[group] = both and blake2b(both, digest_size=DIGEST_SIZE).digest()
        elif parent in self.watch_keys:
            self.watch_keys[group] = around

    def watched_key(self, key: MemoKey | None, group: int, watching: Watching | None) -> MemoKey:
        """The memo key of a task or array with what watches it; empty if that has no digest."""
        if not key:
            return MemoKey(b"")
        said = [watching.key] if watching is not None else []
        if group in self.watch_keys:
            said.append(self.watch_keys[group])
        for one in said:
            if one is None:
                return MemoKey(b"")
            key = MemoKey(blake2b(one, key=key, digest_size=DIGEST_SIZE, person=b"watched").digest())
        return key


class GroupTable(WatchedGroups):
    """See the module. `existing` gives the number of a group that an earlier session of this run made."""

    def __init__(self, connection: Connection, first_group: int, existing: Callable[[int, str], int | None]) -> None:
        super().__init__()
        self.orders: dict[int, GroupOrder] = {}  # of groups that this session fills
        self.existing = existing
        self._connection = connection
        self._numbers = itertools.count(first_group)
        self._names: dict[tuple[int, str], GroupId] = {}  # groups by their parents and names
        self._naming = threading.Lock()

    def new(self, parent: int, name: str) -> GroupId:
        """A number for a group."""
        with self._naming:
            if (parent, name) in self._names:
                raise UserError(f"there is a group {name!r} already in the same place; choose another name")
            there = self.existing(parent, name)
            group = GroupId(next(self._numbers) if there is None else there)
            self._names[parent, name] = group
        return group

    def find(self, parent: int, name: str) -> GroupId | None:
        """The group of that name in another one, if this session made it."""
        return self._names.get((parent, name))

    def hide(self, parent: GroupId, name: str, after: tuple[Dep, ...]) -> GroupId:
        """An empty, closed group that users do not see: waiting for it is waiting for all it waits for."""
        is_there = self.existing(parent, name) is not None
        group = self.new(parent, name)
        if not is_there:
            self._connection.submit(GroupSpec(group, name, parent, after), 100 + 8 * len(after))
            if not self._connection.ended.is_set():
                self._connection.post(GroupClosed(group))
        return group

    @contextlib.contextmanager
    def ordered(self, group: int) -> Iterator[GroupOrder | None]:
        """The order of a group, held while something is put into it; None if it has none here."""
        order = self.orders.get(group)
        if order is None:
            yield None
        else:
            with order.lock:
                yield order

    def close_all(self) -> None:
        """Close the groups that were left open, the innermost first: nothing more will come."""
        while self.orders:
            order = self.orders[next(reversed(self.orders))]
            if self._connection.ended.is_set():
                self.orders.clear()
            else:
                order.close()
