"""What a kind of site does, and how a kind is found by its name: our own, and those that other packages offer.

A kind is made for one site with its definition and `Surroundings`; it must pass `bough.testing.site_conformance`.
Rules: `submit` is idempotent by the pilot's number: what was taken before is found, not started again. What went wrong
is a `SiteError` whose message says what to do; a site that has enough pilots for now says `SiteFull`. A pilot outlives
the connection to its site. What only some kinds can do is a protocol of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from bough.errors import SiteError, UnknownName, did_you_mean
from bough.model.sites.site_specs import PilotId, SiteSpec


class Surroundings(NamedTuple):
    """What the server lends a site."""

    folder: str  # private, for control sockets: its path is short
    cache: str  # private, for what is sent to sites
    socket: str  # the server's own Unix socket for the executors of this site
    token: str  # that opens it
    key: str  # names the site and the server: others may share its hosts
    on_lost: Callable[[], None] = lambda: None  # the connection to the site was lost
    address: str = ""  # HOST:PORT at which the server listens for other machines, empty: nowhere
    fingerprint: str = ""  # of its certificate there


class Checked(NamedTuple):
    """What a step of a test has found: in order or not, in one line, which also says how to mend it."""

    ok: bool
    text: str


class PilotStatus(NamedTuple):
    """Whether a pilot is there; if not, what its last words were."""

    alive: bool
    reason: str = ""


class SentFile(NamedTuple):
    """A file of a site's storage that was to be sent here."""

    size: int
    mark: str  # another one when the file changes; empty: nothing tells
    came: bool  # False: it has the mark that was said to be known


class SiteKind(Protocol):
    """See the module."""

    @property
    def steps(self) -> Sequence[str]:
        """The names of what `check` can look at, in the order in which to do so."""

    async def check(self, step: str) -> Checked:
        """Look at one thing that must be in order."""

    async def open(self) -> None:
        """Be connected, so that executors there reach the server; nothing if that is so."""

    async def submit(self, pilot: PilotId) -> str:
        """Start a pilot; the site's own name for it."""

    async def statuses(self, pilots: Mapping[PilotId, str]) -> Mapping[PilotId, PilotStatus]:
        """How pilots are, by their numbers and the site's own names."""

    async def cancel(self, pilots: Mapping[PilotId, str]) -> None:
        """End pilots and all they have started; those that are not there are ended."""

    async def forget(self) -> None:
        """Remove what belongs to this site and server there, but for what is shared."""

    async def close(self) -> None:
        """End the connection; pilots go on."""


@runtime_checkable
class TakesLogin(Protocol):
    """A kind whose connection a user may have to open from a terminal, because it asks for a password."""

    def login_words(self) -> list[str]:
        """The command that opens it; none: it stands."""


@runtime_checkable
class SubmitsMany(Protocol):
    """A kind that can start several pilots at once, at a lower price than one by one."""

    async def submit_many(self, pilots: Sequence[PilotId], seconds: float) -> Mapping[PilotId, str | SiteError]:
        """As `submit` for each, in order, no faster than `submit_rate`, for at most about so many seconds.

        What came of each: the site's own name for it, or what went wrong, which concerns that pilot alone. At least one
        is tried; those that there was no time for are not in the answer.
        """


@runtime_checkable
class TellsRoom(Protocol):
    """A kind whose site may say what is free there."""

    @property
    def room(self) -> int | None:
        """How many pilots could start at once, as the last `statuses` found out; None: that did not."""


@runtime_checkable
class RestsBetweenPilots(Protocol):
    """A kind that has something running at its site which only pilots need."""

    async def rest(self) -> None:
        """No pilot is there or asked for: end that, if the site is connected; `open` has it run again."""


@runtime_checkable
class SendsFiles(Protocol):
    """A kind that can read its site's storage without an executor there."""

    async def fetch(self, path: str, target: str, known: str) -> SentFile:
        """Bring a file to a path here, unless it has this mark; SiteError when that cannot be."""


MakeKind = Callable[[str, SiteSpec, Surroundings], SiteKind]


def find_kind(name: str) -> MakeKind:
    """A kind of site by its name."""
    if name == "ssh":  # looking up entry points costs tens of milliseconds: not for our own
        from bough.sites.ssh_site import SshSite

        return SshSite
    if name == "batch":
        from bough.sites.batch.batch_site import BatchSite

        return BatchSite
    if name == "local":
        from bough.sites.local_site import LocalSite

        return LocalSite
    if name in {"dask", "ray"}:
        from bough.sites.engines.cluster_site import DaskSite, RaySite

        return {"dask": DaskSite, "ray": RaySite}[name]
    from importlib.metadata import entry_points

    offered = {point.name: point for point in entry_points(group="bough.sites")}
    if name not in offered:
        known = sorted({"batch", "dask", "local", "ray", "ssh", *offered})
        raise UnknownName(
            f"there is no kind of site {name!r}; known are: {', '.join(known)}{did_you_mean(name, known)}"
        )
    kind: MakeKind = offered[name].load()
    return kind


async def check_within(kind: SiteKind, step: str, seconds: float) -> Checked:
    """Look at one thing; a site that does not answer in time is not in order."""
    try:
        async with asyncio.timeout(seconds):
            return await kind.check(step)
    except TimeoutError:
        return Checked(False, f"the site has not answered within {seconds:g} s: is it up, and is its address right?")
