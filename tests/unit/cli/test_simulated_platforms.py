"""Platforms of `bough simulate`: the files that they name lie beside them, and what is wrong ends with exit code 2."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a platform, in another folder than the workflow's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_text("a: attr.seconds=30 :: true\n")
    (tmp_path / "lab").mkdir()
    return tmp_path / "lab" / "lab.toml"


def test_a_trace_is_looked_for_beside_the_platform(bough: Call, lab: Path) -> None:
    lab.write_text('[site.a]\navailability = {file = "load.txt"}\n')
    (lab.parent / "load.txt").write_text("0 0.5\n10 0.5\n")
    code, out, err = bough("simulate", "list.txt", "--platform", str(lab), "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["policies"][0]["makespan"] == 60.0
    (lab.parent / "load.txt").write_text("0 0.5\n10 x\n")
    code, _, err = bough("simulate", "list.txt", "--platform", str(lab))
    assert code == 2
    assert "load.txt, line 2" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[site.a]\navailability = {values = [0, 0]}\n", "site a: availability: its values are all 0"),
        (b"[site.a]\ndisk_read = 'fast'\n", "site a: disk_read: 'fast' is no number of bytes a second"),
        (b"[site.a]\n# \xff\n", "lab.toml:2: a platform is UTF-8 text, and this line is not"),
    ],
)
def test_a_platform_that_cannot_be_is_the_users_error(bough: Call, lab: Path, text: bytes, said: str) -> None:
    lab.write_bytes(text)
    code, _, err = bough("simulate", "list.txt", "--platform", str(lab))
    assert code == 2
    assert said in err
