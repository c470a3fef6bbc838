"""`bough simulate`: its table, its JSON, and what it says of what it cannot simulate."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bough.analysis.recorded_workloads import workload_of
from bough.describe.formats import Source, find_reader, read
from bough.describe.task_graph import of_plan
from bough.policies.policy_registry import placement_names
from bough.sim.experiment import simulate
from bough.sim.platform import one_site

Call = Callable[..., tuple[int, str, str]]
INSTANCES = os.environ.get("BOUGH_WFINSTANCES", "")


@pytest.fixture
def flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "list.txt"
    path.write_text("a: attr.seconds=4 :: true\nb: attr.seconds=2 after=a :: true\nc: attr.seconds=5 :: true\n")
    return path


def test_a_flat_list_with_times(bough: Call, flat: Path) -> None:
    code, out, err = bough("simulate", "list.txt", "--cores", "1", "--policy", "fifo,sjf", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert (said["workload"], said["tasks"], said["cores"]) == ("list", 3, 1)
    assert [(row["policy"], row["makespan"], row["lower_bound"]) for row in said["policies"]] == [
        ("fifo", 11.0, 11.0),
        ("sjf", 11.0, 11.0),
    ]
    assert "of lower bound" in bough("simulate", "list.txt", "--cores", "2")[1]


def test_a_platform_from_a_file(bough: Call, flat: Path) -> None:
    Path("lab.toml").write_text("[site.a]\nhosts = 2\nspeed = 2\n")
    (row,) = json.loads(bough("simulate", "list.txt", "--platform", "lab.toml", "--json")[1])["policies"]
    assert row["makespan"] == 3.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say where it would run"),
        (("--cores", "0"), "--cores 0"),
        (("--cores", "2", "--platform", "x.toml"), "exclude each other"),
        (("--platform", "nowhere.toml"), "nowhere.toml"),
        (("--cores", "2", "--policy", "fifoo"), "did you mean"),
        (("--cores", "2", "--seconds", "soon"), "--seconds"),
        (("--cores", "2", "--seeds", "0"), "seeds"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(bough: Call, flat: Path, words: tuple[str, ...], said: str) -> None:
    code, _, err = bough("simulate", "list.txt", *words)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_a_task_of_which_no_time_is_known_is_named(bough: Call, flat: Path) -> None:
    flat.write_text("true\n")
    code, _, err = bough("simulate", "list.txt", "--cores", "1")
    assert code == 2
    assert "--seconds" in err
    assert bough("simulate", "list.txt", "--cores", "1", "--seconds", "90s")[0] == 0


@pytest.mark.skipif(
    not INSTANCES,
    reason="there are no recorded workflows: set BOUGH_WFINSTANCES to a folder of WfFormat files to include them",
)
def test_recorded_workflows_under_every_policy_take_at_least_their_lower_bound() -> None:
    files = sorted(Path(INSTANCES).glob("*.json"))
    assert len(files) >= 20
    for path in files:
        if path.stat().st_size > 500_000:
            continue
        source = Source(str(path), path.read_text(), ())
        reader = find_reader(source)
        assert reader is not None
        workload = workload_of(of_plan(read(source, reader), path.stem))
        widest = max(task.cores for task in workload.tasks)
        report = simulate(workload, one_site(4, max(8, widest)), placement_names())
        for row in report.rows():
            assert not row.complaint, (path.name, row)
            assert row.ratio >= 1 - 1e-9, (path.name, row)
