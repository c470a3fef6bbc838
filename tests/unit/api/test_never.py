"""What a session on this machine alone can never run: which needs are refused, and in which words."""

from __future__ import annotations

import pytest

from bough.api.submit.task_options.never import refuse_impossible
from bough.errors import InvalidWorkload
from bough.executor.host.machine_capacity import machine_capacity, machine_memory
from bough.model.sites.resources import Needs


def test_all_that_the_machine_has_is_possible() -> None:
    refuse_impossible(machine_capacity(3), cores=3)
    refuse_impossible(Needs(cores=0.1 + 0.2), cores=0.3)


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Needs(cores=64), "it needs 64 cores, and this session has 3 cores;"),
        (Needs(memory=machine_memory() + 10**15), "needs 1000.* TB memory, and this session has .* memory;"),
        (Needs(gpus=4096), "needs 4096 gpus, and this session has "),
        (Needs(named=(("license", 1),)), "needs 1 license, and this session has no license;"),
        (Needs(cores=4, named=(("tape", 2),)), "needs 4 cores, 2 tape, and this session has 3 cores and no tape;"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(needs: Needs, words: str) -> None:
    with pytest.raises(InvalidWorkload, match=words) as caught:
        refuse_impossible(needs, cores=3)
    assert "bough server start" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_this_machine_is_one_site_and_meets_what_it_meets() -> None:
    refuse_impossible(Needs(sites=("alpha", "local"), requires="cores <= 3 and site == 'local' and arch"), cores=3)
    with pytest.raises(InvalidWorkload, match=r"bound to alpha, .* which is the site local"):
        refuse_impossible(Needs(sites=("alpha",)), cores=3)
    with pytest.raises(InvalidWorkload, match=r"it requires cores >= 64: this machine has 3; ask for less"):
        refuse_impossible(Needs(requires="cores >= 64 and memory_gb > 0"), cores=3)
