"""An errand that is given up is over, whatever its process has written that nobody read."""

from __future__ import annotations

import asyncio

import pytest

from bough.errors import SiteError
from bough.sites.head.errands import run


@pytest.mark.parametrize("script", ["yes", "yes >&2", "yes & sleep 100"])
def test_a_host_that_writes_without_end_is_given_up(script: str) -> None:
    with pytest.raises(SiteError, match="has not answered within"):
        asyncio.run(run(["sh", "-c", script], b"", 0.2, "there"))
