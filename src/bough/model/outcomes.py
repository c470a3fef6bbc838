"""How tasks end: what an executor reports of a success, and a failure as a value.

Rule: inside Bough a task's failure is a value; only the user's calls turn it into an exception. The name of this module
stays: stored pickles name `Detail`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from operator import add

import msgspec

from bough.model.bounds import MOST, Count, Digest, Duration, Excerpt, FilePath, Name, Text, Whole
from bough.model.ids import Seconds


class Cause(enum.StrEnum):
    """Why a task did not succeed."""

    EXIT = "exit"  # a command's exit code was not 0
    SIGNAL = "signal"  # a command was ended by a signal that was not ours
    EXCEPTION = "exception"  # a function raised
    TIMEOUT = "timeout"  # ran longer than its limit
    MEMORY = "memory"  # used more memory than its limit
    MISSING_OUTPUT = "missing output"  # a declared output was not there at the end
    NOT_STARTED = "not started"  # the program was not found, the directory is gone, an import is missing
    UNSENDABLE = "unsendable"  # the result could not be pickled, or an argument not unpickled
    LOST = "lost"  # the executor, or the worker of a command, died under it; or a result died with its worker
    KILLED = "killed"  # on request of a user
    CANCELLED = "cancelled"
    DEPENDENCY = "dependency"  # something it depends on did not succeed
    FAIL_FAST = "fail fast"  # another task failed and the workflow was to stop then
    CLOSED = "closed"  # the session ended before it could run
    DIED = "died"  # a function ended its worker: by a crash, a signal, os._exit
    GIVEN_BACK = "given back"  # ended for a reason that is not its own: its site left, its executor was stopped
    MONITOR = "monitor"  # a monitor, or a rule about a population, ended it as a failure
    NO_SPACE = "no space"  # the disk where its files are brought to was full: it waits until there is space somewhere
    INPUT_LOST = "input lost"  # a file that another task had made is nowhere any more: it is made again first


class Failure(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Why one task did not succeed, with what a person needs to see."""

    cause: Cause
    message: Text = ""  # one line
    exit_code: Whole | None = None
    signal: Whole | None = None
    error: bytes = b""  # the exception, packed by the worker for the client
    stderr: Text = ""  # the last lines
    source: Count = 0  # for DEPENDENCY: the record that failed first
    site: bool = False  # the executor's place is at fault, not the task: it may work elsewhere, and costs no retry
    traceback: Excerpt = ""  # of a function's exception: the user's frames
    parameters: Excerpt = ""  # what the function was called with, or the values of a sweep, shortened
    restarts: Count = 0  # a monitor wants another attempt, which costs no retry, if this one is not beyond so many
    lost: FilePath = ""  # for INPUT_LOST: the file


class Stream(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A task's own part of an append-only output file."""

    path: FilePath
    offset: Count
    length: Count
    data: bytes = b""  # what was written, if it is short, from an executor whose files the server cannot read


def kept_time(nanoseconds: int) -> int:
    """A file's time as stores keep it: one before 1824 or after 2116 as the nearest of these years."""
    return max(-MOST, min(MOST, nanoseconds))


class Output(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A declared output that is there: identity enough to see later that it is unchanged."""

    slot: Name
    path: FilePath
    size: Count
    mtime_ns: Whole
    digest: Digest = b""  # of its content, where a server keeps that; empty: it was written in its place
    folder: bool = False  # a folder: its content is an archive, its size and time are those of all that is in it
    kept: bool = True  # False: it is temporary, stays where it was made, and goes with its last reader
    later: bool = False  # its task succeeded before it was safe: the executor writes it back with others
    executable: bool = False  # a file of a sandbox, which its owner may execute


class Staged(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What moving the files of a task took: seconds before and after it ran, and bytes by where they came from."""

    stage_in: Duration = 0
    stage_out: Duration = 0
    cached: Count = 0  # bytes of inputs that were in the cache of its host
    from_peers: Count = 0
    from_origin: Count = 0
    sent: Count = 0  # bytes of outputs
    from_shared: Count = 0  # bytes of inputs from the shared store of its site
    hits: Count = 0  # inputs that were in the cache of its host
    peer_hits: Count = 0  # inputs that came from peers, or from the shared store
    misses: Count = 0  # inputs of which the server sent something

    def __add__(self, other: Staged) -> Staged:
        return Staged(*map(add, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


class Detail(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What is known of one task's run beyond its result. Functions without output have none."""

    index: Count
    exit_code: Whole = 0
    started: Seconds = 0
    ended: Seconds = 0
    cpu: Duration = 0
    memory: Count = 0  # peak bytes
    stdout: Stream | None = None  # None: it wrote nothing
    stderr: Stream | None = None
    outputs: tuple[Output, ...] = ()
    ended_by: Excerpt = ""  # the monitor that ended it early, in one line; empty: it ended by itself
    staged: Staged | None = None  # None: its files did not travel


def waited_in(details: Sequence[Detail]) -> Seconds:
    """How long tasks waited for their inputs, all together."""
    return sum([one.staged.stage_in for one in details if one.staged is not None]) if details else 0.0


class EndedEarly(msgspec.Struct, frozen=True):
    """The result of a function that a monitor ended: it never returned a value."""

    ended_by: str  # in one line: "ended by plateau after 143 values: std 0.00007 < 0.0001"
    monitor: str = ""  # its name
    value: float | None = None  # the number on which it fired, if it is one
    text: str = ""  # the line on which it fired, if there is one


class ResultFile(msgspec.Struct, frozen=True, array_like=True):
    """A result too big to send: a file with the same bytes."""

    path: FilePath
    size: Count


Results = bytes | ResultFile | None  # a pickled list of values; None: commands have none


class Success(msgspec.Struct, frozen=True, gc=False):
    """Where elements [start, stop) succeeded: the turn that says so (0: several), and the original if it was reused."""

    start: int
    stop: int
    turn: int
    source: int
    source_start: int
    attempt: int
