"""What the server knows of URLs: which content was there, and which executor fetches it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bough.model.ids import ExecutorId, RecordId, SpanId
from bough.server.files import url_contents
from bough.server.files.url_contents import PATIENCE, Fetcher, SeenContent, UrlContents

URL = "http://h/x"
ONE = Fetcher(ExecutorId(1), SpanId(1), 0, RecordId(11))
TWO = Fetcher(ExecutorId(2), SpanId(2), 0, RecordId(12))


def contents(folder: Path, gone: set[Fetcher] | None = None) -> UrlContents:
    files: Any = None
    return UrlContents(files, str(folder), lambda one: one not in (gone or ()))


def test_a_content_is_known_by_its_mark_and_no_other(tmp_path: Path) -> None:
    urls = contents(tmp_path)
    urls.note(URL, SeenContent(b"m", b"d" * 32, 5))
    assert urls.content(URL, b"m") == (b"d" * 32, 5)
    assert urls.content(URL, b"n") is None
    assert urls.content("http://h/y", b"m") is None
    urls.note(URL, SeenContent(b"n", b"e" * 32, 6))
    assert urls.content(URL, b"m") is None
    assert urls.last_content(URL) == (b"e" * 32, 6)


def test_what_has_no_mark_is_never_known(tmp_path: Path) -> None:
    urls = contents(tmp_path)
    urls.note(URL, SeenContent(b"", b"d" * 32, 5))
    assert urls.content(URL, b"") is None
    assert urls.last_content(URL) is None


def test_the_next_server_of_a_store_knows_it_too(tmp_path: Path) -> None:
    contents(tmp_path).note(URL, SeenContent(b"\xff\0m", b"d" * 32, 5))
    assert contents(tmp_path).content(URL, b"\xff\0m") == (b"d" * 32, 5)
    kept = tmp_path / "seen-urls"
    kept.write_bytes(kept.read_bytes().replace(b"ff006d", b"ff00xx"))
    assert contents(tmp_path).content(URL, b"\xff\0m") is None


def test_one_executor_fetches_until_it_has_or_has_its_task_no_more(tmp_path: Path) -> None:
    gone: set[Fetcher] = set()
    urls = contents(tmp_path, gone)
    assert urls.begin(URL, b"m", ONE, 0.0)
    assert not urls.begin(URL, b"m", TWO, 0.0)
    assert urls.begin(URL, b"n", TWO, 0.0)  # it has changed meanwhile
    assert urls.begin(URL, b"m", ONE, 0.0)  # it asks again
    gone.add(ONE)
    assert urls.begin(URL, b"m", TWO, 0.0)
    gone.clear()
    assert not urls.begin(URL, b"m", ONE, 0.0)
    urls.lost(ExecutorId(2))
    assert urls.begin(URL, b"m", ONE, 0.0)


def test_fetches_that_failed_and_that_nobody_asks_for_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(url_contents, "_MOST_FETCHES", 2)
    urls = contents(tmp_path, gone={ONE})
    for number in range(5):
        assert urls.begin(f"http://h/{number}", b"m", ONE, 0.0)
    assert len(urls._fetches) <= 2


def test_those_that_wait_hear_of_its_end_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_contents, "_LOOK", 600.0)

    async def run() -> None:
        urls = contents(tmp_path)
        urls.begin(URL, b"m", ONE, 0.0)
        waiting = asyncio.create_task(urls.wait(URL, b"m"))
        await asyncio.sleep(0)
        urls.end("http://h/y", ONE)
        urls.end(URL, TWO)
        await asyncio.sleep(0)
        assert not waiting.done()
        urls.end(URL, ONE)
        await asyncio.wait_for(waiting, 60)
        await urls.wait(URL, b"m")  # nobody fetches it

    asyncio.run(run())


def test_a_task_that_runs_waits_a_moment_for_what_comes_early_elsewhere(tmp_path: Path) -> None:
    urls = contents(tmp_path)
    early = ONE._replace(early=True)
    assert urls.begin(URL, b"m", early, 0.0)
    assert not urls.begin(URL, b"m", TWO._replace(early=True), 1000.0)  # nobody waits for that one
    assert not urls.begin(URL, b"m", TWO, 1000.0)
    assert not urls.begin(URL, b"m", TWO, 1000.0 + PATIENCE - 0.1)
    assert urls.begin(URL, b"m", TWO, 1000.0 + PATIENCE)
    assert not urls.begin(URL, b"m", early, 5000.0)  # a task runs that fetches it
    urls.end(URL, early)  # it has come there in the end
    assert not urls.begin(URL, b"m", early, 5000.0)


def test_what_comes_early_for_a_task_is_left_to_it_at_once_when_it_begins(tmp_path: Path) -> None:
    urls = contents(tmp_path)
    assert urls.begin(URL, b"m", ONE._replace(span=SpanId(0), early=True), 0.0)  # announced
    assert urls.begin(URL, b"m", ONE._replace(early=True), 0.0)  # placed there
    assert urls.begin(URL, b"m", ONE, 0.0)  # it runs
    assert not urls.begin(URL, b"m", TWO, 1000.0)
    urls.end(URL, ONE._replace(early=True))
    assert urls.begin(URL, b"m", TWO, 1000.0)
