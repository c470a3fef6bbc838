"""Links and the transfers that share them, in simulated time: who gets how many bytes a second, and when each ends.

Transfers that cross a link share its bandwidth by max-min fairness: all rates grow together until a link is full; who
crosses that one keeps its rate, the others go on growing. Weights make the shares of long routes smaller, as TCP does.
Two simpler models of the theses are kinds of links: one that serves one transfer after the other, and one that gives
each transfer all of its bandwidth. The latency of a route passes before its first byte.
Rules: what is started, and when, is all that counts: the same calls give the same times to the last bit. A change costs
what it touches: the transfers that share a link with it, directly or by others; all changes at one time together cost
as much as one, since rates are found when time passes, or when somebody asks. A link that would not be full even if all
that crosses it went as fast as the rest of its way allows (most links of home are such) ties nobody to anybody.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf

from bough.errors import UserError
from bough.model.ids import Seconds

SHORTEST: Seconds = 5e-5  # from one host of a local network to another
_FULL = 0.999  # of its bandwidth that may be wanted of a link that nobody feels


class Sharing(enum.StrEnum):
    """What a link does with several transfers."""

    FAIR = "fair"  # they share its bandwidth
    SERIAL = "serial"  # one after the other, each with all of it
    EACH = "each"  # each has all of it


class Link:
    """A way for bytes. `bandwidth` is in bytes a second."""

    __slots__ = ("_queue", "bandwidth", "flows", "latency", "name", "sharing", "wanted")

    def __init__(self, name: str, bandwidth: float, latency: Seconds = 0.0, sharing: Sharing = Sharing.FAIR) -> None:
        if not 0 < bandwidth < inf:
            raise UserError(f"link {name}: a bandwidth of {bandwidth:g} bytes/s is none; give a positive one")
        if not 0 <= latency < inf:
            raise UserError(f"link {name}: a latency of {latency:g} s is none; give 0 or more")
        self.name = name
        self.bandwidth = bandwidth
        self.latency = latency
        self.sharing = sharing
        self.flows: dict[Transfer, None] = {}  # those that move bytes over it now, in the order they began to
        self.wanted = 0.0  # bytes a second of all these, if each went as fast as the narrowest link on its way
        self._queue: deque[Transfer] = deque()  # of a serial one: who waits for it

    def __repr__(self) -> str:
        return f"Link({self.name!r}, {self.bandwidth:g})"


class Transfer:
    """Bytes on their way. It ends at `ended`; until then that is None."""

    __slots__ = (
        "_heap_mark", "_network", "_rate", "ended", "left", "links", "most", "number", "payload", "since", "size",
        "weight",
    )  # fmt: skip

    def __init__(
        self, network: Network, number: int, links: tuple[Link, ...], size: float, *, weight: float, payload: object
    ) -> None:
        self._network = network
        self.number = number
        self.links = links
        self.size = size
        self.left = size  # bytes, at `since`
        self._rate = 0.0
        self.most = 0.0  # bytes a second that the narrowest of its links has, once it moves
        self.since: Seconds = 0.0
        self.weight = weight
        self.payload = payload  # the caller's
        self.ended: Seconds | None = None
        self._heap_mark = 0  # of its newest entry in the agenda

    @property
    def rate(self) -> float:
        """Bytes a second, now."""
        self._network._settle()
        return self._rate

    def __repr__(self) -> str:
        return f"Transfer({self.number}, {self.left:g} of {self.size:g} left)"


class Network:
    """See the module. `weighted`: a transfer's share is in inverse proportion to the latency of its route.

    A route that says less than `SHORTEST` counts as one of a local network.
    """

    def __init__(self, *, weighted: bool = False) -> None:
        self._weighted = weighted
        self._last = 0
        self._agenda: list[tuple[Seconds, int, int, Transfer]] = []  # when, number, mark: an end, or a first byte
        self._waiting: set[Transfer] = set()  # their latency has not passed
        self._new: dict[Transfer, None] = {}  # those that need a rate
        self._changed: dict[Link, None] = {}  # whose transfers need new ones
        self.now: Seconds = 0.0
        self.moved = 0.0  # bytes of transfers that have ended
        self.under_way = 0  # transfers that have not ended, nor been called off

    def start(
        self, now: Seconds, links: Iterable[Link], size: float, payload: object = None, delay: Seconds = 0.0
    ) -> Transfer:
        """Send bytes over some links, from now on; a route without links takes no time.

        `delay`: seconds before its first byte, besides the latency of its links.
        """
        self._pass_to(now)
        route = tuple(dict.fromkeys(links))
        latency = 0.0
        for link in route:
            latency += link.latency
        self._last += 1
        weight = 1.0 / max(latency, SHORTEST) if self._weighted else 1.0
        latency += delay
        self.under_way += 1
        transfer = Transfer(self, self._last, route, float(size), weight=weight, payload=payload)
        if latency:
            self._waiting.add(transfer)
            self._put(now + latency, transfer)
        else:
            self._begin(transfer)
        return transfer

    def cancel(self, now: Seconds, transfer: Transfer) -> None:
        """Call a transfer off; one that has ended stays ended."""
        self._pass_to(now)
        if transfer.ended is None and transfer._heap_mark >= 0:
            transfer._heap_mark = -1
            self._leave(transfer)

    @property
    def is_busy(self) -> bool:
        """Whether something is on its way, or waits to be."""
        return self.under_way > 0

    def moved_by(self, now: Seconds, transfer: Transfer) -> float:
        """How many bytes of a transfer have come."""
        if transfer.ended is not None:
            return transfer.size
        self._settle()
        rate = 0.0 if transfer._rate == inf else transfer._rate
        return min(transfer.size, transfer.size - transfer.left + rate * (now - transfer.since))

    def next_time(self) -> Seconds | None:
        """When the next transfer ends, or its latency has passed: `advance` to it."""
        if self._new or self._changed:
            self._settle()
        return self._next_known()

    def _next_known(self) -> Seconds | None:
        """The same, as far as rates are known."""
        agenda = self._agenda
        while agenda and agenda[0][2] != agenda[0][3]._heap_mark:
            heappop(agenda)
        return agenda[0][0] if agenda else None

    def advance(self, now: Seconds) -> list[Transfer]:
        """Let time pass; the transfers that have ended since, in the order in which they did."""
        ended: list[Transfer] = []
        while True:
            when = self._next_known()
            if (when is None or when > self.now) and (self._new or self._changed):  # all at this time has happened
                self._settle()
                when = self._next_known()
            if when is None or when > now:
                break
            self.now = max(self.now, when)
            *_, transfer = heappop(self._agenda)
            if transfer in self._waiting:
                self._waiting.discard(transfer)
                self._begin(transfer)
            else:
                transfer.left, transfer.ended = 0.0, self.now
                self.moved += transfer.size
                ended.append(transfer)
                self._leave(transfer)
        self.now = max(self.now, now)
        return ended

    def set_bandwidth(self, now: Seconds, link: Link, bandwidth: float) -> None:
        """A link becomes faster or slower, by a trace of its availability; 0: nothing moves."""
        self._pass_to(now)
        link.bandwidth = bandwidth
        self._changed[link] = None
        for transfer in link.flows:
            most = min([one.bandwidth for one in transfer.links])
            for one in transfer.links:
                one.wanted += most - transfer.most
                self._changed[one] = None  # it may be felt now, or no more
            transfer.most = most

    def _pass_to(self, now: Seconds) -> None:
        if now < self.now:
            raise ValueError(f"time {now} is before {self.now}")
        if now == self.now:
            return
        when = self.next_time()
        if when is not None and when < now:
            raise ValueError(f"something happens at {when}, before {now}: advance to that first")
        self.now = now

    # --- who moves ---------------------------------------------------------------------------------------

    def _begin(self, transfer: Transfer) -> None:
        """Its first byte may leave, as soon as no serial link on its way is taken."""
        transfer.since = self.now
        for link in transfer.links:
            if link.sharing is Sharing.SERIAL and link.flows:
                link._queue.append(transfer)
                return
        links = transfer.links
        if links:
            transfer.most = most = min([link.bandwidth for link in links])
            for link in links:
                link.flows[transfer] = None
                link.wanted += most
        self._new[transfer] = None

    def _leave(self, transfer: Transfer) -> None:
        self._waiting.discard(transfer)
        self._new.pop(transfer, None)
        self.under_way -= 1
        freed: list[Link] = []
        for link in transfer.links:
            if transfer in link.flows:
                del link.flows[transfer]
                link.wanted = link.wanted - transfer.most if link.flows else 0.0
                if link.sharing is Sharing.FAIR:
                    self._changed[link] = None
                elif link.sharing is Sharing.SERIAL:
                    freed.append(link)
            elif transfer in link._queue:
                link._queue.remove(transfer)
        for link in freed:
            if link._queue and not link.flows:
                self._begin(link._queue.popleft())

    # --- who gets how much ---------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Find new rates for what has changed, and for all that shares links with it, directly or by others."""
        if not (self._new or self._changed):
            return
        new, changed = self._new, self._changed
        self._new, self._changed = {}, {}
        for link in changed:
            if link.flows:
                new.update(link.flows)
        if new:
            self._share(new)

    def _share(self, changed: dict[Transfer, None]) -> None:
        sharing: dict[Transfer, None] = {}
        for transfer in changed:
            rate = inf
            for link in transfer.links:
                if len(link.flows) > 1 and link.sharing is Sharing.FAIR and link.wanted >= _FULL * link.bandwidth:
                    sharing[transfer] = None
                    break
                rate = min(rate, link.bandwidth)
            else:  # it shares nothing: most reads of a disk are like that
                self._set(transfer, rate)
        if not sharing:
            return
        flows, links = _component(sharing)
        rates = _fair_rates(flows, links)
        for flow in flows:
            self._set(flow, rates[flow])

    def _set(self, transfer: Transfer, rate: float) -> None:
        if rate == transfer._rate:
            return  # its end stands
        if transfer._rate and transfer._rate != inf:
            transfer.left = max(0.0, transfer.left - transfer._rate * (self.now - transfer.since))
        transfer._rate, transfer.since = rate, self.now
        transfer._heap_mark += 1
        if rate:
            self._put(self.now + transfer.left / rate, transfer)

    def _put(self, when: Seconds, transfer: Transfer) -> None:
        heappush(self._agenda, (when, transfer.number, transfer._heap_mark, transfer))


def _component(changed: Iterable[Transfer]) -> tuple[dict[Transfer, None], dict[Link, None]]:
    """The transfers and links that can feel a change, by links that share; those that nobody feels are left out."""
    flows: dict[Transfer, None] = dict.fromkeys(changed)
    links: dict[Link, None] = {}
    to_see = list(flows)
    while to_see:
        for link in to_see.pop().links:
            is_fair = link.sharing is Sharing.FAIR
            if link not in links and not (is_fair and link.wanted < _FULL * link.bandwidth):
                links[link] = None
                if is_fair:
                    new = [flow for flow in link.flows if flow not in flows]
                    flows.update(dict.fromkeys(new))
                    to_see += new
    return flows, links


def _fair_rates(flows: dict[Transfer, None], links: dict[Link, None]) -> dict[Transfer, float]:
    """Weighted max-min fairness, by filling: the link that is full at the lowest level fixes those that cross it."""
    filling = _Filling(links)
    levels = filling.levels
    while levels:
        level, ticket, full = heappop(levels)
        if isinstance(full, Transfer):
            filling.fix([full], level)
        elif filling.unfixed[full]:
            later = filling.room[full] / filling.weights[full]
            if later > level * (1 + 1e-12):  # others were fixed that took less of it
                heappush(levels, (later, ticket, full))
            else:
                filling.fix(list(full.flows), level)
    return {flow: filling.rates.get(flow, inf) for flow in flows}


class _Filling:
    """Links that are being filled: what is left of each for those whose rate is not fixed yet."""

    def __init__(self, links: dict[Link, None]) -> None:
        self.rates: dict[Transfer, float] = {}
        self.room: dict[Link, float] = {}
        self.unfixed: dict[Link, int] = {}
        self.weights: dict[Link, float] = {}  # of those
        self.levels: list[tuple[float, int, Link | Transfer]] = []  # when who is full, the lowest first
        for link in links:
            if link.sharing is not Sharing.FAIR:
                self.levels += [(link.bandwidth / one.weight, one.number, one) for one in link.flows]
            elif link.flows:
                self.room[link], self.unfixed[link] = link.bandwidth, len(link.flows)
                self.weights[link] = sum([flow.weight for flow in link.flows])
                self.levels.append((link.bandwidth / self.weights[link], -len(self.room), link))
        self.levels.sort()  # a sorted list is a heap

    def fix(self, flows: list[Transfer], level: float) -> None:
        """Those of some transfers that have no rate yet have it now."""
        rates, room, weights, unfixed = self.rates, self.room, self.weights, self.unfixed
        for flow in flows:
            if flow not in rates:
                rate = rates[flow] = level * flow.weight
                for link in flow.links:
                    if link in room:
                        room[link] = max(0.0, room[link] - rate)
                        weights[link] -= flow.weight
                        unfixed[link] -= 1
