"""A minute of attacks on a real server, as every role, and the single messages that once ended one."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from bough.wire.client_messages import VERSION
from bough.wire.framing import frame_list
from tests.fuzz.fuzz_roles import ROLES, Target, assault, attacker

SECONDS = float(os.environ.get("BOUGH_FUZZ_SECONDS", "60"))
SEED = int(os.environ.get("BOUGH_FUZZ_SEED", "1"))
_BIG = 2**63
_CASES: list[tuple[str, Any]] = [
    ("read", ["ask", 1, ["output", 1, 0, "stdout", 0, 10, "\0"]]),
    ("read", ["ask", 1, ["output", 1, 0, "stdout", _BIG]]),
    ("read", ["ask", 1, ["output", 1, 0, "stdout", 2**62]]),
    ("read", ["ask", 1, ["fed", 2**64 - 1]]),
    ("read", ["ask", 1, ["fed", 2**62, 2**62]]),
    ("read", ["ask", 1, ["piece", b"", "\0"]]),
    ("read", ["ask", 1, ["piece", b"", "x", 2**62]]),
    ("read", ["ask", 1, ["sql", "select ?", [2**64 - 1]]]),
    ("submit", ["act", 1, ["can", [0, 2**64 - 1, 0]]]),
    ("submit", ["act", 1, ["pri", [0, 1, 0], _BIG]]),
    ("submit", ["act", 1, ["pri", [0, 1, 0], 2**62]]),
    ("submit", ["act", 1, ["can", [0, 2**62, 2**62]]]),
    ("execute", ["rep", 1, [["es", 1, 0, [0.5], [b"", b""]]]]),
    ("execute", ["rep", 1, [["e", 1, 0, 1, float("nan")]]]),
    ("execute", ["rep", 1, [["e", 1, 0, 1, float("inf")]]]),
    ("execute", ["rep", 1, [["e", 1, 0, 2**62, 1.0]]]),
    ("execute", ["rep", _BIG, []]),
    ("execute", ["rep", 1, [["f", 1, 0, ["exit", "", _BIG]]]]),
    ("execute", ["size", [float("nan")], 1, [1.0]]),
    ("member", ["xh", VERSION, "site", "host", 1, [float("nan")], "3.11"]),
    ("execute", ["xh", VERSION, "site", "host", _BIG, [float("inf")], "3.11"]),
]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    made = Target(tmp_path_factory.mktemp("fuzz"))
    yield made
    made.close()


@pytest.mark.parametrize(("role", "message"), _CASES)
def test_a_message_that_once_ended_a_server_concerns_its_sender(target: Target, role: str, message: Any) -> None:
    one = attacker(target, role, random.Random(1))
    one.connect()
    one.say(bytes(frame_list([message])))
    one.hang_up()
    other = attacker(target, "read", random.Random(2))
    other.connect()
    assert other.say(bytes(frame_list([["ask", 1, ["status"]]])))
    while not other.counts["heard Answer"]:
        assert other.drain()
    other.hang_up()
    assert target.server.poll() is None
    assert target.relay.poll() is None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("role", ROLES)
def test_nothing_a_role_says_ends_a_process_or_harms_somebody_else(target: Target, role: str) -> None:
    counts = assault(target, role, 10**9, SECONDS / len(ROLES), random.Random(f"{SEED} {role}"))
    assert counts["messages"] > 50


@pytest.mark.timeout(300)
def test_the_store_is_whole_after_all_that(target: Target) -> None:
    target.comes_back()
