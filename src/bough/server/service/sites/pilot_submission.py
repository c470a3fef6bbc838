"""How the pilots of one site are given to it: in bulk where its kind can, no faster than it wants, and with back-off.

A pilot of which nobody knows whether the site has taken it is *unsure*: it is submitted again after a while, which
finds it by its number, and is given up after some tries. A site that is full keeps its pilots asked for. Rules: what
goes wrong with one pilot concerns that pilot alone; after a look that brought nothing, or at a site that is full,
submissions rest, longer each time, and begin again with one; a pilot that ends makes room at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from bough import logs
from bough.errors import SiteError, SiteFull
from bough.model.ids import Seconds
from bough.model.sites.site_specs import PilotId, SiteSpec
from bough.sites.site_kind import SiteKind, SubmitsMany

SUBMITTING: Final = 2.0  # seconds after which other things are looked at, before more are submitted
_TRIES: Final = 8  # times that a pilot is submitted of which nobody knows whether it was taken
_AGAIN: Final = (1.0, 2.0, 5.0, 10.0, 30.0)  # seconds between these, and of rests
_MOST: Final = 200  # pilots in one errand: what is sent there stays small


class Outcome(NamedTuple):
    """What came of pilots that were submitted; those that are in neither stay asked for."""

    taken: Mapping[PilotId, str]  # with the site's own names
    failed: Mapping[PilotId, str]  # and why
    given_up: Sequence[PilotId]  # of the failed ones: those that may be there, and have to be cancelled


class _Unsure(NamedTuple):
    tries: int
    again_at: Seconds


class PilotSubmission:
    """See the module. `unsure`: what the server before has perhaps submitted."""

    def __init__(
        self, site: str, spec: SiteSpec, clock: Callable[[], Seconds], unsure: Collection[PilotId] = ()
    ) -> None:
        self._site = site
        self._clock = clock
        self._gap = 1.0 / spec.submit_rate
        self._next_at = 0.0
        self._rests_until = 0.0
        self._fruitless = 0  # times in a row that nothing was taken
        self._unsure = {pilot: _Unsure(1, 0.0) for pilot in unsure}
        self.full = ""  # why the site takes no more for now

    def redefine(self, spec: SiteSpec) -> None:
        """From now on pilots are started otherwise: perhaps what was refused is not any more."""
        self._gap = 1.0 / spec.submit_rate
        self.make_room()

    def make_room(self) -> None:
        """A pilot has ended, or something else has changed: there is no reason to rest."""
        self._rests_until, self._fruitless, self.full = 0.0, 0, ""

    def is_unsure(self, pilot: PilotId) -> bool:
        """Whether nobody knows if the site has taken it."""
        return pilot in self._unsure

    def forget(self, pilots: Collection[PilotId]) -> None:
        """Nobody wants these any more."""
        for pilot in pilots:
            self._unsure.pop(pilot, None)

    def keep_only(self, asked: Collection[PilotId]) -> None:
        """What is not asked for any more is not unsure either."""
        self._unsure = {pilot: one for pilot, one in self._unsure.items() if pilot in asked}
        if not asked:
            self.full = ""

    def pause(self, asked: Collection[PilotId]) -> Seconds | None:
        """After how many seconds something can be submitted; None: there is nothing to submit."""
        if not asked:
            return None
        first = min(self._unsure[pilot].again_at if pilot in self._unsure else 0.0 for pilot in asked)
        return max(0.0, max(first, self._rests_until) - self._clock())

    async def submit(self, kind: SiteKind, asked: Sequence[PilotId]) -> Outcome:
        """Submit what can be submitted now, for a while."""
        now = self._clock()
        due = [pilot for pilot in asked if pilot not in self._unsure or self._unsure[pilot].again_at <= now]
        if now < self._rests_until or not due:
            return Outcome({}, {}, ())
        due.sort(key=lambda pilot: pilot in self._unsure)
        most = 1 if self._fruitless else max(1, min(_MOST, round(SUBMITTING / self._gap)))
        await asyncio.sleep(max(0.0, self._next_at - now))
        found = await self._submit(kind, due[:most])
        self._next_at = self._clock() + self._gap
        return self._read(found)

    async def _submit(self, kind: SiteKind, pilots: Sequence[PilotId]) -> Mapping[PilotId, str | SiteError]:
        if isinstance(kind, SubmitsMany):
            try:
                return await kind.submit_many(pilots, SUBMITTING)
            except Exception as error:  # noqa: BLE001 -- a kind is anybody's code; some may have been taken before
                return dict.fromkeys(pilots, SiteError(_words(error), transient=True))
        found: dict[PilotId, str | SiteError] = {}
        until = self._clock() + SUBMITTING
        for pilot in pilots:
            if found:
                await asyncio.sleep(max(0.0, self._next_at - self._clock()))
            if found and self._clock() > until:
                break
            self._next_at = self._clock() + self._gap
            try:
                found[pilot] = await kind.submit(pilot)
            except SiteError as error:
                found[pilot] = error
            except Exception as error:  # noqa: BLE001 -- a kind is anybody's code
                found[pilot] = SiteError(_words(error))
        return found

    def _read(self, found: Mapping[PilotId, str | SiteError]) -> Outcome:
        taken: dict[PilotId, str] = {}
        failed: dict[PilotId, str] = {}
        given_up: list[PilotId] = []
        full: SiteFull | None = None
        for pilot, one in found.items():
            if isinstance(one, str):
                taken[pilot] = one
            elif isinstance(one, SiteFull):
                full = one
                continue
            elif not one.transient:
                failed[pilot] = str(one)
            elif self._try_again(pilot, one):
                continue
            else:
                failed[pilot] = str(one)
                given_up.append(pilot)
            self._unsure.pop(pilot, None)
        if taken:
            self._fruitless = 0
        if full or (found and not taken):
            self._rest(str(full) if full else "")
        elif taken:
            self.full = ""
        return Outcome(taken, failed, given_up)

    def _try_again(self, pilot: PilotId, error: SiteError) -> bool:
        """Whether a pilot that is perhaps there is submitted once more, which finds it."""
        tries = self._unsure[pilot].tries + 1 if pilot in self._unsure else 1
        if tries > _TRIES:
            return False
        self._unsure[pilot] = _Unsure(tries, self._clock() + _AGAIN[min(tries, len(_AGAIN)) - 1])
        logs.warning("pilot-unsure", f"pilot {pilot} at site {self._site} was perhaps not taken: {error}")
        return True

    def _rest(self, full: str) -> None:
        pause = _AGAIN[min(self._fruitless, len(_AGAIN) - 1)]
        self._fruitless += 1
        self._rests_until = self._clock() + pause
        if full and not self.full:
            logs.warning("site-full", f"site {self._site}: {full}")
        self.full = full


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, SiteError) else f"something unexpected went wrong: {error!r}"
