"""The states of a task and the edges between them; diagrams and tests are made from this table.

Rule: a retry is a new attempt, not a new state. States are small integers because arrays keep one
byte per task.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from bough.errors import InvalidTransition


class TaskState(enum.IntEnum):
    """Where a task is in its life."""

    WAITING = 0  # some predecessor is not done, or a memo is being looked up, or a retry is not due
    HELD = 1  # could run, but somebody holds it
    READY = 2  # could run now, has no executor
    PLACED = 3  # given to an executor, not known to have started
    RUNNING = 4  # the executor said that it started
    DONE = 5
    FAILED = 6  # out of attempts
    NOTRUN = 7  # something it depends on did not succeed
    CANCELLED = 8

    @property
    def label(self) -> str:
        """The word people see."""
        return self.name.lower()


class Trigger(enum.StrEnum):
    """What moves a task from one state to another."""

    FREE = "free"
    HOLD = "hold"
    RELEASE = "release"
    PLACE = "place"
    START = "start"
    SUCCEED = "succeed"
    GIVE_BACK = "give back"
    RETRY_LATER = "retry later"
    FAIL = "fail"
    RECALL = "recall"
    TRAVEL = "travel"
    ABANDON = "abandon"
    CANCEL = "cancel"
    REVIVE = "revive"
    RESET = "reset"


_S, _T = TaskState, Trigger

EDGES: Final[Mapping[tuple[TaskState, Trigger], TaskState]] = {
    (_S.WAITING, _T.FREE): _S.READY,  # the last predecessor succeeded, the memo was not found, the retry is due
    (_S.WAITING, _T.RECALL): _S.DONE,  # an earlier run did it already
    (_S.WAITING, _T.TRAVEL): _S.PLACED,  # short, and sent along with the one task it waits for
    (_S.WAITING, _T.ABANDON): _S.NOTRUN,  # a predecessor did not succeed, or the run stops
    (_S.WAITING, _T.CANCEL): _S.CANCELLED,
    (_S.HELD, _T.RELEASE): _S.READY,  # nobody holds it any more
    (_S.HELD, _T.ABANDON): _S.NOTRUN,
    (_S.HELD, _T.CANCEL): _S.CANCELLED,
    (_S.READY, _T.HOLD): _S.HELD,  # somebody holds it, or did so before it became ready
    (_S.READY, _T.RECALL): _S.DONE,  # an executor that was given up came back with the result
    (_S.HELD, _T.RECALL): _S.DONE,
    (_S.READY, _T.PLACE): _S.PLACED,  # the policy chose an executor
    (_S.READY, _T.ABANDON): _S.NOTRUN,  # fail-fast, or the run stops
    (_S.READY, _T.CANCEL): _S.CANCELLED,
    (_S.PLACED, _T.START): _S.RUNNING,  # the executor confirmed
    (_S.PLACED, _T.SUCCEED): _S.DONE,  # so short that start and end came together
    (_S.PLACED, _T.GIVE_BACK): _S.READY,  # the executor was lost, or gave it back unstarted
    (_S.PLACED, _T.RETRY_LATER): _S.WAITING,  # failed, and will be tried again
    (_S.PLACED, _T.FAIL): _S.FAILED,
    (_S.PLACED, _T.CANCEL): _S.CANCELLED,
    (_S.RUNNING, _T.SUCCEED): _S.DONE,
    (_S.RUNNING, _T.GIVE_BACK): _S.READY,
    (_S.RUNNING, _T.RETRY_LATER): _S.WAITING,
    (_S.RUNNING, _T.FAIL): _S.FAILED,
    (_S.RUNNING, _T.CANCEL): _S.CANCELLED,
    (_S.FAILED, _T.REVIVE): _S.WAITING,  # somebody asked for another try
    (_S.NOTRUN, _T.REVIVE): _S.WAITING,
    (_S.CANCELLED, _T.REVIVE): _S.WAITING,
    (_S.DONE, _T.RESET): _S.WAITING,  # somebody wants it done again
    (_S.READY, _T.RESET): _S.WAITING,  # something it depends on is to be done again
    (_S.HELD, _T.RESET): _S.WAITING,
}

OCCUPYING: Final = frozenset({_S.PLACED, _S.RUNNING})
ENDED: Final = frozenset({_S.DONE, _S.FAILED, _S.NOTRUN, _S.CANCELLED})
UNSUCCESSFUL: Final = frozenset({_S.FAILED, _S.NOTRUN, _S.CANCELLED})
PENDING: Final = frozenset({_S.WAITING, _S.HELD, _S.READY})


def advance(state: TaskState, trigger: Trigger, who: str) -> TaskState:
    """The state after a trigger; an edge that is not in the table is our bug."""
    try:
        return EDGES[state, trigger]
    except KeyError:
        raise InvalidTransition(f"{who} is {state.name} and cannot {trigger.value}") from None


# The table once more, as the hot paths want it: which states may come right before a state, as bytes.
BEFORE: Final[tuple[bytes, ...]] = tuple(
    bytes(sorted({int(old) for (old, _), new in EDGES.items() if new == state})) for state in TaskState
)
