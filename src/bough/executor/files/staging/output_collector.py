"""The collector: outputs of tasks that have ended are gathered here, and written back many at a time.

What a task with `keep="later"` made is in the cache of this host, pinned, when the task is reported. The collector
sends it to the server with what others made: when enough bytes or enough time have come together, or at once when the
executor has nothing else to do or leaves. Rules: only what was reported is sent, behind its report; less than enough is
sent only if nothing is under way, so that more comes together while the server writes; what was not answered is said
again when the server is back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from bough.executor.executor_options import WAIT
from bough.wire.file_messages import MOST_GATHERED, PIECE, HeldOutputs, MadeFile, WriteBack

ENOUGH: Final = 4 << 20  # bytes that are sent without waiting for more; a message has about as many at most
_AT_ONCE: Final = 2  # messages under way: one travels while the server writes the other
SOON: Final = 0.05  # seconds after which less is sent if nothing runs here
_EACH: Final = 200  # bytes that a file counts besides what it holds

Element = tuple[int, int]  # span and index


class OutputCollector:
    """See the module. `read` gives a content that is held here, or nothing if it cannot; `say` sends to the server."""

    def __init__(self, say: Callable[[object], None], read: Callable[[MadeFile], bytes], wait: float = WAIT) -> None:
        self._wait = wait
        self._say = say
        self._read = read
        self._unreported: dict[Element, HeldOutputs] = {}  # held, and their tasks were not reported yet
        self._waiting: deque[tuple[float, HeldOutputs]] = deque()  # with the time since when
        self._bytes = 0  # of these
        self._under_way: dict[int, WriteBack] = {}  # without the contents
        self._last = 0

    def hold(self, element: Element, outputs: HeldOutputs) -> None:
        """Outputs are held here; they wait until their task is reported."""
        self._unreported[element] = outputs

    def reported(self, element: Element, now: float) -> None:
        """The success of a task is said to the server: what it made may follow."""
        outputs = self._unreported.pop(element, None)
        if outputs is not None:
            self._waiting.append((now, outputs))
            self._bytes += _size(outputs)

    def drop(self, elements: Iterable[Element]) -> list[HeldOutputs]:
        """These tasks will not be reported; what they made and is held."""
        found = [self._unreported.pop(element, None) for element in elements]
        return [one for one in found if one is not None]

    @property
    def unreported(self) -> list[Element]:
        """Tasks whose outputs are held, and whose end was not said yet."""
        return list(self._unreported)

    @property
    def is_empty(self) -> bool:
        """Whether all that was reported is safe."""
        return not self._waiting and not self._under_way

    def send_if_due(self, now: float, *, idle: bool, hurry: bool) -> None:
        """Send what has come together, if that is enough or has waited for long; `hurry`: the executor leaves."""
        while self._waiting and len(self._under_way) < _AT_ONCE:
            wait = 0.0 if hurry else min(SOON, self._wait) if idle else self._wait
            if self._bytes < ENOUGH and (self._under_way or now - self._waiting[0][0] < wait):
                return
            self._send()

    def _send(self) -> None:
        """Send what waits, as far as it goes into one message."""
        tasks: list[HeldOutputs] = []
        size = 0
        while self._waiting and len(tasks) < MOST_GATHERED and (not tasks or size < ENOUGH):
            tasks.append(self._waiting.popleft()[1])
            size += _size(tasks[-1])
        self._bytes -= size
        self._last += 1
        message = self._under_way[self._last] = WriteBack(self._last, tasks)
        self._say_whole(message)

    def answered(self, request: int) -> list[HeldOutputs]:
        """The server has written a message's outputs, or does not want them: they need not be held any more."""
        sent = self._under_way.pop(request, None)
        return sent.tasks if sent is not None else []

    def resume(self) -> None:
        """Say again what is under way."""
        for message in self._under_way.values():
            self._say_whole(message)

    def _say_whole(self, message: WriteBack) -> None:
        """Send a message, with the contents of small files."""
        tasks = [replace(one, along=[self._content(made) for made in one.files]) for one in message.tasks]
        self._say(WriteBack(message.request, tasks))

    def _content(self, made: MadeFile) -> bytes:
        """What goes along: bigger contents are asked for."""
        return self._read(made) if made.size <= PIECE else b""


def _size(outputs: HeldOutputs) -> int:
    return sum(_EACH + (made.size if made.size <= PIECE else 0) for made in outputs.files)
