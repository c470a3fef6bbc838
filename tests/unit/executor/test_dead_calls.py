"""What a function was called with whose worker is gone, on an executor that has used up much."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
from collections.abc import Iterator

import pytest

from bough.executor.worker import dead_calls
from bough.executor.worker.dead_calls import parameters_of
from bough.model.ids import BlobId, RecordId, SpanId
from bough.model.tasks import Kind
from bough.wire.executor_messages import RunSpan

BODY = BlobId(b"b" * 16)
CALL = RunSpan(SpanId(1), RecordId(1), 0, 1, 1, Kind.FUNCTION, BODY, payload=pickle.dumps(((-7,), {})))


@pytest.fixture(autouse=True)
def nothing_was_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_calls, "_slow", [0])
    monkeypatch.setattr(dead_calls, "_PATIENCE", 20.0)


@contextlib.contextmanager
def descriptors(limit: int, upto: int) -> Iterator[None]:
    """Open all descriptors below a number."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while taken[-1] < upto - 1:
            taken.append(os.dup(taken[0]))
        yield
    finally:
        for one in taken:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_arguments_of_a_dead_call_are_told_beyond_a_thousand_descriptors() -> None:
    with descriptors(2048, 1100):
        assert "-7" in parameters_of(CALL, 0, {BODY: pickle.dumps(abs)})


def test_nothing_is_told_when_there_is_no_descriptor_left() -> None:
    with descriptors(256, 256):
        assert parameters_of(CALL, 0, {BODY: pickle.dumps(abs)}) == ""
