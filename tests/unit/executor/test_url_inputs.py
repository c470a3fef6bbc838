"""Inputs at URLs on the side of the executor: who is asked, what is fetched, and for whom."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bough.executor.files.caches.host_cache import HostCache
from bough.executor.files.caches.url_marks import UrlMarks
from bough.executor.files.staging.staging_requests import AnnouncedTask, StagingRequest
from bough.executor.files.staging.url_inputs import UrlInputs
from bough.executor.files.transfers.transfer_protocol import FetchUrl, LookUrl, UrlFetched, UrlSeen
from bough.executor.worker_protocol import StageInputs
from bough.model.ids import RecordId, SpanId
from bough.wire.file_messages import DIGEST, InputsAnnounced, UrlState

URL = "http://h/x"
MARK = b"m" * 16
WORKER: Any = object()
ANNOUNCED = InputsAnnounced(RecordId(7), 0, [], [URL])


class Rig:
    """Inputs at URLs with a real cache; what is ordered, asked and told is noted."""

    def __init__(self, folder: Path, *, alone: bool = False) -> None:
        self.cache = HostCache(str(folder / "cache"))
        self.orders: list[LookUrl | FetchUrl] = []
        self.asked: list[tuple[StagingRequest, UrlState | None]] = []
        self.got: list[tuple[StagingRequest, bytes, int]] = []
        self.failed: list[tuple[StagingRequest, str, bool]] = []
        self.numbers = iter(range(1, 1000))
        contents: Any = SimpleNamespace(
            cache=self.cache,
            transfers=SimpleNamespace(order=self.orders.append),
            new_number=lambda: next(self.numbers),
        )
        self.room = 100  # bytes for tasks that may come
        self.urls = UrlInputs(contents, self._ask, self._got, self._fail, self._may_come, alone=alone)

    def _may_come(self, task: AnnouncedTask, size: int) -> bool:
        return size <= self.room

    def _ask(self, request: StagingRequest, url: str) -> None:
        seen = request.urls.get(url)
        self.asked.append((request, seen.state() if seen is not None else None))

    def _got(self, request: StagingRequest, url: str, digest: bytes, size: int) -> None:
        self.got.append((request, digest, size))

    def _fail(self, request: StagingRequest, error: str, *, of_site: bool = False, full: bool = False) -> None:
        self.failed.append((request, error, of_site))

    def look(self, mark: bytes = MARK, *, local: bool = False, size: int = 4, fresh: bool = False) -> StagingRequest:
        """A task that has looked at the URL."""
        return self.looked(WORKER, mark, local=local, size=size, fresh=fresh)

    def looked(
        self, worker: Any, mark: bytes = MARK, *, local: bool = False, size: int = 4, fresh: bool = False
    ) -> StagingRequest:
        """What a worker, or a task that waits for one (None), wants."""
        request = StagingRequest(worker, StageInputs(0, SpanId(1), next(self.numbers), [URL], [URL] if fresh else []))
        return self.saw(request, mark, local=local, size=size)

    def saw(self, request: StagingRequest, mark: bytes = MARK, *, local: bool = False, size: int = 4) -> StagingRequest:
        self.urls.look(request, URL)
        self.urls.hear([UrlSeen(self.orders[-1].number, mark, size, local)])
        return request

    def come(self, data: bytes = b"data", mark: bytes = MARK, *, evicted: bool = False) -> tuple[bytes, int]:
        """What was ordered last has come."""
        digest = blake2b(data, digest_size=DIGEST).digest()
        if not evicted:
            path = self.cache.new_file()
            Path(path).write_bytes(data)
            self.cache.take_in(path, digest, len(data))
        self.urls.hear([UrlFetched(self.orders[-1].number, digest, len(data), mark)])
        return digest, len(data)

    @property
    def fetches(self) -> int:
        return sum(isinstance(order, FetchUrl) for order in self.orders)


def test_what_was_fetched_is_pinned_and_then_said_to_the_server(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    request = rig.look()
    assert rig.asked == [(request, UrlState(MARK))]
    assert rig.fetches == 0  # others may have it
    rig.urls.fetch(request, URL)
    digest, size = rig.come()
    assert rig.asked[1:] == [(request, UrlState(MARK, digest, size))]
    assert rig.cache.is_pinned(digest)
    assert request.fetched == {URL}


def test_tasks_that_want_the_same_cause_one_fetch_which_counts_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    one, two = rig.look(), rig.look()
    for request in (one, two):
        rig.urls.fetch(request, URL)
    assert rig.fetches == 1
    rig.come()
    assert (one.fetched, two.fetched) == ({URL}, set())
    assert [asked[0] for asked in rig.asked[2:]] == [one, two]


@pytest.mark.parametrize("how", ["no mark", "put", "no caches"])
def test_what_is_to_be_fetched_for_each_task_is(tmp_path: Path, how: str) -> None:
    rig = Rig(tmp_path)
    for _ in range(2):
        request = rig.look(b"" if how == "no mark" else MARK, fresh=how == "put")
        assert rig.asked[-1][1] == UrlState(MARK if how == "no caches" else b"")
        rig.urls.fetch(request, URL, fresh=how == "no caches")
        rig.come(mark=b"" if how == "no mark" else MARK)
    assert rig.fetches == 2


def test_what_this_host_has_is_not_fetched_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.urls.fetch(rig.look(), URL)
    content = rig.come()
    UrlMarks(rig.cache).note(MARK, *content)
    later = rig.look()
    rig.urls.fetch(later, URL)  # the server has forgotten
    assert rig.fetches == 1
    assert rig.asked[-1] == (later, UrlState(MARK, *content))
    assert not later.fetched


def test_what_changed_since_it_was_looked_at_goes_by_its_new_mark(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    request = rig.look()
    rig.urls.fetch(request, URL)
    content = rig.come(mark=b"n" * 16)
    assert rig.asked[-1] == (request, UrlState(b"n" * 16, *content))


def test_what_other_hosts_may_find_otherwise_is_not_told_by_its_mark(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    request = rig.look(local=True)
    assert rig.asked == [(request, UrlState())]
    rig.urls.fetch(request, URL)
    content = rig.come()
    assert rig.asked[-1][1] == UrlState(b"", *content)


def test_a_content_that_others_do_not_give_comes_from_its_origin(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    request = rig.look()
    rig.urls.ask_origin(request, URL)
    assert request.urls[URL].state() == UrlState()


def test_who_is_not_there_any_more_gets_nothing_and_holds_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    request = rig.look()
    rig.urls.fetch(request, URL)
    assert rig.urls.is_awaited()
    rig.urls.drop(lambda one: one is request)
    assert not rig.urls.is_awaited()
    digest, _ = rig.come()
    assert len(rig.asked) == 1
    assert rig.cache.has(digest)
    assert not rig.cache.is_pinned(digest)


def test_what_is_evicted_whenever_it_comes_fails_its_task(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.urls.fetch(rig.look(), URL)
    for _ in range(3):
        assert rig.failed == []
        rig.come(evicted=True)
    assert "evicted whenever it comes" in rig.failed[0][1]
    assert rig.fetches == 3


def test_a_file_bigger_than_the_disk_is_not_tried(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.urls.fetch(rig.look(size=1 << 61), URL)
    assert rig.fetches == 0
    assert "the whole disk of" in rig.failed[0][1]
    assert rig.failed[0][2]


def test_a_session_of_its_own_asks_nobody(tmp_path: Path) -> None:
    rig = Rig(tmp_path, alone=True)
    request = rig.look()
    assert rig.fetches == 1
    content = rig.come()
    assert rig.got == [(request, *content)]
    assert rig.asked == []


@pytest.mark.parametrize("alone", [True, False])
def test_what_this_host_cannot_look_at_is_for_the_server_if_there_is_one(tmp_path: Path, alone: bool) -> None:
    rig = Rig(tmp_path, alone=alone)
    request = StagingRequest(WORKER, StageInputs(0, SpanId(1), 1, [URL]))
    rig.urls.look(request, URL)
    rig.urls.hear([UrlSeen(rig.orders[-1].number, error="needs fsspec", unable=True)])
    assert rig.asked == ([] if alone else [(request, None)])
    assert [error for _, error, _ in rig.failed] == (["needs fsspec"] if alone else [])


# --- before their tasks begin --------------------------------------------------------------------------


def test_what_comes_early_is_pinned_for_a_task_that_waits_here_and_not_for_one_that_may_come(tmp_path: Path) -> None:
    waits_here = StagingRequest(None, StageInputs(0, SpanId(1), 0, [URL]))
    for one, is_pinned in ((waits_here, True), (AnnouncedTask(ANNOUNCED), False)):
        rig = Rig(tmp_path / str(is_pinned))
        request = rig.saw(one)
        rig.urls.fetch(request, URL)
        assert [order.early for order in rig.orders] == [True, True]
        assert not rig.urls.is_awaited()
        content = rig.come()
        assert rig.asked[-1] == (request, UrlState(MARK, *content))
        assert request.fetched == {URL}
        assert rig.cache.has(*content)
        assert rig.cache.is_pinned(content[0]) is is_pinned


@pytest.mark.parametrize("what", ["no mark", "no size", "gone", "unable", "no caches"])
def test_what_could_not_be_known_again_or_cannot_be_had_waits_for_its_task(tmp_path: Path, what: str) -> None:
    rig = Rig(tmp_path)
    if what == "no caches":
        rig.urls.fetch(rig.looked(None), URL, fresh=True)
    elif what in {"gone", "unable"}:
        rig.urls.look(StagingRequest(None, StageInputs(0, SpanId(1), 1, [URL])), URL)
        rig.urls.hear([UrlSeen(rig.orders[-1].number, error="it is not there", unable=what == "unable")])
    else:
        rig.looked(None, b"" if what == "no mark" else MARK, size=-1 if what == "no size" else 4)
    assert rig.fetches == 0
    assert len(rig.asked) == (what == "no caches")
    assert rig.failed == []
    assert not rig.urls.is_awaited()


def test_a_task_that_may_come_has_no_more_than_there_is_room_for(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.saw(AnnouncedTask(ANNOUNCED), size=101)
    assert rig.asked == []
    rig.saw(AnnouncedTask(ANNOUNCED), size=100)
    assert len(rig.asked) == 1


def test_a_task_that_begins_joins_what_comes_early_and_that_is_hurried(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    early = rig.looked(None)
    rig.urls.fetch(early, URL)
    number = rig.orders[-1].number
    late = rig.look()
    assert len(rig.asked) == 1  # the server need not be asked
    assert rig.orders[-1] == FetchUrl(number, URL)  # the same, and not early any more
    assert rig.urls.is_awaited()
    rig.urls.drop(lambda one: one is early)
    content = rig.come()
    assert rig.asked[-1] == (late, UrlState(MARK, *content))
    assert late.fetched == {URL}


def test_who_waits_for_an_early_fetch_that_fails_has_a_try_of_its_own(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.urls.fetch(rig.looked(None), URL)
    late = rig.look()
    for number in range(2):
        assert rig.failed == []
        rig.urls.hear([UrlFetched(rig.orders[-1].number, error="it stands still", of_site=True)])
        assert rig.orders[-1].early is False
        assert rig.fetches == 3, number
    assert rig.failed == [(late, "it stands still", True)]
