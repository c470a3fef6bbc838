"""Who waits for bytes of an executor that has gone is told so at once, whoever he is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from bough.errors import StoreFailed
from bough.server.files.file_requests import FileRequests
from bough.wire.file_messages import FilePiece


def test_pieces_of_an_executor_that_has_gone_are_waited_for_no_longer() -> None:
    async def lose() -> tuple[BaseException | None, bool, FilePiece]:
        gone, there = object(), object()
        requests = FileRequests.__new__(FileRequests)
        requests.site_files = SimpleNamespace(lost=lambda _: None)  # type: ignore[assignment]
        requests._tasks, requests._uploads = {}, {}
        loop = asyncio.get_running_loop()
        lost, kept, came = (loop.create_future() for _ in range(3))
        came.set_result(FilePiece(3, 0, b"x"))
        requests._pieces = {(gone, 1, 0): lost, (there, 2, 0): kept, (gone, 3, 0): came}  # type: ignore[dict-item]
        requests.on_lost(gone)  # type: ignore[arg-type]
        assert list(requests._pieces) == [(there, 2, 0)]
        return lost.exception(), kept.done(), came.result()

    error, is_done, piece = asyncio.run(lose())
    assert isinstance(error, StoreFailed)
    assert "gone" in str(error)
    assert not is_done
    assert piece.data == b"x"
