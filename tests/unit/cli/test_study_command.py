"""`bough study`: options that would change nothing, and folders that cannot be, are refused before a study begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bough.sim import studies
from bough.sim.studies.study_rows import StudyResult, StudyRow

Call = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("two-mark", "--cores", "-4"), "leave --cores out"),
        (("two-mark", "--full"), "always runs as a whole"),
        (("jole", "--full"), "always runs as a whole"),
        (("jole", "--cores", "2"), "leave --cores out"),
        (("two-mark", "--store", "kept"), "leave --store out"),
        (("storage-affinity", "--cores", "-4"), "--cores is -4; it must be a whole number >= 1"),
        (("storage-affinity", "--cores", "0"), "--cores is 0"),
        (("storage-affinity", "--quick", "--full"), "exclude each other"),
        (("two-mark", "--pictures", "/proc/none"), "cannot write pictures into /proc/none"),
        (("jole", "--pictures", "/proc/none"), "cannot write pictures into /proc/none"),
        (("no-such",), "there is no study 'no-such'"),
    ],
)
def test_what_a_study_does_not_take_is_refused_in_one_line(bough: Call, words: tuple[str, ...], said: str) -> None:
    code, _, err = bough("study", *words)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_a_study_without_figures_says_that_nothing_is_drawn(
    bough: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(studies, "run", lambda *_, **__: StudyResult([StudyRow("a row", 1.0, 1.0)]))
    code, out, err = bough("study", "data-conscious", "--quick", "--pictures", str(tmp_path / "pictures"))
    assert code == 0
    assert "a row" in out
    assert "the study data-conscious --quick has no figure: nothing is drawn" in err
