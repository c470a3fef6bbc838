"""`bough simulate`: its table, its JSON, and what it says of what it cannot simulate."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bough.analysis.recorded_workloads import workload_of
from bough.cli.commands import simulate as simulate_command
from bough.describe.formats import Source, find_reader, read
from bough.describe.task_graph import RecordedTask, RunExecutor, TaskGraph, of_plan
from bough.model.sites.resources import Needs
from bough.policies.policy_registry import placement_names
from bough.sim.experiment import simulate
from bough.sim.platforms.platform import one_site

WAVE = """
from bough.describe import arguments, level
n = arguments(int)
@level([(i, j) for i in range(n) for j in range(n)])
def Tile(g, i, j):
    g.after((i - 1, j), (i, j - 1))
    g.task(f"./sweep {i} {j}", release=True)
    g.task(f"./check {i} {j}")
"""
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


def test_policies_are_compared_with_intervals_and_pairs_and_the_same_again(bough: Call, flat: Path) -> None:
    words = ("simulate", "list.txt", "--cores", "2", "--policy", "fifo,ljf", "--seeds", "20", "--noise", "0.3")
    code, out, err = bough(*words)
    assert (code, err) == (0, "")
    assert "3 tasks on 2 cores, 20 seeds" in out
    for column in ("makespan", "+-", "slow-down", "performance index", "provisioning", "peak queue", "against fifo"):
        assert column in out
    assert "cache hits" not in out  # the list has no files
    said = bough(*words, "--json")[1]
    assert said == bough(*words, "--json")[1]
    value = json.loads(said)
    assert len(value["runs"]) == 40
    assert [(one["policy"], one["against"], one["pairs"]) for one in value["differences"]] == [("ljf", "fifo", 20)]
    assert value["policies"][0]["spreads"]["makespan"] > 0


def test_every_form_of_a_workflow_is_simulated(bough: Call, flat: Path) -> None:
    Path("Makefile").write_text("all: b c\n\tcat b c > all\nb: a\n\tcp a b\nc: a\n\tcp a c\na:\n\techo 1 > a\n")
    Path("w.dag").write_text("JOB A a.sub\nJOB B a.sub\nPARENT A CHILD B\n")
    Path("a.sub").write_text("executable=/bin/true\nqueue\n")
    Path("wave.py").write_text(WAVE)
    for name, words, tasks, makespan in (
        ("Makefile", (), 4, 30.0),
        ("w.dag", (), 2, 20.0),
        ("wave.py", ("--args", "2"), 8, 50.0),
    ):
        code, out, err = bough("simulate", name, "--cores", "2", "--seconds", "10s", "--json", *words)
        assert (code, err) == (0, "")
        said = json.loads(out)
        assert (said["tasks"], said["policies"][0]["makespan"]) == (tasks, makespan)


def test_what_tasks_of_a_file_ask_for_is_asked_for_in_a_simulation(bough: Call, flat: Path) -> None:
    flat.write_text("".join(f"t{n}: attr.seconds=10 memory=4GB sites=b requires='os' :: true\n" for n in range(4)))
    Path("lab.toml").write_text("[site.a]\ncores = 9\n[site.b]\ncores = 4\nmemory = '9GB'\nattributes = {os = 'x'}\n")
    (row,) = json.loads(bough("simulate", "list.txt", "--platform", "lab.toml", "--json")[1])["policies"]
    assert row["makespan"] == 20.0
    code, _, err = bough("simulate", "list.txt", "--cores", "4")
    assert code == 2
    assert "task t0 may run only at b" in err


def test_what_policies_know_is_a_word_or_a_number(bough: Call, flat: Path) -> None:
    for known in ("measured", "perfect", "snapshot", "0.3"):
        assert bough("simulate", "list.txt", "--cores", "2", "--information", known)[0] == 0
    code, _, err = bough("simulate", "list.txt", "--cores", "2", "--information", "snapshoot")
    assert (code, err.count("\n")) == (2, 1)
    assert "information is 'snapshoot'; say measured, perfect, snapshot, or how far estimates are off" in err


def test_a_platform_from_a_file(bough: Call, flat: Path) -> None:
    Path("lab.toml").write_text("[site.a]\nhosts = 2\nspeed = 2\n")
    (row,) = json.loads(bough("simulate", "list.txt", "--platform", "lab.toml", "--json")[1])["policies"]
    assert row["makespan"] == 3.0


def test_tasks_that_fail_are_said_and_no_figure_is(bough: Call, flat: Path) -> None:
    Path("short.toml").write_text("[site.a]\ncores = 2\nqueue = {walltime = 4.5}\n")
    code, out, err = bough("simulate", "list.txt", "--platform", "short.toml")
    assert (code, err) == (1, "")
    assert "fifo    0 of 1           1 of 3 tasks failed; the first: task 3 (c) failed: " in out
    assert "fifo    -         -            -" in out


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
        (("--cores", "2", "--patience", "-1"), "say 0 to 1e+06 seconds"),
        (("--cores", "2", "--patience", "1e9"), "say 0 to 1e+06 seconds"),
        (("--cores", "2", "--policy", "fifo,window=5"), "'window=5' names no policy"),
        (("--cores", "2", "--replication", "wqrr"), "did you mean"),
        (("--cores", "2", "--provisioning", "static"), "no site of the platform has a queue"),
        (("--cores", "2", "--tasks", "3"), "--tasks is of a run that was"),
        (("--cores", "2", "--gantt", "/proc/none/list.svg"), "/proc/none"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(bough: Call, flat: Path, words: tuple[str, ...], said: str) -> None:
    code, _, err = bough("simulate", "list.txt", *words)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_the_lines_of_a_python_script_are_no_tasks(bough: Call, flat: Path) -> None:
    Path("script.py").write_text("import bough\nprint(bough)\n")
    code, _, err = bough("simulate", "script.py", "--cores", "2", "--seconds", "1s")
    assert code == 2
    assert "submits by itself" in err


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


def test_a_platform_is_scaled(bough: Call, flat: Path) -> None:
    Path("lab.toml").write_text("[site.lab]\nhosts = 1\n")
    words = ("simulate", "list.txt", "--platform", "lab.toml", "--json")
    assert json.loads(bough(*words)[1])["policies"][0]["makespan"] == 11.0
    code, out, err = bough(*words, "--scale-hosts", "2", "--scale-link", "x3", "--patience", "2min")
    assert (code, err) == (0, "")
    assert json.loads(out)["policies"][0]["makespan"] == 6.0
    assert bough(*words, "--patience", "soon")[0] == 2


def test_pictures_and_pages_are_written(bough: Call, flat: Path) -> None:
    words = ("simulate", "list.txt", "--cores", "2", "--policy", "fifo,ljf", "--quiet")
    assert bough(*words, "--gantt", "out/list.svg", "--html", "list.html")[0] == 0
    assert b"<svg" in Path("out/list.svg").read_bytes()
    assert "performance index" in Path("list.html").read_text()
    code, _, err = bough(*words, "--gantt", "list.gif")
    assert code == 2
    assert ".svg" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give a workflow file"),
        (("list.txt", "--cores", "2", "--scale-hosts", "2"), "--replay"),
        (("list.txt", "--replay", "x"), "leave FILE out"),
        (("--replay", "list.txt"), "no store"),
        (("--replay", "nowhere"), "nowhere"),
        (("--replay", "x", "--cores", "2"), "leave --cores out"),
        (("--replay", "x", "--workload", "fmri"), "leave --workload out"),
        (("--replay", "x", "--seeds", "2"), "leave --seeds out"),
        (("--replay", "x", "--parallel", "2"), "leave --parallel out"),
        (("--replay", "x", "--noise", "0.1"), "leave --noise out"),
        (("--replay", "x", "--information", "perfect"), "leave --information out"),
        (("--replay", "x", "--seconds", "1s"), "leave --seconds out"),
        (("--replay", "x", "--args", "1"), "leave --args out"),
        (("--replay", "x", "--provisioning", "static"), "leave --provisioning out"),
        (("--workload", "fmri", "--cores", "2", "--seconds", "1s"), "leave --seconds out"),
    ],
)
def test_a_replay_that_cannot_be_is_refused_in_one_line(
    bough: Call, flat: Path, words: tuple[str, ...], said: str
) -> None:
    code, _, err = bough("simulate", *words)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_a_policy_has_several_options_and_a_replication_of_its_own(bough: Call, flat: Path) -> None:
    Path("lab.toml").write_text("[site.a]\nhosts = 2\n[site.b]\nspeed = 0.1\n")
    said = "good-cache-compute:threshold=0.9,window=5,workqueue+wqr:cap=2,age=1s"
    words = ("simulate", "list.txt", "--platform", "lab.toml", "--json")
    code, out, err = bough(*words, "--policy", said, "--replication", "none,tail")
    assert (code, err) == (0, "")
    assert [row["policy"] for row in json.loads(out)["policies"]] == [
        "good-cache-compute:threshold=0.9,window=5",
        "good-cache-compute:threshold=0.9,window=5+tail",
        "workqueue+wqr:cap=2,age=1s",
    ]


def test_the_picture_shows_the_schedule_of_the_table(bough: Call, flat: Path) -> None:
    """sjf knows nothing of the lengths unless it is told, and a slow host's task is run again only with replicas."""
    flat.write_text("".join(f"t{n}: attr.seconds={9 - n} :: true\n" for n in range(6)))
    Path("lab.toml").write_text("[site.a]\nhosts = 2\n[site.b]\nspeed = 0.05\n")
    pages = []
    for words in ((), ("--information", "perfect"), ("--replication", "wqr")):
        shown = ("simulate", "list.txt", "--platform", "lab.toml", "--policy", "sjf", *words)
        assert bough(*shown, "--gantt", "list.svg", "--quiet")[0] == 0
        pages.append(Path("list.svg").read_bytes())
    assert len(set(pages)) == 3


def test_the_heading_says_which_share_of_the_bytes_is_read_twice(bough: Call, flat: Path) -> None:
    assert "of the bytes" not in bough("simulate", "list.txt", "--cores", "2")[1]
    code, out, _ = bough("simulate", "--workload", "stacking:200", "--cores", "4")
    assert code == 0
    assert re.search(r"two or more tasks read [0-9.]+% of the bytes", out.partition("\n")[0])


def _recorded(count: int) -> TaskGraph:
    tasks = [
        RecordedTask(f"5.{n}", "sleep", seconds=1.0 + n, submitted=100.0, started=100.0 + 2 * n, host="h", state="done")
        for n in range(1, count + 1)
    ]
    return TaskGraph("nap", tasks, [], [RunExecutor(1, "lab", "h", Needs(1), 100.0)], "fifo", 99.0, 200.0)


def test_a_replay_names_tasks_as_people_do_and_says_how_to_see_all(
    bough: Call, flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulate_command, "recorded_graph", lambda text: _recorded(12))
    code, out, err = bough("simulate", "--replay", "nap")
    assert (code, err) == (0, "")
    assert "2 tasks more, --tasks 12 or --json shows all" in out
    assert len(re.findall(r"^5\.\d+ +sleep ", out, re.MULTILINE)) == 10
    out = bough("simulate", "--replay", "nap", "--tasks", "12")[1]
    assert {line.split()[0] for line in out.splitlines() if "sleep" in line} == {f"5.{n}" for n in range(1, 13)}
    assert "more" not in out
    said = json.loads(bough("simulate", "--replay", "nap", "--json")[1])
    assert [one["id"] for one in said["by_task"]] == [f"5.{n}" for n in range(1, 13)]


def test_a_replay_asks_what_replicas_would_do(bough: Call, flat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate_command, "recorded_graph", lambda text: _recorded(3))
    words = ("simulate", "--replay", "nap", "--json")
    assert json.loads(bough(*words)[1])["what_if"] == []
    said = json.loads(bough(*words, "--replication", "wqr,tail")[1])["what_if"]
    assert [one["policy"] for one in said] == ["fifo+wqr", "fifo+tail"]
    said = json.loads(bough(*words, "--replication", "wqr", "--policy", "ljf,sjf+none")[1])["what_if"]
    assert [one["policy"] for one in said] == ["ljf+wqr", "sjf"]


def test_describe_names_redundant_edges(bough: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list.txt").write_text("a: :: true\nb: after=a :: true\nc: after=a,b :: true\n")
    code, out, err = bough("describe", "--check", "list.txt")
    assert (code, err) == (0, "")
    assert "c need not wait for a" in out
    assert bough("describe", "--check", "--seconds", "soon", "list.txt")[0] == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--check", "--seconds", "5s", "list.txt"),
        ("--check", "list.txt", "--seconds", "5s"),
        ("list.txt", "--check", "--seconds", "5s"),
        ("--check", "wave.py", "2", "--seconds", "5s"),
    ],
)
def test_the_options_of_a_check_stand_before_or_behind_the_file(
    bough: Call, flat: Path, words: tuple[str, ...]
) -> None:
    Path("wave.py").write_text(WAVE)
    flat.write_text("a: :: true\nb: after=a :: true\nc: after=a,b :: true\n")
    code, out, err = bough("describe", *words)
    assert (code, err) == (0, "")
    assert "redundant" in out or "need not wait" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--check", "--to", "dot", "list.txt"), "--check and --to exclude each other"),
        (("list.txt", "--check", "--to", "dot"), "--check and --to exclude each other"),
        (("list.txt", "--seconds", "5s"), "--seconds goes with --check"),
        (("list.txt", "--check", "--seconds"), "--seconds"),
        (("list.txt", "--check", "--seconds", "soon"), "--seconds 'soon' is no time"),
        (("list.txt", "--chekc"), "takes no arguments: --chekc"),
        (("--run", "x", "--check"), "leave --check"),
    ],
)
def test_options_of_describe_that_do_not_fit_are_refused_in_one_line(
    bough: Call, flat: Path, words: tuple[str, ...], said: str
) -> None:
    code, _, err = bough("describe", *words)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
