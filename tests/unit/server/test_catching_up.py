"""A session that finds the tables behind brings them up to date first, and says so if that takes long."""

from __future__ import annotations

from bough.server.embedded.embedded_server import catch_up


class Behind:
    """A store that has so many pieces left to fold."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces

    def project(self, at_most: int = 0) -> bool:
        assert at_most
        self.pieces -= 1
        return self.pieces <= 0


def test_it_is_told_once_that_catching_up_takes_long() -> None:
    told: list[str] = []
    store = Behind(5)
    catch_up(store, lambda: told.append("one moment"), patience=1e-9)
    assert (store.pieces, told) == (0, ["one moment"])


def test_nothing_is_told_of_what_is_soon_done() -> None:
    told: list[str] = []
    catch_up(Behind(5), lambda: told.append("one moment"), patience=60)
    catch_up(Behind(1), lambda: told.append("one moment"), patience=1e-9)
    assert told == []
