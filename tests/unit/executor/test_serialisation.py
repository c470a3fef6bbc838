from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from bough.executor.worker.serialisation import Blobs, arguments, input_value
from bough.model.ids import BlobId, RecordId, SpanId
from bough.model.outcomes import ResultFile
from bough.model.refs import Ref
from bough.model.tasks import Kind, Page
from bough.wire.executor_messages import RunSpan, Value

TABLE = BlobId(b"t")


def a_run(start: int, stop: int, **more: object) -> RunSpan:
    return RunSpan(SpanId(1), RecordId(1), start, stop, 1, Kind.FUNCTION, BlobId(b"f"), **more)  # type: ignore[arg-type]


def test_a_table_is_sliced() -> None:
    shelf = Blobs({TABLE: pickle.dumps(range(0, 1000, 10))})
    assert shelf.items(a_run(3, 6, is_array=True, table=TABLE)) == [30, 40, 50]


def test_pages_are_cut_to_the_span() -> None:
    pages = tuple(Page(at, at + 3, pickle.dumps(list(range(at, at + 3)))) for at in (0, 3, 6))
    assert Blobs({}).items(a_run(2, 7, is_array=True, pages=pages)) == [2, 3, 4, 5, 6]
    with pytest.raises(ValueError, match="3 of 5"):
        Blobs({}).items(a_run(1, 6, is_array=True, pages=pages[1:2]))


def test_values_come_from_pages_and_files(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(pickle.dumps([0, 1, 2]))
    pages: list[tuple[int, int, bytes | ResultFile]] = [(0, 3, ResultFile(str(path), 1)), (3, 5, pickle.dumps([3, 4]))]
    assert input_value(Value(1, 4, pages, single=False)) == [1, 2, 3]
    assert input_value(Value(4, 5, pages)) == 4


def test_arguments_come_from_a_file_and_inputs_replace_their_marks(tmp_path: Path) -> None:
    path = tmp_path / "args"
    path.write_bytes(pickle.dumps(((Ref(0), 1), {"k": [Ref(0)]})))
    run = a_run(0, 1, payload_path=str(path), inputs=[Value(0, 1, [(0, 1, pickle.dumps(["v"]))])])
    assert arguments(run) == [(("v", 1), {"k": ["v"]})]
