"""Files among the arguments of functions: found wherever they are, known by what they hold."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

import bough
from bough.api.memo import file_identities
from bough.api.memo.digests import argument_digest, value_digest
from bough.api.memo.file_identities import argument_identity, identities_in, paths_of


def test_an_argument_counts_by_content_and_a_global_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for value in (file, [file], {"a": (1, file)}, {file}, frozenset({file})):
        file.write_text("one")
        kept, named = argument_digest(value), value_digest(value)
        file.write_text("two")
        assert argument_digest(value) != kept
        assert value_digest(value) == named
        file.unlink()
        gone = argument_digest(value)
        assert gone not in {None, kept, named}
        file.write_text("one")
        assert argument_digest(value) == kept


def test_a_pure_path_stands_for_no_file_and_a_folder_for_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert argument_identity(PurePosixPath("/etc/passwd")) == b""
    (tmp_path / "a").write_text("a")
    first = argument_identity(tmp_path)
    assert first == argument_identity(tmp_path)
    (tmp_path / "b").write_text("b")
    assert argument_identity(tmp_path) not in {None, first}
    monkeypatch.setattr(file_identities, "MOST_FILES", 1)
    assert argument_identity(tmp_path) is None
    assert argument_digest([tmp_path]) is None
    assert identities_in([tmp_path]) != identities_in([tmp_path])  # so that no later run finds it


def test_what_cannot_be_read_has_no_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "stat", refuse)
    assert argument_identity(tmp_path / "secret") is None


def test_paths_are_found_in_rows_lists_dicts_and_spaces(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    names = {str(a), str(b)}
    itself: list[Any] = [a, b]
    itself.append(itself)
    for items in (
        [a, b],
        [[a], {"x": (b, 1)}],
        itself,
        bough.product(x=[1, 2], y=[a, b]),
        bough.product(x=[3]) * bough.tie(p=[a, 4], q=["t", b]),
    ):
        assert set(identities_in(items)) == names
    assert (
        identities_in(range(10)) == identities_in([1, "a", None, str(a)]) == identities_in(bough.product(x=[1])) == {}
    )
    assert list(paths_of((1, [a], {"k": b}))) == [str(a), str(b)]
