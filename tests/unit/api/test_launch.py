"""Defaults of a run: what is given counts for all sessions that are opened meanwhile, and for no others."""

from __future__ import annotations

import threading

import pytest

from bough.api.session.launch import defaults, run_defaults, server_address, setting


def test_an_argument_wins_over_the_run_and_the_run_over_the_default() -> None:
    with run_defaults({"policy": "sjf", "cores": None}):
        assert setting("policy", "fifo", "other") == "fifo"
        assert setting("policy", None, "other") == "sjf"
        assert setting("cores", None, 3) == 3
    assert setting("policy", None, "other") == "other"


def test_inner_defaults_add_to_outer_ones_and_go_with_their_block() -> None:
    with run_defaults({"name": "outer", "fresh": True}, describes=True):
        with run_defaults({"name": "inner"}, detaches=True):
            now = defaults()
            assert (now.options, now.describes, now.detaches) == ({"name": "inner", "fresh": True}, True, True)
        assert (defaults().options["name"], defaults().detaches) == ("outer", False)
    assert defaults() == ({}, False, False, False)


def test_an_exception_takes_the_defaults_along() -> None:
    with pytest.raises(KeyError), run_defaults({"name": "failed"}):
        raise KeyError
    assert defaults().options == {}


def test_other_threads_see_the_defaults() -> None:
    seen: list[object] = []
    with run_defaults({"name": "seen"}):
        thread = threading.Thread(target=lambda: seen.append(setting("name", None)))
        thread.start()
        thread.join()
    assert seen == ["seen"]


def test_the_address_of_a_server_is_as_given_or_as_the_run_says_or_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BOUGH_SERVER", "unix:environment")
    assert server_address(None) == "unix:environment"
    with run_defaults({"server": "unix:run"}):
        assert server_address(None) == "unix:run"
        assert server_address("unix:given") == "unix:given"
