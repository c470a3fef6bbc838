"""Attributes of executors reach the core: said by their users, through a relay, and by emulated ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from relay_site import Site
from service_client import until

import bough
from bough.api.session.session import opened_sessions


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    (tmp_path / "work-here").mkdir()
    monkeypatch.chdir(tmp_path / "work-here")
    made = Site(tmp_path)
    yield made
    made.clean_up()
    opened_sessions.clear()


def test_tasks_find_the_executors_behind_a_relay_that_they_require(site: Site) -> None:
    relay = site.relay(site.begin(), "127.0.0.1:0", "--dispatch", "--reconnect", "2s")
    for rack in ("3", "7"):
        site.executor("--server", str(relay.access), "--attribute", f"rack={rack}", cores=1, joined=False)
    with bough.Session(f"unix:{site.address}", name="racks", on_failure="ignore") as session:
        tasks = [session.command("echo", requires=f"rack == {rack} and arch and cores >= 1") for rack in (3, 7, 3)]
        assert [task.result(60).returncode for task in tasks] == [0, 0, 0]
        vain = session.command("echo", requires="rack == 8")
        until(lambda: "requires rack == 8: local has" in vain.explain(), "the reason to be known")
        assert "local has 3" in vain.explain()
        assert "local has 7" in vain.explain()
        vain.cancel()


def test_emulated_executors_have_attributes_too(site: Site) -> None:
    site.begin()
    words = ("--emulate", "3", "--attribute", "rack=7", "--attribute", "network=infiniband")
    site.executor(*words, cores=1, joined=False)
    with bough.Session(f"unix:{site.address}", name="emulated") as session:
        done = session.options(requires="network == 'infiniband' and rack == 7", sites=["emulated"])
        assert done.command("sleep 0").result(60).returncode == 0
