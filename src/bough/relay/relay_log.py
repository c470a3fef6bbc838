"""Lines for the operator of a relay: one per event worth knowing, never one per executor's message."""

from __future__ import annotations

import contextlib
import sys
import time


def log(text: str) -> None:
    """Write one line with the time."""
    with contextlib.suppress(OSError, ValueError):  # a full disk must not end the relay because of a log line
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        sys.stderr.flush()
