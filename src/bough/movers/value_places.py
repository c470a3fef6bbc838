"""Where big values lie in memory: folders of /dev/shm that only their user can reach, one for each session.

A folder is locked while its script lives (`private.TemporaryFolder`). Rule: who sees a script end, its server or its
executor, sweeps; so does the next session that has a big value.
"""

from __future__ import annotations

from typing import Final

MEMORY: Final = "/dev/shm"  # a file system that is memory
VALUES: Final = "values"  # the kind of these folders
