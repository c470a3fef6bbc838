"""What encryption costs: a service whose sessions and executors come by TLS, beside one that uses a Unix socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import bough
from bough.bench.functions import map_all, submit_all
from bough.bench.services import home
from bough.bench.setting import ROUNDS, WORKERS, Setting, warm
from bough.bench.timing import Row, compare, rate_row

if TYPE_CHECKING:
    from bough.api.session import Session

_TARGET = 0.7


def measure(setting: Setting) -> Iterator[Row]:
    """An array and loose tasks through each."""
    loose = setting.size(5_000, 20_000)
    with home(setting.folder) as far, home(setting.folder) as near:
        for there, tls in ((far, True), (near, False)):
            there.serve()
            there.execute(WORKERS, tls=tls)
        with (
            bough.Session(far.access("submit"), name="far") as through_tls,
            bough.Session(near.socket, name="near") as through_unix,
        ):
            warm(through_tls)
            warm(through_unix)
            works: tuple[tuple[str, int, int, Callable[[Session], None]], ...] = (
                ("map of 100,000 no-ops", 100_000, 3 * ROUNDS, partial(_map, range(100_000))),
                (f"submit of {loose:,} no-ops one by one", loose, ROUNDS, partial(_submit, loose)),
            )
            for subject, count, rounds, work in works:
                ours, peer = compare(
                    far.side(through_tls, partial(work, through_tls)),
                    near.side(through_unix, partial(work, through_unix)),
                    rounds,
                    setting.patience,
                )
                yield rate_row(f"{subject}, through TLS", count, ours, "Unix socket", peer, target=_TARGET)


def _map(items: range, session: Session) -> None:
    map_all(session, items)


def _submit(count: int, session: Session) -> None:
    submit_all(session, count)
