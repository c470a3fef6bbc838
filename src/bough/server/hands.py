"""Executors played by people: each has one task that somebody took by hand, and is gone when that is over.

The core knows a hand as an executor of the site "hand" without a process. It joins for one task, which it is given by
name, and is drained at once. Rule: a hand gets what was taken for it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random

from bough.core.room import ExecutorRecord
from bough.core.state import State
from bough.errors import UserError
from bough.model.ids import ExecutorId, Seconds
from bough.model.resources import Needs
from bough.policy.api import Place, PlacementPolicy, Room, View, Work
from bough.server.errand import Errand
from bough.wire import questions
from bough.wire.work import HereAnswer

SITE = "hand"


def is_hand(executor: ExecutorRecord) -> bool:
    """Whether an executor is played by somebody."""
    return executor.site == SITE and not executor.pid


def hands(state: State) -> Iterator[ExecutorRecord]:
    """Those that the core knows of."""
    return (executor for executor in state.executors.values() if is_hand(executor))


class Speaker:
    """Who took a task by hand and speaks for it: what `server.here` answers goes to the errand.

    `gone`: called when he has left before he got a lock that he waited for.
    """

    def __init__(self, number: ExecutorId, errand: Errand[questions.Here], gone: Callable[[], None]) -> None:
        self.number = number
        self._errand = errand
        self._gone = gone

    @property
    def connection(self) -> Speaker:
        """Himself."""
        return self

    def send(self, message: object) -> None:
        """Answer him."""
        assert isinstance(message, HereAnswer)
        if message.error:
            self._errand.refuse(UserError(message.error))
        elif self._errand.client.connection.is_open:
            self._errand.answer(message.value)
        elif message.value.get("new"):
            self._gone()


class HandPolicy:
    """Carries out what was taken by hand first, and leaves the rest to the policy it stands before."""

    def __init__(self, policy: PlacementPolicy) -> None:
        self.wishes: list[Place] = []  # of the turn that comes next
        self._policy = policy

    def rank(self, work: Work, /) -> float:
        """As the policy says."""
        return self._policy.rank(work)

    def place(self, view: View, /) -> Iterable[Place]:
        """What was taken, then what the policy wants for all but hands."""
        if not self.wishes:
            return self._policy.place(view)
        return self._by_hand(view)

    def _by_hand(self, view: View) -> Iterator[Place]:
        wishes, self.wishes = self.wishes, []
        yield from wishes
        yield from self._policy.place(_Others(view, frozenset(wish.executor for wish in wishes)))


class _Others:
    """The world without some executors."""

    def __init__(self, view: View, hidden: frozenset[int]) -> None:
        self._view = view
        self._hidden = hidden

    @property
    def now(self) -> Seconds:
        """The time."""
        return self._view.now

    @property
    def random(self) -> Random:
        """The only dice."""
        return self._view.random

    def ready(self) -> Iterator[Work]:
        """What is ready, best first."""
        return self._view.ready()

    def skip(self, needs: Needs) -> None:
        """Leave out work with these needs."""
        self._view.skip(needs)

    def room_for(self, work: Work, excluding: frozenset[int] | set[int] = frozenset()) -> Room | None:
        """The executor that has had room the longest and would take a task of this work."""
        return self._view.room_for(work, self._hidden | excluding)

    def rooms(self) -> list[Room]:
        """Every executor that may take something."""
        return [room for room in self._view.rooms() if room.id not in self._hidden]

    def roomiest(self, needs: Needs) -> Room | None:
        """The executor most of whose cores are free, among those that could ever fit these needs."""
        if self._view.roomiest(needs) is None:
            return None
        able = [room for room in self.rooms() if room.could_fit(needs)]
        return max(able, key=lambda room: room.free("cores"), default=None)
