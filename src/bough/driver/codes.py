"""What the driver says of jobs that have no exit code of their own. Rule: no program can leave one of these numbers."""

from __future__ import annotations

NOT_RUN = 1000  # a stage of its pipeline failed before it, or the workflow stopped
CANCELLED = 1001
LOST = 1002  # its executor died under it, once too often
NO_OUTPUT = 1003  # it left 0, but not a file that it had declared
