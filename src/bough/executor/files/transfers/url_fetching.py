"""What the transfer process does about URLs: it looks at them, and fetches what is there into the host's cache.

Rules: a file has no name in the cache before all of it has come and its digest is known; what came short, or too long,
is removed and fetched again (`remote_files`). A mark is noted only if the URL had it before and after. Clients of
fsspec belong to their thread, so there are a few threads that stay, and a slow fetch holds up no look. What no task
waits for has threads of its own, so that however many servers elsewhere stand still, none of it holds up what one does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final, Protocol

from bough.errors import BoughError, SiteError, UserError
from bough.executor.files.caches.host_cache import HostCache
from bough.executor.files.caches.url_marks import UrlMarks
from bough.executor.files.transfers.kept_threads import KeptThreads, Revocable
from bough.executor.files.transfers.transfer_protocol import FetchUrl, LookUrl, UrlFetched, UrlSeen
from bough.executor.host.disk_space_wait import is_full
from bough.model.files import site_file
from bough.movers import remote_files, site_storage
from bough.movers.local import digest_of
from bough.movers.remote_files import RemoteFile, can_move, is_local

_LOOKS: Final = 16  # at once; a server elsewhere that does not answer has one for minutes
_FETCHES: Final = 16
_REMOVED: Final = 3  # times that something is fetched again which somebody has removed while it came
_EARLY: Final = 4  # looks and fetches at once for which no task waits


class Fetched(Protocol):
    """What is told that something was fetched; `is_new`: the cache had not had it."""

    def __call__(self, came: UrlFetched, *, is_new: bool) -> None:
        """Hear of it."""


class UrlFetching:
    """See the module."""

    def __init__(self, cache: HostCache) -> None:
        self._cache = cache
        self._marks = UrlMarks(cache)
        self._looking = KeptThreads(_LOOKS, "looks")
        self._fetching = KeptThreads(_FETCHES, "fetches")
        self._early = KeptThreads(_EARLY, "early")
        self._early_fetches: dict[int, Revocable] = {}  # by number: some may be over

    def look(self, order: LookUrl, say: Callable[[UrlSeen], None]) -> None:
        """See what is at a URL, in a thread."""
        (self._early if order.early else self._looking).do(lambda: say(self.seen(order)))

    def fetch(self, order: FetchUrl, say: Fetched) -> None:
        """Fetch what is at a URL, in a thread; what was ordered early and waits for one has another now."""

        def work() -> None:
            came, is_new = self.fetched(order)
            say(came, is_new=is_new)

        if order.early:
            self._early_fetches = {number: one for number, one in self._early_fetches.items() if not one.is_over}
            early = self._early_fetches[order.number] = Revocable(work)
            self._early.do(early)
            return
        waiting = self._early_fetches.pop(order.number, None)
        if waiting is None or waiting.call_off():
            self._fetching.do(work)

    def seen(self, order: LookUrl) -> UrlSeen:
        """What is at a URL now."""
        try:
            found = _mover(order.url).look(order.url)
            return UrlSeen(order.number, _mark(order.url, found), found.size, is_local(order.url))
        except Exception as error:  # noqa: BLE001 -- whatever it is, the task must be told
            unable = isinstance(error, UserError) and not can_move(order.url)
            return UrlSeen(order.number, error=_text(error), of_site=_is_of_site(error), unable=unable)

    def fetched(self, order: FetchUrl) -> tuple[UrlFetched, bool]:
        """Fetch what is at a URL; and whether the cache had not had it."""
        for left in reversed(range(_REMOVED + 1)):
            hidden = ""
            try:
                hidden = self._cache.new_file()
                found = self._bring(order.url, hidden)
                is_folder = bool(site_file(order.url)[0]) and site_storage.is_folder(order.url)
                digest, size = digest_of(hidden), os.stat(hidden).st_size
                is_new = self._cache.take_in(hidden, digest, size)
                mark = _mark(order.url, found)
                self._marks.note(mark, digest, size)
            except Exception as error:  # noqa: BLE001 -- whatever it is, the task must be told
                with contextlib.suppress(OSError):
                    os.unlink(hidden)
                if left and isinstance(error, FileNotFoundError):
                    continue
                full = isinstance(error, OSError) and is_full(error)
                return UrlFetched(order.number, error=_text(error), of_site=_is_of_site(error), full=full), False
            return UrlFetched(order.number, digest, size, mark, folder=is_folder), is_new
        raise AssertionError("the last try returns")

    def _bring(self, url: str, hidden: str) -> RemoteFile:
        fetch = _mover(url).fetch
        try:
            return fetch(url, hidden, self._cache.limit)
        except OSError as error:
            if not is_full(error):
                raise
            self._cache.make_space(b"")
            return fetch(url, hidden, self._cache.limit)


class _Mover(Protocol):
    """What reads what is at a name."""

    def look(self, url: str, /) -> RemoteFile:
        """What is there now."""

    def fetch(self, url: str, path: str, most: int, /) -> RemoteFile:
        """Bring it to a path."""


def _mover(url: str) -> _Mover:
    return site_storage if site_file(url)[0] else remote_files


def _mark(url: str, found: RemoteFile) -> bytes:
    return found.identity(url) if found.mark else b""


def _is_of_site(error: Exception) -> bool:
    """Whether it might go well on another host."""
    return not isinstance(error, UserError) and not (isinstance(error, SiteError) and not error.transient)


def _text(error: Exception) -> str:
    if isinstance(error, BoughError):
        return str(error)
    return getattr(error, "strerror", "") or f"{type(error).__name__}: {error}"
