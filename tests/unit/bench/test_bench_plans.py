"""The workflow files of the benchmarks hold as many tasks as they are to have."""

from __future__ import annotations

import pytest

from bough.bench.measure_services import _FORMS
from bough.describe import formats
from bough.describe.formats import Source, find_reader, read


@pytest.mark.parametrize("form", _FORMS)
def test_a_file_of_the_benchmark_has_so_many_tasks(form: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = _FORMS[form][0](str(tmp_path), 2_000)
    source = Source(name, (tmp_path / name).read_text())
    assert read(source, find_reader(source) or formats.FLAT).task_count == 2_000
