"""A script that was killed and is run again takes the same path, also where it goes by what was seen of its tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PATIENCE = 120.0

# it decides by tags, emitted values, series and ends; each task that runs leaves a line in runs.txt
SCRIPT = """
    import sys, time
    import bough
    from bough.monitors import Emit, Metric, Regex, Tag

    def reports(number):
        with open("runs.txt", "a") as file:
            file.write(f"call {number}\\n")
        here = bough.here()
        for step in range(1, 6):
            here.report(step=step, total=5, loss=number / step)
        return number

    def said(*words):
        print(*words, sep="|", flush=True)

    with bough.Session(store="store", name="flow", cores=2) as s:
        slow = s.command(
            "echo slow >> runs.txt; echo step 1 score 5; echo step 2 score 3; echo warm; echo done; sleep 60",
            monitors=[
                Regex("stdout", "warm", do=Tag("slow")),
                Metric("step (?P<step>[0-9]+) score (?P<score>[0-9.]+)"),
                Regex("stdout", "done"),
            ],
        )
        completed = slow.result()
        said("tags", slow.tags, completed.ended_by, [fired.action for fired in slow.fired])
        said("series", [(point.step, point.value) for point in slow.series("score")], slow.progress.step)
        if "slow" in slow.tags:
            branch = s.command("echo branch >> runs.txt; echo branched").result().stdout
            said("branch", branch.strip())
        search = s.sweep(
            "echo search {x} >> runs.txt; echo best={x}; echo best=1{x}",
            bough.product(x=[1, 2, 3]),
            monitors=[Regex("stdout", "best=([0-9]+)", do=Emit("best"), repeat=True), "regex:best=12 -> tag hit"],
        )
        heard = sorted((one.task.index, one.name, one.value) for one in search.emissions(timeout=100))
        said("emissions", heard, [task.index for task in search.tagged("hit")])
        said("emitted", [(one.name, one.value) for one in search[1].emitted])
        calls = s.map(reports, [4, 8])
        calls.wait_all(100)
        said("loss", [[point.value for point in points] for points in calls.series("loss")], calls[1].progress.share)
        said("reused", slow.reused, [task.reused for task in search], [task.reused for task in calls.tasks()])
        if "wait" in sys.argv:
            time.sleep(100)
        said("end")
    """


def lines_until(process: subprocess.Popen[str], word: str) -> list[str]:
    """What a script says up to a line that begins with a word."""
    assert process.stdout is not None
    found: list[str] = []
    for line in process.stdout:
        found.append(line.strip())
        if line.startswith(word):
            break
    return found


def killed_after(folder: Path, script: str, word: str) -> list[str]:
    """Run a script until it says a word, kill it, and wait until nothing of it is left; what it said."""
    (folder / "flow.py").write_text(textwrap.dedent(script))
    command = [sys.executable, "flow.py", "wait"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        said = lines_until(process, word)
        os.kill(process.pid, signal.SIGKILL)
    return said


def run_again(folder: Path) -> list[str]:
    words = [sys.executable, "flow.py"]
    again = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert again.returncode == 0, again.stderr
    return again.stdout.splitlines()


def test_tags_emissions_and_series_of_reused_tasks_are_those_of_the_run_that_did_them(tmp_path: Path) -> None:
    first = killed_after(tmp_path, SCRIPT, "reused")
    assert first[:2] == [
        "tags|['slow']|ended by regex-2: matched 'done'|['tag', 'finish']",
        "series|[(1.0, 5.0), (2.0, 3.0)]|2.0",
    ]
    assert first[-1] == "reused|False|[False, False, False]|[False, False]"
    runs = (tmp_path / "runs.txt").read_text()
    again = run_again(tmp_path)
    assert again[: len(first) - 1] == first[:-1]
    assert again[len(first) - 1 :] == ["reused|True|[True, True, True]|[True, True]", "end"]
    assert (tmp_path / "runs.txt").read_text() == runs  # nothing ran again


def test_a_script_killed_in_the_middle_takes_the_same_branch(tmp_path: Path) -> None:
    first = killed_after(tmp_path, SCRIPT, "tags")
    again = run_again(tmp_path)
    assert again[:1] == first
    assert again[2] == "branch|branched"
    assert (tmp_path / "runs.txt").read_text().splitlines().count("slow") == 1


# the first is done when the script is killed; the others wait for a file, and are compared with it in both runs
POPULATION = """
    import sys, time
    from pathlib import Path
    import bough
    from bough.monitors import Metric
    from bough.monitors.comparison import MedianRule

    COMMAND = (
        "echo run {own} >> runs.txt; echo score={own}; while test {own} != 3 && ! test -e go; do sleep 0.02; done;"
        "echo score={own}; test {own} != 9 || sleep 60"
    )
    rule = MedianRule("score", at=[2], least=1)

    with bough.Session(store="store", name="flow", cores=3) as s, s.group("race") as race:
        if RULE_FIRST:
            race.rule(rule)
        tasks = s.sweep(COMMAND, bough.product(own=[3, 9]), monitors=[Metric("score=([0-9]+)", at=[2])])
        if not RULE_FIRST:
            tasks.rule(rule)
        print("first", end=tasks[0].result().ended_by + "\\n", flush=True)
        if "wait" in sys.argv:
            time.sleep(100)
        Path("go").touch()
        tasks.wait_all(100)
        print(tasks[0].reused, [task.result().ended_by for task in tasks.tasks()], flush=True)
    """


@pytest.mark.parametrize("rule_first", [False, True])
def test_rules_compare_with_reused_tasks_as_in_the_run_that_did_them(tmp_path: Path, rule_first: bool) -> None:
    assert killed_after(tmp_path, POPULATION.replace("RULE_FIRST", str(rule_first)), "first") == ["first"]
    reason = "ended by median: its best score by step 2 is 9, the median of 1 others 3"
    assert run_again(tmp_path) == ["first", f"True ['', '{reason}']"]
    assert sorted((tmp_path / "runs.txt").read_text().split("\n")).count("run 3") == 1
