"""Workflows that are over leave the memory of the server, the oldest first; the store has all of them.

The last few stay, since what has just ended is what people ask about. One that leaves is written into the store first,
a slice at a time if it is big, and then forgotten by a fact. Rule: what finished work takes is bounded, however much
there was of it; one that somebody acts on, or is a client of, stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic

from bough.core import retiring
from bough.core.groups import Workflow
from bough.errors import StoreFailed
from bough.model.facts import (
    Amended,
    Cancelled,
    Declared,
    Fact,
    Held,
    Killed,
    Prioritised,
    Released,
    Reset,
    Retried,
    RunClosed,
    RunRemoved,
    RunRetired,
    RunRevived,
)
from bough.model.ids import ROOT
from bough.server.log import log
from bough.server.shell import Shell
from bough.server.standing import below, workflows_of

KEPT = 20  # workflows that are over and stay
KEPT_RECORDS = 10_000  # tasks, arrays and groups of these together; a task of an array counts as a 64th
KEPT_FOR = 600.0  # seconds
_SOON = 0.5  # seconds after something ended
_AGAIN = 10.0  # seconds until a store that could not be written is tried again
_SLICE = 0.01  # seconds of work between two turns
_PAUSE = 0.005
_ELEMENTS = 64
_DEEDS = frozenset({Amended, Cancelled, Declared, Held, Killed, Prioritised, Released, Reset, Retried})
_HEARD = _DEEDS | {RunClosed, RunRemoved, RunRetired, RunRevived}


class _Leaving:
    """A workflow on its way out."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.pieces = retiring.pieces(workflow)
        self.kept: list[bytes] = []


class Retiring:
    """See the module. `is_owed`: whether a run's client is still to hear something."""

    def __init__(self, shell: Shell, is_owed: Callable[[int], bool]) -> None:
        self._shell = shell
        self._state = shell.machine.state
        self._is_owed = is_owed
        self.on_gone: list[Callable[[int], None]] = []  # told of runs that left, or were removed
        self._over: dict[int, tuple[float, int]] = {}  # by run: when it ended and what it weighs; the oldest first
        self._weight = 0
        self._leaving: _Leaving | None = None  # one that takes longer than a slice
        self._said: set[int] = set()  # runs that are forgotten by the next turn
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = 0.0
        self._stopped = False
        shell.on_facts.append(self._hear)
        for workflow in workflows_of(self._state):
            if workflow.closed:
                self._note(workflow)

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def is_leaving(self, run: int) -> bool:
        """Whether a workflow is forgotten by the next turn."""
        return run in self._said

    # --- what is over ------------------------------------------------------------------------------------

    def _hear(self, facts: Sequence[Fact]) -> None:
        if _HEARD.isdisjoint(map(type, facts)):
            return
        for fact in facts:
            if isinstance(fact, RunClosed | RunRevived):
                workflow = self._state.workflows.get(fact.run)
                if workflow is not None and workflow.group.id != ROOT:
                    self._note(workflow)
            elif isinstance(fact, RunRetired | RunRemoved):
                self._gone(fact.run)
            elif type(fact) in _DEEDS:
                self._leaving = None  # it may be about that one, which is not any more as it was

    def _note(self, workflow: Workflow) -> None:
        self._forget(workflow.run)
        weight = sum(1 + len(group.members) + sum(group.counts) // _ELEMENTS for group in below(workflow.group))
        self._over[workflow.run] = (self._shell.loop.time(), weight)
        self._weight += weight
        self._look_in(_SOON)

    def _forget(self, run: int) -> None:
        known = self._over.pop(run, None)
        if known is not None:
            self._weight -= known[1]

    def _gone(self, run: int) -> None:
        self._forget(run)
        self._said.discard(run)
        for tell in self.on_gone:
            tell(run)

    # --- which leave -------------------------------------------------------------------------------------

    def _look_in(self, seconds: float) -> None:
        """Look again then, at the latest."""
        loop = self._shell.loop
        if self._stopped or (self._timer is not None and self._look_at <= loop.time() + seconds):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._look_at = loop.time() + seconds
        self._timer = loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Let go for a slice of time, and come again while there is more to do."""
        self._timer = None
        if self._stopped or self._said:
            return
        if self._shell.awaits(_DEEDS):  # what is about to be done may be done to one of these
            self._look_in(_PAUSE)
            return
        until = monotonic() + _SLICE
        try:
            while (leaving := self._leaving or self._next()) is not None:
                self._leaving = leaving if self._keep(leaving, until) else None
                if monotonic() >= until:
                    break
        except StoreFailed as error:
            log(f"workflows that are over stay in memory: {error}")
            self._leaving = None
            self._look_in(_AGAIN)
        if self._said:
            self._shell.after_turn(self._turned)
        elif self._over:
            self._look_in(_PAUSE if self._leaving is not None else _AGAIN)

    def _next(self) -> _Leaving | None:
        """The oldest that can leave, if too many are here, or it has been here for too long."""
        many, weight, now = len(self._over) - len(self._said), self._weight, self._shell.loop.time()
        for run, (ended, own) in self._over.items():
            if run in self._said:
                weight -= own
                continue
            if many <= KEPT and weight <= KEPT_RECORDS and now - ended < KEPT_FOR:
                return None
            if retiring.may_retire(self._state, run) and not self._shell.peers.of_run(run) and not self._is_owed(run):
                return _Leaving(self._state.workflows[run])
        return None

    # --- how they leave ----------------------------------------------------------------------------------

    def _keep(self, leaving: _Leaving, until: float) -> bool:
        """Keep one, or a slice of it; whether there is more of it."""
        for piece in leaving.pieces:
            leaving.kept.append(piece)
            if monotonic() >= until:
                return True
        run = leaving.workflow.run
        self._shell.results.forget_all(record.id for record in leaving.workflow.group.records())
        self._shell.store.save_snapshot(self._state.turn, run, retiring.pack(leaving.kept))
        self._shell.news(RunRetired(run))
        self._said.add(run)
        return False

    def _turned(self) -> None:
        """The turn is made; of what is still here something was tried again in that turn."""
        self._said.clear()
        self._look_in(0.0)
