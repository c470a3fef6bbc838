"""Where an executor offers its contents to others."""

from __future__ import annotations

import socket

import pytest

from bough.executor.server_connection import ServerConnection


@pytest.fixture(autouse=True)
def by_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "203.0.113.9 50123 10.4.5.6 22")


def test_a_unix_socket_is_the_servers_own_unless_ssh_is_said_to_forward_it() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = ServerConnection(ours)
        assert connection.own_address() == "127.0.0.1"  # whoever logged in by SSH before
        assert connection.own_address("ssh") == "10.4.5.6"
        assert connection.own_address("192.168.7.7") == "192.168.7.7"


def test_who_comes_by_tcp_offers_the_address_on_its_way() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as sock,
    ):
        connection = ServerConnection(sock)
        for told in ("", "ssh"):  # a compute node behind its head node, which SSH reached
            assert connection.own_address(told) == "127.0.0.1"
        assert connection.own_address("192.168.7.7") == "192.168.7.7"
