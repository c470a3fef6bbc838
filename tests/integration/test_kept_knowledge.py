"""What a server has learnt of data is there after a restart: real processes, and files that executors do not see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_client import until
from test_far_files import FarService, _can_hide, open_session

from bough.api.session.session import opened_sessions

pytestmark = pytest.mark.skipif(not _can_hide(), reason="directories are hidden in mount namespaces, which needs root")
SIZE = 300_000


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FarService]:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("BOUGH_SERVER", raising=False)
    made = FarService(tmp_path)
    monkeypatch.setenv("BOUGH_HOME", str(made.home))
    yield made
    made.clean_up()
    opened_sessions.clear()


@pytest.mark.parametrize("sees", ["server sees", "server blind"])
def test_after_a_restart_the_first_tasks_go_where_their_files_were(
    service: FarService, sees: str, tmp_path: Path
) -> None:
    service.hidden = (tmp_path / "work",) if sees == "server blind" else ()
    words = ("--policy", "storage-affinity")
    service.start(*words)
    for site in ("one", "two"):
        service.far_executor(site, "--site", site, cores=4)
    names = [f"slice{number}" for number in range(6)]
    sites = {name: "two" if number % 3 else "one" for number, name in enumerate(names)}
    for number, name in enumerate(names):
        Path(name).write_bytes(bytes([number]) * SIZE)
    with open_session(service, "before") as s:
        for name in names:
            s.command("wc -c < {x:r}", x=name, sites=[sites[name]]).result(120)
    service.stop()
    service.start(*words)
    service.until_executors(lambda found: [one["state"] for one in found] == ["idle", "idle"], "both executors")
    with open_session(service, "after") as s:
        for task in [s.command("wc -c < {x:r}", x=name, name=name) for name in names]:
            task.result(120)
    asked = "select t.name as name, e.site as site from tasks t join executors e on e.id = t.executor"
    until(lambda: len(json.loads(service.bough("sql", asked, "--json").stdout)) == 2 * len(names), "the jobs database")
    found = {one["name"]: one["site"] for one in json.loads(service.bough("sql", asked, "--json").stdout)}
    assert {name: found[name] for name in names} == sites
    number = json.loads(service.bough("sql", "select max(id) as id from tasks", "--json").stdout)[0]["id"]
    said = f"300.0 kB of 300.0 kB of its input were at site {sites[names[-1]]} when it was placed"
    assert said in service.bough("explain", str(number)).stdout
