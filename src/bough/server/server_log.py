"""Lines for the operator: one per event worth knowing a year later, never one per task."""

from __future__ import annotations

import sys
import time


def log(text: str) -> None:
    """Write one line with the time; the session sends the server's stderr to `server.log`."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    try:
        sys.stderr.write(f"{stamp} {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # a full disk must not end the server because of a log line
