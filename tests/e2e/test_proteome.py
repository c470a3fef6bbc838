"""The proteome example: the program as it was, ported by its import, and batched give the same predictions."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "proteome"


def test_only_the_import_changes() -> None:
    plain, ported = ((EXAMPLE / name).read_text().splitlines() for name in ("analyse.py", "analyse_bough.py"))
    changed = [line for line in difflib.ndiff(plain, ported) if line[0] in "+-" and line[1:].strip()]
    assert changed == ["- import subprocess", "+ from bough import driver as subprocess"]


@pytest.mark.skipif(shutil.which("blastp") is None, reason="NCBI BLAST+ is not installed: apt-get install ncbi-blast+")
def test_the_ported_programs_predict_what_the_original_does(tmp_path: Path) -> None:
    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, str(EXAMPLE / words[0]), *words[1:]],
            cwd=tmp_path,
            env={name: value for name, value in os.environ.items() if not name.startswith("BOUGH")},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("sample.py", "data", "--proteins", "8")
    said = [
        run("analyse.py", "data", "plain", "--one-at-a-time"),
        run("analyse_bough.py", "data", "ported"),
        run("analyse_batched.py", "data", "batched"),
        run("analyse_batched.py", "data", "by-four", "--by-four"),
    ]
    assert all("BLAST: 8 programs, 0 failed\nparsing: 8 programs, 0 failed\n" in one for one in said)
    found = [(tmp_path / name / "predictions.json").read_text() for name in ("plain", "ported", "batched", "by-four")]
    assert found == found[:1] * 4
    predicted = json.loads(found[0])
    assert len(predicted) == 8
    assert "unknown" not in {protein["place"] for protein in predicted.values()}
