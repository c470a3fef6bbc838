"""GPUs and pinned cores, with real workers: which tasks get which, and that they come back."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

import bough
from bough.errors import BadValue, InvalidWorkload

VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "BOUGH_GPUS")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def alone_on_its_gpus(folder: str) -> tuple[str, list[str]]:
    """The GPUs of this task; an error if another task has one of them at the same time."""
    mine = bough.here().gpus
    marks = [os.open(f"{folder}/gpu{name}", os.O_CREAT | os.O_EXCL) for name in mine]
    time.sleep(0.05)
    for name, mark in zip(mine, marks, strict=True):
        os.close(mark)
        os.unlink(f"{folder}/gpu{name}")
    return os.environ["CUDA_VISIBLE_DEVICES"], mine


def visible(_: int = 0) -> str | None:
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def dies() -> None:
    os.kill(os.getpid(), 9)


def cores() -> list[int]:
    time.sleep(0.05)
    return bough.here().cpus


def test_no_two_tasks_have_one_gpu_and_all_are_used(tmp_path: Path) -> None:
    with bough.Session(cores=4, gpus=2) as session:
        found = [session.options(gpus=1).submit(alone_on_its_gpus, str(tmp_path)) for _ in range(8)]
        both = session.options(gpus=2).submit(alone_on_its_gpus, str(tmp_path))
        command = session.command("echo $CUDA_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES $BOUGH_GPUS", gpus=1)

        assert {task.result()[0] for task in found} == {"0", "1"}
        assert both.result() == ("0,1", ["0", "1"])
        assert len({*command.result().stdout.split()}) == 1
        assert session.submit(visible).result() is None  # who asks for none is told of none


def test_gpus_come_back_from_tasks_that_fail_are_killed_or_end_their_worker(tmp_path: Path) -> None:
    with bough.Session(cores=2, gpus=1, on_failure="ignore") as session:
        gpu = session.options(gpus=1)
        ends = [gpu.submit(dies), session.command("exit 3", gpus=1), session.command("sleep 60", gpus=1)]
        for task in ends[:2]:
            task.exception()
        while ends[2].state != "running":
            time.sleep(0.01)
        ends[2].kill()

        assert gpu.submit(alone_on_its_gpus, str(tmp_path)).result(60) == ("0", ["0"])


def test_a_session_keeps_to_the_gpus_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-aa,GPU-bb")
    with bough.Session(cores=1) as session:
        assert session.options(gpus=1).submit(visible).result() == "GPU-aa"
        assert session.command("echo $CUDA_VISIBLE_DEVICES", gpus=2).result().stdout == "GPU-aa,GPU-bb\n"
        assert session.submit(visible).result() == "GPU-aa,GPU-bb"
        with pytest.raises(InvalidWorkload, match="needs 3 gpus, and this session has 2 gpus"):
            session.options(gpus=3).submit(visible)
        with pytest.raises(BadValue, match=r"gpus is 0\.5; give a whole number"):
            session.options(gpus=0.5)


def test_an_environment_that_a_command_is_given_wins() -> None:
    with bough.Session(cores=1, gpus=1) as session:
        task = session.command("echo $CUDA_VISIBLE_DEVICES", gpus=1, env={"CUDA_VISIBLE_DEVICES": "mine"})
        assert task.result().stdout == "mine\n"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be shared out")
def test_pinned_tasks_run_on_cores_of_their_own() -> None:
    own = sorted(os.sched_getaffinity(0))
    with bough.Session(cores=2, pin=True) as session:
        found = [task.result() for task in [session.submit(cores) for _ in range(6)]]
        command = session.command("taskset -cp $$", cores=1).result().stdout

    assert all(len(one) == 1 for one in found)
    assert {one[0] for one in found} == {*own[:2]}
    assert command.rsplit(":", 1)[1].strip() in {str(own[0]), str(own[1])}


def alone_on_its_cores(folder: str) -> tuple[list[int], list[int]]:
    """The cores of this task, as it and as a process of its own see them; an error if another task has one of them."""
    mine = sorted(os.sched_getaffinity(0))
    marks = [os.open(f"{folder}/core{core}", os.O_CREAT | os.O_EXCL) for core in mine]
    time.sleep(0.05)
    child = subprocess.run(["taskset", "-cp", str(os.getpid())], capture_output=True, text=True, check=True).stdout
    for core, mark in zip(mine, marks, strict=True):
        os.close(mark)
        os.unlink(f"{folder}/core{core}")
    assert bough.here().cpus == mine
    return mine, [int(core) for core in child.rsplit(":", 1)[1].split(",")]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be shared out")
def test_two_pinned_tasks_never_share_a_core_and_one_may_have_both(tmp_path: Path) -> None:
    own = sorted(os.sched_getaffinity(0))[:2]
    folder = str(tmp_path)
    lock = f"set -C; c=$(taskset -cp $$ | sed 's/.*: //'); : > {folder}/core$c; sleep 0.05; rm {folder}/core$c; echo $c"
    with bough.Session(cores=2, pin=True) as session:
        calls = [session.submit(alone_on_its_cores, folder) for _ in range(8)]
        commands = [session.command(lock, name=f"c{number}") for number in range(8)]
        mapped = session.map(alone_on_its_cores, [folder] * 8)
        wide = session.options(cores=2).submit(alone_on_its_cores, folder)

        for mine, as_seen in [*(task.result(60) for task in calls), *mapped]:
            assert len(mine) == 1
            assert as_seen == mine
            assert mine[0] in own
        assert {task.result(60).stdout.strip() for task in commands} <= {str(core) for core in own}
        assert wide.result(60)[0] == own
