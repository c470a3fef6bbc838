"""A pilot that starts several executors, which share its cores."""

from __future__ import annotations

import json

from processes import is_alive
from site_shop import SiteShop, shop, shop_folder

import bough

__all__ = ["shop", "shop_folder"]  # fixtures


def test_a_pilot_of_two_executors_runs_until_the_last_has_left(shop: SiteShop) -> None:
    shop.start()
    shop.bough("site", "add", "two", "--local", "--cores-per-pilot", "2", "--executors-per-host", "2", "--idle", "1s")
    with bough.Session(shop.address, name="w") as session:
        tasks = [session.command("sleep 0.3; echo $PPID") for _ in range(8)]
        assert all(task.result(60).stdout.strip() for task in tasks)
        found = [one for one in shop.ask("executors") if one["site"] == "two"]
        assert [one["cores"] for one in found] == [1.0, 1.0]
        [pilot] = json.loads(shop.bough("pilot", "list", "--json"))["pilots"]
        assert (pilot["executors"], pilot["cores"]) == (2, 2.0)
    shop.until(lambda: not shop.pilots(), "the pilot to end with its last executor")
    shop.until(lambda: not any(is_alive(one["pid"]) for one in found), "both executors to end")
    rows = json.loads(shop.bough("sql", "select state, executors, cores from pilots", "--json"))
    assert "ended" in json.dumps(rows)
    assert "2.0" in json.dumps(rows)


def test_a_site_has_no_more_tasks_than_it_may_and_a_policy_that_there_is(shop: SiteShop) -> None:
    shop.start()
    said = shop.bough("site", "add", "one", "--local", "--provisioning", "nonsense", code=2)
    assert "there is no provisioning policy 'nonsense'" in said
    options = ("--cores-per-pilot", "2", "--max-tasks", "1", "--provisioning", "one-at-a-time", "--idle", "30s")
    shop.bough("site", "add", "one", "--local", *options)
    with bough.Session(shop.address, name="w") as session:
        first = session.command("while ! test -e gate; do sleep 0.05; done")
        second = session.command("true")
        shop.until(lambda: any(one["site"] == "one" for one in shop.ask("executors")), "an executor")
        shop.until(lambda: first.state == "running", "the first task to run")
        assert "site one has 1 task out" in second.explain()
        (shop.folder / "gate").touch()
        first.result(60)
        second.result(60)
