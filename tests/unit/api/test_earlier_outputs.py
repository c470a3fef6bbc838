"""The outputs of arrays of earlier runs, by digest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bough.api.file_table import SIZE, EarlierOutputs, path_digest, store_output_digests
from bough.errors import StoreFailed


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "args").mkdir()
    return str(tmp_path)


def digests(*paths: str) -> bytes:
    return b"".join(map(path_digest, paths))


def test_what_arrays_of_earlier_runs_claimed_is_found_and_nothing_else(store: str) -> None:
    store_output_digests(store, 3, digests("/x/b", "/x/a"))
    store_output_digests(store, 4, digests("/x/b", "/x/a"))
    store_output_digests(store, 5, digests("/x/late"))
    claims = EarlierOutputs(store, 5)
    assert [path in claims for path in ("/x/a", "/x/b", "/x/late", "/x/", "")] == [True, True, False, False, False]


def test_claims_of_many_outputs_take_eight_bytes_each(store: str) -> None:
    paths = [f"/x/{number}" for number in range(70_000)]
    store_output_digests(store, 1, digests(*paths))
    store_output_digests(store, 2, digests("/y"))
    assert (Path(store) / "args" / "1.writes").stat().st_size == SIZE * len(paths)
    claims = EarlierOutputs(store, 9)
    assert "/x/69999" in claims
    assert "/x/0" in claims
    assert "/y" in claims
    assert "/x/70000" not in claims


def test_an_open_array_claims_more_and_more_even_after_a_write_that_was_cut_short(store: str) -> None:
    store_output_digests(store, 1, digests("/x/a"))
    with open(f"{store}/args/1.writes", "ab") as file:
        file.write(path_digest("/x/cut")[:3])
    store_output_digests(store, 1, digests("/x/b"), more=True)
    store_output_digests(store, 2, digests("/x/c"), more=True)
    claims = EarlierOutputs(store, 9)
    assert all(path in claims for path in ("/x/a", "/x/b", "/x/c"))
    assert "/x/cut" not in claims


def test_a_number_that_is_given_again_has_only_its_own_claims(store: str) -> None:
    store_output_digests(store, 1, digests("/x/a"))
    store_output_digests(store, 1, digests("/x/b"))
    claims = EarlierOutputs(store, 2)
    assert "/x/b" in claims
    assert "/x/a" not in claims


def test_a_store_without_claims_has_none(tmp_path: Path) -> None:
    assert "/x" not in EarlierOutputs(str(tmp_path), 1)


def test_claims_that_cannot_be_written_are_an_error_of_the_store(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match=r"1\.writes cannot be written: No such file"):
        store_output_digests(str(tmp_path), 1, digests("/x"))


def test_a_digest_is_the_same_in_every_process() -> None:
    code = "import sys; from bough.api.file_table import path_digest; sys.stdout.write(path_digest('/x/\u00e9').hex())"
    made = set()
    for seed in ("1", "2"):
        run = [sys.executable, "-c", code]
        made.add(subprocess.run(run, env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True).stdout)
    assert made == {path_digest("/x/é").hex()}
