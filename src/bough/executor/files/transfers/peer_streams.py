"""One content from one peer, over one connection or several at once.

A connection brings no more than its window in each round trip, and makes that small when packets get lost: over a long
way it leaves most of a link unused. So a big content of a far peer comes in ranges over several connections. How far
the peer is the kernel knows, from the first packets on: `round_trip`. Four connections are used, then twice as many;
if these bring no more, four again. From a peer that is near all is asked for at once, over one.

A range is what a stream brings in a fraction of a second; the next one is asked for before it has come, so that no
round trip is waited for. Rules: a stream that breaks, or stands still where others have gone on beyond it, gives back
what it had taken, and the others bring that; the peer has failed when the last one has broken. What lies beyond all
that came the peer may be getting itself: that is waited for as long as anything comes. A stream that gives next to
nothing is as good as broken. A peer that knows nothing of streams (it offers none) gives the rest over the first one.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from bough.errors import ProtocolError
from bough.executor.files.transfers.peer_link import STALL, PeerFailure, PeerUnreached, read_frame
from bough.executor.files.transfers.range_plan import RangePlan
from bough.wire.framing import frame
from bough.wire.peer_messages import MOST_STREAMS, AskContent, ContentComes

BIG: Final = 8 << 20  # bytes from which on a content may come in ranges
FAR: Final = 0.001  # seconds of a round trip from which on it does
STREAMS: Final = 4  # that a far peer is read by at first
_WORTH: Final = 1.2  # times as fast as with these, and more are kept
_SETTLED: Final = 0.6  # seconds until the speed with other streams is what it stays at; or some round trips
_MEASURED: Final = 0.8  # seconds for which it is measured then
_TRIPS: Final = 8
_STANDS_STILL: Final = 3.0  # seconds after which a stream is given up, if others bring what lies beyond
_SLOWEST: Final = 4096.0  # bytes a second, beyond what may be waited for
_BEGINS: Final = 10.0  # seconds that a peer may take to begin; it may just be getting the content itself
_CHUNK: Final = 1 << 18  # what is handed on in small pieces costs more than it is worth to the next in a chain
_FAR_CHUNK: Final = 1 << 16  # bytes that are lost with a connection
_FIRST: Final = 1 << 18
_LEAST, _MOST = 1 << 17, 1 << 20  # bytes of a range
_RANGE: Final = 0.25  # seconds that one takes
_MIN_RTT: Final = 148  # where the kernel's tcp_info has it, in microseconds


def round_trip(line: socket.socket) -> float:
    """The shortest round trip that the kernel has seen on a connection, in seconds; 0: it does not say."""
    try:
        found = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _MIN_RTT + 4)
    except OSError:
        return 0.0
    if len(found) < _MIN_RTT + 4:
        return 0.0
    return float(struct.unpack_from("=I", found, _MIN_RTT)[0]) / 1e6


class PeerStreams:
    """See the module. `connect` opens one more connection; `ask`: what is said for a range of a transfer."""

    def __init__(
        self, plan: RangePlan, connect: Callable[[], ssl.SSLSocket], ask: Callable[[range, int], AskContent], name: str
    ) -> None:
        self._plan = plan
        self._connect = connect
        self._ask = ask
        self._name = name  # of the peer, for people
        self._news = threading.Condition()  # also the lock of the plan
        self._transfer = 0  # by which the peer knows that streams belong together; 0: there is one alone
        self._offered = -1  # streams that the peer gives to one transfer; -1: it has not answered
        self._allowed = 1
        self._begun = self._running = 0
        self._trip = 0.0
        self._came = 0.0  # when something came last, over whichever stream
        self._reached = 0  # the end of what came, whatever is missing before it
        self._failure: BaseException | None = None
        self._is_over = False

    def read(self, line: ssl.SSLSocket) -> None:
        """Bring what is left of the plan; what handing it on raises goes through. A line that is no use is closed."""
        self._trip = round_trip(line)
        if self._plan.left < BIG or self._trip < FAR:
            self._follow(0, line)
        else:
            self._transfer = 1 + secrets.randbits(61)
            self._read_far(line)
        if not self._plan.is_complete:
            raise self._failure or PeerFailure(f"{self._name} gives nothing more")

    # --- how many ----------------------------------------------------------------------------------

    def _read_far(self, line: ssl.SSLSocket) -> None:
        try:
            self._begin(line)
            self._find_number()
            self._goes_on()
        finally:
            with self._news:
                self._is_over = True
                self._news.notify_all()

    def _find_number(self) -> None:
        """Have as many streams as are worth it."""
        with self._news:
            self._news.wait_for(lambda: self._offered >= 0 or not self._running)
        settled, measured = (max(least, _TRIPS * self._trip) for least in (_SETTLED, _MEASURED))
        rates: list[float] = []
        for streams in (STREAMS, MOST_STREAMS):
            self._allow(streams)
            if not self._goes_on(settled):
                return
            begun, before = time.monotonic(), self._plan.came
            if not self._goes_on(measured):
                return
            rates.append((self._plan.came - before) / (time.monotonic() - begun))
        if rates[1] < _WORTH * rates[0]:
            self._allow(STREAMS)

    def _goes_on(self, seconds: float | None = None) -> bool:
        """Wait; whether there is still something to come then, and somebody who brings it."""
        with self._news:
            return not self._news.wait_for(lambda: self._plan.is_complete or not self._running, seconds)

    def _allow(self, streams: int) -> None:
        with self._news:
            self._allowed = max(1, min(streams, self._offered))
            self._news.notify_all()
        while self._begun < self._allowed:
            self._begin(None)

    def _begin(self, line: ssl.SSLSocket | None) -> None:
        with self._news:
            number, self._begun, self._running = self._begun, self._begun + 1, self._running + 1
        try:
            threading.Thread(target=self._run, args=(number, line), daemon=True).start()
        except RuntimeError:  # the host takes no more threads now: the first stream needs none, others are done without
            if line is not None:
                self._run(number, line)
                return
            with self._news:
                self._running -= 1
                self._news.notify_all()

    def _run(self, number: int, line: ssl.SSLSocket | None) -> None:
        """A stream, in a thread of its own. The line of the first one is the caller's, as long as it is of use."""
        try:
            line = line or self._connect()
            self._follow(number, line)
            if number:
                line.close()
        except PeerUnreached:
            pass  # it takes no more connections: those that there are do
        except PeerFailure as failure:
            with self._news:
                self._failure = self._failure or failure
        except BaseException as failure:  # noqa: BLE001 -- the caller raises it
            with self._news:
                self._failure, self._is_over = failure, True
        finally:
            with self._news:
                self._running = 0 if self._is_over else self._running - 1
                self._news.notify_all()

    # --- a stream ----------------------------------------------------------------------------------

    def _follow(self, number: int, line: ssl.SSLSocket) -> None:
        """Ask for one range after the other, and hand on what comes."""
        asked: deque[range] = deque()
        most = _FIRST if self._transfer else self._plan.end
        view = memoryview(bytearray(_FAR_CHUNK if self._transfer else min(_CHUNK, self._plan.end)))
        try:
            while self._ask_ahead(number, line, asked, most):
                begun, size = time.monotonic(), len(asked[0])
                self._hear_answer(line, asked[0].start)
                while asked[0]:
                    part = view[: len(asked[0])]
                    self._fill(line, part, STALL, asked[0].start)
                    self._put(asked, part)
                asked.popleft()
                rate = size / max(1e-6, time.monotonic() - begun)
                most = max(_LEAST, min(_MOST, int(rate * max(_RANGE, 2 * self._trip))))
                if self._offered <= 1:
                    most = self._plan.end
        except BaseException:
            line.close()  # before others may bring all that is left: it is not to be used again
            raise
        finally:
            with self._news:
                for span in asked:
                    self._plan.give_back(span)
                self._news.notify_all()

    def _ask_ahead(self, number: int, line: ssl.SSLSocket, asked: deque[range], most: int) -> bool:
        """Have the next range on its way while the one before comes; whether there is one."""
        while len(asked) < (2 if self._transfer else 1):
            span = self._take(number, most, is_idle=not asked)
            if not span:
                break
            asked.append(span)
            try:
                line.settimeout(_BEGINS)
                line.sendall(frame(self._ask(span, self._transfer)))
            except OSError as error:
                raise PeerFailure(f"{self._name} does not answer: {error}") from error
        return bool(asked)

    def _take(self, number: int, most: int, *, is_idle: bool) -> range:
        """The next range; a stream that has nothing else to do waits until there is one, or all has come."""
        with self._news:
            while not self._is_over and number < self._allowed:
                if self._transfer:  # towards the end all have something to do
                    most = min(most, max(_LEAST, self._plan.left // (2 * self._allowed)))
                span = self._plan.take(most)
                if span or not is_idle or self._plan.is_complete or not self._transfer:
                    return span
                self._news.wait()
        return range(0)

    def _put(self, asked: deque[range], data: memoryview) -> None:
        with self._news:
            if self._is_over:
                raise PeerFailure("nobody waits for it")
            start = asked[0].start
            asked[0] = asked[0][len(data) :]
            self._reached = max(self._reached, start + len(data))
            self._plan.put(start, data)
            self._news.notify_all()

    def _hear_answer(self, line: ssl.SSLSocket, offset: int) -> None:
        """The peer says that bytes follow, or why they do not."""
        try:
            answer = read_frame(lambda part: self._fill(line, part, _BEGINS, offset), ContentComes)
        except ProtocolError as error:
            raise PeerFailure(f"{self._name} does not answer: {error}") from error
        if answer.error:
            raise PeerFailure(f"{self._name}: {answer.error}")
        if self._offered < 0:
            with self._news:
                self._offered = answer.streams
                self._news.notify_all()

    def _fill(self, line: ssl.SSLSocket, part: memoryview, patience: float, offset: int) -> None:
        """Receive so many bytes, which belong there or come before that.

        PeerFailure after some seconds without any, or when others go on and this does not.
        """
        filled, begun = 0, 0.0
        since = time.monotonic()
        while filled < len(part):
            try:
                line.settimeout(min(patience, _STANDS_STILL) if self._transfer else patience)
                count = line.recv_into(part[filled:])
            except TimeoutError as error:
                quiet = time.monotonic() - max(since, self._came)
                if quiet >= patience or (quiet < _STANDS_STILL and self._reached > offset):
                    raise PeerFailure(f"{self._name} does not answer: {error}") from error
                continue
            except OSError as error:
                raise PeerFailure(f"{self._name} is lost: {error}") from error
            if not count:
                raise PeerFailure(f"{self._name} hung up")
            filled += count
            self._came = since = time.monotonic()
            begun = begun or since
            if since - begun > patience + filled / _SLOWEST:
                raise PeerFailure(f"{self._name} gives next to nothing")
