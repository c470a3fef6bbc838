"""Many pilots at one real Slurm: submitted in bulk, within its limit, none lost and none doubled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_shop import QUICK, BatchShop
from faulty_sbatch import calls, install_faulty_sbatch, tally
from slurm_clusters import SlurmCluster, need_slurm

import bough
from bough.api.session.session import opened_sessions

MANY = 40
LIMIT = 15


@pytest.fixture
def full() -> Iterator[SlurmCluster]:
    """A Slurm that takes fifteen jobs and starts none."""
    need_slurm()
    cluster = SlurmCluster("full", 1, 2, f"MaxJobCount={LIMIT}")
    cluster.says("scontrol", "update", "NodeName=f1", "State=DRAIN", "Reason=test")
    yield cluster
    cluster.stop()


@pytest.fixture
def batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, full: SlurmCluster) -> Iterator[BatchShop]:
    folder = tmp_path / "w"
    folder.mkdir()
    monkeypatch.chdir(folder)
    shop = BatchShop(folder, monkeypatch, full, SLURM_CONF=str(full.conf))
    yield shop
    shop.clean_up()
    opened_sessions.clear()


def test_none_is_lost_or_doubled_at_a_slurm_that_is_full_and_whose_sbatch_errs(
    batch: BatchShop, full: SlurmCluster
) -> None:
    install_faulty_sbatch(full.bin, every=4)
    batch.start()
    batch.bough(
        *("site", "add", "alpha", "--batch", "slurm", "--max-pilots", str(MANY), "--patience", "2s"),
        *("--submit-rate", "100", *QUICK),
    )
    with bough.Session(batch.address, name="many") as session:
        tasks = [session.command("true") for _ in range(MANY)]
        batch.until(lambda: len(full.jobs()) >= LIMIT - 1, "Slurm to be full")
        batch.until(lambda: "takes no more jobs for now" in str(batch.site()["problem"]), "the site to say so")
        assert len(batch.site()["pilots"]) == MANY  # type: ignore[arg-type]
        assert "slurm takes no more jobs for now" in batch.bough("site", "show", "alpha")
        tried = calls(full.bin)
        full.restart_controller(MaxJobCount=1000)
        batch.until(
            lambda: all(pilot["handle"] for pilot in batch.site()["pilots"]),  # type: ignore[attr-defined]
            "all pilots to be taken",
        )
        assert calls(full.bin) > tried
        found = tally(full.says("squeue", "-h", "-o", "%i %j"), batch.site()["pilots"])  # type: ignore[arg-type]
        assert found == (MANY, [], [], [])
        for task in tasks:
            task.cancel()
    assert batch.server is not None
    assert " failed: " not in batch.server.said()
    batch.bough("site", "remove", "alpha")
    batch.until(batch.is_clean, "the jobs to end")
