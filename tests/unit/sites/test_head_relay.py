"""The relay on a head node, as the server sees it: what is asked for there, and what is not said twice."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bough.model.sites.site_specs import SiteSpec
from bough.sites.head import far_side
from bough.sites.head.head_relay import HeadRelay, listen_address


class Host:
    """Does errands, and notes them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes, dict[str, object]]] = []

    async def __call__(self, what: str, load: bytes = b"", patience: float = 30.0, **fields: object) -> dict[str, Any]:
        await asyncio.sleep(0.01 if what == "rest_relay" else 0.0)
        self.asked.append((what, load, fields))
        return {"access": "/home/u/nodes.json", "address": "head:7071", "linked": True} if what == "relay" else {}


@pytest.mark.parametrize(
    ("said", "listens"),
    [
        ("", "0.0.0.0:0"),
        ("head-ib0", "head-ib0:0"),
        ("10.1.0.1", "10.1.0.1:0"),
        ("10.1.0.1:7071", "10.1.0.1:7071"),
        ("[fd00::1]", "[fd00::1]:0"),
        ("[fd00::1]:7071", "[fd00::1]:7071"),
    ],
)
def test_it_listens_where_the_definition_says(said: str, listens: str) -> None:
    assert msgspec.convert({"relay_address": said}, SiteSpec).relay_address == said
    assert listen_address(said) == listens


@pytest.mark.parametrize("said", ["a b", "-x y", "host:port", "host:123456", "a/b", "unix:/x", "[::1", "x\n"])
def test_what_is_no_address_is_refused(said: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"relay_address": said}, SiteSpec)


def test_its_certificate_travels_behind_the_request_and_nothing_secret_is_a_word() -> None:
    host = Host()
    relay = HeadRelay("alpha", "10.1.0.1", host, lambda: "d1gest", give_up=60.0)
    assert asyncio.run(relay.ensure()) == relay.access == "/home/u/nodes.json"
    assert relay.address == "head:7071"
    [(what, load, fields)] = host.asked
    assert (what, fields) == (
        "relay",
        {"digest": "d1gest", "words": ["--listen", "10.1.0.1:0", "--site", "alpha", "--give-up", "60"]},
    )
    sent = json.loads(load)
    assert ssl.PEM_cert_to_DER_cert(sent["certificate"])
    assert sent["key"].startswith("-----BEGIN PRIVATE KEY-----")


def test_it_is_started_again_only_if_it_has_died() -> None:
    host = Host()
    relay = HeadRelay("alpha", "", host, lambda: "d1gest")

    async def look() -> None:
        for state in ("alive", "", "dead"):
            await relay.mend({"relay": state})
        await relay.end()

    asyncio.run(look())
    assert [what for what, *_ in host.asked] == ["relay", "end_relay"]


def test_it_rests_without_pilots_and_the_next_one_wakes_it_once() -> None:
    host = Host()
    relay = HeadRelay("alpha", "", host, lambda: "d1gest")

    async def live() -> None:
        await relay.ensure()
        await relay.wake()
        await relay.rest()
        await asyncio.gather(relay.wake(), relay.wake())

    asyncio.run(live())
    assert [what for what, *_ in host.asked] == ["relay", "rest_relay", "relay"]


def test_a_pilot_that_comes_while_it_is_ended_waits_and_has_a_relay() -> None:
    host = Host()
    relay = HeadRelay("alpha", "", host, lambda: "d1gest")

    async def live() -> None:
        await relay.ensure()
        resting = asyncio.create_task(relay.rest())
        await asyncio.sleep(0)
        await relay.wake()
        await resting

    asyncio.run(live())
    assert [what for what, *_ in host.asked] == ["relay", "rest_relay", "relay"]


def note_relay(process: subprocess.Popen[bytes], connections: int) -> Path:
    """Have it look as if that process were the relay of this host; the file in which it says how many are behind it."""
    home = Path(far_side.private_folder(os.path.join(far_side.site_folder("k"), "relays", socket.gethostname())))
    (home / "relay").mkdir()
    note = {"pid": process.pid, "began": far_side._began(process.pid)}
    (home / "note.json").write_text(json.dumps(note))
    said = home / "relay" / "relay.json"
    said.write_text(json.dumps({"pid": process.pid, "connections": connections}))
    return said


@pytest.mark.parametrize(("connections", "stays"), [(0, False), (1, True)])
def test_the_host_ends_it_only_if_nobody_is_behind_it(
    connections: int, stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        note_relay(process, connections)
        try:
            far_side.rest_relay({"key": "k"})
            assert (process.poll() is None) is stays
            assert far_side.relay_state("k") == ("alive" if stays else "")  # "dead" would be started again
        finally:
            process.kill()


def test_the_host_waits_for_what_the_relay_says_of_an_executor_that_just_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        said = note_relay(process, 1)
        looks = []

        def left(seconds: float) -> None:
            looks.append(seconds)
            said.write_text(json.dumps({"pid": process.pid, "connections": 0}))

        monkeypatch.setattr(far_side.time, "sleep", left)
        try:
            far_side.rest_relay({"key": "k"})
            assert looks
            assert far_side.relay_state("k") == ""
        finally:
            process.kill()
