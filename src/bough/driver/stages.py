"""A pipeline's stages, run one after the other in one worker, and so on one host, each with its own end and output.

Rule: after a stage that fails nothing more is started, unless the pipeline is to go on; what was not started says so.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple

from bough.driver.codes import NOT_RUN

_NOT_STARTED = 127


class Stage(NamedTuple):
    """How a stage is started."""

    words: list[str]
    cwd: str
    env: dict[str, str]  # beside what the executor has


class Ended(NamedTuple):
    """How a stage ended; a negative code is a signal's number."""

    code: int
    stdout: bytes = b""
    stderr: bytes = b""
    started: float = 0.0
    ended: float = 0.0


def run_stages(stages: Sequence[Stage], keep_going: bool) -> list[Ended]:
    """Run them; called in a worker, whose process group they join, so that they end with it."""
    said: list[Ended] = []
    for stage in stages:
        if said and said[-1].code and not keep_going:
            said += [Ended(NOT_RUN)] * (len(stages) - len(said))
            break
        said.append(_run(stage))
    return said


def _run(stage: Stage) -> Ended:
    import os

    started = time.time()
    try:
        done = subprocess.run(
            stage.words,
            cwd=stage.cwd,
            env={**os.environ, **stage.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        return Ended(_NOT_STARTED, b"", f"{stage.words[0]}: {error.strerror}\n".encode(), started, time.time())
    return Ended(done.returncode, done.stdout, done.stderr, started, time.time())
