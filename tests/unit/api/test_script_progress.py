"""Progress in scripts and notebooks: texts in place, nothing in the first moment, one display for all sessions."""

from __future__ import annotations

import sys
import threading
import types
from collections import Counter
from typing import Self

import pytest

from bough.api.display import script_progress
from bough.api.display.progress_display import Display, Picture, PlainDisplay
from bough.api.display.script_progress import NotebookDisplay, text_of
from bough.api.futures.progress import Progress
from bough.model.states import TaskState


class FakeSession:
    """What a display looks at."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.progress = Progress()
        self.progress.added(0, 4)
        self.progress.moved(0, 0, TaskState.DONE, 1)


class Notebook:
    """IPython's display, as far as it is used."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Notebook:
        assert raw
        assert display_id
        self.shown = [data["text/plain"]]
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        self.shown.append(data["text/plain"])


def test_a_picture_as_text() -> None:
    picture = Picture({"": Counter(waiting=2, running=1, done=1)}, seconds=2, rate=0.5, title="w")
    first, second = text_of(picture).splitlines()
    assert first == "w: 2 waiting, 1 running, 1 done"
    assert second == "[#######.......................] 1/4, 2.0 s, 0.5 tasks/s, about 6.0 s left"


def test_a_notebook_has_one_text_that_is_updated_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook, module = Notebook(), types.ModuleType("IPython.display")
    module.display = notebook.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    watched = script_progress._OpenSessions()
    session = FakeSession("cells")
    watched.sessions.append(session)  # type: ignore[arg-type]
    display = NotebookDisplay(watched)
    display.look(watched.picture())
    session.progress.moved(0, 0, TaskState.DONE, 3)
    display.end()
    assert notebook.shown[0].startswith("cells: 3 to do, 1 done\n")
    assert notebook.shown[-1].startswith("cells: 4 done in ")


def test_one_display_serves_all_sessions_and_ends_with_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), []

    class Spy(Display):
        def __enter__(self) -> Self:
            begun.set()
            return self

        def __exit__(self, *_: object) -> None:
            ended.append(self._watched.picture().title)

    monkeypatch.setattr(script_progress, "MOMENT", 0.0)
    monkeypatch.setattr(script_progress, "_choose", lambda: Spy(script_progress._watched))
    one, two = FakeSession("one"), FakeSession("two")
    script_progress.add(one)  # type: ignore[arg-type]
    script_progress.add(two)  # type: ignore[arg-type]
    assert begun.wait(30)
    script_progress.remove(one)  # type: ignore[arg-type]
    assert ended == []
    script_progress.remove(two)  # type: ignore[arg-type]
    script_progress.remove(two)  # type: ignore[arg-type]
    assert ended == ["two"]


def test_a_session_that_ends_within_the_moment_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Spy(Display):
        def __enter__(self) -> Self:
            shown.append("begun")
            return self

    monkeypatch.setattr(script_progress, "MOMENT", 3600.0)
    monkeypatch.setattr(script_progress, "_choose", lambda: Spy(script_progress._watched))
    session = FakeSession("short")
    script_progress.add(session)  # type: ignore[arg-type]
    script_progress.remove(session)  # type: ignore[arg-type]
    assert shown == []


def test_without_a_terminal_there_are_plain_lines() -> None:
    assert isinstance(script_progress._choose(), PlainDisplay)
