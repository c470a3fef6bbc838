"""Links and transfers: what is worked out by hand, and the laws of max-min fairness on random networks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.errors import UserError
from bough.sim.platforms.network import Link, Network, Sharing, Transfer


def run(network: Network) -> dict[int, float]:
    """Let all transfers end; their times by number."""
    ends: dict[int, float] = {}
    while (when := network.next_time()) is not None:
        for transfer in network.advance(when):
            assert transfer.ended is not None
            ends[transfer.number] = transfer.ended
    return ends


def test_one_transfer_takes_latency_and_bytes_over_bandwidth() -> None:
    network, link = Network(), Link("wan", 100.0, 0.5)
    network.start(0.0, [link], 1000)
    assert run(network) == {1: 10.5}
    assert network.moved == 1000


def test_two_share_a_link_and_the_longer_one_speeds_up_when_alone() -> None:
    network, link = Network(), Link("lan", 100.0)
    network.start(0.0, [link], 500)
    network.start(0.0, [link], 1000)
    assert run(network) == {1: 10.0, 2: 15.0}


def test_what_a_narrow_link_leaves_goes_to_the_others() -> None:
    network, wide, narrow = Network(), Link("wide", 100.0), Link("narrow", 20.0)
    slow = network.start(0.0, [wide, narrow], 200)
    fast = network.start(0.0, [wide], 800)
    assert (slow.rate, fast.rate) == (20.0, 80.0)
    assert run(network) == {1: 10.0, 2: 10.0}


def test_long_routes_get_less_where_shares_are_weighted() -> None:
    network, link = Network(weighted=True), Link("shared", 90.0, 0.1)
    near = network.start(0.0, [link], 1e6)
    far = network.start(0.0, [link, Link("tail", 1000.0, 0.1)], 1e6)
    network.advance(0.2)
    assert near.rate == pytest.approx(60.0)
    assert far.rate == pytest.approx(30.0)


def test_a_serial_link_serves_one_after_the_other_and_each_has_its_own() -> None:
    network, serial, own = (
        Network(),
        Link("tape", 100.0, sharing=Sharing.SERIAL),
        Link("dream", 50.0, sharing=Sharing.EACH),
    )
    for size in (100, 200, 300):
        network.start(0.0, [serial], size)
    for _ in range(2):
        network.start(0.0, [own], 100)
    assert run(network) == {1: 1.0, 4: 2.0, 5: 2.0, 2: 3.0, 3: 6.0}


def test_a_transfer_that_is_called_off_leaves_its_share_and_its_place() -> None:
    network, link, tape = Network(), Link("lan", 100.0), Link("tape", 1.0, sharing=Sharing.SERIAL)
    gone = network.start(0.0, [link], 1000)
    network.start(0.0, [link], 1000)
    first = network.start(0.0, [tape], 50)
    waits = network.start(0.0, [tape], 50)
    network.start(0.0, [tape], 7)
    network.advance(10.0)
    for one in (gone, waits, first):
        network.cancel(10.0, one)
    assert run(network) == {2: 15.0, 5: 17.0}


def test_a_link_that_is_down_for_a_while_moves_nothing_meanwhile() -> None:
    network, link = Network(), Link("flaky", 100.0)
    network.start(0.0, [link], 1000)
    network.advance(4.0)
    network.set_bandwidth(4.0, link, 0.0)
    assert network.next_time() is None
    network.advance(9.0)
    network.set_bandwidth(9.0, link, 50.0)
    assert run(network) == {1: 21.0}


def test_a_bandwidth_that_is_none_is_refused() -> None:
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(UserError, match="bandwidth"):
            Link("x", wrong)
    with pytest.raises(UserError, match="latency"):
        Link("x", 1.0, -1.0)


def moving(links: list[Link]) -> dict[Transfer, None]:
    return {flow: None for link in links for flow in link.flows}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_rates_are_feasible_and_nobody_could_get_more_without_a_poorer_one_losing(seed: int) -> None:
    dice = random.Random(seed)
    weighted = dice.random() < 0.5
    network = Network(weighted=weighted)
    links = [Link(f"l{i}", dice.choice([1.0, 10.0, 33.0, 100.0]), dice.choice([0.0, 0.25, 1.0])) for i in range(6)]
    now = 0.0
    started: list[Transfer] = []
    for _ in range(40):
        if dice.random() < 0.6:
            route = dice.sample(links, dice.randint(1, 3))
            started.append(network.start(now, route, dice.randint(0, 500)))
        elif started and dice.random() < 0.2:
            network.cancel(now, dice.choice(started))
        else:
            now = network.next_time() or now
            network.advance(now)
        for link in links:
            assert sum(flow.rate for flow in link.flows) <= link.bandwidth * (1 + 1e-9)
        for flow in moving(links):
            share = flow.rate / flow.weight
            assert any(  # a link that is full, and on which nobody has a greater share
                sum(other.rate for other in link.flows) >= link.bandwidth * (1 - 1e-9)
                and all(other.rate / other.weight <= share * (1 + 1e-9) for other in link.flows)
                for link in flow.links
            )
    cancelled = [one for one in started if one.ended is None]
    run(network)
    assert not moving(links)
    assert network.moved == pytest.approx(sum(one.size for one in started if one.ended is not None))
    assert all(one.ended is None or one.ended <= network.now for one in cancelled)
