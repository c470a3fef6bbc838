"""What places list as wanted agrees with who holds what, however caches change.

Many hosts share few contents, so that contents become common and rare again, are lost by all, and come back.
"""

from __future__ import annotations

from collections import Counter
from math import inf, isclose
from random import Random

import pytest
from msgspec.structs import replace

from bough.core.machine import Machine
from bough.core.records.indexes import affinity_index
from bough.core.records.indexes.affinity_index import AffinityIndex
from bough.core.records.indexes.waiting_units import Unit
from bough.model.events import facts, news
from bough.model.ids import ExecutorId, FileId, RecordId
from bough.model.tasks import Dep, On
from bough.policies.policy_registry import load_policies
from bough.testing.builders import executor, submit, task

HOSTS = 48
FILES = 10
POLICIES = ["data-conscious", "storage-affinity", "storage-affinity:affinity=frozen", "max-cache-hit"]


def digest(file: int) -> bytes:
    return bytes([file]) * 32


class Shop:
    """A machine whose hosts are all busy, and tasks that wait."""

    def __init__(self, policy: str, seed: int, each: int = 1) -> None:
        self.dice = Random(seed)
        self.machine = Machine(load_policies(policy), seed=seed)
        self.now = 0.0
        self.last = HOSTS
        self.leavers = list(range(HOSTS - 3, HOSTS + 1)) if each > 1 else []
        self.tell(facts.RunOpened(1, "test", "h", 1))
        joined = [executor(one, 1, site=f"s{one % 5}") for one in range(1, HOSTS + 1)]
        for one in range(1, HOSTS + 1):  # so many on each host
            first = joined[(one - 1) // each * each]
            joined[one - 1] = replace(joined[one - 1], site=first.site, host=first.host)
        self.tell(*joined)
        self.tell(submit(*(task(one) for one in range(1, HOSTS + 1))))

    @property
    def affinity(self) -> AffinityIndex:
        affinity = self.machine.state.affinity
        assert affinity is not None
        return affinity

    def tell(self, *said: object) -> None:
        self.now += 1.0
        assert self.machine.turn(self.now, said).complaints == []  # type: ignore[arg-type]

    def change(self) -> None:
        dice, deed = self.dice, self.dice.random()
        host = ExecutorId(dice.randint(1, HOSTS))
        file = dice.randint(1, FILES)
        if deed < 0.2:
            self.last += 1
            reads = tuple(f"/{one}" for one in dice.sample(range(1, FILES + 1), dice.randint(1, 4)))
            self.tell(submit(task(self.last, reads=reads)))
        elif deed < 0.24:  # it waits no more, or again
            target = Dep(On.TASK, RecordId(dice.randint(1, self.last)))
            self.tell(dice.choice((news.Hold(target), news.Release(target), news.Cancel(target), news.Retry(target))))
        elif deed < 0.3:
            known = self.machine.state.workflows[1].files.last
            if known:
                found = news.IdentifiedFile(FileId(dice.randint(1, known)), digest(file), 7)
                self.tell(news.FilesIdentified(1, (found,)))
        elif deed < 0.4:  # many hosts at once: it becomes common, or rare again
            some = [ExecutorId(one) for one in dice.sample(range(1, HOSTS + 1), 40)]
            held = (news.HeldContent(digest(file), 10 * file),)
            gains = dice.random() < 0.5
            changes = [(held, ()) if gains else ((), (digest(file),)) for _ in some]
            self.tell(*(news.CacheChanged(one, *change) for one, change in zip(some, changes, strict=True)))
        elif deed < 0.42 and self.leavers:
            self.tell(facts.ExecutorLost(ExecutorId(self.leavers.pop())))
        elif deed < 0.5 and self.machine.state.spans:
            span = dice.choice(list(self.machine.state.spans.values()))
            self.tell(news.WorkSucceeded(span.id, 0, 1, 3.0))
        else:
            gained = tuple(news.HeldContent(digest(one), 10 * one) for one in dice.sample(range(1, FILES + 1), 2))
            self.tell(news.CacheChanged(host, gained, (digest(file),), dice.random() < 0.1))

    def check(self) -> None:
        """What is listed says the same as a look at all holders."""
        affinity = self.affinity
        for unit in affinity.units.values():
            if unit.gone or not unit.is_ready:
                continue
            for place in affinity.places().values():
                assert affinity.here(unit, place) == affinity.measure(unit, place)[0]
            here = affinity.places().get("s1/host1")
            for latest in (self.now, self.now + 5.0) if affinity.follows_arrivals else ():
                cost = affinity.soonest_cost(unit, here, 0.01, self.now, latest)
                assert isclose(cost, self.naive_cost(unit, latest)) or cost == self.naive_cost(unit, latest)

    def check_readers(self) -> None:
        """As many read a content as are counted, and what waits does so in order."""
        affinity = self.affinity
        there = [unit for unit in affinity.units.values() if not unit.gone]
        readers = Counter(content for unit in there for content in affinity.contents_of(unit))
        for content in range(len(self.machine.state.data.holders_by_content)):
            assert affinity.count_readers(content) == readers[content]
            listed = [unit for unit in affinity.readers(content, 10_000) if not unit.gone]
            times = {id(unit): affinity.contents_of(unit).count(content) for unit in there}
            assert Counter(map(id, listed)) == Counter(times)
        assert list(affinity.waiting()) == [unit for unit in there if unit.is_ready]

    def naive_cost(self, unit: Unit, latest: float) -> float:
        """As `soonest_cost`, by asking each of the holders."""
        affinity, data = self.affinity, self.machine.state.data
        scores: dict[int, int] = {}
        contents = affinity.contents_of(unit)
        for content in contents:
            for holder in list(data.holders(content))[: 8 if data.is_common(content) else None]:
                scores[holder] = scores.get(holder, 0) + affinity.weight(content)
        total, least = sum(map(affinity.weight, contents)), inf
        for number, has in scores.items():
            host = data.by_number[number]
            assert host is not None
            for one in host.executors:
                when = affinity.arrivals.expected(one, self.now)
                if when <= latest and (host.site, host.host) != ("s1", "host1"):
                    least = min(least, when - self.now + (total - has) * 0.01)
        return least


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("each", [1, 2])
@pytest.mark.parametrize("long", [0, 64])
def test_what_places_list_is_what_their_hosts_hold(
    policy: str, seed: int, each: int, long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(affinity_index, "_LONG", long)  # readers of a content from which on they are kept otherwise
    shop = Shop(policy, seed, each)
    commons = 0
    for _ in range(150):
        shop.change()
        if policy.startswith("storage"):  # its places are sites
            for unit in list(shop.affinity.units.values()):
                for place in shop.affinity.places().values():
                    assert shop.affinity.here(unit, place) == shop.affinity.measure(unit, place)[0]
        else:
            shop.check()
        shop.check_readers()
        commons = max(commons, len(shop.machine.state.data.common))
    assert commons or each > 1


def test_a_file_that_many_read_may_get_another_content_at_a_cost_of_one_look_at_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []
    drop = AffinityIndex._drop_readers

    def counting(index: AffinityIndex, content: int, gone: set[Unit]) -> None:
        looks.append(index.count_readers(content))
        drop(index, content, gone)

    monkeypatch.setattr(AffinityIndex, "_drop_readers", counting)
    shop = Shop("bough", 1)
    many = range(HOSTS + 1, HOSTS + 201)
    shop.tell(submit(*(task(one, reads=("/shared", f"/own/{one}")) for one in many)))
    for file in (1, 2):
        shop.tell(news.FilesIdentified(1, (), (news.NamedContent("/shared", digest(file), 7),)))
        shop.check_readers()
    assert looks == [len(many)]
