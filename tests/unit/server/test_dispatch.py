"""Functions and tables go by the digests of what they are: nothing else is kept or sent under such a name."""

from __future__ import annotations

import pytest
from test_shell import BODY, Harness, a_task, the

from bough.errors import StoreFailed
from bough.server.turns.dispatch import SpanSender
from bough.server.turns.result_parts import ResultCache
from bough.wire.client_messages import Accepted, Blob, Refused, Submit


def test_a_blob_that_is_not_what_its_name_says_ends_its_own_connection_only() -> None:
    harness = Harness()
    honest, hostile, executor = harness.client(), harness.client(), harness.executor()

    hostile.say(Blob(BODY, b"other code"), Submit([a_task(1)], 5))

    refused = the(Refused, hostile.said())
    assert (refused.message, refused.kind) == (f"the blob {BODY.hex()} is not what its name says", "ProtocolError")
    assert hostile.transport.closed
    assert not harness.shell.queries.record_count  # what it said behind the blob is not heard
    honest.say(Blob(BODY, b"body"), Submit([a_task(2)], 6))
    assert the(Accepted, honest.said()).request == 6
    assert the(Blob, executor.said()) == Blob(BODY, b"body")


def test_a_blob_that_was_damaged_in_the_store_is_not_sent() -> None:
    queries = Harness().shell.queries
    sender = SpanSender(ResultCache(lambda *_: None), lambda _: b"other code", queries, names_directories=False)
    with pytest.raises(StoreFailed, match="was damaged in the store: see bough store check"):
        sender._blob(BODY)
