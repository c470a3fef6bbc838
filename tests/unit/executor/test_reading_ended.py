"""An executor that has what it asked for says that it takes nothing: the server counts its readers by that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bough.executor.executor_options import ExecutorLifetime
from bough.executor.files.command_files.sandbox import ExecutorFolder
from bough.executor.files.staging.staging import Staging
from bough.executor.host.descriptors import Descriptors
from bough.executor.worker_protocol import InputsStaged, StageInputs
from bough.model.ids import ExecutorId, SpanId
from bough.movers.local import digest_of
from bough.movers.peer_directory import SMALL
from bough.wire.file_messages import CacheReport, FileLocated, WantFile


class Worker:
    """Keeps what it is told."""

    name = "w"

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.send = self.told.extend


class Host:
    """An executor's staging, and a content of its cache."""

    def __init__(self, folder: Path, size: int) -> None:
        self.said: list[Any] = []
        told = ExecutorLifetime(cache_dir=str(folder), work=str(folder / "work"))
        rooms, number = ExecutorFolder(told.work), ExecutorId(1)
        self.staging = Staging(rooms, self.said.append, lambda _: None, Descriptors(), told=told, number=number)
        self.worker = Worker()
        path = folder / "x"
        path.write_bytes(b"x" * size)
        self.size, self.digest = size, digest_of(str(path))
        assert self.staging._contents.open().adopt(str(path), self.digest, size)

    def ask(self) -> int:
        """A task wants it; the number of the question."""
        self.staging.bring_inputs(self.worker, StageInputs(1, SpanId(5), 0, ["/far/x"]))
        [want] = [one for one in self.said if isinstance(one, WantFile)]
        return int(want.request)

    def answer(self, request: int) -> list[object]:
        """What is said when the server names no peer."""
        before = len(self.said)
        self.staging.on_message(FileLocated(request, self.digest, self.size))
        return self.said[before:]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path, SMALL)
    yield made
    made.staging.close()


def test_who_has_it_already_is_no_reader_of_the_server(host: Host) -> None:
    assert host.answer(host.ask()) == [CacheReport(ended=[host.digest])]
    assert [type(one) for one in host.worker.told] == [InputsStaged]


def test_whose_task_is_gone_when_the_answer_comes_is_none_either(host: Host) -> None:
    request = host.ask()
    host.staging.forget(host.worker)
    assert host.answer(request) == [CacheReport(ended=[host.digest])]
    assert not host.worker.told


def test_of_small_ones_nothing_is_said_because_nobody_counts_them(tmp_path: Path) -> None:
    host = Host(tmp_path, SMALL - 1)
    assert host.answer(host.ask()) == []
    host.staging.close()
