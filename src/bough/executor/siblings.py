"""Several executors of one pilot, which share its cores: one for each socket of a node, for example.

The process that was started forks one child for each and waits for them. Rules: what the host has is divided, nothing
of it is given twice; the pilot lives until its last executor has left; a signal to end reaches all of them, and so does
the death of the process that waits.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from bough.executor.executor_options import ExecutorOptions
from bough.executor.host.devices import find_gpus
from bough.executor.host.processes import die_with_parent


def share_of(total: int, parts: int, which: int) -> tuple[int, int]:
    """Where the part of one begins and ends, if a number of things is divided; the first get what is left over."""
    each, more = divmod(total, parts)
    start = which * each + min(which, more)
    return start, start + each + (which < more)


def take_share(options: ExecutorOptions, which: int, parts: int, cpus: Sequence[int]) -> None:
    """Let options be those of one executor of several; `cpus`: those that all of them may use."""
    start, stop = share_of(int(options.cores), parts, which)
    if len(cpus) == int(options.cores):  # all of the host: each has cores of its own, as sockets have
        os.sched_setaffinity(0, cpus[start:stop])
    options.cores = float(stop - start)
    options.memory //= parts
    found = find_gpus()
    names = found.names if options.gpus is None else found.first(options.gpus).names
    low, high = share_of(len(names), parts, which)
    for variable in found.variables if names else ():
        os.environ[variable] = ",".join(names[low:high])
    if names:
        options.gpus = None if found.variables else high - low
    if options.work:
        options.work = os.path.join(options.work, str(which))


def part(options: ExecutorOptions) -> int | None:
    """Become several executors; None: this process is one of them, otherwise all have left, with this exit code."""
    parts = max(1, min(options.executors, int(options.cores)))
    if parts == 1:
        return None
    cpus, parent = sorted(os.sched_getaffinity(0)), os.getpid()
    children: list[int] = []
    ends = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    for which in range(parts):
        child = os.fork()
        if not child:
            _follow(parent)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
            take_share(options, which, parts, cpus)
            return None
        children.append(child)
    for number in ends:
        signal.signal(number, lambda number, _: _pass_on(children, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
    return _wait(children)


def _follow(parent: int) -> None:
    """End when the process that waits for us dies."""
    die_with_parent(signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def _pass_on(children: Sequence[int], number: int) -> None:
    for child in children:
        try:
            os.kill(child, number)
        except ProcessLookupError:
            continue


def _wait(children: list[int]) -> int:
    """Wait for all of them; the worst exit code."""
    worst = 0
    while children:
        child, status = os.wait()
        if child in children:
            children.remove(child)
            code = os.waitstatus_to_exitcode(status)
            worst = max(worst, code if code >= 0 else 1)
    return worst
