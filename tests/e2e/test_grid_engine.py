"""A site with a real Grid Engine, for which the texts are our own: jobs come, work, are deleted, and none is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_shop import QUICK, BatchShop
from grid_engines import GridEngineCluster, need_grid_engine
from processes import PATIENCE
from site_shop import shop_folder

import bough

__all__ = ["shop_folder"]  # a fixture


@pytest.fixture
def batch(monkeypatch: pytest.MonkeyPatch, shop_folder: Path) -> Iterator[BatchShop]:
    need_grid_engine()
    shop = BatchShop(shop_folder, monkeypatch, GridEngineCluster(4))
    yield shop
    shop.clean_up()


def test_grid_engine_gives_results_loses_a_job_and_keeps_nothing(batch: BatchShop) -> None:
    batch.start()
    batch.bough("site", "add", "ge", "--batch", "sge", "--partition", "main.q", *QUICK, "--cores-per-pilot", "2")
    assert "sge answers; you have 0 jobs there" in batch.bough("site", "test", "ge")
    notes, gate = batch.folder / "notes", batch.folder / "gate"
    with bough.Session(batch.address, name="first") as session:
        name, slots = session.command("echo $JOB_NAME $NSLOTS").result(PATIENCE).stdout.split()
        assert name.startswith("bough-")
        assert slots == "2"
        task = session.command(f"echo $JOB_ID >> {notes}; while [ ! -e {gate} ]; do sleep 0.05; done")
        batch.until(notes.exists, "the task to begin")
        batch.until(lambda: batch.site("ge")["room"] == 1, "Grid Engine to say that two of its four slots are free")
        [job] = batch.cluster.jobs()
        batch.cluster.says("qdel", job)  # type: ignore[attr-defined]
        batch.until(lambda: len(notes.read_text().split()) == 2, "another pilot to run the task")
        gate.touch()
        assert task.result(PATIENCE).returncode == 0
    batch.bough("site", "remove", "ge")
    batch.until(batch.is_clean, "the job to end")


def test_what_grid_engine_refuses_is_told_in_its_own_words(batch: BatchShop) -> None:
    batch.start()
    batch.bough("site", "add", "ge", "--batch", "sge", "--partition", "nowhere.q", *QUICK)
    said = batch.bough("site", "test", "ge", code=3)
    assert 'sge: Unable to run job: Job was rejected because job requests unknown queue "nowhere.q"' in said
    batch.bough("site", "remove", "ge")
    assert batch.is_clean()
