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
