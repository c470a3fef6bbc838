"""What a store keeps and promises: the journal, the blobs, the memos and the jobs database of a session or a service.

A *session's* store holds the runs of one workflow, one after the other. A *service's* store holds runs of its own,
each of which holds the runs of workflows that were opened in it. There the argument `run` names the workflow's run
that the question is asked for.
Rule: what `append` wrote when it returns has been handed to the operating system and survives `kill -9` of every
process of ours; what `sync` wrote when it returns survives a power cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from bough.model.events.facts import Fact, MemoLookedUp, SpanEnded
from bough.model.ids import BlobId, ExecutorId, MemoKey, RecordId, Seconds
from bough.model.monitoring.observations import SeenTask
from bough.model.outcomes import Stream
from bough.model.tasks import Reuse
from bough.stores.expendable_runs import ExpendableRuns, ScriptRun
from bough.stores.quarantine import SetAside

if TYPE_CHECKING:
    from bough.stores.core_hours import SitePeriod


class LastRun(msgspec.Struct, frozen=True):
    """How the store was left. `run` is the session's, or the service's own: workflows' runs do not count."""

    run: int  # 0: there was none
    clean: bool  # the run was closed properly
    last_turn: int  # of the whole store
    last_record: int
    last_group: int
    last_executor: int
    last_span: int
    last_run: int = 0  # the highest number of any run, workflows' included
    service: bool = False  # it is the store of a service


class MemoArray(msgspec.Struct, frozen=True):
    """An array of an earlier run, enough of it to see which of its elements can be reused."""

    record: RecordId
    length: int
    table: bytes  # the blob's content, empty when it came in pages
    pages: list[tuple[int, int, bytes]]
    done: list[tuple[int, int]]  # successful elements, merged and sorted


class MemoPages(msgspec.Struct, frozen=True):
    """A piece of an array of an earlier run that a generator fed."""

    pages: list[tuple[int, int, bytes]]
    done: list[tuple[int, int]]  # successful elements among them, merged and sorted
    turn: int  # ask for the pages after this turn next; 0: there are no more


class KeptStreams(msgspec.Struct, frozen=True):
    """Where an attempt at a task wrote; None: nothing is known to be written there."""

    stdout: Stream | None
    stderr: Stream | None
    executor: ExecutorId  # 0: it is not known
    attempt: int
    is_whole: bool = False  # it succeeded: there is nothing else


class Store(Protocol):
    """The durable memory of a session or a service."""

    tell: Callable[[str], None]  # called with a line for the operator when something is set aside

    @property
    def kind(self) -> str:
        """What the store belongs to: "session", "service", or "" when nothing was written yet."""

    def claim(self, kind: str) -> None:
        """Make this the store of a session or a service, before the first turn; `UserError` when it is the other's."""

    def last_run(self) -> LastRun:
        """How the store was left."""

    def has_run(self, run: int) -> bool:
        """Whether the tables know a run that was not removed; they may be behind the journal."""

    def workflow_names(self) -> list[str]:
        """The names of all workflows of a service that the tables know."""

    def last_record_of(self, name: str) -> int:
        """The highest record of the workflows of a name that the tables know; 0: there is none."""

    def append(self, turn: int, now: Seconds, facts: Sequence[Fact]) -> None:
        """Write the facts of one turn as one row. Turn numbers grow by one over the store's whole life."""

    def sync(self) -> None:
        """Bring everything appended to the disk (fsync)."""

    @property
    def last_turn(self) -> int:
        """The number of the newest turn, 0: there is none."""

    def journal(self, after: int = 0) -> Iterator[tuple[int, Seconds, list[Fact]]]:
        """All turns after a number, in order, lazily; what of them cannot be read is set aside and left out."""

    def turns_of_run(self, run: int) -> int:
        """The number of the turn that opened a run; replay of that run begins there."""

    def turn(self, number: int) -> list[Fact]:
        """The facts of one turn."""

    def put_blob(self, blob: BlobId, data: bytes) -> None:
        """Keep a blob; harmless when it is there already. Durable with the next append."""

    def blob(self, blob: BlobId) -> bytes:
        """A blob's content; KeyError when there is none."""

    def has_blob(self, blob: BlobId) -> bool:
        """Whether a blob is here, or was just put."""

    def save_snapshot(self, turn: int, run: int, data: bytes) -> None:
        """Keep a machine's snapshot, taken after a turn; the newest one per run is kept."""

    def snapshot(self, run: int) -> tuple[int, bytes] | None:
        """The newest snapshot of a run and the turn it was taken after."""

    def project(self, at_most: int = 0) -> bool:
        """Fold journalled facts into the jobs database and the memos; True once it has caught up.

        `at_most` bounds the number of turns folded in this call (0: all).
        """

    def quarantined(self) -> list[SetAside]:
        """All facts that were set aside, in the order of the journal."""

    def set_aside(self, found: Sequence[SetAside], after: int) -> None:
        """Record the facts that the core passed over when it replayed the turns after one."""

    def rebuild(self) -> None:
        """Forget the jobs database; `project` makes it again from the whole journal."""

    def look_up(  # noqa: PLR0917
        self,
        record: RecordId,
        start: int,
        stop: int,
        key: MemoKey,
        reuse: Sequence[Reuse],
        run: int = 0,
        *,
        always: bool = True,
    ) -> list[MemoLookedUp]:
        """Successes of earlier runs for the elements [start, stop), found and not found, in order, covering all.

        A success counts only while its declared outputs are there and unchanged. For a workflow's `run`, earlier runs
        are those of the same name with a smaller number; 0: all that came before the present one. Without `always`
        only unfinished ones count: those that `unfinished_runs` gives.
        """

    def look_up_tasks(
        self, wanted: Sequence[tuple[RecordId, MemoKey]], run: int = 0, *, always: bool = True
    ) -> list[MemoLookedUp]:
        """As `look_up`, for many loose tasks of a workflow at once: one answer for each, in order."""

    def unfinished_runs(self, script: str) -> frozenset[int]:
        """Of a session's store: the runs that a script's next one continues.

        These are the unfinished ones since the last script run that ended well; `script` is the one that asks.
        """

    def success(self, turn: int, record: RecordId, index: int) -> SpanEnded | None:
        """The success that covers an element, from the journal row that holds it; turn 0: which one is not known."""

    def expendable_runs(
        self, script: str, is_alive: Callable[[ScriptRun], bool], *, spare_last: bool
    ) -> ExpendableRuns:
        """Of a session's store: the runs that nothing can ask for any more. From now on none of them is reused.

        `is_alive` says whether the process lives that opened a run; `spare_last` keeps those of the last script run.
        """

    def completed_runs(self, script: str) -> list[int]:
        """Of a session's store: the runs of one script run that ended well."""

    def old_arrays(self, body: MemoKey, run: int = 0, *, always: bool = True) -> list[MemoArray]:
        """Arrays of earlier runs with this body, newest run first; `run` and `always` as for `look_up`."""

    def old_feeds(self, body: MemoKey, run: int = 0, *, always: bool = True) -> list[RecordId]:
        """As `old_arrays`, of arrays that generators fed: their numbers."""

    def fed_pages(self, record: RecordId, after: int, run: int = 0) -> MemoPages:
        """What came of such an array in turns after a number: a piece of it that is soon read."""

    def keep_contents(self, folder: str) -> None:
        """Outputs that are not in their places on this machine are kept by content in this folder."""

    def output_of(self, record: RecordId, index: int) -> KeptStreams | None:
        """Where the latest attempt at a task wrote that has ended, as far as the tables know one."""

    def observations(self, record: RecordId, start: int, stop: int) -> list[SeenTask]:
        """What was seen of the attempts of some elements; `UserError` when that is too much for one answer."""

    def watched_sources(self, found: Iterable[MemoLookedUp]) -> set[RecordId]:
        """The sources of memos that were found of which something was seen when they ran."""

    def declared_paths(self, run: int = 0) -> list[str]:
        """Absolute paths that tasks of this workflow, in any of its runs, ever declared as outputs."""

    def note_core_seconds(self, now: Seconds, totals: Mapping[str, tuple[float, float, float, float]]) -> None:
        """Of a service's store: what each site has used in all by now, in core-seconds.

        In all, until executors got their first task, of attempts that succeeded, and of attempts that did not. What
        was noted before is not counted again, whichever process noted it; sites that are not named are forgotten.
        """

    def core_hours(self, since: Seconds) -> list[SitePeriod]:
        """What sites used in the minutes, hours and days that ended after an instant, oldest first."""

    def remove_runs(self, runs: Sequence[int] = (), at_most: int = 500, *, give_back: bool = True) -> bool:
        """Take what was said of removed runs out of the journal and give the space back; True once all is done.

        Call it after `RunRemoved` was appended for each of `runs` and a snapshot was saved after that. It also
        continues what an earlier process began. One call looks at no more than `at_most` turns: call until True.
        Without `give_back` the space stays the store's, for what it will write.
        """

    def forgotten_files(self) -> list[str]:
        """Files of results and arguments that only removed runs had, found since the last call: to be deleted."""

    def close(self, within: Seconds | None = None) -> None:
        """Catch up, sync and close the store.

        With `within` it catches up for at most so many seconds; the next process that opens the store does the rest.
        """
