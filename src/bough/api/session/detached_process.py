"""A process of ours that outlives the one that starts it: a server, a relay or an executor in the background.

Rule: it has a session of its own, and all that it says goes to the end of a log that only its user can read.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from bough import logs, private


class DetachedProcess:
    """`python -m bough.cli.main WORDS`, which has just been started."""

    def __init__(self, words: Sequence[str], log_path: str) -> None:
        self.log_path = log_path
        with open(log_path, "ab", opener=private.opener) as log:
            self._begin = log.seek(0, os.SEEK_END)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "bough.cli.main", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Its exit code; None: it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End it."""
        self._process.kill()

    def let_go(self) -> None:
        """It is no child of ours from now on: nobody complains that it runs."""
        self._process.returncode = 0

    def last_words(self) -> str:
        """The last message that it wrote to its log; empty: it said nothing."""
        with open(self.log_path, "rb") as file:
            file.seek(self._begin)
            lines = file.read().decode("utf-8", "replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        return logs.message_of(last).removeprefix("bough: ").removeprefix("bough executor: ")
