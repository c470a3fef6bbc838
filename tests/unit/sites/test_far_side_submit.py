"""The errand that gives several pilots to a batch system: its pace, its time, and what ends it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from bough.sites.batch.batch_system import ENDS, WAITS
from bough.sites.head import far_side


class Passing:
    """A clock on which sleeping takes no time, and a command so much."""

    def __init__(self, takes: float) -> None:
        self.now = 100.0
        self.takes = takes
        self.begun: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def run(
    monkeypatch: pytest.MonkeyPatch, folder: Path, clock: Passing, says: dict[int, Any], **request: Any
) -> dict[str, Any]:
    """Ten pilots; `says`: what the command answers for one of them."""

    def submit_one(job: dict[str, Any], place: str) -> dict[str, Any]:
        clock.begun.append(clock.now)
        clock.now += clock.takes
        found = says.get(job["pilot"], {"code": 0, "out": "7", "said": ""})
        if isinstance(found, OSError):
            raise found
        return found  # type: ignore[no-any-return]

    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setattr(far_side, "time", clock)
    monkeypatch.setattr(far_side, "_submit_one", submit_one)
    jobs = [{"pilot": pilot} for pilot in range(1, 11)]
    whole = {"key": "k", "jobs": jobs, "again": False, "seconds": 2.0, "gap": 0.0, "ends": ENDS, **request}
    return far_side.submit(whole)["pilots"]  # type: ignore[no-any-return]


def test_it_is_no_faster_than_the_site_wants_and_ends_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = Passing(0.05)
    assert list(run(monkeypatch, tmp_path, clock, {}, gap=0.5)) == ["1", "2", "3", "4", "5"]
    assert [later - before for before, later in zip(clock.begun, clock.begun[1:], strict=False)] == [0.5] * 4
    slow = Passing(3.0)
    assert list(run(monkeypatch, tmp_path, slow, {})) == ["1"]
    assert list(run(monkeypatch, tmp_path, Passing(0.0), {}, seconds=0.0, gap=1.0)) == ["1"]  # one at the least


@pytest.mark.parametrize(
    ("said", "ends"),
    [
        ({"code": 1, "out": "", "said": "sbatch: error: Unable to contact slurm controller"}, True),
        ({"code": 1, "out": "", "said": "sbatch: error: AssocMaxSubmitJobLimit"}, True),
        ({"slow": 2.0, "out": "", "said": ""}, True),
        ({"missing": "sbatch"}, True),
        (OSError("no space"), True),
        ({"code": 1, "out": "", "said": "sbatch: error: Invalid partition name specified"}, False),
        ({"code": 0, "out": "", "said": "connection reset, and all is well"}, False),
    ],
)
def test_what_concerns_all_ends_it_and_what_concerns_one_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: Any, ends: bool
) -> None:
    found = run(monkeypatch, tmp_path, Passing(0.01), {3: said})
    assert len(found) == (3 if ends else 10)
    assert found["3"]["did"] == (said if isinstance(said, dict) else {"trouble": "no space"})


def test_those_that_were_tried_before_are_named_also_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = Path(far_side.pilot_folder("k", 9))
    place.mkdir(parents=True)
    (place / "pilot.json").write_text(json.dumps({"digest": "d", "tried": 60.0}))
    found = run(monkeypatch, tmp_path, Passing(5.0), {})
    assert list(found) == ["1", "9"]
    assert found["9"] == {"tried": 45.0}
    again = run(monkeypatch, tmp_path, Passing(0.0), {}, again=True)
    assert "did" in again["9"]


def test_a_command_that_waits_by_itself_is_ended_at_once_and_a_slow_one_in_time() -> None:
    begun = time.monotonic()
    text = "echo 7; echo 'sbatch: error: Slurm job queue full, sleeping and retrying' >&2; exec sleep 600"
    did = far_side._command(["/bin/sh", "-c", text], 300.0, waits=WAITS)
    assert did["slow"] == 300.0
    assert "queue full" in did["said"]
    assert did["out"] == "7\n"
    did = far_side._command(["/bin/sh", "-c", "echo some; exec sleep 600"], 0.5)
    assert (did["slow"], did["out"]) == (0.5, "some\n")
    assert time.monotonic() - begun < 250.0
    big = far_side._command(["/bin/sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x; echo end >&2; exit 3"], 60.0)
    assert (big["code"], len(big["out"]), big["said"]) == (3, 300000, "end\n")
