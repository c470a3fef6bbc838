"""The journal's rows: what is written is read back, and old formats stay readable."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import msgspec
import pytest

from bough.journal import codec
from bough.model.events.facts import (
    VERSION,
    Cancelled,
    ElementFailed,
    ExecutorJoined,
    MemoLookedUp,
    Placed,
    RunClosed,
    RunOpened,
    SpanEnded,
    Submitted,
)
from bough.model.outcomes import Cause, Detail, Failure, Output, ResultFile, Stream
from bough.model.sites.resources import Needs
from bough.model.tasks import ArraySpec, Dep, GroupSpec, Kind, On, Page, Reuse, TaskSpec

DATA = Path(__file__).parents[2] / "data"

FACTS = [
    RunOpened(1, "fold", "here", 42, True, "sjf"),
    ExecutorJoined(1, "local", "here", 43, Needs(cores=2, memory=10**9, named=(("license", 1),)), 99.5),
    Submitted(
        [
            GroupSpec(1, "align"),
            TaskSpec(1, Kind.COMMAND, b"", b"payload", 1, "sort", "sort {x}", after=(Dep(On.GROUP, 1),), key=b"k" * 16),
            ArraySpec(2, Kind.FUNCTION, b"b" * 16, 10, pages=(Page(0, 10, b"page"),), reuse=(Reuse(0, 5, 1, 2),)),
        ],
        7,
    ),
    Placed(1, 2, 0, 5, 1, 1, True),
    SpanEnded(1, 0, 4, 0.25, b"results", record=2, attempt=1, executor=1, key=b"k" * 16),
    SpanEnded(
        2,
        0,
        1,
        1.5,
        ResultFile("/results/1", 10**8),
        (Detail(0, 0, 1.0, 2.5, 0.9, 10**6, Stream("/out/1", 5, 6), None, (Output("x", "/x", 3, 4),)),),
        1,
        2,
        1,
    ),
    ElementFailed(1, 4, Failure(Cause.EXIT, "it exited with 3", 3, stderr="oh"), Detail(4, 3), 12.5, 2, 1, 1),
    MemoLookedUp(2, 5, 10, True, 1, 7, 1, 3),
    Cancelled(Dep(On.ARRAY, 2, 3), 9),
    RunClosed(1, "interrupted"),
]


def test_facts_are_read_back_equal():
    row = codec.encode(FACTS)
    assert row[0] == VERSION
    assert codec.decode(bytes(row)) == FACTS
    assert codec.decode(bytes(codec.encode([]))) == []


def test_big_rows_that_shrink_are_compressed():
    facts = [SpanEnded(1, 0, 100_000, 1.0, pickle.dumps(list(range(100_000))))]
    row = codec.encode(facts)
    assert row[0] == VERSION | codec.COMPRESSED
    assert len(row) < len(facts[0].results) * codec.PAYS
    assert codec.decode(bytes(row)) == facts


def test_big_rows_that_do_not_shrink_are_left_alone():
    facts = [SpanEnded(1, 0, 1, 1.0, random.Random(1).randbytes(2 * codec.WORTH_TRYING))]
    row = codec.encode(facts)
    assert row[0] == VERSION
    assert codec.decode(bytes(row)) == facts


@pytest.mark.parametrize("version", range(1, VERSION))
def test_the_stored_samples_of_earlier_versions_are_readable(version: int):
    assert codec.decode((DATA / f"journal-v{version}.bin").read_bytes()) == FACTS


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (b"", "empty"),
        (bytes([VERSION | codec.COMPRESSED]) + b"nonsense", "damaged"),
        (bytes([VERSION]) + b"\xc1", "does not hold facts"),
        (bytes([VERSION]) + msgspec.msgpack.encode([["no such tag", 1]]), "does not hold facts"),
        (bytes([VERSION + 1]), "use a newer one"),
        (bytes([0]), "not known"),
    ],
)
def test_what_cannot_be_read_says_why(row, says):
    with pytest.raises(codec.Unreadable, match=says):
        codec.decode(row)


def test_a_torn_row_is_unreadable():
    row = bytes(codec.encode(FACTS))
    for length in range(1, len(row)):
        with pytest.raises(codec.Unreadable):
            codec.decode(row[:length])


def test_old_rows_are_upgraded_step_by_step():
    def first(payload: bytes) -> bytes:
        return payload.replace(b"A", b"B")

    def second(payload: bytes) -> bytes:
        return msgspec.msgpack.encode([Placed(len(payload), payload.count(b"B"), 0, 1, 1, 1)])

    facts = codec.decode(bytes([5]) + b"AxA", version=7, upgrades={5: first, 6: second})
    assert facts == [Placed(3, 2, 0, 1, 1, 1)]
