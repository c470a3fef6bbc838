"""The live driver of the core: everything that arrived, one turn, one row in the journal, then the orders.

What arrives is put into the inbox as news. A turn takes all of it, is written to the store, and only then has effects:
orders are carried out, clients are told, executors may forget their reports. All that a turn says to one connection is
one frame. `ShellWithoutPiggyback` measures Falkon's curves: it acknowledges reports by messages of their own and sends
an executor its work only when that has said `Ready`. Rule: nothing of a turn takes effect before `append` has returned;
a turn that cannot be written is kept and tried again, and no other one is made meanwhile.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from bough import logs
from bough.core.machine import Machine, Turn
from bough.core.queries.facade import Queries
from bough.errors import BoughError, InternalError, SiteError, StoreFailed
from bough.model.events.arriving import News
from bough.model.events.facts import Fact, SpanEnded
from bough.model.events.news import WorkFailed, WorkReturned
from bough.model.events.orders import (
    AnnounceInputs,
    ClearExecutor,
    EndSpan,
    KeepExecutor,
    LookUpMemo,
    Order,
    RecallBacklog,
    Refuse,
    SendSpan,
    StopSpan,
    TellGroupFinished,
    WatchSpan,
)
from bough.model.ids import ExecutorId, Seconds, SpanId
from bough.model.outcomes import Cause, Failure
from bough.server.handler_errors import HandlerErrors
from bough.server.peer_connection import PeerConnection
from bough.server.peers import ClientPeer, ExecutorPeer, Peers
from bough.server.turns.background import Background
from bough.server.turns.disk_space import FullDiskNotice
from bough.server.turns.dispatch import SpanSender
from bough.server.turns.memo_lookups import MemoLookups
from bough.server.turns.result_parts import ResultCache
from bough.server.turns.run_info import Clock, RunInfo
from bough.server.turns.turn_messages import Message, OperatorMessages, TurnMessages, WithheldFailures
from bough.stores.store import Store
from bough.stores.store_errors import is_passing
from bough.wire.client_messages import Accepted, GroupFinished, Refused, TasksSucceeded, UserNotice
from bough.wire.executor_messages import (
    Acknowledged,
    ClearOut,
    EndElements,
    GiveBacklog,
    StayOn,
    StopElements,
    ToExecutor,
    WatchElements,
)

_TRY_AGAIN = 0.5  # seconds between tries to write to a full disk
_SOON = 0.001  # seconds of run time after which an outcome is so near that an acknowledgement waits for it
_ACCEPT_WAIT = 0.002  # seconds for which it does


class Batch(msgspec.Struct):
    """What went into one turn, and the peers to be told when it is written."""

    now: Seconds
    turn: Turn
    requests: dict[int, tuple[ClientPeer, int]]
    reports: list[tuple[ExecutorPeer, int]]
    after: list[Callable[[], None]]


class Shell:
    """Makes turns, writes them, carries out their orders."""

    def __init__(self, loop: asyncio.AbstractEventLoop, machine: Machine, store: Store, info: RunInfo) -> None:
        self.loop = loop
        self.clock = Clock()
        self.machine = machine
        self.queries = queries = Queries(machine)
        self.store = store
        self.info = info
        self.peers = Peers()
        self.handler_errors = HandlerErrors()
        self.dirty: list[PeerConnection] = []
        self.on_turn: list[Callable[[], None]] = []  # called after every turn
        self.on_facts: list[Callable[[Sequence[Fact]], None]] = []  # called with the facts of every turn
        self.on_group_finished: Callable[[int, bool], None] = (
            self._tell_group_finished
        )  # a group is done, or cannot be any more
        self.on_fatal: Callable[[BoughError], None] = _log_fatal
        self.results = results = ResultCache(store.success)
        self.withheld = WithheldFailures(queries)
        self._turn_messages = TurnMessages(results, queries, self.withheld)
        self._sender = SpanSender(results, store.blob, queries, names_directories=not info.embedded)
        self.background = Background(loop, store, info.run, machine.snapshot, lambda: queries.record_count)
        self._inbox: list[News] = []
        self._reporting: set[ExecutorPeer] = set()
        self._after: list[Callable[[], None]] = []
        self._lookups = MemoLookups(store, queries, info)
        self._scheduled = False
        self._stuck: Batch | None = None
        self.closed = False  # one more turn, and no other
        self._done = False
        self._wake: asyncio.TimerHandle | None = None
        self.full_disk = FullDiskNotice(loop, queries, info.store_dir, self.announce)
        self._operator_messages = OperatorMessages(loop, queries, self.peers, self.clock, self.announce)
        self.perform: dict[type, Callable[..., None]] = {  # how orders are carried out; a service adds its own
            SendSpan: self._send_span,
            StopSpan: self._stop_span,
            WatchSpan: self._watch_span,
            EndSpan: self._end_span,
            ClearExecutor: lambda order: self._say_to(order.executor, ClearOut(order.grace, order.reason)),
            KeepExecutor: lambda order: self._say_to(order.executor, StayOn()),
            RecallBacklog: lambda order: self._say_to(order.executor, GiveBacklog()),
            AnnounceInputs: lambda order: None,  # where files travel somebody else does it
            LookUpMemo: self._lookups.waiting.append,
            TellGroupFinished: lambda order: self.on_group_finished(order.group, order.failed),
        }
        if not info.embedded:
            self._turn_messages.restore()

    # --- what arrives ------------------------------------------------------------------------------

    def news(self, fact: News, then: Callable[[], None] | None = None) -> None:
        """Put something into the next turn; `then` is called once that turn is written."""
        self._inbox.append(fact)
        if then is not None:
            self._after.append(then)
        self.schedule()

    def after_turn(self, then: Callable[[], None]) -> None:
        """Call something once all that has arrived by now is written."""
        self._after.append(then)
        self.schedule()

    def report(self, executor: ExecutorPeer, number: int, news: Sequence[News]) -> None:
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
        """Continue after a restart: make a turn, with or without news, and answer memo lookups that are open."""
        self._lookups.waiting += self.queries.open_lookups()
        self.schedule()

    @property
    def is_stuck(self) -> bool:
        """Whether a turn waits for the store to be writable again."""
        return self._stuck is not None

    @property
    def is_busy(self) -> bool:
        """Whether something waits for a turn."""
        return bool(self._inbox or self._lookups.is_waiting or self._stuck)

    def awaits(self, kinds: Container[type]) -> bool:
        """Whether news of some kinds waits for a turn."""
        return any(type(news) in kinds for news in self._inbox)

    # --- one turn ----------------------------------------------------------------------------------

    def _make_turn(self) -> None:
        self._scheduled = False
        if self._stuck is not None or self._done:
            return
        self._done = self.closed
        events, self._inbox = self._inbox, []
        after, self._after = self._after, []
        reports: list[tuple[ExecutorPeer, int]] = []
        if self._reporting:
            reports = [(executor, executor.reported) for executor in self._reporting]
            self._reporting.clear()
        now = self.clock.now()
        try:
            turn = self.machine.turn(now, events)
            self._write(Batch(now, turn, self.peers.take_requests(), reports, after))
        except SiteError as error:
            self.on_fatal(error)
        except Exception as error:  # noqa: BLE001 -- half a turn was made: whatever it is, it is ours, and nothing can follow
            text = f"{type(error).__name__}: {error}; all turns before are stored: start again, and if it happens again"
            self.on_fatal(
                InternalError(f"{text}, see bough store check and bough store repair", traceback.format_exc())
            )

    def _write(self, batch: Batch) -> None:
        turn = batch.turn
        if turn.facts:
            try:
                self.store.append(turn.number, batch.now, turn.facts)
            except StoreFailed as error:
                self._wait_for_store(batch, error)
                return
        if self._stuck is not None:
            self._stuck = None
            self.announce("the store can be written again")
            self._pause_executors(on=False)
        self._take_effect(batch)
        if turn.facts:
            self.background.appended(turn.number, 64 * len(turn.facts) + sum(map(_result_bytes, turn.facts)))
        if self._inbox or self._lookups.is_waiting:
            self.schedule()
        for callback in self.on_turn:
            callback()

    def _take_effect(self, batch: Batch) -> None:
        self._tell(batch.turn.facts, more_follows=bool(batch.turn.orders))
        for hear in self.on_facts:
            self.handler_errors.guard("counting what a turn brought", partial(hear, batch.turn.facts))
        self._carry_out(batch.turn.orders, batch.requests)
        if batch.requests:
            self._accept(batch.requests, batch.turn.orders)
        for executor, number in batch.reports:
            executor.acknowledged = number
            if executor.leaving:  # it waits for this
                executor.connection.say(Acknowledged(number))
            else:
                executor.connection.say_later(
                    Acknowledged(number), self.loop
                )  # it goes with the next work, if there is some
        for callback in batch.after:
            self.handler_errors.guard("what was to follow a turn failed", callback)
        self.flush()
        self._operator_messages.on(batch.turn)
        self._set_alarm(batch.turn.next_timer)
        if self._lookups.is_waiting:
            self._inbox += self._lookups.answers()

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

    def _wait_for_store(self, batch: Batch, error: StoreFailed) -> None:
        if not error.transient:
            self.on_fatal(error)
            return
        if self._stuck is None:
            self.announce(f"{error}; everything waits until then, tried every {_TRY_AGAIN:g} s")
            self._pause_executors(on=True)
        self._stuck = batch
        self.loop.call_later(_TRY_AGAIN, self._write_again)

    def announce(self, text: str) -> None:
        """Tell operators and users at once."""
        logs.warning("announcement", text)
        for client in self.peers.clients.values():
            client.connection.say(UserNotice(text))
            client.connection.flush()

    def _write_again(self) -> None:
        if self._stuck is not None:
            for executor in self.peers.executors.values():  # so that they know that we live
                executor.connection.send(Acknowledged(executor.acknowledged))
            try:
                self._write(self._stuck)
            except BoughError as error:
                self.on_fatal(error)

    def _pause_executors(self, *, on: bool) -> None:
        for executor in self.peers.executors.values():
            executor.connection.pause(on=on)
            executor.last_word = self.loop.time()

    # --- orders ------------------------------------------------------------------------------------

    def _carry_out(self, orders: Sequence[Order], requests: dict[int, tuple[ClientPeer, int]]) -> None:
        perform = self.perform
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
                for fact in (WorkReturned(span, order.start, order.stop) for span in _spans_of(order)):
                    self.loop.call_later(_TRY_AGAIN, self.news, fact)
                logs.warning(
                    "span-not-sent", f"a span could not be sent; it is sent again in {_TRY_AGAIN:g} s: {error}"
                )
                return
            self._fail_span(order, str(error))
        except Exception as error:  # noqa: BLE001 -- a bug that concerns these tasks and no others
            self._fail_span(order, self.handler_errors.note(f"span {order.span} could not be sent", error))

    def _fail_span(self, order: SendSpan, reason: str) -> None:
        failure = Failure(Cause.NOT_STARTED, f"it could not be sent to an executor: {reason}")
        elements = range(order.start, order.stop)
        self._inbox += [WorkFailed(span, index, failure) for span in _spans_of(order) for index in elements]

    def _stop_span(self, order: StopSpan) -> None:
        self._turn_messages.withdrawn(order.span, order.start, order.stop)
        executor = self.peers.executors.get(order.executor)
        if executor is not None:
            executor.connection.say(StopElements(order.span, order.start, order.stop))

    def _watch_span(self, order: WatchSpan) -> None:
        executor = self.peers.executors.get(order.executor)
        if executor is None or not executor.ready:
            return  # it hears of it when it is back
        try:
            self._sender.send_blob(order.plan, executor)
        except (StoreFailed, OSError) as error:
            logs.warning("monitors-not-sent", f"span {order.span} is not watched by more monitors: {error}")
            return
        executor.connection.say(WatchElements(order.span, order.start, order.stop, order.plan))

    def _end_span(self, order: EndSpan) -> None:
        executor = self.peers.executors.get(order.executor)
        if executor is not None and executor.ready:
            said = (order.verdict, order.monitor, order.reason)
            executor.connection.say(EndElements(order.span, order.start, order.stop, *said))

    def _say_to(self, number: ExecutorId, message: ToExecutor) -> None:
        """Say something to an executor, if it is there; when it is back the core says it again."""
        executor = self.peers.executors.get(number)
        if executor is not None and executor.ready:
            executor.connection.say(message)

    def _tell_group_finished(self, group: int, failed: bool) -> None:
        for client in self.peers.subscribers():
            client.connection.say(GroupFinished(group, failed))

    def _refuse(self, order: Refuse, requests: dict[int, tuple[ClientPeer, int]]) -> None:
        asked = requests.pop(order.request, None)
        if asked is not None:
            client, request = asked
            client.connection.say(Refused(order.message, request, "InvalidWorkload"))

    # --- what clients and executors are told -------------------------------------------------------

    def _tell(self, facts: Sequence[Fact], *, more_follows: bool) -> None:
        messages = self._turn_messages.messages(facts)
        if not messages:
            return
        if not self.info.embedded:
            for client, own in self._by_client(messages):
                self._say_all(client, own, more_follows)
            return
        for client in self.peers.subscribers():
            self._say_all(client, messages, more_follows)

    def _say_all(self, client: ClientPeer, messages: Sequence[Message], more_follows: bool) -> None:
        if more_follows and all(type(message) is TasksSucceeded for message in messages):
            client.connection.stream(messages, self.loop)
        else:
            for message in messages:
                client.connection.say(message)

    def _by_client(self, messages: Sequence[Message]) -> Iterable[tuple[ClientPeer, list[Message]]]:
        """Tell clients of what belongs to their own workflow, and observers of all."""
        listeners: dict[int, list[ClientPeer]] = {}
        told: dict[ClientPeer, list[Message]] = {}
        run_of = self.queries.run_of
        for message in messages:
            try:
                run = run_of(message.record)
            except KeyError:
                continue  # its workflow was removed
            clients = listeners.get(run)
            if clients is None:
                clients = listeners[run] = self.peers.listeners(run)
            for client in clients:
                told.setdefault(client, []).append(message)
        return told.items()

    def _accept(self, requests: dict[int, tuple[ClientPeer, int]], orders: Sequence[Order]) -> None:
        accepted: dict[ClientPeer, int] = {}
        for client, request in requests.values():
            accepted[client] = max(request, accepted.get(client, 0))
        if self.info.embedded:
            last = orders[-1] if orders else None
            if type(last) is SendSpan and 0 < last.expected <= _SOON:  # it goes with the outcome: one wake-up for both
                for client, request in accepted.items():
                    client.connection.say_later(Accepted(request), self.loop, _ACCEPT_WAIT)
                return
            for client, request in accepted.items():
                client.connection.say(Accepted(request))
        else:
            self.background.when_synced(lambda: self.acknowledge(accepted))

    def acknowledge(self, accepted: dict[ClientPeer, int]) -> None:
        """Tell clients that what they submitted is stored; all that a sync brought to the disk at once."""
        for client, request in accepted.items():
            client.connection.send(Accepted(request))

    def refresh_memos(self) -> None:
        """What other workflows did meanwhile is to be found from now on."""
        self._lookups.refresh()


def _result_bytes(fact: Fact) -> int:
    return len(fact.results) if type(fact) is SpanEnded and type(fact.results) is bytes else 0


def _spans_of(order: SendSpan) -> Iterator[SpanId]:
    """The spans of a hand-out."""
    return map(SpanId, range(order.span, order.span + 1 + len(order.along)))


def _log_fatal(error: BoughError) -> None:
    logs.error("server-failed", f"the server cannot continue: {error}")


def make_shell(loop: asyncio.AbstractEventLoop, machine: Machine, store: Store, info: RunInfo) -> Shell:
    """The shell of a run: this one, or the usual one."""
    return (Shell if info.tuning.piggyback else ShellWithoutPiggyback)(loop, machine, store, info)


class ShellWithoutPiggyback(Shell):
    """A shell in which no work travels with acknowledgements."""

    def ready(self, executor: ExecutorPeer) -> None:
        """An executor asks for work: send what waits for it."""
        orders, executor.kept = executor.kept or [], None
        for order in orders:
            super()._send_span(order)
        self.flush()

    def _take_effect(self, batch: Batch) -> None:
        for executor, number in batch.reports:
            executor.acknowledged = number
            if executor.kept is None:
                executor.kept = []
            executor.connection.send(Acknowledged(number))
        batch.reports.clear()
        super()._take_effect(batch)

    def _send_span(self, order: SendSpan) -> None:
        executor = self.peers.executors.get(order.executor)
        if executor is not None and executor.kept is not None:
            executor.kept.append(order)
        else:
            super()._send_span(order)

    def _stop_span(self, order: StopSpan) -> None:
        """What is to be stopped goes out first: it may be a part of it only."""
        self._send_kept(order)
        super()._stop_span(order)

    def _watch_span(self, order: WatchSpan) -> None:
        self._send_kept(order)
        super()._watch_span(order)

    def _end_span(self, order: EndSpan) -> None:
        self._send_kept(order)
        super()._end_span(order)

    def _send_kept(self, order: StopSpan | WatchSpan | EndSpan) -> None:
        executor = self.peers.executors.get(order.executor)
        if executor is not None and executor.kept:
            for kept in [kept for kept in executor.kept if kept.span == order.span]:
                executor.kept.remove(kept)
                super()._send_span(kept)


def internal_error(context: dict[str, Any]) -> InternalError:
    """What went wrong in a callback: ours, since every error that was foreseen is handled where it arises."""
    error = context.get("exception")
    story = "".join(traceback.format_exception(error)) if error is not None else ""
    return InternalError(f"{context.get('message', 'a callback failed')}: {error}", story)
