"""The connection by which a session brings files is closed by whoever gives it up, also while it is made."""

from __future__ import annotations

import pytest

from bough.api import file_transfer
from bough.api.file_transfer import FileConnection
from bough.errors import PeerLost
from bough.wire import questions

LOOK = questions.Project()


class SlowLink:
    """A connection; the session gives it up while it is made."""

    made: list[SlowLink]
    connection: FileConnection

    def __init__(self, address: str) -> None:
        self.is_closed = False
        self.made.append(self)
        self.connection.end()

    def close(self) -> None:
        self.is_closed = True

    def ask(self, question: object) -> object:
        raise AssertionError(f"{question} is asked after the end")


def test_a_connection_that_is_given_up_while_it_is_made_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlowLink, "made", [], raising=False)
    monkeypatch.setattr(SlowLink, "connection", FileConnection("unix:nowhere"), raising=False)
    monkeypatch.setattr(file_transfer, "_Link", SlowLink)
    with pytest.raises(PeerLost):
        SlowLink.connection.ask(LOOK)
    with pytest.raises(PeerLost):
        SlowLink.connection.ask(LOOK)  # the files of the next element
    assert all(one.is_closed for one in SlowLink.made)
