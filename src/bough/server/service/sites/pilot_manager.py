"""Keeps the pilots that the core wants: carries out its orders at the sites, and tells it what became of them.

Each site that has a definition has a desk: its kind, a socket by which its executors reach us, and one task that works
off what there is to do, wakes up when something happens, and otherwise looks now and then. Rules: what the core thinks
is compared with what the site says, so that nothing is lost when either was away; a site that cannot be reached
concerns its own desk only; a pilot that was asked for and could not be started has failed, one that runs is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from bough import logs
from bough.core.queries.answers import PilotInfo, SiteInfo
from bough.errors import BoughError, SiteError, UnknownName, UserError
from bough.model.events.facts import (
    ExecutorLost,
    Fact,
    PilotEnded,
    PilotQueued,
    SiteDefined,
    SiteHadRoom,
    SiteLeft,
    SiteRemoved,
    SiteReturned,
)
from bough.model.events.orders import AskForPilot, CancelPilot
from bough.model.ids import Seconds
from bough.model.sites.site_specs import PilotState, SiteSpec, describe_spec
from bough.model.texts.plurals import counted
from bough.policies.policy_registry import load_provisioning
from bough.server import socket_path
from bough.server.peer_connection import PeerConnection
from bough.server.peers import ClientPeer, DeferredRequest, Handler
from bough.server.service.sites.pilot_submission import PilotSubmission
from bough.server.service.sites.stranger_gates import GuardedSocket
from bough.server.turns.shell import Shell
from bough.sites.site_kind import (
    Checked,
    RestsBetweenPilots,
    SendsFiles,
    SentFile,
    SiteKind,
    Surroundings,
    TakesLogin,
    TellsRoom,
    check_within,
    find_kind,
)
from bough.transport import home
from bough.transport.access import NO_CERTIFICATE, revoke_site_token, site_secret, site_token, token_bytes
from bough.transport.admission import PeerListener
from bough.wire import questions
from bough.wire.executor_messages import Leave
from bough.wire.questions import Question

_STARTING: Final = 1.0  # seconds between two looks at pilots that have not brought an executor
_WAITING: Final = 10.0  # the same where a batch system has to be asked: it serves others, too
_RUNNING: Final = 10.0  # and at those that have, or longer if that is
_SOON: Final = 0.5  # and after something happened that they may have to do with
_REST: Final = 3.0  # seconds without pilots after which ends what only they need
_RESTED: Final = 5.0  # seconds that it has for that
_LINGER: Final = 30.0  # seconds for which a connection without pilots is kept
_AGAIN: Final = (1.0, 2.0, 5.0, 10.0, 30.0)  # seconds after which a site that was not reached is tried again
_LEAVING: Final = 60.0  # seconds in which pilots of a site that is removed have ended
_LEAVE_TIME: Final = 3.0  # seconds in which executors that are told to leave have left
_GRACE: Final = 0.0  # seconds that tasks of theirs get: there are none
_STEP: Final = 90.0  # seconds that one step of its test may take
_FORCED: Final = 10.0  # seconds that a site has to answer that is removed by force
_LONGEST: Final = 2000  # characters of a reason


class SiteDesk:
    """One site: see the module."""

    def __init__(
        self,
        shell: Shell,
        name: str,
        spec: SiteSpec,
        make_peer: Callable[[], PeerConnection],
        listens: tuple[str, str] = ("", ""),
    ) -> None:
        self._shell = shell
        self._listens = listens  # the server's address for other machines, and its fingerprint
        self.name = name
        self._wake = asyncio.Event()
        self._quick = 0  # looks that follow each other soon
        self._failures = 0  # attempts in a row to reach it
        self.trouble = ""  # why it was not reached
        self._is_open = False  # in this look it was
        self._poll = _pace(spec)
        self._unused_since: Seconds | None = None  # it has no pilots, by the clock of the loop
        self._rests = False  # and what only they need has ended
        site = shell.queries.site(name)
        self.is_lost = site is not None and bool(site.pilots)  # it has pilots, and is not reached, or not any more
        before = [pilot.pilot for pilot in (site.pilots if site is not None else ()) if _is_asked(pilot)]
        self._submission = PilotSubmission(name, spec, shell.loop.time, before)
        listener, self._socket = socket_path.bind_lasting(home.server_dir(), f"site-{name}")
        self._door = GuardedSocket(listener, _doorman(name, make_peer), f"a peer at site {name}")
        self._task: asyncio.Task[None] | None = None
        try:
            self.kind = self._make_kind(spec)
        except BaseException:
            self._close_door()
            raise

    def _make_kind(self, spec: SiteSpec) -> SiteKind:
        around = Surroundings(
            socket_path.short_folder(home.server_dir(), "ssh"),
            os.path.join(_cache(), "bootstrap"),
            self._socket,
            site_token(self.name),
            hashlib.blake2b(f"{self._shell.info.token}:{self.name}".encode(), digest_size=16).hexdigest(),
            self._on_lost,
            *self._listens,
        )
        return find_kind(spec.kind)(self.name, spec, around)

    def start(self) -> None:
        """Begin to look after its pilots."""
        self._task = self._shell.loop.create_task(self._live())

    def stop(self) -> None:
        """Do nothing more; the connection stays, so that executors can say good-bye."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Hang up; its executors go on, and find the next server."""
        self.stop()
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        site = self._shell.queries.site(self.name)
        if site is None or not site.pilots:
            await self._let_rest()
        await self.kind.close()
        self._close_door()

    def _close_door(self) -> None:
        self._door.close()
        socket_path.unbind(self._socket)

    async def redefine(self, spec: SiteSpec) -> None:
        """From now on pilots are started otherwise."""
        new = self._make_kind(spec)
        old, self.kind = self.kind, new
        self._poll = _pace(spec)
        self._submission.redefine(spec)
        await old.close()
        self.look_soon()

    def _on_lost(self) -> None:
        self.is_lost = True
        self.look_soon()

    @property
    def full(self) -> str:
        """Why the site takes no more pilots for now; empty: it does."""
        return self._submission.full

    def look_soon(self) -> None:
        """Something happened that its pilots may have to do with."""
        self._quick = 4
        self._wake.set()

    # --- looking after pilots ----------------------------------------------------------------------

    async def _live(self) -> None:
        while True:
            self._wake.clear()
            pause = await self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def _look(self) -> Seconds | None:
        """Do what there is to do; when to look again, None: when something happens."""
        site = self._shell.queries.site(self.name)
        if site is None or not site.pilots:
            return await self._rest()
        self._is_open = False
        self._is_used()
        try:
            await self._care(site)
        except SiteError as error:
            return await self._could_not(site, error)
        except OSError as error:  # of our own machine: no space, no descriptors
            return await self._could_not(site, SiteError(f"this machine: {error}"))
        except Exception as error:  # noqa: BLE001 -- a kind is anybody's code: its desk goes on
            return await self._could_not(site, SiteError(f"something unexpected went wrong: {error!r}"))
        if self.trouble:
            logs.info("site-reached", f"site {self.name} is reached again")
        self.trouble, self._failures, self.is_lost = "", 0, False
        return self._pause()

    async def _rest(self) -> Seconds | None:
        """There is no pilot: what only they need ends soon, and the connection is kept for a while."""
        now = self._shell.loop.time()
        since = self._unused_since = self._unused_since or now
        if now >= since + _LINGER:
            await self.kind.close()
            return None
        if now >= since + _REST and not self._rests:
            await self._let_rest()
            self._rests = True
        return since + (_LINGER if self._rests else _REST) - now

    async def _let_rest(self) -> None:
        if isinstance(self.kind, RestsBetweenPilots):
            with contextlib.suppress(SiteError, OSError):  # it ends by itself, only later; a TimeoutError is an OSError
                async with asyncio.timeout(_RESTED):
                    await self.kind.rest()

    def _is_used(self) -> None:
        """Somebody uses it: what has to wait until nobody does waits from the beginning."""
        self._unused_since, self._rests = None, False

    async def check(self, step: str) -> Checked:
        """Look at one thing that must be in order; the connection that this makes is kept for a while, too."""
        self._is_used()
        try:
            return await check_within(self.kind, step, _STEP)
        finally:
            self._is_used()
            self.look_soon()

    async def fetch(self, path: str, target: str, known: str) -> SentFile:
        """Bring a file of the site's storage here by the connection to it, which is kept for a while, too."""
        if not isinstance(self.kind, SendsFiles):
            raise SiteError(f"{self.name} is no site whose storage it can read", transient=True)
        self._is_used()
        try:
            return await self.kind.fetch(path, target, known)
        finally:
            self._is_used()
            self.look_soon()

    def _pause(self) -> Seconds:
        site = self._shell.queries.site(self.name)
        pilots = site.pilots if site is not None else ()
        submits = self._submission.pause([pilot.pilot for pilot in pilots if _is_asked(pilot)])
        if self._quick and submits != 0.0:
            self._quick -= 1
            looks = max(_SOON, self._poll / 10)
        elif any(pilot.state is not PilotState.RUNNING for pilot in pilots):
            looks = self._poll
        else:
            looks = max(_RUNNING, self._poll)
        return looks if submits is None else min(looks, submits)

    async def _care(self, site: SiteInfo) -> None:
        leaves = site.is_away and self._shell.clock.now() >= site.deadline
        asked = [pilot for pilot in site.pilots if _is_asked(pilot)]
        there = [pilot for pilot in site.pilots if pilot not in asked]
        self._submission.keep_only({pilot.pilot for pilot in asked})
        needless = [pilot for pilot in asked if pilot.released]
        asked = [pilot for pilot in asked if not pilot.released]
        await self._give_up([pilot for pilot in needless if self._submission.is_unsure(pilot.pilot)])
        await self._tell(*(PilotEnded(pilot.pilot, pilot.released) for pilot in needless))
        if site.is_away:
            await self._give_up([pilot for pilot in asked if self._submission.is_unsure(pilot.pilot)])
            await self._tell(*(PilotEnded(pilot.pilot, "its site left before it was started") for pilot in asked))
        elif asked:
            await self._submit(asked)
            site = self._shell.queries.site(self.name) or site
            there = [pilot for pilot in site.pilots if not _is_asked(pilot)]
        if not there:
            return
        unwanted = [pilot for pilot in there if leaves or pilot.released]
        if unwanted:
            await self.kind.cancel({pilot.pilot: pilot.handle for pilot in unwanted})
        found = await self.kind.statuses({pilot.pilot: pilot.handle for pilot in there})
        gone = [pilot for pilot in there if pilot.pilot in found and not found[pilot.pilot].alive]
        if gone:
            self._submission.make_room()
        await self._tell(*(self._ended(pilot, found[pilot.pilot].reason, site) for pilot in gone))
        await self._tell_room()

    async def _tell_room(self) -> None:
        """Tell what the site says is free, less what was asked for and the site does not know of yet."""
        room = self.kind.room if isinstance(self.kind, TellsRoom) else None
        site = self._shell.queries.site(self.name)
        if room is not None and site is not None and site.pilots:
            await self._tell(SiteHadRoom(self.name, max(0, room - sum(map(_is_asked, site.pilots)))))

    async def _submit(self, asked: Sequence[PilotInfo]) -> None:
        """Submit some of them, and tell what came of it."""
        await self.kind.open()  # if that fails, all have failed
        self._is_open = True
        by_number = {pilot.pilot: pilot for pilot in asked}
        came = await self._submission.submit(self.kind, list(by_number))
        for number, handle in came.taken.items():
            logs.info("pilot-started", f"pilot {number} was started at site {self.name}: {handle}")
        await self._tell(*(PilotQueued(number, handle) for number, handle in came.taken.items()))
        await self._give_up([by_number[number] for number in came.given_up])
        await self._tell(*(self._failed(by_number[number], reason) for number, reason in came.failed.items()))

    async def _give_up(self, pilots: Sequence[PilotInfo]) -> None:
        """Nobody wants these any more, of which nobody knows whether they are there."""
        if pilots:
            await self.kind.cancel({pilot.pilot: "" for pilot in pilots})
            self._submission.forget([pilot.pilot for pilot in pilots])

    def _ended(self, pilot: PilotInfo, reason: str, site: SiteInfo) -> PilotEnded:
        """It is not there any more; if it brought no executor, and nobody wanted it to end, it has failed."""
        known = self._shell.queries.pilot(pilot.pilot) or pilot
        if known.released:
            logs.info("pilot-ended", f"pilot {pilot.pilot} at site {self.name} was released: {known.released}")
            return PilotEnded(pilot.pilot, known.released[:_LONGEST])
        if known.state is not PilotState.RUNNING and not site.is_away:
            return self._failed(pilot, reason or "it ended without a word")
        logs.info("pilot-ended", f"pilot {pilot.pilot} at site {self.name} has ended")
        return PilotEnded(pilot.pilot, reason[:_LONGEST])

    def _failed(self, pilot: PilotInfo, reason: str) -> PilotEnded:
        logs.warning("pilot-failed", f"pilot {pilot.pilot} at site {self.name} failed: {reason}")
        return PilotEnded(pilot.pilot, reason[:_LONGEST], failed=True)

    async def _could_not(self, site: SiteInfo, error: SiteError) -> Seconds:
        """The site was not reached: what was asked for has failed, what runs there is looked for again.

        If only a command there went wrong, what was asked for is submitted later.
        """
        if self.trouble != str(error):
            logs.warning("site-unreached", f"site {self.name} is not reached: {error}")
        self.trouble = str(error)
        asked = [pilot for pilot in site.pilots if _is_asked(pilot) and not self._submission.is_unsure(pilot.pilot)]
        asked = [] if self._is_open else asked
        await self._tell(*(PilotEnded(pilot.pilot, pilot.released) for pilot in asked if pilot.released))
        await self._tell(*(self._failed(pilot, str(error)) for pilot in asked if not pilot.released))
        pause = _AGAIN[min(self._failures, len(_AGAIN) - 1)]
        self._failures += 1
        return pause

    async def _tell(self, *facts: PilotQueued | PilotEnded | SiteHadRoom) -> None:
        """Tell the core, and wait until that is written."""
        if facts:
            await tell(self._shell, *facts)


class PilotManager:
    """See the module. `make_peer` makes what an executor talks to."""

    def __init__(self, shell: Shell, make_peer: Callable[[], PeerConnection]) -> None:
        self._shell = shell
        self._make_peer = make_peer
        self._desks: dict[str, SiteDesk] = {}
        self._listens = ("", "")
        self._errands: set[asyncio.Task[None]] = set()
        shell.perform[AskForPilot] = self._wake
        shell.perform[CancelPilot] = self._wake
        shell.on_facts.append(self._hear)
        self.handlers: dict[type[Question[Any]], Handler] = {
            questions.DefineSite: self._later(self._define),
            questions.RemoveSite: self._later(self._remove),
            questions.CheckSite: self._later(self._check),
            questions.LoginSite: self._later(self._login),
        }

    def start(self) -> None:
        """Look after all sites that have a definition, and the pilots that the server before this one had."""
        for site in self._shell.queries.sites():
            if site.spec is not None:
                try:
                    self._open(site.name, site.spec)
                except BoughError as error:
                    logs.error("site-not-opened", f"site {site.name} cannot be used: {error}")

    def stop(self) -> None:
        """Begin nothing more."""
        for desk in self._desks.values():
            desk.stop()
        for errand in self._errands:
            errand.cancel()

    async def release(self) -> None:
        """End all pilots: their executors are told to leave, and what is still there after a moment is cancelled."""
        for executor in self._shell.peers.executors.values():
            if executor.hello.pilot:
                executor.leaving = "the server has nothing left to do"
                executor.connection.say(Leave(_GRACE))
        self._shell.flush()
        await asyncio.gather(*(self._release(desk) for desk in self._desks.values()))

    async def _release(self, desk: SiteDesk) -> None:
        begun = asked = self._shell.loop.time()
        while (site := self._shell.queries.site(desk.name)) is not None and site.pilots:
            now = self._shell.loop.time()
            if desk.trouble or now > begun + _LEAVING:
                left = counted(len(site.pilots), "pilot")
                logs.warning("pilots-left", f"site {desk.name} still has {left}: {desk.trouble or 'they do not end'}")
                return
            if now > asked + _LEAVE_TIME:
                asked = now
                try:
                    await desk.kind.cancel({pilot.pilot: pilot.handle for pilot in site.pilots if pilot.handle})
                except SiteError as error:
                    desk.trouble = str(error)
            desk.look_soon()
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        """Hang up everywhere."""
        await asyncio.gather(*(desk.close() for desk in self._desks.values()))
        socket_path.leave_short_folders()

    def is_cut_off(self, site: str) -> bool:
        """Whether the connection to a site was lost, and it was not reached again."""
        desk = self._desks.get(site)
        return desk is not None and (desk.is_lost or bool(desk.trouble))

    async def fetch(self, site: str, path: str, target: str, known: str) -> SentFile:
        """Bring a file of a site's storage here, unless it has this mark; SiteError when that cannot be."""
        desk = self._desks.get(site)
        if desk is None:
            raise SiteError(f"it has no connection to {site}", transient=True)
        return await desk.fetch(path, target, known)

    def listens_at(self, address: str, fingerprint: str) -> None:
        """Where the server listens for other machines; said before the first site is opened."""
        self._listens = (address, fingerprint)

    def token_of(self, site: str) -> bytes | None:
        """The token of the executors of a site, as the server checks it; None: there is no such site."""
        return token_bytes(site_token(site), f"the token of site {site}") if site in self._desks else None

    def make_peer_of(self, site: str) -> PeerConnection:
        """What an executor of a site talks to, by whichever door it came."""
        return _peer_of(site, self._make_peer)

    def trouble(self, site: str) -> str:
        """Why a site is not reached, or takes no more pilots; empty: it is and does, or there is no need to."""
        desk = self._desks.get(site)
        return desk.trouble or desk.full if desk is not None else ""

    def _open(self, name: str, spec: SiteSpec) -> SiteDesk:
        desk = self._desks[name] = SiteDesk(self._shell, name, spec, self._make_peer, self._listens)
        desk.start()
        return desk

    def _wake(self, order: AskForPilot | CancelPilot) -> None:
        if order.site in self._desks:
            self._desks[order.site].look_soon()

    def _hear(self, facts: Sequence[Fact]) -> None:
        if self._desks and any(isinstance(fact, ExecutorLost | SiteReturned) for fact in facts):
            for desk in self._desks.values():
                desk.look_soon()

    # --- what clients ask --------------------------------------------------------------------------

    def _later(self, do: Callable[[DeferredRequest[Any]], Coroutine[Any, Any, object]]) -> Handler:
        """A handler that takes its time; what goes wrong is told to who asked."""

        async def work(deferred: DeferredRequest[Any]) -> None:
            try:
                value = await do(deferred)
            except Exception as error:  # noqa: BLE001 -- whatever it is, it concerns the client that asked
                deferred.refuse(error)
            else:
                deferred.answer(value)

        def handle(deferred: DeferredRequest[Any]) -> None:
            _check_owner(deferred.client)
            errand = self._shell.loop.create_task(work(deferred))
            self._errands.add(errand)
            errand.add_done_callback(self._errands.discard)

        return handle

    async def _define(self, deferred: DeferredRequest[questions.DefineSite]) -> object:
        name, spec = deferred.question.site, deferred.question.spec
        known = self._shell.queries.site(name)
        if name in {"manual", "hand"} or (name == "local" and spec.kind != "local"):
            raise UserError(f"{name} is a name of Bough's own: give the site another one")
        if spec.provisioning:
            load_provisioning(spec.provisioning)  # refused if there is no such one
        desk = self._desks.get(name)
        if desk is None:
            try:
                self._open(name, spec)
            except BoughError:
                if known is None or known.spec is None:
                    revoke_site_token(name)
                raise
        else:
            if known is not None and known.pilots and known.spec is not None and not _same_place(known.spec, spec):
                raise UserError(
                    f"site {name} has {counted(len(known.pilots), 'pilot')}: remove it before it becomes another one"
                )
            await desk.redefine(spec)
        await tell(self._shell, SiteDefined(name, spec))
        return {"site": name, "definition": describe_spec(spec)}

    async def _remove(self, deferred: DeferredRequest[questions.RemoveSite]) -> object:
        name, force = deferred.question.site, deferred.question.force
        desk, site = self._desk(name), self._shell.queries.site(name)
        pilots = len(site.pilots) if site is not None else 0
        await tell(self._shell, SiteLeft(name, "it is being removed", 0.0, by_hand=True))
        try:
            async with asyncio.timeout(_FORCED if force else None):
                await self._end_pilots(desk)
                await desk.kind.forget()
        except (SiteError, TimeoutError) as error:
            left = self._shell.queries.site(name)
            if not force and left is not None and left.pilots:  # an access file is worth nothing without its token
                raise SiteError(
                    f"site {name} is disabled but not removed: {error};"
                    " with --force it is forgotten, and its pilots end by themselves within two hours"
                ) from error
        await tell(self._shell, SiteRemoved(name), SiteReturned(name))
        del self._desks[name]
        await desk.close()
        revoke_site_token(name)
        logs.info("site-removed", f"site {name} was removed, with {counted(pilots, 'pilot')}")
        return {"site": name, "pilots": pilots}

    async def _end_pilots(self, desk: SiteDesk) -> None:
        until = self._shell.loop.time() + _LEAVING
        while (site := self._shell.queries.site(desk.name)) is not None and site.pilots:
            if desk.trouble:
                raise SiteError(desk.trouble)
            if self._shell.loop.time() > until:
                raise SiteError(f"{counted(len(site.pilots), 'pilot')} have not ended within {_LEAVING:g} s")
            desk.look_soon()
            await asyncio.sleep(0.1)

    async def _check(self, deferred: DeferredRequest[questions.CheckSite]) -> object:
        desk, step = self._desk(deferred.question.site), deferred.question.step
        if not step:
            return {"steps": list(desk.kind.steps), "ok": True, "text": ""}
        if step not in desk.kind.steps:
            raise UnknownName(f"there is no step {step!r}; there are: {', '.join(desk.kind.steps)}")
        found = await desk.check(step)
        return {"steps": list(desk.kind.steps), "ok": found.ok, "text": found.text}

    async def _login(self, deferred: DeferredRequest[questions.LoginSite]) -> object:
        name = deferred.question.site
        desk, site = self._desk(name), self._shell.queries.site(name)
        if not isinstance(desk.kind, TakesLogin):
            raise UserError(f"site {name} is not one to log in to: bough site test {name} says what it needs")
        if not deferred.question.done:
            return {"site": name, "argv": desk.kind.login_words()}
        found = await desk.check(desk.kind.steps[0])
        if found.ok and site is not None and site.spec is not None:
            await tell(self._shell, SiteDefined(name, site.spec))  # it rests no more after pilots that failed
            desk.look_soon()
        return {"site": name, "ok": found.ok, "text": found.text}

    def _desk(self, name: str) -> SiteDesk:
        desk = self._desks.get(name)
        if desk is None:
            known = ", ".join(sorted(self._desks)) or "none"
            raise UnknownName(f"there is no site {name} that was added; there are: {known}")
        return desk


async def tell(shell: Shell, *facts: Any) -> None:
    """Tell the core something, and wait until it is written."""
    written = asyncio.Event()
    for fact in facts:
        shell.news(fact)
    shell.after_turn(written.set)
    await written.wait()


def _is_asked(pilot: PilotInfo) -> bool:
    return pilot.state is PilotState.ASKED and not pilot.handle


def _pace(spec: SiteSpec) -> Seconds:
    """Seconds between two looks at pilots that wait."""
    return spec.poll or (_STARTING if spec.batch == "none" else _WAITING)


def _same_place(one: SiteSpec, other: SiteSpec) -> bool:
    return (one.kind, one.ssh, one.batch, one.address) == (other.kind, other.ssh, other.batch, other.address)


def _check_owner(client: ClientPeer) -> None:
    if client.connection.role != "owner":
        raise UserError("only a user of the server's Unix socket can define, test and remove sites")


def _peer_of(site: str, make_peer: Callable[[], PeerConnection]) -> PeerConnection:
    peer = make_peer()
    peer.site = site
    return peer


def _doorman(site: str, make_peer: Callable[[], PeerConnection]) -> PeerListener:
    """Who lets in whoever knows the token of a site, as an executor of that site."""
    return PeerListener(
        partial(_peer_of, site, make_peer),
        partial(site_secret, site),
        NO_CERTIFICATE,
        say=logs.reporter("peer-refused", logs.WARNING),
    )


def _cache() -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(os.path.abspath(cache), "bough")
