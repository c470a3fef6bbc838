"""What the server knows of URLs: which content was there, and which executor fetches it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bough.model.ids import ExecutorId, SpanId
from bough.server.files import url_contents
from bough.server.files.url_contents import Fetcher, SeenContent, UrlContents

URL = "http://h/x"
ONE, TWO = Fetcher(ExecutorId(1), SpanId(1), 0), Fetcher(ExecutorId(2), SpanId(2), 0)


def contents(gone: set[Fetcher] | None = None) -> UrlContents:
    files: Any = None
    return UrlContents(files, "", lambda one: one not in (gone or ()))


def test_a_content_is_known_by_its_mark_and_no_other() -> None:
    urls = contents()
    urls.note(URL, SeenContent(b"m", b"d" * 32, 5))
    assert urls.content(URL, b"m") == (b"d" * 32, 5)
    assert urls.content(URL, b"n") is None
    assert urls.content("http://h/y", b"m") is None
    urls.note(URL, SeenContent(b"n", b"e" * 32, 6))
    assert urls.content(URL, b"m") is None
    assert urls.last_content(URL) == (b"e" * 32, 6)


def test_what_has_no_mark_is_never_known() -> None:
    urls = contents()
    urls.note(URL, SeenContent(b"", b"d" * 32, 5))
    assert urls.content(URL, b"") is None
    assert urls.last_content(URL) is None


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_contents, "_SEEN", 2)
    urls = contents()
    for number in range(3):
        urls.note(f"http://h/{number}", SeenContent(b"m", b"d" * 32, number))
    assert [urls.last_content(f"http://h/{number}") is not None for number in range(3)] == [False, True, True]


def test_one_executor_fetches_until_it_has_or_has_its_task_no_more() -> None:
    gone: set[Fetcher] = set()
    urls = contents(gone)
    assert urls.begin(URL, b"m", ONE)
    assert not urls.begin(URL, b"m", TWO)
    assert urls.begin(URL, b"n", TWO)  # it has changed meanwhile
    assert urls.begin(URL, b"m", ONE)  # it asks again
    gone.add(ONE)
    assert urls.begin(URL, b"m", TWO)
    gone.clear()
    assert not urls.begin(URL, b"m", ONE)
    urls.lost(ExecutorId(2))
    assert urls.begin(URL, b"m", ONE)


def test_fetches_that_failed_and_that_nobody_asks_for_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_contents, "_SEEN", 2)
    urls = contents(gone={ONE})
    for number in range(5):
        assert urls.begin(f"http://h/{number}", b"m", ONE)
    assert len(urls._fetches) <= 2


def test_those_that_wait_hear_of_its_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_contents, "_LOOK", 600.0)

    async def run() -> None:
        urls = contents()
        urls.begin(URL, b"m", ONE)
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
