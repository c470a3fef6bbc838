"""With a bundle size each message to the server has that many loose tasks at the most, one message at a time."""

from __future__ import annotations

import pytest

from bough.api.client.outbox import Outbox
from bough.api.session.launch import read_tuning
from bough.errors import UserError
from bough.model.ids import BlobId, RecordId
from bough.model.tasks import Kind, TaskSpec
from bough.wire.client_messages import Blob, CloseSession, Submit


def filled(bundle: int, count: int) -> Outbox:
    outbox = Outbox(bundle=bundle)
    for number in range(1, count + 1):
        outbox.submit(TaskSpec(RecordId(number), Kind.FUNCTION, BlobId(b"f"), b""), 10, [(BlobId(b"f"), b"code")])
    return outbox


def sizes(messages: list[object]) -> list[int]:
    return [len(message.items) for message in messages if isinstance(message, Submit)]


def test_bundles_go_one_after_the_other() -> None:
    outbox = filled(3, 7)
    (first,) = outbox.take(everything=False)
    assert sizes(first) == [3]
    assert isinstance(first[0], Blob)
    assert list(outbox.take(everything=False)) == []  # nothing before it is heard
    found = []
    while outbox.is_busy:
        outbox.accepted(outbox.unacknowledged[0].number)
        found += [sizes(messages) for messages in outbox.take(everything=False)]
    assert found == [[3], [1]]


def test_a_bundle_of_one_sends_each_task_alone() -> None:
    outbox = filled(1, 3)
    outbox.post(CloseSession("drain"))
    batches = list(outbox.take(everything=True))
    assert [sizes(messages) for messages in batches] == [[1], [1], [1], []]


def test_without_a_bundle_size_all_go_together() -> None:
    (batch,) = filled(0, 100).take(everything=False)
    assert sizes(batch) == [100]


def test_dispatch_options_are_checked_and_said_to_the_server() -> None:
    assert read_tuning({}).server_words() == []
    assert read_tuning({"pickup": 5, "piggyback": False}).server_words() == ["--pickup", "5", "--no-piggyback"]
    assert read_tuning({"piggyback": True}).server_words() == []
    assert read_tuning({"bundle": 300}, is_remote=True).bundle == 300
    for wrong in (0, -1, True, 2.5):
        with pytest.raises(UserError, match="bundle is"):
            read_tuning({"bundle": wrong})  # type: ignore[typeddict-item]
    with pytest.raises(UserError, match="start it with --pickup N"):
        read_tuning({"pickup": 5}, is_remote=True)
    with pytest.raises(UserError, match="start it with --no-piggyback"):
        read_tuning({"piggyback": False}, is_remote=True)


def test_pages_of_items_fill_requests_as_single_items_do() -> None:
    items = [TaskSpec(RecordId(number), Kind.COMMAND, BlobId(b""), b"") for number in range(1, 12_001)]
    one_by_one, together = Outbox(), Outbox()
    for item in items:
        one_by_one.submit(item, 10, ())
    for at in range(0, len(items), 999):
        page = items[at : at + 999]
        together.submit_all(page, 10 * len(page))
    for outbox in (one_by_one, together):
        assert [sizes(messages) for messages in outbox.take(everything=True)] == [[5_000, 5_000, 2_000]]
        outbox.accepted(outbox.unacknowledged[-1].number)
        assert (outbox._items, outbox._bytes) == (0, 0)


def test_a_page_keeps_to_the_size_of_bundles() -> None:
    outbox = Outbox(bundle=3)
    outbox.submit_all([TaskSpec(RecordId(number), Kind.COMMAND, BlobId(b""), b"") for number in range(1, 8)], 700)
    (first,) = outbox.take(everything=False)
    assert sizes(first) == [3]
