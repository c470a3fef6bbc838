"""A simulation whose hosts call a dispatcher for work, which serves one caller at a time: how Trellis gave out tasks.

A host asks for work, and gets what the policy gives it then; by another call it reports what has ended, and asks again.
A host that gets nothing although tasks are left, and runs nothing, asks again, too. When no task is left that nobody
has, hosts rest until there is one. Half of what a call takes beside its service passes on the way to the dispatcher,
half on the way back.
Our core gives work to whoever has room. So a host has none (it is suspended) but for the moment in which its call for
work is served. All else is as in other simulations: files, caches, policies.
Source: M. Lamb's thesis, `spec/trellis-driver.md` 4.4 to 4.7; what it leaves open is read as said there.
Rule: calls are served one after the other, in the order in which they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from bough.errors import InternalError
from bough.model.events.arriving import News
from bough.model.events.facts import ExecutorJoined, ExecutorResumed, ExecutorSuspended
from bough.model.events.orders import EndSpan, Order, RecallBacklog, SendSpan, StopSpan
from bough.model.ids import ExecutorId, Seconds
from bough.sim.platforms.dispatcher_spec import DispatcherSpec
from bough.sim.platforms.simulated_executor import Finish
from bough.sim.platforms.simulated_site import PilotStart
from bough.sim.simulation import Simulation

_EVER: Final[Seconds] = 1e12  # until when a host is suspended that does not ask
_MOST_IN_VAIN: Final = 100_000  # calls for work, one after the other, while nobody has any


class Call(NamedTuple):
    """A host calls: it reports, or (None) asks for work. On the agenda when it arrives, and when it has been served."""

    executor: ExecutorId
    report: Sequence[News] | None = None
    is_served: bool = False


class Delivery(NamedTuple):
    """An order is with its host."""

    order: SendSpan | StopSpan | EndSpan | RecallBacklog


class DispatchedSimulation(Simulation):
    """See the module."""

    def __init__(self, *args: Any, dispatcher: DispatcherSpec, **others: Any) -> None:
        self._spec = dispatcher
        self._busy: Seconds = 0.0  # until when the dispatcher serves
        self._asking: set[int] = set()  # hosts whose call for work is under way
        self._resting: dict[ExecutorId, None] = {}
        self._asked: list[ExecutorId] = []  # whose calls for work are served now
        self._given: set[int] = set()  # who got work since they were
        self._in_vain = 0  # calls for work since somebody got some
        self.when_idle: Callable[[Seconds], None] | None = None  # called when all that was submitted has ended
        super().__init__(*args, **others)

    # --- calls -------------------------------------------------------------------------------------

    def _ask(self, when: Seconds, executor: int) -> None:
        """A host calls for work at a time, unless it does already."""
        if executor not in self._asking and executor not in self._resting and executor not in self._dead:
            self._asking.add(executor)
            self._agenda.put(when + self._spec.way, Call(ExecutorId(executor)))

    def _hear(self, thing: Any, news: list[News]) -> None:
        if isinstance(thing, Call):
            if thing.executor in self._dead:
                return
            if thing.is_served:
                self._serve(thing, news)
            else:
                self._busy = max(self.now, self._busy) + self._spec.service
                self._agenda.put(self._busy, thing._replace(is_served=True))
        elif isinstance(thing, Delivery):
            self._deliver(thing.order)
        else:
            super()._hear(thing, news)
            if isinstance(thing, ExecutorJoined):
                self._joined(thing.executor, news)

    def _serve(self, call: Call, news: list[News]) -> None:
        if call.report is not None:
            news += call.report
            if self._executors[call.executor].has_room:
                self._ask(self.now + self._spec.way + self._spec.pause, call.executor)
            return
        self._asking.discard(call.executor)
        known = self.machine.state.executors.get(call.executor)
        if known is not None and 0 < known.suspended < _EVER:  # the core's own doing: too much went wrong there
            self._ask(self.now + self._spec.way + self._spec.pause, call.executor)
            return
        self._asked.append(call.executor)
        news.append(ExecutorResumed(call.executor))

    def _turn(self, news: list[News]) -> None:
        """A turn; who asked has no room any more, and asks again if it got nothing."""
        if not news and not self._is_awaited():  # a call is on its way
            return
        self._given.clear()
        super()._turn(news)
        if self._asked:
            asked, self._asked = self._asked, []
            super()._turn([ExecutorSuspended(executor, _EVER) for executor in asked])
            for executor in asked:
                self._answer(executor)
        if self.when_idle is not None and self.machine.is_idle:
            self.when_idle(self.now)
        if self._resting and self._is_left():
            resting, self._resting = self._resting, {}
            for executor in resting:  # in the order in which they came to rest
                self._ask(self.now, executor)
        if self._timer is not None and self._timer >= _EVER:
            self._timer = None

    def _answer(self, executor: ExecutorId) -> None:
        """A host that asked has got something, or not."""
        if executor in self._given:
            self._in_vain = 0
        elif not self._executors[executor].is_idle:
            pass  # it asks when it has reported
        elif self._is_left():
            self._count_in_vain()
            self._ask(self.now + self._spec.way + self._spec.pause, executor)
        else:
            self._resting[executor] = None

    def _is_left(self) -> bool:
        """Whether there are tasks that nobody has."""
        counts = self.machine.counts()
        return counts["waiting"] + counts["ready"] > 0

    def _count_in_vain(self) -> None:
        self._in_vain += 1
        if self._in_vain > _MOST_IN_VAIN and all(one.is_idle for one in self._executors.values()):
            raise InternalError(f"idle hosts asked {_MOST_IN_VAIN} times, and the policy gave no work to any of them")

    # --- hosts -------------------------------------------------------------------------------------

    def _joined(self, executor: ExecutorId, news: list[News]) -> None:
        """It has no room until it asks."""
        news.append(ExecutorSuspended(executor, _EVER))
        self._ask(self.now, executor)

    def _start_pilot(self, start: PilotStart) -> list[News]:
        came = super()._start_pilot(start)
        for one in [one for one in came if isinstance(one, ExecutorJoined)]:
            self._joined(one.executor, came)
        return came

    def _finish(self, end: Finish, news: list[News]) -> None:
        """What has ended is reported by a call."""
        said: list[News] = []
        super()._finish(end, said)
        if said:
            self._agenda.put(self.now + self._spec.way, Call(end.executor, said))

    def _send(self, order: SendSpan) -> None:
        self._given.add(order.executor)
        self._agenda.put(self.now + self._spec.way, Delivery(order))

    def _carry_out(self, order: Order) -> None:
        """What goes to hosts is on its way for as long as what was sent there before."""
        if isinstance(order, StopSpan | EndSpan | RecallBacklog):
            self._agenda.put(self.now + self._spec.way, Delivery(order))
        else:
            super()._carry_out(order)

    def _deliver(self, order: SendSpan | StopSpan | EndSpan | RecallBacklog) -> None:
        if order.executor in self._dead:
            return
        if isinstance(order, SendSpan):
            super()._send(order)
            return
        super()._carry_out(order)
        if isinstance(order, StopSpan) and self._executors[order.executor].has_room:
            self._ask(self.now + self._spec.pause, order.executor)
