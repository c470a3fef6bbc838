"""The command line of the executor process, read by hand: loading argparse costs the session 10 ms.

Rule: as little as possible is imported before the hello; starting up is what users wait for.
"""

from __future__ import annotations

import os
import sys
import time

from bough.errors import BoughError
from bough.executor.loop import Executor
from bough.executor.terms import Terms
from bough.model.resources import Needs, read_bytes, read_seconds

_USAGE = (
    "usage: python -m bough.executor --server ADDRESS"
    " [--cores N] [--memory BYTES] [--gpus N] [--resource NAME=AMOUNT]... [--site NAME]"
    " [--until SECONDS_SINCE_1970] [--idle-timeout TIME] [--give-up TIME] [--work DIR]"
)

_TEXTS = {"--server": "server", "--site": "site", "--work": "work"}
_NUMBERS = {"--cores": "cores", "--until": "until"}
_TIMES = {"--idle-timeout": "idle", "--give-up": "give_up"}


class Options:
    """What an executor is told when it is started."""

    __slots__ = ("cores", "give_up", "idle", "memory", "named", "server", "site", "until", "work")

    def __init__(self, words: list[str]) -> None:
        self.server = self.work = ""
        self.site = "local"
        self.cores = float(os.cpu_count() or 1)
        self.memory = machine_memory()
        self.named: dict[str, float] = {}
        self.until = self.idle = 0.0
        self.give_up = 86400.0
        if len(words) % 2:
            raise SystemExit(_USAGE)
        for word, value in zip(words[::2], words[1::2], strict=True):
            try:
                self._set(word, value)
            except (ValueError, BoughError) as error:
                raise SystemExit(f"bough executor: {word} {value}: {error}") from None
        if not self.server:
            raise SystemExit(_USAGE)

    def _set(self, word: str, value: str) -> None:
        if word in _NUMBERS:
            setattr(self, _NUMBERS[word], float(value))
        elif word in _TEXTS:
            setattr(self, _TEXTS[word], value)
        elif word in _TIMES:
            setattr(self, _TIMES[word], read_seconds(value))
        elif word == "--memory":
            self.memory = read_bytes(value)
        elif word == "--gpus":
            self.named["gpus"] = float(value)
        elif word == "--resource":
            name, equals, amount = value.partition("=")
            if not name or not equals:
                raise ValueError("it is not of the form NAME=AMOUNT")
            self.named[name] = float(amount)
        else:
            raise SystemExit(_USAGE)


def main(words: list[str]) -> int:
    """Run an executor with these arguments; the exit code."""
    options = Options(words)
    _extend_path(os.environ.pop("BOUGH_PATH", ""))
    capacity, terms = read_terms(options)
    try:
        return Executor(options.server, capacity, options.site, terms).run()
    except BoughError as error:
        sys.stderr.write(f"bough executor: {error}\n")
        return error.exit_code


def read_terms(options: Options) -> tuple[Needs, Terms]:
    """What an executor has, and how long it stays."""
    named = dict(options.named)
    gpus = named.pop("gpus", 0.0) + named.pop("gpu", 0.0)
    capacity = Needs(options.cores, options.memory, gpus, tuple(sorted(named.items())))
    return capacity, Terms(options.until, time.time(), options.idle, options.give_up, options.work)


def _extend_path(path: str) -> None:
    """Let functions import what the script can; behind our own places, so that nothing of ours is shadowed."""
    sys.path += [entry for entry in path.split(os.pathsep) if entry and entry not in sys.path]


def machine_memory() -> int:
    """Bytes of memory this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
