"""Where things are shown: notebooks, terminals, and what the environment says."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable

import pytest

from bough.api.display.surroundings import after_each_cell, environment_switch, is_watched_by_people, notebook
from bough.api.session import launch
from bough.errors import UserError


class Terminal:
    def isatty(self) -> bool:
        return True


def test_a_notebook_is_found_by_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert notebook() is None
    module, shell = types.ModuleType("IPython"), types.SimpleNamespace()
    module.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert notebook() is None  # IPython at a terminal
    shell.kernel = object()
    assert notebook() is shell
    assert launch.shows_progress(None)
    assert not launch.shows_progress(False)


def test_something_is_called_at_the_end_of_each_cell_until_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    after_each_cell(lambda: called.append("here"))()  # no notebook: nothing to end

    class Events:
        def __init__(self) -> None:
            self.callbacks: dict[str, list[Callable[[object], None]]] = {"post_run_cell": []}

        def register(self, event: str, function: Callable[[object], None]) -> None:
            self.callbacks[event].append(function)

        def unregister(self, event: str, function: Callable[[object], None]) -> None:
            self.callbacks[event].remove(function)

    events = Events()
    module = types.ModuleType("IPython")
    module.get_ipython = lambda: types.SimpleNamespace(kernel=object(), events=events)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)
    leave = after_each_cell(lambda: called.append("cell"))
    events.callbacks["post_run_cell"][0]("what IPython says of the cell")
    leave()
    assert (called, events.callbacks) == (["cell"], {"post_run_cell": []})


def test_tests_pipes_and_a_ci_get_no_picture_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_watched_by_people(Terminal(), {})  # type: ignore[arg-type] # pytest is loaded
    monkeypatch.delitem(sys.modules, "pytest")
    assert is_watched_by_people(Terminal(), {})  # type: ignore[arg-type]
    assert not is_watched_by_people(Terminal(), {"CI": "true"})  # type: ignore[arg-type]
    assert not is_watched_by_people(Terminal(), {"TERM": "dumb"})  # type: ignore[arg-type]


def test_the_environment_and_the_argument_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, meant in (("1", True), ("0", False), ("off", False), ("", None)):
        monkeypatch.setenv("BOUGH_PROGRESS", said)
        assert environment_switch("BOUGH_PROGRESS") is meant
        assert launch.shows_progress(None) is bool(meant)
        assert launch.shows_progress(True)
        with launch.run_defaults(has_display=True):
            assert not launch.shows_progress(True)  # bough run has a display of its own
    with pytest.raises(UserError, match="progress is 3; give True or False"):
        launch.shows_progress(3)
