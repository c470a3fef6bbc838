"""Which addresses a host offers to those who do not know its name."""

from __future__ import annotations

import ipaddress

import pytest

from bough.transport import own_addresses
from bough.transport.own_addresses import own_addresses as found_here


def test_loopback_is_not_offered_and_private_networks_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_addresses, "_of_interfaces", lambda: ["127.0.0.1", "8.8.4.4", "10.1.2.3"])
    monkeypatch.setattr(own_addresses, "_of_name", lambda: ["127.0.1.1", "10.1.2.3", "192.168.7.7"])
    assert found_here() == ["10.1.2.3", "192.168.7.7", "8.8.4.4"]


def test_what_this_host_has_can_be_asked_for() -> None:
    assert all(not ipaddress.IPv4Address(address).is_loopback for address in found_here())


def test_a_host_whose_name_nobody_knows_has_addresses_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_addresses.socket, "gethostname", lambda: "nowhere.invalid")
    assert own_addresses._of_name() == []


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("203.0.113.9 50123 10.4.5.6 22", "10.4.5.6"),
        ("2001:db8::1 50123 2001:db8::2 22", "2001:db8::2"),
        ("127.0.0.1 50123 127.0.0.1 22", "127.0.0.1"),  # this very host: nothing listens beyond it
        ("fe80::1%eth0 50123 fe80::2%eth0 22", "192.168.7.7"),  # of use with an interface's name only
        ("UNKNOWN 65535 UNKNOWN 65535", "192.168.7.7"),
        ("", "192.168.7.7"),
    ],
)
def test_who_came_by_ssh_offers_the_address_at_which_it_came(
    said: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", said)
    monkeypatch.setattr(own_addresses, "own_addresses", lambda: ["192.168.7.7", "8.8.4.4"])
    assert own_addresses.reached_by_ssh() == address


def test_a_host_without_addresses_serves_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setattr(own_addresses, "own_addresses", list)
    assert own_addresses.reached_by_ssh() == "127.0.0.1"
