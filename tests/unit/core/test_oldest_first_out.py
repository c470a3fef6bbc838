"""Tables that forget their oldest entries do so at a cost that does not grow with what they forgot before."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bough.core.records.indexes import placed_inputs
from bough.core.records.indexes.announcements import Announcements
from bough.core.records.indexes.data_places import Place
from bough.core.records.indexes.placed_inputs import PlacedInputs


def test_the_newest_placed_inputs_of_a_workflow_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed_inputs, "_MOST", 64)
    placed, place = PlacedInputs(), Place("s/h", None)
    place.add((7,))
    affinity = cast("Any", SimpleNamespace(frozen=False, data=SimpleNamespace(common=set())))
    executor = cast("Any", SimpleNamespace(site="s", host="h"))
    workflow = SimpleNamespace(run=1)
    for key in range(1000):
        work = SimpleNamespace(group=SimpleNamespace(workflow=workflow))
        unit = cast("Any", SimpleNamespace(contents=array("I", (7, 8)), work=work))
        placed.note(affinity, unit, key, place, executor)
        assert placed.of(1, key) == ("s", "h", array("I", (7, 8)), (7,))
        assert all(placed.of(1, former) is not None for former in range(max(0, key - 59), key))
        assert placed.of(1, key - 64) is None


def test_who_has_been_busy_for_a_moment_is_looked_at_and_nobody_else() -> None:
    announcements = Announcements()
    executors = cast(
        "Any", {one: SimpleNamespace(id=one, wide=False, draining=False, away=False, suspended=0.0) for one in range(9)}
    )
    for one in range(9):
        announcements.served(one, now=one / 100)
    looked = [one.id for one in announcements.look(executors, now=0.1401)]
    assert looked == [0, 1, 2, 3, 4]
    assert announcements.due == pytest.approx(0.15)
