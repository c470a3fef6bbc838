"""Groups, the nodes of the workflow tree, and workflows, the groups that stand for one script or file.

Rule: what one workflow does (its failures, its repeated tasks, what it may reuse) is its own; the root group is the
workflow of an embedded session, and holds all others in a service.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from bough.core.data.declared_files import DeclaredFiles
from bough.core.data.file_lives import FileLives
from bough.core.records.queue_record import QueueRecord
from bough.model.ids import BlobId, Seconds
from bough.model.outcomes import Failure
from bough.model.reuse_scope import ReuseScope
from bough.model.sites.resources import Needs
from bough.model.states import TaskState
from bough.model.tasks import Dep, GroupSpec

if TYPE_CHECKING:
    from bough.core.records.array_record import Record

STATES = len(TaskState)

# What waits for something: (record or group, element or -1 for all of it, generation of the waiter)
Waiter = tuple["Record | GroupRecord", int, int]


class LimitListener(Protocol):
    """What is told when fewer tasks of a group are out than its limit again."""

    def reopen(self) -> None:
        """Offer what is ready in the group."""


QueueKey = tuple[Needs, int, int, str]  # of a ready queue: needs, run, innermost group with a limit, host
Bid = tuple[float, int, int, float, int, int]  # cores held; priority, urgency and rank of the head; served; record


class Contender(Protocol):
    """What is ready of one workflow and one shape, among all that waits; see `fair_index`."""

    bid: Bid | None

    def head(self) -> tuple[object, ...] | None:
        """The best entry."""


class Share:
    """What a workflow holds through one named queue, by which it is found whose turn it is; see `fair_index`."""

    __slots__ = ("_marked", "cores", "named", "offered", "roots", "served", "workflow")

    def __init__(self, workflow: Workflow, named: QueueRecord, marked: dict[Share, None]) -> None:
        self.workflow = workflow
        self.named = named  # the queue that it is a share of
        self.cores = 0.0  # that its spans hold or wait for now
        self.served = 0  # the last of its spans that was placed
        self.offered = False  # something of it was offered since it was marked
        self.roots: dict[Contender, None] = {}  # its queues, one a shape and place
        self._marked = marked

    def mark(self) -> None:
        """It holds fewer cores than when it was offered."""
        self.offered = False
        self._marked[self] = None


class Workflow:
    """What one script or file submitted: a run of its own."""

    __slots__ = (
        "base",
        "closed",
        "directory",
        "fail_fast",
        "files",
        "first_failure",
        "group",
        "lives",
        "memos",
        "name",
        "occurrences",
        "queue_keys",
        "reuse",
        "run",
        "shares",
        "token",
        "user",
        "watched",
    )

    def __init__(self, group: GroupRecord) -> None:
        self.group = group
        self.run = 0
        self.name = ""
        self.fail_fast = False
        self.memos = False  # earlier runs may hold results: look before running
        self.reuse = ReuseScope.ALL  # where tasks look that do not say `always`
        self.directory = ""
        self.token = ""
        self.user = ""
        self.base = 0  # of the numbers of its records, see `model.ids`
        self.closed = False  # its end was recorded
        self.first_failure: Failure | None = None  # with fail-fast: why nothing more is started
        self.occurrences: dict[bytes, int] = {}
        self.files = DeclaredFiles()
        self.lives = FileLives()  # of these
        self.shares: dict[str, Share] = {}  # what it holds, by named queue
        self.queue_keys: list[QueueKey] = []  # of its ready queues
        self.watched = False  # something in it is watched, or was

    @property
    def cores(self) -> float:
        """What its spans hold or wait for now."""
        return sum(share.cores for share in self.shares.values())

    def looks_up(self, *, always: bool) -> bool:
        """Whether there may be a success of an earlier run for a task with a key."""
        return self.memos and (always or self.reuse is not ReuseScope.NONE)


class GroupRecord:
    """A node of the workflow tree: counts of its own tasks, a gate, and what waits for its end."""

    __slots__ = (
        "after",
        "attributes",
        "busy",
        "child_names",
        "children",
        "closed",
        "counts",
        "deadline",
        "dependents",
        "disabled",
        "failed_by",
        "finished",
        "gated",
        "generation",
        "held",
        "id",
        "limit",
        "limit_nodes",
        "limits",
        "members",
        "name",
        "parent",
        "released",
        "released_children",
        "retries",
        "skip_reason",
        "timeout",
        "tried",
        "unfinished",
        "waiting_for_end",
        "waiting_for_gate",
        "waits",
        "was_over",
        "watch",
        "workflow",
    )

    def __init__(self, spec: GroupSpec, parent: GroupRecord | None) -> None:
        self.id = spec.id
        self.name = spec.name
        self.parent = parent
        self.after = spec.after
        self.gated: bool = bool(spec.after) or (
            parent is not None and parent.gated
        )  # it or a group above waits, or did
        self.limit = spec.limit
        self.retries = spec.retries
        self.timeout = spec.timeout
        self.attributes = spec.attributes
        # plans that watch its tasks and those below: its own, then those that were added
        self.watch: tuple[BlobId, ...] = (spec.watch,) if spec.watch else ()
        above = parent.limits if parent is not None else ()
        self.limits: tuple[GroupRecord, ...] = (*above, self) if spec.limit else above  # the outermost first
        self.busy = 0  # tasks of it and below that run or wait with an executor; counted if it has a limit
        self.limit_nodes: list[LimitListener] = []  # of the ready queues in it, if it has a limit
        self.tried = 0  # retries of the whole group so far
        self.deadline: Seconds = 0.0  # when what is in it will be ended; 0: nothing was started, or there is no limit
        self.workflow: Workflow = parent.workflow if parent is not None else Workflow(self)
        self.counts = [0] * STATES  # its own tasks by state
        self.members: list[Record] = []
        self.children: list[GroupRecord] = []
        self.child_names: set[str] = set()
        self.dependents: list[Waiter] = []  # what waits for its release or its end
        self.waiting_for_end: list[Waiter] = []  # what waits for its end
        self.waiting_for_gate: list[Waiter] = []  # what waits for its gate to open
        self.waits = 0  # unsatisfied dependencies; the gate is open at 0
        self.was_over = False  # all in it had succeeded, and something runs again: it counts as done for dependents
        self.generation = 0
        self.unfinished = 0  # own tasks and subgroups that have not ended
        self.closed = False
        self.finished = False
        self.released = False  # what waits for it may start, although not all in it has ended
        self.released_children = 0  # subgroups that have not ended but are released
        self.held = False
        self.disabled = False  # held, and named so
        self.failed_by = 0  # a record that did not succeed in it or below
        self.skip_reason: Failure | None = None  # its dependencies failed: nothing in it will run

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

    def set_after(self, after: tuple[Dep, ...]) -> None:
        """Change what it waits for."""
        self.after = after
        self.gated = bool(after) or (self.parent is not None and self.parent.gated)
        for child in self.children:
            child.set_after(child.after)

    def attributes_with(self, own: Iterable[tuple[str, str]]) -> dict[str, str]:
        """What users gave to the groups around something, and to that itself: the innermost wins."""
        found: dict[str, str] = {}
        for group in reversed(list(self.chain())):
            found.update(group.attributes)
        found.update(own)
        return found

    def records(self) -> Iterator[Record]:
        """Everything in it and below it."""
        yield from self.members
        for child in self.children:
            yield from child.records()

    def is_held(self) -> bool:
        """Whether it, or a group above it, is held."""
        return any(group.held for group in self.chain())
