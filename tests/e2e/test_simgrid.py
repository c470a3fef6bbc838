"""Our links against SimGrid's on random platforms: the same transfers end at the same times (needs python3-simgrid)."""

from __future__ import annotations

import json
import random
import subprocess
from math import inf
from pathlib import Path
from typing import Any

import pytest

from bough.sim.platforms.network import Link
from bough.sim.platforms.platform import read_platform

SYSTEM_PYTHON = "/usr/bin/python3"
DRIVER = Path(__file__).with_name("simgrid_driver.py")


@pytest.fixture(scope="module", autouse=True)
def _simgrid() -> None:
    try:
        found = subprocess.run([SYSTEM_PYTHON, "-c", "import simgrid"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("the system has no Python of its own")
    if found.returncode:
        pytest.skip("SimGrid is not installed: apt-get install python3-simgrid")


def random_platform(seed: int) -> dict[str, Any]:
    """Hosts, links of several speeds and lengths, a route for each pair of hosts, transfers that overlap."""
    dice = random.Random(seed)
    hosts = dice.randint(4, 10)
    links = [
        (
            f"l{number}",
            dice.choice([1.25e6, 12.5e6, 125e6]) * dice.uniform(0.5, 1.5),
            dice.choice([1e-4, 1e-3, 2e-2]) * dice.uniform(0.5, 1.5),
        )
        for number in range(dice.randint(3, 8))
    ]
    routes = [
        (one, other, [link[0] for link in dice.sample(links, dice.randint(1, 3))])
        for one in range(hosts)
        for other in range(one + 1, hosts)
    ]
    transfers = []
    for _ in range(dice.randint(10, 60)):
        one, other = dice.sample(range(hosts), 2)
        start = round(dice.uniform(0, 20), 3) if dice.random() < 0.7 else 0.0
        transfers.append((start, one, other, dice.randint(10**5, 10**8)))
    return {"hosts": hosts, "links": links, "routes": routes, "transfers": transfers}


def our_ends(asked: dict[str, Any], fairness: str = "rtt") -> list[float]:
    """When the transfers of a platform end by our own reckoning, with a rule that a user's platform can have."""
    links = {name: Link(name, bandwidth, latency) for name, bandwidth, latency in asked["links"]}
    routes = {(one, other): [links[name] for name in route] for one, other, route in asked["routes"]}
    network = read_platform(f'[site.a]\n[transfers]\nfairness = "{fairness}"\n').network()
    ends: dict[int, float] = {}

    def pass_to(when: float) -> None:
        while (next_one := network.next_time()) is not None and next_one <= when:
            for transfer in network.advance(next_one):
                assert isinstance(transfer.payload, int)
                assert transfer.ended is not None
                ends[transfer.payload] = transfer.ended

    for number, (start, one, other, size) in sorted(enumerate(asked["transfers"]), key=lambda pair: pair[1][0]):
        pass_to(start)
        network.start(start, routes.get((one, other)) or routes[other, one], size, number)
    pass_to(inf)
    return [ends[number] for number in range(len(ends))]


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_transfers_end_when_simgrid_says(first: int) -> None:
    for seed in range(first, first + 10):
        asked = random_platform(seed)
        said = subprocess.run(
            [SYSTEM_PYTHON, str(DRIVER)], input=json.dumps(asked), capture_output=True, text=True, check=True
        )
        theirs, ours = json.loads(said.stdout), our_ends(asked)
        starts = [start for start, *_ in asked["transfers"]]
        took, expected = ([end - start for end, start in zip(ends, starts, strict=True)] for ends in (ours, theirs))
        assert took == pytest.approx(expected, rel=0.02), f"platform {seed}"
        assert max(ours) == pytest.approx(max(theirs), rel=0.02)
