"""What tests of the real executor share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from executor_server import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of one plain socket with an executor of two cores, which must leave in good order."""
    server = Server(tmp_path)
    yield server
    server.end()
    assert server.process.returncode == 0
