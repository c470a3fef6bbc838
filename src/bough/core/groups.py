"""Groups, the nodes of the workflow tree, and workflows, the groups that stand for one script or file.

Rule: what one workflow does (its failures, its repeated tasks, what it may reuse) is its own; the root group is the
workflow of an embedded session, and holds all others in a service.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bough.core.states import TaskState
from bough.model.ids import GroupId
from bough.model.outcomes import Failure
from bough.model.tasks import Dep

if TYPE_CHECKING:
    from bough.core.records import Record

STATES = len(TaskState)

# Who waits for something: (record or group, element or -1 for all of it, generation of the waiter)
Waiter = tuple["Record | GroupRecord", int, int]


class Workflow:
    """What one script or file submitted: a run of its own."""

    __slots__ = (
        "closed",
        "cores",
        "directory",
        "fail_fast",
        "first_failure",
        "group",
        "memos",
        "name",
        "occurrences",
        "run",
        "token",
        "user",
    )

    def __init__(self, group: GroupRecord) -> None:
        self.group = group
        self.run = 0
        self.name = ""
        self.fail_fast = False
        self.memos = False  # earlier runs may hold results: look before running
        self.directory = ""
        self.token = ""
        self.user = ""
        self.closed = False  # its end was recorded
        self.first_failure: Failure | None = None  # with fail-fast: why nothing more is started
        self.occurrences: dict[bytes, int] = {}
        self.cores = 0.0  # that its spans hold or wait for now


class GroupRecord:
    """A node of the workflow tree: counts of its own tasks, a gate, and who waits for its end."""

    __slots__ = (
        "after",
        "child_names",
        "children",
        "closed",
        "counts",
        "dependents",
        "doomed",
        "failed_by",
        "gated",
        "generation",
        "held",
        "id",
        "members",
        "name",
        "parent",
        "settled",
        "unfinished",
        "waits",
        "workflow",
    )

    def __init__(self, number: GroupId, name: str, parent: GroupRecord | None, after: tuple[Dep, ...] = ()) -> None:
        self.id = number
        self.name = name
        self.parent = parent
        self.after = after
        self.workflow: Workflow = parent.workflow if parent is not None else Workflow(self)
        self.counts = [0] * STATES  # its own tasks by state
        self.members: list[Record] = []
        self.children: list[GroupRecord] = []
        self.child_names: set[str] = set()
        self.dependents: list[Waiter] = []
        self.gated: list[Waiter] = []  # who waits for its gate to open
        self.waits = 0  # unsatisfied dependencies; the gate is open at 0
        self.generation = 0
        self.unfinished = 0  # own tasks and subgroups that have not ended
        self.closed = False
        self.settled = False
        self.held = False
        self.failed_by = 0  # a record that did not succeed in it or below
        self.doomed: Failure | None = None  # its dependencies failed: nothing in it will run

    @property
    def path(self) -> str:
        """Its name from its workflow, as in align/sub."""
        if self.parent is None or self.workflow.group is self:
            return ""
        above = self.parent.path
        return f"{above}/{self.name}" if above else self.name

    def chain(self) -> Iterator[GroupRecord]:
        """Itself and the groups above it."""
        group: GroupRecord | None = self
        while group is not None:
            yield group
            group = group.parent

    def records(self) -> Iterator[Record]:
        """Everything in it and below it."""
        yield from self.members
        for child in self.children:
            yield from child.records()

    def is_held(self) -> bool:
        """Whether it, or a group above it, is held."""
        return any(group.held for group in self.chain())
