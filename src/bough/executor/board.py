"""The board: a few numbers that a worker shows its executor without a system call.

It lies in shared anonymous memory, so it can still be read when the worker was killed: that is how the
executor knows which element died, and which process group to end. Rule: only the worker writes, each cell
by itself; what is read while the worker lives is a hint, what is read after its death is the truth.
"""

from __future__ import annotations

import mmap

HAND = 0  # number of the hand-over being run, 0: none
INDEX = 1  # element being run
GROUP = 2  # process group of the command being run, 0: none
SINCE = 3  # monotonic nanoseconds at which a function with limits began, 0: no function with limits runs
OUT = 4  # where the output of the element being run begins in the stdout file
ERR = 5  # the same for stderr
GENERATION = 6  # which pair of output files is in use
_CELLS = 8

Board = memoryview  # of 8-byte integers


def new_board() -> memoryview[int]:
    """A board for one worker, made before the fork."""
    return memoryview(mmap.mmap(-1, 8 * _CELLS)).cast("q")
