"""Inputs at URLs, as the executor brings them: seen by the transfer process, found in caches, or fetched from there.

The transfer process looks what is at a URL. By its mark the server knows who has it; it names a content that is
brought like any other, or has this executor fetch it, and hears from it then which content that is. A session of its
own has no server that knows contents: there the executor decides by itself.

Rules: tasks of this executor that want the same at the same time cause one fetch. What has no mark, or is to be fresh,
is fetched for each task. What was fetched is pinned for its task before anybody is told of it.
Early, for a task that has not begun, comes only what can be known again when it begins: what has a mark, and tells its
size. The task looks once more, so that it never reads what has changed meanwhile; and if something cannot be had early,
nothing is said before the task wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from bough.executor.files.staging.host_contents import HostContents
from bough.executor.files.staging.staging_requests import AnnouncedTask, SeenUrl, SiteFileRequest, StagingRequest
from bough.executor.files.transfers.transfer_protocol import FetchUrl, LookUrl, UrlFetched, UrlSeen
from bough.model.sites.resources import show_bytes

_AGAIN: Final = 3  # times that something is fetched which was evicted before its reader had it


class Failed(Protocol):
    """What is told that a request cannot be served."""

    def __call__(self, request: StagingRequest, error: str, *, of_site: bool = False, full: bool = False) -> None:
        """Hear of it."""


class _Fetch:
    """Something that is fetched, and for whom."""

    def __init__(self, url: str, mark: bytes, *, early: bool) -> None:
        self.url = url
        self.mark = mark
        self.early = early  # it began before a task waited for it
        self.number = 0  # of the order
        self.tries = 1
        self.waiting: list[StagingRequest] = []


class UrlInputs:
    """See the module. `ask` asks the server where something is, `got` is told of a content that is here.

    `may_come`: whether there is room for so many bytes for a task that was announced. `alone`: there is no server that
    could be asked.
    """

    def __init__(
        self,
        contents: HostContents,
        ask: Callable[[StagingRequest, str], None],
        got: Callable[[StagingRequest, str, bytes, int], None],
        fail: Failed,
        may_come: Callable[[AnnouncedTask, int], bool],
        *,
        alone: bool,
    ) -> None:
        self._contents = contents
        self._ask = ask
        self._got = got
        self._tell_failure = fail
        self._may_come = may_come
        self._alone = alone
        self._looks: dict[int, tuple[StagingRequest, str]] = {}
        self._fetches: dict[int, _Fetch] = {}
        self._coming: dict[tuple[str, bytes], _Fetch] = {}  # of these: those that have a mark

    def hear(self, messages: Iterable[UrlSeen | UrlFetched]) -> None:
        """The transfer process has looked at URLs, or fetched what is there."""
        for message in messages:
            if isinstance(message, UrlSeen):
                self._saw(message)
            else:
                self._fetched(message)

    def look(self, request: StagingRequest, url: str) -> None:
        """A task needs what is at a URL."""
        assert self._contents.transfers is not None
        number = self._contents.new_number()
        self._looks[number] = (request, url)
        self._contents.transfers.order(LookUrl(number, url, early=request.is_early))

    def _saw(self, message: UrlSeen) -> None:
        """The transfer process has looked."""
        request, url = self._looks.pop(message.number, (None, ""))
        if request is None or (request.is_early and not self._comes_early(request, message)):
            return
        if message.unable and not self._alone:
            self._ask(request, url)  # the server may be able to
        elif message.error:
            self._fail(request, message.error, of_site=message.of_site)
        else:
            if isinstance(request, SiteFileRequest):
                request.comes(message.size)
            seen = request.urls[url] = SeenUrl(message, fresh=url in request.message.fresh)
            if self._is_asked_nobody(request) or (url, seen.mark) in self._coming:
                self.fetch(request, url)
            else:
                self._ask(request, url)

    def _is_asked_nobody(self, request: StagingRequest) -> bool:
        """Whether it is not for the server to say where something is: there is none, or it has asked us."""
        return self._alone or isinstance(request, SiteFileRequest)

    def _comes_early(self, request: StagingRequest, seen: UrlSeen) -> bool:
        """Whether something is brought before its task begins."""
        if seen.error or not seen.mark or seen.size < 0:
            return False
        return not isinstance(request, AnnouncedTask) or self._may_come(request, seen.size)

    def _fail(self, request: StagingRequest, error: str, *, of_site: bool = False, full: bool = False) -> None:
        """A request cannot be served; one whose task has not begun asks again when it has."""
        if not request.is_early:
            self._tell_failure(request, error, of_site=of_site, full=full)

    def _holds(self, request: StagingRequest, digest: bytes, size: int) -> bool:
        """Whether a content is here, and stays as long as its task needs it; nothing stays for one that may come."""
        assert self._contents.cache is not None
        if isinstance(request, AnnouncedTask):
            return self._contents.cache.has(digest, size)
        return bool(self._contents.cache.pin(digest, request.owner, size))

    def fetch(self, request: StagingRequest, url: str, *, fresh: bool = False) -> None:
        """Nobody else is known to have it: it may be in the cache, or on its way; else it is fetched."""
        cache, transfers, seen = self._contents.cache, self._contents.transfers, request.urls.get(url)
        if cache is None or transfers is None or seen is None:
            self._fail(request, f"{url}: it was not looked at", of_site=True)
            return
        mark = b"" if fresh else seen.mark
        if request.is_early and not mark:
            return  # it would be fetched once more when the task begins
        if mark:
            from bough.executor.files.caches.url_marks import UrlMarks

            found = UrlMarks(cache).content(mark)
            if found is not None and self._holds(request, *found):
                self._tell(request, url, *found)
                return
        disk = cache.disk_size()
        if seen.size > disk:
            why = f"{url} has {show_bytes(seen.size)}, and the whole disk of {cache.folder} has {show_bytes(disk)}"
            self._fail(request, why, of_site=True)
            return
        under_way = self._coming.get((url, mark)) if mark else None
        if under_way is None:
            under_way = _Fetch(url, mark, early=request.is_early)
            self._begin(under_way)
        elif under_way.early and not request.is_early:  # it may still stand behind others that nobody waits for
            transfers.order(FetchUrl(under_way.number, url))
        under_way.waiting.append(request)

    def _begin(self, one: _Fetch) -> None:
        assert self._contents.transfers is not None
        one.number = self._contents.new_number()
        self._fetches[one.number] = one
        if one.mark:
            self._coming[one.url, one.mark] = one
        self._contents.transfers.order(FetchUrl(one.number, one.url, early=one.early))

    def _fetched(self, message: UrlFetched) -> None:
        """The transfer process has fetched something, or could not."""
        one = self._fetches.pop(message.number, None)
        cache = self._contents.cache
        if one is None or cache is None:
            return
        self._coming.pop((one.url, one.mark), None)
        waiting, one.waiting = one.waiting, []
        if message.error:
            one.waiting = [request for request in waiting if not request.is_early]
            if one.early and one.waiting:  # what went wrong may be long ago: who waits has a try of its own
                one.early = False
                self._begin(one)
                return
            for request in one.waiting:
                self._fail(request, message.error, of_site=message.of_site, full=message.full)
            return
        if not waiting:  # one that is too big for the cache is nobody's then
            cache.pin(message.digest, one)
            cache.unpin(one)
        pinned = [request for request in waiting if self._holds(request, message.digest, message.size)]
        for request in pinned:
            seen = request.urls[one.url]
            seen.mark = message.mark  # it may have changed since it was looked at
            request.folders += [one.url] if message.folder else []
            if request is pinned[0]:
                request.fetched.add(one.url)
            self._tell(request, one.url, message.digest, message.size)
        gone = [request for request in waiting if request not in pinned and not request.is_early]
        if gone and one.tries < _AGAIN:
            one.tries, one.waiting, one.early = one.tries + 1, gone, False
            self._begin(one)
            return
        for request in gone:
            self._fail(request, f"{one.url}: it is evicted whenever it comes: give the cache more room", of_site=True)

    def _tell(self, request: StagingRequest, url: str, digest: bytes, size: int) -> None:
        """It is here, and pinned: the server is told which content it is, and names it."""
        if self._is_asked_nobody(request):
            self._got(request, url, digest, size)
        else:
            request.urls[url].content = (digest, size)
            self._ask(request, url)

    def ask_origin(self, request: StagingRequest, url: str) -> None:
        """A content that others were said to have cannot be had from them: have it fetched from where it is."""
        if url in request.urls:
            request.urls[url].is_own = True

    def drop(self, is_dropped: Callable[[StagingRequest], bool]) -> None:
        """Some requests need nothing any more. What is fetched for them comes all the same."""
        self._looks = {number: look for number, look in self._looks.items() if not is_dropped(look[0])}
        for one in self._fetches.values():
            one.waiting = [request for request in one.waiting if not is_dropped(request)]

    def is_awaited(self) -> bool:
        """Whether a task waits for something at a URL."""
        looking = (request for request, _ in self._looks.values())
        return not all(request.is_early for request in looking) or any(
            not request.is_early for one in self._fetches.values() for request in one.waiting
        )
