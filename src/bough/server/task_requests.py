"""What running tasks ask for and say of themselves: attributes, status, progress, locks, and of their workflow.

See `wire.here_questions`. Tasks get a lock in the order of asking. Locks outlive the server, waiting for one
does not: executors ask again. When and where a task ran last is read from the jobs database in a thread: its attempts
in this run, else those of the task of the same name before. Rule: a task is heard only through the executor that has
it, and owns only the locks that it took.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from bough import logs
from bough.core.queries.answers import Attempt, TaskInfo
from bough.errors import BoughError, InternalError, UserError
from bough.model.events.facts import GroupReleased
from bough.model.events.news import Cancel, FreeLock, TakeLock, TaskAlive, WorkObserved
from bough.model.ids import ExecutorId, RecordId, Seconds, number_of
from bough.model.monitoring.observations import Observation, Points
from bough.model.states import TaskState
from bough.model.tasks import Dep, On, index_of
from bough.server.turns.shell import Shell
from bough.wire import here_questions
from bough.wire.executor_messages import TaskAnswer, TaskRequest

if TYPE_CHECKING:
    from bough.stores.jobs.jobs_reader import Row

Past = dict[str, str | float | None]

_OWN = """
SELECT coalesce(started, placed) AS started, ended, host FROM attempts WHERE id = ? AND idx = ?
UNION ALL SELECT started, ended, host FROM tasks WHERE id = ? AND is_array = 0
UNION ALL SELECT started, ended, host FROM elements WHERE id = ? AND idx = ?
UNION ALL SELECT coalesce(spans.started, spans.placed), spans.ended, executors.host FROM spans
  LEFT JOIN executors ON executors.id = spans.executor WHERE spans.id = ? AND spans.start <= ? AND spans.stop > ?
"""
# The same task in earlier runs of the workflow: of its name, group and text, and the n-th of them in its run as here.
_BEFORE = """
WITH alike AS (
  SELECT tasks.id AS id, tasks.run AS run, row_number() OVER (PARTITION BY tasks.run ORDER BY tasks.id) AS place
  FROM tasks JOIN runs ON runs.run = tasks.run
    LEFT JOIN groups ON groups.run = tasks.run AND groups.id = tasks.grp
  WHERE tasks.name = ? AND runs.name = ? AND coalesce(groups.path, '') = ?
    AND coalesce(tasks.command, '') = (SELECT coalesce(command, '') FROM tasks WHERE id = ?))
SELECT alike.id FROM alike JOIN alike own ON own.place = alike.place
WHERE own.id = ? AND alike.run < own.run ORDER BY alike.run DESC LIMIT 3
"""
_COUNTED = {
    "waiting": TaskState.WAITING,
    "ready": TaskState.READY,
    "held": TaskState.HELD,
    "done": TaskState.DONE,
    "failed": TaskState.FAILED,
    "skipped": TaskState.SKIPPED,
    "cancelled": TaskState.CANCELLED,
}
_PAUSE = 0.2  # seconds between two reports of a task that no executor runs
_KEPT = 1000  # texts of tasks that have ended are looked for when there are so many, and again at twice as many
Value = dict[str, str | float | int | bool | None]
Owner = tuple[int, int]  # span and index of the task that has a lock


class TaskStatus(msgspec.Struct):
    """What a task said of itself."""

    text: str = ""
    progress: float | None = None
    since: Seconds = 0.0  # when it said so


class TaskAnswers(Protocol):
    """A connection to the peer that speaks for a task."""

    def send(self, message: object) -> None:
        """Say something at once."""


class TaskPeer(Protocol):
    """The peer that speaks for a task: its executor, or the person that took it."""

    @property
    def number(self) -> ExecutorId:
        """Its number."""

    @property
    def connection(self) -> TaskAnswers:
        """How it is answered."""


class _Asked:
    """A question that is to be answered."""

    __slots__ = ("executor", "message")

    def __init__(self, executor: TaskPeer, message: TaskRequest) -> None:
        self.executor = executor
        self.message = message

    @property
    def question(self) -> Any:
        return self.message.question

    @property
    def lock(self) -> str:
        return str(self.question.name)

    def answer(self, value: Value) -> None:
        self.executor.connection.send(TaskAnswer(self.message.request, value))

    def refuse(self, error: BoughError) -> None:
        self.executor.connection.send(TaskAnswer(self.message.request, {}, str(error), type(error).__name__))


class TaskRequests:
    """Answers running tasks. `where`: the store's folder or database."""

    def __init__(self, shell: Shell, where: str) -> None:
        self._shell = shell
        self._queries = shell.queries
        self._history = History(shell, where)
        self._said: dict[tuple[int, int], TaskStatus] = {}  # by span and index
        self._most_said = _KEPT
        self._waiting: dict[str, deque[_Asked]] = {}  # for a lock
        self._taking: set[str] = set()  # locks that the first of those takes just now
        self._do: dict[type, Callable[[_Asked, Attempt], None]] = {
            here_questions.Attributes: self._attributes,
            here_questions.SetStatus: self._status,
            here_questions.Progress: self._progress,
            here_questions.Report: self._report,
            here_questions.Alive: self._alive,
            here_questions.Lock: self._lock,
            here_questions.Unlock: self._unlock,
            here_questions.Release: self._release,
            here_questions.Counts: self._counts,
            here_questions.CancelOthers: self._cancel,
        }
        self._aborted: set[int] = set()  # runs in which a task has cancelled all others
        shell.on_turn.append(self._after_turn)

    def ask(self, executor: TaskPeer, message: TaskRequest) -> None:
        """Answer, now or when it is done, after all that was said before."""
        asked = _Asked(executor, message)
        if self._shell.is_busy:
            self._shell.after_turn(lambda: self._begin(asked))
        else:
            self._begin(asked)

    def on_lost(self, executor: TaskPeer) -> None:
        """What an executor's tasks wait for they will ask for again, if it reconnects."""
        for name, waiting in list(self._waiting.items()):
            self._waiting[name] = deque(asked for asked in waiting if asked.executor is not executor)

    def _begin(self, asked: _Asked) -> None:
        try:
            if isinstance(asked.question, here_questions.Forget):
                self._forget(asked)
            else:
                self._do[type(asked.question)](asked, self._attempt(asked))
        except BoughError as error:
            asked.refuse(error)
        except Exception as error:  # noqa: BLE001 -- it concerns the task that asked and no other
            text = self._shell.handler_errors.note(f"the question {asked.question!r:.200} of a task failed", error)
            asked.refuse(InternalError(text))

    def _attempt(self, asked: _Asked) -> Attempt:
        """The attempt that asks; UserError when it is not with the executor that speaks for it."""
        message = asked.message
        found = self._queries.attempt_of(asked.executor.number, message.span, message.index)
        if found is None or found.is_late or (found.record, found.attempt) != (message.record, message.attempt):
            raise UserError(f"task {number_of(message.record)}.{message.index} has ended, or is run elsewhere by now")
        return found

    # --- what it says of itself --------------------------------------------------------------------

    def _status(self, asked: _Asked, attempt: Attempt) -> None:
        said = self._note(asked)
        said.text = asked.question.text[: here_questions.LONGEST_SAID]
        self._alive(asked, attempt)

    def _progress(self, asked: _Asked, attempt: Attempt) -> None:
        self._note(asked).progress = asked.question.share
        self._alive(asked, attempt)

    def _report(self, asked: _Asked, attempt: Attempt) -> None:
        """Numbers of a task that somebody took by hand; executors tell those of theirs as news."""
        now, report = self._shell.clock.now(), asked.question
        if report.step is None:
            raise UserError("nothing counts the steps of a task that was taken by hand: say step=N as well")
        said = self._said.get((asked.message.span, asked.message.index))
        if said is not None and now - said.since < _PAUSE:
            raise UserError(f"the task has just said something; report numbers at most once in {_PAUSE} s")
        self._note(asked)
        points: list[Observation] = [
            Points(name, ((report.step, now, value),), report.total) for name, value in report.values.items()
        ]
        self._shell.news(
            WorkObserved(asked.message.span, asked.message.index, points), then=lambda: self._alive(asked, attempt)
        )

    def _note(self, asked: _Asked) -> TaskStatus:
        if len(self._said) >= self._most_said:
            self._said = {key: said for key, said in self._said.items() if self._is_there(*key)}
            self._most_said = max(_KEPT, 2 * len(self._said))
        said = self._said.setdefault((asked.message.span, asked.message.index), TaskStatus())
        said.since = self._shell.clock.now()
        return said

    def _is_there(self, span: int, index: int) -> bool:
        attempt = self._queries.attempt(span)
        return attempt is not None and attempt.has(index)

    def _alive(self, asked: _Asked, attempt: Attempt) -> None:
        if self._queries.spec_of(attempt.record).limits.resend_after:
            self._shell.news(TaskAlive(attempt.span))
        asked.answer({})

    def said(self, *_: object) -> list[dict[str, object]]:
        """What tasks that run say of themselves, and what was seen of them: the answer to the question "said"."""
        found: dict[tuple[int, int], dict[str, object]] = {}
        for (number, index), said in self._said.items():
            attempt = self._queries.attempt(number)
            if attempt is not None and attempt.has(index):
                own = {"text": said.text, "progress": said.progress, "since": said.since}
                found[attempt.record, index] = self._named(attempt.record, index) | own
        for seen in self._queries.seen():
            entry = found.get((seen.record, seen.index))
            if entry is None:
                entry = self._named(seen.record, seen.index) | {"since": seen.at}
                found[seen.record, seen.index] = entry
            entry |= {"metrics": msgspec.to_builtins(seen.metrics), "tags": list(seen.tags)}
            if entry["progress"] is None:
                shares = [one.step / one.total for one in seen.metrics.values() if one.total]
                entry["progress"] = min(1.0, max(0.0, shares[0])) if shares else None
        for waiting, text in self._shell.full_disk.waiting():
            if waiting.left:
                first = waiting.left[0][0]  # those behind it wait with it
                entry = found.setdefault((waiting.record, first), self._named(waiting.record, first))
                entry |= {"text": text, "since": entry["since"] or self._shell.clock.now()}
        return list(found.values())

    def _named(self, record: int, index: int) -> dict[str, object]:
        """An entry of a task that has said nothing."""
        task = self._queries.task(record, index)
        return {
            "id": task.id,
            "record": number_of(task.record),
            "index": index_of(task.spec, index),
            "name": task.spec.name,
            "group": task.path,
            "run": task.run,
            "text": "",
            "progress": None,
            "since": 0.0,
            "metrics": {},
            "tags": [],
        }

    # --- attributes --------------------------------------------------------------------------------

    def _attributes(self, asked: _Asked, attempt: Attempt) -> None:
        task = self._queries.task(attempt.record, asked.message.index)
        own: Value = {**task.attributes}
        system: Value = {
            "id": task.id,
            "record": number_of(task.record),
            "index": index_of(task.spec, task.index),
            "attempt": attempt.attempt,
            "name": task.spec.name,
            "group": task.path,
            "workflow": task.workflow,
            "kind": task.spec.kind.name.lower(),
            "cores": task.needs.cores,
            "gpus": task.needs.gpus,
            "priority": task.priority,
            "executor": attempt.executor,
            "host": attempt.host,
        }
        if asked.question.past:
            self._history.find(task, lambda past: asked.answer({**own, **system, **past}))
        else:
            asked.answer({**own, **system})

    # --- early release -----------------------------------------------------------------------------

    def _release(self, asked: _Asked, attempt: Attempt) -> None:
        group = self._queries.group_of(attempt.record)
        if group is None or group.is_workflow:
            raise UserError("the task is in no group that it could release")
        new = not (group.released or group.finished)
        self._shell.news(GroupReleased(group.id), then=lambda: asked.answer({"released": new}))

    # --- the rest of its workflow ------------------------------------------------------------------

    def _counts(self, asked: _Asked, attempt: Attempt) -> None:
        run = self._queries.run_of(attempt.record)
        counts = self._queries.node_counts(run)
        value: Value = {label: counts.by_state[state] for label, state in _COUNTED.items()}
        asked.answer({**value, "running": counts.out, "aborted": int(run in self._aborted)})

    def _cancel(self, asked: _Asked, attempt: Attempt) -> None:
        run, wanted = self._queries.run_of(attempt.record), asked.question
        if wanted.all:
            self._aborted.add(run)
        found = self._queries.cancellable(run, None if wanted.all else frozenset(wanted.names))
        targets = [record for record in found if record != attempt.record]
        for record in targets[:-1]:
            self._shell.news(Cancel(Dep(On.ARRAY, RecordId(record))))
        answer = partial(asked.answer, {"cancelled": len(targets)})
        if targets:
            self._shell.news(Cancel(Dep(On.ARRAY, RecordId(targets[-1]))), then=answer)
        else:
            answer()

    # --- locks -------------------------------------------------------------------------------------

    def _lock(self, asked: _Asked, _: Attempt) -> None:
        name = asked.lock
        waiting = self._waiting.setdefault(name, deque())
        owner = self._queries.lock_owner(name)
        if owner == _as_owner(asked):
            asked.answer({"taken": True, "new": False})
            return
        if not asked.question.wait and (owner is not None or waiting):
            asked.answer({"taken": False, "new": False, "owner": self._name_of(owner) if owner else ""})
            return
        self._refuse_deadlock(asked)
        waiting.append(asked)
        self._serve(name)

    def _serve(self, name: str) -> None:
        """Give a lock to the task that has waited longest, if it is free."""
        waiting = self._waiting.get(name)
        while waiting and name not in self._taking:
            first = waiting[0]
            owner = self._queries.lock_owner(name)
            if owner == _as_owner(first):
                waiting.popleft()
                first.answer({"taken": True, "new": True})
                continue
            try:
                self._attempt(first)
            except UserError as error:
                waiting.popleft()
                first.refuse(error)
                continue
            if owner is None:
                self._taking.add(name)
                message = first.message
                self._shell.news(TakeLock(name, message.span, message.index), then=lambda: self._taken(name))
            return
        if not waiting:
            self._waiting.pop(name, None)

    def _taken(self, name: str) -> None:
        self._taking.discard(name)
        self._serve(name)

    def _after_turn(self) -> None:
        """A lock may have been freed by the end of its owner."""
        if self._waiting:
            for name in [name for name in self._waiting if self._queries.lock_owner(name) is None]:
                self._serve(name)

    def _unlock(self, asked: _Asked, _: Attempt) -> None:
        name = asked.lock
        owner = self._queries.lock_owner(name)
        if owner != _as_owner(asked):
            owned = f"it belongs to task {self._name_of(owner)}" if owner else "it is not locked"
            raise UserError(f"the lock {name!r} is not the task's own: {owned}")
        freed = FreeLock(name, asked.message.span, asked.message.index)
        self._shell.news(freed, then=lambda: asked.answer({"freed": True}))

    def _forget(self, asked: _Asked) -> None:
        number, executor = asked.message.request, asked.executor
        for name, waiting in list(self._waiting.items()):
            for one in [one for one in waiting if one.executor is executor and one.message.request == number]:
                if name not in self._taking or one is not waiting[0]:  # else it is told to free it again
                    waiting.remove(one)
                    one.answer({"taken": False, "new": False})

    def _refuse_deadlock(self, asked: _Asked) -> None:
        """A task that waits for one that waits for it would wait for ever."""
        me, seen = _as_owner(asked), set[Owner]()
        names = [asked.lock]
        while names:
            name = names.pop()
            owner = self._queries.lock_owner(name)
            if owner == me:
                raise UserError(f"waiting for the lock {asked.lock!r} would never end: its owner waits for {name!r}")
            if owner is not None and owner not in seen:
                seen.add(owner)
                names += [lock for lock, some in self._waiting.items() if any(_as_owner(one) == owner for one in some)]

    def _name_of(self, owner: Owner) -> str:
        attempt = self._queries.attempt(owner[0])
        assert attempt is not None
        return self._queries.label(attempt.record, owner[1])


def _as_owner(asked: _Asked) -> Owner:
    return asked.message.span, asked.message.index


class History:
    """When and where tasks ran last. `where`: the store's folder or database."""

    def __init__(self, shell: Shell, where: str) -> None:
        self._shell = shell
        self._where = where

    def find(self, task: TaskInfo, then: Callable[[Past], None]) -> None:
        """Call back with `lastStart`, `lastCompletion` and `lastHost`, as far as they are known."""
        wanted = (int(task.record), task.index, task.spec.name, task.workflow, task.path)
        self._shell.background.when_folded(lambda: self._begin(wanted, then))

    def _begin(self, wanted: tuple[int, int, str, str, str], then: Callable[[Past], None]) -> None:
        asked = self._shell.loop.run_in_executor(None, self._read, wanted)
        asked.add_done_callback(lambda done: then(_result(done)))

    def _read(self, wanted: tuple[int, int, str, str, str]) -> Past:
        from bough.stores.open import open_jobs

        record, index, name, workflow, path = wanted
        with open_jobs(self._where) as jobs:
            rows = jobs.rows(_OWN, (record, index, record, record, index, record, index, index))
            wanted_before = name and not _ended(rows)
            for one in jobs.rows(_BEFORE, (name, workflow, path, record, record)) if wanted_before else ():
                before = one["id"]
                rows += jobs.rows(_OWN, (before, index, before, before, index, before, index, index))
                if _ended(rows):
                    break
        last = max(_ended(rows), key=_end, default=None)
        starts = [start for row in rows if isinstance(start := row["started"], float)]
        return {
            "lastStart": max(starts, default=None),
            "lastCompletion": _end(last) if last is not None else None,
            "lastHost": str(last["host"] or "") if last is not None else None,
        }


def _ended(rows: list[Row]) -> list[Row]:
    return [row for row in rows if isinstance(row["ended"], float)]


def _end(row: Row) -> float:
    ended = row["ended"]
    assert isinstance(ended, float)
    return ended


def _result(done: asyncio.Future[Past]) -> Past:
    error = done.exception()
    if error is None:
        return done.result()
    if not isinstance(error, BoughError):
        raise error
    logs.warning("history-unreadable", f"when a task ran last cannot be read: {error}")
    return {"lastStart": None, "lastCompletion": None, "lastHost": None}
