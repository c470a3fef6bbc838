"""Where a campaign of simulations, which is a workflow of ours, keeps what it has done.

Rule: without a folder of the user's nothing is left behind; with one, a campaign that was killed goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory


@contextmanager
def campaign_store(folder: str | None) -> Iterator[str]:
    """The folder of its store: the user's, or one that is removed afterwards."""
    if folder is not None:
        yield folder
        return
    with TemporaryDirectory(prefix="bough-campaign-") as made:
        yield made
