"""Provisioning policies by name, and what each of Falkon's asks for."""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import pytest

from bough.core.machine import Machine
from bough.errors import UnknownName, UserError
from bough.model.events import facts
from bough.model.events.orders import AskForPilot
from bough.model.sites.site_specs import SiteSpec
from bough.policies.placement.fifo import Fifo
from bough.policies.policy_registry import load_policies, load_provisioning
from bough.policies.provisioning.adaptive import Adaptive
from bough.policies.provisioning.additive import Additive
from bough.policies.provisioning.available import Available
from bough.policies.provisioning.exponential import Exponential
from bough.policy.interface import PilotSite, Policies
from bough.policy.shortage import Provisioner
from bough.testing.builders import executor, submit, task


class Site(NamedTuple):
    """All that an acquisition looks at."""

    available: int | None = None
    starting: int = 0


SILENT = Site()


def sizes(acquisition: Additive | Exponential | Available, pilots: int, site: Site = SILENT) -> list[int]:
    return list(acquisition.requests(pilots, cast(PilotSite, site)))


@pytest.mark.parametrize("pilots", [1, 2, 3, 7, 8, 31, 32, 48, 100, 999])
def test_requests_add_up_and_are_as_many_as_the_formulas_say(pilots: int) -> None:
    additive, exponential = sizes(Additive(), pilots), sizes(Exponential(), pilots)
    assert sum(additive) == sum(exponential) == pilots
    assert len(additive) == math.ceil((math.sqrt(8 * pilots + 1) - 1) / 2)
    assert len(exponential) == math.ceil(math.log2(pilots + 1))
    assert additive[:-1] == list(range(1, len(additive)))
    assert exponential[:-1] == [2**number for number in range(len(exponential) - 1)]


def test_available_goes_by_what_the_site_says_and_otherwise_by_one() -> None:
    assert sizes(Available(), 48, Site(available=20)) == [20]
    assert sizes(Available(), 8, Site(available=20)) == [8]
    assert sizes(Available(), 8, Site(available=0)) == []
    assert sizes(Available(), 8) == [1]
    assert sizes(Available(), 8, Site(starting=1)) == []


def test_what_a_site_says_is_free_is_asked_for_when_it_says_so() -> None:
    policies = Policies(Fifo(), provisioning=load_provisioning("available"))
    machine = Machine(policies)
    defined = facts.SiteDefined("a", SiteSpec(ssh="h", max_pilots=50, cores_per_pilot=1.0))
    machine.turn(0.0, [facts.RunOpened(1, "t", "h", 1), defined, facts.SiteHadRoom("a", 2)])
    turn = machine.turn(1.0, [submit(*(task(number) for number in range(1, 11)))])
    assert sum(isinstance(order, AskForPilot) for order in turn.orders) == 2
    assert not machine.turn(5.0, [executor(1, 1, site="a", pilot=1)]).orders[1:]
    turn = machine.turn(6.0, [facts.SiteHadRoom("a", 5)])
    assert sum(isinstance(order, AskForPilot) for order in turn.orders) == 5


def test_policies_are_found_by_name_with_their_options() -> None:
    assert isinstance(load_policies("fifo").provisioning, Adaptive)
    for name in ("all-at-once", "additive:release=idle", "exponential:release=queue,q=4", "available:release=grouped"):
        assert isinstance(load_policies("fifo", name).provisioning, Provisioner)
    assert load_policies("fifo", "static", 7).max_pilots == 7


@pytest.mark.parametrize(
    "text",
    [
        *("adaptive:release=queue", "static:", "additive:", "additive:release=no", "additive:release=queue,q=many"),
        *("additive:q=3", "additive:release=grouped,idle=soon", "additive:release=idle,q=3"),
    ],
)
def test_options_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="release="):
        load_provisioning(text)


def test_an_unknown_name_names_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="one-at-a-time"):
        load_provisioning("one-by-one")
    with pytest.raises(UnknownName, match="additive"):
        load_provisioning("aditive:release=idle")
