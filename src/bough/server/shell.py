"""The live driver of the core: everything that arrived, one turn, one row, then the orders.

Whatever arrives is put into the inbox as news. A turn takes all of it, is written to the store, and
only then has effects: orders are carried out, clients are told, executors may forget their reports.
All that a turn says to one connection is one frame. Rule: nothing of a turn takes effect before
`append` has returned; a turn that cannot be written is kept and tried again, and no other one is made
meanwhile.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from bough.core.machine import Machine, Turn
from bough.errors import BoughError, InternalError, StoreFailed
from bough.model.facts import ElementFailed, ExecutorSuspended, Fact, Recalled, SpanEnded, SpanReturned, Submitted
from bough.model.ids import RecordId, Seconds
from bough.model.orders import Order, Recall, Refuse, SendSpan, Settle, StopSpan
from bough.model.outcomes import Cause, Failure
from bough.model.resources import Needs
from bough.server.clock import Clock
from bough.server.connection import Connection
from bough.server.inputs import Sender
from bough.server.log import log
from bough.server.peers import Client, Executor, Peers
from bough.server.results import ResultCache
from bough.server.resuming import unanswered
from bough.server.run import RunInfo
from bough.server.tell import Message, Teller, struck_by
from bough.server.upkeep import Upkeep
from bough.stores.api import Store
from bough.stores.faults import is_passing
from bough.wire.filemessages import Workplace
from bough.wire.messages import Accepted, GroupDone, Notice, Refused
from bough.wire.work import Heard, Stop

_TRY_AGAIN = 0.5  # seconds between tries to write to a full disk
_STRANDED = 1.0  # seconds after a submission until tasks that nobody can run are spoken of
_RECALL_SLICE = 0.02  # seconds of looking up memos between turns


class _Batch(msgspec.Struct):
    """What went into one turn, and who is to be told when it is written."""

    now: Seconds
    turn: Turn
    requests: dict[int, tuple[Client, int]]
    reports: list[tuple[Executor, int]]
    after: list[Callable[[], None]]


class Shell:
    """See the module."""

    def __init__(self, loop: asyncio.AbstractEventLoop, machine: Machine, store: Store, info: RunInfo) -> None:
        self.loop = loop
        self.clock = Clock()
        self.machine = machine
        self.store = store
        self.info = info
        self.peers = Peers()
        self.dirty: list[Connection] = []
        self.on_turn: list[Callable[[], None]] = []  # called after every turn
        self.on_facts: list[Callable[[Sequence[Fact]], None]] = []  # called with the facts of every turn
        self.on_settle: Callable[[int, bool], None] = self._tell_settled  # a group is done, or cannot be any more
        self.on_fatal: Callable[[BoughError], None] = _log_fatal
        self.results = results = ResultCache(store.success)
        self._teller = Teller(results, lambda deed: struck_by(machine.state, deed))
        self._sender = Sender(results, store.blob, machine.result_turns, None if info.embedded else self._workplace)
        self.upkeep = Upkeep(loop, store, info.run, machine.snapshot)
        self._inbox: list[Fact] = []
        self._reporting: set[Executor] = set()
        self._after: list[Callable[[], None]] = []
        self._recalls: deque[Recall] = deque()
        self._scheduled = False
        self._stuck: _Batch | None = None
        self.closed = False  # one more turn, and no other
        self._done = False
        self._wake: asyncio.TimerHandle | None = None
        self._projected = not info.memos
        self._stranded_check: asyncio.TimerHandle | None = None
        self._told_stranded: set[Needs] = set()
        self._perform: dict[type, Callable[..., None]] = {
            SendSpan: self._send_span,
            StopSpan: self._stop_span,
            Recall: self._recalls.append,
            Settle: lambda order: self.on_settle(order.group, order.failed),
        }
        if not info.embedded:
            self._teller.restore(machine.state)

    # --- what arrives ------------------------------------------------------------------------------

    def news(self, fact: Fact, then: Callable[[], None] | None = None) -> None:
        """Put something into the next turn; `then` is called once that turn is written."""
        self._inbox.append(fact)
        if then is not None:
            self._after.append(then)
        self.schedule()

    def after_turn(self, then: Callable[[], None]) -> None:
        """Call something once all that has arrived by now is written."""
        self._after.append(then)
        self.schedule()

    def report(self, executor: Executor, number: int, news: Sequence[Fact]) -> None:
        """An executor's report: acknowledged once it is written, and taken only once."""
        self._reporting.add(executor)
        if number > executor.reported:
            executor.reported = number
            self._inbox += news
        self.schedule()

    def schedule(self) -> None:
        """Make a turn as soon as all that has arrived by now is in the inbox."""
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._make_turn)

    def resume(self) -> None:
        """Go on after a restart: make a turn, whether or not there is news, and look up memos that nobody answered."""
        self._recalls += unanswered(self.machine)
        self.schedule()

    @property
    def is_stuck(self) -> bool:
        """Whether a turn waits for the store to be writable again."""
        return self._stuck is not None

    @property
    def is_busy(self) -> bool:
        """Whether something waits for a turn."""
        return bool(self._inbox or self._recalls or self._stuck)

    # --- one turn ----------------------------------------------------------------------------------

    def _make_turn(self) -> None:
        self._scheduled = False
        if self._stuck is not None or self._done:
            return
        self._done = self.closed
        events, self._inbox = self._inbox, []
        after, self._after = self._after, []
        reports = [(executor, executor.reported) for executor in self._reporting]
        self._reporting.clear()
        now = self.clock.now()
        try:
            turn = self.machine.turn(now, events)
            self._write(_Batch(now, turn, self.peers.take_requests(), reports, after))
        except BoughError as error:
            self.on_fatal(error)
        except Exception as error:  # noqa: BLE001 -- half a turn was made: whatever it is, it is ours, and nothing can follow
            self.on_fatal(InternalError(f"{type(error).__name__}: {error}", traceback.format_exc()))

    def _write(self, batch: _Batch) -> None:
        turn = batch.turn
        if turn.facts:
            try:
                self.store.append(turn.number, batch.now, turn.facts)
            except StoreFailed as error:
                self._wait_for_store(batch, error)
                return
        if self._stuck is not None:
            self._stuck = None
            self._announce("the store can be written again")
            self._pause_executors(on=False)
        self._take_effect(batch)
        if turn.facts:
            self.upkeep.appended(turn.number, sum(_result_bytes(fact) for fact in turn.facts))
        if self._inbox or self._recalls:
            self.schedule()
        for callback in self.on_turn:
            callback()

    def _take_effect(self, batch: _Batch) -> None:
        for fact in batch.turn.facts:
            if type(fact) is ExecutorSuspended:
                self._tell_suspended(fact)
        self._tell(batch.turn.facts)
        for hear in self.on_facts:
            hear(batch.turn.facts)
        self._carry_out(batch.turn.orders, batch.requests)
        self._accept(batch.requests)
        for executor, number in batch.reports:
            executor.acknowledged = number
            if executor.leaving:  # it waits for this
                executor.connection.say(Heard(number))
            else:
                executor.connection.say_later(Heard(number), self.loop)  # it goes with the next work, if there is some
        for callback in batch.after:
            callback()
        self.flush()
        for complaint in batch.turn.complaints:
            log(complaint)
        if self._stranded_check is None and any(type(fact) is Submitted for fact in batch.turn.facts):
            self._stranded_check = self.loop.call_later(_STRANDED, self._tell_stranded)
        self._set_alarm(batch.turn.wake)
        self._look_up_memos()

    def flush(self) -> None:
        """Send all that was said, one frame per connection."""
        for connection in self.dirty:
            connection.flush()
        self.dirty.clear()

    def _set_alarm(self, wake: Seconds | None) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if wake is not None:
            self._wake = self.loop.call_later(max(0.0, wake - self.clock.now()), self.schedule)

    # --- a store that cannot be written ------------------------------------------------------------

    def _wait_for_store(self, batch: _Batch, error: StoreFailed) -> None:
        if not error.transient:
            self.on_fatal(error)
            return
        if self._stuck is None:
            self._announce(f"{error}; everything waits until then, tried every {_TRY_AGAIN:g} s")
            self._pause_executors(on=True)
        self._stuck = batch
        self.loop.call_later(_TRY_AGAIN, self._write_again)

    def _tell_stranded(self) -> None:
        """Say once of each kind of task that no executor can ever run it: the workflow would wait without a word."""
        self._stranded_check = None
        for needs, record in self.machine.stranded().items():
            if needs not in self._told_stranded:
                self._told_stranded.add(needs)
                self._announce(self.machine.explain(record)[0])

    def _tell_suspended(self, fact: ExecutorSuspended) -> None:
        """Say that the core gives an executor a rest; of those that are missing others speak."""
        executor = self.peers.executors.get(fact.executor)
        if executor is not None and executor.ready:
            rest = fact.until - self.clock.now()
            log(f"executor {fact.executor} on {executor.hello.host} is suspended for {rest:.0f} s: {fact.reason}")

    def _announce(self, text: str) -> None:
        """Tell operators and users at once."""
        log(text)
        for client in self.peers.clients.values():
            client.connection.say(Notice(text))
            client.connection.flush()

    def _write_again(self) -> None:
        if self._stuck is not None:
            for executor in self.peers.executors.values():  # so that they know that we live
                executor.connection.send(Heard(executor.acknowledged))
            try:
                self._write(self._stuck)
            except BoughError as error:
                self.on_fatal(error)

    def _pause_executors(self, *, on: bool) -> None:
        for executor in self.peers.executors.values():
            executor.connection.pause(on=on)
            executor.last_word = self.loop.time()

    # --- orders ------------------------------------------------------------------------------------

    def _carry_out(self, orders: Sequence[Order], requests: dict[int, tuple[Client, int]]) -> None:
        perform = self._perform
        for order in orders:
            if type(order) is Refuse:
                self._refuse(order, requests)
            else:
                perform[type(order)](order)

    def _send_span(self, order: SendSpan) -> None:
        executor = self.peers.executors.get(order.executor)
        if executor is None or not executor.ready:
            return  # its loss is in the inbox, or it will say that it does not have it
        try:
            self._sender.send(order, executor)
        except (StoreFailed, OSError) as error:
            if is_passing(error):
                self.loop.call_later(_TRY_AGAIN, self.news, SpanReturned(order.span, order.start, order.stop))
                log(f"a span could not be sent, and will be again in {_TRY_AGAIN:g} s: {error}")
                return
            failure = Failure(Cause.NOT_STARTED, f"it could not be sent to an executor: {error}")
            self._inbox += [ElementFailed(order.span, index, failure) for index in range(order.start, order.stop)]

    def _workplace(self, record: RecordId) -> Workplace:
        workflow = self.machine.state.records[record].group.workflow
        return Workplace(workflow.run, workflow.directory, workflow.token)

    def _stop_span(self, order: StopSpan) -> None:
        self._teller.withdrawn(order.span, order.start, order.stop)
        executor = self.peers.executors.get(order.executor)
        if executor is not None:
            executor.connection.say(Stop(order.span, order.start, order.stop))

    def _tell_settled(self, group: int, failed: bool) -> None:
        for client in self.peers.subscribers():
            client.connection.say(GroupDone(group, failed))

    def _refuse(self, order: Refuse, requests: dict[int, tuple[Client, int]]) -> None:
        asked = requests.pop(order.request, None)
        if asked is not None:
            client, request = asked
            client.connection.say(Refused(order.message, request, "InvalidWorkload"))

    def _look_up_memos(self) -> None:
        """Answer lookups for a slice of time; the answers are news of the next turn."""
        until = time.monotonic() + _RECALL_SLICE
        recalls = self._recalls
        while recalls:
            order = recalls.popleft()
            self._inbox += self._recall(order)
            if time.monotonic() >= until:
                break

    def _recall(self, order: Recall) -> Sequence[Fact]:
        missing = [Recalled(order.record, order.start, order.stop, found=False)]
        if not self.info.memos or order.record not in self.machine.state.records:
            return missing
        try:
            if not self._projected:
                self.store.project()
                self._projected = True
            run = 0 if self.info.embedded else self.machine.workflow_of(order.record)
            return self.store.recall(order.record, order.start, order.stop, order.key, order.reuse, run)
        except StoreFailed as error:  # running again is always right
            log(f"results of earlier runs could not be looked up: {error}")
            return missing

    # --- what clients and executors are told -------------------------------------------------------

    def _tell(self, facts: Sequence[Fact]) -> None:
        messages = self._teller.messages(facts)
        if not messages:
            return
        if not self.info.embedded:
            self._tell_each(messages)
            return
        for client in self.peers.subscribers():
            say = client.connection.say
            for message in messages:
                say(message)

    def _tell_each(self, messages: Sequence[Message]) -> None:
        """Tell clients of what belongs to their own workflow, and observers of all."""
        listeners: dict[int, list[Client]] = {}
        run_of = self.machine.workflow_of
        for message in messages:
            try:
                run = run_of(message.record)
            except KeyError:
                continue  # its workflow was removed
            clients = listeners.get(run)
            if clients is None:
                clients = listeners[run] = self.peers.listeners(run)
            for client in clients:
                client.connection.say(message)

    def _accept(self, requests: dict[int, tuple[Client, int]]) -> None:
        accepted: dict[Client, int] = {}
        for client, request in requests.values():
            accepted[client] = max(request, accepted.get(client, 0))
        if not accepted:
            return
        if self.info.embedded:
            for client, request in accepted.items():
                client.connection.say(Accepted(request))
        else:
            self.upkeep.when_synced(lambda: self.acknowledge(accepted))

    def acknowledge(self, accepted: dict[Client, int]) -> None:
        """Tell clients that what they submitted is stored; all that a sync brought to the disk at once."""
        for client, request in accepted.items():
            client.connection.send(Accepted(request))

    def refresh_memos(self) -> None:
        """What other workflows did meanwhile is to be found from now on."""
        self._projected = False


def _result_bytes(fact: Fact) -> int:
    return len(fact.results) if type(fact) is SpanEnded and type(fact.results) is bytes else 64


def _log_fatal(error: BoughError) -> None:
    log(f"the server cannot go on: {error}")
