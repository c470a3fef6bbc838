"""Defaults of a run: what is given counts for all sessions that are opened meanwhile, and for no others."""

from __future__ import annotations

import threading

import pytest

from bough.api.session.launch import RunDefaults, defaults, reuse_mode, run_defaults, server_address, setting
from bough.errors import UserError


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
    assert defaults() == RunDefaults()


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


def test_a_session_resumes_unless_it_or_the_run_says_otherwise() -> None:
    assert reuse_mode(None, None) == "resume"
    assert reuse_mode(None, True) == reuse_mode("never", True) == "never"
    with run_defaults({"reuse": "always"}):
        assert [reuse_mode(None, None), reuse_mode("resume", None), reuse_mode(None, True)] == [
            "always",
            "resume",
            "never",
        ]
    with run_defaults({"fresh": True}):
        assert [reuse_mode(None, None), reuse_mode("always", False)] == ["never", "always"]
    with pytest.raises(UserError, match="contradict"):
        reuse_mode("resume", True)
    with pytest.raises(UserError, match="fresh is 'yes'; give True or False"):
        reuse_mode(None, "yes")
