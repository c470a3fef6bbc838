"""Starting emulated executors: as many as one process can have connections.

Rule: too many are refused before anything is begun, with the number that is possible.
"""

from __future__ import annotations

import contextlib
import resource
import sys

from bough.errors import BoughError, UserError
from bough.executor.main import Options, read_terms

_SPARE = 32  # descriptors for everything else


def check_count(count: int) -> None:
    """Raise the limit of open files as far as may be; UserError if that is too little."""
    if count < 1:
        raise UserError(f"--emulate {count}: say how many, 1 or more")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and count > soft - _SPARE:
        raise UserError(
            f"--emulate {count}: a process may have {soft} open files here, so {soft - _SPARE} are possible:"
            " start several processes, or raise the limit (ulimit -Hn)"
        )


def emulate(words: list[str], count: int, seconds: float) -> int:
    """Run emulated executors with the arguments of a real one; the exit code."""
    options = Options(words)
    capacity, terms = read_terms(options)
    from bough.executor.emulation import Emulation

    try:
        check_count(count)
        return Emulation(options.server, capacity, options.site, terms, count, seconds=seconds).run()
    except BoughError as error:
        sys.stderr.write(f"bough executor: {error}\n")
        return error.exit_code
