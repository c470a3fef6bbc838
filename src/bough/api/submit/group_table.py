"""Where a session puts what it submits: groups by name, their inner order, and the way of a loose task to the server.

Rule: a task goes into a group through the group's order, if this session made the group; hidden groups have names
that begin with a dot, and nobody but the server hears of them.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bough.api.submit.options import BESIDE
from bough.errors import BoughError, UserError
from bough.model.events.facts import GroupClosed
from bough.model.ids import GroupId
from bough.model.tasks import Dep, GroupSpec, Item, TaskSpec

if TYPE_CHECKING:
    from bough.api.client.connection import Connection
    from bough.api.futures.task import Task
    from bough.api.futures.task_registry import TaskRegistry
    from bough.api.session.session import Session
    from bough.api.submit.groups import Group, Order
    from bough.api.submit.options import TaskOptions
    from bough.model.ids import BlobId


class Placing:
    """See the module."""

    _session: Session
    ledger: TaskRegistry
    _connection: Connection
    _groups: itertools.count[int]

    def _prepare_places(self) -> None:
        self.orders: dict[int, Order] = {}  # of groups that this session fills
        self._names: dict[tuple[int, str], GroupId] = {}  # groups by where they are and what they are called
        self._naming = threading.Lock()

    # --- tasks ------------------------------------------------------------------------------------------

    def send_task(self, task: Task, spec: TaskSpec, size: int, blobs: tuple[tuple[BlobId, bytes], ...] = ()) -> None:
        """Submit a loose task, in its place in the group."""
        order = self.orders.get(spec.group)
        if order is not None:
            order.send(task, spec, size, blobs)
            return
        if spec.terms.same_host_as == BESIDE:
            import msgspec

            from bough.api.submit.groups import beside

            spec = msgspec.structs.replace(spec, terms=beside(self._session, None, spec, needed=True))
        self.put_task(task, spec, size, blobs)

    def put_task(self, task: Task, spec: TaskSpec, size: int, blobs: tuple[tuple[BlobId, bytes], ...]) -> None:
        """Submit a loose task that waits for all it is to wait for."""
        ledger = self.ledger
        ledger.tasks[spec.id] = task
        ledger.progress.added(spec.group, 1)
        try:
            self._connection.submit(spec, size + 200, blobs)
        except BoughError:
            if ledger.tasks.pop(spec.id, None) is not None:
                ledger.progress.added(spec.group, -1)
            raise

    def put_page(self, items: list[Item], size: int, tasks: Mapping[int, Task], counts: Mapping[GroupId, int]) -> None:
        """Submit groups and tasks that wait for all they are to wait for; of `tasks` the ends are heard.

        `counts` are tasks by group.
        """
        ledger = self.ledger
        ledger.tasks.update(tasks)
        for group, count in counts.items():
            ledger.progress.added(group, count)
        try:
            self._connection.submit_all(items, size)
        except BoughError:
            for record in tasks:
                ledger.tasks.pop(record, None)
            for group, count in counts.items():
                ledger.progress.added(group, -count)
            raise

    @contextlib.contextmanager
    def ordered(self, group: int) -> Iterator[Order | None]:
        """The order of a group, held while something is put into it; None if it has none here."""
        order = self.orders.get(group)
        if order is None:
            yield None
        else:
            with order.lock:
                yield order

    # --- groups -----------------------------------------------------------------------------------------

    def make_group(self, name: Any, parent: int, after: Any, settings: TaskOptions, **terms: Any) -> Group:
        """Make a group in another one; see `group.make_group`."""
        from bough.api.submit.groups import make_group

        self._session.check_open()
        return make_group(self._session, name, parent, after, settings, **terms)

    def new_group(self, parent: int, name: str) -> GroupId:
        """A number for a group; siblings have different names. One that is there already keeps its number."""
        with self._naming:
            if (parent, name) in self._names:
                raise UserError(f"there is a group {name!r} already in the same place; choose another name")
            there = self.group_there(parent, name)
            group = GroupId(next(self._groups) if there is None else there)
            self._names[parent, name] = group
        return group

    def group_in(self, parent: int, name: str) -> GroupId | None:
        """The group of that name in another one, if this session made it."""
        return self._names.get((parent, name))

    def hide_group(self, parent: GroupId, name: str, after: tuple[Dep, ...]) -> GroupId:
        """An empty, closed group that nobody sees: waiting for it is waiting for all it waits for."""
        is_there = self.group_there(parent, name) is not None
        group = self.new_group(parent, name)
        if not is_there:
            self._connection.submit(GroupSpec(group, name, parent, after), 100 + 8 * len(after), ())
            self._session.post(GroupClosed(group))
        return group

    def close_groups(self) -> None:
        """Close the groups that were left open, the innermost first: nothing more will come."""
        while self.orders:
            order = self.orders[next(reversed(self.orders))]
            if self._connection.ended.is_set():
                self.orders.clear()
            else:
                order.close()

    def group_there(self, parent: int, name: str) -> int | None:
        """The group of that name that an earlier session made in this run."""
        return None
