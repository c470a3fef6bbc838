"""What stores in SQL databases share: the order of turns, blobs, lazy folding, memos, and removal.

A subclass brings the connection (`_database`), writes a turn (`_insert`), reads the journal (`_rows`) and frees space.
Rule: one process writes (it holds the store's lock), any number reads. A fact that cannot be read or folded is set
aside (see `quarantine`), and all other facts are used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final

from bough.errors import InvariantBroken, StoreFailed, UserError
from bough.journal.codec import Newer, Unreadable, decode, encode, salvage
from bough.model.events.facts import Fact, MemoLookedUp, RunClosed, RunOpened, RunRemoved, SpanEnded
from bough.model.ids import BlobId, ExecutorId, MemoKey, RecordId, Seconds
from bough.model.monitoring.observations import SeenTask
from bough.model.outcomes import Stream
from bough.model.tasks import Reuse
from bough.stores import schema
from bough.stores.database import Database, found_in
from bough.stores.expendable_runs import ExpendableRuns, ScriptRun, find_expendable
from bough.stores.jobs.catch_up import CatchUp
from bough.stores.jobs.fold import JobsFold
from bough.stores.jobs.fold_observations import FIRINGS, SERIES, seen_tasks
from bough.stores.jobs.tables import keep_numbers
from bough.stores.memos import Memos
from bough.stores.places import FormerPlaces
from bough.stores.quarantine import Quarantine, SetAside
from bough.stores.removal import Removal
from bough.stores.store import KeptStreams, LastRun, MemoArray, MemoPages

if TYPE_CHECKING:
    from bough.stores.core_hours import CoreHours, SitePeriod

CACHED_BYTES: Final = 32 << 20  # of journal rows kept decoded
KNOWN_BLOBS: Final = 10_000  # that are known to be there; one that is not known is written again, to no effect
_ANYTHING_SEEN: Final = "SELECT 1 WHERE EXISTS (SELECT 1 FROM firings) OR EXISTS (SELECT 1 FROM series)"
_SEEN_AMONG: Final = """
SELECT id FROM tasks WHERE id IN ({}) AND (
  EXISTS (SELECT 1 FROM firings WHERE firings.id = tasks.id)
  OR EXISTS (SELECT 1 FROM series WHERE series.id = tasks.id))"""
MOST_SEEN: Final = 500_000  # rows of `series` in one answer
KINDS: Final = ("session", "service")
_AFTER_ALL: Final = 1 << 62  # a run after all that are there
_RUN_FACTS: Final = frozenset({RunOpened, RunClosed, RunRemoved})
_DECLARED: Final = """
SELECT path FROM declared WHERE run IN ({0})
UNION SELECT path FROM files JOIN tasks ON tasks.id = files.id WHERE tasks.run IN ({0})"""
_SPAN_WITH: Final = "SELECT turn FROM spans WHERE id = ? AND start <= ? AND state = 'done' ORDER BY start DESC LIMIT 1"
_OUTPUT: Final = """
SELECT stdout_path, stdout_offset, stdout_length, stderr_path, stderr_offset, stderr_length, executor, attempt, state"""
_OUTPUT_OF_ELEMENT: Final = f"""
{_OUTPUT}, EXISTS (SELECT 1 FROM spans WHERE spans.id = elements.id AND start <= idx AND stop > idx
  AND spans.state IN {schema.OUT}) FROM elements WHERE id = ? AND idx = ?"""
_OUTPUT_OF_TASK: Final = f"""
{_OUTPUT}, EXISTS (SELECT 1 FROM attempts WHERE attempts.id = tasks.id AND attempts.state IN {schema.OUT})
FROM tasks WHERE id = ? AND is_array = 0"""
_BORROWED: Final = "SELECT DISTINCT turn FROM borrowed WHERE source = ? ORDER BY turn"
_NAMESAKES: Final = "SELECT run FROM runs WHERE name = (SELECT name FROM runs WHERE run = :run)"


class SqlStore(ABC):
    """See `stores.store.Store` for what each method promises."""

    path: str  # how messages name it
    _last: int  # the newest turn

    def __init__(self, database: Database, folder: str = "") -> None:
        self._database = database
        self._places = FormerPlaces(folder)
        self.rows_read = 0  # journal rows decoded since the store was opened
        self._closed = False
        self._blobs: dict[BlobId, bytes] = {}  # written with the next turn
        self._known: set[BlobId] = set()
        self._unused_blobs: set[bytes] = set()  # that were put and that no folded task uses yet
        self._stale = True  # a run opened or closed since the last complete projection
        self._decoded: OrderedDict[int, tuple[int, dict[int, list[SpanEnded]]]] = OrderedDict()
        self._decoded_bytes = 0
        self._aside = Quarantine(database)
        self._folding = CatchUp(database, self.journal, self._aside, self._new_fold)
        self._memos = Memos(database, self.success, self.turn, lambda blob: self.blob(BlobId(blob)))
        self._removal = Removal(database, self._decode)
        self._hours: CoreHours | None = None  # made when a service notes them: a session never does

    # --- what differs ---

    @abstractmethod
    def _reported(self) -> AbstractContextManager[None]:
        """Turn exceptions of the database into ours."""

    @abstractmethod
    def _insert(self, values: tuple[int, float, bytes | bytearray]) -> None:
        """Write a turn, and `_blobs` if there are any."""

    @abstractmethod
    def _rows(self, after: int) -> Iterator[tuple[int, float, bytes]]:
        """Journal rows after a turn, lazily."""

    def _translated(self, statement: str) -> str:
        """A statement that makes a table, in the words of this database."""
        return statement

    def _make_tables(self, *, anew: bool) -> None:
        """Make all tables in the open transaction; `anew`: what is folded is dropped, to be folded again."""
        for view in schema.VIEWS if anew else ():
            self._database.execute(f"DROP VIEW IF EXISTS {view}")
        for table in schema.FOLDED if anew else ():
            self._database.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in schema.statements():
            self._database.execute(self._translated(statement))

    def _newest(self) -> int:
        """The newest turn in the journal, 0 when there is none."""
        return int(self._database.execute("SELECT coalesce(max(turn), 0) FROM journal").fetchone()[0])

    def reopened(self) -> None:
        """Take account of what was written past this object, as if the store had just been opened."""
        self._folding.forget()
        self._stale = True
        with self._reported():
            self._last = self._newest()

    @abstractmethod
    def _free_space(self) -> bool:
        """Return some unused space to the file system; True once all of it is returned."""

    @abstractmethod
    def sync(self) -> None:
        """Bring everything to the disk."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the connection."""

    # --- the journal ---

    def append(self, turn: int, now: Seconds, facts: Sequence[Fact]) -> None:
        """Write one turn; it survives `kill -9` when this returns."""
        if turn != self._last + 1:
            raise InvariantBroken(f"turn {turn} was to follow turn {self._last} in {self.path}")
        self._insert((turn, now, encode(facts)))
        self._last = turn
        if not _RUN_FACTS.isdisjoint(map(type, facts)):
            self._stale = True

    @property
    def last_turn(self) -> int:
        """The newest turn."""
        return self._last

    def journal(self, after: int = 0) -> Iterator[tuple[int, Seconds, list[Fact]]]:
        """Turns in order, lazily."""
        with self._reported():
            for turn, time, data in self._rows(after):
                yield turn, time, self._decode(turn, data)

    def turn(self, number: int) -> list[Fact]:
        """The facts of one turn."""
        return self._decode(number, self._row(number))

    def turns_of_run(self, run: int) -> int:
        """Where a run begins."""
        self._freshen()
        with self._reported():
            row = self._database.execute("SELECT turn FROM runs WHERE run = ?", (run,)).fetchone()
        if row is None:
            raise KeyError(run)
        return int(row[0])

    def last_run(self) -> LastRun:
        """How the store was left."""
        self.project()
        with self._reported():
            row = self._database.execute(
                "SELECT run, clean, record, grp, executor, span, last FROM position"
            ).fetchone()
        run, clean, record, group, executor, span, last = row
        return LastRun(run, bool(clean), self._last, record, group, executor, span, last, self.kind == "service")

    def has_run(self, run: int) -> bool:
        """Whether the tables know a run that was not removed."""
        with self._reported():
            return self._database.execute("SELECT 1 FROM runs WHERE run = ?", (run,)).fetchone() is not None

    def workflow_names(self) -> list[str]:
        """The names of all workflows of a service that the tables know."""
        with self._reported():
            rows = self._database.execute("SELECT DISTINCT name FROM runs WHERE grp != 0").fetchall()
        return [row[0] for row in rows]

    def last_record_of(self, name: str) -> int:
        """The highest record of the workflows of a name that the tables know; 0: there is none."""
        asked = (
            "SELECT max(tasks.id) FROM runs JOIN tasks ON tasks.run = runs.run WHERE runs.name = ? AND runs.grp != 0"
        )
        with self._reported():
            found = self._database.execute(asked, (name,)).fetchone()
        return int(found[0] or 0)

    @property
    def kind(self) -> str:
        """What the store belongs to: "session", "service", or ""."""
        with self._reported():
            said = self._database.execute("SELECT value FROM about WHERE name = 'kind'").fetchone()
        if said:
            return str(said[0])
        self._freshen()
        with self._reported():
            run, service = self._database.execute("SELECT run, service FROM position").fetchone()
        return "service" if service else "session" if run else ""

    def claim(self, kind: str) -> None:
        """Make it the store of a session or a service; `UserError` when it is the other's."""
        if kind not in KINDS:
            raise InvariantBroken(f"a store is a session's or a service's, not {kind!r}")
        now = self.kind
        if now and now != kind:
            raise UserError(f"the store {self.path} is a {now}'s, not a {kind}'s: choose another with --store")
        with self._reported():
            self._database.execute("INSERT INTO about VALUES ('kind', ?) ON CONFLICT DO NOTHING", (kind,))

    def _row(self, number: int) -> bytes:
        with self._reported():
            row = self._database.execute("SELECT facts FROM journal WHERE turn = ?", (number,)).fetchone()
        if row is None:
            raise KeyError(number)
        return bytes(row[0])

    def _decode(self, turn: int, data: bytes) -> list[Fact]:
        self.rows_read += 1
        try:
            return decode(data)
        except Newer as error:
            raise StoreFailed(f"turn {turn} of the store {self.path} cannot be read: {error}") from error
        except Unreadable:
            good, bad = salvage(data)
            self._aside.unreadable(turn, bad)
            return good

    # --- what is set aside ---

    @property
    def tell(self) -> Callable[[str], None]:
        """Called with a line for the operator when something is set aside."""
        return self._aside.tell

    @tell.setter
    def tell(self, tell: Callable[[str], None]) -> None:
        self._aside.tell = tell

    def quarantined(self) -> list[SetAside]:
        """All facts that were set aside."""
        with self._reported():
            return self._aside.all()

    def set_aside(self, found: Sequence[SetAside], after: int) -> None:
        """Record what the core passed over in its replay of the turns after one."""
        with self._reported():
            self._aside.write_down()
            with self._transaction():
                self._aside.passed_over(found, after)
        self._aside.say(found)

    @property
    def folded(self) -> int:
        """The newest turn that the jobs database knows."""
        with self._reported():
            return int(self._database.execute("SELECT turn FROM position").fetchone()[0])

    def rebuild(self) -> None:
        """Drop all that is folded, to fold the whole journal again, with the facts that could not be folded."""
        self._folding.forget()
        self._stale = True
        with self._reported(), self._transaction():
            keep_numbers(self._database)
            self._aside.try_again()
            self._make_tables(anew=True)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    # --- blobs and snapshots ---

    def put_blob(self, blob: BlobId, data: bytes) -> None:
        """Keep a blob with the next turn."""
        self._unused_blobs.add(blob)
        if len(self._known) > KNOWN_BLOBS:
            self._known.clear()
        if blob not in self._known:
            self._blobs[blob] = data

    def blob(self, blob: BlobId) -> bytes:
        """A blob's content."""
        if blob in self._blobs:
            return self._blobs[blob]
        with self._reported():
            row = self._database.execute("SELECT data FROM blobs WHERE id = ?", (blob,)).fetchone()
        if row is None:
            raise KeyError(blob)
        return bytes(row[0])

    def has_blob(self, blob: BlobId) -> bool:
        """Whether a blob is here."""
        if blob in self._blobs or blob in self._known:
            return True
        with self._reported():
            return self._database.execute("SELECT 1 FROM blobs WHERE id = ?", (blob,)).fetchone() is not None

    def save_snapshot(self, turn: int, run: int, data: bytes) -> None:
        """Keep the newest snapshot of a run."""
        with self._reported():
            self._database.execute(
                "INSERT INTO snapshots VALUES (?, ?, ?)"
                " ON CONFLICT (run) DO UPDATE SET turn = excluded.turn, data = excluded.data",
                (run, turn, data),
            )

    def snapshot(self, run: int) -> tuple[int, bytes] | None:
        """The newest snapshot of a run."""
        with self._reported():
            row = self._database.execute("SELECT turn, data FROM snapshots WHERE run = ?", (run,)).fetchone()
        return (int(row[0]), bytes(row[1])) if row else None

    # --- the jobs database and the memos ---

    def project(self, at_most: int = 0) -> bool:
        """Fold journalled facts; True once caught up."""
        try:
            with self._reported():
                position = self._folding.fold(self._last, at_most)
                self._aside.write_down()
                if position == self._last:
                    self._stale = False
                run, clean = self._database.execute("SELECT run, clean FROM position").fetchone()
        except BaseException as error:
            self._folding.forget()  # what it holds in memory is ahead of the tables
            self._roll_back()
            if not self._folding.can_go_on(error):
                raise
            self._fold_what_can_be()
            return self.project(at_most)
        self._memos.before = run + 1 if clean else run
        return position == self._last

    def _fold_what_can_be(self) -> None:
        try:
            with self._reported():
                self._folding.fold_what_can_be(self._roll_back)
        except BaseException:
            self._roll_back()
            raise

    def _new_fold(self) -> JobsFold:
        return JobsFold(self._database, lambda blob: self.blob(BlobId(blob)), self.success, self._unused_blobs.discard)

    def _roll_back(self) -> None:
        if self._database.in_transaction:
            self._database.execute("ROLLBACK")

    def _project_for(self, within: Seconds) -> None:
        """Fold for about so many seconds, in steps of growing or shrinking size: turns differ much in size."""
        now, step = monotonic(), 1
        until = now + within
        while not self.project(at_most=step):
            begun, now = now, monotonic()
            if now >= until:
                return
            step = 2 * step if now - begun < within / 20 else max(1, step // 2)

    def _freshen(self) -> None:
        """Catch up when a run opened or closed: the answer depends on which run is the present one."""
        if self._stale:
            self.project()

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
        """Successes of earlier runs."""
        self._freshen()
        with self._reported():
            return self._memos.look_up(record, start, stop, key, reuse, run=run, always=always)

    def look_up_tasks(
        self, wanted: Sequence[tuple[RecordId, MemoKey]], run: int = 0, *, always: bool = True
    ) -> list[MemoLookedUp]:
        """Successes of earlier runs for many loose tasks."""
        self._freshen()
        with self._reported():
            return self._memos.look_up_tasks(wanted, run=run, always=always)

    def unfinished_runs(self, script: str) -> frozenset[int]:
        """The runs that the next one continues."""
        self.project()
        with self._reported():
            return self._memos.unfinished_runs(_AFTER_ALL, None, script)

    def expendable_runs(
        self, script: str, is_alive: Callable[[ScriptRun], bool], *, spare_last: bool
    ) -> ExpendableRuns:
        """The runs that nothing can ask for any more."""
        needed = self.unfinished_runs(script)
        with self._reported():
            found = find_expendable(self._database, needed, script, is_alive, spare_last=spare_last)
        self._memos.dropped = frozenset(found.runs)
        return found

    def completed_runs(self, script: str) -> list[int]:
        """The runs of one script run that ended well."""
        self.project()
        with self._reported():
            rows = self._database.execute(
                "SELECT run FROM runs WHERE script = ? AND complete = 1", (script,)
            ).fetchall()
        return [row[0] for row in rows]

    def keep_contents(self, folder: str) -> None:
        """Outputs that lie on other machines are kept by content in this folder."""
        self._memos.contents = folder

    def old_arrays(self, body: MemoKey, run: int = 0, *, always: bool = True) -> list[MemoArray]:
        """Arrays of earlier runs with this body."""
        self._freshen()
        with self._reported():
            return self._memos.old_arrays(body, run, always=always)

    def old_feeds(self, body: MemoKey, run: int = 0, *, always: bool = True) -> list[RecordId]:
        """Arrays that generators fed in earlier runs, with this body."""
        self._freshen()
        with self._reported():
            return self._memos.old_feeds(body, run, always=always)

    def fed_pages(self, record: RecordId, after: int, run: int = 0) -> MemoPages:
        """A piece of such an array."""
        with self._reported():
            return self._memos.fed_pages(record, after, run)

    def declared_paths(self, run: int = 0) -> list[str]:
        """Paths ever declared or made as outputs."""
        self.project()
        sql = _DECLARED.format(_NAMESAKES) if run else "SELECT path FROM declared UNION SELECT path FROM files"
        with self._reported():
            rows = self._database.execute(sql, {"run": run} if run else ()).fetchall()
        return [self._places.now(row[0]) for row in rows] if self._places else [row[0] for row in rows]

    def output_of(self, record: int, index: int) -> KeptStreams | None:
        """Where the latest attempt at a task wrote that has ended, as far as the tables know one."""
        self.project()
        with self._reported():
            row = self._database.execute(_OUTPUT_OF_ELEMENT, (record, index)).fetchone()
            if row is None and not index:
                row = self._database.execute(_OUTPUT_OF_TASK, (record,)).fetchone()
        if row is None:
            return None
        out, err = (Stream(*row[at : at + 3]) if row[at] is not None else None for at in (0, 3))
        attempt = row[7] - 1 if row[9] else row[7]  # what the attempt before left stands in the row
        return KeptStreams(out, err, ExecutorId(row[6] or 0), attempt, is_whole=row[8] == "done")

    def observations(self, record: int, start: int, stop: int) -> list[SeenTask]:
        """What was seen of the attempts of some elements; `UserError` when that is too much for one answer."""
        self.project()
        place = (record, start, stop, MOST_SEEN + 1)
        with self._reported():
            firings = self._database.execute(FIRINGS, place).fetchall()
            series = self._database.execute(SERIES, place).fetchall()
        if len(firings) > MOST_SEEN or len(series) > MOST_SEEN:
            raise UserError(f"more than {MOST_SEEN} rows were recorded of these tasks: ask for fewer of them at a time")
        return seen_tasks(firings, series)

    def watched_sources(self, found: Iterable[MemoLookedUp]) -> set[RecordId]:
        """The sources of memos of which something was seen."""
        with self._reported():
            if self._database.execute(_ANYTHING_SEEN).fetchone() is None:  # as in most stores
                return set()
            sources = {fact.source for fact in found if fact.found}
            return {RecordId(source) for source in found_in(self._database, _SEEN_AMONG, sources)}

    def success(self, turn: int, record: int, index: int) -> SpanEnded | None:
        """The success that covers an element; turn 0: its turn is not known."""
        for number in (turn,) if turn else self._turns_with(record, index):
            for fact in self._successes(number).get(record, ()):
                if fact.start <= index < fact.stop:
                    return fact
        return None

    def _turns_with(self, record: int, index: int) -> Iterator[int]:
        """Turns that may hold the success of an element; for a removed run, those that others use."""
        self.project()
        with self._reported():
            row = self._database.execute(_SPAN_WITH, (record, index)).fetchone()
            if row is not None:
                yield row[0]
                return
            for (turn,) in self._database.execute(_BORROWED, (record,)).fetchall():
                yield turn

    def _successes(self, turn: int) -> dict[int, list[SpanEnded]]:
        """The successes of a turn by record; recently used turns are kept."""
        if turn in self._decoded:
            self._decoded.move_to_end(turn)
            return self._decoded[turn][1]
        try:
            data = self._row(turn)
        except KeyError:
            return {}
        found: dict[int, list[SpanEnded]] = {}
        for fact in self._decode(turn, data):
            if isinstance(fact, SpanEnded):
                success = self._places.success(fact) if self._places else fact
                found.setdefault(fact.record, []).append(success)
        self._decoded[turn] = (len(data), found)
        self._decoded_bytes += len(data)
        while self._decoded_bytes > CACHED_BYTES and len(self._decoded) > 1:
            self._decoded_bytes -= self._decoded.popitem(last=False)[1][0]
        return found

    # --- core-hours ---

    def note_core_seconds(self, now: Seconds, totals: Mapping[str, tuple[float, float, float, float]]) -> None:
        """What each site has used in all by now."""
        with self._reported(), self._transaction():
            self._core_hours().note(now, totals)

    def core_hours(self, since: Seconds) -> list[SitePeriod]:
        """What sites used in the minutes, hours and days that ended after an instant, oldest first."""
        with self._reported():
            return self._core_hours().history(since)

    def _core_hours(self) -> CoreHours:
        if self._hours is None:
            from bough.stores.core_hours import CoreHours

            self._hours = CoreHours(self._database)
        return self._hours

    # --- removal ---

    def remove_runs(self, runs: Sequence[int] = (), at_most: int = 500, *, give_back: bool = True) -> bool:
        """Take removed runs out of the journal, a slice at a time; True once the space is given back."""
        self.project()
        with self._reported():
            for run in runs:
                if self._database.execute("SELECT 1 FROM runs WHERE run = ?", (run,)).fetchone():
                    raise InvariantBroken(f"run {run} of {self.path} was not removed: append RunRemoved first")
            if not self._removal.sweep(at_most, now=bool(runs)):
                for turn in self._removal.rewritten & self._decoded.keys():
                    self._decoded_bytes -= self._decoded.pop(turn)[0]
                self._removal.rewritten.clear()
                return False
            gone = self._removal.drop_blobs(self._unused_blobs)
            if gone:
                self._known -= {BlobId(blob) for blob in gone}
                return False
            return self._free_space() if give_back else True

    def forgotten_files(self) -> list[str]:
        """Files that only removed runs had."""
        files, self._removal.files = self._removal.files, []
        return files

    def close(self, within: Seconds | None = None) -> None:
        """Catch up, for at most so many seconds, sync and disconnect; harmless the second time."""
        if self._closed:
            return
        self._closed = True
        try:
            if within is None:
                self.project()
            else:
                self._project_for(within)
            self.sync()
        finally:
            self._disconnect()
