"""Makes the machine as a run left it: from its newest snapshot and the journal after that.

A snapshot that cannot be restored is passed over for the journal from the run's beginning. A journal that cannot be
replayed, because facts were set aside, is replayed again fact by fact: what does not fit the state is passed over, and
what raises is left out. Rule: a sound journal pays nothing for this; a state that was made fact by fact is checked
against the core's invariants, and saved as a snapshot so that it need not be made again.
"""

from __future__ import annotations

from collections.abc import Callable

from bough.core.invariants import check
from bough.core.machine import Machine, Unappliable
from bough.errors import BoughError, InternalError, InvariantBroken, StoreFailed
from bough.policy.interface import Policies
from bough.stores.quarantine import UNREADABLE, WITHOUT_EFFECT, SetAside
from bough.stores.store import Store

Raised = dict[int, dict[int, str]]  # why facts are left out, by turn and position
Found = dict[int, list[SetAside]]  # what was passed over, by turn
WHAT_TO_DO = "see bough store check and bough store repair, or go back to a backup"


def replay_run(
    store: Store, run: int, opened: int, policies: Policies, pickup: int = 0, *, accounts: bool = False
) -> Machine:
    """The machine as a run left it; `opened` is the turn that opened it, 0: ask the store."""
    replay = _Replay(store, run, opened, policies, pickup, accounts=accounts)
    try:
        return replay.quickly()
    except Exception as error:
        if isinstance(error, MemoryError) or (isinstance(error, BoughError) and not isinstance(error, InternalError)):
            raise
        store.tell(
            f"the journal cannot be replayed as it is ({type(error).__name__}: {error}); it is replayed fact by fact"
        )
    return replay.carefully()


class _Replay:
    """One replay of one run."""

    def __init__(self, store: Store, run: int, opened: int, policies: Policies, pickup: int, *, accounts: bool) -> None:
        self._store = store
        self._run = run
        self._opened = opened
        self._new: Callable[[int], Machine] = lambda after: Machine(
            policies, last_turn=after, pickup=pickup, accounts=accounts
        )
        self._restore: Callable[[bytes], Machine] = lambda data: Machine.restore(
            data, policies, pickup=pickup, accounts=accounts
        )
        self._begun = 0  # the turn after which the journal is read
        self._from: bytes | None = None  # the snapshot of that turn
        self._machine, self._whole = self._start()

    def quickly(self) -> Machine:
        """Replay the journal as it is."""
        machine = self._machine
        for number, now, facts in self._store.journal(self._begun):
            machine.replay(number, now, facts)
        unreadable = [one for one in self._store.quarantined() if one.turn > self._begun and one.scope == UNREADABLE]
        if unreadable:  # the core may not have noticed what is missing
            raise InvariantBroken(f"{len(unreadable)} facts cannot be read")
        if not self._whole:
            self._save(machine)
        return machine

    def _start(self) -> tuple[Machine, bool]:
        """The machine to begin with; False if the snapshot that is there is of no use."""
        saved = self._store.snapshot(self._run)
        if saved is not None:
            self._begun, self._from = saved
            try:
                if self._begun > self._store.last_turn:
                    raise InvariantBroken(f"it is of turn {self._begun}, which is not there")
                return self._restore(self._from), True
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 -- the journal says all that it says
                why = f"the snapshot of run {self._run} cannot be restored ({type(error).__name__}: {error})"
                self._store.tell(f"{why}; the journal is read from the beginning of that run instead")
        self._begun, self._from = (self._opened or self._store.turns_of_run(self._run)) - 1, None
        return self._new(self._begun), saved is None

    def carefully(self) -> Machine:
        """Replay without what does not fit; start again, from the turn before, for each fact that raises."""
        begun, raised, found = self._begun, Raised(), Found()
        at, data = begun, self._from
        while True:
            machine = self._at(at, data)
            try:
                self._replay(machine, at, self._store.last_turn, raised, found)
                break
            except Unappliable as error:
                raised.setdefault(error.turn, {})[error.position] = error.reason
                if error.turn - 1 > at:
                    machine = self._at(at, data)
                    self._replay(machine, at, error.turn - 1, raised, found)
                    at, data = error.turn - 1, machine.snapshot()
        machine.reserve(self._store.last_run().last_span)  # also the ids in facts that cannot be read
        try:
            check(machine.state)
        except InvariantBroken as error:
            what = f"the journal does not say enough to continue run {self._run} ({error})"
            raise InvariantBroken(f"{what}: {WHAT_TO_DO}") from error
        self._store.set_aside([one for turn in sorted(found) for one in found[turn]], begun)
        self._save(machine)
        return machine

    def _at(self, turn: int, data: bytes | None) -> Machine:
        return self._new(turn) if data is None else self._restore(data)

    def _replay(
        self,
        machine: Machine,
        after: int,
        until: int,
        raised: dict[int, dict[int, str]],
        found: dict[int, list[SetAside]],
    ) -> None:
        for number, now, facts in self._store.journal(after):
            if number > until:
                break
            out = raised.get(number, {})
            passed = [*machine.replay_what_fits(number, now, facts, out), *out.items()]
            kinds = {position: type(facts[position]).__name__ for position, _ in passed}
            found[number] = [SetAside(number, at, WITHOUT_EFFECT, kinds[at], why) for at, why in sorted(passed)]

    def _save(self, machine: Machine) -> None:
        try:
            self._store.save_snapshot(machine.state.turn, self._run, machine.snapshot())
        except StoreFailed as error:  # only the next start is slower for it
            self._store.tell(f"no snapshot was saved: {error}")
