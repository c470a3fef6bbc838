"""What moves for attempts that come to nothing, and for policies that use no caches: real executors and far files."""

from __future__ import annotations

import json
import shutil
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


def staged(service: FarService) -> list[dict[str, int]]:
    asked = "select attempt, cached, from_peers, from_origin from staging order by id, attempt"
    found: list[dict[str, int]] = json.loads(service.bough("sql", asked, "--json").stdout)
    return found


def test_bytes_moved_for_a_superseded_attempt_are_in_the_jobs_database_and_the_statistics(
    service: FarService, tmp_path: Path
) -> None:
    Path("in.bin").write_bytes(bytes(SIZE))
    marks = tmp_path / "marks"
    marks.mkdir()
    service.start("--replication", "wqr:age=0.2s")
    service.far_executor("one")
    with open_session(service, "w") as s:
        wait = f"until [ -e {marks}/go ]; do sleep 0.05; done; cat {{x:r}} > {{y:w}}"
        text = f"if mkdir {marks}/first 2>/dev/null; then exec sleep 600; else touch {marks}/second; {wait}; fi"
        task = s.command(text, x="in.bin", y="out.bin")
        until((marks / "first").exists, "the first attempt")
        service.far_executor("two")
        until((marks / "second").exists, "the replica")
        (marks / "go").touch()
        task.result(120)
        until(lambda: len(staged(service)) == 2, "what was moved for the superseded attempt")
    assert [(one["attempt"], one["cached"], one["from_origin"]) for one in staged(service)] == [
        (1, 0, SIZE),
        (2, 0, SIZE),
    ]
    said = json.loads(service.bough("status", "--name", "w", "--json").stdout)["replication"]
    assert (said["superseded"], said["bytes"], said["input_bytes"]) == (1, SIZE, SIZE)
    assert said["network_waste"] == pytest.approx(100)
    assert "moved in vain (100.0 % of all input)" in service.bough("status", "--name", "w").stdout
    until(lambda: "moved in vain" in service.bough("stats").stdout, "the statistics")
    [sample] = json.loads(service.bough("stats", "--json").stdout)[-1:]
    assert sample["wasted_bytes"] == SIZE


@pytest.mark.parametrize(
    ("words", "cached"),
    [
        (("--policy", "fifo"), SIZE),
        (("--policy", "first-available"), 0),
        (("--policy", "workqueue", "--replication", "wqr:reuse=no"), 0),
        (("--policy", "wqr:reuse=no"), 0),
    ],
)
def test_policies_without_caches_have_every_input_sent_for_every_task(
    service: FarService, words: tuple[str, ...], cached: int
) -> None:
    Path("in.bin").write_bytes(bytes(SIZE))
    service.start(*words)
    service.far_executor("one")
    with open_session(service, "w") as s:
        for number in range(2):
            s.command(f"cat {{x:r}} > {{y:w}}; echo {number}", x="in.bin", y=f"out{number}").result(120)
    until(lambda: len(staged(service)) == 2, "what was moved")
    first, second = staged(service)
    assert first["from_origin"] == SIZE
    assert (second["cached"], second["from_origin"]) == (cached, SIZE - cached)


def test_a_stored_folder_draws_later_workflows_to_its_site_and_a_put_file_does_not(service: FarService) -> None:
    for name in ("slice", "query"):
        Path(name).mkdir()
        Path(name, "data").write_bytes(bytes(SIZE))
    service.start("--policy", "storage-affinity")
    for site in ("one", "two"):
        service.far_executor(site, "--site", site)
    went = {}
    for kind in ("put", "store"):
        for number in range(4):
            first = "two" if number % 2 else "one"
            name = f"{kind}{number}"
            shutil.copytree("slice" if kind == "store" else "query", name)
            Path(name, "number").write_text(name)
            with open_session(service, f"first-{name}") as s:
                s.command("true", **{kind: {name: name}}, sites=[first]).result(120)
            with open_session(service, f"then-{name}") as s:
                s.command("true", **{kind: {name: name}}, name=name).result(120)
            went[kind, number] = first
    asked = "select t.name as name, e.site as site from tasks t join executors e on e.id = t.executor"
    found = {one["name"]: one["site"] for one in json.loads(service.bough("sql", asked, "--json").stdout)}
    assert [found[f"store{number}"] for number in range(4)] == [went["store", number] for number in range(4)]
    assert (
        len({found[f"put{number}"] for number in range(4)}) == 1
    )  # always the one that is next, wherever it was before
