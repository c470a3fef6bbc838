"""What is said when a host asks, and by which command its user logs in."""

from __future__ import annotations

import socket
from pathlib import Path

from bough.model.sites.site_specs import SiteSpec
from bough.sites.engines.cluster_site import DaskSite
from bough.sites.head.ssh_connection import SshConnection, explain_ssh
from bough.sites.site_kind import TakesLogin
from bough.sites.ssh_site import SshSite

DENIED = b"me@lab: Permission denied (publickey,keyboard-interactive).\n"


def test_a_host_that_asks_is_named_with_the_command_to_log_in() -> None:
    said = explain_ssh(DENIED, "lab", "bough site login lab")
    assert said == "lab wants a password or a second factor: bough site login lab"
    many = explain_ssh(b"Received disconnect: Too many authentication failures\n", "lab", "bough site login lab")
    assert many == said
    assert "Host key" not in said
    key = explain_ssh(b"Host key verification failed.\n" + DENIED, "lab", "bough site login lab")
    assert key.startswith("the host key of lab is not known")


def test_the_command_is_interactive_and_ends_with_the_host(tmp_path: Path) -> None:
    control = str(tmp_path / "control")
    connection = SshConnection("me@lab", "", control, lambda: None)
    words = connection.login_words()
    assert words[:3] == ["ssh", "-S", control]
    assert words[-3:] == ["--", "me@lab", "exec true"]
    assert "ControlMaster=yes" in words
    assert "BatchMode=yes" not in words
    assert not any("StrictHostKeyChecking" in word for word in words)
    Path(control).touch()  # left by somebody: nobody answers there
    assert connection.login_words() == words


def test_where_a_master_answers_no_login_is_needed(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as master:
        master.bind(str(tmp_path / "c"))
        master.listen()
        assert SshConnection("lab", "", str(tmp_path / "c"), lambda: None).login_words() == []


def test_only_kinds_that_ssh_reaches_take_a_login() -> None:
    assert issubclass(SshSite, TakesLogin)
    assert not issubclass(DaskSite, TakesLogin)
    assert SiteSpec().address == ""
