"""Commands: /bin/true as one array and one by one, beside the best of two bare loops in two processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import bough
from bough.bench import calls
from bough.bench.setting import ROUNDS, WORKERS, Pair, Setting
from bough.bench.timing import Row, Side, Took, by_turns, rate_row

if TYPE_CHECKING:
    from bough.api.session import Session

LOOPS = {"posix_spawn": calls.spawn_loop, "subprocess.run": calls.run_loop}


def measure(setting: Setting) -> Iterator[Row]:
    """Exit code and output are kept of each of them, as always."""
    both, count = setting.pair(), setting.size(2_500, 10_000)
    loops = list(LOOPS)
    if not setting.full:  # the better one of a trial
        trial = by_turns([_bare(both, loop, 200) for loop in LOOPS.values()], ROUNDS)
        loops = [min(zip(trial, loops, strict=True))[1]]
    array, loose, *bare = by_turns(
        [
            both.ours(lambda: array_of(both.session, count)),
            both.ours(lambda: one_by_one(both.session, count)),
            *[_bare(both, loop, count) for loop in map(LOOPS.__getitem__, loops)],
        ],
        ROUNDS,
        1.5 * setting.patience,  # three rounds, where two thousand programs are started in a second
    )
    peer, name = min(zip(bare, loops, strict=True))
    for how, ours in (("one array", array), ("one by one", loose)):
        yield rate_row(f"{count:,} commands /bin/true, {how}", count, ours, f"two loops of {name}", peer, target=0.9)


def _bare(both: Pair, loop: Callable[[int], float], count: int) -> Side:
    """Both workers of the pool do nothing else; the slower one's own time counts."""
    return both.theirs(lambda: Took(max(both.pool.map(loop, [count // WORKERS] * WORKERS))))


def array_of(session: Session, count: int) -> None:
    """A sweep. Each has two arguments, as with one alone `true` looks for --help, and sets up its locale first."""
    session.sweep("/bin/true {i} {i}", bough.product(i=range(count)), memo=False).wait_all()


def one_by_one(session: Session, count: int) -> None:
    """A future each."""
    for task in [session.command(["/bin/true"], memo=False) for _ in range(count)]:
        task.result()
