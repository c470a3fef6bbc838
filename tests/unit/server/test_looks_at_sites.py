"""Files of sites that the server has looked at for readers elsewhere."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bough.errors import SiteError
from bough.model.ids import ExecutorId
from bough.server.files import site_files
from bough.server.files.site_files import SiteFiles
from bough.sites.site_kind import SentFile
from bough.wire.file_messages import DIGEST, SeeSiteFile, SiteFileSeen


def test_who_asks_while_a_look_is_under_way_sees_what_was_written_before_he_asked(tmp_path: Path) -> None:
    async def read() -> tuple[list[bytes], int]:
        content, looks = b"old", 0
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def fetch(site: str, path: str, target: str, known: str) -> SentFile:
            nonlocal looks
            assert (site, path, known) == ("alpha", "/x", "")
            looks, data = looks + 1, content
            begun.set()
            await go_on.wait()
            Path(target).write_bytes(data)
            return SentFile(len(data), "", True)

        async def bring_in(path: str) -> tuple[bytes, int]:
            data = Path(path).read_bytes()
            return blake2b(data, digest_size=32).digest(), len(data)

        shell = SimpleNamespace(loop=asyncio.get_running_loop(), peers=SimpleNamespace(executors={}))
        contents = SimpleNamespace(last_seen=lambda _: None, note=lambda *_: None)
        files = SiteFiles(shell, SimpleNamespace(bring_in_new=bring_in), contents, str(tmp_path / "files"))  # type: ignore[arg-type]
        files.fetch = fetch
        first = asyncio.create_task(files.see("alpha:/x"))
        await begun.wait()
        content = b"new"
        others = [asyncio.create_task(files.see("alpha:/x")) for _ in range(3)]
        await asyncio.sleep(0)
        go_on.set()
        seen = [(await one).digest for one in (first, *others)]
        assert not files._looks
        return seen, looks

    seen, looks = asyncio.run(read())
    old, new = (blake2b(data, digest_size=32).digest() for data in (b"old", b"new"))
    assert seen == [old, new, new, new]
    assert looks == 2
    assert list((tmp_path / "files").iterdir()) == []


class Silent:
    """A site with executors of which some never answer, and what the server asks them."""

    def __init__(self, folder: Path, answering: set[int], *, comes: int = -1) -> None:
        self.asked: list[int] = []
        shell = SimpleNamespace(
            loop=asyncio.get_running_loop(), peers=SimpleNamespace(executors={}), after_turn=lambda done: done()
        )
        contents = SimpleNamespace(last_seen=lambda _: None, note=lambda *_: None)
        self.files = SiteFiles(shell, SimpleNamespace(), contents, str(folder))  # type: ignore[arg-type]
        for number in (1, 2):
            peer = SimpleNamespace(
                number=number, is_relay=False, leaving="", hello=SimpleNamespace(site="alpha", host="h")
            )

            def send(message: SeeSiteFile, peer: Any = peer) -> None:
                self.asked.append(peer.number)
                if comes >= 0:
                    self.files.seen(peer, SiteFileSeen(message.request, size=comes, comes=True))
                if peer.number in answering:
                    answer = SiteFileSeen(message.request, b"d" * DIGEST, 4)
                    shell.loop.call_later(0.2, self.files.seen, peer, answer)

            peer.connection = SimpleNamespace(send=send)
            shell.peers.executors[number] = peer


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_files, "_SILENT", 0.05)


@pytest.mark.usefixtures("impatient")
def test_when_nobody_answers_it_is_said_once_each_was_asked_twice(tmp_path: Path) -> None:
    async def ask() -> list[int]:
        site = Silent(tmp_path, set())
        with pytest.raises(SiteError, match=r"/x lies at alpha, and 2 executors there \(1, 2\) did not answer") as told:
            await site.files.see("alpha:/x")
        assert told.value.transient
        return site.asked

    assert asyncio.run(ask()) == [1, 2, 1, 2]


@pytest.mark.usefixtures("impatient")
def test_when_nobody_answers_the_server_reads_it_if_it_can(tmp_path: Path) -> None:
    async def ask() -> list[int]:
        async def fetch(site: str, path: str, target: str, known: str) -> SentFile:
            raise SiteError("the site is away", transient=True)

        site = Silent(tmp_path, set())
        site.files.fetch = fetch
        with pytest.raises(SiteError, match=r"did not answer .* and the server cannot: the site is away"):
            await site.files.see("alpha:/x")
        return site.asked

    assert asyncio.run(ask()) == [1, 2]


@pytest.mark.usefixtures("impatient")
def test_one_that_says_again_and_again_that_it_reads_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_files, "_LONGEST", 0.5)

    async def ask() -> list[int]:
        site, over = Silent(tmp_path, {2}, comes=1 << 62), asyncio.Event()
        first = site.files._shell.peers.executors[ExecutorId(1)]

        async def say() -> None:
            while not over.is_set():
                for number in list(site.files._asked):
                    site.files.seen(first, SiteFileSeen(number, size=1 << 62, comes=True))
                await asyncio.sleep(0.01)

        saying = asyncio.create_task(say())
        async with asyncio.timeout(20):
            assert (await site.files.see("alpha:/x")).size == 4
        over.set()
        await saying
        return site.asked

    assert asyncio.run(ask()) == [1, 2]


@pytest.mark.usefixtures("impatient")
def test_one_that_says_how_much_there_is_has_the_time_to_read_it(tmp_path: Path) -> None:
    async def ask() -> list[int]:
        site = Silent(tmp_path, {1}, comes=100_000_000)
        assert (await site.files.see("alpha:/x")).size == 4
        return site.asked

    assert asyncio.run(ask()) == [1]
