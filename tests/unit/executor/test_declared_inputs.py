"""What is known of the inputs of tasks that wait, without running anything of the user's."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from bough.executor.files.staging.declared_inputs import DeclaredInputs, load_plain
from bough.model.commands.command import CommandCall, CommandSettings, encode_call
from bough.model.spaces import Tie
from bough.model.tasks import Kind
from bough.wire.executor_messages import RunSpan


class Bomb:
    """What must not be made here."""

    def __reduce__(self) -> tuple[object, ...]:
        return (exec, ("raise SystemExit('ran')",))


def loose(reads: dict[str, bytes]) -> RunSpan:
    call = CommandCall(CommandSettings("/w"), reads=reads)
    return RunSpan(1, 1, 0, 1, 1, Kind.COMMAND, b"", payload=encode_call(call))  # type: ignore[arg-type]


def test_a_loose_command_says_what_it_reads_but_for_files_of_a_site() -> None:
    run = loose({"/w/a": b"", "s3://bucket/b": b"", "/w/c": b"d" * 32, "alpha:/data/d": b""})
    assert DeclaredInputs({}).of(run, 0) == ["/w/a", "s3://bucket/b", "/w/c"]
    assert DeclaredInputs({}).of(run, 1) == []


def test_plain_values_paths_and_tables_are_read_and_nothing_else() -> None:
    assert load_plain(pickle.dumps([("a", 1, 2.5), (Path("/x"), None)])) == [("a", 1, 2.5), (Path("/x"), None)]
    assert list(load_plain(pickle.dumps(Tie({"x": [1, 2]})))) == list(Tie({"x": [1, 2]}))
    with pytest.raises(pickle.UnpicklingError, match="is not plain"):
        load_plain(pickle.dumps(Bomb()))


def test_what_cannot_be_read_is_not_known() -> None:
    assert DeclaredInputs({}).of(RunSpan(1, 1, 0, 1, 1, Kind.COMMAND, b"x", is_array=True), 0) == []  # type: ignore[arg-type]
    garbage = RunSpan(1, 1, 0, 1, 1, Kind.COMMAND, b"", payload=b"\xff")  # type: ignore[arg-type]
    assert DeclaredInputs({}).of(garbage, 0) == []
    function = RunSpan(1, 1, 0, 1, 1, Kind.FUNCTION, b"", payload=b"\xff")  # type: ignore[arg-type]
    assert DeclaredInputs({}).of(function, 0) == []
