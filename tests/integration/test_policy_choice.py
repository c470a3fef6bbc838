"""The placement policy is the server's: who names another one is told, and the records have the one that serves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_client import Service, until

import bough
from bough.transport import home


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    made = Service(tmp_path)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("BOUGH_HOME", str(made.home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield made
    made.clean_up()


def recorded(service: Service) -> dict[str, str]:
    """The policies of workflows, by name, as the jobs database has them."""
    rows = json.loads(service.bough("sql", "select name, policy from runs", "--json").stdout)
    return {str(row["name"]): str(row["policy"]) for row in rows}


def test_a_session_is_told_when_the_server_places_tasks_otherwise(service: Service) -> None:
    service.start("--policy", "storage-affinity:tie=round-robin")
    service.executor()
    address = f"unix:{service.address}"
    for wanted in ("bough", "storage-affinity"):
        with pytest.raises(bough.UserError, match="started with 'storage-affinity:tie=round-robin'") as raised:
            bough.Session(address, name="other", policy=wanted)
        assert "\n" not in str(raised.value)
    with pytest.raises(bough.UserError, match=r"there is no placement policy 'storage-afinity'.*did you mean"):
        bough.Session(address, name="typo", policy="storage-afinity")
    with pytest.raises(bough.UserError, match="tie is 'first'; it must be last, random, round-robin or least-loaded"):
        bough.Session(address, name="typo", policy="storage-affinity:tie=first")
    for name, policy in (("none", None), ("same", "storage-affinity:tie=round_robin")):
        with bough.Session(address, name=name, policy=policy, progress=False) as s:
            s.submit(abs, -1).result(60)
    with pytest.raises(bough.UserError, match="the server was started with 'storage-affinity:cap=100'"):
        bough.Session(address, name="none", replication="none")
    Path("list.txt").write_text("true\n")
    refused = service.bough("run", "--server", address, "--policy", "fifo", "list.txt", check=False)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "the placement policy is 'fifo', but the server was started with" in refused.stderr
    service.bough("run", "--server", address, "list.txt")
    assert recorded(service) == dict.fromkeys(("server", "none", "same", "list"), "storage-affinity:tie=round-robin")


def test_a_session_that_names_sites_starts_its_server_with_its_policies(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    with pytest.raises(bough.UserError, match="there is no placement policy 'wrq'"):
        bough.Session(sites=["local", "lab"], policy="wrq")
    assert home.read_note() is None
    with pytest.raises(bough.UserError, match="there is no site 'lab'"):  # but its server is there
        bough.Session(sites=["local", "lab"], policy="wqr:cap=2")
    note = home.read_note()
    assert note is not None
    try:
        with bough.Session(f"unix:{note.socket}", name="w", policy="wqr:cap=2", replication="wqr:cap=2"):
            assert recorded(service) == {"server": "wqr:cap=2", "w": "wqr:cap=2"}
    finally:
        with contextlib.suppress(ProcessLookupError):  # it ends by itself, too
            os.kill(note.pid, signal.SIGTERM)
    until(lambda: home.read_note() is None, "the end of the server")
