"""`Session.sweep` with a Python function: keywords, filters, one record, reuse, and failures that name parameters."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

import bough
from bough.api.futures.array_view import ArrayView
from bough.errors import UserError


def scaled(x: int, y: str, z: int = 0) -> tuple[int, str, int]:
    return x, y, z


def plus_one(value: int) -> int:
    return value + 1


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with bough.Session(cores=2, store=tmp_path_factory.mktemp("sweeps") / "store") as opened:
        yield opened


def test_a_function_gets_the_parameters_as_keywords(session: bough.Session) -> None:
    space = bough.product(y=["a", "b"], x=range(1, 4))  # not in the order of the function's own
    array = session.sweep(scaled, space, where=lambda x, y: x != 2, z=7, name="scaled up", cores=1)
    assert isinstance(array, ArrayView)
    assert array.results() == [(1, "a", 7), (3, "a", 7), (1, "b", 7), (3, "b", 7)]
    assert [task.name for task in array] == ["scaled up"] * 4
    with session.jobs() as jobs:
        rows = jobs.query("SELECT is_array, length FROM tasks WHERE id = ?", (array.id,))[1]
    assert [tuple(row) for row in rows] == [(1, 4)]  # one record


def test_tasks_in_a_space_are_waited_for(session: bough.Session) -> None:
    first = session.submit(plus_one, 1)
    assert session.sweep(plus_one, bough.tie(value=[first, 5])).results() == [3, 6]


def test_a_failure_says_for_which_parameters(session: bough.Session) -> None:
    def fails(rate: float, seed: int) -> None:
        raise ValueError("2.5731")

    array = session.sweep(fails, bough.product(rate=[0.5], seed=[1, 2]))
    found = array.results(errors="return")
    assert [str(error) for error in found] == ["2.5731"] * 2
    assert "with rate=0.5, seed=2" in "".join(traceback.format_exception(found[1]))


@pytest.mark.parametrize(
    ("space", "options", "said"),
    [
        (bough.product(x=[1], q=[2]), {}, r"scaled\(.*cannot be called with the parameters x, q"),
        (bough.product(x=[1], y=[2]), {"x": 3}, "parameter x is given twice"),
        (bough.product(x=[1], y=[2]), {"cwd": "/"}, "cwd is for commands"),
        (bough.product(x=[1], y=[2]), {"where": 5}, "where is 5"),
        ([1, 2], {}, "a sweep runs over"),
    ],
)
def test_mistakes_are_found_before_anything_runs(
    session: bough.Session, space: Any, options: dict[str, Any], said: str
) -> None:
    before = session.progress.counts()
    with pytest.raises(UserError, match=said):
        session.sweep(scaled, space, **options)
    assert session.progress.counts() == before


def test_what_an_unfinished_run_has_done_is_reused(tmp_path: Path) -> None:
    seen, broken = str(tmp_path / "seen"), tmp_path / "broken"
    broken.touch()

    def noted(x: int, seen: str, broken: str) -> int:
        with open(seen, "a") as file:
            file.write(f"{x}\n")
        if x == 2 and Path(broken).exists():
            raise ValueError(x)
        return x * x

    for results in ([0, 1, None, 9], [0, 1, 4, 9]):
        with bough.Session(cores=1, store=tmp_path / "store") as opened:
            array = opened.sweep(noted, bough.product(x=range(4)), seen=seen, broken=str(broken))
            found = [None if isinstance(one, ValueError) else one for one in array.results(errors="return")]
        assert found == results
        broken.unlink(missing_ok=True)
    assert sorted(Path(seen).read_text().split()) == ["0", "1", "2", "2", "3"]
