"""What the study makes of its measurements, and what it draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.analysis.jole_pictures import draw, running
from bough.analysis.jole_study import PUBLISHED, Measured, Results, rows_of
from bough.sim.studies.study_rows import Reference


def measured(accumulated: float, best: float, *, makespan: float = 10.0, iterations: int = 300) -> Measured:
    half = accumulated / 2
    return Measured(makespan, [("A", 0.0, half), ("B", 0.0, half)], [iterations] * 2, [(1.0, best + 1), (5.0, best)], 3)


def as_published() -> Results:
    return {
        name: [measured(accumulated, best, makespan=makespan, iterations=round(iterations))]
        for name, (makespan, accumulated, _, iterations, best) in PUBLISHED.items()
    }


def test_the_published_figures_hold_all_published_relations() -> None:
    rows = {row.subject: row for row in rows_of(as_published())}
    relations = [row for subject, row in rows.items() if subject.startswith("holds:")]
    assert len(relations) == 6
    assert [row.ours for row in relations] == [1.0] * 6
    share = rows["DL (20): accumulated time, of static's"]
    assert share.ours == pytest.approx(19375.11 / 28478.87)
    assert share.deviation == pytest.approx(0.0)
    assert {row.of for row in relations} == {Reference.RELATION}
    assert (share.of, rows["DL (20): best score"].of) == (Reference.FOLLOWS, Reference.PUBLISHED)


def test_a_relation_counts_the_seeds_in_which_it_holds() -> None:
    found = as_published()
    for name, runs in found.items():
        runs.append(runs[0] if name != "DLG (10)" else measured(28478.87, -40.0))
    rows = {row.subject: row.ours for row in rows_of(found)}
    assert rows["holds: DLG (10) takes at most half of static's accumulated time"] == 1.0
    assert rows["holds: DLG (10) reaches DL's score"] == 2.0
    assert rows["holds: DL saves 25% of static's accumulated time"] == 2.0


def test_a_score_that_is_lost_is_seen_with_negative_scores() -> None:
    found = as_published()
    found["DL (20)"] = [measured(100.0, -30.0)]  # 10% less than static's -33.32
    rows = {row.subject: row.ours for row in rows_of(found)}
    assert rows["holds: DL loses at most 5% of static's score"] == 0.0


def test_sites_are_compared_where_they_were_measured() -> None:
    found = as_published() | {"constant": [measured(50.0, -34.59)], "adjusting": [measured(60.0, -34.99)]}
    rows = {row.subject: row.ours for row in rows_of(found)}
    assert rows["holds: adjusting ends with a score no higher than constant's"] == 1.0
    assert rows["constant: generations"] == 3.0


def test_instances_that_run_at_a_site_are_counted() -> None:
    ran = [("A", 0.5, 2.0), ("A", 1.0, 3.0), ("B", 0.0, 9.0), ("A", 2.0, 2.5)]
    assert running(ran, "A") == [(0.0, 0), (0.5, 1), (1.0, 2), (2.0, 2), (2.5, 1), (3.0, 0)]


def test_two_pictures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(str(tmp_path / "pictures"), as_published())
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["instances.png", "scores.png"]
