"""The command line of the embedded server. Written by hand: loading argparse costs the session 10 ms."""

from __future__ import annotations

import os

from bough.model.arrays.dispatch_tuning import NO_PIGGYBACK, PICKUP, DispatchTuning
from bough.model.reuse_scope import MODES, RESUME

_USAGE = (
    "usage: python -m bough.server --store DIR --name NAME --fd N [--client PID]"
    " [--cores K] [--gpus N] [--pin] [--policy P] [--replication R] [--reuse MODE] [--script TOKEN] [--fail-fast]"
    " [--pickup N] [--no-piggyback]"
)


class ServerOptions:
    """What a session asks of its server."""

    __slots__ = (
        *("client", "cores", "fail_fast", "fd", "gpus", "name", "pin", "policy", "reuse", "script", "store"),
        *("replication", "tuning"),
    )

    def __init__(self, words: list[str]) -> None:
        self.store = self.name = ""
        self.policy = "fifo"
        self.replication = ""  # that of the placement policy
        self.fd = -1
        self.client = os.getppid()
        self.cores = 0.0
        self.gpus: int | None = None  # None: those that the machine has
        self.fail_fast = self.pin = False
        self.reuse: str = RESUME
        self.script = ""  # the process that opens the session, and when that began
        self.tuning = DispatchTuning()
        left = list(words)
        while left:
            word = left.pop(0)
            if word == "--fail-fast":
                self.fail_fast = True
            elif word == "--pin":
                self.pin = True
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
        name = word.removeprefix("--")
        try:
            if word in {"--name", "--policy", "--replication", "--script"} or (word == "--reuse" and value in MODES):
                setattr(self, name, value)
            elif word in {"--fd", "--client"}:  # our parent may be gone, and another one in its place, before we look
                setattr(self, name, int(value))
            elif word == "--store":
                self.store = os.path.abspath(value)
            elif word == "--cores":
                self.cores = float(value)
            elif word == "--gpus":
                self.gpus = int(value)
            elif word == PICKUP:
                self.tuning.max_span = int(value)
            else:
                raise SystemExit(_USAGE)
        except ValueError:
            raise SystemExit(_USAGE) from None
