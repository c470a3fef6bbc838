"""Files of a site that others want: what an executor answers, and whom."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bough.executor.executor_options import ExecutorLifetime
from bough.executor.files.caches.host_cache import HostCache
from bough.executor.files.command_files.sandbox import ExecutorFolder
from bough.executor.files.staging.staging import Staging
from bough.executor.files.transfers.transfer_protocol import FetchUrl, LookUrl, UrlFetched, UrlSeen
from bough.model.ids import ExecutorId
from bough.wire.file_messages import DIGEST, SeeSiteFile, SiteFileSeen

MARK = b"m" * 16


class Rig:
    """The staging of an executor; what is ordered of its transfer process and said to the server is noted."""

    def __init__(self, folder: Path) -> None:
        self.said: list[Any] = []
        self.orders: list[LookUrl | FetchUrl] = []
        self.cache = HostCache(str(folder / "cache"))
        unused: Any = SimpleNamespace()
        self.staging = Staging(
            ExecutorFolder(str(folder)),
            self.said.append,
            lambda _: None,
            unused,
            told=ExecutorLifetime(),
            number=ExecutorId(2),
        )
        transfers: Any = SimpleNamespace(order=self.orders.append, start=lambda: None)
        self.staging._contents.cache, self.staging._contents.transfers = self.cache, transfers

    def sees(self) -> int:
        """The transfer process has looked at what was asked for last; the number of the fetch that follows."""
        self.staging._hear_transfers([UrlSeen(self.orders[-1].number, MARK, 4)])
        assert isinstance(self.orders[-1], FetchUrl)
        return self.orders[-1].number

    def comes(self, number: int, data: bytes) -> bytes:
        digest = blake2b(data, digest_size=DIGEST).digest()
        path = self.cache.new_file()
        Path(path).write_bytes(data)
        self.cache.take_in(path, digest, len(data))
        self.staging._hear_transfers([UrlFetched(number, digest, len(data), MARK)])
        return digest

    @property
    def answers(self) -> list[SiteFileSeen]:
        return [one for one in self.said if isinstance(one, SiteFileSeen)]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_who_asks_hears_that_it_is_there_and_then_what_it_is(rig: Rig) -> None:
    rig.staging.on_message(SeeSiteFile(1, "alpha:/x"))
    digest = rig.comes(rig.sees(), b"data")
    assert rig.answers == [SiteFileSeen(1, size=4, comes=True), SiteFileSeen(1, digest, 4)]


def test_what_a_server_asked_before_it_was_begun_again_is_not_answered(rig: Rig) -> None:
    rig.staging.on_message(SeeSiteFile(1, "alpha:/x"))
    before = rig.sees()
    rig.staging.on_message(SeeSiteFile(2, "alpha:/z"))
    look = rig.orders[-1].number
    rig.said.clear()
    rig.staging.resume()  # it counts anew
    rig.staging.on_message(SeeSiteFile(1, "alpha:/y"))
    now = rig.sees()
    rig.staging._hear_transfers([UrlSeen(look, MARK, 4)])
    rig.comes(before, b"what is at x")
    digest = rig.comes(now, b"what is at y")
    assert rig.answers == [SiteFileSeen(1, size=4, comes=True), SiteFileSeen(1, digest, 12)]
