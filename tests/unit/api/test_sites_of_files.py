"""Where a task may run that names files of sites' own storage."""

from __future__ import annotations

import pytest

from bough.api.submit.command_lines.commands import sites_of
from bough.errors import BadValue, InvalidWorkload

A, B = "alpha:/data/x", "beta:/data/y"


@pytest.mark.parametrize(
    ("reads", "writes", "bound", "found"),
    [
        ([], [], (), ()),
        (["/x", "s3://bucket/key"], ["/y"], ("local",), ("local",)),
        ([A], [], (), ("alpha",)),
        ([B, A], [], (), ("alpha", "beta")),
        ([A, B], [B], (), ("beta",)),
        ([A], [], ("gamma",), ("gamma",)),
        ([A], [], ("alpha", "gamma"), ("alpha",)),
        ([], [A], ("alpha", "gamma"), ("alpha",)),
    ],
)
def test_a_task_runs_where_it_writes_else_where_it_reads_if_it_may(
    reads: list[str], writes: list[str], bound: tuple[str, ...], found: tuple[str, ...]
) -> None:
    assert sites_of(reads, writes, bound) == found


def test_a_task_writes_to_one_site_that_it_may_run_at() -> None:
    with pytest.raises(InvalidWorkload, match="it writes files of alpha and beta"):
        sites_of([], [A, B], ())
    with pytest.raises(BadValue, match="it writes a file of alpha, where it may not run: beta, gamma"):
        sites_of([], [A], ("beta", "gamma"))
