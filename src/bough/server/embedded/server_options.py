"""The command line of the embedded server. Written by hand: loading argparse costs the session 10 ms."""

from __future__ import annotations

import os

from bough.model.dispatch_tuning import NO_PIGGYBACK, PICKUP, DispatchTuning

_USAGE = (
    "usage: python -m bough.server --store DIR --name NAME --fd N [--client PID]"
    " [--cores K] [--policy P] [--fresh] [--fail-fast] [--pickup N] [--no-piggyback]"
)


class ServerOptions:
    """What a session asks of its server."""

    __slots__ = ("client", "cores", "fail_fast", "fd", "fresh", "name", "policy", "store", "tuning")

    def __init__(self, words: list[str]) -> None:
        self.store = self.name = ""
        self.policy = "fifo"
        self.fd = -1
        self.client = os.getppid()
        self.cores = 0.0
        self.fresh = self.fail_fast = False
        self.tuning = DispatchTuning()
        left = list(words)
        while left:
            word = left.pop(0)
            if word == "--fresh":
                self.fresh = True
            elif word == "--fail-fast":
                self.fail_fast = True
            elif word == NO_PIGGYBACK:
                self.tuning.piggyback = False
            elif left:
                self._set(word, left.pop(0))
            else:
                raise SystemExit(_USAGE)
        if not self.store or self.fd < 0:
            raise SystemExit(_USAGE)
        self.name = self.name or os.path.basename(self.store)

    def _set(self, word: str, value: str) -> None:
        try:
            if word == "--store":
                self.store = os.path.abspath(value)
            elif word == "--name":
                self.name = value
            elif word == "--policy":
                self.policy = value
            elif word == "--fd":
                self.fd = int(value)
            elif word == "--client":  # our parent may be gone, and another one in its place, before we look
                self.client = int(value)
            elif word == "--cores":
                self.cores = float(value)
            elif word == PICKUP:
                self.tuning.max_span = int(value)
            else:
                raise SystemExit(_USAGE)
        except ValueError:
            raise SystemExit(_USAGE) from None
